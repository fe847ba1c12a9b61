"""Several tables of a learner as one, for decisions one at a time; those of candidate spaces."""

from array import array
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, Self

from covey.bandit.partitions import Candidates
from covey.kernel import CHOICE, SERVE, Ledger, Table, code_of, row_of
from covey.kernel.history import History
from covey.kernel.rules import Cell
from covey.types import Context

Counted = tuple[Table, int, Context, int]  # a table, with a decision, its context and its slot


def by_row(name: str, slot: int | None = None) -> Any:
    """Return a method that the table of a row has, for the row.

    `slot` is the place of a slot among the arguments after the row.
    """
    method = attrgetter(name)

    def call(self: "Several", row: int, *rest: Any) -> Any:
        table, own, now = self.at(row, 0 if slot is None else rest[slot])
        if slot is not None:
            rest = (*rest[:slot], now, *rest[slot + 1 :])
        return method(table)(own, *rest)

    return call


def by_decision(name: str, context: int) -> Any:
    """Return a method of all tables that count a decision.

    `context` is the place of its context among the arguments after the decision; then its slot
    follows.
    """

    def call(self: "Several", decision: int, *rest: Any) -> None:
        for table, code, point, slot in self.inside(decision, *rest[context : context + 2]):
            getattr(table, name)(code, *rest[:context], point, slot, *rest[context + 2 :])

    return call


class Several:
    """Several tables as one, with the methods of a table, of its cells and of what is saved.

    Inherit, and say what rows and decisions mean in these tables. Their methods are called with
    positions only.
    """

    alarm_count = forgotten = 0
    alarms = ()
    is_wide = False

    @property
    def policy(self) -> Self:
        """What judges arms."""
        return self

    def beliefs(self) -> list[Any]:
        """Return nothing: beliefs are those of single tables."""
        return []

    news = beliefs

    def adopt(self: Any, old: Any, arms: list[int]) -> None:
        """Take what is in no row from a table of other arms."""
        self.restore(old.state())

    @property
    def cells(self) -> Self:
        return self

    @property
    def saved(self) -> Self:
        return self

    def at(self, row: int, slot: int) -> tuple[Table, int, int]:
        raise NotImplementedError

    def inside(self, decision: int, context: Context = (), slot: int = 0) -> Iterable[Counted]:
        raise NotImplementedError

    def decide(self, context: Context, slot: int, closed: bytes | None = None) -> int:
        raise NotImplementedError

    stale = by_row("stale", slot=0)
    hear = by_row("hear", slot=2)
    unrefresh = by_row("unrefresh")
    report = by_row("report", slot=0)
    estimate = by_row("estimate")
    record = by_row("record")
    accuracies = by_row("accuracies")
    basis = by_row("basis")
    retract = by_decision("retract", context=0)
    settle = by_decision("settle", context=1)
    score = by_decision("score", context=2)
    remember = by_decision("remember", context=1)

    def expect(self, decision: int) -> None:
        for table, code, _, _ in self.inside(decision):
            table.expect(code)

    def forget(self, decision: int) -> None:
        for table, code, _, _ in self.inside(decision):
            table.forget(code)

    # -- many rows ------------------------------------------------------------------------------

    def decide_batch(
        self,
        contexts: memoryview,
        first_slot: int,
        decisions: memoryview,
        closed: bytes | None = None,
    ) -> int:
        for k, context in enumerate(_points(contexts, len(decisions))):
            decisions[k] = self.decide(context, first_slot + k, closed)
            if decisions[k] < 0:
                return k
        return len(decisions)

    def count_batch(self, contexts: memoryview, decisions: memoryview) -> None:
        for k, context in enumerate(_points(contexts, len(decisions))):
            for table, code, point, _ in self.inside(decisions[k], context):
                table.count_batch(array("d", point), array("q", [code]))

    def retract_batch(self, contexts: memoryview, first_slot: int, decisions: memoryview) -> None:
        for k, context in enumerate(_points(contexts, len(decisions))):
            if decisions[k] >= 0:
                self.retract(decisions[k], context, first_slot + k)

    def settle_batch(
        self,
        contexts: memoryview,
        slots: memoryview,
        decisions: memoryview,
        gains: memoryview,
        paid: memoryview,
    ) -> None:
        for k, context in enumerate(_points(contexts, len(decisions))):
            self.settle(decisions[k], gains[k], context, slots[k], paid[k])

    # -- saving, loading, changes ---------------------------------------------------------------

    def take_over(self: Any, old: Any, pending: Iterable[int]) -> None:
        for row in range(len(old)):
            self.load_stored(old.cell(row), old.stored(row), old.known(row))
        for decision in pending:
            self.expect(decision)
        self.restore(old.state())

    def raise_alarm(self, slot: int) -> None:
        """Do nothing: tables with a change detection are told by themselves."""

    hear_alarm = raise_alarm

    def take_alarm(self) -> bool:
        """Return False: none of these tells peers of alarms."""
        return False


class CandidateTable(Several):
    """The candidate spaces of a learner as one table; a `Ledger` decides.

    A row stands for a cell in each space, and for the one that decides or is asked about: the
    `level` of its cell is the number of that space. All counters are in the tables of the spaces,
    which `join` names; they are told of costs and changes by themselves.
    """

    size = blind_decisions = 0  # nothing is stored of a row, and all learners see labels
    memory = History()  # the tables of the spaces have the labels

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.known_cells: list[Cell] = []  # by row
        self.by_cell: dict[tuple[int, tuple[int, ...]], int] = {}
        self.found_rows: dict[int, tuple[int, ...]] = {}  # of each space, by row
        self.strangers: set[int] = set()  # rows known only from isolated sources
        self.tables: list[Table] = []

    def join(self, tables: list[Table]) -> None:
        self.ledger = Ledger(tables, tuple(range(len(tables))), self.candidates.columns)
        self.tables = tables
        self.found_rows = {}

    # -- cells and their rows -------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.known_cells)

    def cell(self, row: int) -> Cell:
        return self.known_cells[row]

    def meet(self, cell: Cell, slot: int) -> int:
        """Return the row of cells named by a peer; create the one that it asks about if needed.

        `serve` creates the others. All are created at once for an isolated source, whose slots are
        not those of the table: then `slot` is 0 or less.
        """
        row = self._register(cell, slot < 0)
        if slot < 1:
            self._open_all(row, slot)
        else:
            self.tables[cell.level].cells.meet(self.candidates.parts(cell)[cell.level], slot)
        return row

    def find(self, cell: Cell) -> int:
        return self.by_cell.get((cell.level, cell.coordinates), -1)

    @property
    def foreign(self) -> int:
        return len(self.strangers)

    def is_foreign(self, row: int) -> bool:
        return row in self.strangers

    def around(self, context: Context) -> list[int]:
        return []

    def is_alike(self, row: int, other: int) -> bool:
        k = self.known_cells[row].level
        return self._rows(row)[k] == self._rows(other)[k]

    def _register(self, cell: Cell, is_foreign: bool) -> int:
        key = (cell.level, cell.coordinates)
        row = self.by_cell.setdefault(key, len(self.known_cells))
        if row == len(self.known_cells):
            self.known_cells.append(Cell(*key))
            self.strangers.add(row)
        if not is_foreign:
            self.strangers.discard(row)
        return row

    def _open_all(self, row: int, slot: int) -> tuple[int, ...]:
        """Return the row in each space, whose cells are created if needed."""
        parts = zip(self.tables, self.candidates.parts(self.known_cells[row]), strict=True)
        rows = tuple([table.cells.meet(part, slot) for table, part in parts])
        self.found_rows[row] = rows
        return rows

    def _rows(self, row: int) -> tuple[int, ...]:
        rows = self.found_rows.get(row)
        if rows is None:
            parts = zip(self.tables, self.candidates.parts(self.known_cells[row]), strict=True)
            rows = tuple([table.cells.find(part) for table, part in parts])
            if min(rows) >= 0:
                self.found_rows[row] = rows
        return rows

    def _row_of(self, space: int, rows: list[int]) -> int:
        pairs = zip(self.tables, rows, strict=True)
        parts = [table.cells.cell(own) for table, own in pairs]
        row = self._register(self.candidates.whole(space, parts), False)
        self.found_rows[row] = tuple(rows)
        return row

    def at(self, row: int, slot: int) -> tuple[Table, int, int]:
        k = self.known_cells[row].level
        return self.tables[k], self._rows(row)[k], slot

    def inside(self, decision: int, context: Context = (), slot: int = 0) -> Iterable[Counted]:
        """Return the tables of all spaces; peers' instances have the context ()."""
        points = self.candidates.points(context) if context else [()] * len(self.tables)
        codes = [code_of(row, 0, 0) | decision & CHOICE for row in self._rows(row_of(decision))]
        return zip(self.tables, codes, points, [slot] * len(codes), strict=True)

    # -- decisions ------------------------------------------------------------------------------

    def decide(self, context: Context, slot: int, closed: bytes | None = None) -> int:
        return self._decide(context, slot, -1, closed)

    def resume(self, row: int, context: Context, slot: int, closed: bytes | None = None) -> int:
        return self._decide(context, slot, self.known_cells[row].level, closed)

    def _decide(self, context: Context, slot: int, fresh: int, closed: bytes | None) -> int:
        """Return the decision on the context, counted, or `-1 - row`."""
        points = self.candidates.points(context)
        space, choice, rows = self.ledger.judge(points, slot, fresh, closed)
        row = self._row_of(space, rows)
        if choice < 0:
            return -1 - row
        self.ledger.count_own()
        code: int = code_of(row, 0, 0) | choice
        self.expect(code)
        return code

    def locate(self, context: Context, slot: int) -> int:
        points = zip(self.tables, self.candidates.points(context), strict=True)
        return self._row_of(0, [table.locate(point, slot) for table, point in points])

    def best_own(self, row: int, context: Context | None = None) -> int:
        if context is not None:
            for table, point in zip(self.tables, self.candidates.points(context), strict=True):
                table.cells.around(point)  # now the current one
        return self.ledger.own_function(list(self._rows(row)))

    def accuracies(self, row: int, context: Context) -> list[float]:
        """Return the estimates in the space that decides."""
        k = self.known_cells[row].level
        return self.tables[k].accuracies(self._rows(row)[k], self.candidates.points(context)[k])

    def serve(self, row: int, slot: int, function: int = -1, asker: int = 0) -> int:
        rows = self._open_all(row, slot)
        if function < 0:
            function = self.ledger.function_for(list(rows), slot)
        for table, own in zip(self.tables, rows, strict=True):
            table.serve(own, slot, function)
        code: int = code_of(row, function, SERVE)
        return code

    def combine(self, row: int, other: Any, by: int) -> None:
        for table, own, theirs in zip(self.tables, self._rows(row), other.tables, strict=True):
            table.combine(own, theirs, by)

    # -- saving, loading ------------------------------------------------------------------------

    def _nothing(self, *_: Any) -> list[Any]:
        return []

    stored = known = arm_counters = load_arm = state = restore = _nothing
    set_cost = _nothing

    def load_stored(self, cell: Cell, stored: list[int], labels: list[tuple[Any, int]]) -> int:
        return self._register(cell, False)

    def take_row(self, old: Any, row: int, arms: list[int]) -> int:
        return self._register(old.cell(row), False)

    def take_over(self, old: Any, pending: Iterable[int]) -> None:
        super().take_over(old, pending)
        self.strangers = {*old.strangers}


def _points(contexts: memoryview, count: int) -> Iterator[Context]:
    """Yield flat coordinates row by row; () of peers' instances."""
    width = len(contexts) // max(1, count)
    for k in range(count):
        yield tuple(contexts[k * width : (k + 1) * width])
