"""What cases came to -> tables: the printed numbers beside those found, seed by seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from covey.papers.entries import HERE, READINGS, Entry, printed_key
from covey.papers.playing import Played
from covey.papers.printed import PRINTED, Key, Printed
from covey.policies import resolve, settings_from
from covey.settings import Threshold

ERROR_POINTS, ERROR_SHARE = 0.3, 0.25
COUNT_POINTS, COUNT_SHARE = 0.15, 0.15


class Spread(NamedTuple):
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


class Number(NamedTuple):
    """A number of a line: where it stands, what the paper prints there, and what was found."""

    key: Key
    printed: Printed | None
    found: Spread

    @property
    def agrees(self) -> bool | None:
        """Whether what was found is near what is printed; None where nothing is."""
        return None if self.printed is None else is_near(self.printed, self.found.value)

    @property
    def seeds_that_agree(self) -> int:
        """For how many of the seeds it is near."""
        printed = self.printed
        return 0 if printed is None else sum(is_near(printed, v) for v in self.found.values)


class Line(NamedTuple):
    """A line of a table, in all its readings: reading -> quantity -> number."""

    name: str
    numbers: dict[str, dict[str, Number]]
    helpers: dict[str, str]  # reading -> how a peer that is asked chooses
    cases: dict[str, tuple[str, ...]]  # reading -> the keys of its cases
    decides: frozenset[str] = frozenset()  # the readings whose claims go by this line


class Table(NamedTuple):
    """A table, and what needs no learning on the same data."""

    name: str
    lines: list[Line]
    yardsticks: list[Line]

    def line(self, name: str) -> Line:
        """Return the line of this name."""
        return next(line for line in self.lines if line.name == name)


def is_near(printed: Printed, value: float) -> bool:
    """Say whether a number is near a printed one: in points or in percent of it."""
    is_error = "error" in printed.key[-1] or "error" in printed.key[1]
    points = ERROR_POINTS if is_error else COUNT_POINTS
    share = ERROR_SHARE if is_error else COUNT_SHARE
    # What is decimal in the sources is not so in the machine.
    return abs(value - printed.value) <= max(points, share * abs(printed.value)) + 1e-9


def table_of(name: str, entries: Sequence[Entry], played: Mapping[str, Played]) -> Table:
    """Return a table from its entries and what their cases came to, by key."""
    if name == "par_setup":
        return _parameters()
    lines: dict[tuple[bool, str], Line] = {}
    for entry in entries:
        place = (entry.reading == "yardsticks", entry.line)
        line = lines.setdefault(place, Line(entry.line, {}, {}, {}))
        line.numbers[entry.reading] = _numbers(entry, played)
        line.helpers[entry.reading] = entry.helper
        line.cases[entry.reading] = tuple(case.key() for case in entry.cases)
        if entry.decides:
            lines[place] = line._replace(decides=line.decides | {entry.reading})
    return Table(
        name,
        [line for (is_yardstick, _), line in lines.items() if not is_yardstick],
        [line for (is_yardstick, _), line in lines.items() if is_yardstick],
    )


def figures(tables: Iterable[Table], reading: str, *, is_log: bool = False) -> dict[Key, float]:
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


def _numbers(entry: Entry, played: Mapping[str, Played]) -> dict[str, Number]:
    numbers = {}
    for quantity, key in entry.keys.items():
        values = tuple(played[case.key()].numbers[quantity] for case in entry.cases)
        middle = fmean(values) if entry.statistic == "mean" else median(values)
        numbers[quantity] = Number(key, PRINTED.get(printed_key(key)), Spread(middle, values))
    return numbers


def _parameters() -> Table:
    """Return what covey's presets make of the names that the paper gives to parameters."""
    lines: dict[str, Line] = {}
    for key, printed in PRINTED.items():
        if printed.table == "par_setup":
            _, algorithm, parameters, *quantity = key
            value = _parameter(algorithm, parameters, *quantity)
            name = f"{algorithm} {parameters}"
            line = lines.setdefault(name, Line(name, {HERE: {}}, {}, {}, frozenset({HERE})))
            line.numbers[HERE][" ".join(quantity)] = Number(key, printed, Spread(value, (value,)))
    return Table("par_setup", list(lines.values()), [])


_LONG = 10**8  # slots, of which the fourth root is whole


def _parameter(algorithm: str, parameters: str, quantity: str, part: str) -> float:
    table = {"preset": algorithm.lower(), "parameters": parameters.lower(), "horizon": _LONG}
    policy = resolve(settings_from(table), dimension=1, most_functions=2)
    if quantity == "slices":
        return math.log(policy.partition.levels(1)[0].side, _LONG)
    if quantity == "split":
        return float(getattr(policy.partition, part))
    threshold: Threshold = getattr(policy, quantity.replace("-", "_"))
    return threshold.scale if part == "scale" else threshold.power


def in_readings(line: Line) -> list[str]:
    """Return the readings of a line in the order in which they are shown."""
    return [name for name in (HERE, *READINGS) if name in line.numbers]
