"""The regret of decisions against the paid oracle, which knows all accuracies, by cause.

In every slot the oracle takes the best option: an own function at its accuracy less its cost, or
a peer at the accuracy of its best function less its price.
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
_NEAR, _WRONG, _HELPER = 2, 3, 4  # indices 0 and 1 equal the phases train and explore


class Losses(NamedTuple):
    """Losses of decisions, by slot and then by receiving learner, as in a trace."""

    learners: int  # that receive instances
    cause: Array  # of the learner's own loss: index in CAUSES
    itself: Array
    by_helper: Array  # loss because the helper did not use its best function
    paid: float  # by all learners; included in the losses

    def sums(self) -> Array:
        """Return the loss of each receiving learner by cause."""
        sums = np.zeros((self.learners, len(CAUSES)))
        rare = np.flatnonzero(self.cause != _NEAR)
        kinds = rare % self.learners * len(CAUSES) + self.cause[rare]
        sums += np.bincount(kinds, self.itself[rare], minlength=sums.size).reshape(sums.shape)
        for learner, by_cause in enumerate(sums):
            rows = slice(learner, None, self.learners)
            by_cause[_NEAR] = self.itself[rows].sum(dtype=np.float64) - by_cause.sum()
            by_cause[_HELPER] = self.by_helper[rows].sum(dtype=np.float64)
        return sums


class Oracle:
    """The best choices when all accuracies and prices are known.

    Costs are rounded to multiples of 2**-22, as accuracies are, so that sums over causes and
    chunks are exact in any order.
    """

    def __init__(
        self, sites: Sequence[Site], *, lipschitz: float, alpha: float, dimension: int
    ) -> None:
        self._owned = _owned(sites)
        self._receivers = [index for index, site in enumerate(sites) if site.receives]
        self._costs = _costs(sites, self._owned)
        self._prices = [_prices(site) for site in sites]
        self._smoothness = (lipschitz, alpha, dimension)
        self._limits: dict[Label, float] = {}
        self._shape: tuple[int, ...] = ()

    def losses(self, trace: Trace, accuracy: Array) -> Losses:
        """Return the losses of the decisions in `trace`.

        `accuracy` is stream, function, slot: either one stream for all learners, or one for each.
        """
        functions = accuracy.shape[1]
        indices = self._indices(trace.function, accuracy.shape)
        best = np.stack([accuracy[:, own].max(axis=1) for own in self._owned], axis=1)
        lost = self._best(accuracy, best).reshape(-1)
        lost -= accuracy.take(indices)
        paid = self._pay(trace.function, lost)
        by_helper = self._gaps(accuracy, best).take(indices)
        by_helper *= (trace.phase == Phase.EXPLOIT) & (trace.arm >= functions)
        lost -= by_helper
        cause = self._causes(trace, lost)
        return Losses(len(self._receivers), cause, lost, by_helper, paid)

    def _indices(self, function: Array, shape: tuple[int, ...]) -> Array:
        """Return the flat index into the accuracies of each decision's function."""
        if shape != self._shape:
            self._shape = shape
            self._first = _first_indices(shape, self._receivers)
        indices: Array = function.astype(np.int64)
        indices *= shape[2]
        indices += self._first
        return indices

    def _best(self, accuracy: Array, best: Array) -> Array:
        """Return the value of the oracle's choice: slot, receiving learner."""
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
        """Return the gap of each function to the best of the same learner."""
        gaps = np.empty_like(accuracy)
        for learner, own in enumerate(self._owned):
            np.subtract(best[:, learner, None], accuracy[:, own], out=gaps[:, own])
        return gaps

    def _pay(self, function: Array, lost: Array) -> float:
        """Add the cost of each decision to `lost`, and return the sum."""
        costs = self._costs[self._receivers]
        if not costs.any():
            return 0.0
        first = np.arange(len(costs)) * costs.shape[1]
        paid = costs.take(function.reshape(-1, len(costs)) + first)
        lost += paid.reshape(-1)
        return float(paid.sum(dtype=np.float64))

    def _causes(self, trace: Trace, lost: Array) -> Array:
        """Return the causes; a choice is wrong if it lost more than the cell size explains."""
        limits = np.array([self._limit(cell) for cell in trace.names["cell"]])
        causes: Array = trace.phase.copy()
        suspects = np.flatnonzero(lost > limits.min())
        suspects = suspects[causes[suspects] == Phase.EXPLOIT]
        causes[suspects[lost[suspects] > limits[trace.cell[suspects]]]] = _WRONG
        return causes

    def _limit(self, cell: Label) -> float:
        """Return the loss that the cell size explains: twice the variation in the cell."""
        if cell not in self._limits:
            lipschitz, alpha, dimension = self._smoothness
            diagonal = math.sqrt(dimension) * side(str(cell))
            self._limits[cell] = 2 * lipschitz * diagonal**alpha
        return self._limits[cell]


def _first_indices(shape: tuple[int, ...], receivers: Sequence[int]) -> Array:
    """Return the flat index of function 0, by slot and then by learner."""
    streams, functions, slots = shape
    stream = np.array(receivers) if streams > 1 else np.zeros(len(receivers), np.int64)
    return (np.arange(slots)[:, None] + stream * (functions * slots)).reshape(-1)


def _owned(sites: Sequence[Site]) -> list[slice]:
    """Return the range of each learner's own functions."""
    ends = np.cumsum([len(site.functions) for site in sites]).tolist()
    return [slice(end - len(site.functions), end) for end, site in zip(ends, sites, strict=True)]


def _prices(site: Site) -> dict[int, float]:
    """Return a learner's price per peer that it may ask."""
    prices = site.costs[len(site.functions) :]
    return {peer: _rounded(price) for peer, price in zip(site.peers, prices, strict=True)}


def _costs(sites: Sequence[Site], owned: Sequence[slice]) -> Array:
    """Return each learner's cost of each function that it may use."""
    costs = np.zeros((len(sites), owned[-1].stop), np.float32)
    for index, site in enumerate(sites):
        costs[index, owned[index]] = [_rounded(cost) for cost in site.costs[: len(site.functions)]]
        for peer, price in _prices(site).items():
            costs[index, owned[peer]] = price
    return costs


def _rounded(cost: float) -> float:
    return round(cost * 2**22) / 2**22
