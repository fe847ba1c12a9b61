"""Results of cases -> tables with the printed numbers beside those found, and covey's goals."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean, median
from typing import NamedTuple

from covey.bandit.partitions import Threshold
from covey.bandit.policies import policy_from
from reproduction.data import PRINTED, Key, PrintedNumber
from reproduction.experiments import CaseResult
from reproduction.tables import (
    ALONE,
    ARRIVALS,
    CONTEXT_NAMES,
    DEFAULT_CONTEXTS,
    ELECTRICITY_CONTEXTS,
    GIVEN,
    HERE,
    PRICES,
    READINGS,
    TableEntry,
    printed_key,
)

ERROR_POINTS, ERROR_SHARE = 0.3, 0.25
COUNT_POINTS, COUNT_SHARE = 0.15, 0.15


class ValueSpread(NamedTuple):
    """A number over several seeds or windows."""

    value: float  # their median or mean
    values: tuple[float, ...]

    @property
    def low(self) -> float:
        """The least of them."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest of them."""
        return max(self.values)


class TableNumber(NamedTuple):
    """A number of a line: its key, the printed number, and the values found."""

    key: Key
    printed: PrintedNumber | None
    found: ValueSpread

    @property
    def agrees(self) -> bool | None:
        """Whether the value found is near the printed one; None if nothing is printed."""
        return None if self.printed is None else is_near(self.printed, self.found.value)

    @property
    def seeds_that_agree(self) -> int:
        """The number of seeds for which the value is near the printed one."""
        printed = self.printed
        return 0 if printed is None else sum(is_near(printed, v) for v in self.found.values)


class TableLine(NamedTuple):
    """A line of a table, in all its readings: reading -> quantity -> number."""

    name: str
    numbers: dict[str, dict[str, TableNumber]]
    helpers: dict[str, str]  # reading -> how a peer that is asked chooses
    cases: dict[str, tuple[str, ...]]  # reading -> the keys of its cases
    decides: frozenset[str] = frozenset()  # the readings whose claims go by this line


class PaperTable(NamedTuple):
    """A table, and the methods without learning on the same data."""

    name: str
    lines: list[TableLine]
    yardsticks: list[TableLine]

    def line(self, name: str) -> TableLine:
        """Return the line of this name."""
        return next(line for line in self.lines if line.name == name)


def is_near(printed: PrintedNumber, value: float) -> bool:
    """Say whether a number is near a printed one: in points or in percent of it."""
    is_error = "error" in printed.key[-1] or "error" in printed.key[1]
    points = ERROR_POINTS if is_error else COUNT_POINTS
    share = ERROR_SHARE if is_error else COUNT_SHARE
    # What is decimal in the sources is not so in the machine.
    return abs(value - printed.value) <= max(points, share * abs(printed.value)) + 1e-9


def table_of(
    name: str, entries: Sequence[TableEntry], results: Mapping[str, CaseResult]
) -> PaperTable:
    """Return a table from its entries and the results of their cases, by key."""
    if name == "par_setup":
        return _parameters()
    lines: dict[tuple[bool, str], TableLine] = {}
    for entry in entries:
        place = (entry.reading == "yardsticks", entry.line)
        line = lines.setdefault(place, TableLine(entry.line, {}, {}, {}))
        line.numbers[entry.reading] = _numbers_of(entry, results)
        line.helpers[entry.reading] = entry.helper
        line.cases[entry.reading] = tuple(case.key() for case in entry.cases)
        if entry.decides:
            lines[place] = line._replace(decides=line.decides | {entry.reading})
    return PaperTable(
        name,
        [line for (is_yardstick, _), line in lines.items() if not is_yardstick],
        [line for (is_yardstick, _), line in lines.items() if is_yardstick],
    )


def figures_of(
    tables: Iterable[PaperTable], reading: str, *, is_log: bool = False
) -> dict[Key, float]:
    """Return the numbers of a reading by their keys, as claims want them.

    `is_log` takes the logarithm of src_bytes where the paper says src_bytes.
    """
    found: dict[Key, float] = {}
    for line in (line for table in tables for line in table.lines):
        for name in (HERE, reading):
            if name in line.numbers and name in line.decides:
                found |= {n.key: n.found.value for n in line.numbers[name].values()}
    if is_log:
        found |= {printed_key(key): value for key, value in found.items() if "A2 log" in key}
    return found


def _numbers_of(entry: TableEntry, results: Mapping[str, CaseResult]) -> dict[str, TableNumber]:
    numbers = {}
    for quantity, key in entry.keys.items():
        values = tuple(results[case.key()].numbers[quantity] for case in entry.cases)
        middle = fmean(values) if entry.statistic == "mean" else median(values)
        numbers[quantity] = TableNumber(
            key, PRINTED.get(printed_key(key)), ValueSpread(middle, values)
        )
    return numbers


def _parameters() -> PaperTable:
    """Return the parameters that covey's presets use for the paper's names."""
    lines: dict[str, TableLine] = {}
    for key, printed in PRINTED.items():
        if printed.table == "par_setup":
            _, algorithm, parameters, *quantity = key
            value = _parameter(algorithm, parameters, *quantity)
            name = f"{algorithm} {parameters}"
            line = lines.setdefault(name, TableLine(name, {HERE: {}}, {}, {}, frozenset({HERE})))
            line.numbers[HERE][" ".join(quantity)] = TableNumber(
                key, printed, ValueSpread(value, (value,))
            )
    return PaperTable("par_setup", list(lines.values()), [])


_LONG = 10**8  # slots, of which the fourth root is whole


def _parameter(algorithm: str, parameters: str, quantity: str, part: str) -> float:
    table = {"preset": algorithm.lower(), "parameters": parameters.lower()}
    horizon = {"horizon": _LONG} if quantity == "slices" else {}
    policy = policy_from(table | horizon).resolve(dimension=1, most_functions=2)
    if quantity == "slices":
        return math.log(policy.partition.levels(1)[0].side, _LONG)
    if quantity == "split":
        return float(getattr(policy.partition, part))
    threshold: Threshold = getattr(policy, quantity.replace("-", "_"))
    return threshold.scale if part == "scale" else threshold.power


def in_readings(line: TableLine) -> list[str]:
    """Return the readings of a line in the order in which they are shown."""
    return [name for name in (HERE, *READINGS) if name in line.numbers]


SETUP_POINTS = 0.5
MOST_OF_DEFAULT, MEAN_OF_DEFAULT = 0.8, 0.45
LABELS = {"0.5": 1.2, "0.1": 3.0, "0.01": 10.0}
LABELS_ALONE = {"0.01": 14.0}  # where instances arrive at learner 1 only
BELOW_ALONE = 1.0  # points of net reward
ABOVE_BEST = 1.5  # points, on Electricity
UNEXPLAINED = ("DCZA", "Z1", "training")  # no reading gives it

Tables = Mapping[str, PaperTable]


class Goal(NamedTuple):
    """A number that should lie at or below another, or near a printed one."""

    name: str
    wanted: str
    found: float
    is_met: bool
    note: str = ""


def goals(tables: Tables) -> dict[str, list[Goal]]:
    """Return the goals by group, for the tables that were run."""
    groups: dict[str, tuple[list[str], Callable[[Tables], Iterable[Goal]]]] = {
        "functions err as the paper says": (["sim_setup"], _setup),
        "errors in `paper` mode": (list(dict.fromkeys(table for table, _ in _LISTED)), _errors),
        "training and exploration in `paper` mode": (["sim_results", "sim_results2"], _counts),
        "the default policy": (["default"], _default_policy),
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


# PaperTable, line, and the quantity that should come out as printed.
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
        yield _near_printed(f"{table}: {line}", tables[table].line(line).numbers["paper"]["error"])


def _counts(tables: Tables) -> Iterable[Goal]:
    """Yield all that is printed of time and previous label, but for one that is unexplained."""
    for table, end in (("sim_results", ""), ("sim_results2", ", greedy helper")):
        rows = dict.fromkeys(key[1:4] for key in PRINTED if key[0] == table)
        for row, context in product(rows, ("A1", "A3")):
            line = f"{' '.join(row)}, {CONTEXT_NAMES[context]}{end}"
            for quantity in ("training", "exploration"):
                if (*row[:2], quantity) != UNEXPLAINED:
                    number = tables[table].line(line).numbers["paper"][quantity]
                    yield _near_printed(f"{table}: {line}, {quantity}", number)


def _near_printed(name: str, number: TableNumber) -> Goal:
    assert number.printed is not None
    seeds = len(number.found.values)
    first = f"first seed {number.found.values[0]:.2f}"
    note = f"{number.seeds_that_agree} of {seeds} seeds; {first}" if seeds > 1 else ""
    is_met = is_near(number.printed, number.found.value)
    return Goal(name, f"near {number.printed.text}", number.found.value, is_met, note)


def _default_policy(tables: Tables) -> Iterable[Goal]:
    errors = []
    for name, context, arrivals in product(("S1", "S2"), DEFAULT_CONTEXTS, ARRIVALS):
        line = tables["default"].line(f"{name}, {CONTEXT_NAMES[context]}, {ARRIVALS[arrivals]}")
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
    lines = [table.line(f"CoS Z1, {CONTEXT_NAMES[context]}") for context in ELECTRICITY_CONTEXTS]
    ours, cos = (
        [line.numbers[reading]["error"].found.value for line in lines]
        for reading in ("default", "spec")
    )
    for context, error in zip(ELECTRICITY_CONTEXTS, ours, strict=True):
        note = f"best single function {best:.2f}"
        yield _at_most(CONTEXT_NAMES[context], error, best + ABOVE_BEST, note)
    yield _below(f"mean of these {len(ours)}", fmean(ours), "CoS-Z1", fmean(cos))
    line = table.line(f"CoS Z1, {CONTEXT_NAMES['A1']}{GIVEN}")
    error = line.numbers["default"]["error"].found.value
    last = given["previous-label"].found.value
    yield _at_most(f"{CONTEXT_NAMES['A1']}{GIVEN}", error, last, "the previous label itself")


def _below(name: str, found: float, what: str, limit: float, note: str = "") -> Goal:
    return Goal(name, f"below {what}, {limit:.2f}", found, found < limit, note)


def _at_most(name: str, found: float, most: float, note: str = "") -> Goal:
    return Goal(name, f"at most {most:.2f}".rstrip("0").rstrip("."), found, found <= most, note)


def _range(number: TableNumber) -> str:
    spread = number.found
    if len(spread.values) == 1:
        return ""
    return f"{spread.low:.2f} to {spread.high:.2f} over {len(spread.values)} seeds"
