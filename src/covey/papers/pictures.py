"""Which drawings stand below which table."""

from collections.abc import Mapping, Sequence

import numpy as np

from covey.papers.beyond import ALONE
from covey.papers.document import Drawing
from covey.papers.drawings import PRINTED as RINGS
from covey.papers.drawings import draw_against, draw_regret, draw_time
from covey.papers.entries import PRICES, READINGS
from covey.papers.findings import Line, Table
from covey.papers.plan import SHARES
from covey.papers.playing import Played

Points = list[tuple[float, float]]
_OVER_TIME = {
    "sim_results": ("CoS Z1 S2, previous label", "CoS Z1 S2, time", "DCZA Z1 S2, time"),
    "sim_results2": ("CoS Z1 S2, time, greedy helper",),
}
_LEARNERS = ("1", "2", "3", "4")
# Table -> name of the drawing, what is varied, the line of a step, and the steps.
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


def drawings(table: Table, played: Mapping[str, Played]) -> list[Drawing]:
    """Return the drawings of a table."""
    if table.name == "prices":
        return [_net_reward(table)]
    if table.name == "stationary":
        return [_regret(line, played) for line in table.lines]
    over_time = [
        _over_time(table, table.line(name), played) for name in _OVER_TIME.get(table.name, ())
    ]
    return over_time + [_against(table, *one) for one in _AGAINST.get(table.name, ())]


def _against(table: Table, name: str, over: str, line: str, steps: Sequence[str]) -> Drawing:
    lines = {float(step): table.line(line.format(step)) for step in steps}
    printed = [(x, one.numbers["paper"]["error"].printed) for x, one in lines.items()]
    series = {RINGS: [(x, number.value) for x, number in printed if number]}
    series |= _series(lines, "error")
    is_log = table.name == "errorperc"
    caption = f"{name}: error against the {over}. Rings are what the paper prints, lines medians."
    drawn = draw_against(series, over=over, what="error %", is_log=is_log)
    return Drawing(drawn, caption, f"{table.name} {name}")


def _net_reward(table: Table) -> Drawing:
    lines = {float(price): table.line(f"price {price}") for price in PRICES}
    series = _series(lines, "net reward")
    alone = table.line(ALONE).numbers["default"]["net reward"].found.value
    series[ALONE] = [(x, alone) for x in lines]
    drawn = draw_against(series, over="price of asking", what="net reward %")
    caption = (
        "Net reward against the price of asking, medians; dotted, the default policy with own "
        "functions only."
    )
    return Drawing(drawn, caption, "prices")


def _series(lines: Mapping[float, Line], quantity: str) -> dict[str, Points]:
    return {
        reading: [(x, one.numbers[reading][quantity].found.value) for x, one in lines.items()]
        for reading in READINGS
    }


def _over_time(table: Table, line: Line, played: Mapping[str, Played]) -> Drawing:
    first = {reading: played[line.cases[reading][0]] for reading in READINGS}
    curves = {reading: one.curves for reading, one in first.items()}
    caption = (
        f"{line.name}, with the first seed: error in equal stretches of time, over the share of "
        "slots that train and explore."
    )
    drawn = draw_time(line.name, curves, first[READINGS[0]].case.slots)
    return Drawing(drawn, caption, f"{table.name} {line.name}")


def _regret(line: Line, played: Mapping[str, Played]) -> Drawing:
    runs = {reading: [played[key] for key in keys] for reading, keys in line.cases.items()}
    slots = next(iter(runs.values()))[0].case.slots
    curves = {
        reading: np.array([one.curves["regret"] for one in some]) for reading, some in runs.items()
    }
    caption = (
        f"{line.name}: regret up to a slot, the mean of the seeds (line) and their range. `spec` "
        "is CoS-Z1."
    )
    return Drawing(draw_regret(line.name, curves, slots), caption, f"stationary {line.name}")
