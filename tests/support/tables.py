"""What a table of the kernel counts, in a form that can be compared, and its plain form."""

import importlib
import sys
from typing import Any, NamedTuple

import pytest

import covey
from covey import kernel
from covey.kernel.rules import Cell


class Row(NamedTuple):
    """All that is counted in a cell, with its pending labels, and the labels that are stored."""

    cell: Cell
    counters: list[int]
    labels: list[tuple[Any, int]]


def rows_of(table: Any) -> list[Row]:
    saved = table.saved
    return [
        Row(table.cells.cell(row), saved.stored(row) + saved.pending(row), saved.known(row))
        for row in range(len(table))
    ]


def plain_kernel() -> Any:
    """Return the kernel in plain Python, beside the one that runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVEY_KERNEL", "plain")
        patch.setattr(covey, "kernel", kernel)  # an import sets it, too
        for name in ("covey.kernel", *(f"covey.kernel.{part}" for part in kernel.COMPILED)):
            patch.delitem(sys.modules, name)
        return importlib.import_module("covey.kernel")
