"""What a site in one process knows: its cells as a table, and what it would decide now."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from covey.bandit.epochs import EpochCells
from covey.bandit.learner import NO_ANSWER, Learner
from covey.data.inputs import ALL, FeatureView, cut, shown
from covey.data.logs import Frame, arrow_module
from covey.errors import NoAnswerYet
from covey.functions.function import Function, Late
from covey.kernel import Table, row_of, undecided_row
from covey.kernel.rules import Cell, Report
from covey.node.rows import TicketState
from covey.node.state import codes_of
from covey.types import MEMORY, Context, Label

LEARNT = ("site", "cell", "arrivals", "arm", "labels", "right", "estimate")


class ArmEstimate(msgspec.Struct, frozen=True):
    """How right the answers of an arm were: in the finest cell that has labels of it."""

    labels: int
    right: float  # in units of a right answer

    @property
    def accuracy(self) -> float | None:
        """The share of right answers; None without labels."""
        return self.right / self.labels if self.labels else None


class Peek(msgspec.Struct, frozen=True):
    """What a site would answer now."""

    label: Any  # None: no function has an answer yet
    phase: str
    arm: str
    function: str
    price: float
    cell: str
    estimates: dict[str, ArmEstimate]  # by arm


class Known(Protocol):
    """A site of the same process."""

    @property
    def learner(self) -> Learner: ...

    @property
    def state(self) -> TicketState: ...

    @property
    def functions(self) -> Sequence[Function]: ...


class LearntCells(Frame):
    """What sites have learnt: one line per cell and arm."""

    def __init__(self, learners: Sequence[Learner]) -> None:
        lines = [line for learner in learners for line in _lines(learner)]
        self._columns = {name: [line[k] for line in lines] for k, name in enumerate(LEARNT)}

    def __len__(self) -> int:
        return len(self._columns["site"])

    def __repr__(self) -> str:
        return f"<LearntCells of {', '.join(dict.fromkeys(self._columns['site']))}: {len(self)}>"

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns by name; `estimate` is None without labels."""
        return {name: list(values) for name, values in self._columns.items()}

    def to_arrow(self) -> Any:
        """Return the columns as a `pyarrow.Table`; raise `MissingExtra` without pyarrow."""
        return arrow_module("pyarrow", what="Arrow tables").table(self._columns)


def _lines(learner: Learner) -> list[tuple[Any, ...]]:
    lines = []
    for space in learner.own_spaces:
        table = learner.tables[space]
        for row in range(len(table)):
            cell, arrivals = learner.name_at(space, row), table.arrivals(row)
            for arm, name in enumerate(learner.arms):
                labels, right = table.record(row, arm)
                gained = right / learner.unit
                share = gained / labels if labels else None
                lines.append((learner.name, cell, arrivals, name, labels, gained, share))
    return lines


# -- what would be decided ------------------------------------------------------------------------


class Peeking:
    """Decides as a site would, on copies of the cells that this depends on."""

    def __init__(
        self, site: Known, others: Mapping[str, Known], views: Sequence[FeatureView]
    ) -> None:
        self._site = site
        self._others = others
        self._views = views

    def peek(self, instance: Any, context: Context, slot: int) -> Peek:
        """Return what the site would answer at a slot; nothing changes."""
        learner = self._site.learner
        table = _copy(self._site, learner.space, context)
        due = {} if learner.prices is None else learner.prices.due(slot)
        for peer, cost in due.items():
            table.set_cost(learner.arms.index(peer), cost)
        code = self._decide(table, context, slot)
        choice, cell = learner.choice(code), _cell(table, learner.space, row_of(code))
        view = shown(self._views, choice.arm, context) if self._views else ALL
        seen = instance if view == ALL else cut(instance, self._views[view].columns)
        label, function = NO_ANSWER, choice.arm
        if choice.function >= 0:
            label = _said(self._site.functions[choice.function], seen)
        elif choice.is_by_context:
            label, function = _recalled(self._others[choice.peer], cell), MEMORY
        else:
            label, function = _assisted(self._others[choice.peer], seen, cell, slot)
        if label is NO_ANSWER:
            label, function = self._fallen_back(table, row_of(code), context, seen)
        return Peek(
            None if label is NO_ANSWER else label,
            choice.phase,
            choice.arm,
            function,
            due.get(choice.arm, choice.price),
            learner.names.of(cell),
            _estimates(learner, table, row_of(code), context),
        )

    def _decide(self, table: Table, context: Context, slot: int) -> int:
        learner = self._site.learner
        code = table.decide(context, slot)
        while code < 0:
            row = undecided_row(code)
            cell = _cell(table, learner.space, row)
            if not learner.is_supervised:
                return table.consult(row, context, self._told(cell))
            for peer in table.stale(row, slot):
                name, _ = learner.behind()[peer]
                table.hear(row, peer, _reported(self._others[name], cell, slot), slot)
            code = table.resume(row, context, slot)
        return code

    def _told(self, cell: Cell) -> list[tuple[float, int]]:
        """Return what peers say of the accuracy of their answers."""
        found = []
        for name, is_by_context in self._site.learner.behind():
            peer = self._others[name]
            table = _copy_at(peer, cell)
            row = table.meet(cell, 0)
            if is_by_context:
                _, count, labels = _seen(peer, cell)
                found.append((count / labels if labels else 0.0, labels))
            else:
                found.append(table.estimate(row))
        return found

    def _fallen_back(
        self, table: Table, row: int, context: Context, instance: Any
    ) -> tuple[Any, str]:
        """Return the answer of the best own function that has one."""
        functions = self._site.functions
        best = table.best_own(row, context)
        for k in range(len(functions)):
            function = functions[(best + k) % len(functions)]
            label = _said(function, instance)
            if label is not NO_ANSWER:
                return label, function.name
        return NO_ANSWER, functions[best].name


def _copy(site: Known, space: str, point: Context) -> Table:
    """Return a copy of a table, with the cells around a point at least."""
    learner = site.learner
    if learner.candidates or _is_epoched(learner):  # a decision depends on several tables
        codes = codes_of(site.state.pending())
        codes.setdefault(learner.space, []).extend(site.state.tickets.pending_codes())
        tables = learner.empty_tables()
        for name, table in tables.items():
            counted = codes.get(name, ()) if learner.is_pending else ()
            table.take_over(learner.tables[name], counted)
        return tables[space]
    known, table = learner.tables[space], learner.empty_table(space)
    for row in known.around(point):
        table.load(known.cell(row), known.counters(row))
    table.take_doubts(known.doubts())
    return table


def _copy_at(site: Known, cell: Cell) -> Table:
    """Return a copy of the table of a peer, with the cells around a cell at least."""
    learner = site.learner
    policy = learner.policies.get(cell.space)
    if policy is None or _is_epoched(learner):
        return _copy(site, cell.space, ())
    side = policy.partition.levels(policy.dimension)[cell.level].side
    return _copy(site, cell.space, tuple((k + 0.5) / side for k in cell.coordinates))


def _is_epoched(learner: Learner) -> bool:
    return any(isinstance(one.partition, EpochCells) for one in learner.policies.values())


def _cell(table: Table, space: str, row: int) -> Cell:
    cell = table.cell(row)
    return cell._replace(space=space) if space else cell


def _reported(peer: Known, cell: Cell, slot: int) -> Report:
    table = _copy_at(peer, cell)
    return table.report(table.meet(cell, slot), slot)


def _assisted(peer: Known, instance: Any, cell: Cell, slot: int) -> tuple[Any, str]:
    table = _copy_at(peer, cell)
    code = table.serve(table.meet(cell, slot), slot)
    function = peer.functions[peer.learner.choice(code).function]
    return _said(function, instance), function.name


def _recalled(peer: Known, cell: Cell) -> Any:
    label, _, labels = _seen(peer, cell)
    return label if labels else NO_ANSWER


def _seen(peer: Known, cell: Cell) -> tuple[Any, int, int]:
    """Return the label seen most often in a cell, how often, and all labels seen there."""
    table = peer.learner.tables[cell.space]
    row = table.find(cell)
    return table.recall(row) if row >= 0 else (None, 0, 0)


def _said(function: Function, instance: Any) -> Label | Any:
    """Return the answer of a function; `NO_ANSWER`: it has none yet."""
    try:
        said = function.ask(instance)
    except NoAnswerYet:
        return NO_ANSWER
    if type(said) is not Late:
        return said
    return said.label() if said.is_there() else NO_ANSWER


def _estimates(
    learner: Learner, table: Table, row: int, context: Context
) -> dict[str, ArmEstimate]:
    rows = [row, *reversed(table.around(context))]
    found = {}
    for arm, name in enumerate(learner.arms):
        records = [table.record(one, arm) for one in rows]
        labels, right = next((one for one in records if one[0]), (0, 0))
        found[name] = ArmEstimate(labels, right / learner.unit)
    return found
