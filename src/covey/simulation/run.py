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
from covey.replay.outcome import BILLION, Account, Dealings, settle_accounts
from covey.replay.voting import EnsembleReplay
from covey.simulation.environment import Environment
from covey.simulation.oracle import CAUSES, Losses, Oracle, check_parts, parts_of
from covey.simulation.sites import log_of, network, width_of
from covey.simulation.world import World, WorldChunk
from covey.types import BY_CONTEXT, PHASES, Array, Phase

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
    accounts: dict[str, Account] = {}  # of each learner
    # With an ensemble, shares of errors: its own, its own where all members exploited, and those
    # of its best member.
    ensemble: dict[str, float] = {}


MOST_SLOTS = 65_536  # in one chunk
_MOST_ANSWERS = 2**19  # in one chunk, of all functions on all streams
_MUCH = 2**22  # more answers than this are one slot at a time
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
    oracle = Oracle(environment, settings, played=setup, seed=seed)
    sums = _Sums(environment, setup, horizon)
    voters = [setup.sites[place].name for place in environment.receiving]
    wait = setup.settings.slots_waited
    voting = setup.ensemble and EnsembleReplay(setup.ensemble, voters, label_wait=wait)
    curve = []
    for end in [*checkpoints, horizon]:
        for slots in lengths(environment, end - world.slots):
            chunk = world.draw(slots)
            rows = log_of(chunk, environment, setup)
            trace = game.play(rows)
            # On kept rows a learner exploits its own functions.
            np.minimum(trace.phase, Phase.EXPLOIT, out=trace.phase)
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
    """Sums over the chunks of a run, by learner."""

    def __init__(self, environment: Environment, setup: NetworkConfig, horizon: int) -> None:
        self._setup, self._horizon = setup, horizon
        wait = setup.settings.slots_waited
        self._wait = math.inf if wait is None else wait
        self._functions = sum(environment.counts)
        names, self._receiving = environment.names, np.array(environment.receiving)
        measured = [names.index(name) for name in environment.measured]
        self._measured = np.array(measured or environment.receiving)
        self._arms = [
            *(name for site in setup.sites for name in site.functions),
            *names,
            *(name + BY_CONTEXT for name in names),
        ]
        self._regret = np.zeros((len(names), len(CAUSES)))
        self._right, self._cost = np.zeros((2, len(names)))
        self._labels = np.zeros(len(names), np.int64)  # of answers of peers
        self._asked = np.zeros((len(names), len(self._arms)), np.int64)
        self._phases = np.zeros((len(names), len(PHASES)), np.int64)
        self._visits = _Visits(environment)

    @property
    def regret(self) -> Array:
        regret: Array = self._regret[self._measured]
        return regret

    def add(self, trace: Trace, stretch: WorldChunk, losses: Losses) -> None:
        learner, count = trace.learner, len(self._right)
        self._regret[self._receiving] += losses.sums()
        self._right += np.bincount(learner, trace.correct, minlength=count)
        cost = np.rint(trace.cost * BILLION)  # whole numbers: the chunks do not matter
        self._cost += np.bincount(learner, cost, minlength=count)
        for counts, code in ((self._asked, trace.arm), (self._phases, trace.phase)):
            codes = learner.astype(np.int64) * counts.shape[1] + code
            np.add.at(counts.reshape(-1), codes, 1)
        has_label = trace.arm >= self._functions
        if stretch.shown is not None:
            has_label &= stretch.shown[:, self._receiving].reshape(-1) > 0
        if stretch.delays is not None:
            slots = np.arange(stretch.first_slot, stretch.first_slot + len(stretch.delays))
            arrives = (stretch.delays <= self._wait) & (slots + stretch.delays <= self._horizon)
            has_label &= np.repeat(arrives, len(self._receiving))
        self._labels += np.bincount(learner[has_label], minlength=count)
        self._visits.add(trace)

    def best_member(self, slots: int) -> float:
        """Return the smallest share of errors of a learner."""
        return 1 - float(self._right.max()) / slots

    def shares(self) -> dict[str, Any]:
        """Return what decisions of the measured learners came to, and all accounts."""
        own = self._measured
        phases = self._phases[own].sum(axis=0)
        decisions = int(phases.sum())
        requests = int(self._asked[own, self._functions :].sum())
        return {
            "errors": (decisions - float(self._right[own].sum())) / decisions,
            "cost": float(self._cost[own].sum()) / BILLION / decisions,
            "phases": dict(zip(PHASES, (phases / decisions).tolist(), strict=True)),
            "messages": {
                "requests": 1_000 * requests / decisions,
                "labels": 1_000 * int(self._labels[own].sum()) / decisions,
            },
            "to_liars": self._visits.shares(),
            "accounts": self._accounts(),
        }

    def _accounts(self) -> dict[str, Account]:
        dealings = {
            site.name: Dealings(
                float(self._right[k]),
                float(self._cost[k]) / BILLION,
                {self._arms[arm]: int(asked[arm]) for arm in np.flatnonzero(asked).tolist()},
            )
            for k, (site, asked) in enumerate(zip(self._setup.sites, self._asked, strict=True))
        }
        serving = {site.name: site.serving_cost for site in self._setup.sites}
        return settle_accounts(dealings, self._setup.payments(), serving)


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
