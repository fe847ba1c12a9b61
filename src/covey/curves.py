"""Figures of a simulation report, as inline SVG elements."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from covey.comparison import Score
from covey.drawing import FAINT, INK, axes_in, brief, shorten, svg
from covey.figures import LEARNER_COLOURS, PHASE_COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Costs of learning are blue, as their phases are; mistakes are warm.
_CAUSE_COLOURS = (PHASE_COLOURS["train"], PHASE_COLOURS["explore"], "#c9d3dc", "#b5472d", "#e8a66c")
_ROW = 26  # pixels of a bar
_LETTER = 6.5  # pixels, a generous width of a character


def policy_colours(names: Iterable[str]) -> dict[str, str]:
    """Return a hue for each policy."""
    return dict(zip(names, itertools.cycle(LEARNER_COLOURS), strict=False))


def cause_colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each cause of regret."""
    return dict(zip(names, itertools.cycle(_CAUSE_COLOURS), strict=False))


def draw_growth(
    scores: Sequence[Score],
    *,
    colours: Mapping[str, str],
    limits: tuple[float, float],
    width: int,
) -> str:
    """Draw the cumulative regret of all policies in one environment, both axes logarithmic."""

    def draw(figure: "Figure") -> None:
        axes = _log_axes(figure, slots=scores[0].slots, limits=limits)
        top = scores[0].slots[-1], limits[1]
        # Anchored at the upper right corner, the same in every panel.
        axes.plot([1, top[0]], [top[1] / top[0], top[1]], color=FAINT, lw=0.8, ls=(0, (1, 2.5)))
        for score in scores:
            _draw_score(axes, score, colours[score.policy], floor=limits[0])

    label = f"regret in {scores[0].environment} over time, on logarithmic axes"
    return svg(draw, size=(width, 250), label=label)


def regret_limits(scores: Sequence[Score]) -> tuple[float, float]:
    """Return the common scale of all panels; without any regret, an arbitrary one."""
    highs = [high or 0.0 for score in scores for high in (*score.regret.high, *score.regret.mean)]
    bounds = [limit or 0.0 for score in scores for limit in score.bound or ()]
    means = [mean for score in scores for mean in score.regret.mean if mean > 0]
    high = max([*highs, *bounds])
    return (min(means) * 0.7, high * 1.4) if means else (0.1, 1.0)


def draw_causes(
    scores: Sequence[Score], *, colours: Mapping[str, str], ceiling: float, width: int
) -> str:
    """Draw the regret of each policy in one environment by cause."""
    left = int(max(len(shorten(score.policy, 16)) for score in scores) * _LETTER) + 12

    def draw(figure: "Figure") -> None:
        axes = axes_in(figure, left=left, bottom=34, top=2, right=44)
        axes.set_xlim(0, ceiling)
        axes.set_ylim(len(scores) - 0.5, -0.5)
        axes.set_yticks(range(len(scores)), [shorten(score.policy, 16) for score in scores])
        axes.tick_params(axis="y", labelcolor=INK)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: brief(value))
        axes.set_xlabel("regret at the end", labelpad=1)
        axes.grid(axis="x")
        for row, score in enumerate(scores):
            _draw_parts(axes, row, score.causes, colours)

    label = f"causes of regret in {scores[0].environment}"
    return svg(draw, size=(width, 40 + _ROW * len(scores)), label=label)


def _log_axes(figure: "Figure", *, slots: Sequence[int], limits: tuple[float, float]) -> "Axes":
    axes = axes_in(figure, left=44, bottom=36, top=8, right=12)
    axes.spines["bottom"].set_visible(True)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(slots[0], max(slots[-1], slots[0] + 1))
    axes.set_ylim(*limits)
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: brief(value))
    axes.set_xlabel("slot", labelpad=1)
    axes.grid(axis="y")
    return axes


def _draw_score(axes: "Axes", score: Score, colour: str, *, floor: float) -> None:
    lows = [max(floor, low) if low is not None else math.nan for low in score.regret.low]
    highs = [high if high is not None else math.nan for high in score.regret.high]
    axes.fill_between(score.slots, lows, highs, color=colour, alpha=0.18, linewidth=0)
    marker = "o" if len(score.slots) == 1 else ""
    axes.plot(score.slots, score.regret.mean, color=colour, linewidth=1.7, marker=marker)
    if score.bound is not None:
        limits = [math.nan if limit is None else limit for limit in score.bound]
        axes.plot(score.slots, limits, color=colour, linewidth=1.1, linestyle=(0, (4, 2)))


def _draw_parts(
    axes: "Axes", row: int, causes: Mapping[str, float], colours: Mapping[str, str]
) -> None:
    left = 0.0
    for cause, value in causes.items():
        axes.barh(row, value, left=left, height=0.66, color=colours[cause], linewidth=0)
        left += value
    axes.annotate(
        brief(float(f"{left:.3g}")), (left, row), (4, 0), textcoords="offset points", va="center"
    )
