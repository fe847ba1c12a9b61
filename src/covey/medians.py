"""What every source says of the own functions, apart: so that a few who lie are outvoted."""

import statistics
from collections.abc import Sequence

FEWEST_SOURCES = 3
FEWEST_LABELS = 20  # of every function, for a source to be heard

Counted = tuple[int, int]  # labels, and how many of them were right


class Medians:
    """Labels per cell, source and function; own clients are one source together."""

    def __init__(self, functions: Sequence[str]) -> None:
        self._places = {function: place for place, function in enumerate(functions)}
        self._cells: dict[str, dict[str, list[Counted]]] = {}

    def add(self, cell: str, source: str, arm: str, counted: Counted) -> None:
        """Count labels of an arm; only own functions matter here."""
        place = self._places.get(arm)
        if place is None:
            return
        sources = self._cells.setdefault(cell, {})
        records = sources.setdefault(source, [(0, 0)] * len(self._places))
        labels, right = records[place]
        records[place] = labels + counted[0], right + counted[1]

    def best(self, cell: str) -> int | None:
        """Return the function with the largest median of the sources' means; None: too few know."""
        heard = [
            records
            for records in self._cells.get(cell, {}).values()
            if all(labels >= FEWEST_LABELS for labels, _ in records)
        ]
        if len(heard) < FEWEST_SOURCES:
            return None
        medians = [
            statistics.median(records[place][1] / records[place][0] for records in heard)
            for place in range(len(self._places))
        ]
        return medians.index(max(medians))
