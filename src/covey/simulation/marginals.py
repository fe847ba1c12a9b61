"""Accuracies given a part of the coordinates of a context; the others are uniform."""

import itertools
import math

import numpy as np

from covey.simulation.environment import Environment
from covey.simulation.surfaces import AccuracyField
from covey.types import Array

Part = tuple[int, ...]  # indices of coordinates
MOST_COORDINATES = 2  # of a part

_NODES = {0: 1, 1: 257, 2: 33}  # per coordinate of the part
_SAMPLES = {0: 4096, 1: 4096, 2: 1024}  # of the other coordinates
_BLOCK = 2**17  # contexts at a time


class Marginals:
    """Mean accuracies over the other coordinates, from a table with linear interpolation."""

    def __init__(self, environment: Environment, seed: int) -> None:
        self._field = AccuracyField(environment, seed)
        self._dimension = environment.dimension
        self._tables: dict[Part, Array] = {}

    def at(self, part: Part, points: Array) -> Array:
        """Return accuracies (function, slot) given the coordinates `part` of `points`."""
        if part not in self._tables:
            self._tables[part] = self._table(part)
        found = self._tables[part]
        if not part:
            return np.repeat(found[:, None], len(points), axis=1)
        steps = _NODES[len(part)] - 1
        low = [np.minimum(points[:, k] * steps, steps - 1).astype(np.int64) for k in part]
        share = [points[:, k] * steps - first for k, first in zip(part, low, strict=True)]
        total = np.zeros((len(found), len(points)))
        for corner in itertools.product((0, 1), repeat=len(part)):
            weight = np.ones(len(points))
            for is_upper, above in zip(corner, share, strict=True):
                weight *= above if is_upper else 1 - above
            index = tuple(first + step for first, step in zip(low, corner, strict=True))
            total += weight * found[(slice(None), *index)]
        return total

    def _table(self, part: Part) -> Array:
        """Return mean accuracies: function, then a node per coordinate of the part."""
        nodes, samples = _NODES[len(part)], _SAMPLES[len(part)]
        others = [k for k in range(self._dimension) if k not in part]
        spread = evenly(samples, len(others))
        axes = [np.linspace(0, 1, nodes)] * len(part)
        grid = np.array(list(itertools.product(*axes))).reshape(nodes ** len(part), len(part))
        means = []
        for first in range(0, len(grid), max(1, _BLOCK // samples)):
            block = grid[first : first + max(1, _BLOCK // samples)]
            points = np.empty((len(block), samples, self._dimension))
            points[..., [*part]] = block[:, None]
            points[..., others] = spread
            heights = self._field.measure(points.reshape(-1, 1, self._dimension), 1)[0]
            means.append(
                heights.reshape(len(heights), len(block), samples).mean(axis=2, dtype=float)
            )
        return np.concatenate(means, axis=1).reshape(len(means[0]), *[nodes] * len(part))


def evenly(count: int, dimension: int) -> Array:
    """Return points that fill the cube evenly: multiples of powers of a generalised golden ratio.

    >>> evenly(4, 1).reshape(-1).round(2).tolist()
    [0.5, 0.12, 0.74, 0.35]
    """
    if not dimension:
        return np.empty((count, 0))
    ratio = 2.0
    for _ in range(64):  # the root of x ** (dimension + 1) = x + 1
        ratio = (1 + ratio) ** (1 / (dimension + 1))
    steps = np.array([math.pow(ratio, -k) for k in range(1, dimension + 1)])
    points: Array = (0.5 + np.arange(count)[:, None] * steps) % 1.0
    return points
