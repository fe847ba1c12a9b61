"""Estimate alpha, the smoothness of accuracies over contexts, from labels in cells of a grid."""

import math
from typing import NamedTuple

import numpy as np

LEAST_PAIRS = 2  # of adjacent cells, per width
WIDTHS = 3  # the finest ones at which more than chance is seen
LOWEST = 0.25


class Spread(NamedTuple):
    """Differences of the accuracies of adjacent cells of one width."""

    width: float
    square: float  # mean squared difference, without the part that chance alone makes
    chance: float  # that part
    pairs: int

    @property
    def is_seen(self) -> bool:
        """Whether the differences are larger than chance makes them."""
        noise = self.chance * math.sqrt(2 / self.pairs)
        return self.pairs >= LEAST_PAIRS and self.square > max(1e-12, 2 * noise)


def estimate(labels: np.ndarray, right: np.ndarray) -> float | None:
    """Return alpha, from LOWEST to 1; None if the labels do not show it.

    Both arrays have a row for each function and an axis of cells for each dimension: how many
    labels there are (2 or more), and for how many the function was right.
    """
    accuracy = right / labels
    levels = spreads(accuracy, accuracy * (1 - accuracy) / (labels - 1))
    # In cells that are too wide, differences are averaged out; in narrow ones chance is larger.
    top = max(range(len(levels)), key=lambda k: levels[k].square, default=-1)
    seen = [level for level in levels[: top + 1] if level.is_seen][:WIDTHS]
    if len(seen) < WIDTHS:
        return None
    # Mean squared differences grow like width ** (2 alpha).
    weights = [level.pairs / (1 + level.chance / level.square) ** 2 for level in seen]
    widths, squares = np.log([[level.width, level.square] for level in seen]).T
    slope = np.polyfit(widths, squares, 1, w=np.sqrt(weights))[0]
    return float(np.clip(slope / 2, LOWEST, 1))


def spreads(accuracy: np.ndarray, variance: np.ndarray) -> list[Spread]:
    """Return the spread for each width, finest first: cells are merged two by two."""
    levels = []
    axes = range(1, accuracy.ndim)
    width = 1 / accuracy.shape[-1]
    while axes and min(accuracy.shape[1:]) > 1:
        squares = [np.diff(accuracy, axis=axis).ravel() ** 2 for axis in axes]
        chances = [_pairs(variance, axis, 1).ravel() for axis in axes]
        square, chance = np.concatenate(squares), np.concatenate(chances)
        levels.append(Spread(width, (square - chance).mean(), chance.mean(), len(square)))
        for axis in axes:
            accuracy = _pairs(accuracy, axis, 2) / 2
            variance = _pairs(variance, axis, 2) / 4
        width *= 2
    return levels


def _pairs(values: np.ndarray, axis: int, step: int) -> np.ndarray:
    """Return the sums of adjacent values along an axis; a last one without a partner is left."""
    moved = np.moveaxis(values, axis, -1)
    sums = moved[..., :-1:step] + moved[..., 1::step]
    return np.moveaxis(sums, -1, axis)
