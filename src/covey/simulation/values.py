"""The oracle of general values: rewards, random costs, busy peers, peers without the data."""

from typing import NamedTuple

import numpy as np

from covey.bandit.settings import Settings
from covey.config import NetworkConfig
from covey.data.logs import EncodedLog, Trace
from covey.kernel.rules import Reward
from covey.simulation.environment import Environment
from covey.simulation.labels import chances
from covey.simulation.oracle import CauseOracle, Losses, Oracle
from covey.simulation.sites import unrestricted, width_of
from covey.simulation.world import WorldChunk
from covey.types import Array, Phase


class KnownArm(NamedTuple):
    """An arm of a learner, as the oracle knows it."""

    code: int  # in a trace
    helper: int  # the queried learner; -1: an own function
    cost: float  # the expected one
    late: float  # probability that the answer comes too late
    reward: Reward | None
    is_by_context: bool = False  # the helper sees the cell only

    def worth(self, accuracy: Array, context: Array) -> Array:
        """Return the value of answers with these accuracies at these contexts."""
        reward = self.reward
        if reward is None:
            return accuracy - self.cost
        slope = 1 + context @ np.array(reward.context) if reward.context else 1.0
        worth: Array = reward.accuracy * accuracy**reward.power - reward.cost * self.cost * slope
        return worth


class ValueOracle(CauseOracle):
    """The best choices by the expected value of each arm.

    The value of a decision is that of its arm, with the accuracy of the function that answered
    and the expected cost. So neither chance in answers nor chance in costs counts as regret.
    """

    def __init__(
        self, environment: Environment, settings: Settings, *, played: NetworkConfig
    ) -> None:
        """`played` is the network under the policy; its contexts are those of the rewards."""
        setup = unrestricted(environment, settings)
        self._width = width_of(environment, played)
        super().__init__(
            setup.sites,
            lipschitz=environment.lipschitz,
            alpha=environment.alpha,
            dimension=self._width,
        )
        self._environment = environment
        self._functions = sum(environment.counts)
        self._arms = [_arms(environment, setup, place) for place in range(len(setup.sites))]
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
            accuracy = stretch.accuracy[stream].astype(np.float64)
            context = contexts[:, stream, self._coordinates[learner]]
            known = [self._at_best(arm, accuracy, stretch) for arm in self._arms[learner]]
            best[:, column] = self._best_worth(learner, known, accuracy, context)
            codes = trace.arm[column::receivers]
            owned = self._owned[learner]
            for arm, most in zip(self._arms[learner], known, strict=True):
                at = np.flatnonzero(codes == arm.code)
                worth[at, column] = arm.worth(answered[at, column], context[at])
                if arm.helper >= 0:
                    functions = trace.function[column::receivers][at]
                    is_helped = (functions < owned.start) | (functions >= owned.stop)
                    possible = arm.worth(most[at], context[at])
                    gap[at, column] = is_helped * (possible - worth[at, column])
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

    def _at_best(self, arm: KnownArm, accuracy: Array, stretch: WorldChunk) -> Array:
        """Return the accuracy of an arm in each slot, with its best answer."""
        if arm.is_by_context:
            assert self._environment.classes is not None
            return np.full(len(stretch.points), self._environment.classes.usual)
        if arm.helper < 0:
            own: Array = accuracy[arm.code]
            return own
        best: Array = accuracy[self._owned[arm.helper]].max(axis=0)
        return best

    def _best_worth(
        self, learner: int, known: list[Array], accuracy: Array, context: Array
    ) -> Array:
        """Return the largest value of an arm in each slot."""
        stand_in = accuracy[self._owned[learner]].max(axis=0)
        values = [
            arm.worth((1 - arm.late) * most + arm.late * stand_in, context)
            for arm, most in zip(self._arms[learner], known, strict=True)
        ]
        best: Array = np.max(values, axis=0)
        return best


def oracle_of(environment: Environment, settings: Settings, played: NetworkConfig) -> CauseOracle:
    """Return the oracle of an environment for the values of a policy."""
    setup = unrestricted(environment, settings)
    sites = setup.sites
    is_general = any(
        site.rewards or site.cost_columns or site.context_peers or site.answer_wait is not None
        for site in sites
    )
    if is_general:
        return ValueOracle(environment, settings, played=played)
    return Oracle(
        sites,
        lipschitz=environment.lipschitz,
        alpha=environment.alpha,
        dimension=width_of(environment, played),
    )


def _arms(environment: Environment, setup: NetworkConfig, place: int) -> list[KnownArm]:
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
            cost=cost + (means[number] if means else 0.0),
            late=_late(environment, setup, place, helper) if number < seen else 0.0,
            reward=site.rewards[number] if site.rewards else None,
            is_by_context=number >= seen,
        )
        for number, (helper, cost) in enumerate(zip(site.behind, site.costs, strict=True))
    ]


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
