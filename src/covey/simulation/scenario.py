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
from covey.simulation.sites import network, width_of, with_horizon
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

    def titles(self) -> dict[str, str]:
        worlds = self.environments.values()
        return {
            name: " / ".join(dict.fromkeys(self.policy(name, world).title for world in worlds))
            for name in self.policies
        }

    def descriptions(self) -> dict[str, str]:
        return {name: _described(world) for name, world in self.environments.items()}

    def policy(self, name: str, environment: Environment) -> Policy:
        """Return the policy resolved for an environment; of several epochs, in the last one."""
        settings = self.policies[name]
        setup = network(environment, settings)
        doubling = settings.doubling
        if doubling is not None:
            settings = settings.in_epoch(doubling.slots(doubling.number_at(self.horizon)))
        return settings.resolve(
            dimension=max(map(len, setup.plan.of_width(width_of(environment, setup)))),
            most_functions=max(environment.counts),
        )


def load(
    source: str | Path | Mapping[str, Any] | None = None,
    *,
    usual_workers: int = 1,
    **changes: int | None,
) -> Scenario:
    """Return the scenario of a TOML file or mapping; None: the embedded one.

    Without workers, it has `usual_workers`.
    `changes` override keys of `[scenario]` unless None. Raises `ConfigError` for whatever cannot
    be simulated.
    """
    with toml.modules_beside(source):
        scenario = _read(source, usual_workers, changes)
        for environment in scenario.environments.values():
            check_horizon(environment, scenario.horizon)
            for settings in scenario.policies.values():
                run.check(environment, settings, scenario.horizon, scenario.checkpoints)
            if not environment.is_embedded:  # find mistakes of a class before anything runs
                World(environment, seed=scenario.seeds[0], horizon=scenario.horizon).draw(1)
    return scenario


def _read(source: Any, usual_workers: int, changes: Mapping[str, int | None]) -> Scenario:
    tables = DEFAULT if source is None else source
    if not isinstance(tables, Mapping):
        tables = toml.read_toml(Path(tables))
    allowed = ("scenario", "policy", "environment")
    for key in tables:
        if key not in allowed:
            raise ConfigError(f"unknown table [{key}]{toml.nearest(key, allowed)}")
    changed = {key.replace("_", "-"): value for key, value in changes.items() if value is not None}
    plan = toml.read({**tables.get("scenario", {}), **changed}, ScenarioTable, where="[scenario]")
    environments = {
        name: with_horizon(environment_from(table), plan.horizon_slots)
        for name, table in named_tables(tables, "environment").items()
    }
    return Scenario(
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
                {key: value for key, value in table.items() if key != "name"},
                where=f"[[policy]] {name!r}",
            )
            for name, table in named_tables(tables, "policy").items()
        },
        environments=environments,
    )


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
    listed = tables.get(kind, [])
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ConfigError(f"no {kind}; add a [[{kind}]] table with a name")
    named: dict[str, dict[str, Any]] = {}
    for number, table in enumerate(listed, 1):
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
    shown = ("case", "arrivals", "correlation", "surfaces", "environment")
    defaults = msgspec.to_builtins(Environment(name=environment.name))
    values = msgspec.to_builtins(environment, enc_hook=str).items()
    changed = [f"{key} {new}" for key, new in values if new != defaults[key] and key not in shown]
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
