"""Tables and sentences for a terminal."""

import textwrap
from collections.abc import Sequence

from covey.drawing import NONE

COLUMNS = 100


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return rows of cells, the first of them headings; names stand left, numbers right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    printed = []
    for name, *numbers in lines:
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        printed.append("  ".join([name.ljust(widths[0]), *cells]))
    return "\n".join([printed[0], "-" * len(printed[0]), *printed[1:]])


def fill(sentence: str) -> str:
    """Return a sentence in lines that fit."""
    return textwrap.fill(sentence, width=COLUMNS)


def number(value: float | None, form: str) -> str:
    """Return a number in the given form, or a dash where there is none."""
    return NONE if value is None else format(value, form)
