"""Oracles: the best choices when accuracies and costs are known, and what decisions lose."""

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from covey.bandit.partitions import side
from covey.config import LearnerSpec
from covey.data.logs import EncodedLog, Trace
from covey.simulation.environment import Environment
from covey.simulation.graphs import graph_of
from covey.simulation.world import WorldChunk
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
        # A contiguous row per learner: the order of a sum does not depend on the others.
        itself, by_helper = (
            np.ascontiguousarray(lost.reshape(-1, self.learners).T).sum(axis=1, dtype=np.float64)
            for lost in (self.itself, self.by_helper)
        )
        sums[:, _NEAR] = itself - sums.sum(axis=1)
        sums[:, _HELPER] = by_helper
        return sums


class CauseOracle:
    """What all oracles share: the causes of losses."""

    def __init__(self, *, lipschitz: float, alpha: float, dimension: int | None = None) -> None:
        """`dimension` is that of all cells; None: as many as a cell's name has coordinates."""
        self._smoothness = (lipschitz, alpha, dimension)
        self._limits: dict[Label, float] = {}

    def judge(self, trace: Trace, stretch: WorldChunk, log: EncodedLog) -> Losses:
        """Return the losses of the decisions on the rows of a chunk."""
        raise NotImplementedError

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
            name = str(cell).rpartition("/")[2]
            diagonal = math.sqrt(dimension or name.count(":")) * side(name)
            self._limits[cell] = 2 * lipschitz * diagonal**alpha
        return self._limits[cell]


class SiteOracle(CauseOracle):
    """An oracle of listed sites: who owns which function, and who receives instances."""

    def __init__(self, sites: Sequence[LearnerSpec], **smoothness: Any) -> None:
        super().__init__(**smoothness)
        counts = [len(site.functions) for site in sites]
        ends = itertools.accumulate(counts)
        self._owned = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]
        self._receivers = tuple(index for index, site in enumerate(sites) if site.receives)


class Oracle(SiteOracle):
    """The best choices when all accuracies and prices are known.

    Costs are rounded to multiples of 2**-22, as accuracies are, so that sums over causes and
    chunks are exact in any order.
    """

    def __init__(self, sites: Sequence[LearnerSpec], **smoothness: Any) -> None:
        super().__init__(sites, **smoothness)
        counts = [len(site.functions) for site in sites]
        # Per learner: the cost of each function, and the price of each peer.
        self._costs = np.zeros((len(sites), sum(counts)), np.float32)
        self._prices: list[dict[int, float]] = []
        for index, (site, count) in enumerate(zip(sites, counts, strict=True)):
            rounded = [round(cost * 2**22) / 2**22 for cost in site.costs]
            prices = dict(zip(site.peers, rounded[count:], strict=True))
            self._prices.append(prices)
            self._costs[index, self._owned[index]] = rounded[:count]
            for peer, price in prices.items():
                self._costs[index, self._owned[peer]] = price

    def losses(self, trace: Trace, accuracy: Array) -> Losses:
        """Return the losses of the decisions in `trace`.

        `accuracy` is stream, function, slot: either one stream for all learners, or one for each.
        """
        functions = accuracy.shape[1]
        # Flat indices into the accuracies.
        indices = trace.function.astype(np.int64)
        indices *= accuracy.shape[2]
        indices += _first_indices(accuracy.shape, self._receivers)
        best = np.stack([accuracy[:, own].max(axis=1) for own in self._owned], axis=1)
        lost = self._best(accuracy, best).reshape(-1)
        lost -= accuracy.take(indices)
        paid = self._pay(trace.function, lost)
        by_helper = self._gaps(accuracy, best).take(indices)
        by_helper *= (trace.phase == Phase.EXPLOIT) & (trace.arm >= functions)
        lost -= by_helper
        cause = self._causes(trace, lost)
        return Losses(len(self._receivers), cause, lost, by_helper, paid)

    def judge(self, trace: Trace, stretch: WorldChunk, log: EncodedLog) -> Losses:
        return self.losses(trace, stretch.accuracy)

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
        costs = self._costs[[*self._receivers]]
        if not costs.any():
            return 0.0
        first = np.arange(len(costs)) * costs.shape[1]
        paid = costs.take(function.reshape(-1, len(costs)) + first)
        lost += paid.reshape(-1)
        return float(paid.sum(dtype=np.float64))


class GraphOracle(CauseOracle):
    """The best choices in a graph when all accuracies and prices are known; see `Oracle`."""

    def __init__(self, environment: Environment, usual: LearnerSpec) -> None:
        super().__init__(
            lipschitz=environment.lipschitz,
            alpha=environment.alpha,
            dimension=environment.dimension,
        )
        self._graph = graph_of(environment)
        rounded = [np.float32(round(cost * 2**22) / 2**22) for cost in usual.costs]
        self._own_cost, self._price = rounded[0], rounded[-1]

    def judge(self, trace: Trace, stretch: WorldChunk, log: EncodedLog) -> Losses:
        graph, slots = self._graph, len(stretch.points)
        shape = (slots, graph.sites)
        function, phase = trace.function.reshape(shape), trace.phase.reshape(shape)
        lost, gap = np.empty(shape, np.float32), np.empty(shape, np.float32)
        paid = 0.0
        for block in graph.blocks():
            accuracy = self._reachable(stretch.accuracy, block)
            lost[:, block], gap[:, block], cost = self._lost(block, accuracy, function[:, block])
            paid += float(cost.sum(dtype=np.float64))
        # A function of its own that is not the best one is the site's own mistake.
        is_asked = trace.arm.reshape(shape) >= graph.sites * graph.functions
        gap *= (phase == Phase.EXPLOIT) & is_asked
        lost -= gap
        flat = lost.reshape(-1)
        return Losses(graph.sites, self._causes(trace, flat), flat, gap.reshape(-1), paid)

    def _reachable(self, accuracy: Array, block: slice) -> Array:
        """Return accuracies: site, member, function, slot."""
        graph, slots = self._graph, accuracy.shape[2]
        if graph.are_apart:
            return accuracy[block].reshape(-1, graph.reach, graph.functions, slots)
        found: Array = accuracy.reshape(graph.sites, graph.functions, slots)[graph.members[block]]
        return found

    def _lost(self, block: slice, accuracy: Array, function: Array) -> tuple[Array, Array, Array]:
        """Return what each decision lost, the gap to the owner's best function, and its cost."""
        graph = self._graph
        best = accuracy.max(axis=2)  # site, member, slot
        price = np.full(graph.members[block].shape, self._price, np.float32)
        sites = np.arange(len(price))
        price[sites, graph.own[block]] = self._own_cost
        most = (best - price[:, :, None]).max(axis=1).T
        owner, own = np.divmod(function, graph.functions)
        place = (graph.members[block] < owner[:, :, None]).sum(axis=2)
        slot = np.arange(len(function))[:, None]
        answered = accuracy[sites, place, own, slot]
        cost = price[sites, place]
        return most - answered + cost, best[sites, place, slot] - answered, cost


@lru_cache(maxsize=1)
def _first_indices(shape: tuple[int, ...], receivers: tuple[int, ...]) -> Array:
    """Return the flat index of function 0, by slot and then by learner."""
    streams, functions, slots = shape
    stream = np.array(receivers) if streams > 1 else np.zeros(len(receivers), np.int64)
    return (np.arange(slots)[:, None] + stream * (functions * slots)).reshape(-1)
