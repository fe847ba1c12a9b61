"""Environments of these experiments alone; only exact operations, so that worlds never differ."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Drawn = tuple[Any, ...]


class RarePositives:
    """Two classes, one of them rare: what functions say of it is all that tells them apart.

    Nothing in the context says which class an instance has. A function finds a share `hits` of the
    rare class, and takes a share `false_alarms` of the other for it.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        hits: Sequence[float],
        false_alarms: Sequence[float],
        share: float = 0.01,
    ) -> None:
        self._rng, self._share = rng, share
        self._right = np.array([1 - np.array(false_alarms), np.array(hits)])  # class, function

    def draw(self, first_slot: int, slots: int) -> Drawn:
        """Return contexts, constant accuracies, and answers that depend on the class."""
        contexts = self._rng.random((slots, 1))
        kind = (self._rng.random(slots) < self._share).astype(int)
        luck = self._rng.random((self._right.shape[1], slots))
        accuracy = (1 - self._share) * self._right[0] + self._share * self._right[1]
        return contexts, np.tile(accuracy[:, None], slots), luck < self._right[kind].T


class Hills:
    """Smooth accuracies: from `low` to a drawn peak, with one hill for each function.

    At a distance of `width` from its peak a hill has half of its height; with `is_quadratic`
    accuracies fall with the square of the distance, by that much at `width`, down to `low`.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        functions: int = 8,
        dimension: int = 1,
        width: float = 0.4,
        low: float = 0.3,
        is_quadratic: bool = False,
    ) -> None:
        self._rng, self._width, self._low = rng, width, low
        self._peaks = rng.random((functions, dimension))
        self._heights = rng.uniform(0.25, 0.65, functions)
        self._is_quadratic = is_quadratic

    def draw(self, first_slot: int, slots: int) -> Drawn:
        """Return contexts and accuracies."""
        contexts = self._rng.random((slots, self._peaks.shape[1]))
        away = np.zeros((len(self._peaks), slots))
        for coordinate, peaks in zip(contexts.T, self._peaks.T, strict=True):
            away += ((coordinate - peaks[:, None]) / self._width) ** 2
        share = np.maximum(0, 1 - away / 2) if self._is_quadratic else 1 / (1 + away)
        return contexts, self._low + self._heights[:, None] * share
