"""Several tables of a learner as one: those of its candidate spaces, or of its epochs."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Self, cast

from covey.bandit.partitions import Candidates, EpochCells, packed, unpacked
from covey.bandit.policies import Policy
from covey.kernel import (
    CHOICE,
    EXPLOIT,
    SERVE,
    Table,
    arm_of,
    code_of,
    phase_of,
    row_of,
)
from covey.kernel.history import History
from covey.kernel.rules import Cell
from covey.types import Context

MOST_IDLE = 4096  # rows of candidates without decisions whose labels may come
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

    `context` is the place of its context among the arguments after the decision, if it has any;
    then its slot can follow.
    """

    def call(self: "Several", decision: int, *rest: Any) -> None:
        place = rest[context : context + 2]
        for table, code, *own in self.inside(decision, *place):
            arguments = (*rest[:context], *own[: len(place)], *rest[context + 2 :])
            getattr(table, name)(code, *arguments)

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
    count = by_decision("count", context=0)
    expect = by_decision("expect", context=0)
    forget = by_decision("forget", context=0)

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

    def raise_alarm(self, slot: int) -> None:
        """Do nothing: tables with a change detection are told by themselves."""

    hear_alarm = raise_alarm

    def take_alarm(self) -> bool:
        """Return False: none of these tells peers of alarms."""
        return False


def _noted(name: str, note: str) -> Any:
    """Return a method of all tables that count a decision, with a note of its row."""
    method = getattr(Several, name)

    def call(self: "Spaces", decision: int, *rest: Any) -> None:
        method(self, decision, *rest)
        getattr(self, note)(decision)

    return call


class Spaces(Several):
    """The candidate spaces of a learner as one table.

    A row stands for a cell in each space, and for the one that decides or is asked about: the
    `level` of its cell is the number of that space. All counters are in the tables of the spaces,
    which `join` names; they are told of costs and changes by themselves. So nothing is stored of a
    row: it is known while labels of its decisions may come, and for a while longer.

    Of arms that need training or exploration the first is taken, or, by the paper's reading, one
    that is drawn. The draw depends on the slot only, so decisions repeat.
    """

    size = blind_decisions = foreign = 0  # all learners see labels
    memory = History()  # the tables of the spaces have the labels

    def __init__(self, candidates: Candidates, arms: int, *, drawn_by: str | None = None) -> None:
        """`drawn_by` tells the draws of a learner from those of others; None: it draws none."""
        self.candidates = candidates
        self._arms, self._drawn_by = arms, drawn_by
        self.tables: list[Table] = []
        self._cells: dict[int, Cell] = {}  # by row
        self._numbers: dict[Cell, int] = {}  # the reverse
        self._places: dict[int, tuple[int, ...]] = {}  # row -> the rows in all spaces
        self._open: Counter[int] = Counter()  # row -> decisions whose labels may come
        self._idle: dict[int, None] = {}  # other rows, the latest one last
        self._next = 0

    def join(self, tables: list[Table]) -> None:
        self.tables = tables

    # -- cells and their rows -------------------------------------------------------------------

    def __len__(self) -> int:
        return 0

    def cell(self, row: int) -> Cell:
        return self._cells[row]

    def meet(self, cell: Cell, slot: int) -> int:
        """Return the row of cells named by a peer; create the one that it asks about if needed.

        `serve` creates the others. All are created at once for an isolated source, whose slots are
        not those of the table: then `slot` is 0 or less.
        """
        row = self._number(cell)
        if slot < 1:
            self._open_all(row, slot)
        else:
            self.tables[cell.level].cells.meet(self.candidates.parts(cell)[cell.level], slot)
        return row

    def find(self, cell: Cell) -> int:
        """Return the row of cells that all spaces have; -1: one of them has not."""
        return self._number(cell) if min(self._found(cell)) >= 0 else -1

    def is_foreign(self, row: int) -> bool:
        return False

    def around(self, context: Context) -> list[int]:
        return []

    def is_alike(self, row: int, other: int) -> bool:
        k = self._cells[row].level
        return self._rows(row)[k] == self._rows(other)[k]

    def _number(self, cell: Cell) -> int:
        cell = cell._replace(space="")
        row = self._numbers.get(cell, -1)
        if row < 0:
            row, self._next = self._next, self._next + 1
            self._cells[row], self._numbers[cell] = cell, row
        if row not in self._open:
            self._rest(row)
        return row

    def _hold(self, decision: int) -> None:
        row = row_of(decision)
        self._open[row] += 1
        self._idle.pop(row, None)

    def _release(self, decision: int) -> None:
        row = row_of(decision)
        self._open[row] -= 1
        if self._open[row] <= 0:
            del self._open[row]
            self._rest(row)
        while len(self._idle) > MOST_IDLE:
            oldest = next(iter(self._idle))
            del self._idle[oldest], self._numbers[self._cells.pop(oldest)]
            self._places.pop(oldest, None)

    def _rest(self, row: int) -> None:
        """Let a row be forgotten, once many others have been used."""
        self._idle.pop(row, None)
        self._idle[row] = None

    def _open_all(self, row: int, slot: int) -> tuple[int, ...]:
        """Return the row in each space, whose cells are created if needed."""
        parts = zip(self.tables, self.candidates.parts(self._cells[row]), strict=True)
        rows = self._places[row] = tuple([table.cells.meet(part, slot) for table, part in parts])
        return rows

    def _rows(self, row: int) -> tuple[int, ...]:
        rows = self._places.get(row)
        if rows is None:
            rows = self._found(self._cells[row])
            if min(rows) >= 0:
                self._places[row] = rows
        return rows

    def _found(self, cell: Cell) -> tuple[int, ...]:
        """Return the row of cells in each space; -1 where there is none."""
        parts = zip(self.tables, self.candidates.parts(cell), strict=True)
        return tuple([table.cells.find(part) for table, part in parts])

    def _row_of(self, space: int, rows: Sequence[int]) -> int:
        parts = [table.cells.cell(own) for table, own in zip(self.tables, rows, strict=True)]
        row = self._number(self.candidates.whole(space, parts))
        self._places[row] = tuple(rows)
        return row

    def at(self, row: int, slot: int) -> tuple[Table, int, int]:
        k = self._cells[row].level
        return self.tables[k], self._rows(row)[k], slot

    def inside(self, decision: int, context: Context = (), slot: int = 0) -> Iterable[Counted]:
        """Return the tables of all spaces; peers' instances have the context ()."""
        points = self.candidates.points(context) if context else [()] * len(self.tables)
        codes = [code_of(row, 0, 0) | decision & CHOICE for row in self._rows(row_of(decision))]
        return zip(self.tables, codes, points, [slot] * len(codes), strict=True)

    # -- decisions ------------------------------------------------------------------------------

    def decide(self, context: Context, slot: int, closed: bytes | None = None) -> int:
        return self._counted(self.choose(self.locate(context, slot), slot, False, closed), context)

    def resume(self, row: int, context: Context, slot: int, closed: bytes | None = None) -> int:
        fresh = self._row_of(self._cells[row].level, self._located(context, slot))
        return self._counted(self.choose(fresh, slot, True, closed), context)

    def _counted(self, code: int, context: Context) -> int:
        if code >= 0:
            self.count(code, context)
        return code

    def choose(self, row: int, slot: int, is_fresh: bool, closed: bytes | None = None) -> int:
        """Return the decision on the instance that was located last, or `-1 - row`.

        Any space can require training or exploration; otherwise the arm with the largest estimate
        in any of them is exploited. Peers have reported for the spaces up to that of `row`.
        """
        rows, last = self._rows(row), self._cells[row].level if is_fresh else -1
        wanting: list[tuple[int, int]] = []
        best, largest = (0, 0), -math.inf
        for k, (table, own) in enumerate(zip(self.tables, rows, strict=True)):
            code = table.choose(own, slot, k <= last, closed)
            if code < 0:
                return -1 - self._row_of(k, rows)
            choice = code & CHOICE
            if phase_of(code) != EXPLOIT:
                if self._drawn_by is None:
                    return self._decision(k, rows, choice)
                wanting += [(k, each) for each in self._wanting(table, own, slot, closed)]
                continue
            value = table.worth(own, arm_of(code))
            if value > largest:
                largest, best = value, (k, choice)
        if wanting:
            drawn = hashlib.sha256(f"{self._drawn_by} {slot}".encode()).digest()
            best = wanting[int.from_bytes(drawn[:8]) % len(wanting)]
        return self._decision(best[0], rows, best[1])

    def _wanting(self, table: Table, row: int, slot: int, closed: bytes | None) -> Iterator[int]:
        """Yield what a table would choose one after the other, until it would exploit an arm."""
        left = bytearray(closed or self._arms)
        code = table.choose(row, slot, True, closed)
        while code >= 0 and phase_of(code) != EXPLOIT:
            yield code & CHOICE
            left[arm_of(code)] = 1
            code = table.choose(row, slot, True, bytes(left)) if not all(left) else -1

    def _decision(self, space: int, rows: Sequence[int], choice: int) -> int:
        code: int = code_of(self._row_of(space, rows), 0, 0) | choice
        return code

    def locate(self, context: Context, slot: int) -> int:
        return self._row_of(0, self._located(context, slot))

    def _located(self, context: Context, slot: int) -> list[int]:
        points = zip(self.tables, self.candidates.points(context), strict=True)
        return [table.locate(point, slot) for table, point in points]

    def place_of(self, row: int, context: Context) -> Cell:
        return self.cell(row)

    def best_own(self, row: int, context: Context | None = None) -> int:
        """Return the own function with the largest estimate in any space."""
        points = [None] * len(self.tables) if context is None else self.candidates.points(context)
        places = [*zip(self.tables, self._rows(row), points, strict=True)]
        best = [(table, own, table.best_own(own, point)) for table, own, point in places]
        return max(best, key=lambda each: each[0].worth(*each[1:]))[2]

    def answer(self, row: int, slot: int, asker: int = 0) -> int:
        """Return the own function for a peer's instance: unexplored, or the most accurate one."""
        pairs = zip(self.tables, self._open_all(row, slot), strict=True)
        judged = [table.judged(own, slot) for table, own in pairs]
        for unexplored, _, _ in judged:
            if unexplored >= 0:
                return unexplored
        return max(judged, key=itemgetter(2))[1]

    def accuracies(self, row: int, context: Context) -> list[float]:
        """Return the estimates in the space that decides."""
        k = self._cells[row].level
        return self.tables[k].accuracies(self._rows(row)[k], self.candidates.points(context)[k])

    def serve(self, row: int, slot: int, function: int = -1, asker: int = 0) -> int:
        if function < 0:
            function = self.answer(row, slot, asker)
        for table, own in zip(self.tables, self._open_all(row, slot), strict=True):
            table.serve(own, slot, function)
        code: int = code_of(row, function, SERVE)
        self._hold(code)
        return code

    count = _noted("count", "_hold")
    expect = _noted("expect", "_hold")
    forget = _noted("forget", "_release")
    retract = _noted("retract", "_release")
    settle = _noted("settle", "_release")

    def combine(self, row: int, other: Any, by: int) -> None:
        for table, own, theirs in zip(self.tables, self._rows(row), other.tables, strict=True):
            table.combine(own, theirs, by)

    # -- saving, loading ------------------------------------------------------------------------

    def _nothing(self, *_: Any) -> list[Any]:
        return []

    state = restore = set_cost = _nothing

    def take_over(self, old: Any, pending: Iterable[int]) -> None:
        self._cells, self._numbers = {**old._cells}, {**old._numbers}
        self._places, self._next = {**old._places}, old._next
        self._idle = dict.fromkeys(self._cells)
        for decision in pending:
            self.expect(decision)


def _decision_by_row(name: str, slot: int | None = None) -> Any:
    call_inside = by_row(name, slot)

    def call(self: "Restarted", row: int, *rest: Any) -> int:
        return self._outside(self._numbered[row][0], call_inside(self, row, *rest))

    return call


class Restarted(Several):
    """A table for each epoch, as one; each counts its slots from 1.

    Own rows are decided in the epoch of their slot, those of peers in that of their cells. Rows
    are numbered together, in the order in which they became known.
    """

    def __init__(self, policy: Policy, make: Callable[[Policy], Table]) -> None:
        """`policy` is that of all epochs; `make` returns an empty table for that of one."""
        self.tables: dict[int, Table] = {}  # by epoch
        self._partition = cast("EpochCells", policy.partition)
        self._doubling = self._partition.doubling
        self._make = make
        self._numbered: list[tuple[int, int]] = []  # row -> epoch, and the row there
        self._outer: dict[int, list[int]] = {}  # the reverse
        self._costs: dict[int, float] = {}  # that were changed, by arm

    # -- epochs ---------------------------------------------------------------------------------

    def table_of(self, epoch: int) -> Table:
        if epoch not in self.tables:
            table = self.tables[epoch] = self._make(self._partition.policy_of(epoch))
            self._outer[epoch] = []
            for arm, cost in self._costs.items():
                table.set_cost(arm, cost)
        return self.tables[epoch]

    @property
    def used(self) -> list[int]:
        return [
            epoch
            for epoch, table in self.tables.items()
            if any(table.cells.own(row) for row in range(len(table)))
        ]

    # -- rows -----------------------------------------------------------------------------------

    def at(self, row: int, slot: int) -> tuple[Table, int, int]:
        epoch, own = self._numbered[row]
        return self.tables[epoch], own, self._doubling.slot_in(epoch, slot)

    def inside(self, decision: int, context: Context = (), slot: int = 0) -> Iterable[Counted]:
        table, row, now = self.at(row_of(decision), slot)
        return [(table, code_of(row, 0, 0) | decision & CHOICE, context, now)]

    def _outside(self, epoch: int, code: int) -> int:
        """Return a decision of an epoch, or `-1 - row` there, as one of all epochs."""
        places = self._number(epoch)
        if code < 0:
            return -1 - places[-1 - code]
        outside: int = code_of(places[row_of(code)], 0, 0) | code & CHOICE
        return outside

    def _number(self, epoch: int) -> list[int]:
        """Give numbers to the rows that an epoch has by now; return all of its numbers."""
        places = self._outer[epoch]
        for own in range(len(places), len(self.tables[epoch])):
            places.append(len(self._numbered))
            self._numbered.append((epoch, own))
        return places

    def _now(self, slot: int) -> tuple[int, Table, int]:
        epoch = self._doubling.number_at(slot)
        return epoch, self.table_of(epoch), self._doubling.slot_in(epoch, slot)

    def __len__(self) -> int:
        return len(self._numbered)

    def cell(self, row: int) -> Cell:
        epoch, own = self._numbered[row]
        return packed(epoch, self.tables[epoch].cells.cell(own))

    def meet(self, cell: Cell, slot: int) -> int:
        epoch, own = unpacked(cell)
        row = self.table_of(epoch).cells.meet(own, self._doubling.slot_in(epoch, slot))
        return self._number(epoch)[row]

    def find(self, cell: Cell) -> int:
        epoch, own = unpacked(cell)
        row = self.tables[epoch].cells.find(own) if epoch in self.tables else -1
        return row if row < 0 else self._number(epoch)[row]

    @property
    def foreign(self) -> int:
        return sum(table.cells.foreign for table in self.tables.values())

    def layers(self, row: int) -> list[int]:
        epoch, own = self._numbered[row]
        return [self._outer[epoch][layer] for layer in self.tables[epoch].cells.layers(own)]

    def around(self, context: Context) -> list[int]:
        return [
            self._outer[epoch][row]
            for epoch, table in self.tables.items()
            for row in table.cells.around(context)
        ]

    def around_batch(self, contexts: memoryview, count: int) -> set[int]:
        return {
            self._outer[epoch][row]
            for epoch, table in self.tables.items()
            for row in table.cells.around_batch(contexts, count)
        }

    is_foreign = by_row("cells.is_foreign")
    arrivals = by_row("cells.arrivals")
    best_own = by_row("best_own")
    known = by_row("saved.known")
    pending = by_row("saved.pending")
    stored = by_row("saved.stored")

    # -- decisions ------------------------------------------------------------------------------

    def locate(self, context: Context, slot: int) -> int:
        epoch, table, now = self._now(slot)
        row = table.locate(context, now)
        return self._number(epoch)[row]

    def decide(self, context: Context, slot: int, closed: bytes | None = None) -> int:
        epoch, table, now = self._now(slot)
        return self._outside(epoch, table.decide(context, now, closed))

    resume = _decision_by_row("resume", slot=1)
    consult = _decision_by_row("consult")
    serve = _decision_by_row("serve", slot=0)

    @property
    def blind_decisions(self) -> int:
        return sum(table.blind_decisions for table in self.tables.values())

    def combine(self, row: int, other: Any, by: int) -> None:
        epoch, own = self._numbered[row]
        if epoch in other.tables:
            self.tables[epoch].combine(own, other.tables[epoch], by)

    @property
    def memory(self) -> "Restarted":
        """What peers that show only the cell are answered from."""
        return self

    recall = by_row("cells.memory.recall")

    def recall_sum(self, own: dict[Any, int], theirs: dict[Any, int]) -> Any:
        return self.table_of(0).cells.memory.recall_sum(own, theirs)

    # -- changing, saving, loading --------------------------------------------------------------

    def set_cost(self, arm: int, cost: float) -> None:
        self._costs[arm] = cost
        for table in self.tables.values():
            table.set_cost(arm, cost)

    @property
    def size(self) -> int:
        return self.table_of(0).saved.size

    def load_stored(self, cell: Cell, stored: list[int], labels: list[tuple[Any, int]]) -> int:
        epoch, own = unpacked(cell)
        row = self.table_of(epoch).saved.load_stored(own, stored, labels)
        return self._number(epoch)[row]

    def parts(self, stored: Sequence[int]) -> tuple[list[int], list[list[int]]]:
        parts: tuple[list[int], list[list[int]]] = self.table_of(0).saved.parts(stored)
        return parts

    def load_parts(self, cell: Cell, *parts: Any) -> int:
        epoch, own = unpacked(cell)
        row = self.table_of(epoch).saved.load_parts(own, *parts)
        return self._number(epoch)[row]

    def state(self) -> list[int]:
        state: list[int] = []
        for epoch, table in self.tables.items():
            own = table.policy.state()
            state += [epoch, len(own), *own]
        return state

    def restore(self, state: list[int]) -> None:
        at = 0
        while at < len(state):
            epoch, count = state[at : at + 2]
            self.table_of(epoch).policy.restore(state[at + 2 : at + 2 + count])
            at += 2 + count

    def take_over(self, old: Any, pending: Iterable[int]) -> None:
        for row in range(len(old)):
            self.load_stored(old.cell(row), old.stored(row), old.known(row))
        for decision in pending:
            self.expect(decision)
        self.restore(old.state())


def _points(contexts: memoryview, count: int) -> Iterator[Context]:
    """Yield flat coordinates row by row; () of peers' instances."""
    width = len(contexts) // max(1, count)
    for k in range(count):
        yield tuple(contexts[k * width : (k + 1) * width])
