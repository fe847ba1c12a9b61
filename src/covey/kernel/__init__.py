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
    from covey.kernel.batches import Batches
    from covey.kernel.candidates import CandidateTable
    from covey.kernel.spaces import Ledger
    from covey.kernel.table import Table
    from covey.kernel.thresholds import Clock
    from covey.kernel.tickets import Tickets

    _NAMES: dict[str, Any] = {}

    def plain_names() -> dict[str, Any]: ...

else:

    def _load():
        form = os.environ.get("COVEY_KERNEL", "")
        if form not in ("", "compiled", "plain"):
            raise ConfigError(f"COVEY_KERNEL is {form!r}; set it to compiled or plain, or unset it")
        try:
            if form != "plain":
                return vars(importlib.import_module("covey.kernel._compiled"))
        except ModuleNotFoundError:
            if form == "compiled":
                raise ConfigError(
                    "COVEY_KERNEL=compiled, but the compiled kernel was not built; install a C "
                    "compiler and reinstall covey with COVEY_BUILD=compiled to see what fails"
                ) from None
        return plain_names()

    def plain_names():
        """Return all names of the plain kernel."""
        parts = (
            "thresholds",
            "table",
            "phases",
            "index",
            "tree",
            "custom",
            "spaces",
            "candidates",
            "tickets",
            "arena",
            "batches",
        )
        modules = [importlib.import_module(f"covey.kernel.{part}") for part in parts]
        return {name: value for module in modules for name, value in vars(module).items()}

    _NAMES = _load()
    Arena, Batches, CandidateTable, Ledger, Clock, Table, Tickets = (
        _NAMES[name]
        for name in ("Arena", "Batches", "CandidateTable", "Ledger", "Clock", "Table", "Tickets")
    )

__all__ = [
    "ASKED",
    "CHOICE",
    "LATEST_ALARMS",
    "NOT_DECIDED",
    "SERVE",
    "UNPAID",
    "Arena",
    "Batches",
    "CandidateTable",
    "Clock",
    "Ledger",
    "Table",
    "Tickets",
    "arm_of",
    "code_of",
    "doubts_of",
    "is_compiled",
    "kind_of",
    "phase_of",
    "plain_names",
    "row_of",
    "table_of",
    "undecided_row",
]
# Same values as in the kernel: its compiled form does not export constants.
SERVE = 3
ASKED = -2
UNPAID = -(1 << 60)
CHOICE = 0xFFFFF  # the part of a code that says the arm and the phase
NOT_DECIDED = -(1 << 62)  # neither a code nor `-1 - row`
LATEST_ALARMS = 10  # whose slots are stored


def is_compiled() -> bool:
    """Return whether the compiled form of the kernel is used."""
    return bool(Table.__module__ == "covey.kernel._compiled")


def table_of(clock: Clock, rule: Rule) -> Table:
    """Return the table of the policy that a rule describes."""
    table: Table = _NAMES[kind_of(rule)](clock, rule)
    return table


def kind_of(rule: Rule) -> str:
    """Return the name of the class of the policy that a rule describes."""
    if rule.custom is not None:
        return "CustomTable"
    if rule.tree is not None:
        return "TreeTable"
    if rule.index is not None:
        kind = "RecentTable" if rule.index.is_recent else "IndexTable"
        return "BalanceTable" if rule.index.is_balanced else kind
    return _kind_of_phases(rule)


def _kind_of_phases(rule: Rule) -> str:
    if rule.elimination is not None:
        return "EliminationTable"
    if rule.inherits and rule.averages_children:
        return "ChildrenMeanTable"
    if rule.asks_one:
        return "OneQueryTable"
    is_usual = len(rule.levels) == 1 and rule.counted == 0 and rule.unit == 1
    has_options = (
        rule.window > 0
        or rule.discount < 1.0
        or rule.learns_costs
        or (rule.is_pending and rule.weighs_pending)
        or rule.floors_training
        or rule.seed is not None
        or len(rule.rewards) > 0
    )
    return "PlainPhaseTable" if is_usual and not has_options and not rule.inherits else "PhaseTable"


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
