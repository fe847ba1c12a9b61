"""A log replayed with and without a contract, a site or a function, and what differs."""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from covey.config import changed, load
from covey.replay.engine import ReplayEngine
from covey.replay.outcome import LearnerOutcome, OutcomeBuilder, aligned, gain_of
from covey.replay.replay import Log
from covey.types import Array, Interval

FINER = 4  # prices between those around the break-even price
Table = Mapping[str, Any]
Source = Path | Table  # a log, or its columns
Sites = list[LearnerOutcome]  # of one replay
Verdict = Literal["yes", "no", "undecided"]


class PricePoint(msgspec.Struct, frozen=True):
    """What a contract at one price comes to."""

    price: float
    bought: int
    volume_percent: float  # of the buyer's rows
    gain_points: Interval  # of the buyer, in points of its labelled rows
    earned: float  # by the seller, in units of a right answer
    earned_points: float  # the same in points of the buyer's rows


class BreakEven(msgspec.Struct, frozen=True):
    """The highest price at which the buyer gains, with its 95 % interval."""

    price: float | None  # None: it does not gain at any price
    low: float | None  # None: it may not gain at any price
    high: float | None  # None: above the highest price that was tried

    def __str__(self) -> str:
        low = 0.0 if self.low is None else self.low
        if self.price is None:
            return f"none (to {self.high:.3g})" if self.high else "none"
        if self.high is None:
            return f"above {low:.3g}"
        return f"{self.price:.3g} ({low:.3g} to {self.high:.3g})"


def play(variants: Sequence[Table], source: Source) -> list[Sites]:
    """Replay configurations that read the same columns, in one pass; runs in worker processes."""
    setups = [load(variant) for variant in variants]
    first = setups[0]
    log = Log(first, source)
    width, labels = first.context.dimension, log.vocabulary.values
    engines = [ReplayEngine(setup, setup.sites, width, labels) for setup in setups]
    tallies = [OutcomeBuilder(setup.sites, setup.unit, setup.payments()) for setup in setups]
    for chunk in log:
        for engine, tally in zip(engines, tallies, strict=True):
            trace = engine.play(chunk)
            tally.add(trace, trace)
    return [tally.learners([[] for _ in first.sites]) for tally in tallies]


def sweep(
    base: Table, buyer: str, seller: str, prices: Sequence[float], source: Source
) -> list[PricePoint]:
    """Replay a contract at several prices, and at finer ones around the break-even price."""

    def points(without: Sites, prices: Sequence[float], runs: Sequence[Sites]) -> list[PricePoint]:
        tried = zip(prices, runs, strict=True)
        return [_point(price, sites, without, buyer, seller) for price, sites in tried]

    variants = [priced(base, buyer, seller, price) for price in (None, *prices)]
    without, *runs = play(variants, source)
    curve = points(without, prices, runs)
    end = next((k for k, point in enumerate(curve) if point.gain_points.mean <= 0), 0)
    if end:
        finer = np.linspace(prices[end - 1], prices[end], FINER + 2)[1:-1].round(6).tolist()
        variants = [priced(base, buyer, seller, price) for price in finer]
        curve += points(without, finer, play(variants, source))
    return sorted(curve, key=lambda point: point.price)


def _point(price: float, sites: Sites, without: Sites, buyer: str, seller: str) -> PricePoint:
    named = {site.name: site.numbers for site in sites}
    earned = sum(
        sign * site.numbers.account.earned
        for sign, run in ((1, sites), (-1, without))
        for site in run
        if site.name == seller and site.numbers.account is not None
    )
    bought, slots = named[buyer].arms.get(seller, 0), max(1, named[buyer].slots)
    return PricePoint(
        price=price,
        bought=bought,
        volume_percent=100 * bought / slots,
        gain_points=gain_between(sites, without, [buyer], is_buyer=True) or Interval(0.0),
        earned=round(earned, 9),
        earned_points=round(100 * earned / slots, 9),
    )


def gain_between(
    sites: Sites,
    others: Sites,
    names: Collection[str],
    *,
    is_buyer: bool = False,
    comparisons: int = 1,
) -> Interval | None:
    """Return what sites gain in points from the second replay to the first, on the same rows.

    `is_buyer` leaves out what their peers pay them; `comparisons` is as in `gain_of`.
    """
    parts = gains_between(sites, others, names, is_buyer=is_buyer)
    return gain_of(*aligned(parts), comparisons=comparisons)


def gains_between(
    sites: Sites, others: Sites, names: Collection[str], *, is_buyer: bool
) -> list[tuple[int, Array, Array]]:
    """Return the slots of a bucket, and per bucket the gain and labelled rows, for `aligned`."""
    return [
        (
            time.slots_per_bucket,
            sign * (-np.add(time.errors, time.spent) + (0.0 if is_buyer else time.income)),
            np.array(time.judged) * (sign > 0),
        )
        for sign, run in ((1, sites), (-1, others))
        for time in (site.timeline for site in run if site.name in names)
    ]


def priced(base: Table, buyer: str, seller: str, price: float | None) -> Table:
    """Return a configuration with another price of a pair; None: no contract."""
    (before,) = (site["peers"] for site in base["learner"] if site["name"] == buyer)
    peers = {name: own for name, own in before.items() if name != seller}
    return changed(base, {buyer: {"peers": peers if price is None else {**peers, seller: price}}})


def among(base: Table, members: Collection[str]) -> Table:
    """Return a configuration in which only these sites trade with each other."""
    changes = {
        site["name"]: {
            key: {
                name: price
                for name, price in site.get(key, {}).items()
                if site["name"] in members and name in members
            }
            for key in ("peers", "context-peers")
        }
        for site in base["learner"]
    }
    return changed(base, changes)


def verdict_of(gain: Interval | None) -> Verdict:
    """Return whether something pays, by the interval of its gain."""
    if gain is None or gain.low is None or gain.high is None:
        return "undecided"
    if gain.low > 0:
        return "yes"
    # Without any purchase nothing is gained, and there is no doubt about it.
    return "no" if gain.high <= 0 else "undecided"


def more_labels(gain: Interval | None, labelled: int) -> int | None:
    """Return how many more labels would make a gain certain, if it stays what it is now."""
    if gain is None or gain.high is None or not gain.mean:
        return None
    ratio = (gain.high - gain.mean) / abs(gain.mean)
    return max(1, math.ceil(labelled * (ratio**2 - 1)))


def break_even(curve: Sequence[PricePoint]) -> BreakEven:
    """Return the price at which the gain of a buyer falls to nothing, by linear interpolation."""
    prices = [point.price for point in curve]
    gains = [point.gain_points for point in curve]
    lows = [-math.inf if gain.low is None else gain.low for gain in gains]
    highs = [math.inf if gain.high is None else gain.high for gain in gains]
    mean, low, high = (
        _crossing(prices, values) for values in ([gain.mean for gain in gains], lows, highs)
    )
    return BreakEven(
        price=prices[-1] if mean == math.inf else mean,
        low=prices[-1] if low == math.inf else low,
        high=None if high == math.inf else high or 0.0,
    )


def _crossing(prices: Sequence[float], values: Sequence[float]) -> float | None:
    """Return where values first fall to 0; None: they begin there; inf: they do not."""
    end = next((k for k, value in enumerate(values) if value <= 0), len(values))
    if end in (0, len(values)):
        return None if end == 0 else math.inf
    value, lower = values[end - 1 : end + 1]
    share = 1.0 if math.isinf(value) else value / (value - lower)
    return prices[end - 1] + (prices[end] - prices[end - 1]) * share
