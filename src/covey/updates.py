"""Update rules of the weights of an ensemble.

Votes and labels are codes; 0 is the base class. A rule returns a new state and has no side effects.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from covey.types import Standing


class Gradient(msgspec.Struct, frozen=True):
    """Stochastic gradient descent on the squared error of the weighted votes.

    With `decay` the step of the t-th label is `step / t`.
    """

    name: ClassVar[str] = "gradient"
    threshold: ClassVar[float | None] = 0.5
    is_share: ClassVar[bool] = False

    step: float = 0.01
    decay: bool = False

    def move(self, standing: Standing, votes: Sequence[int], label: int) -> Standing:
        """Update the weights of the votes for other classes than the base class."""
        labels = standing.labels + 1
        step = self.step / labels if self.decay else self.step
        sums = sums_of(standing.weights, votes)
        weights = [
            weight + step * ((vote == label) - sums[vote]) if vote else weight
            for weight, vote in zip(standing.weights, votes, strict=True)
        ]
        return Standing(tuple(weights), labels, standing.losses)


class Majority(msgspec.Struct, frozen=True):
    """Weighted majority: every mistake multiplies a weight by `beta`."""

    name: ClassVar[str] = "majority"
    threshold: ClassVar[float | None] = None
    is_share: ClassVar[bool] = True

    beta: float = 0.5

    def move(self, standing: Standing, votes: Sequence[int], label: int) -> Standing:
        """Count the mistakes; weights use differences of losses, so they cannot all underflow."""
        losses = _losses(standing, votes, label)
        least = min(losses)
        weights = _shares([self.beta ** (loss - least) for loss in losses])
        return Standing(weights, standing.labels + 1, losses)


class Hedge(msgspec.Struct, frozen=True):
    """Exponential weights: w ~ exp(-rate * mistakes); the default rate decreases over time."""

    name: ClassVar[str] = "hedge"
    threshold: ClassVar[float | None] = None
    is_share: ClassVar[bool] = True

    rate: float | None = None

    def move(self, standing: Standing, votes: Sequence[int], label: int) -> Standing:
        """Count the mistakes; the weights use the rate of the next slot."""
        losses = _losses(standing, votes, label)
        labels = standing.labels + 1
        rate = _rate(self.rate, labels + 1, len(losses))
        return Standing(_exponential(losses, rate), labels, losses)

    def bound(self, slots: float, *, learners: int) -> float:
        """Return a bound on the expected mistakes beyond those of the best learner.

        It holds for sampled answers and any votes and labels, if every label arrives before the
        next answer.
        """
        spread = math.log(learners)
        if self.rate is not None:
            return spread / self.rate + self.rate * slots / 8
        return 2 * math.sqrt(slots / 2 * spread) + math.sqrt(spread / 8)


class FixedShare(msgspec.Struct, frozen=True):
    """Hedge that redistributes `share` of the total weight evenly after every label."""

    name: ClassVar[str] = "fixed-share"
    threshold: ClassVar[float | None] = None
    is_share: ClassVar[bool] = True

    share: float = 0.01
    rate: float | None = None

    def move(self, standing: Standing, votes: Sequence[int], label: int) -> Standing:
        """Update as Hedge, redistribute, and convert the weights back to losses."""
        losses = _losses(standing, votes, label)
        labels = standing.labels + 1
        rate = _rate(self.rate, labels + 1, len(losses))
        even = self.share / len(losses)
        weights = [(1 - self.share) * weight + even for weight in _exponential(losses, rate)]
        if rate > 0:
            most = max(weights)
            losses = tuple([math.log(most / weight) / rate for weight in weights])
        return Standing(tuple(weights), labels, losses)


def sums_of(weights: Sequence[float], votes: Sequence[int]) -> dict[int, float]:
    """Return the total weight of the votes per class."""
    sums: dict[int, float] = {}
    for weight, vote in zip(weights, votes, strict=True):
        sums[vote] = sums.get(vote, 0.0) + weight
    return sums


def _losses(standing: Standing, votes: Sequence[int], label: int) -> tuple[float, ...]:
    pairs = zip(standing.losses, votes, strict=True)
    return tuple([loss + (vote != label) for loss, vote in pairs])


def _rate(given: float | None, slot: int, learners: int) -> float:
    return math.sqrt(8 * math.log(learners) / slot) if given is None else given


def _exponential(losses: Sequence[float], rate: float) -> tuple[float, ...]:
    least = min(losses)
    return _shares([math.exp(-rate * (loss - least)) for loss in losses])


def _shares(weights: Sequence[float]) -> tuple[float, ...]:
    total = sum(weights)
    return tuple([weight / total for weight in weights])
