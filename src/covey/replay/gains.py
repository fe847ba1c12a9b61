"""What a learner gained by a replay against its best own function on the same rows, net of costs.

Errors come in runs, so single rows are not independent. The interval is that of batch means: the
rows are cut into consecutive batches, and the batches are compared with each other.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import msgspec
import numpy as np

from covey.types import Array

CONFIDENCE = 0.95
MOST_BATCHES = 32
FEWEST_BATCHES = 8  # with fewer there is no interval


class Gain(msgspec.Struct, frozen=True):
    """A mean gain per labelled row in right answers, with the half width of its interval."""

    mean: float
    half_width: float | None  # None: too few rows

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the 95 % interval."""
        if self.half_width is None:
            return None
        return self.mean - self.half_width, self.mean + self.half_width


class PairOutcome(msgspec.Struct, frozen=True):
    """What a learner got from one peer."""

    peer: str
    asked: int
    paid: float
    judged: int  # asked rows that have a label
    right: float  # answers of the peer among them
    best_own: str | None  # the own function that is right most often on the same rows
    best_own_right: float


def gain_of(sums: Sequence[float] | Array, counts: Sequence[float] | Array) -> Gain | None:
    """Return the mean of what consecutive buckets hold, and its interval; None without rows.

    `sums` has the gain of each bucket, `counts` its labelled rows.
    """
    sums, counts = np.asarray(sums, float), np.asarray(counts, float)
    total = counts.sum()
    if not total:
        return None
    mean = float(sums.sum() / total)
    edges = np.unique(np.searchsorted(np.cumsum(counts), _thresholds(total), side="left"))
    batches = len(edges)
    if batches < FEWEST_BATCHES:
        return Gain(mean, None)
    starts = np.concatenate([[0], edges[:-1] + 1])
    residuals = np.add.reduceat(sums - mean * counts, starts)
    variance = batches / (batches - 1) * float(np.square(residuals).sum()) / total**2
    return Gain(mean, student_quantile(batches - 1) * math.sqrt(variance))


def _thresholds(total: float) -> Array:
    """Return the numbers of rows after which batches end."""
    batches = min(MOST_BATCHES, int(total))
    return total * np.arange(1, batches + 1) / batches - 1e-9 * total


def student_quantile(degrees: int) -> float:
    """Return Student's two-sided 95 % quantile by its expansion; exact to 0.002 from 7 degrees."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3
