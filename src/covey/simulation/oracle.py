"""Oracles: the best choices when accuracies and costs are known, and what decisions lose."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from covey.bandit.links import Change, Pair, price_changes
from covey.bandit.partitions import places_of, side
from covey.bandit.policies import AnyReward, PolicyRecord, worths
from covey.config import NetworkConfig
from covey.data.logs import EncodedLog, Trace
from covey.errors import ConfigError
from covey.kernel.rules import Reward
from covey.simulation.environment import Environment
from covey.simulation.sites import network, width_of
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

    def sums(self) -> Array:
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
        means = self._tables[part]
        if not part:
            return np.repeat(means[:, None], len(points), axis=1)
        steps = _NODES[len(part)] - 1
        low = [np.minimum(points[:, k] * steps, steps - 1).astype(np.int64) for k in part]
        share = [points[:, k] * steps - first for k, first in zip(part, low, strict=True)]
        total = np.zeros((len(means), len(points)))
        for corner in itertools.product((0, 1), repeat=len(part)):
            weight = np.ones(len(points))
            for is_upper, above in zip(corner, share, strict=True):
                weight *= above if is_upper else 1 - above
            index = tuple(first + step for first, step in zip(low, corner, strict=True))
            total += weight * means[(slice(None), *index)]
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

    def at(self, slots: Array) -> Any:
        """Return the cost in each of the slots; one number if it never changes."""
        if len(self.costs) == 1:
            return self.costs[0]
        return np.array(self.costs)[np.searchsorted(self.slots, slots, side="right") - 1]


class KnownArm(NamedTuple):
    """An arm of a learner, as the oracle knows it."""

    code: int  # in a trace
    helper: int  # the queried learner; -1: an own function
    costs: PriceSteps  # the expected ones
    late: float  # probability that the answer comes too late
    reward: AnyReward | None
    is_by_context: bool = False  # the helper sees the cell only

    def worth(self, accuracy: Array, context: Array, cost: Any) -> Array:
        return worths(self.reward, accuracy, cost, context)


class Seen(NamedTuple):
    """What the oracle knows of the instances of a learner, in one of its context spaces."""

    accuracy: Array  # function, slot
    tops: Array  # learner, slot -> accuracy of its best function
    usual: float  # probability of the most probable label

    def at_best(self, arm: KnownArm) -> Array:
        """Return the accuracy of an arm with its best answer."""
        if arm.is_by_context:
            return np.full(self.accuracy.shape[1], self.usual)
        best: Array = self.accuracy[arm.code] if arm.helper < 0 else self.tops[arm.helper]
        return best.astype(np.float64)


class Oracle:
    """The best choices by the expected value of each arm, and the causes of losses.

    The value of a decision is that of its arm, with the accuracy of the function that answered
    and the expected cost. So neither chance in answers nor chance in costs counts as regret.
    """

    def __init__(
        self, environment: Environment, settings: PolicyRecord, *, played: NetworkConfig, seed: int
    ) -> None:
        """`played` is the network under the policy; its contexts are those of the rewards."""
        # It may ask any peer, even if the policy restricts that.
        setup = network(environment, settings.unrestricted())
        self._environment = environment
        self._dimension = None if played.plan.entries else environment.dimension
        self._limits: dict[Label, float] = {}
        ends = [0, *itertools.accumulate(environment.counts)]
        self._owned = [slice(*pair) for pair in itertools.pairwise(ends)]
        self._functions = ends[-1]
        self._receivers = [index for index, site in enumerate(setup.sites) if site.receives]
        self._parts = parts_of(environment, setup)
        check_parts(environment, setup, self._parts)
        self._marginals = Marginals(environment, seed)
        steps = _prices(environment, setup)
        self._arms = [_arms(environment, setup, k, steps) for k in range(len(setup.sites))]
        self._has_tolls = setup.wiring is not None and bool(setup.wiring.tolls)
        self._width = width_of(environment, played)
        spaces = played.plan.of_width(self._width)
        self._coordinates = [[*spaces[site.spaces[0]]] for site in played.sites]

    def judge(self, trace: Trace, stretch: WorldChunk, log: EncodedLog) -> Losses:
        """Return the losses of the decisions in `trace`."""
        shape = (len(stretch.points), len(self._receivers))
        contexts = np.asarray(log.contexts).reshape(shape[0], -1, self._width)
        best, worth, gap = np.zeros((3, *shape))
        answered = self._answered(trace, stretch).reshape(shape)
        codes, functions, slots = (
            column.reshape(shape) for column in (trace.arm, trace.function, trace.slot)
        )
        everything = [self._seen(accuracy, self._usual) for accuracy in stretch.accuracy]
        for column, learner in enumerate(self._receivers):
            stream = learner if len(everything) > 1 else 0
            context = contexts[:, stream, self._coordinates[learner]]
            seen, owned = everything[stream], self._owned[learner]
            arms = {arm.code: arm for arm in self._arms[learner]}
            spaces = self._spaces(learner, seen, stretch.points[:, stream])
            best[:, column] = self._best(learner, spaces, context, slots[:, column])
            for code in np.flatnonzero(np.bincount(codes[:, column])).tolist():
                at, arm = np.flatnonzero(codes[:, column] == code), arms[code]
                # Which path was used is not in the trace, its cost is.
                cost: Any = arm.costs.at(slots[at, column])
                if self._has_tolls:
                    cost = trace.cost.reshape(shape)[at, column]
                worth[at, column] = arm.worth(answered[at, column], context[at], cost)
                if arm.helper >= 0:
                    used = functions[at, column]
                    is_helped = (used < owned.start) | (used >= owned.stop)
                    most = arm.worth(seen.at_best(arm)[at], context[at], cost)
                    gap[at, column] = is_helped * (most - worth[at, column])
        gap[trace.phase.reshape(shape) != Phase.EXPLOIT] = 0
        lost = (best - worth - gap).reshape(-1)
        cause = self._causes(trace, lost)
        return Losses(shape[1], cause, lost, gap.reshape(-1))

    def _answered(self, trace: Trace, stretch: WorldChunk) -> Array:
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

    def _best(self, learner: int, spaces: Iterable[Seen], context: Array, slots: Array) -> Array:
        best = np.full(len(slots), -math.inf)
        for seen in spaces:
            for arm in self._arms[learner]:
                expected = seen.at_best(arm)
                if arm.late:
                    expected = (1 - arm.late) * expected + arm.late * seen.tops[learner]
                worth = arm.worth(expected, context, arm.costs.at(slots))
                np.maximum(best, worth, out=best)
        return best

    def _seen(self, accuracy: Array, usual: float) -> Seen:
        tops = np.stack([accuracy[own].max(axis=0) for own in self._owned])
        return Seen(accuracy, tops, usual)

    def _spaces(self, learner: int, everything: Seen, points: Array) -> Iterator[Seen]:
        """Yield what is known in each context space of a learner."""
        classes = self._environment.classes
        for part in self._parts[learner]:
            if part is None:
                yield everything
            else:
                usual = self._usual if 0 in part or classes is None else 1 / classes.number
                yield self._seen(self._marginals.at(part, points), usual)

    @property
    def _usual(self) -> float:
        classes = self._environment.classes
        return 0.0 if classes is None else classes.usual

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
            world, name = self._environment, str(cell).rpartition("/")[2]
            diagonal = math.sqrt(self._dimension or len(places_of(name))) * side(name)
            self._limits[cell] = 2 * world.lipschitz * diagonal**world.alpha
        return self._limits[cell]


def parts_of(environment: Environment, setup: NetworkConfig) -> list[list[Part | None]]:
    """Return, per learner and context space, the coordinates that it sees; None: all of them.

    Time is not one of them: the oracle always knows it.
    """
    names = environment.coordinates
    everything = tuple(range(environment.dimension))
    if not setup.plan.entries:
        return [[None] for _ in setup.sites]
    every: list[list[Part | None]] = []
    for site in setup.sites:
        spaces = [[setup.plan.entries[k] for k in setup.plan.spaces[own]] for own in site.spaces]
        parts = [
            tuple(sorted(names.index(entry) for entry in space if isinstance(entry, str)))
            for space in spaces
        ]
        every.append([None if part == everything else part for part in parts])
    return every


def check_parts(
    environment: Environment, setup: NetworkConfig, parts: Sequence[Sequence[Part | None]]
) -> None:
    """Raise `ConfigError` if accuracies given a part of the coordinates are not known."""
    where = f"environment {environment.name!r}"
    for site, own in zip(setup.sites, parts, strict=True):
        slopes = any(not isinstance(reward, Reward) or reward.context for reward in site.rewards)
        if len(own) > 1 and slopes:
            raise ConfigError(
                f"{where}: a reward that depends on the context (reward.context, or a function) "
                "cannot be combined with candidates; remove one of them"
            )
    if all(part is None for own in parts for part in own):
        return
    what = "sites that see a part of the coordinates (context, candidates)"
    others = {
        "drift": environment.drift,
        "environment": environment.entry,
        "case": environment.case,
        "arrivals": environment.process.arrivals != "uniform",
    }
    for key, value in others.items():
        if value:
            raise ConfigError(f"{where} has {what}, and {key}; remove one of them")
    longest = max(len(part) for own in parts for part in own if part is not None)
    if longest > MOST_COORDINATES:
        raise ConfigError(
            f"{where} has {what} with {longest} of {environment.dimension} coordinates; use at "
            f"most {MOST_COORDINATES}, or all of them"
        )


def _prices(environment: Environment, setup: NetworkConfig) -> dict[Pair, PriceSteps]:
    wiring = setup.wiring
    if wiring is None or not wiring.is_moving:
        return {}
    links = deepcopy(wiring.links)
    tolls = {pair: environment.columns[name].mean for pair, name in wiring.tolls.items()}
    links.apply(Change(1, *pair, mean) for pair, mean in tolls.items())
    first = links.prices()
    later = price_changes(links, wiring.changes)
    moves_of = {pair: [(1, first.get(pair, math.inf))] for pair in wiring.reach}
    for slot, asker, peer, price in later:
        moves_of[asker, peer].append((slot, math.inf if price is None else price))
    steps = {pair: zip(*moves, strict=True) for pair, moves in moves_of.items()}
    return {pair: PriceSteps(*moves) for pair, moves in steps.items()}


def _arms(
    environment: Environment, setup: NetworkConfig, place: int, prices: Mapping[Pair, PriceSteps]
) -> list[KnownArm]:
    site, learners = setup.sites[place], len(setup.sites)
    functions, first = sum(environment.counts), sum(environment.counts[:place])
    means = [environment.columns[name].mean if name else 0.0 for name in site.cost_columns]
    own = len(site.functions)
    seen = own + len(site.peers)
    codes = [
        *range(first, first + own),
        *(functions + peer for peer in site.peers),
        *(functions + learners + peer for peer in site.context_peers),
    ]
    arms = []
    for number, helper in enumerate(site.behind):
        more = means[number] if means else 0.0
        steps = PriceSteps((1,), (site.costs[number],))
        if prices and own <= number < seen:
            peer = setup.sites[helper]
            more += peer.serving_cost * setup.settings.carry_serving_costs
            steps = prices[site.name, peer.name]
        arms.append(
            KnownArm(
                code=codes[number],
                helper=helper,
                costs=steps._replace(costs=tuple(_rounded(cost + more) for cost in steps.costs)),
                late=_late(environment, setup, place, helper) if number < seen else 0.0,
                reward=site.rewards[number] if site.rewards else None,
                is_by_context=number >= seen,
            )
        )
    return arms


def _rounded(cost: float) -> float:
    """Return a multiple of 2**-22, as accuracies are: so sums are exact in any order."""
    return cost if cost == math.inf else round(cost * 2**22) / 2**22


def _late(environment: Environment, setup: NetworkConfig, asker: int, helper: int) -> float:
    """Return the probability that the helper's answer comes after the asker's wait."""
    wait, delay = setup.sites[asker].answer_wait, setup.sites[helper].answer_delay
    if wait is None or helper < 0:
        return 0.0
    if not isinstance(delay, str):
        return float(delay > wait)
    return environment.columns[delay].share_above(wait)
