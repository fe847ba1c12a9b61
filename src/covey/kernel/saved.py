"""Counters of rows as lists of integers, as they are stored, and of arms for a table of others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from covey.kernel.rules import Cell

SINCE, ARRIVALS, OWN, NEXT_TEST = 1, 4, 5, 3  # places in a row, as in `cells`
GAIN = 0xFFFFFFFF  # the bits of a label in a window that are not its arm


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

    def arm_counters(self, row: int, arm: int) -> list[int]:
        """Return what is stored of `arm` in `row`, in an order that depends on no layout."""
        return self.parts(self.stored(row))[1][arm]

    def parts(self, stored: Sequence[int]) -> tuple[list[int], list[list[int]]]:
        """Return of `stored` what the cell has, then what each arm has as `arm_counters`.

        The cell has since, arrivals, own arrivals, then the labels in its window with their count.
        """
        first = self._layout.labels - 3
        window = stored[self._layout.ring - first :][: 1 + self._layout.window]
        return [*stored[:3], *(window if self._layout.window else ())], [
            [stored[place - first] if place >= 0 else 0 for place in places]
            for places in self._layout.arm_places
        ]

    def load_parts(
        self,
        cell: Cell,
        own: Sequence[int],
        arms: Mapping[int, Sequence[int]],
        labels: list[tuple[Any, int]],
    ) -> int:
        """Create `cell` from results of `parts`, where arms may be left out; return its row."""
        layout, first = self._layout, self._layout.labels - 3
        stored = [*own[:3], *[0] * (self.size - 3)]
        for arm, counters in arms.items():
            for place, number in zip(layout.arm_places[arm], counters, strict=True):
                if place >= 0:
                    stored[place - first] = number
        window = own[3:]
        if window:
            stored[layout.ring - first : layout.ring - first + len(window)] = window
            for label in window[1 : 1 + window[0]]:
                stored[layout.recent - first + (label >> 32)] += 1
                stored[layout.recent_right - first + (label >> 32)] += label & GAIN
        return self.load_stored(cell, stored, labels)


def renumbered(own: Sequence[int], numbers: Mapping[int, int]) -> list[int]:
    """Return what a cell has in `parts`, with other numbers of the arms in its window.

    Labels of arms without a number leave the window.
    """
    if len(own) <= 3:
        return list(own)
    count, window = own[3], len(own) - 4
    labels = [own[4 + k % window] for k in range(max(0, count - window), count)]
    kept = [numbers[label >> 32] << 32 | label & GAIN for label in labels if label >> 32 in numbers]
    first = count - len(labels) if len(kept) == len(labels) else 0
    ring = [0] * window
    for k, label in enumerate(kept, first):
        ring[k % window] = label
    return [*own[:3], first + len(kept), *ring]
