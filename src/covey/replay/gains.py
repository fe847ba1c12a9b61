"""What a learner gained by a replay against its best own function on the same rows, net of costs.

Errors come in runs, so single rows are not independent. The interval is that of batch means: the
rows are cut into consecutive batches, and the batches are compared with each other.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from covey.types import Array

CERTAINTY = 0.95
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


def gain_of(
    sums: Sequence[float] | Array, counts: Sequence[float] | Array, *, comparisons: int = 1
) -> Gain | None:
    """Return the mean of what consecutive buckets hold, and its interval; None without rows.

    `sums` has the gain of each bucket, `counts` its labelled rows. The intervals of so many
    `comparisons` hold all together in 95 % of the cases (Bonferroni).
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
    certainty = 1 - (1 - CERTAINTY) / comparisons
    return Gain(mean, student(batches - 1, certainty) * math.sqrt(variance))


def aligned(parts: Sequence[tuple[int, Array, Array]]) -> tuple[Array, Array]:
    """Return the sums of several learners in buckets of the same length.

    Each part has the slots per bucket, and per bucket the gain and the labelled rows.
    """
    width = max(slots for slots, _, _ in parts)
    buckets = max(len(counts) * slots for slots, _, counts in parts) // width + 1
    sums, totals = np.zeros(buckets), np.zeros(buckets)
    for slots, gained, counts in parts:
        place = np.arange(len(counts)) * slots // width
        sums += np.bincount(place, gained, minlength=buckets)
        totals += np.bincount(place, counts, minlength=buckets)
    return sums, totals


def _thresholds(total: float) -> Array:
    """Return the numbers of rows after which batches end."""
    batches = min(MOST_BATCHES, int(total))
    return total * np.arange(1, batches + 1) / batches - 1e-9 * total


def student(freedom: int, certainty: float = CERTAINTY) -> float:
    """Return the half-width of Student's interval in standard errors.

    >>> round(student(4), 3)
    2.776
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < certainty else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """Return the probability of |t| < sqrt(freedom) * tan(angle), a finite sum of cosines."""
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for power in range(is_odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return (angle + sine * total) * 2 / math.pi if is_odd else sine * total
