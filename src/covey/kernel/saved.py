"""Counters of rows as lists of integers, as they are stored, and of arms for a table of others."""

from collections.abc import Iterable
from typing import Any

from covey.kernel.rules import Cell

SINCE, ARRIVALS, OWN, NEXT_TEST = 1, 4, 5, 3  # places in a row, as in `cells`
BEST_MARKS = 2  # where both best arms of a row are
NO_BEST = -1  # both are unknown: the bits of two halves


class Saved:
    """What a store has of the rows of a table: all counters but those of pending labels."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._cells = table.cells
        self._layout = table.layout

    @property
    def size(self) -> int:
        """How many integers are stored of a row."""
        return 3 + int(self._layout.kept) - int(self._layout.labels)

    def stored(self, row: int) -> list[int]:
        """Return the counters of `row`: since, arrivals, own arrivals, then those of arms."""
        numbers = self._cells.numbers(row, 0, self._layout.kept)
        return [numbers[SINCE], numbers[ARRIVALS], numbers[OWN], *numbers[self._layout.labels :]]

    def known(self, row: int) -> list[tuple[Any, int]]:
        """Return the labels that are stored of `row`, with their counts."""
        labels: list[tuple[Any, int]] = self._cells.memory.known(row)
        return labels

    def load_stored(self, cell: Cell, stored: list[int], labels: list[tuple[Any, int]]) -> int:
        """Create `cell` from the results of `stored` and `known`; return its row."""
        row: int = self._cells.restore_row(cell, stored[0])
        self._cells.put(row, ARRIVALS, stored[1:3])
        self._cells.put(row, self._layout.labels, stored[3:])
        self._cells.memory.know(row, labels)
        self._table.policy.derive(row)
        return row

    def take_over(self, old: Any, pending: Iterable[int]) -> None:
        """Continue from another table, whose rows keep their numbers.

        `pending` are the decisions whose labels have not arrived.
        """
        before = old.saved
        for row in range(len(old)):
            self.load_stored(old.cells.cell(row), before.stored(row), before.known(row))
        for decision in pending:
            self._table.expect(decision)
        self._table.policy.restore(old.policy.state())
        for function, belief in enumerate(old.policy.beliefs()):
            self._table.policy.take_belief(function, belief)
        self._table.policy.alarms = old.policy.alarms

    def copy_row(self, known: Any, row: int) -> None:
        """Copy a row of a table of the same rule, with its pending labels."""
        layout = self._layout
        first, end = layout.labels, layout.cached
        stored = known.saved.stored(row)
        here = self.load_stored(known.cells.cell(row), stored, known.saved.known(row))
        self._cells.put(here, first, known.cells.numbers(row, first, end))
        self._table.counters.expected_labels = known.counters.expected_labels
        self._table.policy.derive(here)

    def pending(self, row: int) -> list[int]:
        """Return the pending labels of each arm in `row`; all 0 if they are not counted."""
        layout = self._layout
        if not layout.is_pending:
            return [0] * layout.arms
        pending: list[int] = self._cells.numbers(
            row, layout.underway, layout.underway + layout.arms
        )
        return pending

    def latest(self, row: int) -> list[int]:
        """Return the labels in the window of a row, the oldest first: `arm << 32 | gain`."""
        window, ring = self._layout.window, self._layout.ring
        if not window:
            return []
        count, *labels = self._cells.numbers(row, ring, ring + 1 + window)
        return [labels[k % window] for k in range(max(0, count - window), count)]

    def arm_counters(self, row: int, arm: int) -> list[int]:
        """Return what is stored of `arm` in `row`, in an order that depends on no layout."""
        numbers = self._cells.numbers(row, 0, self._layout.kept)
        return [numbers[place] if place >= 0 else 0 for place in self._layout.of_arm(arm)]

    def load_arm(self, row: int, arm: int, counters: list[int]) -> None:
        """Restore the result of `arm_counters`, except for what this table does not count."""
        for place, number in zip(self._layout.of_arm(arm), counters, strict=True):
            if place >= 0:
                self._cells.put(row, place, [number])
        self._cells.put(row, BEST_MARKS, [NO_BEST, 0])
        self._table.policy.derive(row)

    def take_row(self, old: Any, row: int, arms: list[int]) -> int:
        """Create the cell that a table of other arms has in `row`; return its row here.

        Arm `k` here is `arms[k]` there; -1: it is new. Cells and their arrivals stay.
        """
        before = old.saved
        nothing = [0] * (self.size - 3)
        cell, known = old.cells.cell(row), before.known(row)
        here = self.load_stored(cell, before.stored(row)[:3] + nothing, known)
        for arm, there in enumerate(arms):
            if there >= 0:
                self.load_arm(here, arm, before.arm_counters(row, there))
        for label in before.latest(row) if self._layout.window else ():
            if label >> 32 in arms:
                arm = arms.index(label >> 32)
                self._table.counters.record_recent(
                    here * self._layout.stride, arm, label & 0xFFFFFFFF
                )
        return here
