# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Labels of a replay: when they arrive, and what learners that were asked are told of them."""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from typing import Any

from covey.kernel.counters import SERVE
from covey.kernel.rules import Seat
from covey.kernel.spaces import Ledger
from covey.kernel.thresholds import FAR

NEVER = -1  # in `delays`: the label never arrives


class LabelCalendar:
    """The labels of decisions that arrive after their slot, by the slot at whose end they do."""

    def __init__(
        self, ledgers: list[Ledger], seats: list[Seat], hidden_from: int, label_wait: int | None
    ) -> None:
        self.ledgers = ledgers
        self.due: dict[int, list[Any]] = {}
        self.slots: list[int] = []  # of `due`, a heap
        self.hidden_from = hidden_from  # the first so many learners never see a hidden label
        self.wait = -1 if label_wait is None else label_wait  # -1: no limit
        self.has_free = max([len(seat.free) for seat in seats]) > 0
        self.misleads = array("i", [seat.misleads for seat in seats])
        self.is_honest = max(self.misleads) == 0  # no learner tells peers false labels

    def _ledger(self, learner: int) -> Ledger:
        return self.ledgers[learner]

    def _told(self, i: int, gain: int) -> int:
        """Return what an answer gains by the label that learner `i` tells the one that answered."""
        return self._ledger(i).first.unit - gain if self.misleads[i] else gain

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

    def _note(self, i: int, slot: int, gain: int, delay: int, told: Any, paid: int) -> int:
        """Schedule the label of the current decision of learner `i`, if it arrives.

        `told` has the label, the answer, and what free functions gain.
        """
        ledger = self._ledger(i)
        rows, met = ledger._own_rows(), ledger._met_rows()
        note = (i, rows, ledger.choice, ledger.helper, met, ledger.function)
        self._expect(note, 1)
        if delay != NEVER:
            points = tuple([ledger._at(k)._point_now() for k in range(ledger.count)])
            kept = (note, gain, slot, points, told, paid)
            self._schedule(slot + delay, kept)
        elif self.wait >= 0:
            self._schedule(slot + self.wait, (note, -1, slot, (), (), 0))
        return 0

    def _schedule(self, slot: int, kept: Any) -> int:
        if slot not in self.due:
            self.due[slot] = []
            heappush(self.slots, slot)
        self.due[slot].append(kept)
        return 0

    def _deliver(self, slot: int) -> int:
        """Settle the labels that arrive at the end of `slot`, or arrived before it."""
        while self.slots and self.slots[0] <= slot:
            for note, gain, decided, points, told, paid in self.due.pop(heappop(self.slots)):
                if gain < 0:
                    self._release(note)
                    continue
                self._expect(note, -1)
                self._settle(note, gain, decided, points, told, paid)
                if self.has_free:
                    self._score(note[0], note[3], note[1], note[4], told[2], decided)
        return 0

    def _settle(self, note: Any, gain: int, decided: int, points: Any, told: Any, paid: int) -> int:
        i, rows, choice, helper, asked_rows, function = note
        ledger = self._ledger(i)
        for k in range(ledger.count):
            table = ledger._at(k)
            table._read(points[k])
            table._follow()
            table._learn_own(rows[k], choice >> 2, choice & 3, gain, decided, paid)
            if table.remembers:
                table._remember_around(told[0], told[1] if helper < 0 else None, decided)
            if helper >= 0:
                asked = (helper, ledger.own[k], asked_rows[k], function)
                self._settle_served(asked, self._told(i, gain), decided, told)
        return 0

    def _settle_served(self, asked: Any, gain: int, decided: int, told: Any) -> int:
        helper, space, row, function = asked
        table = self._ledger(helper)._table(space)
        if function >= 0:
            table._learn_served(row, function, gain, decided)
        if table.remembers:
            table.memory.take(row, told[0], told[1])
        return 0

    def _score(self, i: int, helper: int, rows: Any, met: Any, scores: Any, slot: int) -> int:
        """Record labels of free functions, in the cells of a decision made at `slot`."""
        ledger = self._ledger(i)
        ledger._score(ledger, rows, scores[0], slot, False)
        if scores[1]:
            told = [(function, self._told(i, gain)) for function, gain in scores[1]]
            self._ledger(helper)._score(ledger, met, told, slot, True)
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
