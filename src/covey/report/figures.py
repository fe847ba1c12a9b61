"""Figures of replays, comparisons and simulations: SVG for pages, axes for notebooks."""

import contextlib
import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from covey.errors import need_of, optional_module
from covey.replay.engine import CellView
from covey.replay.outcome import LearnerOutcome, Timeline
from covey.replay.outcome import percent as percent_of
from covey.report.contracts import PricePoint
from covey.report.text import NONE, shorten
from covey.simulation.comparison import Score
from covey.types import BY_CONTEXT, Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INK = "#1f2428"
FAINT = "#626a72"

_PIXELS_PER_INCH = 96
_FIGURE_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 8.25,
    "text.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.labelcolor": FAINT,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "grid.color": "#e4e7ea",
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "hatch.linewidth": 1.4,
}


def figure_type() -> "type[Figure]":
    """Return matplotlib's class of figures; raise `MissingExtra` if it is not installed."""
    missing = need_of("figures", "matplotlib", extra="report")
    figure_class: type[Figure] = optional_module("matplotlib.figure", missing=missing).Figure
    return figure_class


def svg(draw: "Callable[[Figure], None]", *, size: tuple[int, int], label: str) -> str:
    """Return the figure that `draw` fills, of this size in pixels, as an SVG element.

    Raises `MissingExtra` if matplotlib is not installed.
    """
    figure_class = figure_type()
    from matplotlib import style as styles

    stream = io.StringIO()
    # "default" ignores a user's matplotlibrc; the salt makes the ids of figures differ.
    style = {**_FIGURE_STYLE, "svg.hashsalt": label}
    with styles.context(["default", style]), warnings.catch_warnings():
        # The browser draws the letters, so glyphs missing in matplotlib's font do not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = figure_class(figsize=(size[0] / _PIXELS_PER_INCH, size[1] / _PIXELS_PER_INCH))
        draw(figure)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", dpi=192, metadata=nothing)
    return _inline(stream.getvalue(), size=size, label=label)


def _inline(document: str, *, size: tuple[int, int], label: str) -> str:
    """Return the `svg` element alone, in the font of the page and without unused ids."""
    body = document[document.index("</defs>") + len("</defs>") :]
    body = re.sub(r'(<\w+) id="[\w.]+_\d+"', r"\1", body)
    body = re.sub(r'(<text style="font-size: [^;"]*); font-family: [^;"]*', r"\1", body)
    points = " ".join(f"{pixels * 72 / _PIXELS_PER_INCH:g}" for pixels in size)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {points}" style="max-width: {size[0]}px" '
        f'role="img" aria-label="{escape(shorten(label, 120))}">{body}'
    )


def axes_in(figure: "Figure", *, left: int, bottom: int, top: int, right: int) -> "Axes":
    """Return axes with margins in pixels, so that adjacent panels align."""
    width, height = (inches * _PIXELS_PER_INCH for inches in figure.get_size_inches())
    across, up = 1 - (left + right) / width, 1 - (bottom + top) / height
    axes = figure.add_axes((left / width, bottom / height, across, up))
    axes.spines[:].set_visible(False)
    return axes


def brief(value: float) -> str:
    """Return a number for the tick of an axis: 20k for 20000."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def tick(value: float | str) -> str:
    """Return the value of a context with three digits; text stays as it is."""
    return value if isinstance(value, str) else brief(float(f"{value:.3g}"))


# From Okabe and Ito, and from Tol: distinct under the common kinds of colour blindness.
LEARNER_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#56b4e9",
    "#882255",
    "#b5a642",
)
# Own functions are grey; a hue always means a request to a peer.
FUNCTION_COLOURS = ("#4a4a4a", "#a8a8a8", "#767676", "#d0d0d0", "#5f5f5f", "#bdbdbd")
EARNED = LEARNER_COLOURS[1]
BLANK = "#f4f4f1"
RARE_SHARE = 0.1  # of the arrivals of a learner's average cell

_LETTER = 6.5  # pixels, a generous width of a character
_LONGEST = 12  # characters of a category on an axis
Leads = Mapping[str, tuple[Array, Array]]  # policy -> slots, and how far it is ahead
Ticks = Sequence[tuple[float, float | str]]  # place on an axis from 0 to 1, what it stands for
_MANY_CELLS = 400  # above, an image is smaller than vectors


def percent(share: float) -> str:
    """Return `share` in whole percents; small shares differ from none."""
    if share == 0:
        return NONE
    return "<1%" if share < 0.005 else f"{100 * share:.0f}%"


def arm_colours(learners: Sequence[LearnerOutcome]) -> dict[str, str]:
    """Return a grey for each function and a hue for each learner, pale if it gets only the cell.

    Greys differ within a learner and hues between learners, as far as the palette allows.
    """
    colours: dict[str, str] = {}
    for learner in learners:
        for function in learner.functions:
            taken = {colours.get(other) for other in learner.functions}
            free = [grey for grey in FUNCTION_COLOURS if grey not in taken]
            colours.setdefault(function, (free or FUNCTION_COLOURS)[0])
    for position, learner in enumerate(learners):
        hue = LEARNER_COLOURS[position % len(LEARNER_COLOURS)]
        colours[learner.name] = hue
        half = (round((int(hue[k : k + 2], 16) + 255) / 2) for k in (1, 3, 5))
        colours[learner.name + BY_CONTEXT] = "#" + "".join(f"{part:02x}" for part in half)
    # Peers of a site whose own rows are not there.
    peers = dict.fromkeys(pair.peer for learner in learners for pair in learner.numbers.pairs)
    for position, name in enumerate((name for name in peers if name not in colours), len(learners)):
        colours[name] = LEARNER_COLOURS[position % len(LEARNER_COLOURS)]
    return colours


def smoothed_errors(timeline: Timeline) -> list[float]:
    """Return the moving average of the error in percent; NaN without judged slots nearby."""
    reach = min(2, len(timeline.slots) // 12)
    buckets = range(len(timeline.slots))
    windows = [slice(max(0, bucket - reach), bucket + reach + 1) for bucket in buckets]
    shares = [
        percent_of(math.fsum(timeline.errors[window]), sum(timeline.judged[window]))
        for window in windows
    ]
    return [math.nan if share is None else share for share in shares]


def draw_leads(leads: Leads, *, colours: Mapping[str, str], width: int) -> str:
    """Draw what each policy is ahead of the first one, over time."""
    return svg(
        lambda figure: _add_leads(_slot_axes(figure, left=60, right=12), leads, colours),
        size=(width, 260),
        label="lead of each policy over time",
    )


def _add_leads(axes: "Axes", leads: Leads, colours: Mapping[str, str]) -> None:
    axes.axhline(0, color=FAINT, linewidth=0.8, linestyle=":")
    for name, colour in colours.items():
        slots, lead = leads[name]
        axes.plot([0, *slots], [0, *lead], color=colour, linewidth=1.4, label=shorten(name, 24))


def draw_prices(
    curve: Sequence[PricePoint],
    *,
    name: str,
    now: float | None,
    even: float | None,
    size: tuple[int, int],
) -> str:
    """Draw what a buyer gains, the seller earns, and how much is bought, over the price."""
    prices = [point.price for point in curve]

    def draw(figure: "Figure") -> None:
        top = int(size[1] * 0.6)
        axes = axes_in(figure, left=44, right=20, bottom=size[1] - top, top=10)
        volume = axes_in(figure, left=44, right=20, bottom=36, top=top + 16)
        _add_prices(axes, curve, LEARNER_COLOURS[0])
        axes.plot(prices, [point.earned_points for point in curve], color=EARNED, linewidth=1.2)
        shares = [point.volume_percent for point in curve]
        volume.fill_between(prices, shares, color="#c9d3dc", linewidth=0)
        for each, label in ((axes, "points"), (volume, "bought %")):
            each.set_xlim(prices[0], prices[-1])
            each.set_ylabel(label, labelpad=2)
            each.grid(axis="y")
            each.locator_params(axis="x", nbins=5)
            for price, style in ((now, "-"), (even, (0, (1, 1.6)))):
                if price is not None:
                    each.axvline(price, color=INK, linewidth=1.0, linestyle=style)
        axes.locator_params(axis="y", nbins=5)
        axes.set_xticklabels([])
        volume.locator_params(axis="y", nbins=2)
        volume.set_ylim(0, max(1.0, *shares))
        volume.spines["bottom"].set_visible(True)
        volume.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        volume.set_xlabel("price of an answer", labelpad=1)

    return svg(draw, size=size, label=f"gain and volume over the price: {name}")


def _add_prices(
    axes: "Axes", curve: Sequence[PricePoint], colour: str, *, label: str | None = None
) -> None:
    """Add the gain over the price, with its interval."""
    prices, gains = [point.price for point in curve], [point.gain_points for point in curve]
    lows = [gain.mean if gain.low is None else gain.low for gain in gains]
    highs = [gain.mean if gain.high is None else gain.high for gain in gains]
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.fill_between(prices, lows, highs, color=colour, alpha=0.18, linewidth=0)
    axes.plot(prices, [gain.mean for gain in gains], color=colour, marker=".", label=label)


def draw_errors(learner: LearnerOutcome, *, colour: str, ceiling: float, width: int) -> str:
    """Draw one learner's smoothed error, its overall error, and the one without peers."""

    def draw(figure: "Figure") -> None:
        time, axes = learner.timeline, _slot_axes(figure, left=40, right=14)
        axes.set(xlim=(0, max(1, len(time.slots) * time.slots_per_bucket)), ylim=(0, ceiling))
        axes.locator_params(axis="x", nbins=4, integer=True)
        axes.locator_params(axis="y", nbins=4)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
        _add_errors(axes, learner, colour, alone=FAINT)
        axes.axhline(learner.numbers.error_percent or 0.0, color=colour, linewidth=0.7)
        end = axes.get_xlim()[1]
        pixel = end / width
        # Rounded to pixels, so that many marks stay few.
        marked = sorted({min(end, round(slot / pixel) * pixel) for slot in learner.alarms})
        axes.plot(marked, [0] * len(marked), "^", color=INK, markersize=5, clip_on=False, zorder=3)

    return svg(draw, size=(width, 176), label=f"error of {learner.name} over time")


def _add_errors(axes: "Axes", learner: LearnerOutcome, colour: str, *, alone: str) -> None:
    """Add the smoothed error, and the error without peers as dots."""
    values = smoothed_errors(learner.timeline)
    middles = [(bucket + 0.5) * learner.timeline.slots_per_bucket for bucket in range(len(values))]
    marker = "o" if len(values) == 1 else ""
    label = shorten(learner.name, 24)
    axes.plot(middles, values, color=colour, linewidth=1.7, marker=marker, label=label)
    if (error := learner.numbers.alone_percent) is not None:
        axes.axhline(error, color=alone, linewidth=1.1, linestyle=(0, (1, 1.6)))


def _shown_ticks(ticks: Ticks, *, most: int) -> tuple[list[float], list[str]]:
    """Return places and labels of an axis that has room for `most` labels; others are blank."""
    step = max(1, math.ceil((len(ticks) - 1) / max(1, most - 1)))
    labels = [
        shorten(tick(value), _LONGEST) if index % step == 0 else ""
        for index, (_, value) in enumerate(ticks)
    ]
    return [place for place, _ in ticks], labels


def draw_map(
    learner: LearnerOutcome,
    *,
    colours: Mapping[str, str],
    contexts: Sequence[str],
    width: int,
    ticks: Sequence[Ticks] = (),
) -> str:
    """Draw the cells of one or two contexts, coloured by the arm each prefers.

    `ticks` has places on the axis of each context, and what they stand for.
    """
    is_strip = len(contexts) == 1
    named = [*ticks] or [[(0.0, "0"), (0.5, "0.5"), (1.0, "1")]] * 2

    def draw(figure: "Figure") -> None:
        left, bottom, letters = 24, 34, 40
        if not is_strip:
            places, labels = _shown_ticks(named[1], most=max(3, width // 40))
            left, bottom = max(42, 26 + int(max(map(len, labels)) * _LETTER)), 36
            letters = width // 9
        axes = axes_in(figure, left=left, bottom=bottom, top=4, right=10)
        axes.set(facecolor=BLANK, xlim=(0, 1), ylim=(0, 1), yticks=[])
        axes.set_xlabel(shorten(contexts[0], letters), labelpad=1)
        if not is_strip:
            axes.set_ylabel(shorten(contexts[1], letters), labelpad=1, rotation_mode="anchor")
            axes.set_yticks(places, labels)
        longest = max(len(tick(value)) for _, value in named[0])
        fitting = int(0.8 * width / (_LETTER * min(_LONGEST, longest) + 12))
        axes.set_xticks(*_shown_ticks(named[0], most=max(2, fitting)))
        _draw_cells(axes, learner.cells, colours)

    label = f"arms that {learner.name} prefers by {' and '.join(contexts)}"
    return svg(draw, size=(width, 82 if is_strip else width - 12), label=label)


def _slot_axes(figure: "Figure", *, left: int, right: int) -> "Axes":
    axes = axes_in(figure, left=left, bottom=36, top=8, right=right)
    axes.spines["bottom"].set_visible(True)
    axes.xaxis.set_major_formatter(lambda value, _: brief(value))
    axes.set_xlabel("slot", labelpad=1)
    axes.grid(axis="y")
    return axes


def _draw_cells(axes: "Axes", cells: Sequence[CellView], colours: Mapping[str, str]) -> None:
    # Coarse first, so that finer cells are drawn above them. A strip has one context only.
    ordered = sorted(cells, key=lambda cell: cell.low[0] - cell.high[0])
    lows = [(*cell.low, 0.0) for cell in ordered]
    highs = [(*cell.high, 1.0) for cell in ordered]
    often = RARE_SHARE * sum(cell.arrivals for cell in cells) / max(1, len(cells))
    axes.bar(
        [low[0] for low in lows],
        [high[1] - low[1] for low, high in zip(lows, highs, strict=True)],
        width=[high[0] - low[0] for low, high in zip(lows, highs, strict=True)],
        bottom=[low[1] for low in lows],
        align="edge",
        color=[colours.get(cell.arm or "", BLANK) for cell in ordered],
        hatch=["////" if cell.arm and cell.arrivals < often else "" for cell in ordered],
        edgecolor="white",
        linewidth=0.7 if len(cells) <= 64 else 0.3,
    )
    if len(cells) > _MANY_CELLS:
        axes.set_rasterization_zorder(2)


# Costs of learning are blue, mistakes are warm.
CAUSE_COLOURS = ("#17324d", "#7a9cbd", "#c9d3dc", "#b5472d", "#e8a66c")


def colours_of(names: Iterable[str], palette: Sequence[str]) -> dict[str, str]:
    """Return a colour of the palette for each name; colours repeat if there are too few."""
    return dict(zip(names, itertools.cycle(palette), strict=False))


def draw_growth(
    scores: Sequence[Score],
    *,
    colours: Mapping[str, str],
    limits: tuple[float, float],
    width: int,
) -> str:
    """Draw the cumulative regret of all policies in one environment, both axes logarithmic."""

    def draw(figure: "Figure") -> None:
        axes, slots = _slot_axes(figure, left=44, right=12), scores[0].slots
        axes.set(xscale="log", yscale="log")
        axes.set(xlim=(slots[0], max(slots[-1], slots[0] + 1)), ylim=limits)
        axes.minorticks_off()
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: brief(value))
        floor, top = limits
        # Anchored at the upper right corner, the same in every panel.
        axes.plot([1, slots[-1]], [top / slots[-1], top], color=FAINT, lw=0.8, ls=(0, (1, 2.5)))
        for score in scores:
            regret, colour = score.regret, colours[score.policy]
            lows = [math.nan if low is None else max(floor, low) for low in regret.low]
            highs = [math.nan if high is None else high for high in regret.high]
            axes.fill_between(score.slots, lows, highs, color=colour, alpha=0.18, linewidth=0)
            marker = "o" if len(score.slots) == 1 else ""
            axes.plot(score.slots, regret.mean, color=colour, linewidth=1.7, marker=marker)

    label = f"regret in {scores[0].environment} over time, on logarithmic axes"
    return svg(draw, size=(width, 250), label=label)


def regret_limits(scores: Sequence[Score]) -> tuple[float, float]:
    """Return the common scale of all panels; without any regret, an arbitrary one."""
    highs = [high or 0.0 for score in scores for high in (*score.regret.high, *score.regret.mean)]
    means = [mean for score in scores for mean in score.regret.mean if mean > 0]
    return (min(means) * 0.7, max(highs) * 1.4) if means else (0.1, 1.0)


# -- axes for notebooks -----------------------------------------------------------------------


@contextlib.contextmanager
def _axes(x: str, y: str, **more: Any) -> Iterator[Any]:
    """Yield axes of a new figure of pyplot, so that a notebook shows it; end with a legend."""
    figure_type()  # says which extra is missing
    from matplotlib import pyplot

    axes = pyplot.subplots(figsize=(9, 4), layout="constrained")[1]
    yield axes
    axes.set(xlabel=x, ylabel=y, **more)
    if axes.lines:
        axes.legend()


def plot_errors(learners: Sequence[LearnerOutcome]) -> Any:
    """Return axes with the error of each learner over time, and its error alone as dots."""
    colours = arm_colours(learners)
    with _axes("slot", "error in percent (dotted: alone)") as axes:
        for learner in learners:
            if learner.judged:
                own = colours[learner.name]
                _add_errors(axes, learner, own, alone=own)
        axes.set_ylim(0, None)
    return axes


def plot_gains(learners: Sequence[LearnerOutcome]) -> Any:
    """Return axes with the gain of each learner until each slot, and its 95 % interval."""
    colours = arm_colours(learners)
    with _axes("slot", "net gain in right answers") as axes:
        for learner in learners:
            time, colour = learner.timeline, colours[learner.name]
            gained, rows = np.array(time.gain), np.array(time.judged)
            if not rows.any():
                continue
            slots = time.slots_per_bucket * np.arange(1, len(rows) + 1)
            doubt = 1.96 * np.sqrt(np.cumsum((gained - gained.sum() / rows.sum() * rows) ** 2))
            total = np.cumsum(gained)
            axes.fill_between(slots, total - doubt, total + doubt, color=colour, alpha=0.15, lw=0)
            axes.plot(slots, total, color=colour, label=shorten(learner.name, 24))
    return axes


def plot_leads(leads: Leads) -> Any:
    """Return axes with what each policy is ahead of the first one, over time."""
    first, *others = leads
    with _axes("slot", f"right answers net of costs, ahead of {first}") as axes:
        _add_leads(axes, leads, colours_of(others, LEARNER_COLOURS))
    return axes


def plot_prices(curves: Mapping[str, Sequence[PricePoint]]) -> Any:
    """Return axes with the gain of each buyer over the price of an answer."""
    with _axes("price of an answer", "gain of the buyer in points") as axes:
        for name, colour in colours_of(curves, LEARNER_COLOURS).items():
            _add_prices(axes, curves[name], colour, label=shorten(name, 40))
    return axes


def plot_growth(scores: Sequence[Score]) -> Any:
    """Return axes with the mean regret of each policy in each environment, both logarithmic."""
    with _axes("slot", "regret of a learner", xscale="log", yscale="log") as axes:
        for score in scores:
            label = f"{shorten(score.policy, 24)}, {shorten(score.environment, 24)}"
            axes.plot(score.slots, score.regret.mean, label=label)
    return axes
