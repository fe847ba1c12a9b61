# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Replay in which the rows of a batch share one slot."""

from __future__ import annotations

from typing import Any

from covey.kernel.arena import Arena
from covey.kernel.spaces import Ledger
from covey.kernel.thresholds import FAR


class Batches:
    """Replays batches: all their rows are decided on the counters from before the batch.

    Counters and labels follow at the end of the batch, row by row.
    """

    def __init__(self, arena: Arena) -> None:
        self.arena = arena

    def run(self, log: Any, first_slot: int, trace: Any) -> None:
        """Replay the rows of `log`, whole batches, from `first_slot`, and write the trace."""
        arena = self.arena
        arena._open(log, trace)
        rows = len(log.batches)
        slot = first_slot
        first = 0
        while first < rows:
            end = first + 1
            while end < rows and log.batches[end] == log.batches[first]:
                end += 1
            self._play(log, first, end, slot)
            first = end
            slot += 1

    def _play(self, log: Any, first: int, end: int, slot: int) -> int:
        """Replay the rows from `first` to before `end` in one slot."""
        arena = self.arena
        arena._move_clocks(slot)
        decided = []
        for t in range(first, end):
            some = range(arena.count) if log.at is None else range(log.at[t], log.at[t] + 1)
            for i in some:
                if arena.receives[i]:
                    arena._decide(arena._ledger(i), i, slot, t)
                    decided.append((i, t, self._hold(arena._ledger(i))))
        for i, t, held in decided:
            self._restore(i, held)
            is_shown = log.shown is None or log.shown[t, i] != 0
            delay = 0 if log.delays is None else log.delays[t]
            arena._end(arena._ledger(i), i, slot, t, delay if is_shown else FAR)
        if arena.calendar.due:
            arena.calendar._deliver(slot)
        return 0

    def _hold(self, ledger: Ledger) -> tuple[Any, ...]:
        """Return the current decision of a learner, and where it was made."""
        places = []
        for k in range(ledger.count):
            table = ledger._at(k)
            path = [table.path[n] for n in range(table.found)]
            places.append((ledger.rows[k], ledger.asked_rows[k], table._point_now(), path))
        numbers = (ledger.chosen, ledger.choice, ledger.helper, ledger.function)
        return places, numbers, ledger.width, ledger.stand_in

    def _restore(self, i: int, held: tuple[Any, ...]) -> int:
        """Make a decision the current one of learner `i` again."""
        places, numbers, width, stand_in = held
        ledger = self.arena._ledger(i)
        ledger.chosen, ledger.choice, ledger.helper, ledger.function = numbers
        ledger.width = width
        ledger.stand_in = stand_in
        if ledger.helper >= 0:
            ledger.asked = self.arena._ledger(ledger.helper)._table(ledger.own[0])
        for k in range(ledger.count):
            table = ledger._at(k)
            row, met, point, path = places[k]
            ledger.rows[k] = row
            ledger.asked_rows[k] = met
            table._read(point)
            table.found = len(path)
            for n in range(table.found):
                table.path[n] = path[n]
        return 0
