"""Scenario files: policies, environments, seeds and checkpoints of a simulation."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from covey import toml
from covey.bandit.policies import Policy, PolicyRecord, policy_from
from covey.errors import ConfigError
from covey.simulation import run
from covey.simulation.environment import (
    CASES,
    Environment,
    Number,
    check_horizon,
    environment_from,
)
from covey.simulation.sites import PolicyContext, network, width_of, with_horizon
from covey.simulation.world import World

_FIRST_CHECKPOINT = 10  # slots
_FEW = Meta(min_length=1, max_length=1_000)
_Count = Annotated[int, Meta(ge=1, le=10_000)]
_Seed = Annotated[int, Meta(ge=0, lt=2**32)]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,59}")


class ScenarioTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The `[scenario]` table."""

    name: str = "simulation"
    horizon_slots: Number
    seeds: _Count | Annotated[list[_Seed], Meta(min_length=1)] = 5  # their number, or the seeds
    # Their number, on a logarithmic scale, or the slots.
    checkpoints: Annotated[int, Meta(ge=1, le=1_000)] | Annotated[list[int], _FEW] = 24
    workers: Annotated[int, Meta(ge=1, le=1_024)] | None = None  # processes


class Scenario(NamedTuple):
    """A checked scenario."""

    name: str
    horizon: int  # slots
    seeds: tuple[int, ...]
    checkpoints: tuple[int, ...]  # slots, ascending; the last is the horizon
    workers: int
    policies: dict[str, PolicyRecord]
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
        doubling = settings.doubling
        if doubling is not None:
            settings = settings.in_epoch(doubling.slots(doubling.number_at(self.horizon)))
        return settings.resolve(
            dimension=max(self.dimensions(name, environment)),
            most_functions=max(environment.counts),
        )

    def dimensions(self, policy: str, environment: Environment) -> list[int]:
        """Return the dimension of each context space of a policy."""
        context = self.contexts.get(policy)
        seen = context.within(environment) if context else environment
        setup = network(seen, self.policies[policy])
        return [*map(len, setup.plan.of_width(width_of(seen, setup)))]


def load(
    source: Path | Mapping[str, Any] | None = None,
    *,
    usual_workers: int = 1,
    **changes: int | None,
) -> Scenario:
    """Return the scenario of a TOML file or mapping; None: the embedded one.

    Without workers, it has `usual_workers`.
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
        name: with_horizon(environment_from(table, folder=folder), plan.horizon_slots)
        for name, table in named_tables(tables, "environment").items()
    }
    scenario = Scenario(
        name=plan.name,
        horizon=plan.horizon_slots,
        seeds=_seeds(plan.seeds),
        checkpoints=_checkpoints(
            plan.checkpoints,
            plan.horizon_slots,
            every=math.lcm(*(world.batch for world in environments.values())),
        ),
        workers=plan.workers or usual_workers,
        policies={
            name: policy_from(
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
    return scenario


_OF_CONTEXT = ("name", "context", "candidates")  # keys of a policy that are not settings


def _policy_context(table: Mapping[str, Any], where: str) -> PolicyContext | None:
    given = {key: table[key] for key in _OF_CONTEXT[1:] if key in table}
    return toml.read(given, PolicyContext, where=where) if given else None


def _seeds(seeds: int | list[int]) -> tuple[int, ...]:
    if isinstance(seeds, int):
        return tuple(range(seeds))
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise ConfigError(f"[scenario] duplicate seed {seed}; seeds must differ")
    return tuple(seeds)


def _checkpoints(wanted: int | list[int], horizon: int, *, every: int) -> tuple[int, ...]:
    """Return the slots at which regret is recorded, the horizon last.

    A number of them is spread over the slots that are multiples of `every`.
    """
    if isinstance(wanted, int):
        first = math.log(min(_FIRST_CHECKPOINT, horizon))
        step = (math.log(horizon) - first) / max(1, wanted - 1)
        exact = (math.exp(first + index * step) for index in range(wanted - 1))
        spread = {max(1, round(slot / every)) * every for slot in exact}
        return (*sorted(slot for slot in spread if slot < horizon), horizon)
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
    source = f"{arrivals} arrivals" if environment.is_embedded else f"{environment.entry}"
    if environment.log is not None:
        source = f"blocks of {Path(environment.log.path).name}"
    told = ("case", "arrivals", "correlation", "surfaces", "environment", "log")
    defaults = msgspec.to_builtins(Environment(name=environment.name))
    values = msgspec.to_builtins(environment).items()
    changed = [f"{key} {new}" for key, new in values if new != defaults[key] and key not in told]
    return ", ".join([source, f"{correlation} correlation", *changed])


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
