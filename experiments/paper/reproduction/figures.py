"""The figures of a reproduction: over time, and over what a table varies."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from covey.report.figures import CAUSE_COLOURS, FAINT, INK, LEARNER_COLOURS, axes_in, brief, svg
from covey.types import Array
from reproduction.experiments import CaseResult
from reproduction.findings import PaperTable, TableLine
from reproduction.tables import ALONE, PRICES, READINGS, SHARES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class ReportFigure(NamedTuple):
    """A figure, its caption and its name."""

    svg: str
    caption: str
    name: str

    @property
    def file(self) -> str:
        """Its path relative to the report."""
        return f"figures/{re.sub(r'[^a-z0-9]+', '-', self.name.lower()).strip('-')}.svg"

    @property
    def standalone(self) -> str:
        """The figure as a file of its own, with a font and a background."""
        style = 'style="background: #fff; font-family: sans-serif; '
        return self.svg.replace('style="', style, 1) + "\n"


RINGS = "printed"
_SIZE = (520, 260)
_PANEL = 104  # pixels, of one reading over time
_FOOT = 40
# Where readings coincide, the broad line of the first still shows beside the others.
_STYLES: dict[str, dict[str, Any]] = {
    RINGS: {"color": INK, "marker": "o", "ls": "", "mfc": "none", "zorder": 4},
    "paper": {"color": LEARNER_COLOURS[1], "lw": 4.0, "alpha": 0.6},
    "spec": {"color": LEARNER_COLOURS[2], "lw": 1.5, "marker": "."},
    "default": {"color": LEARNER_COLOURS[3], "lw": 1.5, "marker": "."},
}
_OTHER: dict[str, Any] = {"color": FAINT, "lw": 1.2, "ls": (0, (1, 1.6))}
Points = Sequence[tuple[float, float]]


def draw_against(
    series: Mapping[str, Points], *, over: str, what: str, is_log: bool = False
) -> str:
    """Draw a number against what is varied: printed ones as rings, the others as lines."""

    def draw(figure: "Figure") -> None:
        axes = _axes(figure, over=over, what=what)
        if is_log:
            axes.set_xscale("log")
            axes.minorticks_off()
        for name, points in series.items():
            axes.plot(*zip(*points, strict=True), label=name, **_STYLES.get(name, _OTHER))
        places = sorted({x for points in series.values() for x, _ in points})
        axes.set_xticks(places, [f"{x:g}" for x in places])
        if what.startswith("error"):
            axes.set_ylim(bottom=0)
        _legend(axes)

    return svg(draw, size=_SIZE, label=f"{what} against {over}")


def draw_time(name: str, curves: Mapping[str, Mapping[str, Sequence[float]]], slots: int) -> str:
    """Draw errors over time, one panel per reading, and behind them what trains and explores."""
    height = _PANEL * len(curves) + _FOOT

    def draw(figure: "Figure") -> None:
        for place, (reading, curve) in enumerate(curves.items()):
            top = place * _PANEL + 22
            axes = axes_in(figure, left=48, bottom=height - (place + 1) * _PANEL, top=top, right=12)
            _draw_curve(axes, curve, slots)
            axes.set_title(reading, loc="left", fontsize=8, color=INK, pad=3)
            is_last = place == len(curves) - 1
            axes.tick_params(axis="x", labelbottom=is_last)
            if is_last:
                axes.set_xlabel("slot", labelpad=1)
            if place == 0:
                _legend(axes, loc="lower right", ncols=3, bbox_to_anchor=(1, 0.98))

    return svg(draw, size=(_SIZE[0], height), label=f"error over time, {name}")


def draw_regret(name: str, curves: Mapping[str, Array], slots: int) -> str:
    """Draw regret up to a slot: its mean over seeds, and behind it the range."""

    def draw(figure: "Figure") -> None:
        axes = _axes(figure, over="slot", what="regret")
        for reading, values in curves.items():
            ends = [(point + 1) * slots / values.shape[1] for point in range(values.shape[1])]
            style = _STYLES[reading] | {"marker": "", "lw": 1.7}
            colour = style["color"]
            axes.fill_between(
                ends, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, lw=0
            )
            axes.plot(ends, values.mean(axis=0), label=reading, **style)
        axes.set_xlim(0, slots)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(lambda value, _: brief(value))
        _legend(axes, loc="upper left")

    return svg(draw, size=_SIZE, label=f"regret over time, {name}")


def _draw_curve(axes: "Axes", curve: Mapping[str, Sequence[float]], slots: int) -> None:
    """Draw shares as steps, since each is that of a whole stretch."""
    edges = [place * slots / len(curve["error"]) for place in range(len(curve["error"]) + 1)]
    train = list(curve["training"])
    both = [a + b for a, b in zip(train, curve["exploration"], strict=True)]
    axes.stairs(both, edges, fill=True, color=CAUSE_COLOURS[1], label="explore")
    axes.stairs(train, edges, fill=True, color=CAUSE_COLOURS[0], label="train")
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    axes.plot(middles, curve["error"], color=_ERROR, lw=1.3, label="error")
    axes.spines["bottom"].set_visible(True)
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 50, 100])
    axes.set_xlim(0, slots)
    axes.set_ylabel("%")
    axes.xaxis.set_major_formatter(lambda value, _: brief(value))
    axes.grid(axis="y")


_ERROR = "#b5472d"


def _legend(axes: "Axes", **more: Any) -> None:
    axes.legend(frameon=False, fontsize=8, **more)


def _axes(figure: "Figure", *, over: str, what: str) -> "Axes":
    axes = axes_in(figure, left=48, bottom=38, top=8, right=12)
    axes.spines["bottom"].set_visible(True)
    axes.set_xlabel(over, labelpad=1)
    axes.set_ylabel(what)
    axes.grid(axis="y")
    return axes


_OVER_TIME = {
    "sim_results": ("CoS Z1 S2, previous label", "CoS Z1 S2, time", "DCZA Z1 S2, time"),
    "sim_results2": ("CoS Z1 S2, time, greedy helper",),
}
_LEARNERS = ("1", "2", "3", "4")
# PaperTable -> name of the drawing, what is varied, the line of a step, and the steps.
_AGAINST: dict[str, list[tuple[str, str, str, Sequence[str]]]] = {
    "errorperc": [
        (algorithm, "share of the labels that are seen", f"{algorithm}, {{}} of the labels", SHARES)
        for algorithm in ("CoS", "DCZA")
    ],
    "callcost": [("CoS", "price of asking", "price {}", PRICES)],
    "nlearn": [
        (f"CoS, {kind}", "number of learners", f"CoS, {kind}, learners: {{}}", _LEARNERS)
        for kind in ("hybrid", "synthetic")
    ],
}


def figures_of_table(table: PaperTable, results: Mapping[str, CaseResult]) -> list[ReportFigure]:
    """Return the figures of a table."""
    if table.name == "prices":
        return [_net_reward(table)]
    if table.name == "stationary":
        return [_regret(line, results) for line in table.lines]
    over_time = [
        _over_time(table, table.line(name), results) for name in _OVER_TIME.get(table.name, ())
    ]
    return over_time + [_against(table, *one) for one in _AGAINST.get(table.name, ())]


def _against(
    table: PaperTable, name: str, over: str, line: str, steps: Sequence[str]
) -> ReportFigure:
    lines = {float(step): table.line(line.format(step)) for step in steps}
    printed = [(x, one.numbers["paper"]["error"].printed) for x, one in lines.items()]
    series: dict[str, Points] = {RINGS: [(x, number.value) for x, number in printed if number]}
    series |= _series(lines, "error")
    is_log = table.name == "errorperc"
    caption = f"{name}: error against the {over}. Rings are what the paper prints, lines medians."
    drawn = draw_against(series, over=over, what="error %", is_log=is_log)
    return ReportFigure(drawn, caption, f"{table.name} {name}")


def _net_reward(table: PaperTable) -> ReportFigure:
    lines = {float(price): table.line(f"price {price}") for price in PRICES}
    series = _series(lines, "net reward")
    alone = table.line(ALONE).numbers["default"]["net reward"].found.value
    series[ALONE] = [(x, alone) for x in lines]
    drawn = draw_against(series, over="price of asking", what="net reward %")
    caption = (
        "Net reward against the price of asking, medians; dotted, the default policy with own "
        "functions only."
    )
    return ReportFigure(drawn, caption, "prices")


def _series(lines: Mapping[float, TableLine], quantity: str) -> dict[str, Points]:
    return {
        reading: [(x, one.numbers[reading][quantity].found.value) for x, one in lines.items()]
        for reading in READINGS
    }


def _over_time(
    table: PaperTable, line: TableLine, results: Mapping[str, CaseResult]
) -> ReportFigure:
    first = {reading: results[line.cases[reading][0]] for reading in READINGS}
    curves = {reading: one.curves for reading, one in first.items()}
    caption = (
        f"{line.name}, with the first seed: error in equal stretches of time, over the share of "
        "slots that train and explore."
    )
    drawn = draw_time(line.name, curves, first[READINGS[0]].case.slots)
    return ReportFigure(drawn, caption, f"{table.name} {line.name}")


def _regret(line: TableLine, results: Mapping[str, CaseResult]) -> ReportFigure:
    runs = {reading: [results[key] for key in keys] for reading, keys in line.cases.items()}
    slots = next(iter(runs.values()))[0].case.slots
    curves = {
        reading: np.array([one.curves["regret"] for one in some]) for reading, some in runs.items()
    }
    caption = (
        f"{line.name}: regret up to a slot, the mean of the seeds (line) and their range. `spec` "
        "is CoS-Z1."
    )
    return ReportFigure(draw_regret(line.name, curves, slots), caption, f"stationary {line.name}")
