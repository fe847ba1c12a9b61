# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Several candidate spaces of a learner as one table, for decisions one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from covey.kernel.counters import SERVE, UNPAID
from covey.kernel.rules import Cell, Rule
from covey.kernel.spaces import Ledger
from covey.kernel.table import Table
from covey.kernel.thresholds import Clock


class CandidateTable(Table):
    """The candidate spaces of a learner, as a table of one space; a `Ledger` decides.

    A row stands for a cell in each space, and for the one that decides or is asked about: the
    `level` of its cell is the number of that space, and its coordinates are those of the cells,
    each after its level. All counters are in the tables of the spaces, which `join` names.
    """

    def __init__(self, clock: Clock, rule: Rule) -> None:
        Table.__init__(self, clock, rule)
        self.known_cells: list[Cell] = []  # by row
        self.by_cell: dict[tuple[int, tuple[int, ...]], int] = {}
        self.by_rows: dict[tuple[int, ...], int] = {}  # the space, and the row in each
        self.found_rows: dict[int, tuple[int, ...]] = {}  # of each space, by row
        self.strangers: set[int] = set()  # rows known only from isolated sources
        self.changed: set[tuple[int, int]] = set()  # a space and its row
        self.count = 0

    def join(self, tables: list[Table], columns: list[tuple[int, ...]]) -> None:
        """Count in these tables from now on.

        `columns` has for each the places of its coordinates in contexts.
        """
        self.ledger = Ledger(tables, tuple(range(len(tables))), columns)
        self.count = len(tables)
        self.columns = list(columns)
        self.by_rows = {}
        self.found_rows = {}

    def take_changed(self) -> list[tuple[int, int]]:
        """Return the rows of the spaces that changed since they were last taken."""
        changed = list(self.changed)
        self.changed.clear()
        return changed

    # -- cells and their rows ------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.known_cells)

    def cell(self, row: int) -> Cell:
        """Return the cells of `row`, as one."""
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
            self._table(cell.level).meet(self._parts(cell)[cell.level], slot)
        return row

    def find(self, cell: Cell) -> int:
        """Return the row of known cells; -1 if they are not known."""
        return self.by_cell.get((cell.level, cell.coordinates), -1)

    def is_foreign(self, row: int) -> bool:
        """Return whether `row` is known only from isolated sources."""
        return row in self.strangers

    def foreign_cells(self) -> int:
        """Return how many rows are foreign."""
        return len(self.strangers)

    def layers(self, row: int) -> list[int]:
        """Return `row`; cells have no parents here."""
        return [row]

    def own(self, row: int) -> int:
        """Return the own arrivals in the cell that decides."""
        k = self.known_cells[row].level
        return self._table(k).own(self._rows(row)[k])

    def is_alike(self, row: int, other: int) -> bool:
        """Return whether the cell that decides in `row` is one of the cells of `other`."""
        k = self.known_cells[row].level
        return self._rows(row)[k] == self._rows(other)[k]

    def _register(self, cell: Cell, is_foreign: bool) -> int:
        key = (cell.level, cell.coordinates)
        row = self.by_cell.get(key, -1)
        if row < 0:
            row = self.by_cell[key] = len(self.known_cells)
            self.known_cells.append(Cell(cell.level, cell.coordinates))
            if is_foreign:
                self.strangers.add(row)
        elif not is_foreign:
            self.strangers.discard(row)
        return row

    def _parts(self, cell: Cell) -> list[Cell]:
        """Return the cell in each space."""
        parts = []
        at = 0
        for k in range(self.count):
            end = at + 1 + len(self.columns[k])
            parts.append(Cell(cell.coordinates[at], tuple(cell.coordinates[at + 1 : end])))
            at = end
        return parts

    def _open_all(self, row: int, slot: int) -> tuple[int, ...]:
        """Return the row in each space, whose cells are created if needed."""
        parts = self._parts(self.known_cells[row])
        rows = tuple([self._table(k).meet(part, slot) for k, part in enumerate(parts)])
        self.found_rows[row] = rows
        return rows

    def _rows(self, row: int) -> tuple[int, ...]:
        """Return the row in each space."""
        rows = self.found_rows.get(row)
        if rows is None:
            parts = self._parts(self.known_cells[row])
            rows = tuple([self._table(k).find(part) for k, part in enumerate(parts)])
            if min(rows) >= 0:
                self.found_rows[row] = rows
        return rows

    def _row_now(self) -> int:
        """Return the row of the current instance, for the space that the ledger has chosen."""
        rows = self.ledger._own_rows()
        key = (self.ledger.chosen, *rows)
        row = self.by_rows.get(key, -1)
        if row < 0:
            coordinates = []
            for k in range(self.count):
                cell = self._table(k).cell(rows[k])
                coordinates += [cell.level, *cell.coordinates]
            row = self._register(Cell(self.ledger.chosen, tuple(coordinates)), False)
            self.by_rows[key] = row
            self.found_rows[row] = rows
        elif self.strangers:
            self.strangers.discard(row)
        return row

    def _table(self, k: int) -> Table:
        return self.ledger.tables[k]

    def _point(self, k: int) -> tuple[float, ...]:
        return tuple([self.context[place] for place in self.columns[k]])

    def _note(self, k: int, row: int, is_served: bool) -> int:
        """Note that counters of a space have changed, around the context unless `is_served`."""
        table = self._table(k)
        self.changed.add((k, row))
        if table.levels > 1 and not is_served:
            table._follow()
            for n in range(table.found):
                self.changed.add((k, table.path[n]))
        return 0

    # -- own decisions -------------------------------------------------------------------------

    def decide(self, context: tuple[float, ...], slot: int, closed: bytes | None = None) -> int:
        """Choose an arm and count the arrival in all spaces, as `Table.decide`."""
        self._read(context)
        return self._decide(slot, -1, closed)

    def resume(
        self, row: int, context: tuple[float, ...], slot: int, closed: bytes | None = None
    ) -> int:
        """Continue after the reports on `row`; `-1 - row` of another row if more are needed."""
        self._read(context)
        return self._decide(slot, self.known_cells[row].level, closed)

    def _decide(self, slot: int, fresh: int, closed: bytes | None) -> int:
        """Return the decision on the context, counted, or `-1 - row`."""
        code = self._pick(slot, fresh, closed)
        if code >= 0:
            ledger = self.ledger
            ledger._count()
            for k in range(self.count):
                self._table(k)._expect(ledger.rows[k], code >> 2 & 0x3FFFF, code & 3, 1)
                self._note(k, ledger.rows[k], False)
        return code

    def _pick(self, slot: int, fresh: int, closed: bytes | None) -> int:
        """Return the decision on the context, or `-1 - row`; nothing is counted."""
        ledger = self.ledger
        ledger._locate(self.context, 0, slot)
        if closed is not None:
            for k in range(self.count):
                self._table(k)._close(closed)
        try:
            choice = ledger._choose(slot, fresh)
        finally:
            if closed is not None:
                for k in range(self.count):
                    self._table(k)._reopen()
        row = self._row_now()
        return row << 20 | choice if choice >= 0 else -1 - row

    def decide_batch(
        self,
        contexts: memoryview,
        first_slot: int,
        decisions: memoryview,
        closed: bytes | None = None,
    ) -> int:
        """Decide for consecutive slots, as `Table.decide_batch`."""
        for k in range(len(decisions)):
            self._take_context(contexts, k)
            decisions[k] = self._decide(first_slot + k, -1, closed)
            if decisions[k] < 0:
                return k
        return len(decisions)

    def locate(self, context: tuple[float, ...], slot: int) -> int:
        """Return the row of the own cells around `context`."""
        self._read(context)
        self.ledger._locate(self.context, 0, slot)
        self.ledger.chosen = 0
        return self._row_now()

    def count_batch(self, contexts: memoryview, decisions: memoryview) -> None:
        """Count decisions of one slot that were retracted when they were made."""
        for n in range(len(decisions)):
            self._take_context(contexts, n)
            rows = self._rows(decisions[n] >> 20)
            for k in range(self.count):
                table = self._table(k)
                table._read(self._point(k))
                table._follow()
                table._begin(rows[k], decisions[n] & 0xFFFFF)
                self._note(k, rows[k], False)

    def stale(self, row: int, slot: int, closed: bytes | None = None) -> list[int]:
        """Return the peers whose report is needed, about the cell that decides."""
        k = self.known_cells[row].level
        return self._table(k).stale(self._rows(row)[k], slot, closed)

    def hear(self, row: int, peer: int, report: Any, slot: int) -> int:
        """Store the report of a peer about the cell that decides."""
        k = self.known_cells[row].level
        self.changed.add((k, self._rows(row)[k]))
        return self._table(k).hear(self._rows(row)[k], peer, report, slot)

    def unrefresh(self, row: int, peer: int, old: int) -> None:
        """Restore the counter that `hear` returned."""
        k = self.known_cells[row].level
        self.changed.add((k, self._rows(row)[k]))
        self._table(k).unrefresh(self._rows(row)[k], peer, old)

    # -- for peers -----------------------------------------------------------------------------

    def report(self, row: int, slot: int) -> Any:
        """Return the report on the cell that a peer asks about."""
        k = self.known_cells[row].level
        return self._table(k).report(self._rows(row)[k], slot)

    def estimate(self, row: int) -> tuple[float, int]:
        """Return accuracy and labels of the best own function in the cell that is asked about."""
        k = self.known_cells[row].level
        return self._table(k).estimate(self._rows(row)[k])

    def serve(self, row: int, slot: int, function: int = -1) -> int:
        """Count a peer's instance in all spaces and return the decision, as `Table.serve`."""
        rows = self._open_all(row, slot)
        ledger = self.ledger
        for k in range(self.count):
            table = self._table(k)
            table.clock.move(slot)
            table.clock.round_up(slot)
            ledger.asked_rows[k] = rows[k]
        ledger.asked = ledger.first
        if function < 0:
            function = ledger._help(ledger)
        for k in range(self.count):
            table = self._table(k)
            table._count_served(rows[k], 1)
            table._expect(rows[k], function, SERVE, 1)
            self._note(k, rows[k], True)
        return row << 20 | function << 2 | SERVE

    def combine(self, row: int, other: Any, by: int) -> None:
        """Add the counts of `other` in all spaces (by 1), or subtract them."""
        rows = self._rows(row)
        for k in range(self.count):
            self._table(k).combine(rows[k], other.table_of(k), by)

    def table_of(self, k: int) -> Table:
        """Return the table of a space."""
        return self._table(k)

    # -- labels --------------------------------------------------------------------------------

    def retract(self, decision: int, context: tuple[float, ...], slot: int) -> None:
        """Undo what `decide`, `resume` or `serve` counted at `slot`."""
        is_served = decision & 3 == SERVE
        if not is_served:
            self._read(context)
        self._retract_all(decision, slot)

    def _retract_all(self, decision: int, slot: int) -> int:
        is_served = decision & 3 == SERVE
        rows = self._rows(decision >> 20)
        for k in range(self.count):
            point = () if is_served else self._point(k)
            self._table(k).retract(rows[k] << 20 | decision & 0xFFFFF, point, slot)
            self._note(k, rows[k], is_served)
        return 0

    def settle(
        self,
        decision: int,
        gain: int,
        context: tuple[float, ...],
        slot: int,
        paid: int = UNPAID,
    ) -> None:
        """Record the label of a decision in all spaces."""
        if decision & 3 != SERVE:
            self._read(context)
        self._settle_all(decision, gain, slot, paid)

    def _settle_all(self, decision: int, gain: int, slot: int, paid: int) -> int:
        is_served = decision & 3 == SERVE
        rows = self._rows(decision >> 20)
        for k in range(self.count):
            point = () if is_served else self._point(k)
            self._table(k).settle(rows[k] << 20 | decision & 0xFFFFF, gain, point, slot, paid)
            self._note(k, rows[k], is_served)
        return 0

    def score(
        self, decision: int, function: int, gain: int, context: tuple[float, ...], slot: int
    ) -> None:
        """Record what a free function gains, in all spaces."""
        is_served = decision & 3 == SERVE
        if not is_served:
            self._read(context)
        rows = self._rows(decision >> 20)
        for k in range(self.count):
            point = () if is_served else self._point(k)
            code = rows[k] << 20 | decision & 0xFFFFF
            self._table(k).score(code, function, gain, point, slot)
            self._note(k, rows[k], is_served)

    def remember(
        self, decision: int, label: Any, context: tuple[float, ...], slot: int, answer: Any = None
    ) -> None:
        """Store the label of a decision in all spaces."""
        is_served = decision & 3 == SERVE
        if not is_served:
            self._read(context)
        rows = self._rows(decision >> 20)
        for k in range(self.count):
            point = () if is_served else self._point(k)
            code = rows[k] << 20 | decision & 0xFFFFF
            self._table(k).remember(code, label, point, slot, answer)
            self._note(k, rows[k], is_served)

    def expect(self, decision: int) -> None:
        """Count a pending label of a decision that is already counted."""
        rows = self._rows(decision >> 20)
        for k in range(self.count):
            self._table(k).expect(rows[k] << 20 | decision & 0xFFFFF)

    def forget(self, decision: int) -> None:
        """Remove the pending label of `decision`."""
        rows = self._rows(decision >> 20)
        for k in range(self.count):
            self._table(k).forget(rows[k] << 20 | decision & 0xFFFFF)

    def retract_batch(self, contexts: memoryview, first_slot: int, decisions: memoryview) -> None:
        """Undo decisions of consecutive slots; undecided rows are skipped."""
        for k in range(len(decisions)):
            if decisions[k] >= 0:
                if decisions[k] & 3 != SERVE:
                    self._take_context(contexts, k)
                self._retract_all(decisions[k], first_slot + k)

    def settle_batch(
        self,
        contexts: memoryview,
        slots: memoryview,
        decisions: memoryview,
        gains: memoryview,
        paid: memoryview,
    ) -> None:
        """Record labels of decisions in order, as `settle` does."""
        for k in range(len(decisions)):
            if decisions[k] & 3 != SERVE:
                self._take_context(contexts, k)
            self._settle_all(decisions[k], gains[k], slots[k], paid[k])

    def forget_batch(self, decisions: memoryview) -> None:
        """Remove the pending labels of decisions."""
        for k in range(len(decisions)):
            self.forget(decisions[k])

    # -- looking in, saving, loading -----------------------------------------------------------

    def record(self, row: int, arm: int) -> tuple[int, int]:
        """Return the labels of `arm` in the cell that decides, and its correct answers."""
        k = self.known_cells[row].level
        return self._table(k).record(self._rows(row)[k], arm)

    def best_own(self, row: int, context: tuple[float, ...] | None = None) -> int:
        """Return the own function with the largest estimate in any space."""
        rows = self._rows(row)
        if context is not None:
            self._read(context)
        for k in range(self.count):
            self.ledger.rows[k] = rows[k]
            if context is not None:
                self._table(k)._read(self._point(k))
        return self.ledger._best_own()

    def stored(self, row: int) -> list[int]:
        """Return nothing: all counters are in the tables of the spaces."""
        return []

    def load_stored(self, cell: Cell, stored: list[int], labels: list[tuple[Any, int]]) -> int:
        """Create the row of cells that the tables of the spaces know, or will know."""
        return self._register(cell, False)

    def take_over(self, old: Table, pending: Iterable[int]) -> None:
        """Continue from another table, whose rows keep their numbers."""
        for row in range(len(old)):
            self._register(old.cell(row), old.is_foreign(row))
        for decision in pending:
            self.expect(decision)

    def take_row(self, old: Any, row: int, arms: list[int]) -> int:
        """Create the row that a table of other arms has."""
        return self._register(old.cell(row), False)

    def arm_counters(self, row: int, arm: int) -> list[int]:
        """Return nothing, as `stored`."""
        return []

    def load_arm(self, row: int, arm: int, counters: list[int]) -> None:
        """Restore nothing, as `stored`."""

    def forget_labels(self, slot: int) -> None:
        """Do nothing: the tables of the spaces forget by themselves."""
