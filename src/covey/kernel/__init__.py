"""The kernel: compiled if it was built, else the same sources in plain Python.

COVEY_KERNEL=compiled requires the compiled form, COVEY_KERNEL=plain disables it.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from covey.errors import ConfigError

# In this order.
COMPILED = ["cells", "counters", "beliefs", "linear", "table", "phases", "index", "average"]
COMPILED += ["arena"]


def _take_plain() -> None:
    """Import the sources, although their compiled forms would be found first."""
    for part in COMPILED:
        name = f"{__name__}.{part}"
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{part}.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


_form = os.environ.get("COVEY_KERNEL", "")
if _form not in ("", "compiled", "plain"):
    raise ConfigError(f"COVEY_KERNEL is {_form!r}; set it to compiled or plain, or unset it")
# The sources ask `cython` only whether they are compiled, so they run where it is not installed.
_cython = sys.modules.get("cython")
sys.modules["cython"] = SimpleNamespace(compiled=False, cast=lambda _, value: value)  # type: ignore[assignment]
if _form == "plain":
    _take_plain()

from covey.kernel import average, cells, index, phases, table  # noqa: E402 - not before the choice
from covey.kernel.arena import Arena  # noqa: E402
from covey.kernel.cells import Cells  # noqa: E402
from covey.kernel.counters import ArmCounters  # noqa: E402
from covey.kernel.layout import layout_of  # noqa: E402
from covey.kernel.rules import ASKED, UNPAID, Rule  # noqa: E402
from covey.kernel.table import CellPolicy, Clock, Table  # noqa: E402
from covey.kernel.tickets import Tickets  # noqa: E402

del sys.modules["cython"]
if _cython is not None:
    sys.modules["cython"] = _cython


def is_compiled() -> bool:
    """Return whether the compiled form of the kernel is used."""
    return not str(cells.__file__).endswith(".py")


if _form == "compiled" and not is_compiled():
    raise ConfigError(
        "COVEY_KERNEL=compiled, but the compiled kernel was not built; install a C compiler and "
        "reinstall covey with COVEY_BUILD=compiled to see what fails"
    )

__all__ = [
    "ASKED",
    "CHOICE",
    "EXPLOIT",
    "LATEST_ALARMS",
    "NOT_DECIDED",
    "SERVE",
    "UNPAID",
    "Arena",
    "Clock",
    "Table",
    "Tickets",
    "arm_of",
    "belief_key",
    "code_of",
    "doubts_of",
    "is_compiled",
    "phase_of",
    "row_of",
    "table_of",
    "take_doubts",
    "undecided_row",
]
# Same values as in the kernel: its compiled form does not export constants.
EXPLOIT = 2
SERVE = 3
CHOICE = 0xFFFFF  # the part of a code that says the arm and the phase
NOT_DECIDED = -(1 << 62)  # neither a code nor `-1 - row`
LATEST_ALARMS = 10  # whose slots are stored


def table_of(clock: Clock, rule: Rule) -> Table:
    """Return the table of the policy that a rule describes."""
    layout = layout_of(rule)
    counters = ArmCounters(rule, layout, Cells(rule, layout))
    return Table(clock, rule, layout, _policy_of(rule)(clock, rule, layout, counters))


def _policy_of(rule: Rule) -> type[CellPolicy]:
    if rule.custom is not None:
        return table.OwnPolicy
    if rule.tree is not None:
        return average.AutoPolicy
    if rule.index is not None:
        return index.ShareUcb
    if rule.is_paper:
        return phases.PaperPhases
    is_usual = len(rule.levels) == 1 and not rule.counts_labelled and rule.unit == 1
    has_options = (
        rule.window > 0
        or rule.discount < 1.0
        or rule.learns_costs
        or (rule.is_pending and rule.weighs_pending)
        or rule.floors_training
        or len(rule.rewards) > 0
    )
    is_plain = is_usual and not has_options and not rule.inherits
    return phases.PlainPhases if is_plain else phases.Phases


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
    """Return what is in no row, by context space; then beliefs, by space and function."""
    doubts = {space: table.policy.state() for space, table in tables.items()}
    for space in tables:
        for function, belief in enumerate(tables[space].policy.beliefs()):
            doubts[belief_key(space, function)] = belief
    return doubts


def belief_key(space: str, function: int) -> str:
    """Return under what a belief is stored."""
    return f"{space}#{function}"


def take_doubts(tables: Mapping[str, Table], doubts: Mapping[str, list[int]]) -> None:
    """Restore the result of `doubts_of`."""
    for key, numbers in doubts.items():
        if key in tables:
            tables[key].policy.restore(numbers)
        else:
            space, _, function = key.rpartition("#")
            tables[space].policy.take_belief(int(function), numbers)
