# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""One learner in all its context spaces, in a replay."""

from __future__ import annotations

from typing import Any

from covey.kernel.counters import EXPLOIT
from covey.kernel.memory import block, halves, integers
from covey.kernel.table import Table


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
        self.width = 0  # uncertainty of the helper's function, in millionths
        self.stand_in = -1  # own function that answers if the helper fails or is late

    def _own_rows(self) -> tuple[int, ...]:
        return tuple([self.rows[k] for k in range(self.count)])

    def _met_rows(self) -> tuple[int, ...]:
        return tuple([self.asked_rows[k] for k in range(self.count)])

    def _at(self, k: int) -> Table:
        return self.first if k == 0 else self.tables[self.own[k]]

    def _locate(self, contexts: Any, start: int, slot: int) -> int:
        """Find the own cells around an instance, whose coordinates begin at `start`."""
        at = 0
        for k in range(self.count):
            table = self._at(k)
            for n in range(table.dimension):
                table.context[n] = contexts[start + self.places[at + n]]
            at += table.dimension
            self.rows[k] = table._locate(slot)
        return 0

    def _choose(self, slot: int, fresh: int) -> int:
        """Return `arm << 2 | phase`; -1 if peers must first be asked for the space `chosen`.

        `fresh` is the last of the own spaces for which they have been asked; -1: none.
        """
        self.chosen = 0
        if self.count == 1:
            return self.first._choose(self.rows[0], slot, fresh >= 0)
        largest = 0.0
        choice = 0
        for k in range(self.count):
            table = self._at(k)
            one = table._choose(self.rows[k], slot, k <= fresh)
            if one < 0 or one & 3 != EXPLOIT:
                self.chosen = k
                return one
            base = self.rows[k] * table.stride
            value = table._value(base, one >> 2)
            if k == 0 or value > largest:
                largest = value
                self.chosen = k
                choice = one
        return choice

    def _open_for(self, asker: Ledger, slot: int) -> int:
        """Find or create the cells of the asking learner's instance."""
        asker.asked = self._table(asker.own[0])
        asker.asked_rows[0] = asker.asked._open_for(asker.first, asker.rows[0], slot)
        for k in range(1, asker.count):
            table = self._table(asker.own[k])
            asker.asked_rows[k] = table._open_for(asker._at(k), asker.rows[k], slot)
        return 0

    def _table(self, space: int) -> Table:
        return self.tables[space]

    def _help(self, asker: Ledger) -> int:
        """Return the own function for the asking learner's instance, after `meet`."""
        if asker.count == 1:
            return asker.asked._help(asker.asked_rows[0])
        largest = 0.0
        chosen = 0
        for k in range(asker.count):
            function = self._table(asker.own[k])._unexplored(asker.asked_rows[k])
            if function >= 0:
                return function
        for k in range(asker.count):
            table = self._table(asker.own[k])
            base = asker.asked_rows[k] * table.stride
            function = table._most_accurate(base)
            value = table._accuracy(base, function)
            if k == 0 or value > largest:
                largest = value
                chosen = function
        return chosen

    def _recall(self, asker: Ledger) -> int:
        """Return the most frequent label in the cell with the clearest majority; -1: none."""
        answer = asker.asked.memory.unseen
        largest = 0.0
        for k in range(asker.count):
            table = self._table(asker.own[k])
            leader, count, total = table.memory.recall(asker.asked_rows[k])
            if total and float(count) / total > largest:
                largest = float(count) / total
                answer = leader
        return answer

    def _best_own(self) -> int:
        """Return the own function with the largest estimate in any own space."""
        chosen = 0
        largest = 0.0
        for k in range(self.count):
            table = self._at(k)
            base = self.rows[k] * table.stride
            function = table._best_of(base, table.functions)
            value = table._value(base, function)
            if k == 0 or value > largest:
                largest = value
                chosen = function
        return chosen

    def _score(self, asker: Ledger, rows: Any, scores: Any, slot: int, is_served: bool) -> int:
        """Record labels of own free functions, in the cells of an instance of `asker`."""
        for k in range(asker.count):
            table = self._table(asker.own[k])
            for function, gain in scores:
                table._score(rows[k], function, gain, slot, is_served)
        return 0

    def _count(self) -> int:
        self.first._follow_on()
        self.first._count_own(self.rows[0], 1)
        for k in range(1, self.count):
            table = self._at(k)
            table._follow_on()
            table._count_own(self.rows[k], 1)
        return 0

    def _learn(self, gain: int, slot: int, paid: int) -> int:
        """Record the label of the current instance immediately."""
        arm, phase = self.choice >> 2, self.choice & 3
        self.first._learn_own(self.rows[0], arm, phase, gain, slot, paid)
        for k in range(1, self.count):
            self._at(k)._learn_own(self.rows[k], arm, phase, gain, slot, paid)
        return 0
