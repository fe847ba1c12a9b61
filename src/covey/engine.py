"""Which form of the kernel runs: compiled where it was built, else plain.

COVEY_KERNEL=compiled demands the compiled form, COVEY_KERNEL=plain forbids it.
"""

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from covey.errors import ConfigError

if TYPE_CHECKING:
    from covey.kernel import Arena, Clock, Ledger, Table, is_compiled
else:

    def _load():
        wish = os.environ.get("COVEY_KERNEL", "")
        if wish not in ("", "compiled", "plain"):
            raise ConfigError(
                f"COVEY_KERNEL is {wish!r}; set it to compiled or plain, or not at all"
            )
        try:
            return importlib.import_module("covey.kernel" if wish == "plain" else "covey._kernel")
        except ModuleNotFoundError:
            if wish == "compiled":
                raise ConfigError(
                    "COVEY_KERNEL demands the compiled kernel, but it was not built; install a C "
                    "compiler and reinstall covey with COVEY_BUILD=compiled to see what fails"
                ) from None
            return importlib.import_module("covey.kernel")

    _kernel = _load()
    Arena, Clock, Ledger, Table = _kernel.Arena, _kernel.Clock, _kernel.Ledger, _kernel.Table
    is_compiled = _kernel.is_compiled

__all__ = [
    "HEAD",
    "NOT_DECIDED",
    "SERVE",
    "UNPAID",
    "Arena",
    "Clock",
    "Ledger",
    "Table",
    "arm_of",
    "code_of",
    "doubts_of",
    "is_compiled",
    "phase_of",
    "row_of",
    "undecided_row",
]
HEAD = 3  # counters of a row before those of its arms: labels of each, then how many were right
# As in the kernel, whose compiled form does not show its constants.
SERVE = 3
UNPAID = -(1 << 60)
NOT_DECIDED = -(1 << 62)  # no code, and no `-1 - row` either

# The functions on codes take one code or an array of codes.


def row_of(code: Any) -> Any:
    """Return the row of the cell that a decision was made in."""
    return code >> 20


def arm_of(code: Any) -> Any:
    """Return the arm of a decision: own functions first, then peers."""
    return code >> 2 & 0x3FFFF


def phase_of(code: Any) -> Any:
    """Return the phase of a decision as a number: 0 train, 1 explore, 2 exploit, 3 serve."""
    return code & 3


def code_of(row: Any, arm: Any, phase: Any) -> Any:
    """Return the code of a decision; the inverse of the three above."""
    return row << 20 | arm << 2 | phase


def undecided_row(code: int) -> int:
    """Return the row of the cell for which peers must be queried; `code` is negative."""
    return -1 - code


def doubts_of(tables: Mapping[str, Table]) -> dict[str, list[int]]:
    """Return how far labels contradict what is known, by context space."""
    return {space: table.doubts() for space, table in tables.items()}
