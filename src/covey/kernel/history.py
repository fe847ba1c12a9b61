"""What a learner answers to peers that show only the cell: by labels or by predictions of it."""

from __future__ import annotations

from typing import Any

NOTHING: tuple[Any, int, int, dict[Any, int] | None] = (None, 0, 0, None)  # stored labels of a cell
EMPTY: dict[int, Any] = {}  # of all histories until they store something
TRIES = 32  # a count of predictions is `all << TRIES | right ones`


class History:
    """Labels seen in cells, by the row of the cell: the answer is the most frequent one."""

    def __init__(self) -> None:
        self.cells = EMPTY  # row -> leading label, its count, total, counts
        self.unseen = -1  # the answer where nothing was seen; -1: none

    def recall(self, row: int) -> tuple[Any, int, int]:
        """Return the answer in `row`, how often it was right, and out of how many."""
        leader, count, total, _ = self.cells.get(row, NOTHING)
        return leader, count, total

    def known(self, row: int) -> list[tuple[Any, int]]:
        """Return what is stored of `row`: labels with their counts, the most frequent first."""
        leader, _, _, counts = self.cells.get(row, NOTHING)
        return sorted((counts or {}).items(), key=lambda pair: (-pair[1], pair[0] is not leader))

    def know(self, row: int, labels: list[tuple[Any, int]]) -> None:
        """Restore the result of `known`."""
        if labels:
            counts = dict(labels)
            self._own_cells()[row] = (labels[0][0], labels[0][1], sum(counts.values()), counts)

    def _own_cells(self) -> dict[int, Any]:
        """Return `cells` to be changed."""
        if self.cells is EMPTY:
            self.cells = {}
        return self.cells

    def forget(self, row: int) -> None:
        """Forget what is stored of `row`."""
        self.cells.pop(row, None)

    def take(self, row: int, label: Any, answer: Any) -> None:
        """Store the label of an instance, and an own function's answer to it, or None.

        The leading label changes only when another has a larger count.
        """
        leader, count, total, counts = self.cells.get(row, NOTHING)
        counts = counts or {}
        counts[label] = seen = counts.get(label, 0) + 1
        if seen > count:
            leader, count = label, seen
        self._own_cells()[row] = (leader, count, total + 1, counts)

    def recall_sum(self, own: dict[Any, int], theirs: dict[Any, int]) -> tuple[Any, int, int]:
        """Return `recall` for a cell whose `known` is the sum of two.

        Ties go to the leader of the first, then of the second, then to the larger count in the
        first.
        """
        counts = {label: own.get(label, 0) + theirs.get(label, 0) for label in {**own, **theirs}}
        if not counts:
            return None, 0, 0
        first, second = next(iter(own), None), next(iter(theirs), None)
        order = [
            (-counts[label], label != first, label != second, -own.get(label, 0), repr(label))
            for label in counts
        ]
        leader = list(counts)[order.index(min(order))]
        return leader, counts[leader], sum(counts.values())


class PredictionHistory(History):
    """Own predictions in cells: the answer is the one that was right most often, by its share.

    Stored counts are packed, so that they add up and fit into the format of label counts.
    """

    def recall(self, row: int) -> tuple[Any, int, int]:
        """Return the answer in `row`, how often it was right, and out of how many."""
        return _best_share(self.cells.get(row, {}))

    def known(self, row: int) -> list[tuple[Any, int]]:
        """Return what is stored of `row`: predictions in the order of first sight."""
        return list(self.cells.get(row, {}).items())

    def know(self, row: int, labels: list[tuple[Any, int]]) -> None:
        """Restore the result of `known`."""
        if labels:
            self._own_cells()[row] = dict(labels)

    def take(self, row: int, label: Any, answer: Any) -> None:
        """Count the answer, and whether it was right; another's answer counts for nothing."""
        if answer is None:
            return
        counts = self._own_cells().setdefault(row, {})
        counts[answer] = counts.get(answer, 0) + (1 << TRIES) + (1 if answer == label else 0)

    def recall_sum(self, own: dict[Any, int], theirs: dict[Any, int]) -> tuple[Any, int, int]:
        """Return `recall` for a cell whose `known` is the sum of two; ties go to the first."""
        return _best_share({k: own.get(k, 0) + theirs.get(k, 0) for k in {**own, **theirs}})


NO_HISTORY = History()  # shared by all that store no labels


def _best_share(counts: dict[Any, int]) -> tuple[Any, int, int]:
    """Return the prediction with the largest share, its right ones and all; the first of equals."""
    best: tuple[Any, int, int] = (None, 0, 0)
    for answer, count in counts.items():
        tries, right = count >> TRIES, count & ((1 << TRIES) - 1)
        if right * max(1, best[2]) > best[1] * tries:
            best = (answer, right, tries)
    return best
