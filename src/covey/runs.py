"""Run one policy in one environment: regret over time by cause, costs and messages.

Counted messages are requests to peers and labels forwarded to them, not queries for arrivals.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from covey.config import Member, ReplayConfig, Tables, assemble
from covey.encoding import Log
from covey.environments import Environment
from covey.errors import ConfigError
from covey.games import start
from covey.regret import CAUSES, Oracle
from covey.settings import Settings
from covey.traces import Trace
from covey.types import PHASES, Array, Run
from covey.worlds import Stretch, World

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
            sums.add(game.play(log(chunk)), chunk)
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
        seconds=perf_counter() - began,
    )


def network(environment: Environment, settings: Settings) -> ReplayConfig:
    """Return the replay configuration of an environment under a policy."""
    names = environment.names
    members = [
        Member(
            name=name,
            functions=[f"{name}.{k + 1}" for k in range(count)],
            function_costs=[environment.function_cost(place, k) for k in range(count)],
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
    is_shared = environment.streams == 1
    sites = tuple(
        site._replace(stream=0 if is_shared else place, lies=site.name in environment.liars)
        for place, site in enumerate(setup.sites)
    )
    return setup._replace(sites=sites)


def log(stretch: Stretch) -> Log:
    """Return a chunk as rows of a log: the label is always 1, a right function predicts 1."""
    slots = len(stretch.points)
    return Log(
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

    def add(self, trace: Trace, stretch: Stretch) -> None:
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
        self._counts: dict[
            int, Array
        ] = {}  # cell and learner -> decisions, and those of a false reporter

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
        decisions, lies = np.array(list(self._counts.values())).T
        often = decisions >= _MANY
        return {
            "overall": float(lies.sum() / decisions.sum()),
            "worst cell": float((lies[often] / decisions[often]).max()) if often.any() else 0.0,
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
