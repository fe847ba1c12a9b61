"""The drawings of a reproduction: errors over time, and over what a table varies."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from covey.drawing import FAINT, INK, axes_in, brief, svg
from covey.figures import LEARNER_COLOURS, PHASE_COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRINTED = "printed"
_SIZE = (520, 260)
_TITLE = 20  # pixels
_RINGS: dict[str, Any] = {"marker": "o", "ls": "", "mfc": "none"}
_DOTS: dict[str, Any] = {"marker": "."}
Points = Sequence[tuple[float, float]]


def draw_against(series: Mapping[str, Points], *, over: str, is_log: bool = False) -> str:
    """Draw errors against what is varied: printed ones as rings, the others as lines."""

    def draw(figure: "Figure") -> None:
        axes = _axes(figure, over=over)
        if is_log:
            axes.set_xscale("log")
            axes.minorticks_off()
        for place, (name, points) in enumerate(series.items()):
            colour = INK if name == PRINTED else LEARNER_COLOURS[place % len(LEARNER_COLOURS)]
            style = _RINGS if name == PRINTED else _DOTS
            axes.plot(*zip(*points, strict=True), color=colour, lw=1.5, label=name, **style)
        places = sorted({x for points in series.values() for x, _ in points})
        axes.set_xticks(places, [f"{x:g}" for x in places])
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)

    return svg(draw, size=_SIZE, label=f"error against {over}")


def draw_time(name: str, curves: Mapping[str, Mapping[str, Sequence[float]]], slots: int) -> str:
    """Draw errors over time, one panel per reading, and behind them what trains and explores."""
    height = 130

    def draw(figure: "Figure") -> None:
        for place, (reading, curve) in enumerate(curves.items()):
            top = _TITLE + place * height
            axes = axes_in(
                figure, left=48, bottom=(len(curves) - 1 - place) * height + 34, top=top, right=22
            )
            _draw_phases(axes, curve, slots)
            axes.plot(_middles(curve["error"], slots), curve["error"], color=INK, lw=1.3)
            axes.set_ylim(0, 100)
            axes.set_xlim(0, slots)
            axes.set_ylabel("%")
            axes.set_title(reading, loc="left", fontsize=8, color=FAINT, pad=2)
            axes.xaxis.set_major_formatter(lambda value, _: brief(value))
            axes.grid(axis="y")

    return svg(
        draw, size=(_SIZE[0], _TITLE + height * len(curves)), label=f"error over time, {name}"
    )


def _draw_phases(axes: "Axes", curve: Mapping[str, Sequence[float]], slots: int) -> None:
    middles = _middles(curve["error"], slots)
    train = list(curve["training"])
    both = [a + b for a, b in zip(train, curve["exploration"], strict=True)]
    axes.fill_between(middles, 0, train, color=PHASE_COLOURS["train"], lw=0)
    axes.fill_between(middles, train, both, color=PHASE_COLOURS["explore"], lw=0)


def _middles(values: Sequence[float], slots: int) -> list[float]:
    step = slots / len(values)
    return [(place + 0.5) * step for place in range(len(values))]


def _axes(figure: "Figure", *, over: str) -> "Axes":
    axes = axes_in(figure, left=48, bottom=38, top=8, right=12)
    axes.spines["bottom"].set_visible(True)
    axes.set_xlabel(over, labelpad=1)
    axes.set_ylabel("error %")
    axes.grid(axis="y")
    return axes
