"""Scenario files: policies, environments, seeds and checkpoints of a simulation."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey import toml
from covey.bandit.bounds import MOST_SLOTS
from covey.bandit.policies import Policy, resolve, settings_from
from covey.bandit.settings import Settings
from covey.bandit.smoothness import adapt, epochs
from covey.errors import ConfigError
from covey.jobs.running import cores
from covey.simulation import run
from covey.simulation.environment import (
    CASES,
    Environment,
    check_horizon,
    environment_from,
    name_of,
)
from covey.simulation.run import lengths
from covey.simulation.sites import PolicyContext, network, width_of, with_horizon
from covey.simulation.world import World

_PROCESS = 60e6  # bytes of an idle worker
_PER_ARM = 2 * 49  # bytes of a cell in use, twice while its table grows
_PER_SITE = 2_000  # bytes of a learner without any cell
_PER_CELL = 500  # bytes of its name and index entries
_PER_ANSWER = 64  # bytes of a chunk per slot and function, or slot and decision


def most_bytes(policy: Policy, environment: Environment, slots: int, *, spaces: int = 1) -> float:
    """Return the largest memory need of one worker for so many slots, in so many spaces."""
    learners = len(environment.names)
    peers = environment.topology.peers_each if environment.topology else learners - 1
    arms = max(environment.counts) + peers
    # A learner also keeps the cells of the learners that ask it.
    cells = min(most_cells(policy, slots * learners), policy.settings.max_cells)
    answers = environment.answers + environment.receivers
    tables = spaces * (learners * _PER_SITE + cells * (learners * arms * _PER_ARM + _PER_CELL))
    return _PROCESS + tables + next(lengths(environment, slots)) * answers * _PER_ANSWER


def most_cells(policy: Policy, arrivals: int) -> float:
    """Return how many cells so many arrivals can create: at most all of a level, or one each."""
    cells, split_at = 0.0, 1.0
    for level in policy.partition.levels(policy.dimension):
        opened = arrivals / max(1.0, split_at) * 2.0**policy.dimension
        cells += min(float(level.side) ** policy.dimension, arrivals, opened)
        split_at = level.split_at
    return cells


_FIRST_CHECKPOINT = 10  # slots
_MOST_CHECKPOINTS = 1000
_MOST_SEEDS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,59}")


class ScenarioTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The `[scenario]` table."""

    name: str = "simulation"
    horizon_slots: int
    seeds: int | list[int] = 5  # their number, or the seeds
    checkpoints: int | list[int] = 24  # their number, on a logarithmic scale, or the slots
    memory_limit_mb: int = 4096
    workers: int | None = None  # processes; None: one per core


class Scenario(NamedTuple):
    """A checked scenario."""

    name: str
    horizon: int  # slots
    seeds: tuple[int, ...]
    checkpoints: tuple[int, ...]  # slots, ascending; the last is the horizon
    workers: int
    policies: dict[str, Settings]
    environments: dict[str, Environment]
    contexts: dict[str, PolicyContext]  # of policies that do not use all that they can see

    def titles(self) -> dict[str, str]:
        """Return one line per policy, for reports."""
        worlds, titles = self.environments.values(), {}
        for name in self.policies:
            listed = dict.fromkeys(self.policy(name, world).title for world in worlds)
            seen = [self.contexts[name].title] if name in self.contexts else []
            titles[name] = "; ".join([" / ".join(listed), *seen])
        return titles

    def descriptions(self) -> dict[str, str]:
        """Return one line per environment, for reports."""
        return {name: _described(world) for name, world in self.environments.items()}

    def policy(self, name: str, environment: Environment) -> Policy:
        """Return the policy resolved for an environment; of several epochs, in the last one."""
        settings = self.policies[name]
        if settings.horizon == "doubling":
            alpha = 1.0 if isinstance(settings.alpha, str) else settings.alpha
            *_, last = epochs(settings.first_epoch, until=self.horizon)
            settings = adapt(settings, last, alpha=alpha)
        return resolve(
            settings,
            dimension=max(self.dimensions(name, environment)),
            most_functions=max(environment.counts),
        )

    def dimensions(self, policy: str, environment: Environment) -> list[int]:
        """Return the dimension of each context space of a policy."""
        context = self.contexts.get(policy)
        seen = context.within(environment) if context else environment
        setup = network(seen, self.policies[policy])
        return [*map(len, setup.plan.of_width(width_of(seen, setup)))]


def load(source: Path | Mapping[str, Any] | None = None, **changes: int | None) -> Scenario:
    """Return the scenario of a TOML file or mapping; None: the embedded one.

    `changes` override keys of `[scenario]` unless None. Raises `ConfigError` for whatever cannot
    be simulated.
    """
    folder = source.parent if isinstance(source, Path) else Path()
    tables = DEFAULT if source is None else source
    if not isinstance(tables, Mapping):
        tables = toml.read_toml(tables)
    known = ("scenario", "policy", "environment")
    for key in tables:
        if key not in known:
            raise ConfigError(f"unknown table [{key}]{toml.nearest(key, known)}")
    changed = {key.replace("_", "-"): value for key, value in changes.items() if value is not None}
    plan = toml.read({**tables.get("scenario", {}), **changed}, ScenarioTable, where="[scenario]")
    environments = {
        name: with_horizon(
            environment_from(table, where=f"[[environment]] {name!r}", folder=folder),
            plan.horizon_slots,
        )
        for name, table in named_tables(tables, "environment").items()
    }
    scenario = Scenario(
        name=plan.name,
        horizon=_within("horizon-slots", plan.horizon_slots, MOST_SLOTS),
        seeds=_seeds(plan.seeds),
        checkpoints=_checkpoints(
            plan.checkpoints,
            plan.horizon_slots,
            every=math.lcm(*(world.batch for world in environments.values())),
        ),
        workers=_within("workers", cores() if plan.workers is None else plan.workers, 1024),
        policies={
            name: settings_from(
                {key: value for key, value in table.items() if key not in _OF_CONTEXT},
                where=f"[[policy]] {name!r}",
            )
            for name, table in named_tables(tables, "policy").items()
        },
        environments=environments,
        contexts={
            name: with_horizon(found, plan.horizon_slots)
            for name, table in named_tables(tables, "policy").items()
            if (found := _policy_context(table, f"[[policy]] {name!r}")) is not None
        },
    )
    for environment in scenario.environments.values():
        check_horizon(environment, scenario.horizon)
        for name, settings in scenario.policies.items():
            context = scenario.contexts.get(name)
            run.check(environment, settings, scenario.horizon, scenario.checkpoints, context)
        if not environment.is_embedded:  # find mistakes of a class or log before anything runs
            World(environment, seed=scenario.seeds[0], horizon=scenario.horizon).draw(1)
    _check_memory(scenario, plan.memory_limit_mb)
    return scenario


_OF_CONTEXT = ("name", "context", "candidates")  # keys of a policy that are not settings


def _policy_context(table: Mapping[str, Any], where: str) -> PolicyContext | None:
    given = {key: table[key] for key in _OF_CONTEXT[1:] if key in table}
    return toml.read(given, PolicyContext, where=where) if given else None


def _within(key: str, value: int, most: int) -> int:
    toml.check_range(value, 1, most, f"[scenario] {key}")
    return value


def _seeds(seeds: int | list[int]) -> tuple[int, ...]:
    if isinstance(seeds, int):
        return tuple(range(_within("seeds", seeds, _MOST_SEEDS)))
    _within("seeds: their number", len(seeds), _MOST_SEEDS)
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise ConfigError(f"[scenario] seeds holds {seed}; it must be from 0 to {2**32 - 1}")
        if seeds.count(seed) > 1:
            raise ConfigError(f"[scenario] duplicate seed {seed}; seeds must differ")
    return tuple(seeds)


def _checkpoints(wanted: int | list[int], horizon: int, *, every: int) -> tuple[int, ...]:
    """Return the slots at which regret is recorded, the horizon last.

    A number of them is spread over the slots that are multiples of `every`.
    """
    if isinstance(wanted, int):
        _within("checkpoints", wanted, _MOST_CHECKPOINTS)
        first = math.log(min(_FIRST_CHECKPOINT, horizon))
        step = (math.log(horizon) - first) / max(1, wanted - 1)
        exact = (math.exp(first + index * step) for index in range(wanted - 1))
        spread = {max(1, round(slot / every)) * every for slot in exact}
        return (*sorted(slot for slot in spread if slot < horizon), horizon)
    _within("checkpoints: their number", len(wanted), _MOST_CHECKPOINTS)
    for slot in wanted:
        if not 1 <= slot <= horizon:
            raise ConfigError(
                f"[scenario] checkpoints holds {slot}; it must be from 1 to horizon-slots "
                f"({horizon})"
            )
    return tuple(sorted({*wanted, horizon}))


def named_tables(tables: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Return the `[[kind]]` tables by name; names differ and are valid folder names."""
    found = tables.get(kind, [])
    if not isinstance(found, Sequence) or isinstance(found, str) or not found:
        raise ConfigError(f"no {kind}; add a [[{kind}]] table with a name")
    named: dict[str, dict[str, Any]] = {}
    for number, table in enumerate(found, 1):
        name = table.get("name") if isinstance(table, Mapping) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"[[{kind}]] {number} name is {name!r}; it must begin with a letter or digit "
                "and hold at most 60 letters, digits, blanks and any of . _ + -"
            )
        # Some file systems ignore case.
        if name.casefold() in map(str.casefold, named):
            raise ConfigError(f"duplicate [[{kind}]] name {name!r}; rename one")
        named[name] = dict(table)
    return named


def _described(environment: Environment) -> str:
    arrivals, correlation = environment.process
    source = f"{arrivals} arrivals" if environment.is_embedded else name_of(environment.entry)
    if environment.log is not None:
        source = f"blocks of {Path(environment.log.path).name}"
    told = ("case", "arrivals", "correlation", "surfaces", "environment", "log")
    defaults = msgspec.to_builtins(Environment(name=environment.name))
    values = msgspec.to_builtins(environment, enc_hook=name_of).items()
    changed = [f"{key} {new}" for key, new in values if new != defaults[key] and key not in told]
    return ", ".join([source, f"{correlation} correlation", *changed])


def _check_memory(scenario: Scenario, limit_mb: int) -> None:
    """Check the memory need if every worker runs the largest pair at the same time."""
    needs = {
        (policy, name): scenario.workers
        * most_bytes(
            scenario.policy(policy, environment),
            environment,
            scenario.horizon,
            spaces=len(scenario.dimensions(policy, environment)),
        )
        / 1e6
        for policy in scenario.policies
        for name, environment in scenario.environments.items()
    }
    policy, name = max(needs, key=lambda pair: needs[pair])
    if needs[policy, name] > limit_mb:
        raise ConfigError(
            f"policy {policy!r} in environment {name!r} may need {needs[policy, name]:.0f} MB in "
            f"{scenario.workers} workers, above memory-limit-mb, {limit_mb}; use fewer workers, "
            "slices, dimensions or slots, or raise the limit"
        )


# In the cases contexts are spread evenly (C1, C2) or close together (C3, C4), and arrive at one
# learner (C1, C3) or at all of them (C2, C4).
DEFAULT: Mapping[str, Any] = {
    "scenario": {"name": "Four cases of arrival", "horizon-slots": 20_000, "seeds": 5},
    "policy": [
        {"name": "CoS", "preset": "cos", "parameters": "z1"},
        {"name": "DCZA", "preset": "dcza", "parameters": "z1"},
    ],
    "environment": [
        {
            "name": case,
            "case": case,
            "learners": 4,
            "functions": 2,
            "lipschitz": 1.2,
            "prices": 0.05,
        }
        for case in CASES
    ],
}
