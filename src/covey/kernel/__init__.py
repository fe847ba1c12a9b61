"""Load the kernel: compiled if available, else pure Python.

COVEY_KERNEL=compiled requires the compiled form, COVEY_KERNEL=plain disables it.
"""

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from covey.errors import ConfigError
from covey.kernel.rules import Rule

if TYPE_CHECKING:
    from covey.kernel.arena import Arena
    from covey.kernel.custom import CustomTable
    from covey.kernel.index import BalanceTable, IndexTable, RecentTable
    from covey.kernel.phases import EliminationTable, PhaseTable, PlainPhaseTable, is_plain
    from covey.kernel.spaces import Ledger
    from covey.kernel.table import Table
    from covey.kernel.thresholds import Clock

    _IS_COMPILED: bool
else:
    _PARTS = ("thresholds", "table", "phases", "index", "custom", "arena")

    def _load():
        form = os.environ.get("COVEY_KERNEL", "")
        if form not in ("", "compiled", "plain"):
            raise ConfigError(f"COVEY_KERNEL is {form!r}; set it to compiled or plain, or unset it")
        try:
            if form != "plain":
                return [importlib.import_module("covey.kernel._compiled")], True
        except ModuleNotFoundError:
            if form == "compiled":
                raise ConfigError(
                    "COVEY_KERNEL=compiled, but the compiled kernel was not built; install a C "
                    "compiler and reinstall covey with COVEY_BUILD=compiled to see what fails"
                ) from None
        return [importlib.import_module(f"covey.kernel.{part}") for part in _PARTS], False

    _modules, _IS_COMPILED = _load()
    _names = {name: value for module in _modules for name, value in vars(module).items()}
    Arena, Ledger, Clock, Table = map(_names.get, ("Arena", "Ledger", "Clock", "Table"))
    PhaseTable, EliminationTable = map(_names.get, ("PhaseTable", "EliminationTable"))
    PlainPhaseTable, is_plain = map(_names.get, ("PlainPhaseTable", "is_plain"))
    IndexTable, RecentTable = map(_names.get, ("IndexTable", "RecentTable"))
    BalanceTable, CustomTable = map(_names.get, ("BalanceTable", "CustomTable"))

__all__ = [
    "CHOICE",
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
    "table_of",
    "undecided_row",
]
HEAD = 3  # counters of a row before those of its arms (labels per arm, then correct ones per arm)
# Same values as in the kernel: its compiled form does not export constants.
SERVE = 3
UNPAID = -(1 << 60)
CHOICE = 0xFFFFF  # the part of a code that says the arm and the phase
NOT_DECIDED = -(1 << 62)  # neither a code nor `-1 - row`


def is_compiled() -> bool:
    """Return whether the compiled form of the kernel is used."""
    return _IS_COMPILED


def table_of(clock: Clock, rule: Rule) -> Table:
    """Return the table of the policy that a rule describes."""
    if rule.custom is not None:
        return CustomTable(clock, rule)
    if rule.index is not None:
        kind = RecentTable if rule.index.is_recent else IndexTable
        return (BalanceTable if rule.index.is_balanced else kind)(clock, rule)
    if rule.elimination is not None:
        return EliminationTable(clock, rule)
    return (PlainPhaseTable if is_plain(rule) else PhaseTable)(clock, rule)


# These functions take one code or an array of codes.


def row_of(code: Any) -> Any:
    """Return the row of the cell of a decision."""
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
    """Return the change-detection statistics, by context space."""
    return {space: table.doubts() for space, table in tables.items()}
