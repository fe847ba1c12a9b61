# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Replay of many learners in step on recorded predictions, with labels that come late.

Each learner decides in one context space and learns from labels of what it uses. Other learners
are replayed by `covey.replay.rounds`, in plain Python.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import cython

from covey.kernel.average import Friends, friends_of
from covey.kernel.cells import Cells, block
from covey.kernel.rules import Cell, Seat
from covey.kernel.table import CellPolicy, Clock, Said, Table

if cython.compiled:
    from cython.cimports.covey.kernel.cells import items_of, touch
else:
    from covey.kernel.cells import BEST, COORDINATES, LEVEL, OWN, doubles, halves, integers, octets
    from covey.kernel.counters import SERVE, UNPAID

    NEVER = -1  # a delay: the label never arrives
    AHEAD = 16  # slots whose cells are looked up at once
    # What is kept of a decision whose label is late: the next one of the same slot, and the table
    # of the helper (32 bits each); the learner's; when its label comes, if that is not soon; slot,
    # gain and cost; its code and that of the helper; the context.
    LINKS, OWNER, DUE, SLOT, GAIN, PAID, CODE, ASKED, POINT = range(9)
    NEAR = 1 << 15  # slots: labels that come within as many are found by their slot
    HIDDEN = -1  # a gain: the label never comes, and its time is over

NO_NUMBERS = bytearray(8)  # shared by all that have numbered no rows


class LateLabels:
    """Decisions whose labels arrive after their slot, by the slot at whose end they do.

    Records are numbers in one block. Those of a slot form a list, in the order of the decisions;
    a ring has the lists of the next slots, and what comes later waits in a list of its own.
    """

    def __init__(
        self, tables: list[Table], own: list[int], seats: list[Seat], wait: int | None
    ) -> None:
        """`own` has the number of each learner's own table among all `tables`."""
        self.tables = tables
        self.policies = [table.policy for table in tables]
        self.table_at = items_of(tables) if cython.compiled else tables
        self.policy_at = items_of(self.policies) if cython.compiled else self.policies
        self.wait = NEVER if wait is None else wait
        spaces = len(tables) // len(own)
        # Per own table, those that its alarms are told to; whether labels are told falsely.
        self.hearers: list[list[int]] = [[] for _ in tables]
        self.truth_block = block(len(tables) + 8)
        self.misleads = octets(self.truth_block, 0, len(tables))
        for k, seat in zip(own, seats, strict=True):
            peers = sorted({who for who in seat.behind if who >= 0})
            self.hearers[k] = [who * spaces + k % spaces for who in peers]
            self.misleads[k] = seat.misleads
        self.points = 0  # coordinates that are kept of an instance
        self.is_pending = False
        for k in own:
            table = cython.cast(Table, tables[k])
            self.is_pending = self.is_pending or table.counters.is_pending
            if table.needs_path:
                self.points = max(self.points, table.cells.dimension)
        # A record is known by its place in the block; 0 stands for none.
        self.size = POINT + self.points
        self._take_block(block(8 * self.size * 64))
        self.used = self.size  # so much of the block was used
        self.free = 0  # the first of a list of records that can be used again
        self.pending = 0
        self.near = NEAR  # before this slot, labels are found by their slot
        self.list_block = block(4 * 4 * NEAR)
        self.lists = halves(self.list_block, 0, 4 * NEAR)  # per slot its first and last record
        self.far = self.last_far = 0  # the list of those that come later

    def _take_block(self, memory: Any) -> int:
        self.block, self.room = memory, len(memory) // 8
        self.numbers = integers(memory, 0, self.room)
        self.links = halves(memory, 0, 2 * self.room)
        self.reals = doubles(memory, 0, self.room)
        return 0

    def make(self) -> int:
        """Return a new record, which the caller fills."""
        at = self.free
        if at:
            self.free = self.links[2 * at]
            return at
        at = self.used
        self.used += self.size
        if self.used > self.room:
            memory = block(16 * self.room)
            memoryview(memory)[: 8 * self.room] = memoryview(self.block)
            self._take_block(memory)
        return at

    def keep(self, at: int, due: int) -> int:
        """Wait for the label of a record until a slot; NEVER: it does not come."""
        if self.is_pending:
            self.expect(at, 1)
        if due == NEVER:
            self.links[2 * at] = self.free
            self.free = at
            return 0
        self.pending += 1
        links, lists = self.links, self.lists
        links[2 * at] = 0
        if due >= self.near:
            self.numbers[at + DUE] = due
            if self.far:
                links[2 * self.last_far] = at
            else:
                self.far = at
            self.last_far = at
            return 0
        place = 2 * (due & 2 * NEAR - 1)
        if lists[place]:
            links[2 * lists[place + 1]] = at
        else:
            lists[place] = at
        lists[place + 1] = at
        return 0

    def expect(self, at: int, by: int) -> int:
        """Count the label of a record as pending (by 1), or count it no longer."""
        numbers = self.numbers
        code, asked = numbers[at + CODE], numbers[at + ASKED]
        cython.cast(Table, self.table_at[numbers[at + OWNER]]).counters.expect(
            code >> 20, code >> 2 & 0x3FFFF, code & 3, by
        )
        if asked >= 0:
            cython.cast(Table, self.table_at[self.links[2 * at + 1]]).counters.expect(
                asked >> 20, asked >> 2 & 0x3FFFF, SERVE, by
            )
        return 0

    def move(self, slot: int) -> int:
        """Go on to a slot; those that come later may come soon then."""
        at, self.far = self.far, 0
        self.near = (slot & -NEAR) + 2 * NEAR
        is_pending, self.is_pending = self.is_pending, False  # they are counted
        while at:
            after = self.links[2 * at]
            self.pending -= 1
            self.keep(at, self.numbers[at + DUE])
            at = after
        self.is_pending = is_pending
        return 0

    def deliver(self, slot: int) -> int:
        """Record the labels that arrive at the end of `slot`, or count them as pending no longer.

        Their records can be used again.
        """
        numbers, links = self.numbers, self.links
        place = 2 * (slot & 2 * NEAR - 1)
        at = self.lists[place]
        self.lists[place] = 0
        while at:
            own, there, gain = numbers[at + OWNER], links[2 * at + 1], numbers[at + GAIN]
            code, asked = numbers[at + CODE], numbers[at + ASKED]
            if gain == HIDDEN:
                cython.cast(Table, self.table_at[own]).forget(code)
                if asked >= 0:
                    cython.cast(Table, self.table_at[there]).forget(asked)
            else:
                if self.is_pending:
                    self.expect(at, -1)
                if self.points > 0:
                    self._aim(at)
                if asked >= 0:
                    cython.cast(CellPolicy, self.policy_at[there]).learn_served(
                        asked >> 20,
                        asked >> 2 & 0x3FFFF,
                        self.told(own, gain),
                        numbers[at + SLOT],
                    )
                cython.cast(CellPolicy, self.policy_at[own]).learn(
                    code >> 20,
                    code >> 2 & 0x3FFFF,
                    code & 3,
                    gain,
                    numbers[at + SLOT],
                    numbers[at + PAID],
                )
                if cython.cast(CellPolicy, self.policy_at[own]).has_alarmed:
                    self.tell(own, numbers[at + SLOT])
            after = links[2 * at]
            links[2 * at] = self.free
            self.free = at
            self.pending -= 1
            at = after
        return 0

    def _aim(self, at: int) -> int:
        """Take the context of a record as the current one."""
        cells = cython.cast(Table, self.table_at[self.numbers[at + OWNER]]).cells
        for n in range(cells.dimension):
            cells.context[n] = self.reals[at + POINT + n]
        cells.follow()
        if self.numbers[at + ASKED] >= 0:
            cython.cast(Table, self.table_at[self.links[2 * at + 1]]).cells.take_place(cells)
        return 0

    def told(self, own: int, gain: int) -> int:
        """Return what an answer gains by the label that the learner of a table passes on."""
        if self.misleads[own]:
            gain = cython.cast(Table, self.table_at[own]).counters.unit - gain
        return gain

    def tell(self, own: int, slot: int) -> int:
        """Tell the peers of a table of an alarm that the label of a decision raised."""
        cython.cast(CellPolicy, self.policy_at[own]).has_alarmed = False
        for k in self.hearers[own]:
            cython.cast(CellPolicy, self.policy_at[k]).hear_alarm(slot)
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
        self,
        tables: list[list[Table]],
        clocks: list[Clock],
        places: list[tuple[int, ...]],
        seats: list[Seat],
        hidden_from: int,
        label_wait: int | None,
    ) -> None:
        """`tables` are those of each learner, one per context space, with `clocks` and `places`.

        Places are those of the coordinates of a space. The first `hidden_from` learners never see
        a hidden label.
        """
        self.count, self.spaces, self.clocks = len(tables), len(clocks), clocks
        self.clock = clocks[0]
        self.tables = [table for row in tables for table in row]
        self.policies = [table.policy for table in self.tables]
        self.numbers = [RowNumbers(table.cells) for table in self.tables]
        # C reaches the items of lists without counting references.
        self.table_at = items_of(self.tables) if cython.compiled else self.tables
        self.policy_at = items_of(self.policies) if cython.compiled else self.policies
        self.number_at = items_of(self.numbers) if cython.compiled else self.numbers
        functions = [row[0].layout.functions for row in tables]
        arms = [len(seat.behind) for seat in seats]
        self.kept: list[Any] = [array("q", [0])]  # what the arrays are in; first, nothing
        self.offsets = self._whole(accumulate(functions, initial=0))  # learner -> its predictions
        self.total = self.offsets[self.count]
        # The number of each learner's own table, and where the coordinates of a space begin.
        own = [k * self.spaces + seat.space for k, seat in enumerate(seats)]
        self.own = self._whole(own)
        self.columns = self._whole([place for space in places for place in space] or [0])
        self.columns_from = self._whole(accumulate(map(len, places), initial=0))
        # Per arm of every learner: the table of the queried one (-1: none), the column of its cost.
        self.asked = self._whole(
            [
                who * self.spaces + seat.space if who >= 0 else -1
                for seat in seats
                for who in seat.behind
            ]
        )
        self.peers: list[list[CellPolicy]] = [[] for _ in self.tables]  # those that tell no lies
        for k, seat in zip(own, seats, strict=True):
            peers = [who for who in seat.behind if who >= 0]
            if not any(seats[who].lies for who in peers):
                self.peers[k] = [self.policies[who * self.spaces + seat.space] for who in peers]
        self.cost_columns = self._whole([column for seat in seats for column in seat.cost_columns])
        self.starts = self._whole(accumulate(arms, initial=0))  # learner -> its first arm in these
        # Per arm, the row of predictions with the answers of its first function, and its number in
        # the trace; per learner, its first row of predictions.
        streams = [seat.stream * self.total for seat in seats]
        self.answers = self._long(
            stream + (self.offsets[k] + arm if who < 0 else self.offsets[who])
            for k, (seat, stream) in enumerate(zip(seats, streams, strict=True))
            for arm, who in enumerate(seat.behind)
        )
        self.traced = self._long(
            self.offsets[k] + arm if who < 0 else self.total + who
            for k, seat in enumerate(seats)
            for arm, who in enumerate(seat.behind)
        )
        self.lines = self._long(streams)
        self.receives = self._whole([seat.receives for seat in seats])
        self.all_receive = all(seat.receives for seat in seats)
        self.streams = self._whole([seat.stream for seat in seats])
        self.stream_count = 1 + max([seat.stream for seat in seats])
        self.lies = self._whole([seat.lies for seat in seats for _ in clocks])
        self.nothing_said = Said(0)  # what those report
        self.hidden_from = hidden_from
        self.late = LateLabels(self.tables, own, seats, label_wait)
        self.wait = self.late.wait
        # Of the current slot, per learner: its row and choice, the arm among those of all, the
        # table of the helper (-1: none), its row and function.
        self.rows, self.choices = self._long([0] * self.count), self._long([0] * self.count)
        self.met, self.served = self._long([0] * self.count), self._long([0] * self.count)
        self.helpers, self.chosen = self._long([0] * self.count), self._long([0] * self.count)
        self.ahead = self._long([0] * 2 * AHEAD)  # rows of this and the next block of slots
        self.known: dict[tuple[int, Cell], int] = {}  # a space and its cell -> number in the trace
        self.alike = 0  # so many rows are known to be the same for all learners
        self.is_alike = self.looks_ahead = False  # all have the same rows; those of later slots
        self.is_wide = any(table.cells.is_wide for table in self.tables)

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

    def cells_since(self, count: int) -> list[tuple[int, Cell]]:
        """Return the cells that the trace numbers from `count` on, with their spaces."""
        return list(self.known)[count:]

    def run(self, log: Any, first_slot: int, trace: Any) -> None:
        """Replay the rows of `log` from `first_slot`, and write the trace."""
        self._open(log, trace)
        self.is_alike = self._are_alike()
        friends: list[Friends] = []
        for policy, peers in zip(self.policies, self.peers, strict=True):
            friends += friends_of(policy, peers, are_alike=self.is_alike)
        self.looks_ahead = self.is_alike and cython.cast(Table, self.table_at[0]).cells.is_flat
        for t in range(self.slots):
            slot = first_slot + t
            if slot >= self.late.near - NEAR:
                self.late.move(slot)
            self.late.wait = self.waits[t] if self.has_waits else self.wait
            if self.spaces > 1 or not self.clock.is_within(slot):
                self._move_clocks(slot)
            first, end = 0, self.count
            if self.has_receivers:
                first = self.receivers[t]
                end = first + 1
            self._decide_all(t, slot, first, end)
            self._end_all(t, slot, first, end)
            if self.late.pending > 0:
                self.late.deliver(slot)
        self.alike = cython.cast(Table, self.table_at[0]).cells.used if self.is_alike else 0
        for each in friends:
            each.part()

    def _move_clocks(self, slot: int) -> None:
        for k in range(self.spaces):
            cython.cast(Clock, self.clocks[k]).advance(slot)

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
        self.delays = integers(log.delays if self.has_delays else nothing, 0, -1)
        self.has_shown, self.has_gains = log.shown is not None, log.gains is not None
        self.shown = octets(log.shown if self.has_shown else nothing, 0, -1)
        self.gains = halves(log.gains if self.has_gains else nothing, 0, -1)
        self.has_costs, self.has_waits = log.costs is not None, log.waits is not None
        self.waits = integers(log.waits if self.has_waits else nothing, 0, -1)
        self.costs = halves(log.costs if self.has_costs else nothing, 0, -1)
        self.cells, self.phases = halves(trace.cell, 0, -1), octets(trace.phase, 0, -1)
        self.arms, self.functions = halves(trace.arm, 0, -1), halves(trace.function, 0, -1)
        self.correct, self.paid = halves(trace.correct, 0, -1), halves(trace.paid, 0, -1)
        self.is_batched = log.batches is not None
        is_plain = not (self.has_delays or self.has_shown or self.has_costs)
        self.is_prompt = is_plain and not self.is_batched
        self.written = 0
        self.is_alike = self.looks_ahead = False
        return 0

    def _are_alike(self) -> bool:
        """Return whether all learners keep the same cells in the same rows: then they stay so."""
        first = cython.cast(Table, self.table_at[0]).cells
        if self.slots == 0 or self.spaces > 1 or self.stream_count > 1:
            return False
        if self.has_receivers or not self.all_receive:
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
            own, row = self.own[i], here
            if here < 0 or here >= cython.cast(Table, self.table_at[own]).cells.used:
                row = self._locate(i, t, slot)
                here = row if self.is_alike else -1
            else:
                cython.cast(Table, self.table_at[own]).cells.path[0] = row
                cython.cast(Table, self.table_at[own]).cells.found = 1
            choice = cython.cast(CellPolicy, self.policy_at[own]).choose(row, slot, False)
            while choice < 0:
                self._ask(i, cython.cast(CellPolicy, self.policy_at[own]), row, slot)
                choice = cython.cast(CellPolicy, self.policy_at[own]).choose_again(row, slot)
            self.rows[i] = row
            self.choices[i] = choice
            arm = self.starts[i] + (choice >> 2)
            there = self.asked[arm]
            self.chosen[i], self.helpers[i] = arm, there
            if there >= 0:
                self.met[i] = self._meet(there, own, row, slot)
                offset = cython.cast(CellPolicy, self.policy_at[own]).offset
                cython.cast(CellPolicy, self.policy_at[there]).asker = offset
                self.served[i] = cython.cast(CellPolicy, self.policy_at[there]).serve(self.met[i])
        return 0

    def _ask(self, i: int, policy: CellPolicy, row: int, slot: int) -> int:
        """Let peers report what the decision of learner `i` needs in a row."""
        place = policy.wanted_from(row, 0)
        while place >= 0:
            there = self.asked[self.starts[i] + policy.functions + place]
            met = self._meet(there, self.own[i], row, slot)
            if self.lies[there]:
                policy.hear(row, place, self.nothing_said, slot)
            else:
                cython.cast(CellPolicy, self.policy_at[there]).asker = policy.offset
                cython.cast(CellPolicy, self.policy_at[there]).report(met, slot)
                said = cython.cast(CellPolicy, self.policy_at[there]).said
                policy.hear(row, place, said, slot)
            place = policy.wanted_from(row, place + 1)
        return 0

    def _meet(self, there: int, own: int, row: int, slot: int) -> int:
        """Return the row in the table `there` of the cell that the table `own` has in `row`."""
        if self.is_alike and row < cython.cast(Table, self.table_at[there]).cells.used:
            return row
        cells = cython.cast(Table, self.table_at[own]).cells
        met: int = cython.cast(Table, self.table_at[there]).cells.open_for(cells, row, slot)
        return met

    def _locate(self, i: int, t: int, slot: int) -> int:
        """Return the row of the cell of a learner's instance."""
        cells = cython.cast(Table, self.table_at[self.own[i]]).cells
        self._take_point(i, t)
        row: int = cells.locate(slot)
        return row

    def _take_point(self, i: int, t: int) -> None:
        """Take the coordinates of a learner's instance as its current context."""
        cells = cython.cast(Table, self.table_at[self.own[i]]).cells
        at = (t * self.stream_count + self.streams[i]) * self.width
        first = self.columns_from[self.own[i] % self.spaces]
        for n in range(cells.dimension):
            cells.context[n] = self.contexts[at + self.columns[first + n]]

    def _end_all(self, t: int, slot: int, first: int, end: int) -> int:
        """Count and trace the decisions of a slot, and record labels that come at once."""
        at = self.written
        number = 0
        label = self.labels[t]
        is_prompt = self.is_prompt and label >= 0
        for i in range(first, end):
            if not self.receives[i]:
                continue
            own, choice, there = self.own[i], self.choices[i], self.helpers[i]
            line, row = self.answers[self.chosen[i]], self.rows[i]
            if there >= 0:
                line += self.served[i]
            gain: int = self.predictions[line * self.slots + t] == label
            if self.has_gains:
                gain = self.gains[line * self.slots + t]
            if i == first or not self.is_alike:
                if row >= cython.cast(RowNumbers, self.number_at[own]).count:
                    cython.cast(RowNumbers, self.number_at[own]).catch_up(
                        own % self.spaces, self.known
                    )
                number = cython.cast(RowNumbers, self.number_at[own]).at[row]
            self.cells[at] = number
            self.phases[at] = choice & 3
            self.arms[at] = self.traced[self.chosen[i]]
            self.functions[at] = line - self.lines[i]
            self.correct[at] = gain if label >= 0 else -1
            at += 1
            if not is_prompt:
                self._end_late(i, t, slot, gain, at - 1)
                continue
            if self.is_wide:
                self._aim(i, there, t)
            if there >= 0:
                cython.cast(CellPolicy, self.policy_at[there]).learn_served_now(
                    self.met[i], self.served[i], self.late.told(own, gain), slot
                )
            cython.cast(CellPolicy, self.policy_at[own]).learn_now(
                row, choice >> 2, choice & 3, gain, slot
            )
            if cython.cast(CellPolicy, self.policy_at[own]).has_alarmed:
                self.late.tell(own, slot)
        self.written = at
        return 0

    def _aim(self, i: int, there: int, t: int) -> None:
        """Take the instance of a slot again: others may have asked since the decision."""
        cells = cython.cast(Table, self.table_at[self.own[i]]).cells
        if cells.is_wide:
            self._take_point(i, t)
            cells.round_context()
        if there >= 0:
            cython.cast(Table, self.table_at[there]).cells.take_place(cells)

    def _end_late(self, i: int, t: int, slot: int, gain: int, at: int) -> int:
        """Count a decision whose label may come later, or has a cost, and record or keep it."""
        own, there = self.own[i], self.helpers[i]
        row, choice, met, served = self.rows[i], self.choices[i], self.met[i], self.served[i]
        paid = UNPAID
        if self.has_costs:
            column = self.cost_columns[self.chosen[i]]
            paid = self.costs[column * self.slots + t] if column >= 0 else UNPAID
            self.paid[at] = max(0, paid)
        cython.cast(CellPolicy, self.policy_at[own]).count_own(row)
        if there >= 0:
            cython.cast(CellPolicy, self.policy_at[there]).counters.count_served(met, 1)
        delay = self._delay(i, t)
        if self.is_wide:
            self._aim(i, there, t)
        if delay == 0 and not self.is_batched:
            if there >= 0:
                cython.cast(CellPolicy, self.policy_at[there]).learn_served(
                    met, served, self.late.told(own, gain), slot
                )
            cython.cast(CellPolicy, self.policy_at[own]).learn(
                row, choice >> 2, choice & 3, gain, slot, paid
            )
            if cython.cast(CellPolicy, self.policy_at[own]).has_alarmed:
                self.late.tell(own, slot)
            return 0
        at = self.late.make()
        numbers = self.late.numbers
        numbers[at + OWNER], numbers[at + SLOT], numbers[at + GAIN] = own, slot, gain
        numbers[at + CODE], numbers[at + PAID] = row << 20 | choice, paid
        numbers[at + ASKED] = met << 20 | served << 2 | SERVE if there >= 0 else NEVER
        self.late.links[2 * at + 1] = there
        if self.late.points > 0:
            cells = cython.cast(Table, self.table_at[own]).cells
            for n in range(cells.dimension):
                self.late.reals[at + POINT + n] = cells.context[n]
        if delay == NEVER:
            numbers[at + GAIN], delay = HIDDEN, self.late.wait
        return self.late.keep(at, slot + delay if delay >= 0 else NEVER)

    def _delay(self, i: int, t: int) -> int:
        """Return when learner `i` sees the label of a row.

        In a log, hidden labels have the delay `-1 - delay`; they stay hidden.
        """
        if self.labels[t] < 0 or (self.has_shown and self.shown[t * self.count + i] == 0):
            return NEVER
        delay = self.delays[t] if self.has_delays else 0
        if delay < 0:
            if i < self.hidden_from:
                return NEVER
            delay = -1 - delay
        return delay if self.late.wait < 0 or delay <= self.late.wait else NEVER
