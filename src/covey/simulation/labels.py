"""Labels of a world: classes that depend on the context, and gains of numeric answers."""

from typing import NamedTuple

import numpy as np

from covey.simulation.environment import Classes
from covey.types import WHOLE, Array, Loss


class Labelled(NamedTuple):
    """The classes of one stream of instances."""

    labels: Array  # slot -> class
    usual: Array  # slot -> the usual class at this context
    answers: Array  # stream, function, slot -> class that the function answers


class ClassSource:
    """Draws the label of each instance, and which class a wrong function answers."""

    def __init__(self, classes: Classes, rng: np.random.Generator) -> None:
        self._classes = classes
        self._rng = rng

    def draw(self, points: Array, right: Array) -> Labelled:
        """Return the classes of instances at `points` (slot, stream, dimension)."""
        number, functions = self._classes.number, right.shape[1]
        usual = np.minimum(points[:, 0, 0] * number, number - 1).astype(np.int32)
        # A row per slot, so that chunks of any length give the same labels.
        drawn = self._rng.random((len(points), 2 + functions)).T
        others = 1 + (drawn[1:] * (number - 1)).astype(np.int32)  # distances to other classes
        labels = np.where(drawn[0] < self._classes.usual, usual, (usual + others[0]) % number)
        answers = np.where(right[0] == 1, labels, (labels + others[1:]) % number)
        return Labelled(labels, usual, answers[None])


def chances(classes: Classes, usual: Array, answers: Array) -> Array:
    """Return the probability of each answer to be the label, given the usual class."""
    rest = (1 - classes.usual) / (classes.number - 1)
    return np.where(answers == usual, classes.usual, rest)


def draw_gains(loss: Loss, uniform: Array, expected: Array) -> Array:
    """Return gains of numeric answers, in parts of `WHOLE`, with these expectations.

    The gain is uniform from 0 to twice the expectation, or so far below 1. The distance from the
    truth follows from it, and the loss of that distance is what a replay would record.
    """
    reach = 2 * np.minimum(expected, 1 - expected)
    gain = expected + reach * (0.5 - uniform)
    distance = np.clip(1 - gain, 0, 1) * loss.bound
    if loss.kind == "squared":
        distance = np.sqrt(distance)
    gains: Array = np.clip(loss.gains(distance), 0, WHOLE).astype(np.int32)
    return gains
