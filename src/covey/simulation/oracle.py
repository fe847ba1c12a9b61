"""Oracles: the best choices when accuracies and costs are known, and what decisions lose."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from covey.bandit.links import Change, Pair, price_changes
from covey.bandit.partitions import side
from covey.bandit.policies import PolicyRecord
from covey.bandit.rewards import AnyReward, worths
from covey.config import LearnerSpec, NetworkConfig
from covey.data.logs import EncodedLog, Trace
from covey.errors import ConfigError
from covey.kernel.rules import Reward
from covey.simulation.environment import Environment
from covey.simulation.sites import unrestricted, width_of
from covey.simulation.surfaces import AccuracyField
from covey.simulation.world import WorldChunk, chances
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


class SiteOracle:
    """What all oracles share: who owns which function, who receives, and the causes of losses."""

    def __init__(
        self,
        sites: Sequence[LearnerSpec],
        *,
        lipschitz: float,
        alpha: float,
        dimension: int | None = None,
    ) -> None:
        """`dimension` is that of all cells; None: as many as a cell's name has coordinates."""
        self._smoothness = (lipschitz, alpha, dimension)
        self._limits: dict[Label, float] = {}
        counts = [len(site.functions) for site in sites]
        ends = itertools.accumulate(counts)
        self._owned = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]
        self._receivers = tuple(index for index, site in enumerate(sites) if site.receives)

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


@lru_cache(maxsize=1)
def _first_indices(shape: tuple[int, ...], receivers: tuple[int, ...]) -> Array:
    """Return the flat index of function 0, by slot and then by learner."""
    streams, functions, slots = shape
    stream = np.array(receivers) if streams > 1 else np.zeros(len(receivers), np.int64)
    return (np.arange(slots)[:, None] + stream * (functions * slots)).reshape(-1)


Part = tuple[int, ...]  # indices of coordinates


MOST_COORDINATES = 2  # of a part


_NODES = {0: 1, 1: 257, 2: 33}  # per coordinate of the part


_SAMPLES = {0: 4096, 1: 4096, 2: 1024}  # of the other coordinates


_BLOCK = 2**17  # contexts at a time


class Marginals:
    """Mean accuracies over the other coordinates, from a table with linear interpolation."""

    def __init__(self, environment: Environment, seed: int) -> None:
        self._field = AccuracyField(environment, seed)
        self._dimension = environment.dimension
        self._tables: dict[Part, Array] = {}

    def at(self, part: Part, points: Array) -> Array:
        """Return accuracies (function, slot) given the coordinates `part` of `points`."""
        if part not in self._tables:
            self._tables[part] = self._table(part)
        found = self._tables[part]
        if not part:
            return np.repeat(found[:, None], len(points), axis=1)
        steps = _NODES[len(part)] - 1
        low = [np.minimum(points[:, k] * steps, steps - 1).astype(np.int64) for k in part]
        share = [points[:, k] * steps - first for k, first in zip(part, low, strict=True)]
        total = np.zeros((len(found), len(points)))
        for corner in itertools.product((0, 1), repeat=len(part)):
            weight = np.ones(len(points))
            for is_upper, above in zip(corner, share, strict=True):
                weight *= above if is_upper else 1 - above
            index = tuple(first + step for first, step in zip(low, corner, strict=True))
            total += weight * found[(slice(None), *index)]
        return total

    def _table(self, part: Part) -> Array:
        """Return mean accuracies: function, then a node per coordinate of the part."""
        nodes, samples = _NODES[len(part)], _SAMPLES[len(part)]
        others = [k for k in range(self._dimension) if k not in part]
        spread = evenly(samples, len(others))
        axes = [np.linspace(0, 1, nodes)] * len(part)
        grid = np.array(list(itertools.product(*axes))).reshape(nodes ** len(part), len(part))
        means = []
        for first in range(0, len(grid), max(1, _BLOCK // samples)):
            block = grid[first : first + max(1, _BLOCK // samples)]
            points = np.empty((len(block), samples, self._dimension))
            points[..., [*part]] = block[:, None]
            points[..., others] = spread
            heights = self._field.measure(points.reshape(-1, 1, self._dimension), 1)[0]
            means.append(
                heights.reshape(len(heights), len(block), samples).mean(axis=2, dtype=float)
            )
        return np.concatenate(means, axis=1).reshape(len(means[0]), *[nodes] * len(part))


def evenly(count: int, dimension: int) -> Array:
    """Return points that fill the cube evenly: multiples of powers of a generalised golden ratio.

    >>> evenly(4, 1).reshape(-1).round(2).tolist()
    [0.5, 0.12, 0.74, 0.35]
    """
    if not dimension:
        return np.empty((count, 0))
    ratio = 2.0
    for _ in range(64):  # the root of x ** (dimension + 1) = x + 1
        ratio = (1 + ratio) ** (1 / (dimension + 1))
    steps = np.array([math.pow(ratio, -k) for k in range(1, dimension + 1)])
    points: Array = (0.5 + np.arange(count)[:, None] * steps) % 1.0
    return points


class PriceSteps(NamedTuple):
    """A cost that changes at known slots."""

    slots: tuple[int, ...]  # from which on each of the costs holds; the first is 1
    costs: tuple[float, ...]

    def at(self, slots: Array) -> Array:
        """Return the cost in each of these slots."""
        found: Array = np.array(self.costs)[np.searchsorted(self.slots, slots, side="right") - 1]
        return found


class KnownArm(NamedTuple):
    """An arm of a learner, as the oracle knows it."""

    code: int  # in a trace
    helper: int  # the queried learner; -1: an own function
    costs: PriceSteps  # the expected ones
    late: float  # probability that the answer comes too late
    reward: AnyReward | None
    is_by_context: bool = False  # the helper sees the cell only

    def worth(self, accuracy: Array, context: Array, cost: Array) -> Array:
        """Return the value of answers with these accuracies and costs at these contexts."""
        return worths(self.reward, accuracy, cost, context)


class ValueOracle(SiteOracle):
    """The best choices by the expected value of each arm.

    The value of a decision is that of its arm, with the accuracy of the function that answered
    and the expected cost. So neither chance in answers nor chance in costs counts as regret.
    """

    def __init__(
        self, environment: Environment, settings: PolicyRecord, *, played: NetworkConfig, seed: int
    ) -> None:
        """`played` is the network under the policy; its contexts are those of the rewards."""
        setup = unrestricted(environment, settings)
        self._width = width_of(environment, played)
        super().__init__(setup.sites, lipschitz=environment.lipschitz, alpha=environment.alpha)
        self._environment = environment
        self._parts = parts_of(environment, setup)
        self._marginals = Marginals(environment, seed)
        self._functions = sum(environment.counts)
        steps = _prices(environment, setup)
        self._arms = [_arms(environment, setup, k, steps) for k in range(len(setup.sites))]
        self._has_tolls = setup.wiring is not None and bool(setup.wiring.tolls)
        spaces = played.plan.of_width(self._width)
        self._coordinates = [[*spaces[site.spaces[0]]] for site in played.sites]

    def judge(self, trace: Trace, stretch: WorldChunk, log: EncodedLog) -> Losses:
        slots, receivers = len(stretch.points), len(self._receivers)
        contexts = np.asarray(log.contexts).reshape(slots, -1, self._width)
        worth, gap = np.empty((slots, receivers)), np.zeros((slots, receivers))
        best = np.empty((slots, receivers))
        answered = self._answered(trace, stretch).reshape(slots, receivers)
        for column, learner in enumerate(self._receivers):
            stream = learner if len(stretch.accuracy) > 1 else 0
            context = contexts[:, stream, self._coordinates[learner]]
            slot = trace.slot[column::receivers]
            best[:, column] = self._best_worth(learner, stretch, stream, context, slot)
            codes, functions = trace.arm[column::receivers], trace.function[column::receivers]
            owned = self._owned[learner]
            accuracy = stretch.accuracy[stream]
            for arm in self._arms[learner]:
                at = np.flatnonzero(codes == arm.code)
                cost = arm.costs.at(slot[at])
                if self._has_tolls:  # which path was used is not in the trace, its cost is
                    cost = trace.cost[column::receivers][at]
                worth[at, column] = arm.worth(answered[at, column], context[at], cost)
                if arm.helper >= 0 and len(at):
                    is_helped = (functions[at] < owned.start) | (functions[at] >= owned.stop)
                    most = arm.worth(
                        self._at_best(arm, accuracy[:, at], self._usual), context[at], cost
                    )
                    gap[at, column] = is_helped * (most - worth[at, column])
        gap[trace.phase.reshape(gap.shape) != Phase.EXPLOIT] = 0
        lost = (best - worth - gap).reshape(-1)
        cause = self._causes(trace, lost)
        return Losses(receivers, cause, lost, gap.reshape(-1), float(trace.cost.sum()))

    def _answered(self, trace: Trace, stretch: WorldChunk) -> Array:
        """Return the accuracy of each answer, given its context."""
        slots = np.repeat(np.arange(len(stretch.points)), len(self._receivers))
        streams = np.tile(self._receivers, len(stretch.points))
        streams = streams if len(stretch.accuracy) > 1 else np.zeros_like(streams)
        functions = np.minimum(trace.function, self._functions - 1)
        accuracy: Array = stretch.accuracy[streams, functions, slots].astype(np.float64)
        remembered = np.flatnonzero(trace.function >= self._functions)
        if len(remembered):
            classes, labelled = self._environment.classes, stretch.labelled
            assert classes is not None
            assert labelled is not None
            usual = labelled.usual[slots[remembered]]
            accuracy[remembered] = chances(classes, usual, trace.prediction[remembered])
        return accuracy

    def _at_best(self, arm: KnownArm, accuracy: Array, usual: float) -> Array:
        """Return the accuracy of an arm with its best answer, from those of all functions.

        `usual` is the probability of the most probable label.
        """
        if arm.is_by_context:
            return np.full(accuracy.shape[1], usual)
        own = (
            accuracy[arm.code] if arm.helper < 0 else accuracy[self._owned[arm.helper]].max(axis=0)
        )
        best: Array = own.astype(np.float64)
        return best

    def _best_worth(
        self, learner: int, stretch: WorldChunk, stream: int, context: Array, slot: Array
    ) -> Array:
        """Return the largest value of an arm in each slot, over all that the learner may see."""
        values = []
        for accuracy, usual in self._known(learner, stretch, stream):
            stand_in = accuracy[self._owned[learner]].max(axis=0)
            for arm in self._arms[learner]:
                most = self._at_best(arm, accuracy, usual)
                expected = (1 - arm.late) * most + arm.late * stand_in
                values.append(arm.worth(expected, context, arm.costs.at(slot)))
        best: Array = np.max(values, axis=0)
        return best

    def _known(
        self, learner: int, stretch: WorldChunk, stream: int
    ) -> Iterator[tuple[Array, float]]:
        """Yield, per context space, the accuracies of all functions and of the best label."""
        for part in self._parts[learner]:
            if part is None:
                yield stretch.accuracy[stream], self._usual
                continue
            classes = self._environment.classes
            usual = self._usual if 0 in part or classes is None else 1 / classes.number
            yield self._marginals.at(part, stretch.points[:, stream]), usual

    @property
    def _usual(self) -> float:
        classes = self._environment.classes
        return 0.0 if classes is None else classes.usual


def parts_of(environment: Environment, setup: NetworkConfig) -> list[list[Part | None]]:
    """Return, per learner and context space, the coordinates that it sees; None: all of them.

    Time is not one of them: the oracle always knows it.
    """
    names = environment.coordinates
    everything = tuple(range(environment.dimension))
    if not setup.plan.entries:
        return [[None] for _ in setup.sites]
    found: list[list[Part | None]] = []
    for site in setup.sites:
        spaces = [[setup.plan.entries[k] for k in setup.plan.spaces[own]] for own in site.spaces]
        parts = [
            tuple(sorted(names.index(entry) for entry in space if isinstance(entry, str)))
            for space in spaces
        ]
        found.append([None if part == everything else part for part in parts])
    return found


def oracle_of(
    environment: Environment, settings: PolicyRecord, played: NetworkConfig, *, seed: int
) -> SiteOracle:
    """Return the oracle of an environment for the values of a policy."""
    setup = unrestricted(environment, settings)
    sites = setup.sites
    is_general = (setup.wiring is not None and setup.wiring.is_moving) or any(
        site.rewards or site.cost_columns or site.context_peers or site.answer_wait is not None
        for site in sites
    )
    parts = parts_of(environment, setup)
    check_parts(environment, setup, parts)
    if is_general or any(own != [None] for own in parts):
        return ValueOracle(environment, settings, played=played, seed=seed)
    return Oracle(
        sites,
        lipschitz=environment.lipschitz,
        alpha=environment.alpha,
        dimension=None if played.plan.entries else environment.dimension,
    )


def check_parts(
    environment: Environment, setup: NetworkConfig, parts: Sequence[Sequence[Part | None]]
) -> None:
    """Raise `ConfigError` if accuracies given a part of the coordinates are not known."""
    where = f"environment {environment.name!r}"
    for site, own in zip(setup.sites, parts, strict=True):
        slopes = any(not isinstance(one, Reward) or one.context for one in site.rewards)
        if len(own) > 1 and slopes:
            raise ConfigError(
                f"{where}: a reward that depends on the context (reward.context, or a function) "
                "cannot be combined with candidates; remove one of them"
            )
    if all(part is None for own in parts for part in own):
        return
    what = "sites that see a part of the coordinates (context, candidates)"
    given = {
        "drift": environment.drift,
        "environment": environment.entry,
        "log": environment.log,
        "regions": environment.regions,
        "case": environment.case,
        "arrivals": environment.process.arrivals != "uniform",
    }
    for key, value in given.items():
        if value:
            raise ConfigError(f"{where} has {what}, and {key}; remove one of them")
    longest = max(len(part) for own in parts for part in own if part is not None)
    if longest > MOST_COORDINATES:
        raise ConfigError(
            f"{where} has {what} with {longest} of {environment.dimension} coordinates; use at "
            f"most {MOST_COORDINATES}, or all of them"
        )


def _prices(environment: Environment, setup: NetworkConfig) -> dict[Pair, PriceSteps]:
    """Return the prices of peers by asker and peer, where links change or have random costs."""
    wiring = setup.wiring
    if wiring is None or not wiring.is_moving:
        return {}
    links = wiring.links.copy()
    means = {name: (column.low + column.high) / 2 for name, column in environment.columns.items()}
    links.apply(Change(1, *pair, means[column]) for pair, column in wiring.tolls.items())
    first = links.prices()
    later = price_changes(links, wiring.changes)
    found = {pair: [(1, first.get(pair, math.inf))] for pair in wiring.reach}
    for slot, asker, peer, price in later:
        found[asker, peer].append((slot, math.inf if price is None else price))
    steps = {pair: zip(*moves, strict=True) for pair, moves in found.items()}
    return {pair: PriceSteps(*moves) for pair, moves in steps.items()}


def _arms(
    environment: Environment, setup: NetworkConfig, place: int, prices: Mapping[Pair, PriceSteps]
) -> list[KnownArm]:
    site, learners = setup.sites[place], len(setup.sites)
    functions, first = sum(environment.counts), sum(environment.counts[:place])
    columns = [environment.columns[name] if name else None for name in site.cost_columns]
    means = [0.0 if column is None else (column.low + column.high) / 2 for column in columns]
    codes = [
        *range(first, first + len(site.functions)),
        *(functions + peer for peer in site.peers),
        *(functions + learners + peer for peer in site.context_peers),
    ]
    seen = len(site.functions) + len(site.peers)
    return [
        KnownArm(
            code=codes[number],
            helper=helper,
            costs=_steps(setup, place, number, prices, more=means[number] if means else 0.0),
            late=_late(environment, setup, place, helper) if number < seen else 0.0,
            reward=site.rewards[number] if site.rewards else None,
            is_by_context=number >= seen,
        )
        for number, helper in enumerate(site.behind)
    ]


def _steps(
    setup: NetworkConfig,
    place: int,
    arm: int,
    prices: Mapping[Pair, PriceSteps],
    *,
    more: float,
) -> PriceSteps:
    """Return the expected cost of an arm, `more` than the fixed one."""
    site = setup.sites[place]
    is_peer = len(site.functions) <= arm < len(site.functions) + len(site.peers)
    if not prices or not is_peer:
        return PriceSteps((1,), (site.costs[arm] + more,))
    helper = setup.sites[site.behind[arm]]
    carried = helper.serving_cost if setup.settings.carry_serving_costs else 0.0
    slots, costs = prices[site.name, helper.name]
    return PriceSteps(slots, tuple(cost + carried + more for cost in costs))


def _late(environment: Environment, setup: NetworkConfig, asker: int, helper: int) -> float:
    """Return the probability that the helper's answer comes after the asker's wait."""
    wait, delay = setup.sites[asker].answer_wait, setup.sites[helper].answer_delay
    if wait is None or helper < 0:
        return 0.0
    if not isinstance(delay, str):
        return float(delay > wait)
    column = environment.columns[delay]
    slots = column.high - column.low + 1
    return float(min(max(0.0, column.high - wait), slots) / slots)
