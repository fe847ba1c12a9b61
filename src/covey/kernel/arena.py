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

from covey.kernel.counters import EXPLOIT, MILLIONTHS, NOTHING, SERVE, UNPAID
from covey.kernel.rules import Seat
from covey.kernel.spaces import Ledger
from covey.kernel.table import Table
from covey.kernel.thresholds import FAR

NEVER = -1  # in `delays`: the label never arrives


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
        self.receives = array("i", [seat.receives for seat in seats])
        self.streams = array("i", [seat.stream for seat in seats])
        self.stream_count = max(self.streams) + 1
        self.patience = array("q", [seat.patience for seat in seats])
        self.lies = array("i", [seat.lies for seat in seats])
        self.hidden_from = hidden_from  # the first so many learners never see a hidden label
        self.wait = -1 if label_wait is None else label_wait  # -1: no limit
        self.calendar: dict[int, list[Any]] = {}  # slot -> labels that arrive at its end
        self.seen = 0  # labels of the peers that were consulted
        # Of the current slot, per learner: its row and choice, and its helper's row and function.
        self.rows, self.choices, self.met, self.served = [
            array("q", bytes(8 * self.count)) for _ in range(4)
        ]
        self.columns = self._ledger(0).places  # of the coordinates, where all have the same

    def run(self, log: Any, first_slot: int, trace: Any) -> None:
        """Replay the rows of `log` from `first_slot`, and write the trace."""
        at = log.at
        delays = log.delays
        shown = log.shown
        first = 0
        end = self.count
        delay = 0
        self._open(log, trace)
        for k in range(self.count):
            for space in range(self.spaces):
                # Learners that share an instance must count it once.
                self._ledger(k)._table(space).once = at is None and self.stream_count == 1
        if at is None and delays is None and shown is None and self._is_plain():
            self._run_plain(first_slot)
            return
        for t in range(len(self.labels)):
            slot = first_slot + t
            self.clock.move(slot)
            self.clock.round_up(slot)
            for k in range(1, self.spaces):
                self._ledger(0)._table(k).clock.move(slot)
                self._ledger(0)._table(k).clock.round_up(slot)
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
            if self.calendar:
                self._deliver(slot)

    def _open(self, log: Any, trace: Any) -> int:
        self.contexts = log.contexts
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
        self.written = 0
        return 0

    def _is_plain(self) -> bool:
        """Return whether no option is in use: then a shorter loop makes the same decisions."""
        if self.has_gains or self.has_costs or self.is_busy or self.remembers:
            return False
        if self.spaces > 1 or self.stream_count > 1:
            return False
        for k in range(self.count):
            table = self._ledger(k).first
            is_usual = table.is_supervised and table.asked == table.arms and not table.tells_widths
            if not is_usual or not self.receives[k] or self._ledger(k).count > 1:
                return False
        return self._are_known()

    def _are_known(self) -> bool:
        """Return whether every slot has a label."""
        known = 0
        for t in range(len(self.labels)):
            known += self.labels[t] >= 0
        return known == len(self.labels)

    def _run_plain(self, first_slot: int) -> int:
        """Replay where all learners see each instance and its label at once."""
        tables = [self._ledger(k).first for k in range(self.count)]
        # Local names: C keeps them in registers.
        contexts, predictions, labels, columns = (
            self.contexts,
            self.predictions,
            self.labels,
            self.columns,
        )
        cells, phases, arms = self.cells, self.phases, self.arms
        functions, correct = self.functions, self.correct
        rows, choices, met, served = self.rows, self.choices, self.met, self.served
        behind, starts, offsets = self.behind, self.starts, self.offsets
        count, width, total = self.count, self.width, self.total
        at = 0
        for t in range(len(labels)):
            slot = first_slot + t
            self.clock.move(slot)
            self.clock.round_up(slot)
            for i in range(count):
                table = cython.cast(Table, tables[i])
                for n in range(table.dimension):
                    table.context[n] = contexts[t * width + columns[n]]
                row = table._locate(slot)
                choice = table._choose(row, slot, False)
                rows[i] = row
                while choice < 0:
                    self._ledger(i).rows[0] = row
                    self._ask(i, 0, slot)
                    choice = table._choose(row, slot, True)
                choices[i] = choice
                arm = choice >> 2
                if arm >= table.functions:
                    other = cython.cast(Table, tables[behind[starts[i] + arm]])
                    met[i] = other._meet(table, row, slot)
                    served[i] = other._help(met[i])
            for i in range(count):
                table = cython.cast(Table, tables[i])
                row, choice = rows[i], choices[i]
                arm = choice >> 2
                helper = behind[starts[i] + arm]
                function = offsets[i] + arm
                arms[at] = function
                if helper >= 0:
                    function = offsets[helper] + served[i]
                    arms[at] = total + helper
                gain = predictions[function, t] == labels[t]
                cells[at] = row * count + i
                phases[at] = choice & 3
                functions[at] = function
                correct[at] = gain
                at += 1
                table._finish(row, arm, choice & 3, gain, slot)
                if helper >= 0:
                    other = cython.cast(Table, tables[helper])
                    other._finish_served(met[i], served[i], gain, slot)
        self.written = at
        return 0

    def _ledger(self, learner: int) -> Ledger:
        return self.ledgers[learner]

    def _decide(self, ledger: Ledger, i: int, slot: int, t: int) -> int:
        stream = t * self.stream_count + self.streams[i]
        ledger._locate(self.contexts, stream * self.width, slot)
        table = ledger.first
        if table.is_supervised:
            choice = ledger._choose(slot, -1)
            while choice < 0:
                self._ask(i, ledger.chosen, slot)
                choice = ledger._choose(slot, ledger.chosen)
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
        helper._meet(ledger, slot)
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

    def _ask(self, i: int, k: int, slot: int) -> int:
        """Let peers report what the decision of learner `i` needs, in own space `k`."""
        ledger = self._ledger(i)
        table = ledger._at(k)
        row = ledger.rows[k]
        for place in range(table.asked - table.functions):
            if not table._needs(row, place):
                continue
            who = self.behind[self.starts[i] + table.functions + place]
            peer = self._ledger(who)._table(ledger.own[k])
            met = peer._meet(table, row, slot)
            if self.lies[who]:
                table._receive_lie(row, place, slot)
            else:
                peer._report(met, slot)
                table._receive(row, place, peer.arrived, peer.lowest, peer.highest, slot)
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
            met = owner._meet(table, ledger.rows[k], slot)
            base = met * owner.stride
            if arm < table.asked:
                best = owner._largest(base, owner.functions, False)
                table.told[arm] = owner._accuracy(base, best)
                seen += owner.rows[base + owner.labels + best]
            else:
                _, count, total, _ = owner.memory.get(met, NOTHING)
                table.told[arm] = float(count) / total if total else 0.0
                seen += total
        self.seen = seen
        return 0

    def _gain(self, function: int, t: int) -> int:
        gain: int = self.predictions[function, t] == self.labels[t]
        if self.has_gains:
            gain = self.gains[function, t]
        return gain

    def _end(self, ledger: Ledger, i: int, slot: int, t: int, delay: int) -> int:
        """Count and trace the decision of learner `i`, and settle it or schedule its label."""
        helper = ledger.helper
        function = self.total + i
        if ledger.function >= 0:
            function = self.offsets[helper if helper >= 0 else i] + ledger.function
        gain = self._gain(self._row(i, function), t)
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
                delay = self._later(delay, self.busy[t, helper])
        delay = self._delay(i, delay) if self.labels[t] >= 0 else NEVER
        if delay != 0:
            self._note(i, slot, gain, delay, self.labels[t], paid)
            return 0
        ledger._learn(gain, slot, paid)
        if helper >= 0 and ledger.function >= 0:
            ledger.asked._learn_served(ledger.asked_rows[0], ledger.function, gain, slot)
            for k in range(1, ledger.count):
                table = self._ledger(helper)._table(ledger.own[k])
                table._learn_served(ledger.asked_rows[k], ledger.function, gain, slot)
        if self.remembers:
            self._remember(i, slot, self.labels[t])
        return 0

    def _row(self, i: int, function: int) -> int:
        """Return the row of predictions that holds the answers of `function` to learner `i`."""
        stream = self.streams[i] if function < self.total else self.stream_count - 1
        return stream * self.total + function

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
                gain = self._gain(self._row(i, shown), t)
        # Row numbers of different tables are interleaved, so that they are unique.
        space = ledger.own[ledger.chosen]
        self.cells[at] = (ledger.rows[ledger.chosen] * self.count + i) * self.spaces + space
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

    def _remember(self, i: int, slot: int, label: int) -> int:
        """Store a label for cell-only queries: here, and at the queried learner."""
        ledger = self._ledger(i)
        for k in range(ledger.count):
            if ledger.first.remembers:
                ledger._at(k)._remember_around(label, slot)
            if ledger.helper >= 0:
                table = self._ledger(ledger.helper)._table(ledger.own[k])
                if table.remembers:
                    table._remember(ledger.asked_rows[k], label)
        return 0

    def _delay(self, i: int, delay: int) -> int:
        """Return when learner `i` sees the label; hidden ones are written as `-1 - delay`."""
        if delay == FAR:
            return NEVER
        if delay < 0:
            delay = -1 - delay if i >= self.hidden_from else NEVER
        return delay if self.wait < 0 or delay <= self.wait else NEVER

    def _later(self, delay: int, busy: int) -> int:
        """Return the delay of a label whose answer takes `busy` slots; hidden ones stay hidden."""
        return max(delay, busy) if delay >= 0 else min(delay, -1 - busy)

    def _note(self, i: int, slot: int, gain: int, delay: int, label: int, paid: int) -> int:
        """Schedule the label of the current decision of learner `i`, if it arrives."""
        ledger = self._ledger(i)
        rows = tuple(ledger.rows)
        asked_rows = tuple(ledger.asked_rows)
        note = (i, rows, ledger.choice, ledger.helper, asked_rows, ledger.function)
        self._expect(note, 1)
        if delay != NEVER:
            points = tuple([ledger._at(k)._point_now() for k in range(ledger.count)])
            kept = (note, gain, slot, points, label, paid)
            self.calendar.setdefault(slot + delay, []).append(kept)
        elif self.wait >= 0:
            self.calendar.setdefault(slot + self.wait, []).append((note, -1, slot, (), -1, 0))
        return 0

    def _deliver(self, slot: int) -> int:
        """Settle the labels that arrive at the end of `slot`."""
        for note, gain, decided, points, label, paid in self.calendar.pop(slot, ()):
            if gain < 0:
                self._release(note)
                continue
            self._expect(note, -1)
            self._settle(note, gain, decided, points, label, paid)
        return 0

    def _settle(
        self, note: Any, gain: int, decided: int, points: Any, label: int, paid: int
    ) -> int:
        i, rows, choice, helper, asked_rows, function = note
        ledger = self._ledger(i)
        for k in range(ledger.count):
            table = ledger._at(k)
            table._read(points[k])
            table._follow()
            table._learn_own(rows[k], choice >> 2, choice & 3, gain, decided, paid)
            if table.remembers:
                table._remember_around(label, decided)
            if helper >= 0:
                asked = (helper, ledger.own[k], asked_rows[k], function)
                self._settle_served(asked, gain, decided, label)
        return 0

    def _settle_served(
        self, asked: tuple[int, int, int, int], gain: int, decided: int, label: int
    ) -> int:
        helper, space, row, function = asked
        table = self._ledger(helper)._table(space)
        if function >= 0:
            table._learn_served(row, function, gain, decided)
        if table.remembers:
            table._remember(row, label)
        return 0

    def _release(self, note: tuple[Any, ...]) -> int:
        i, rows, choice, helper, asked_rows, function = note
        ledger = self._ledger(i)
        for k in range(ledger.count):
            ledger._at(k)._release(rows[k], choice >> 2, choice & 3)
            if helper >= 0 and function >= 0:
                table = self._ledger(helper)._table(ledger.own[k])
                table._release(asked_rows[k], function, SERVE)
        return 0

    def _expect(self, note: tuple[Any, ...], by: int) -> int:
        i, rows, choice, helper, asked_rows, function = note
        ledger = self._ledger(i)
        for k in range(ledger.count):
            ledger._at(k)._expect(rows[k], choice >> 2, choice & 3, by)
            if helper >= 0 and function >= 0:
                table = self._ledger(helper)._table(ledger.own[k])
                table._expect(asked_rows[k], function, SERVE, by)
        return 0
