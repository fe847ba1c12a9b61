"""What decisions lose against the paid oracle, who knows all accuracies, and why they lose it.

In every slot the oracle takes whatever is worth most to the learner: an own function at its
accuracy less its cost, or a peer at the accuracy of its best function less its price.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from covey.config import Site
from covey.partitions import side
from covey.traces import Trace
from covey.types import Array, Label, Phase

CAUSES = ("training", "exploration", "near-optimal", "wrong choice", "helper's mistake")
_NEAR, _WRONG, _HELPER = 2, 3, 4  # the phases before them have the numbers of their causes


class Losses(NamedTuple):
    """What decisions lost, by slot and then by receiving learner, as in a trace."""

    learners: int  # that receive instances
    cause: Array  # of what the learner lost itself, by its place in CAUSES
    itself: Array
    by_helper: Array  # what its helper lost for it, by not using its best function
    paid: float  # by all, which is part of what was lost

    def sums(self) -> Array:
        """Return what each receiving learner lost for each cause."""
        sums = np.zeros((self.learners, len(CAUSES)))
        rare = np.flatnonzero(self.cause != _NEAR)
        kinds = rare % self.learners * len(CAUSES) + self.cause[rare]
        sums += np.bincount(kinds, self.itself[rare], minlength=sums.size).reshape(sums.shape)
        for learner, by_cause in enumerate(sums):
            mine = slice(learner, None, self.learners)
            by_cause[_NEAR] = self.itself[mine].sum(dtype=np.float64) - by_cause.sum()
            by_cause[_HELPER] = self.by_helper[mine].sum(dtype=np.float64)
        return sums


class Oracle:
    """The accuracies and prices of a network, all known; decisions are measured against it.

    Costs are rounded to multiples of 2**-22, as accuracies are, so that sums are exact whatever
    the order: causes add up, and stretches do.
    """

    def __init__(
        self, sites: Sequence[Site], *, lipschitz: float, alpha: float, dimension: int
    ) -> None:
        self._owned = _owned(sites)
        self._receivers = [place for place, site in enumerate(sites) if site.receives]
        self._costs = _costs(sites, self._owned)
        self._prices = [_prices(site) for site in sites]
        self._smoothness = (lipschitz, alpha, dimension)
        self._limits: dict[Label, float] = {}
        self._shape: tuple[int, ...] = ()

    def losses(self, trace: Trace, accuracy: Array) -> Losses:
        """Return what the decisions of `trace` lost.

        `accuracy` is stream, function, slot: either one stream for all learners, or one for each.
        """
        functions = accuracy.shape[1]
        places = self._places(trace.function, accuracy.shape)
        best = np.stack([accuracy[:, own].max(axis=1) for own in self._owned], axis=1)
        lost = self._best(accuracy, best).reshape(-1)
        lost -= accuracy.take(places)
        paid = self._pay(trace.function, lost)
        by_helper = self._gaps(accuracy, best).take(places)
        by_helper *= (trace.phase == Phase.EXPLOIT) & (trace.arm >= functions)
        lost -= by_helper
        cause = self._causes(trace, lost)
        return Losses(len(self._receivers), cause, lost, by_helper, paid)

    def _places(self, function: Array, shape: tuple[int, ...]) -> Array:
        """Return where the function of each decision stands in the accuracies."""
        if shape != self._shape:
            self._shape = shape
            self._first = _first_places(shape, self._receivers)
        places: Array = function.astype(np.int64)
        places *= shape[2]
        places += self._first
        return places

    def _best(self, accuracy: Array, best: Array) -> Array:
        """Return what the oracle's choice is worth: slot, receiving learner."""
        worth = np.empty((accuracy.shape[2], len(self._receivers)), np.float32)
        for column, learner in enumerate(self._receivers):
            own = self._owned[learner]
            stream = learner if len(accuracy) > 1 else 0
            most = (accuracy[stream, own] - self._costs[learner, own, None]).max(axis=0)
            for peer, price in self._prices[learner].items():
                np.maximum(most, best[stream, peer] - price, out=most)
            worth[:, column] = most
        return worth

    def _gaps(self, accuracy: Array, best: Array) -> Array:
        """Return by how much each function is worse than the best of the same learner."""
        gaps = np.empty_like(accuracy)
        for learner, own in enumerate(self._owned):
            np.subtract(best[:, learner, None], accuracy[:, own], out=gaps[:, own])
        return gaps

    def _pay(self, function: Array, lost: Array) -> float:
        """Add to `lost` what each decision cost, and return all of it."""
        costs = self._costs[self._receivers]
        if not costs.any():
            return 0.0
        first = np.arange(len(costs)) * costs.shape[1]
        paid = costs.take(function.reshape(-1, len(costs)) + first)
        lost += paid.reshape(-1)
        return float(paid.sum(dtype=np.float64))

    def _causes(self, trace: Trace, lost: Array) -> Array:
        """Return the causes: choices are wrong that lost more than a cell of that size explains."""
        limits = np.array([self._limit(cell) for cell in trace.names["cell"]])
        causes: Array = trace.phase.copy()
        suspects = np.flatnonzero(lost > limits.min())
        suspects = suspects[causes[suspects] == Phase.EXPLOIT]
        causes[suspects[lost[suspects] > limits[trace.cell[suspects]]]] = _WRONG
        return causes

    def _limit(self, cell: Label) -> float:
        """Return what a choice may lose that takes a cell for one point: twice its variation."""
        if cell not in self._limits:
            lipschitz, alpha, dimension = self._smoothness
            diagonal = math.sqrt(dimension) * side(str(cell))
            self._limits[cell] = 2 * lipschitz * diagonal**alpha
        return self._limits[cell]


def _first_places(shape: tuple[int, ...], receivers: Sequence[int]) -> Array:
    """Return where the first function stands in the accuracies, by slot and then by learner."""
    streams, functions, slots = shape
    stream = np.array(receivers) if streams > 1 else np.zeros(len(receivers), np.int64)
    return (np.arange(slots)[:, None] + stream * (functions * slots)).reshape(-1)


def _owned(sites: Sequence[Site]) -> list[slice]:
    """Return which of all functions are a learner's own."""
    ends = np.cumsum([len(site.functions) for site in sites]).tolist()
    return [slice(end - len(site.functions), end) for end, site in zip(ends, sites, strict=True)]


def _prices(site: Site) -> dict[int, float]:
    """Return what a learner pays for an answer of each peer that it may ask."""
    prices = site.costs[len(site.functions) :]
    return {peer: _rounded(price) for peer, price in zip(site.peers, prices, strict=True)}


def _costs(sites: Sequence[Site], owned: Sequence[slice]) -> Array:
    """Return what each learner pays for an answer of each function that it may use."""
    costs = np.zeros((len(sites), owned[-1].stop), np.float32)
    for place, site in enumerate(sites):
        costs[place, owned[place]] = [_rounded(cost) for cost in site.costs[: len(site.functions)]]
        for peer, price in _prices(site).items():
            costs[place, owned[peer]] = price
    return costs


def _rounded(cost: float) -> float:
    return round(cost * 2**22) / 2**22
