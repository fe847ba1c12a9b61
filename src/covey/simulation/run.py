"""One run: a policy in a world, and its regret by cause."""

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey.bandit.partitions import side
from covey.bandit.settings import Settings
from covey.config import LearnerSpec, LearnerTable, NetworkConfig, Tables, assemble
from covey.data.logs import EncodedLog, Trace
from covey.errors import ConfigError
from covey.replay.engine import start
from covey.simulation.environment import Environment
from covey.simulation.world import World, WorldChunk
from covey.types import PHASES, Array, Label, Phase


class Run(msgspec.Struct, frozen=True):
    """Result of one policy in one simulated environment."""

    policy: str
    environment: str
    seed: int
    slots: list[int]  # checkpoints
    regret: dict[str, list[float]]  # cause -> cumulative at the checkpoints, over all learners
    learners: int  # with arrivals
    errors: float  # share of the decisions
    cost: float  # mean paid per decision
    phases: dict[str, float]  # share of the decisions
    messages: dict[str, float]  # kind -> per 1,000 decisions
    seconds: float
    # Share of decisions that queried a falsely reporting learner: overall, and in the worst cell
    # (of one learner) with at least 1,000 decisions.
    to_liars: dict[str, float] = {}
    alarms: int = 0  # of the change detection, over all learners


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
        self, sites: Sequence[LearnerSpec], *, lipschitz: float, alpha: float, dimension: int
    ) -> None:
        counts = [len(site.functions) for site in sites]
        ends = itertools.accumulate(counts)
        # Per learner: its own functions, the cost of each function, and the price of each peer.
        self._owned = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]
        self._costs = np.zeros((len(sites), sum(counts)), np.float32)
        self._prices: list[dict[int, float]] = []
        for index, (site, count) in enumerate(zip(sites, counts, strict=True)):
            rounded = [round(cost * 2**22) / 2**22 for cost in site.costs]
            prices = dict(zip(site.peers, rounded[count:], strict=True))
            self._prices.append(prices)
            self._costs[index, self._owned[index]] = rounded[:count]
            for peer, price in prices.items():
                self._costs[index, self._owned[peer]] = price
        self._receivers = tuple(index for index, site in enumerate(sites) if site.receives)
        self._smoothness = (lipschitz, alpha, dimension)
        self._limits: dict[Label, float] = {}

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


@lru_cache(maxsize=1)
def _first_indices(shape: tuple[int, ...], receivers: tuple[int, ...]) -> Array:
    """Return the flat index of function 0, by slot and then by learner."""
    streams, functions, slots = shape
    stream = np.array(receivers) if streams > 1 else np.zeros(len(receivers), np.int64)
    return (np.arange(slots)[:, None] + stream * (functions * slots)).reshape(-1)


MOST_SLOTS = 65_536  # in one chunk
_MOST_ANSWERS = 2**19  # in one chunk, of all functions on all streams
_MANY = 1_000  # decisions of a learner in a cell that a share needs to be meaningful


def play(
    environment: Environment,
    settings: Settings,
    *,
    seed: int,
    horizon: int,
    checkpoints: Sequence[int],
) -> Run:
    """Run a policy in the world of `seed` and return its regret at the checkpoints."""
    began = perf_counter()
    _keep_memory()
    check(environment, settings, horizon, checkpoints)
    world = World(environment, seed=seed, horizon=horizon)
    setup = network(environment, settings)
    game = start(setup, setup.sites, environment.dimension, [0, 1])
    sums = _Sums(environment, settings, horizon)
    curve = []
    for end in [*checkpoints, horizon]:
        for slots in lengths(environment, end - world.slots):
            chunk = world.draw(slots)
            sums.add(game.play(log_of(chunk)), chunk)
        curve.append(sums.regret.sum(axis=0))
    by_cause = np.reshape(curve[:-1], (-1, len(CAUSES))).T
    return Run(
        policy=settings.preset,
        environment=environment.name,
        seed=seed,
        slots=list(checkpoints),
        regret=dict(zip(CAUSES, by_cause.tolist(), strict=True)),
        learners=environment.receivers,
        **sums.shares(),
        alarms=sum(map(len, game.alarms())),
        seconds=perf_counter() - began,
    )


def network(environment: Environment, settings: Settings) -> NetworkConfig:
    """Return the replay configuration of an environment under a policy."""
    names = environment.names
    members = [
        LearnerTable(
            name=name,
            functions=[f"{name}.{k + 1}" for k in range(count)],
            function_costs=[environment.function_cost(place, k) for k in range(count)],
            free=environment.free,
            arrivals=place < environment.receivers,
            peers={
                peer: price
                for other, peer in enumerate(names)
                if other != place and (price := environment.price(place, other)) <= 1
            },
        )
        for place, (name, count) in enumerate(zip(names, environment.counts, strict=True))
    ]
    if settings.check_claims is None and environment.liars:
        settings = msgspec.structs.replace(settings, check_claims=True)
    setup = assemble(Tables(settings, members))
    are_apart = environment.streams != 1
    sites = tuple(
        site._replace(stream=place * are_apart, reports_falsely=site.name in environment.liars)
        for place, site in enumerate(setup.sites)
    )
    return setup._replace(sites=sites)


def log_of(stretch: WorldChunk) -> EncodedLog:
    """Return a chunk as rows of a log: the label is always 1, a right function predicts 1."""
    slots = len(stretch.points)
    return EncodedLog(
        contexts=stretch.points.reshape(-1).data,
        predictions=stretch.right.reshape(-1, slots).data,
        labels=np.ones(slots, np.int32).data,
        at=None,
        delays=None if stretch.delays is None else stretch.delays.data,
        shown=None if stretch.shown is None else stretch.shown.data,
    )


class _Sums:
    """Sums over the chunks of a run."""

    def __init__(self, environment: Environment, settings: Settings, horizon: int) -> None:
        # The oracle may ask any peer, even if the policy restricts the askers.
        reading = msgspec.structs.replace(settings.reading, askers="all")
        unrestricted = msgspec.structs.replace(settings, reading=reading)
        self._oracle = Oracle(
            network(environment, unrestricted).sites,
            lipschitz=environment.lipschitz,
            alpha=environment.alpha,
            dimension=environment.dimension,
        )
        self._horizon = horizon
        self._wait = math.inf if settings.label_wait is None else settings.label_wait
        self._functions = sum(environment.counts)
        self.regret = np.zeros((environment.receivers, len(CAUSES)))
        self._paid = 0.0
        self._phases = np.zeros(len(PHASES), np.int64)
        self._errors = self._requests = self._labels = 0
        self._visits = _Visits(environment)

    def add(self, trace: Trace, stretch: WorldChunk) -> None:
        losses = self._oracle.losses(trace, stretch.accuracy)
        self.regret += losses.sums()
        self._paid += losses.paid
        self._phases += [np.count_nonzero(trace.phase == phase) for phase in range(len(PHASES))]
        self._errors += int(np.count_nonzero(trace.correct == 0))
        is_forwarded = (trace.arm >= self._functions).reshape(len(stretch.points), -1)
        self._requests += int(np.count_nonzero(is_forwarded))
        if stretch.shown is not None:
            is_forwarded &= stretch.shown[:, : is_forwarded.shape[1]] > 0
        if stretch.delays is not None:
            slots = np.arange(stretch.first_slot, stretch.first_slot + len(stretch.delays))
            arrives = (stretch.delays <= self._wait) & (slots + stretch.delays <= self._horizon)
            is_forwarded &= arrives[:, None]
        self._labels += int(np.count_nonzero(is_forwarded))
        self._visits.add(trace)

    def shares(self) -> dict[str, Any]:
        """Return the fields of a run that are relative to its decisions."""
        decisions = int(self._phases.sum())
        return {
            "errors": self._errors / decisions,
            "cost": self._paid / decisions,
            "phases": dict(zip(PHASES, (self._phases / decisions).tolist(), strict=True)),
            "messages": {
                "requests": 1_000 * self._requests / decisions,
                "labels": 1_000 * self._labels / decisions,
            },
            "to_liars": self._visits.shares(),
        }


class _Visits:
    """Requests to false reporters, per cell and learner."""

    def __init__(self, environment: Environment) -> None:
        functions = sum(environment.counts)
        self._liars = [functions + environment.names.index(liar) for liar in environment.liars]
        self._learners = environment.receivers
        # Cell and learner -> decisions, and those of a false reporter.
        self._counts: dict[int, Array] = {}

    def add(self, trace: Trace) -> None:
        if not self._liars:
            return
        learner = np.arange(len(trace.cell)) % self._learners
        cells, inverse = np.unique(trace.cell * self._learners + learner, return_inverse=True)
        is_lie = np.isin(trace.arm, self._liars)
        counts = np.stack([np.bincount(inverse), np.bincount(inverse, is_lie)], axis=1)
        for cell, count in zip(cells.tolist(), counts, strict=True):
            self._counts[cell] = self._counts.get(cell, 0) + count

    def shares(self) -> dict[str, float]:
        if not self._counts:
            return {}
        decisions, asked = np.array(list(self._counts.values())).T
        often = decisions >= _MANY
        return {
            "overall": float(asked.sum() / decisions.sum()),
            "worst cell": float((asked[often] / decisions[often]).max()) if often.any() else 0.0,
        }


def lengths(environment: Environment, slots: int) -> Iterator[int]:
    """Yield the chunk lengths for so many slots."""
    answers = environment.streams * sum(environment.counts)
    most = min(MOST_SLOTS, max(1_024, _MOST_ANSWERS // answers))
    for first in range(0, slots, most):
        yield min(most, slots - first)


def check(
    environment: Environment, settings: Settings, horizon: int, checkpoints: Sequence[int]
) -> None:
    """Raise `ConfigError` if a policy cannot run in an environment for so many slots."""
    if "false-labels" in environment.liars.values():
        raise ConfigError(
            f"environment {environment.name!r}: liars with false-labels cannot be simulated yet; "
            "remove them"
        )
    if isinstance(settings.horizon, int) and settings.horizon < horizon:
        raise ConfigError(
            f"the policy's horizon is {settings.horizon} slots, but the run has {horizon}; raise "
            "horizon in [policy]"
        )
    for before, slot in itertools.pairwise([0, *checkpoints]):
        if not before < slot <= horizon:
            raise ConfigError(
                f"checkpoint {slot} follows {before} in a run of {horizon} slots; checkpoints must "
                "be slots of the run in increasing order"
            )


def _keep_memory() -> None:
    """Keep freed arrays in the process, since every chunk needs the same memory.

    glibc returns large blocks to the system at once, and page faults then cost more than filling
    the arrays; freeing one larger block raises that threshold.
    """
    np.empty(31 * 2**20, np.uint8)
