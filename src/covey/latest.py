"""The previous label of every row of a log, with late and missing labels."""

import heapq
from collections.abc import Iterable
from typing import Any

from covey.errors import DataError
from covey.types import Label

NO_LABEL = (0, None)


class LatestLabels:
    """The latest arrived label of each learner, across chunks."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, Label]] = {}  # learner -> slot, label
        self._waiting: list[tuple[int, int, int, Label]] = []  # heap of due, slot, learner, label
        self._next_slot: int | None = None

    def recall(self, rows: Iterable[tuple[Any, ...]], *, first_slot: int) -> list[Label | None]:
        """Return the latest label at each row, and record the labels of these rows."""
        self._begin(first_slot)
        previous = []
        for slot, (label, learner, is_revealed, delay) in enumerate(rows, start=first_slot):
            if self._waiting:
                self._settle(slot)
            previous.append(self._latest.get(learner, NO_LABEL)[1])
            if label is None or not is_revealed:
                continue
            if delay == 0:
                self._latest[learner] = (slot, label)
            elif delay > 0:
                heapq.heappush(self._waiting, (slot + delay, slot, learner, label))
            else:
                raise DataError(f"slot {slot}: the delay is {delay}; it must be 0 slots or more")
        self._next_slot = first_slot + len(previous)
        return previous

    def _begin(self, first_slot: int) -> None:
        if first_slot == 1:
            self._latest.clear()
            self._waiting.clear()
        elif self._next_slot not in (None, first_slot):
            raise DataError(
                f"slot {first_slot}: expected slot {self._next_slot} next; scale "
                "'previous-label' needs the chunks of a log in order"
            )

    def _settle(self, slot: int) -> None:
        while self._waiting and self._waiting[0][0] < slot:
            _, row, learner, label = heapq.heappop(self._waiting)
            if row > self._latest.get(learner, NO_LABEL)[0]:
                self._latest[learner] = (row, label)
