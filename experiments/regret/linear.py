"""Linear contextual bandits as policies of one's own, one regression per arm on the same features.

Each learner judges all arms by its own labels, and its functions also by those of its peers' rows.
"""

import hashlib
import itertools
import math
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from covey import CellState, CustomPolicy
from covey.types import Array

NORMAL = NormalDist()


@cache
def _grid(dimension: int) -> tuple[int, Array]:
    """Return how many points of a grid are on a side, and the points."""
    side = {1: 12, 2: 6}.get(dimension, 4)
    line = (np.arange(side) + 0.5) / side
    return side, np.array(list(itertools.product(line, repeat=dimension)))


def features(context: tuple[float, ...]) -> Array:
    """Return 1, the coordinates, their squares, and bumps around the points of a grid."""
    side, points = _grid(len(context))
    bumps = np.exp(-((points - context) ** 2).sum(axis=1) * (side**2 / 2))
    return np.concatenate([[1.0], context, np.square(context), bumps])


class Linear(CustomPolicy):
    """Ridge regressions of the gain above one half; inherit, and override `values`."""

    def __init__(self, functions: int, peers: int) -> None:
        super().__init__(functions, peers)
        self._inverses: Array | None = None  # per arm; the first context says how large they are
        self._sums: Array = np.zeros(0)

    def values(self, cell: CellState, means: Array, spreads: Array) -> Array:
        """Return what arms are worth before their costs, by the mean and spread of each."""
        raise NotImplementedError

    def choose(self, cell: CellState) -> int:
        """Return the arm that is worth most after its cost."""
        return int(np.argmax(self.values(cell, *self._fit(cell.context)) - cell.costs))

    def serve(self, cell: CellState) -> int:
        """Return the function with the largest mean."""
        return int(np.argmax(self._fit(cell.context)[0][: self.functions]))

    def learn(self, context: tuple[float, ...], arm: int, gain: float) -> None:
        """Add a label to the regression of an arm (Sherman and Morrison)."""
        x = features(context)
        inverse = self._regressions(len(x))[arm]
        turned = inverse @ x
        inverse -= np.outer(turned, turned) / (1 + x @ turned)
        self._sums[arm] += (gain - 0.5) * x

    def state(self) -> Any:
        """Return the regressions."""
        return None if self._inverses is None else [self._inverses.tolist(), self._sums.tolist()]

    def restore(self, value: Any) -> None:
        """Restore them."""
        if value is not None:
            self._inverses, self._sums = np.array(value[0]), np.array(value[1])

    def _regressions(self, size: int) -> Array:
        if self._inverses is None:
            arms = self.functions + self.peers
            self._inverses, self._sums = np.tile(np.eye(size), (arms, 1, 1)), np.zeros((arms, size))
        return self._inverses

    def _fit(self, context: tuple[float, ...]) -> tuple[Array, Array]:
        """Return the mean and spread of each arm; that of a label is that of an even coin."""
        x = features(context)
        turned = self._regressions(len(x)) @ x
        means = 0.5 + (turned * self._sums).sum(axis=1)
        return means, np.sqrt(np.maximum(turned @ x, 0)) / 2


class LinUCB(Linear):
    """The mean and one spread."""

    def values(self, cell: CellState, means: Array, spreads: Array) -> Array:
        return means + spreads


class EpsilonGreedy(Linear):
    """The mean, and in one slot of twenty any arm."""

    def values(self, cell: CellState, means: Array, spreads: Array) -> Array:
        if cell.random() < 0.05:
            return np.array([cell.random() + min(cost, 1.0) for cost in cell.costs])
        return means


class Thompson(Linear):
    """A sample of the normal posterior."""

    def values(self, cell: CellState, means: Array, spreads: Array) -> Array:
        drawn = [NORMAL.inv_cdf(max(cell.random(), math.ulp(0.5))) for _ in means]
        return means + spreads * drawn


@cache
def code() -> str:
    """Return a name for the code of this file."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


POLICIES = tuple(f"{__name__}:{made.__name__}" for made in (LinUCB, EpsilonGreedy, Thompson))
