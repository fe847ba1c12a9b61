"""A table -> rows of cells: the printed numbers, those found, and for each whether it matches.

A number that does not match carries a letter; the reasons stand below the table under theirs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from string import ascii_lowercase
from typing import NamedTuple

from covey.drawing import NONE
from covey.papers import remarks
from covey.papers.document import Block, Grid, Items, Text
from covey.papers.entries import HERE, READINGS, YARDSTICKS
from covey.papers.findings import Line, Number, Table, in_readings

JUDGED = (HERE, *READINGS[:2])  # the default policy is not meant to come near the printed numbers
UNLIKE = "≠"


class Miss(NamedTuple):
    """A number that does not match the printed one, and why as far as that is known."""

    line: str
    reading: str
    quantity: str
    number: Number
    reason: str


def blocks(table: Table) -> list[Block]:
    """Return the table, and below it what matches, what does not, and why."""
    missed = list(_missed(table))
    letters = _letters(missed)
    marks = {(m.line, m.reading, m.quantity): UNLIKE + letters[m.reason] for m in missed}
    return [_grid(table, marks), *_agreement(table), *_reasons(missed, letters)]


def yardsticks(table: Table) -> list[Block]:
    """Return what needs no learning on the same data, if there is such."""
    if not table.yardsticks:
        return []
    rows = [
        [line.name, *(_number(line.numbers["yardsticks"][name]) for name in YARDSTICKS)]
        for line in table.yardsticks
    ]
    headings = ["without learning", "previous label", "win-stay, lose-shift"]
    return [Grid([*headings, "best single function"], rows)]


def agreement(table: Table, reading: str) -> tuple[int, int]:
    """Return how many printed numbers a reading is near to, and how many it has."""
    numbers = [
        number
        for line in table.lines
        for number in line.numbers.get(reading, {}).values()
        if number.printed is not None
    ]
    return sum(bool(number.agrees) for number in numbers), len(numbers)


def _missed(table: Table) -> Iterator[Miss]:
    for line in table.lines:
        for reading in JUDGED:
            for quantity, number in line.numbers.get(reading, {}).items():
                if number.agrees is False:
                    why = remarks.reason(table.name, f"{reading}: {line.name}, {quantity}")
                    yield Miss(line.name, reading, quantity, number, why)


def _letters(missed: list[Miss]) -> dict[str, str]:
    """Return a letter for each reason, in the order in which a reader meets them."""
    return dict(zip(dict.fromkeys(miss.reason for miss in missed), ascii_lowercase, strict=False))


def _grid(table: Table, marks: Mapping[tuple[str, str, str], str]) -> Grid:
    readings = [r for r in (HERE, *READINGS) if any(r in line.numbers for line in table.lines)]
    has_printed = any(agreement(table, reading)[1] for reading in readings)
    has_helper = any(_helper(line) for line in table.lines)
    headings = [""] + ["helper"] * has_helper + ["printed"] * has_printed + readings
    rows = [
        [
            line.name,
            *([_helper(line)] * has_helper),
            *([_printed(line)] * has_printed),
            *(_cell(line, reading, marks) for reading in readings),
        ]
        for line in table.lines
    ]
    return Grid(headings, rows)


def _helper(line: Line) -> str:
    return line.helpers.get(in_readings(line)[0], "")


def _printed(line: Line) -> str:
    numbers = line.numbers[in_readings(line)[0]].values()
    texts = [NONE if number.printed is None else number.printed.text for number in numbers]
    return " / ".join(texts) if any(text != NONE for text in texts) else NONE


def _cell(line: Line, reading: str, marks: Mapping[tuple[str, str, str], str]) -> str:
    """Return the numbers of a reading; the range is that of the first of them, the error."""
    return " / ".join(
        _number(
            number,
            has_range=place == 0,
            is_judged=reading in JUDGED,
            mark=marks.get((line.name, reading, quantity), ""),
        )
        for place, (quantity, number) in enumerate(line.numbers.get(reading, {}).items())
    )


def _number(
    number: Number, *, has_range: bool = True, is_judged: bool = True, mark: str = ""
) -> str:
    spread = number.found
    text = f"{spread.value:.4g}" if number.key[0] == "par_setup" else f"{spread.value:.2f}"
    if is_judged and number.agrees:
        text = f"**{text}**"
    is_wide = f"{spread.low:.2f}" != f"{spread.high:.2f}"
    bounds = f" [{spread.low:.2f}, {spread.high:.2f}]" if has_range and is_wide else ""
    return text + (f" {mark}" if mark else "") + bounds


def _agreement(table: Table) -> list[Block]:
    counts = {reading: agreement(table, reading) for reading in JUDGED}
    told = [
        f"`{reading}`: {near} of {there} printed numbers come out."
        for reading, (near, there) in counts.items()
        if there
    ]
    return [Text(" ".join(told))] if told else []


def _reasons(missed: list[Miss], letters: Mapping[str, str]) -> list[Block]:
    """Say under each letter why, how often, and what comes out with some of the seeds."""
    told = []
    for words, letter in letters.items():
        those = [miss for miss in missed if miss.reason == words]
        counts = Counter(miss.reading for miss in those)
        often = ", ".join(f"{count} in `{reading}`" for reading, count in counts.items())
        told.append(f"{UNLIKE}{letter} does not match ({often}): {words}{_by_seeds(those)}")
    return [Items(told)] if told else []


def _by_seeds(missed: list[Miss]) -> str:
    near = [
        f"{miss.line}, {miss.quantity} in `{miss.reading}` with {miss.number.seeds_that_agree} of "
        f"{len(miss.number.found.values)}"
        for miss in missed
        if miss.number.seeds_that_agree
    ]
    return f" Matches with some seeds: {'; '.join(near)}." if near else ""
