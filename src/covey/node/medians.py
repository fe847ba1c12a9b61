"""The median of sources: a few that lie are outvoted."""

import statistics
from collections.abc import Sequence

from covey.node.requests import add_counts

FEWEST_SOURCES = 3
FEWEST_LABELS = 20  # of every function, for a source to count in medians


class RobustMedians:
    """Labels per cell, source and own function, so that a few sources that lie are outvoted.

    Own clients are one source together.
    """

    def __init__(self, functions: Sequence[str]) -> None:
        self._functions = functions
        self._cells: dict[str, dict[str, dict[str, tuple[int, int]]]] = {}

    def add(self, cell: str, source: str, arm: str, counted: tuple[int, int]) -> None:
        """Count labels of an arm, and how many were right; only own functions matter."""
        if arm in self._functions:
            sources = self._cells.setdefault(cell, {})
            add_counts(sources.setdefault(source, {}), {arm: counted})

    def best(self, cell: str) -> int | None:
        """Return the function with the largest median of accuracies; None: too few sources."""
        heard = [
            known
            for known in self._cells.get(cell, {}).values()
            if all(known.get(one, (0, 0))[0] >= FEWEST_LABELS for one in self._functions)
        ]
        if len(heard) < FEWEST_SOURCES:
            return None
        medians = [
            statistics.median(known[function][1] / known[function][0] for known in heard)
            for function in self._functions
        ]
        return medians.index(max(medians))
