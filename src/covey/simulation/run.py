"""One run: a policy in a world, and its regret by cause."""

import itertools
import math
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from covey.bandit.policies import PolicyRecord
from covey.config import NetworkConfig
from covey.data.contexts import Slot
from covey.data.logs import Trace
from covey.errors import ConfigError
from covey.replay.engine import ReplayEngine
from covey.replay.outcome import Account, Dealings, settle_accounts
from covey.replay.voting import EnsembleReplay
from covey.simulation.environment import Environment
from covey.simulation.oracle import CAUSES, Losses, Oracle, check_parts, parts_of
from covey.simulation.sites import WorldLog, log_of, network, width_of
from covey.simulation.world import World, WorldChunk
from covey.types import BY_CONTEXT, PHASES, Array

__all__ = ["CAUSES", "Losses", "Oracle", "Run", "log_of", "network", "play"]


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
    accounts: dict[str, Account] = {}  # of each learner, in networks of at most 1,000
    # With an ensemble, shares of errors: its own, its own where all members exploited, and those
    # of its best member.
    ensemble: dict[str, float] = {}


MOST_SLOTS = 65_536  # in one chunk
_MOST_ANSWERS = 2**19  # in one chunk, of all functions on all streams
_MUCH = 2**22  # more answers than this are one slot at a time
_MOST_ACCOUNTS = 1_000  # learners of which accounts are kept
_MANY = 1_000  # decisions of a learner in a cell that a share needs to be meaningful


def play(
    environment: Environment,
    settings: PolicyRecord,
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
    game = ReplayEngine(setup, setup.sites, width_of(environment, setup), environment.labels)
    log = WorldLog(environment, setup)
    oracle = Oracle(environment, settings, played=setup, seed=seed)
    sums = _Sums(environment, setup, horizon)
    voters = [setup.sites[place].name for place in environment.receiving]
    wait = setup.settings.slots_waited
    voting = setup.ensemble and EnsembleReplay(setup.ensemble, voters, label_wait=wait)
    curve = []
    for end in [*checkpoints, horizon]:
        for slots in lengths(environment, end - world.slots):
            chunk = world.draw(slots)
            rows = log.rows(chunk)
            trace = game.play(rows)
            sums.add(trace, chunk, oracle.judge(trace, chunk, rows))
            if voting:
                voting.add(trace, rows)
        curve.append(sums.regret.sum(axis=0))
    by_cause = np.reshape(curve[:-1], (-1, len(CAUSES))).T
    return Run(
        policy=settings.preset,
        environment=environment.name,
        seed=seed,
        slots=list(checkpoints),
        regret=dict(zip(CAUSES, by_cause.tolist(), strict=True)),
        learners=len(sums.regret),
        **sums.shares(),
        alarms=sum(map(len, game.alarms())),
        ensemble={**voting.errors(), "best member": sums.best_member(horizon)} if voting else {},
        seconds=perf_counter() - began,
    )


class _Sums:
    """Sums over the chunks of a run."""

    def __init__(self, environment: Environment, setup: NetworkConfig, horizon: int) -> None:
        self._horizon = horizon
        wait = setup.settings.slots_waited
        self._wait = math.inf if wait is None else wait
        self._functions = sum(environment.counts)
        # Of the learners that receive instances: those that are measured.
        every, receivers = environment.names, environment.receiving
        listed = [receivers.index(every.index(name)) for name in environment.measured]
        self._measured: list[int] | slice = listed or slice(None)
        self._receiving = np.array(receivers)
        self.regret = np.zeros((len(receivers), len(CAUSES)))[self._measured]
        self._paid = self._errors = 0.0
        has_ensemble = setup.ensemble is not None
        self._right = np.zeros(len(environment.names)) if has_ensemble else None  # per learner
        self._phases = np.zeros(len(PHASES), np.int64)
        self._requests = self._labels = 0
        self._visits = _Visits(environment)
        self._accounts = _Accounts(setup) if len(setup.sites) <= _MOST_ACCOUNTS else None

    def add(self, trace: Trace, stretch: WorldChunk, losses: Losses) -> None:
        shape = (len(stretch.points), losses.learners)
        phase, arm, correct = (
            column.reshape(shape)[:, self._measured]
            for column in (trace.phase, trace.arm, trace.correct)
        )
        self.regret += losses.sums()[self._measured]
        is_whole = isinstance(self._measured, slice)
        self._paid += (
            losses.paid if is_whole else float(trace.cost.reshape(shape)[:, self._measured].sum())
        )
        self._phases += [np.count_nonzero(phase == number) for number in range(len(PHASES))]
        is_class = correct.dtype.kind == "i"
        self._errors += float(np.count_nonzero(correct == 0) if is_class else (1 - correct).sum())
        if self._right is not None:
            self._right += np.bincount(trace.learner, trace.correct, minlength=len(self._right))
        is_forwarded = arm >= self._functions
        self._requests += int(np.count_nonzero(is_forwarded))
        if stretch.shown is not None:
            is_forwarded &= stretch.shown[:, self._receiving][:, self._measured] > 0
        if stretch.delays is not None:
            slots = np.arange(stretch.first_slot, stretch.first_slot + len(stretch.delays))
            arrives = (stretch.delays <= self._wait) & (slots + stretch.delays <= self._horizon)
            is_forwarded &= arrives[:, None]
        self._labels += int(np.count_nonzero(is_forwarded))
        self._visits.add(trace)
        if self._accounts is not None:
            self._accounts.add(trace)

    def best_member(self, slots: int) -> float:
        """Return the smallest share of errors of a learner, when there is an ensemble."""
        assert self._right is not None
        return 1 - float(self._right.max()) / slots

    def shares(self) -> dict[str, Any]:
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
            "accounts": {} if self._accounts is None else self._accounts.settled(),
        }


class _Accounts:
    """What learners do with each other."""

    def __init__(self, setup: NetworkConfig) -> None:
        self._sites = setup.sites
        names = [site.name for site in setup.sites]
        self._arms = [
            *(name for site in setup.sites for name in site.functions),
            *names,
            *(name + BY_CONTEXT for name in names),
        ]
        self._payments = setup.payments()
        self._right, self._cost = np.zeros((2, len(names)))
        self._asked = np.zeros(len(names) * len(self._arms), np.int64)

    def add(self, trace: Trace) -> None:
        learners = len(self._sites)
        self._right += np.bincount(trace.learner, trace.correct, minlength=learners)
        self._cost += np.bincount(trace.learner, trace.cost, minlength=learners)
        code = trace.learner * len(self._arms) + trace.arm
        self._asked += np.bincount(code, minlength=len(self._asked))

    def settled(self) -> dict[str, Account]:
        asked = self._asked.reshape(len(self._sites), -1)
        dealings = {
            site.name: Dealings(
                float(self._right[k]),
                float(self._cost[k]),
                {self._arms[arm]: int(asked[k, arm]) for arm in np.flatnonzero(asked[k]).tolist()},
            )
            for k, site in enumerate(self._sites)
        }
        serving = {site.name: site.serving_cost for site in self._sites}
        return settle_accounts(dealings, self._payments, serving)


class _Visits:
    """Requests to false reporters, per cell and learner."""

    def __init__(self, environment: Environment) -> None:
        functions = sum(environment.counts)
        self._liars = [functions + environment.names.index(liar) for liar in environment.liars]
        self._learners = len(environment.receiving)
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


def lengths(environment: Environment, slots: int) -> list[int]:
    answers = environment.answers
    fewest = max(1, min(1_024, _MUCH // answers))
    most = min(MOST_SLOTS, max(fewest, _MOST_ANSWERS // answers))
    most -= most % environment.batch
    whole, rest = divmod(slots, most)
    return [most] * whole + [rest] * (rest > 0)


def check(
    environment: Environment, settings: PolicyRecord, horizon: int, checkpoints: Sequence[int]
) -> None:
    """Raise `ConfigError` if a policy cannot run in an environment for so many slots."""
    setup = network(environment, settings)
    seen = network(environment, settings.unrestricted())
    check_parts(environment, seen, parts_of(environment, seen))
    if settings.doubling is None:
        setup.policies(width_of(environment, setup))
    if setup.shares_slots and setup.context.has_slot:
        raise ConfigError(
            f'environment {environment.name!r}: a context of scale "slot" counts instances here, '
            'so it cannot be combined with batch = "slot" of the policy; remove one of them'
        )
    for scale in setup.context.scales:
        if isinstance(scale, Slot) and scale.horizon < horizon:
            raise ConfigError(
                f'environment {environment.name!r}: the context {{ scale = "slot" }} has the '
                f"horizon {scale.horizon}, but the run has {horizon} slots; raise it"
            )
    if settings.slots is not None and settings.slots < horizon:
        raise ConfigError(
            f"the policy's horizon is {settings.slots} slots, but the run has {horizon}; raise "
            "horizon in [policy]"
        )
    for slot in checkpoints:
        if slot % environment.batch:
            raise ConfigError(
                f"environment {environment.name!r}: checkpoint {slot} is not at the end of a batch "
                f"of {environment.batch}; list other checkpoints"
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
