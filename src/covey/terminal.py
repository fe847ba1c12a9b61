"""Tables and sentences for a terminal."""

import textwrap
from collections.abc import Sequence

from covey.drawing import NONE

COLUMNS = 100


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return rows of cells, the first of them headings; names left, numbers right."""
    first, *widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    printed = [
        "  ".join([name.ljust(first), *map(str.rjust, numbers, widths)]) for name, *numbers in lines
    ]
    return "\n".join([printed[0], "-" * len(printed[0]), *printed[1:]])


def fill(sentence: str) -> str:
    """Return a sentence wrapped to the width of a terminal."""
    return textwrap.fill(sentence, width=COLUMNS)


def number(value: float | None, form: str) -> str:
    """Return a formatted number, or a dash for None."""
    return NONE if value is None else format(value, form)
