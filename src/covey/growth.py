"""Statistics over seeds: growth exponents, confidence bands and ratios.

Runs of one policy differ by their seed only, so each seed gives one value; intervals are those of
the mean over seeds.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

CERTAINTY = 0.95
RESAMPLES = 10_000


class Estimate(msgspec.Struct, frozen=True):
    """A mean over seeds and its 95 % interval; None with a single seed."""

    mean: float
    low: float | None = None
    high: float | None = None


class Band(msgspec.Struct, frozen=True):
    """The mean of a curve over seeds, and the 95 % interval at each of its points."""

    mean: list[float]
    low: list[float | None]
    high: list[float | None]


def exponent(slots: Sequence[int], regret: Sequence[float]) -> float | None:
    """Return p of the power law c * slots ** p fitted to the later half of a curve.

    Least squares on logarithms, without points of zero regret; None if fewer than two remain.

    >>> round(exponent([10, 100, 1000, 10000], [5, 9, 20, 200]), 6)
    1.0
    """
    later = len(slots) // 2
    pairs = zip(slots[later:], regret[later:], strict=True)
    points = [(math.log(slot), math.log(value)) for slot, value in pairs if value > 0]
    if len({across for across, _ in points}) < 2:
        return None
    across, up = np.array(points).T
    across = across - across.mean()
    return float(across @ up / (across @ across))


def growth(slots: Sequence[int], curves: Sequence[Sequence[float]]) -> Estimate | None:
    """Return the estimated exponent over all seeds' curves; None if no curve has one."""
    known = [value for curve in curves if (value := exponent(slots, curve)) is not None]
    return estimate(known) if known else None


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of one value per seed, with Student's interval.

    >>> estimate([1.0, 2.0, 3.0]).low is not None
    True
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Estimate(mean)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    reach = student(len(values) - 1) * spread / math.sqrt(len(values))
    return Estimate(mean, mean - reach, mean + reach)


def band(curves: Sequence[Sequence[float]]) -> Band:
    """Return the estimate at each point of the curves of all seeds."""
    points = [estimate(values) for values in zip(*curves, strict=True)]
    return Band([p.mean for p in points], [p.low for p in points], [p.high for p in points])


def ratio(values: Sequence[float], others: Sequence[float], *, seed: int = 0) -> Estimate | None:
    """Return the mean of `values` divided by that of `others`, paired by seed.

    The interval is a 95 % bootstrap interval over pairs. None if the others are all 0.
    """
    pairs = np.array([values, others], float)
    above, below = pairs.sum(axis=1)
    if not below > 0:
        return None
    if len(values) < 2:
        return Estimate(float(above / below))
    drawn = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    aboves, belows = pairs[:, drawn].sum(axis=2)
    ratios = aboves[belows > 0] / belows[belows > 0]
    low, high = np.quantile(ratios, [(1 - CERTAINTY) / 2, (1 + CERTAINTY) / 2])
    return Estimate(float(above / below), float(low), float(high))


def student(freedom: int) -> float:
    """Return the half-width of Student's 95 % interval in standard errors.

    >>> round(student(4), 3)
    2.776
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < CERTAINTY else (low, middle)
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
