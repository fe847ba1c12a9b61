# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Replay of many learners in step on recorded predictions, with labels that come late."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import cython

from covey.kernel.cells import Cells, block
from covey.kernel.rules import Cell, Seat
from covey.kernel.table import CellPolicy, Said, Table

if cython.compiled:
    from cython.cimports.covey.kernel.arena import items_of
    from cython.cimports.covey.kernel.cells import touch
else:
    from covey.kernel.cells import BEST, COORDINATES, LEVEL, OWN, doubles, halves, integers, octets
    from covey.kernel.counters import EXPLOIT, SERVE, UNPAID

    NEVER = -1  # a delay: the label never arrives
    AHEAD = 16  # slots whose cells are looked up at once
    # What is kept of a decision whose label is late: the next one of the same slot, the slot at
    # whose end it comes, learner and helper, and so on; then per own space its code and that of
    # the helper, and the context.
    NEXT, DUE, WHO, SLOT, GAIN, PAID, CODES = range(7)
    WHO_MASK = (1 << 32) - 1
    NEAR = 1 << 15  # slots: labels that come within as many are found by their slot
    HIDDEN = -1  # a gain: the label never comes, and its time is over


NO_NUMBERS = bytearray(8)  # shared by all that have numbered no rows


class Ledger:
    """One learner's tables, one per context space; its own spaces decide.

    Any own space can require training or exploration; otherwise the arm with the largest estimate
    in any of them is exploited. Counts and labels are recorded in all of them.
    """

    def __init__(self, tables: list[Table], own: tuple[int, ...], columns: Any) -> None:
        self.tables = tables[:]  # without spare room
        self.count = len(own)
        places = [place for space in own for place in columns[space]] or [0]
        self.block = block(8 * (3 * self.count + len(places)))
        # Of the current instance, per own space: the cell, and that of the queried learner.
        self.rows = integers(self.block, 0, self.count)
        self.asked_rows = integers(self.block, self.count, self.count)
        self.own = halves(self.block, 2 * self.count, self.count)
        self.places = halves(self.block, 3 * self.count, len(places))
        for k in range(self.count):
            self.own[k] = own[k]
        for k in range(len(places)):
            self.places[k] = places[k]
        self.first = tables[own[0]]
        self.chosen = 0  # the own space, among them, whose table decided
        self.choice = 0
        self.helper = -1  # the queried learner; -1: none
        self.asked = self.first  # its table for the first own space
        self.function = 0  # of the helper, or own; -1: answer from stored labels
        self.stand_in = -1  # own function that answers if the helper fails or is late

    def at(self, k: int) -> Table:
        """Return the table of an own space."""
        return self.first if k == 0 else self.tables[self.own[k]]

    def table(self, space: int) -> Table:
        """Return the table of a space."""
        return self.tables[space]

    def space(self, k: int) -> int:
        """Return an own space; -1: there are not so many."""
        return self.own[k] if k < self.count else -1

    def coordinates(self) -> int:
        """Return how many coordinates an instance has, in all own spaces."""
        count = 0
        for k in range(self.count):
            count += self.at(k).cells.dimension
        return count

    def needs_points(self) -> bool:
        """Return whether a late label needs the coordinates of its instance."""
        is_needed = False
        for k in range(self.count):
            is_needed = is_needed or self.at(k).needs_path or self.at(k).remembers
        return is_needed

    def locate(self, contexts: Any, start: int, slot: int) -> int:
        """Find the own cells around an instance, whose coordinates begin at `start`."""
        at = 0
        for k in range(self.count):
            cells = self.at(k).cells
            for n in range(cells.dimension):
                cells.context[n] = contexts[start + self.places[at + n]]
            at += cells.dimension
            self.rows[k] = cells.locate(slot)
        return 0

    def aim(self, contexts: Any, start: int) -> int:
        """Take the coordinates of an instance again, where a label needs more than its cell."""
        at = 0
        for k in range(self.count):
            cells = self.at(k).cells
            for n in range(cells.dimension if cells.is_wide else 0):
                cells.context[n] = contexts[start + self.places[at + n]]
            if cells.is_wide:
                cells.round_context()
            at += cells.dimension
        return 0

    def choose(self, slot: int, fresh: int) -> int:
        """Return `arm << 2 | phase`; -1 if peers must first be asked for the space `chosen`.

        `fresh` is the last of the own spaces for which they have been asked; -1: none.
        """
        self.chosen = 0
        if self.count == 1:
            return self.first.policy.choose(self.rows[0], slot, fresh >= 0)
        largest = 0.0
        choice = 0
        for k in range(self.count):
            policy = self.at(k).policy
            candidate = policy.choose(self.rows[k], slot, k <= fresh)
            if candidate < 0 or candidate & 3 != EXPLOIT:
                self.chosen = k
                return candidate
            value = policy.value(self.rows[k] * policy.stride, candidate >> 2)
            if k == 0 or value > largest:
                largest = value
                self.chosen = k
                choice = candidate
        return choice

    def open_for(self, asker: Ledger, slot: int) -> int:
        """Find or create the cells of the asking learner's instance."""
        asker.asked = self.table(asker.own[0])
        for k in range(asker.count):
            cells = self.table(asker.own[k]).cells
            asker.asked_rows[k] = cells.open_for(asker.at(k).cells, asker.rows[k], slot)
        return 0

    def serve(self, asker: Ledger) -> int:
        """Return the own function for the asking learner's instance, after `open_for`."""
        if asker.count == 1:
            asker.asked.policy.asker = asker.first.policy.offset
            return asker.asked.policy.serve(asker.asked_rows[0])
        largest = 0.0
        chosen = 0
        for k in range(asker.count):
            function = self.table(asker.own[k]).policy.unexplored(asker.asked_rows[k])
            if function >= 0:
                return function
        for k in range(asker.count):
            counters = self.table(asker.own[k]).counters
            base = asker.asked_rows[k] * counters.cells.stride
            function = counters.most_accurate(base)
            value = counters.accuracy(base, function)
            if k == 0 or value > largest:
                largest = value
                chosen = function
        return chosen

    def recall(self, asker: Ledger) -> int:
        """Return the most frequent label in the cell with the clearest majority; -1: none."""
        answer, largest = asker.asked.cells.memory.unseen, 0.0
        for k in range(asker.count):
            memory = self.table(asker.own[k]).cells.memory
            leader, count, total = memory.recall(asker.asked_rows[k])
            if total and float(count) / total > largest:
                largest = float(count) / total
                answer = leader
        return answer

    def best_own(self) -> int:
        """Return the own function with the largest estimate in any own space."""
        chosen = 0
        largest = 0.0
        for k in range(self.count):
            policy = self.at(k).policy
            base = self.rows[k] * policy.stride
            function = policy.best_of(base, policy.functions)
            value = policy.value(base, function)
            if k == 0 or value > largest:
                largest = value
                chosen = function
        return chosen

    def count_own(self) -> int:
        """Count the current instance."""
        for k in range(self.count):
            table = self.at(k)
            table.cells.follow_on()
            table.counters.count_own(self.rows[k], 1)
        return 0

    def held(self) -> tuple[Any, ...]:
        """Return the current decision, and where it was made."""
        places = []
        for k in range(self.count):
            cells = self.at(k).cells
            path = [cells.path[n] for n in range(cells.found)]
            places.append((self.rows[k], self.asked_rows[k], cells.point_now(), path))
        return places, (self.chosen, self.choice, self.helper, self.function), self.stand_in

    def hold(self, held: tuple[Any, ...]) -> int:
        """Make a decision the current one again."""
        places, numbers, self.stand_in = held
        self.chosen, self.choice, self.helper, self.function = numbers
        for k in range(self.count):
            cells = self.at(k).cells
            self.rows[k], self.asked_rows[k], point, path = places[k]
            cells.read(point)
            cells.found = len(path)
            for n in range(cells.found):
                cells.path[n] = path[n]
        return 0

    # -- decisions one at a time ---------------------------------------------------------------

    def judge(
        self, points: list[tuple[float, ...]], slot: int, fresh: int, closed: bytes | None
    ) -> tuple[int, int, list[int]]:
        """Return the space that decides, the result of `choose`, and the row in each own space.

        `points` are the coordinates in each of these.
        """
        for k in range(self.count):
            self.at(k).cells.read(points[k])
            self.rows[k] = self.at(k).cells.locate(slot)
        if closed is None:
            choice = self.choose(slot, fresh)
        else:
            choice = self._choose_open(slot, fresh, closed)
        return self.chosen, choice, [self.rows[k] for k in range(self.count)]

    def _choose_open(self, slot: int, fresh: int, closed: bytes) -> int:
        """Choose among the arms that are not closed."""
        try:
            for k in range(self.count):
                self.at(k).counters.close(closed)
            return self.choose(slot, fresh)
        finally:
            for k in range(self.count):
                self.at(k).counters.reopen()

    def function_for(self, rows: list[int], slot: int) -> int:
        """Return the own function for a peer's instance in these rows, at `slot`."""
        for k in range(self.count):
            self.at(k).clock.move(slot)
            self.at(k).clock.round_up(slot)
            self.asked_rows[k] = rows[k]
        self.asked = self.first
        return self.serve(self)

    def own_function(self, rows: list[int]) -> int:
        """Return the own function with the largest estimate in any of these rows."""
        for k in range(self.count):
            self.rows[k] = rows[k]
        return self.best_own()


class LateLabels:
    """Decisions whose labels arrive after their slot, by the slot at whose end they do.

    Records are numbers in one block. Those of a slot form a list, in the order of the decisions;
    a ring has the lists of the next slots, and what comes later waits in a list of its own.
    """

    def __init__(
        self, ledgers: list[Ledger], tables: list[Table], seats: list[Seat], wait: int | None
    ) -> None:
        self.tables = tables  # of all learners: one for each space
        self.policies = [table.policy for table in tables]
        self.table_at = items_of(tables) if cython.compiled else tables
        self.policy_at = items_of(self.policies) if cython.compiled else self.policies
        self.spaces = len(tables) // len(ledgers)
        self.wait = NEVER if wait is None else wait
        self.misleads = [seat.misleads for seat in seats]
        self.is_honest = not any(self.misleads)  # no learner tells peers false labels
        self.peers = [sorted({who for who in seat.behind if who >= 0}) for seat in seats]
        self.width = self.points = 0  # own spaces, and coordinates that are kept of an instance
        needs_points = self.is_pending = self.remembers = False
        for i in range(len(ledgers)):
            ledger = cython.cast(Ledger, ledgers[i])
            self.is_pending = self.is_pending or ledger.first.counters.is_pending
            self.remembers = self.remembers or ledger.first.remembers
            self.width = max(self.width, ledger.count)
            self.points = max(self.points, ledger.coordinates())
            needs_points = needs_points or ledger.needs_points()
        self.points = self.points if needs_points else 0
        self.own_block = block(4 * self.width * len(ledgers))
        self.own = halves(self.own_block, 0, self.width * len(ledgers))  # spaces; -1: no more
        for i in range(len(ledgers)):
            for k in range(self.width):
                self.own[i * self.width + k] = cython.cast(Ledger, ledgers[i]).space(k)
        self.size = CODES + 2 * self.width + self.points
        self.room = 64
        self._take_block(block(8 * self.size * self.room))
        self.used = 1  # so many records were made; 0 stands for none
        self.free = 0  # the first of a list of records that can be used again
        self.pending = self.now = 0
        self.list_block = block(4 * 4 * NEAR)
        self.lists = halves(self.list_block, 0, 4 * NEAR)  # per slot its first and last record
        self.far = self.last_far = 0  # the list of those that come later
        self.has_extras = False
        self.extras: dict[int, Any] = {}  # label, answer, and what free functions gain, by record

    def _take_block(self, memory: Any) -> int:
        self.block = memory
        self.numbers = integers(memory, 0, self.size * self.room)
        self.reals = doubles(memory, 0, self.size * self.room)
        return 0

    def make(self, i: int, helper: int, slot: int, delay: int, gain: int, paid: int) -> int:
        """Return a new record of a decision of learner `i`; its codes and coordinates follow."""
        record = self.free
        if record:
            self.free = self.numbers[record * self.size + NEXT]
        else:
            record = self.used
            self.used += 1
            if self.used > self.room:
                self._grow()
        numbers, at = self.numbers, record * self.size
        wait = self.wait if delay == NEVER else delay
        numbers[at + NEXT] = 0
        numbers[at + DUE] = NEVER if wait == NEVER else slot + wait
        numbers[at + WHO] = helper + 1 << 32 | i
        numbers[at + SLOT] = slot
        numbers[at + GAIN] = HIDDEN if delay == NEVER else gain
        numbers[at + PAID] = paid
        return record

    def _grow(self) -> int:
        memory = block(8 * self.size * 2 * self.room)
        memoryview(memory)[: 8 * self.size * self.room] = memoryview(self.block)
        self.room = 2 * self.room
        self._take_block(memory)
        return 0

    def keep(self, record: int) -> int:
        """Wait for the label of a record, or until it is too late for it."""
        due = self.numbers[record * self.size + DUE]
        if self.is_pending:
            self.expect(record, 1)
        if due == NEVER:
            self._release(record)
            return 0
        self.pending += 1
        return self._append(record, due)

    def expect(self, record: int, by: int) -> int:
        """Count the label of a record as pending (by 1), or count it no longer."""
        at = record * self.size
        i, helper = self.numbers[at + WHO] & WHO_MASK, (self.numbers[at + WHO] >> 32) - 1
        for k in range(self.width):
            space = self.own[i * self.width + k]
            if space < 0:
                break
            code = self.numbers[at + CODES + 2 * k]
            cython.cast(Table, self.table_at[i * self.spaces + space]).counters.expect(
                code >> 20, code >> 2 & 0x3FFFF, code & 3, by
            )
            code = self.numbers[at + CODES + 2 * k + 1]
            if code >= 0:
                cython.cast(Table, self.table_at[helper * self.spaces + space]).counters.expect(
                    code >> 20, code >> 2 & 0x3FFFF, SERVE, by
                )
        return 0

    def _append(self, record: int, due: int) -> int:
        """Append a record to the list of its slot, or to those that come later."""
        if due >= (self.now & -NEAR) + 2 * NEAR:
            if self.far:
                self.numbers[self.last_far * self.size + NEXT] = record
            else:
                self.far = record
            self.last_far = record
            return 0
        place = 2 * (due & 2 * NEAR - 1)
        if self.lists[place]:
            self.numbers[self.lists[place + 1] * self.size + NEXT] = record
        else:
            self.lists[place] = record
        self.lists[place + 1] = record
        return 0

    def _release(self, record: int) -> None:
        """Let a record be used again."""
        self.numbers[record * self.size + NEXT] = self.free
        self.free = record

    def move(self, slot: int) -> int:
        """Go on to a slot; those that come later may come soon then."""
        is_next = slot & -NEAR != self.now & -NEAR
        self.now = slot
        if is_next and self.far:
            record, self.far = self.far, 0
            while record:
                after = self.numbers[record * self.size + NEXT]
                self.numbers[record * self.size + NEXT] = 0
                self._append(record, self.numbers[record * self.size + DUE])
                record = after
        return 0

    def deliver(self, slot: int) -> int:
        """Settle the labels that arrive at the end of `slot`."""
        place = 2 * (slot & 2 * NEAR - 1)
        record = self.lists[place]
        self.lists[place] = 0
        while record:
            after = self.numbers[record * self.size + NEXT]
            self.settle(record)
            self.pending -= 1
            record = after
        return 0

    def settle(self, record: int) -> int:
        """Record the label of a decision, or count it as pending no longer; the record is free."""
        numbers, at = self.numbers, record * self.size
        i, helper = numbers[at + WHO] & WHO_MASK, (numbers[at + WHO] >> 32) - 1
        slot, gain = numbers[at + SLOT], numbers[at + GAIN]
        point = at + CODES + 2 * self.width
        if self.is_pending and gain != HIDDEN:
            self.expect(record, -1)
        for k in range(self.width):
            space = self.own[i * self.width + k]
            if space < 0:
                break
            code, asked = numbers[at + CODES + 2 * k], numbers[at + CODES + 2 * k + 1]
            own, there = i * self.spaces + space, helper * self.spaces + space
            if self.points > 0:
                cells = cython.cast(Table, self.table_at[own]).cells
                for n in range(cells.dimension):
                    cells.context[n] = self.reals[point + n]
                point += cells.dimension
                cells.follow()
            if gain == HIDDEN:
                cython.cast(Table, self.table_at[own]).forget(code)
                if asked >= 0:
                    cython.cast(Table, self.table_at[there]).forget(asked)
                continue
            if asked >= 0:
                if self.points > 0:
                    cells = cython.cast(Table, self.table_at[own]).cells
                    cython.cast(Table, self.table_at[there]).cells.take_place(cells)
                cython.cast(CellPolicy, self.policy_at[there]).learn_served(
                    asked >> 20,
                    asked >> 2 & 0x3FFFF,
                    gain if self.is_honest else self.told(i, gain),
                    slot,
                )
            cython.cast(CellPolicy, self.policy_at[own]).learn(
                code >> 20, code >> 2 & 0x3FFFF, code & 3, gain, slot, numbers[at + PAID]
            )
            if self.has_extras:
                self._settle_more(self.extras[record], i, helper, code, asked, slot, space)
            if cython.cast(CellPolicy, self.policy_at[own]).has_alarmed:
                self.tell(i, space, slot)
        if self.has_extras:
            self.extras.pop(record, None)
        self._release(record)
        return 0

    def tell(self, i: int, space: int, slot: int) -> int:
        """Tell the peers of learner `i` of an alarm that the label of a decision raised."""
        cython.cast(CellPolicy, self.policy_at[i * self.spaces + space]).has_alarmed = False
        for peer in self.peers[i]:
            policy = cython.cast(CellPolicy, self.policy_at[peer * self.spaces + space])
            policy.hear_alarm(slot)
        return 0

    def told(self, i: int, gain: int) -> int:
        """Return what an answer gains by the label that learner `i` tells the one that answered."""
        unit = cython.cast(Table, self.table_at[i * self.spaces]).counters.unit
        return unit - gain if self.misleads[i] else gain

    def _settle_more(
        self, more: Any, i: int, helper: int, code: int, asked: int, slot: int, space: int
    ) -> int:
        """Store a label for queries that show only the cell, and score free functions."""
        label, answer, scores = more
        table = self.tables[i * self.spaces + space]
        if table.remembers:
            table.counters.remember_around(label, answer if helper < 0 else None, slot)
        for function, gain in scores[0]:
            table.policy.score(code >> 20, function, gain, slot, False)
        if helper >= 0:
            table = self.tables[helper * self.spaces + space]
            if table.remembers:
                table.cells.memory.take(max(asked, -1 - asked) >> 20, label, answer)
            for function, gain in scores[1]:
                table.policy.score(asked >> 20, function, self.told(i, gain), slot, True)
        return 0


class RowNumbers:
    """The numbers of a table's cells in the trace: the same for all learners."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.count = self.room = 0  # rows that have a number, or can have one
        self.block = NO_NUMBERS
        self.at = halves(NO_NUMBERS, 0, 0)

    def catch_up(self, space: int, known: dict[tuple[int, Cell], int]) -> int:
        """Give numbers to new rows: those of their cells among the `known` of all learners."""
        used = self.cells.used
        if used > self.room:
            self.room = used + used // 2
            memory = block(8 * self.room)
            memoryview(memory)[: 4 * self.count] = memoryview(self.block)[: 4 * self.count]
            self.block, self.at = memory, halves(memory, 0, self.room)
        for row in range(self.count, used):
            self.at[row] = known.setdefault((space, self.cells.cell(row)), len(known))
        self.count = used
        return 0


def is_like(cells: Cells, other: Cells, first: int) -> bool:
    """Return whether both divide the space alike, and keep the same cells in the same rows.

    Rows before `first` are known to be the same.
    """
    differ = not (cells.is_flat or cells.grid >= 0) or cells.grid != other.grid
    differ |= cells.dimension != other.dimension or cells.levels != other.levels
    differ |= cells.used != other.used or cells.foreign > 0 or other.foreign > 0
    for k in range(0 if differ else cells.levels):
        differ |= cells.sides[k] != other.sides[k] or cells.limits[k] != other.limits[k]
    if cells.grid >= 0:
        first = 0  # in a tree, own arrivals must be the same: then all split a cell at once
    for row in range(first, 0 if differ else cells.used):
        base, there = row * cells.stride, row * other.stride
        differ |= cells.marks[2 * base + LEVEL] != other.marks[2 * there + LEVEL]
        differ |= cells.grid >= 0 and cells.rows[base + OWN] != other.rows[there + OWN]
        for k in range(COORDINATES, cells.labels):
            differ |= cells.rows[base + k] != other.rows[there + k]
    return not differ


def touch_row(cells: Cells, row: int) -> None:
    """Request the memory of a row before it is needed."""
    if cython.compiled:
        # Two cache lines: what a decision reads, and the counters of the first arms.
        first = row * cells.stride + BEST // 2
        touch(cython.address(cells.rows[first]))
        touch(cython.address(cells.rows[first + 8]))


def aim_at(cells: Cells, contexts: Any, columns: Any, start: int) -> None:
    """Set `point` to the cell of level 0 around coordinates that begin at `start`."""
    side = cells.sides[0]
    for k in range(cells.axes):
        slice_ = int(contexts[start + columns[k]] * side)
        cells.point[k] = slice_ if slice_ < side else slice_ - 1


class Arena:
    """Replay of many learners on recorded predictions.

    In a slot every receiving learner decides on the state at the start of the slot; then arrivals
    are counted and due labels are settled. These are sums, so their order does not matter.
    """

    def __init__(
        self, ledgers: list[Ledger], seats: list[Seat], hidden_from: int, label_wait: int | None
    ) -> None:
        self.ledgers = ledgers
        self.count = len(ledgers)
        self.spaces = len(self._ledger(0).tables)
        self.clock = self._ledger(0).table(0).clock
        functions = [self._ledger(k).first.counters.functions for k in range(self.count)]
        arms = [len(seat.behind) for seat in seats]
        self.kept: list[Any] = []  # what the arrays are in
        self.offsets = self._whole(accumulate(functions, initial=0))  # learner -> its predictions
        self.total = self.offsets[self.count]
        # Per arm of every learner: the queried learner (-1: itself), and the column of its cost.
        self.behind = self._whole([who for seat in seats for who in seat.behind])
        self.cost_columns = self._whole([column for seat in seats for column in seat.cost_columns])
        self.starts = self._whole(accumulate(arms, initial=0))  # learner -> its first arm in these
        # Per arm, the row of predictions with the answers of its first function.
        self.answers = self._long(self._answers(seats))
        self.receives = self._whole([seat.receives for seat in seats])
        self.all_receive = all(seat.receives for seat in seats)
        self.streams = self._whole([seat.stream for seat in seats])
        self.stream_count = 1 + max([seat.stream for seat in seats])
        self.patience = self._long([seat.patience for seat in seats])
        self.lies = self._whole([seat.lies for seat in seats])
        self.nothing_said = Said(0)  # what those report
        self.free = [seat.free for seat in seats]
        self.has_free = max([len(free) for free in self.free]) > 0
        self.hidden_from = hidden_from  # the first so many learners never see a hidden label
        self.tables = [ledger.tables[k] for ledger in ledgers for k in range(self.spaces)]
        self.late = LateLabels(ledgers, self.tables, seats, label_wait)
        self.remembers = self.late.remembers
        self.seen = 0  # labels of consulted peers
        # Of the current slot, per learner: its row and choice, its helper, whose row and function.
        self.rows, self.choices = self._long([0] * self.count), self._long([0] * self.count)
        self.met, self.served = self._long([0] * self.count), self._long([0] * self.count)
        self.helpers = self._long([0] * self.count)
        self.ahead = self._long([0] * 2 * AHEAD)  # rows of this and the next block of slots
        self.known: dict[tuple[int, Cell], int] = {}  # a space and its cell -> number in the trace
        self.alike = 0  # so many rows are known to be the same for all learners
        self.is_alike = self.looks_ahead = False  # all have the same rows; those of later slots
        self.policies = [table.policy for table in self.tables]
        self.numbers = [RowNumbers(table.cells) for table in self.tables]
        self.columns = self._ledger(0).places  # of the coordinates, where all have the same
        self.is_wide = any(table.cells.is_wide for table in self.tables)
        # C reaches the items of lists without counting references.
        self.table_at = items_of(self.tables) if cython.compiled else self.tables
        self.policy_at = items_of(self.policies) if cython.compiled else self.policies
        self.number_at = items_of(self.numbers) if cython.compiled else self.numbers

    def _whole(self, numbers: Iterable[int]) -> memoryview[int]:
        """Return an array of integers of 32 bits."""
        memory = array("i", numbers)
        self.kept.append(memory)
        return halves(memory, 0, -1)

    def _long(self, numbers: Iterable[int]) -> memoryview[int]:
        """Return an array of integers of 64 bits."""
        memory = array("q", numbers)
        self.kept.append(memory)
        return integers(memory, 0, -1)

    def _answers(self, seats: list[Seat]) -> list[int]:
        lines = []
        for k, seat in enumerate(seats):
            for arm, who in enumerate(seat.behind):
                function = self.offsets[k] + arm if who < 0 else self.offsets[who]
                lines.append(seat.stream * self.total + function)
        return lines

    def cells_since(self, count: int) -> list[tuple[int, Cell]]:
        """Return the cells that the trace numbers from `count` on, with their spaces."""
        return list(self.known)[count:]

    def _ledger(self, learner: int) -> Ledger:
        return self.ledgers[learner]

    def run(self, log: Any, first_slot: int, trace: Any) -> None:
        """Replay the rows of `log` from `first_slot`, and write the trace."""
        self._open(log, trace)
        for k in range(self.count * self.spaces):
            # Learners that share an instance must count it once.
            is_shared = not self.has_receivers and self.stream_count == 1
            cython.cast(Table, self.table_at[k]).counters.once = is_shared
        is_usual = self._is_usual()
        if is_usual:
            self.is_alike = self._are_alike()
            self.looks_ahead = self.is_alike and cython.cast(Table, self.table_at[0]).cells.is_flat
        for t in range(self.slots):
            slot = first_slot + t
            self.late.move(slot)
            if self.spaces > 1 or not self.clock.is_within(slot):
                self._move_clocks(slot)
            first, end = 0, self.count
            if self.has_receivers:
                first = self.receivers[t]
                end = first + 1
            if is_usual:
                self._decide_all(t, slot, first, end)
                self._end_all(t, slot, first, end)
            else:
                for i in range(first, end):
                    if self.receives[i]:
                        self._decide(self._ledger(i), i, slot, t)
                for i in range(first, end):
                    if self.receives[i]:
                        self._end(self._ledger(i), i, slot, t)
            if self.late.pending > 0:
                self.late.deliver(slot)
        self.alike = cython.cast(Table, self.table_at[0]).cells.used if self.is_alike else 0

    def _move_clocks(self, slot: int) -> int:
        self.clock.move(slot)
        self.clock.round_up(slot)
        for k in range(1, self.spaces):
            clock = self._ledger(0).table(k).clock
            clock.move(slot)
            clock.round_up(slot)
        return 0

    def _open(self, log: Any, trace: Any) -> int:
        """Take the arrays of a log and of its trace; flags say which of them there are."""
        nothing = self.kept[0]
        self.opened = log, trace
        self.slots = len(log.labels)
        self.width = len(log.contexts) // (self.stream_count * max(1, self.slots))
        self.contexts = doubles(log.contexts, 0, -1)
        self.predictions, self.labels = halves(log.predictions, 0, -1), halves(log.labels, 0, -1)
        self.has_receivers, self.has_delays = log.at is not None, log.delays is not None
        self.receivers = halves(log.at if self.has_receivers else nothing, 0, -1)
        self.delays = integers(log.delays if self.has_delays else self.kept[4], 0, -1)
        self.has_shown, self.has_gains = log.shown is not None, log.gains is not None
        self.shown = octets(log.shown if self.has_shown else nothing, 0, -1)
        self.gains = halves(log.gains if self.has_gains else nothing, 0, -1)
        self.is_busy, self.has_costs = log.busy is not None, log.costs is not None
        self.busy = integers(log.busy if self.is_busy else self.kept[4], 0, -1)
        self.costs = halves(log.costs if self.has_costs else nothing, 0, -1)
        self.cells, self.phases = halves(trace.cell, 0, -1), octets(trace.phase, 0, -1)
        self.arms, self.functions = halves(trace.arm, 0, -1), halves(trace.function, 0, -1)
        self.correct, self.paid = halves(trace.correct, 0, -1), halves(trace.paid, 0, -1)
        self.recalled = halves(trace.recalled, 0, -1)
        self.is_batched = log.batches is not None
        is_plain = not (self.has_delays or self.has_shown or self.has_costs)
        self.is_prompt = is_plain and not self.is_batched
        self.written = 0
        self.is_alike = self.looks_ahead = False
        return 0

    # -- the usual case: one space, where learners see what they use ---------------------------

    def _is_usual(self) -> bool:
        """Return whether no rare option is in use: then a shorter loop makes the same decisions."""
        if self.is_busy or self.remembers or self.has_free or self.spaces > 1:
            return False
        if not self.late.is_honest or self.slots == 0:
            return False
        for k in range(self.count):
            table = self._ledger(k).first
            is_usual = table.is_supervised and table.counters.asked == table.counters.arms
            if not is_usual or self._ledger(k).count > 1:
                return False
        return True

    def _are_alike(self) -> bool:
        """Return whether all learners keep the same cells in the same rows: then they stay so."""
        first = cython.cast(Table, self.table_at[0]).cells
        if self.stream_count > 1 or self.has_receivers or not self.all_receive:
            return False
        for table in self.tables:
            if table.counters.has_rewards or table.policy.has_context:
                return False
            if not is_like(table.cells, first, self.alike):
                return False
        return True

    def _look_ahead(self, t: int, count: int) -> None:
        """Find the cells of the next slots of a flat grid (-1: not known), request their memory."""
        cells = cython.cast(Table, self.table_at[0]).cells
        start, at = t * self.width, t % (2 * AHEAD)
        ahead = self.ahead
        if cython.compiled and not cells.is_direct:
            for k in range(count):
                aim_at(cells, self.contexts, self.columns, start + k * self.width)
                ahead[at + k] = cells.place(0)
                touch(cython.address(cells.index[ahead[at + k]]))
            for k in range(count):
                if cells.index[ahead[at + k]] > 0:
                    touch_row(cells, cells.index[ahead[at + k]] - 1)
        for k in range(count):
            aim_at(cells, self.contexts, self.columns, start + k * self.width)
            ahead[at + k] = max(-1, cells.seek(0))
        for k in range(0 if cells.is_direct else count):
            for i in range(self.count if ahead[at + k] >= 0 else 0):
                touch_row(cython.cast(Table, self.table_at[i]).cells, ahead[at + k])

    def _decide_all(self, t: int, slot: int, first: int, end: int) -> int:
        """Let every learner decide on the state at the start of the slot."""
        if self.looks_ahead and t % AHEAD == 0:
            if t == 0:
                self._look_ahead(t, min(AHEAD, self.slots))
            self._look_ahead(t + AHEAD, min(AHEAD, self.slots - t - AHEAD))
        here = self.ahead[t % (2 * AHEAD)] if self.looks_ahead else -1
        for i in range(first, end):
            if not self.receives[i]:
                continue
            row = here
            if here < 0 or here >= cython.cast(Table, self.table_at[i]).cells.used:
                row = self._locate(i, t, slot)
                here = row if self.is_alike else -1
            else:
                cython.cast(Table, self.table_at[i]).cells.path[0] = row
                cython.cast(Table, self.table_at[i]).cells.found = 1
            choice = cython.cast(CellPolicy, self.policy_at[i]).choose(row, slot, False)
            while choice < 0:
                self._ask(i, cython.cast(CellPolicy, self.policy_at[i]), 0, row, slot)
                choice = cython.cast(CellPolicy, self.policy_at[i]).choose_again(row, slot)
            self.rows[i] = row
            self.choices[i] = choice
            who = self.behind[self.starts[i] + (choice >> 2)]
            self.helpers[i] = who
            if who >= 0:
                self.met[i] = self._meet(who, i, row, slot)
                policy = cython.cast(CellPolicy, self.policy_at[who])
                policy.asker = cython.cast(CellPolicy, self.policy_at[i]).offset
                self.served[i] = policy.serve(self.met[i])
        return 0

    def _meet(self, seat: int, own: int, row: int, slot: int) -> int:
        """Return the row in the table of `seat` of the cell that the table `own` has in `row`."""
        if self.is_alike and row < cython.cast(Table, self.table_at[seat]).cells.used:
            return row
        cells = cython.cast(Table, self.table_at[own]).cells
        met: int = cython.cast(Table, self.table_at[seat]).cells.open_for(cells, row, slot)
        return met

    def _locate(self, i: int, t: int, slot: int) -> int:
        """Return the row of the cell of a learner's instance."""
        cells = cython.cast(Table, self.table_at[i]).cells
        at = (t * self.stream_count + self.streams[i]) * self.width
        for n in range(cells.dimension):
            cells.context[n] = self.contexts[at + self.columns[n]]
        row: int = cells.locate(slot)
        return row

    def _end_all(self, t: int, slot: int, first: int, end: int) -> int:
        """Count and trace the decisions of a slot, and record labels that come at once."""
        at = self.written
        number = 0
        label = self.labels[t]
        is_prompt = self.is_prompt and label >= 0
        for i in range(first, end):
            if not self.receives[i]:
                continue
            choice = self.choices[i]
            arm = choice >> 2
            who = self.helpers[i]
            function = self.offsets[i] + arm
            shown = function
            line = self.answers[self.starts[i] + arm]
            if who >= 0:
                function = self.offsets[who] + self.served[i]
                shown = self.total + who
                line += self.served[i]
            gain: int = self.predictions[line * self.slots + t] == label
            if self.has_gains:
                gain = self.gains[line * self.slots + t]
            row = self.rows[i]
            if i == first or not self.is_alike:
                if row >= cython.cast(RowNumbers, self.number_at[i]).count:
                    cython.cast(RowNumbers, self.number_at[i]).catch_up(0, self.known)
                number = cython.cast(RowNumbers, self.number_at[i]).at[row]
            self.cells[at] = number
            self.phases[at] = choice & 3
            self.arms[at] = shown
            self.functions[at] = function
            self.correct[at] = gain if label >= 0 else -1
            at += 1
            if not is_prompt:
                self._end_late(i, t, slot, gain, at - 1)
                continue
            if self.is_wide:
                self._aim(i, who, t)
            if who >= 0:
                cython.cast(CellPolicy, self.policy_at[who]).learn_served_now(
                    self.met[i], self.served[i], gain, slot
                )
            cython.cast(CellPolicy, self.policy_at[i]).learn_now(row, arm, choice & 3, gain, slot)
            if cython.cast(CellPolicy, self.policy_at[i]).has_alarmed:
                self.late.tell(i, 0, slot)
        self.written = at
        return 0

    def _aim(self, i: int, who: int, t: int) -> int:
        """Take the instance of a slot again: others may have asked since the decision."""
        ledger = self._ledger(i)
        ledger.aim(self.contexts, (t * self.stream_count + self.streams[i]) * self.width)
        if who >= 0:
            cython.cast(Table, self.table_at[who]).cells.take_place(ledger.first.cells)
        return 0

    def _end_late(self, i: int, t: int, slot: int, gain: int, at: int) -> int:
        """Count a decision whose label may come later, or has a cost, and record or keep it."""
        row, choice, who = self.rows[i], self.choices[i], self.helpers[i]
        paid = UNPAID
        if self.has_costs:
            paid = self._cost(i, choice >> 2, t)
            self.paid[at] = max(0, paid)
        if (
            cython.cast(Table, self.table_at[i]).cells.found
            <= cython.cast(Table, self.table_at[i]).cells.deepest
        ):
            cython.cast(Table, self.table_at[i]).cells.follow_on()
        cython.cast(Table, self.table_at[i]).counters.count_own(row, 1)
        if who >= 0:
            cython.cast(Table, self.table_at[who]).counters.count_served(self.met[i], 1)
        delay = self._delay(i, t, 0)
        if self.is_wide:
            self._aim(i, who, t)
        if delay == 0 and not self.is_batched:
            if who >= 0:
                cython.cast(CellPolicy, self.policy_at[who]).learn_served(
                    self.met[i], self.served[i], gain, slot
                )
            cython.cast(CellPolicy, self.policy_at[i]).learn(
                row, choice >> 2, choice & 3, gain, slot, paid
            )
            if cython.cast(CellPolicy, self.policy_at[i]).has_alarmed:
                self.late.tell(i, 0, slot)
            return 0
        record = self.late.make(i, who, slot, delay, gain, paid)
        at = record * self.late.size + CODES
        self.late.numbers[at] = row << 20 | choice
        served = self.met[i] << 20 | self.served[i] << 2 | SERVE
        self.late.numbers[at + 1] = served if who >= 0 else NEVER
        if self.late.points > 0:
            cells = cython.cast(Table, self.table_at[i]).cells
            for n in range(cells.dimension):
                self.late.reals[at + 2 + n] = cells.context[n]
        return self.late.keep(record)

    # -- any case ------------------------------------------------------------------------------

    def _decide(self, ledger: Ledger, i: int, slot: int, t: int) -> int:
        stream = t * self.stream_count + self.streams[i]
        ledger.locate(self.contexts, stream * self.width, slot)
        table = ledger.first
        if table.is_supervised:
            choice = ledger.choose(slot, -1)
            while choice < 0:
                k = ledger.chosen
                self._ask(i, ledger.at(k).policy, ledger.own[k], ledger.rows[k], slot)
                choice = ledger.choose(slot, k)
        else:
            choice = self._consult(ledger, i, slot)
        arm = choice >> 2
        ledger.choice = choice
        ledger.helper = -1
        ledger.function = arm
        ledger.stand_in = -1
        if arm >= table.counters.functions:
            self._call(ledger, i, slot, t)
        return 0

    def _call(self, ledger: Ledger, i: int, slot: int, t: int) -> int:
        """Ask the learner of the chosen arm, with the data or with the cells only."""
        arm = ledger.choice >> 2
        ledger.helper = self.behind[self.starts[i] + arm]
        helper = self._ledger(ledger.helper)
        helper.open_for(ledger, slot)
        if arm < ledger.first.counters.asked:
            ledger.function = helper.serve(ledger)
            if self.is_busy and 0 <= self.patience[i] < self.busy[t * self.count + ledger.helper]:
                ledger.stand_in = ledger.best_own()
            return 0
        ledger.function = -1
        answer = helper.recall(ledger)
        self.recalled[i * self.slots + t] = answer
        if answer < 0:
            ledger.stand_in = ledger.best_own()
        return 0

    def _ask(self, i: int, policy: CellPolicy, space: int, row: int, slot: int) -> int:
        """Let peers report what the decision of learner `i` needs in a row of a space."""
        place = policy.wanted_from(row, 0)
        while place >= 0:
            who = self.behind[self.starts[i] + policy.functions + place]
            seat = who * self.spaces + space
            met = self._meet(seat, i * self.spaces + space, row, slot)
            if self.lies[who]:
                policy.hear(row, place, self.nothing_said, slot)
            else:
                peer = cython.cast(CellPolicy, self.policy_at[seat])
                peer.asker = policy.offset
                peer.report(met, slot)
                policy.hear(row, place, peer.said, slot)
            place = policy.wanted_from(row, place + 1)
        return 0

    def _consult(self, ledger: Ledger, i: int, slot: int) -> int:
        """Choose for a learner without labels: by labels from serving, and by peers' estimates."""
        chosen = 0
        largest = 0.0
        blind = ledger.first.counters.blind
        is_blind = True
        for k in range(ledger.count):
            counters = ledger.at(k).counters
            before = counters.blind
            self._hear(ledger, i, k, slot)
            for arm in range(counters.functions):
                policy = ledger.at(k).policy
                counters.told[arm] = policy.accuracy(ledger.rows[k], arm)
                self.seen += policy.labelled_times(ledger.rows[k], arm)
            arm = counters.weigh(ledger.rows[k] * counters.cells.stride, self.seen)
            is_blind = is_blind and counters.blind > before
            if k == 0 or counters.largest > largest:
                largest = counters.largest
                chosen = arm
                ledger.chosen = k
        # A decision is not blind if one candidate has labels.
        ledger.first.counters.blind = blind + is_blind
        return chosen << 2 | EXPLOIT

    def _hear(self, ledger: Ledger, i: int, k: int, slot: int) -> int:
        """Collect the accuracies of peers in a cell; set `seen`, their labels."""
        table = ledger.at(k)
        seen = 0
        for arm in range(table.counters.functions, table.counters.arms):
            owner = self._ledger(self.behind[self.starts[i] + arm]).table(ledger.own[k])
            met = owner.cells.open_for(table.cells, ledger.rows[k], slot)
            if arm < table.counters.asked:
                best = owner.policy.most_accurate(met)
                table.counters.told[arm] = owner.policy.accuracy(met, best)
                seen += owner.policy.labelled_times(met, best)
            else:
                _, count, total = owner.cells.memory.recall(met)
                table.counters.told[arm] = float(count) / total if total else 0.0
                seen += total
        self.seen = seen
        return 0

    def _gain(self, line: int, t: int) -> int:
        gain: int = self.predictions[line * self.slots + t] == self.labels[t]
        if self.has_gains:
            gain = self.gains[line * self.slots + t]
        return gain

    def _end(self, ledger: Ledger, i: int, slot: int, t: int) -> int:
        """Count and trace the decision of learner `i`, and settle it or keep it for its label."""
        helper = ledger.helper
        function = self.total + i
        line = -1
        first = self.starts[i] + (ledger.choice >> 2)
        if ledger.function >= 0:
            function = self.offsets[helper if helper >= 0 else i] + ledger.function
            line = self.answers[first] + (ledger.function if helper >= 0 else 0)
        gain: int = self._gain(line, t) if line >= 0 else self._said(i, line, t) == self.labels[t]
        paid = self._cost(i, ledger.choice >> 2, t) if self.has_costs else UNPAID
        self._write(ledger, i, function, gain if self.labels[t] >= 0 else -1, t, paid)
        ledger.aim(self.contexts, (t * self.stream_count + self.streams[i]) * self.width)
        ledger.count_own()
        busy = 0
        is_helped = helper >= 0 and ledger.function >= 0
        if is_helped:
            for k in range(ledger.count):
                table = self._ledger(helper).table(ledger.own[k])
                table.counters.count_served(ledger.asked_rows[k], 1)
            busy = self.busy[t * self.count + helper] if self.is_busy else 0
        delay = self._delay(i, t, busy)
        more = None
        if delay != NEVER and (self.has_free or self.remembers):
            scores: Any = ((), ())
            if self.has_free:
                own = self._gains(i, self.answers[self.starts[i]], ledger.choice >> 2, t)
                scores = (own, self._gains(helper, self.answers[first], ledger.function, t))
            said = self._said(i, line, t)
            more = (self.labels[t], said if said >= 0 else None, scores)
        record = self.late.make(i, helper, slot, delay, gain, paid)
        self._note(ledger, record)
        if more is not None:
            self.late.extras[record], self.late.has_extras = more, True
        if delay != 0 or self.is_batched:  # labels of a batch come together, in order
            return self.late.keep(record)
        if self.late.is_pending:
            self.late.expect(record, 1)
        return self.late.settle(record)

    def _delay(self, i: int, t: int, busy: int) -> int:
        """Return when learner `i` sees the label of a row whose answer takes `busy` slots.

        In a log, hidden labels have the delay `-1 - delay`; they stay hidden.
        """
        if self.labels[t] < 0 or (self.has_shown and self.shown[t * self.count + i] == 0):
            return NEVER
        delay = self.delays[t] if self.has_delays else 0
        if busy:
            delay = max(delay, busy) if delay >= 0 else min(delay, -1 - busy)
        if delay < 0:
            if i < self.hidden_from:
                return NEVER
            delay = -1 - delay
        return delay if self.late.wait < 0 or delay <= self.late.wait else NEVER

    def _note(self, ledger: Ledger, record: int) -> int:
        """Write the decision of a learner and that of its helper, with contexts, to a record."""
        late = self.late
        at = record * late.size + CODES
        point = at + 2 * late.width
        for k in range(ledger.count):
            asked = ledger.asked_rows[k] << 20
            if ledger.function >= 0:
                asked |= ledger.function << 2 | SERVE
            late.numbers[at + 2 * k] = ledger.rows[k] << 20 | ledger.choice
            is_helped = ledger.helper >= 0 and ledger.function >= 0
            late.numbers[at + 2 * k + 1] = asked if is_helped else -1 - asked
            if late.points > 0:
                cells = ledger.at(k).cells
                for n in range(cells.dimension):
                    late.reals[point + n] = cells.context[n]
                point += cells.dimension
        return 0

    def _said(self, i: int, line: int, t: int) -> int:
        """Return the answer in a row of predictions, or from labels (no row); -1: none."""
        if line < 0:
            return self.recalled[i * self.slots + t]
        return self.predictions[line * self.slots + t] if self.remembers else -1

    def _gains(self, owner: int, line: int, chosen: int, t: int) -> Any:
        """Return the free functions of `owner` but the chosen one, and what each gains.

        `line` is the row of predictions of its first function.
        """
        if owner < 0 or chosen < 0:  # no learner was asked, or for the cell only
            return []
        return [(f, self._gain(line + f, t)) for f in self.free[owner] if f != chosen]

    def _cost(self, i: int, arm: int, t: int) -> int:
        """Return the variable cost of the arm, in millionths."""
        column = self.cost_columns[self.starts[i] + arm]
        return self.costs[column * self.slots + t] if column >= 0 else UNPAID

    def _write(self, ledger: Ledger, i: int, function: int, gain: int, t: int, paid: int) -> int:
        at = self.written
        arm = ledger.choice >> 2
        shown = function
        if ledger.stand_in >= 0:
            shown = self.offsets[i] + ledger.stand_in
            if gain >= 0:
                gain = self._gain(self.answers[self.starts[i] + ledger.stand_in], t)
        row, space = ledger.rows[ledger.chosen], ledger.own[ledger.chosen]
        numbers = cython.cast(RowNumbers, self.number_at[i * self.spaces + space])
        if row >= numbers.count:
            numbers.catch_up(space, self.known)
        self.cells[at] = numbers.at[row]
        self.phases[at] = ledger.choice & 3
        self.arms[at] = function
        if ledger.helper >= 0:
            self.arms[at] = self.total + ledger.helper
            if arm >= ledger.first.counters.asked:
                self.arms[at] += self.count
        self.functions[at] = shown
        self.correct[at] = gain
        if self.has_costs:
            self.paid[at] = max(0, paid)
        self.written = at + 1
        return 0

    # -- batches that share one slot -----------------------------------------------------------

    def run_batches(self, log: Any, first_slot: int, trace: Any) -> None:
        """Replay the rows of `log`, whole batches, from `first_slot`, and write the trace.

        All rows of a batch are decided on the counters from before it. Counters and labels follow
        at its end, row by row.
        """
        self._open(log, trace)
        slot = first_slot
        first = 0
        while first < self.slots:
            end = first + 1
            while end < self.slots and log.batches[end] == log.batches[first]:
                end += 1
            self._play_batch(first, end, slot)
            first = end
            slot += 1

    def _play_batch(self, first: int, end: int, slot: int) -> int:
        """Replay the rows from `first` to before `end` in one slot."""
        self.late.move(slot)
        self._move_clocks(slot)
        decided = []
        for t in range(first, end):
            receivers = range(self.count)
            if self.has_receivers:
                receivers = range(self.receivers[t], self.receivers[t] + 1)
            for i in receivers:
                if self.receives[i]:
                    self._decide(self._ledger(i), i, slot, t)
                    decided.append((i, t, self._ledger(i).held()))
        for i, t, held in decided:
            ledger = self._ledger(i)
            ledger.hold(held)
            if ledger.helper >= 0:
                ledger.asked = self._ledger(ledger.helper).table(ledger.own[0])
            self._end(ledger, i, slot, t)
        if self.late.pending > 0:
            self.late.deliver(slot)
        return 0
