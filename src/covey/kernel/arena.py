# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Replay of many learners in step on recorded predictions."""

from __future__ import annotations

from array import array
from typing import Any

try:
    import cython
except ModuleNotFoundError:
    from types import SimpleNamespace

    cython = SimpleNamespace(compiled=False, cast=lambda kind, value: value)

if cython.compiled:
    from cython.cimports.covey.kernel.memory import items_of

from covey.kernel.calendar import NEVER, LabelCalendar
from covey.kernel.counters import EXPLOIT, MILLIONTHS, UNPAID
from covey.kernel.rules import Cell, Seat
from covey.kernel.spaces import Ledger
from covey.kernel.table import Table
from covey.kernel.thresholds import FAR

AHEAD = 16  # slots whose cells are looked up at once
POINTED = (
    *("columns", "labels", "cells", "phases", "arms", "functions", "correct"),
    *("rows", "choices", "met", "served", "helpers", "ahead", "behind", "starts", "offsets"),
    *("answers", "streams"),
)


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
        self.clock = self._ledger(0)._table(0).clock
        self.offsets = array("i", [0] * (self.count + 1))  # learner -> its first row of predictions
        self.remembers = False
        for k in range(self.count):
            self.offsets[k + 1] = self.offsets[k] + self._ledger(k).first.functions
            self.remembers = self.remembers or self._ledger(k).first.remembers
        self.total = self.offsets[self.count]
        # Per arm of every learner: the queried learner (-1: itself), and the column of its cost.
        self.behind = array("i", [who for seat in seats for who in seat.behind])
        self.cost_columns = array("i", [column for seat in seats for column in seat.cost_columns])
        self.starts = array("i", [0] * (self.count + 1))  # learner -> its first arm in these
        for k in range(self.count):
            self.starts[k + 1] = self.starts[k] + len(seats[k].behind)
        # Per arm, the row of predictions with the answers of its first function.
        self.answers = array("q", bytes(8 * self.starts[self.count]))
        self._find_answers(seats)
        self.receives = array("i", [seat.receives for seat in seats])
        self.streams = array("i", [seat.stream for seat in seats])
        self.stream_count = max(self.streams) + 1
        self.patience = array("q", [seat.patience for seat in seats])
        self.lies = array("i", [seat.lies for seat in seats])
        self.free = [seat.free for seat in seats]
        self.has_free = max([len(free) for free in self.free]) > 0
        self.calendar = LabelCalendar(ledgers, seats, hidden_from, label_wait)
        self.seen, self.scores = 0, ((), ())  # labels of consulted peers; gains of free functions
        # Of the current slot, per learner: its row and choice, its helper, whose row and function.
        self.rows, self.choices, self.helpers, self.met, self.served = [
            array("q", bytes(8 * self.count)) for _ in range(5)
        ]
        self.ahead = array("q", bytes(16 * AHEAD))  # rows of this and the next block of slots
        self.known: dict[tuple[int, Cell], int] = {}  # a space and its cell -> number in the trace
        self.alike = 0  # so many rows are known to be the same for all learners
        self.is_alike = self.looks_ahead = False  # all have the same rows; those of later slots
        self.tables = [ledger.tables[k] for ledger in ledgers for k in range(self.spaces)]
        self.seats = items_of(self.tables) if cython.compiled else self.tables
        self.columns = self._ledger(0).places  # of the coordinates, where all have the same

    def _find_answers(self, seats: list[Seat]) -> None:
        for k, seat in enumerate(seats):
            for arm, who in enumerate(seat.behind):
                function = self.offsets[k] + arm if who < 0 else self.offsets[who]
                line = seat.answers[arm] if seat.answers else seat.stream * self.total + function
                self.answers[self.starts[k] + arm] = line

    def cells_since(self, count: int) -> list[tuple[int, Cell]]:
        """Return the cells that the trace numbers from `count` on, with their spaces."""
        return list(self.known)[count:]

    def late(self) -> list[tuple[int, list[Any]]]:
        """Return the labels that have not arrived, by the slots at whose ends they do."""
        return sorted(self.calendar.due.items())

    def take_late(self, late: list[tuple[int, list[Any]]]) -> None:
        """Restore the result of `late`; the counters of tables already include them."""
        for slot, labels in late:
            for label in labels:
                self.calendar._schedule(slot, label)

    def run(self, log: Any, first_slot: int, trace: Any) -> None:
        """Replay the rows of `log` from `first_slot`, and write the trace."""
        at = log.at
        delays = log.delays
        shown = log.shown
        first, end, delay = 0, self.count, 0
        self._open(log, trace)
        for k in range(self.count * self.spaces):
            # Learners that share an instance must count it once.
            cython.cast(Table, self.seats[k]).once = at is None and self.stream_count == 1
        if at is None and delays is None and shown is None and self._is_plain():
            self._run_plain(first_slot)
            return
        for t in range(len(self.labels)):
            slot = first_slot + t
            if self.has_slots:
                slot = self.slots[t]
                if self.calendar.due:
                    self.catch_up(slot - 1)
            self._move_clocks(slot)
            if at is not None:
                first = at[t]
                end = first + 1
            if delays is not None:
                delay = delays[t]
            for i in range(first, end):
                if self.receives[i]:
                    self._decide(self._ledger(i), i, slot, t)
            for i in range(first, end):
                if self.receives[i]:
                    is_shown = shown is None or shown[t, i] != 0
                    self._end(self._ledger(i), i, slot, t, delay if is_shown else FAR)
            if self.calendar.due:
                self.calendar._deliver(slot)

    def catch_up(self, slot: int) -> None:
        """Settle the labels that arrive up to the end of `slot`, whose rows are not in the log."""
        while self.calendar.slots and self.calendar.slots[0] <= slot:
            due = self.calendar.slots[0]
            self._move_clocks(due)
            self.calendar._deliver(due)

    def _move_clocks(self, slot: int) -> int:
        self.clock.move(slot)
        self.clock.round_up(slot)
        for k in range(1, self.spaces):
            self._ledger(0)._table(k).clock.move(slot)
            self._ledger(0)._table(k).clock.round_up(slot)
        return 0

    def _open(self, log: Any, trace: Any) -> int:
        self.contexts = log.contexts
        if cython.compiled:
            self.contexts_at = cython.address(self.contexts[0])
        else:
            self.contexts_at = self.contexts
        self.predictions = log.predictions
        self.has_gains = log.gains is not None
        self.gains = log.gains
        self.labels = log.labels
        self.is_busy = log.busy is not None
        self.busy = log.busy
        self.has_costs = log.costs is not None
        self.costs = log.costs
        self.width = len(self.contexts) // (self.stream_count * max(1, len(self.labels)))
        self.cells = trace.cell
        self.phases = trace.phase
        self.arms = trace.arm
        self.functions = trace.function
        self.correct = trace.correct
        self.paid = trace.paid
        self.is_batched = log.batches is not None
        self.has_slots = log.slots is not None
        self.slots = log.slots
        self.written = 0
        self.is_alike = False
        return 0

    def _is_plain(self) -> bool:
        """Return whether no option is in use: then a shorter loop makes the same decisions."""
        if self.has_gains or self.has_costs or self.is_busy or self.remembers or self.has_free:
            return False
        if not self.calendar.is_honest:
            return False
        if self.spaces > 1:
            return False
        for k in range(self.count):
            table = self._ledger(k).first
            is_usual = table.is_supervised and table.asked == table.arms and not table.tells_widths
            if not is_usual or not self.receives[k] or self._ledger(k).count > 1:
                return False
        return len(self.labels) > 0 and self._are_known()

    def _are_known(self) -> bool:
        """Return whether every slot has a label."""
        known = 0
        for t in range(len(self.labels)):
            known += self.labels[t] >= 0
        return known == len(self.labels)

    def _run_plain(self, first_slot: int) -> int:
        """Replay where all learners see each instance and its label at once."""
        slots = len(self.labels)
        self._set_pointers()
        self.is_alike = self._are_alike()
        self.looks_ahead = self.is_alike and cython.cast(Table, self.seats[0]).is_flat
        for t in range(slots):
            if self.looks_ahead and t % AHEAD == 0:
                if t == 0:
                    self._look_ahead(t, min(AHEAD, slots))
                self._look_ahead(t + AHEAD, min(AHEAD, slots - t - AHEAD))
            slot = self.slots[t] if self.has_slots else first_slot + t
            self.clock.move(slot)
            self.clock.round_up(slot)
            self._decide_all(t, slot)
            self._end_all(t, slot, slots)
        self.written = slots * self.count
        self.alike = cython.cast(Table, self.seats[0]).used if self.is_alike else 0
        return 0

    def _set_pointers(self) -> None:
        """Let C reach the items of arrays by their addresses; plain Python uses the arrays."""
        if cython.compiled:
            self.columns_at = cython.address(self.columns[0])
            self.predictions_at = cython.address(self.predictions[0, 0])
            self.labels_at = cython.address(self.labels[0])
            self.cells_at = cython.address(self.cells[0])
            self.phases_at = cython.address(self.phases[0])
            self.arms_at = cython.address(self.arms[0])
            self.functions_at = cython.address(self.functions[0])
            self.correct_at = cython.address(self.correct[0])
            self.rows_at = cython.address(self.rows[0])
            self.choices_at = cython.address(self.choices[0])
            self.met_at = cython.address(self.met[0])
            self.served_at = cython.address(self.served[0])
            self.helpers_at = cython.address(self.helpers[0])
            self.ahead_at = cython.address(self.ahead[0])
            self.behind_at = cython.address(self.behind[0])
            self.starts_at = cython.address(self.starts[0])
            self.offsets_at = cython.address(self.offsets[0])
            self.answers_at = cython.address(self.answers[0])
            self.streams_at = cython.address(self.streams[0])
        else:
            self.predictions_at = self.predictions.cast("B").cast("i")
            for name in POINTED:
                setattr(self, name + "_at", getattr(self, name))

    def _are_alike(self) -> bool:
        """Return whether all learners keep the same cells in the same rows: then they stay so."""
        first = cython.cast(Table, self.seats[0])
        if self.stream_count > 1:
            return False
        for table in self.tables:
            if table.has_rewards or not table._is_like(first, self.alike):
                return False
        return True

    def _look_ahead(self, t: int, count: int) -> None:
        """Find the cells of the next slots, and request their memory."""
        first = cython.cast(Table, self.seats[0])
        start, at = t * self.width, t % (2 * AHEAD)
        columns, ahead = self.columns_at, self.ahead_at
        first._look_ahead(self.contexts_at, start, columns, self.width, ahead, at, count)
        if first.is_direct:
            return
        for k in range(count):
            if self.ahead_at[at + k] >= 0:
                for i in range(self.count):
                    cython.cast(Table, self.seats[i])._touch(self.ahead_at[at + k])

    def _decide_all(self, t: int, slot: int) -> int:
        """Let every learner decide on the state at the start of the slot."""
        here = self.ahead_at[t % (2 * AHEAD)] if self.looks_ahead else -1
        for i in range(self.count):
            row = here
            if here < 0 or here >= cython.cast(Table, self.seats[i]).used:
                row = self._locate(i, t, slot)
                here = row if self.is_alike else -1
            else:
                cython.cast(Table, self.seats[i])._stand_at(row)
            choice = cython.cast(Table, self.seats[i])._choose(row, slot, False)
            while choice < 0:
                self._ask(i, cython.cast(Table, self.seats[i]), 0, row, slot)
                choice = cython.cast(Table, self.seats[i])._choose_again(row, slot)
            self.rows_at[i] = row
            self.choices_at[i] = choice
            who = self.behind_at[self.starts_at[i] + (choice >> 2)]
            self.helpers_at[i] = who
            if who >= 0:
                self.met_at[i] = self._meet(who, cython.cast(Table, self.seats[i]), row, slot)
                self.served_at[i] = cython.cast(Table, self.seats[who])._help(self.met_at[i])
        return 0

    def _meet(self, seat: int, table: Table, row: int, slot: int) -> int:
        """Return the row in the table of `seat` of the cell that `table` keeps in `row`."""
        if self.is_alike and row < cython.cast(Table, self.seats[seat]).used:
            return row
        met: int = cython.cast(Table, self.seats[seat])._open_for(table, row, slot)
        return met

    def _locate(self, i: int, t: int, slot: int) -> int:
        """Return the row of the cell of a learner's instance."""
        table = cython.cast(Table, self.seats[i])
        at = (t * self.stream_count + self.streams_at[i]) * self.width
        for n in range(table.dimension):
            table.context[n] = self.contexts_at[at + self.columns_at[n]]
        row: int = table._locate(slot)
        return row

    def _end_all(self, t: int, slot: int, slots: int) -> int:
        """Count and trace the decisions of a slot, and record their labels."""
        at = t * self.count
        number = 0
        label = self.labels_at[t]
        for i in range(self.count):
            choice = self.choices_at[i]
            arm = choice >> 2
            who = self.helpers_at[i]
            function = self.offsets_at[i] + arm
            shown = function
            line = self.answers_at[self.starts_at[i] + arm]
            if who >= 0:
                function = self.offsets_at[who] + self.served_at[i]
                shown = self.total + who
                line += self.served_at[i]
            gain = self.predictions_at[line * slots + t] == label
            row = self.rows_at[i]
            if i == 0 or not self.is_alike:
                if row >= cython.cast(Table, self.seats[i]).numbered:
                    cython.cast(Table, self.seats[i])._number_rows(0, self.known)
                number = cython.cast(Table, self.seats[i]).numbers[row]
            self.cells_at[at] = number
            self.phases_at[at] = choice & 3
            self.arms_at[at] = shown
            self.functions_at[at] = function
            self.correct_at[at] = gain
            at += 1
            cython.cast(Table, self.seats[i])._on_label(row, arm, choice & 3, gain, slot)
            if who >= 0:
                cython.cast(Table, self.seats[who])._on_served_label(
                    self.met_at[i], self.served_at[i], gain, slot
                )
        return 0

    def _ledger(self, learner: int) -> Ledger:
        return self.ledgers[learner]

    def _decide(self, ledger: Ledger, i: int, slot: int, t: int) -> int:
        stream = t * self.stream_count + self.streams[i]
        ledger._locate(self.contexts_at, stream * self.width, slot)
        table = ledger.first
        if table.is_supervised:
            choice = ledger._choose(slot, -1)
            while choice < 0:
                k = ledger.chosen
                self._ask(i, ledger._at(k), ledger.own[k], ledger.rows[k], slot)
                choice = ledger._choose(slot, k)
        else:
            choice = self._consult(i, slot)
        arm = choice >> 2
        ledger.choice = choice
        ledger.helper = -1
        ledger.function = arm
        ledger.stand_in = -1
        if arm >= table.functions:
            self._call(ledger, i, slot, t)
        return 0

    def _call(self, ledger: Ledger, i: int, slot: int, t: int) -> int:
        """Ask the learner of the chosen arm, with the data or with the cells only."""
        arm = ledger.choice >> 2
        ledger.helper = self.behind[self.starts[i] + arm]
        helper = self._ledger(ledger.helper)
        helper._open_for(ledger, slot)
        if arm < ledger.first.asked:
            ledger.function = helper._help(ledger)
            if ledger.first.tells_widths:
                ledger.width = ledger.asked._width(ledger.asked_rows[0], ledger.function)
                if self.lies[ledger.helper]:
                    ledger.width = MILLIONTHS
            if self.is_busy and 0 <= self.patience[i] < self.busy[t, ledger.helper]:
                ledger.stand_in = ledger._best_own()
            return 0
        ledger.function = -1
        answer = helper._recall(ledger)
        self.predictions[self.stream_count * self.total + i, t] = answer
        if answer < 0:
            ledger.stand_in = ledger._best_own()
        return 0

    def _ask(self, i: int, table: Table, space: int, row: int, slot: int) -> int:
        """Let peers report what the decision of learner `i` needs in a row of a space."""
        for place in range(table.asked - table.functions):
            if not table._needs_report(row, place):
                continue
            who = self.behind[self.starts[i] + table.functions + place]
            seat = who * self.spaces + space
            met = self._meet(seat, table, row, slot)
            if self.lies[who]:
                table._receive_false_report(row, place, slot)
            else:
                peer = cython.cast(Table, self.seats[seat])
                peer._make_report(met, slot)
                table._receive_report(row, place, peer.arrived, peer.lowest, peer.highest, slot)
        return 0

    def _consult(self, i: int, slot: int) -> int:
        """Choose for a learner without labels: by labels from serving, and by peers' estimates."""
        ledger = self._ledger(i)
        chosen = 0
        largest = 0.0
        blind = ledger.first.blind
        is_blind = True
        for k in range(ledger.count):
            table = ledger._at(k)
            before = table.blind
            self._hear(i, k, slot)
            arm = table._weigh(ledger.rows[k] * table.stride, self.seen)
            is_blind = is_blind and table.blind > before
            if k == 0 or table.largest > largest:
                largest = table.largest
                chosen = arm
                ledger.chosen = k
        # A decision is not blind if one candidate has labels.
        ledger.first.blind = blind + is_blind
        return chosen << 2 | EXPLOIT

    def _hear(self, i: int, k: int, slot: int) -> int:
        """Collect the accuracies of peers in a cell; set `seen`, their labels."""
        ledger = self._ledger(i)
        table = ledger._at(k)
        seen = 0
        for arm in range(table.functions, table.arms):
            owner = self._ledger(self.behind[self.starts[i] + arm])._table(ledger.own[k])
            met = owner._open_for(table, ledger.rows[k], slot)
            base = met * owner.stride
            if arm < table.asked:
                best = owner._largest(base, owner.functions, False)
                table.told[arm] = owner._accuracy(base, best)
                seen += owner.rows[base + owner.labels + best]
            else:
                _, count, total = owner.memory.recall(met)
                table.told[arm] = float(count) / total if total else 0.0
                seen += total
        self.seen = seen
        return 0

    def _gain(self, line: int, t: int) -> int:
        gain: int = self.predictions[line, t] == self.labels[t]
        if self.has_gains:
            gain = self.gains[line, t]
        return gain

    def _end(self, ledger: Ledger, i: int, slot: int, t: int, delay: int) -> int:
        """Count and trace the decision of learner `i`, and settle it or schedule its label."""
        helper = ledger.helper
        function = self.total + i
        line = self.stream_count * self.total + i
        first = self.starts[i] + (ledger.choice >> 2)
        if ledger.function >= 0:
            function = self.offsets[helper if helper >= 0 else i] + ledger.function
            line = self.answers[first] + (ledger.function if helper >= 0 else 0)
        gain = self._gain(line, t)
        paid = self._cost(i, ledger.choice >> 2, t) if self.has_costs else UNPAID
        self._write(ledger, i, function, gain if self.labels[t] >= 0 else -1, t, paid)
        if ledger.first.tells_widths and helper >= 0:
            paid = ledger.width
        ledger._count()
        if helper >= 0 and ledger.function >= 0:
            ledger.asked._count_served(ledger.asked_rows[0], 1)
            for k in range(1, ledger.count):
                table = self._ledger(helper)._table(ledger.own[k])
                table._count_served(ledger.asked_rows[k], 1)
            if self.is_busy and delay != FAR:
                delay = self.calendar._later(delay, self.busy[t, helper])
        delay = self.calendar._delay(i, delay) if self.labels[t] >= 0 else NEVER
        if self.has_free and delay != NEVER:
            own = self._gains(i, self.answers[self.starts[i]], ledger.choice >> 2, t)
            self.scores = (own, self._gains(helper, self.answers[first], ledger.function, t))
        if delay != 0 or self.is_batched:  # labels of a batch come together, in order
            told = (self.labels[t], self._said(line, t), self.scores)
            self.calendar._note(i, slot, gain, delay, told, paid)
            return 0
        ledger._learn(gain, slot, paid)
        if helper >= 0 and ledger.function >= 0:
            gain = self.calendar._told(i, gain)
            ledger.asked._learn_served(ledger.asked_rows[0], ledger.function, gain, slot)
            for k in range(1, ledger.count):
                table = self._ledger(helper)._table(ledger.own[k])
                table._learn_served(ledger.asked_rows[k], ledger.function, gain, slot)
        if self.has_free:
            rows, met = ledger._own_rows(), ledger._met_rows()
            self.calendar._score(i, helper, rows, met, self.scores, slot)
        if self.remembers:
            self._remember(i, slot, (self.labels[t], self._said(line, t)))
        return 0

    def _said(self, line: int, t: int) -> int | None:
        """Return an answer, for stored labels; None: nothing."""
        said = self.predictions[line, t] if self.remembers else -1
        return said if said >= 0 else None

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
        return self.costs[column, t] if column >= 0 else UNPAID

    def _write(self, ledger: Ledger, i: int, function: int, gain: int, t: int, paid: int) -> int:
        at = self.written
        arm = ledger.choice >> 2
        shown = function
        if ledger.stand_in >= 0:
            shown = self.offsets[i] + ledger.stand_in
            if gain >= 0:
                gain = self._gain(self.answers[self.starts[i] + ledger.stand_in], t)
        row = ledger.rows[ledger.chosen]
        table = ledger._at(ledger.chosen)
        if row >= table.numbered:
            table._number_rows(ledger.own[ledger.chosen], self.known)
        self.cells[at] = table.numbers[row]
        self.phases[at] = ledger.choice & 3
        self.arms[at] = function
        if ledger.helper >= 0:
            self.arms[at] = self.total + ledger.helper
            if arm >= ledger.first.asked:
                self.arms[at] += self.count
        self.functions[at] = shown
        self.correct[at] = gain
        if self.has_costs:
            self.paid[at] = max(0, paid)
        self.written = at + 1
        return 0

    def _remember(self, i: int, slot: int, told: tuple[int, int | None]) -> int:
        """Store a label and the answer for cell-only queries: here, and at the queried learner."""
        ledger = self._ledger(i)
        label, answer = told
        own = answer if ledger.helper < 0 else None
        for k in range(ledger.count):
            if ledger.first.remembers:
                ledger._at(k)._remember_around(label, own, slot)
            if ledger.helper >= 0:
                table = self._ledger(ledger.helper)._table(ledger.own[k])
                if table.remembers:
                    table.memory.take(ledger.asked_rows[k], label, answer)
        return 0
