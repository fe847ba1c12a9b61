"""What covey set out to reach on the paper's data, and whether it is reached."""

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from statistics import fmean
from typing import NamedTuple

from covey.papers.beyond import ALONE, ARRIVALS, DEFAULT_CONTEXTS
from covey.papers.elsewhere import ELECTRICITY_CONTEXTS, GIVEN
from covey.papers.entries import CONTEXTS, PRICES
from covey.papers.findings import Number, Table, is_near
from covey.papers.printed import PRINTED

SETUP_POINTS = 0.5
MOST_OF_DEFAULT, MEAN_OF_DEFAULT = 0.8, 0.45
LABELS = {"0.5": 1.2, "0.1": 3.0, "0.01": 10.0}
LABELS_ALONE = {"0.01": 14.0}  # where instances arrive at learner 1 only
BELOW_ALONE = 1.0  # points of net reward
ABOVE_BEST = 1.5  # points, on Electricity
UNEXPLAINED = ("DCZA", "Z1", "training")  # no reading gives it

Tables = Mapping[str, Table]


class Goal(NamedTuple):
    """A number that should lie at or below another, or near a printed one."""

    name: str
    wanted: str
    found: float
    is_met: bool
    note: str = ""


def goals(tables: Tables) -> dict[str, list[Goal]]:
    """Return the goals by their group, of all tables that are there."""
    groups: dict[str, tuple[list[str], Callable[[Tables], Iterable[Goal]]]] = {
        "functions err as the paper says": (["sim_setup"], _setup),
        "errors in `paper` mode": (list(dict.fromkeys(table for table, _ in _LISTED)), _errors),
        "training and exploration in `paper` mode": (["sim_results", "sim_results2"], _counts),
        "the default policy": (["default"], _default),
        "the default policy with few labels": (["errorperc"], _labels),
        "the default policy with prices": (["prices"], _prices),
        "the default policy where nothing changes": (["stationary"], _stationary),
        "the default policy on Electricity": (["electricity"], _electricity),
    }
    return {
        name: list(find(tables))
        for name, (needed, find) in groups.items()
        if all(table in tables for table in needed)
    }


def _setup(tables: Tables) -> Iterable[Goal]:
    for line in tables["sim_setup"].lines:
        for number in line.numbers["here"].values():
            assert number.printed is not None
            distance = abs(number.found.value - number.printed.value)
            wanted = f"{number.printed.text} ± {SETUP_POINTS}"
            yield Goal(line.name, wanted, number.found.value, distance <= SETUP_POINTS)


# Table, line, and the quantity that should come out as printed.
_LISTED = (
    ("sim_results", "CoS Z1 S1, previous label"),
    ("sim_results", "CoS Z1 S2, previous label"),
    ("sim_results", "CoS Z1 S2, time"),
    ("error_comp", "CoS no context, S2"),
    *(("errorperc", f"CoS, {share} of the labels") for share in ("1", "0.5", "0.1", "0.01")),
    *(("callcost", f"price {price}") for price in ("0", "0.5", "0.7")),
    ("sim_results2", "CoS Z1 S2, previous label, greedy helper"),
    ("sim_results2", "CoS Z1 S2, time, greedy helper"),
    ("onlycontext", "CoS Z1 S2, previous label, locked in"),
    ("onlycontext", "CoS Z1 S2, time, locked in"),
    ("weights", "weights global, S1"),
    ("weights", "weights global, S2"),
)


def _errors(tables: Tables) -> Iterable[Goal]:
    for table, line in _LISTED:
        yield _printed(f"{table}: {line}", tables[table].line(line).numbers["paper"]["error"])


def _counts(tables: Tables) -> Iterable[Goal]:
    """Yield all that is printed of time and previous label, but for one that is unexplained."""
    for table, end in (("sim_results", ""), ("sim_results2", ", greedy helper")):
        rows = dict.fromkeys(key[1:4] for key in PRINTED if key[0] == table)
        for row, context in product(rows, ("A1", "A3")):
            line = f"{' '.join(row)}, {CONTEXTS[context]}{end}"
            for quantity in ("training", "exploration"):
                if (*row[:2], quantity) != UNEXPLAINED:
                    number = tables[table].line(line).numbers["paper"][quantity]
                    yield _printed(f"{table}: {line}, {quantity}", number)


def _printed(name: str, number: Number) -> Goal:
    assert number.printed is not None
    seeds = len(number.found.values)
    first = f"first seed {number.found.values[0]:.2f}"
    note = f"{number.seeds_that_agree} of {seeds} seeds; {first}" if seeds > 1 else ""
    is_met = is_near(number.printed, number.found.value)
    return Goal(name, f"near {number.printed.text}", number.found.value, is_met, note)


def _default(tables: Tables) -> Iterable[Goal]:
    errors = []
    for name, context, arrivals in product(("S1", "S2"), DEFAULT_CONTEXTS, ARRIVALS):
        line = tables["default"].line(f"{name}, {CONTEXTS[context]}, {ARRIVALS[arrivals]}")
        number = line.numbers["default"]["error"]
        errors.append(number.found.value)
        yield _at_most(line.name, number.found.value, MOST_OF_DEFAULT, _range(number))
    yield _at_most(f"mean of these {len(errors)}", fmean(errors), MEAN_OF_DEFAULT)


def _labels(tables: Tables) -> Iterable[Goal]:
    for start, limits in (("CoS", LABELS), ("arrivals at learner 1 only", LABELS_ALONE)):
        for share, most in limits.items():
            line = tables["errorperc"].line(f"{start}, {share} of the labels")
            number = line.numbers["default"]["error"]
            where = "arrivals at all" if start == "CoS" else start
            name = f"{share} of the labels, {where}"
            yield _at_most(name, fmean(number.found.values), most, f"mean; {_range(number)}")


def _prices(tables: Tables) -> Iterable[Goal]:
    """Yield the net rewards beside the best that uses own functions only."""
    table = tables["prices"]
    alone = {
        reading: fmean(numbers["net reward"].found.values)
        for reading, numbers in table.line(ALONE).numbers.items()
    }
    yardsticks = next(line for line in table.yardsticks if line.name == ALONE).numbers["yardsticks"]
    alone |= {
        name: 100 - fmean(yardsticks[name].found.values)
        for name in ("win-stay", "best single function")
    }
    best = max(alone, key=lambda name: alone[name])
    note = f"mean net reward; of own functions only {best} has most, {alone[best]:.2f}"
    for price in PRICES[1:]:
        number = table.line(f"price {price}").numbers["default"]["net reward"]
        net, least = fmean(number.found.values), alone[best] - BELOW_ALONE
        yield Goal(f"price {price}", f"at least {least:.2f}", net, net >= least, note)


def _stationary(tables: Tables) -> Iterable[Goal]:
    for line in tables["stationary"].lines:
        cos, ours = (line.numbers[reading]["regret"] for reading in ("spec", "default"))
        note = f"regret per 100 slots, mean; {_range(ours)}"
        yield _below(line.name, ours.found.value, "CoS-Z1", cos.found.value, note)


def _electricity(tables: Tables) -> Iterable[Goal]:
    table = tables["electricity"]
    yardsticks, given = (line.numbers["yardsticks"] for line in table.yardsticks)
    best = yardsticks["best single function"].found.value
    lines = [table.line(f"CoS Z1, {CONTEXTS[context]}") for context in ELECTRICITY_CONTEXTS]
    ours, cos = (
        [line.numbers[reading]["error"].found.value for line in lines]
        for reading in ("default", "spec")
    )
    for context, error in zip(ELECTRICITY_CONTEXTS, ours, strict=True):
        note = f"best single function {best:.2f}"
        yield _at_most(CONTEXTS[context], error, best + ABOVE_BEST, note)
    yield _below(f"mean of these {len(ours)}", fmean(ours), "CoS-Z1", fmean(cos))
    line = table.line(f"CoS Z1, {CONTEXTS['A1']}{GIVEN}")
    error = line.numbers["default"]["error"].found.value
    last = given["previous-label"].found.value
    yield _at_most(f"{CONTEXTS['A1']}{GIVEN}", error, last, "the previous label itself")


def _below(name: str, found: float, what: str, limit: float, note: str = "") -> Goal:
    return Goal(name, f"below {what}, {limit:.2f}", found, found < limit, note)


def _at_most(name: str, found: float, most: float, note: str = "") -> Goal:
    return Goal(name, f"at most {most:.2f}".rstrip("0").rstrip("."), found, found <= most, note)


def _range(number: Number) -> str:
    spread = number.found
    if len(spread.values) == 1:
        return ""
    return f"{spread.low:.2f} to {spread.high:.2f} over {len(spread.values)} seeds"
