"""TOML -> a scenario: which policies meet which environments, for how long and how often.

A scenario is checked as a whole, memory included, before anything runs.
"""

import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey import fields, runs
from covey.capacity import most_bytes
from covey.config import read_toml
from covey.environments import MOST_SLOTS, Environment, check_horizon, environment_from
from covey.errors import ConfigError
from covey.policies import Policy, resolve, settings_from
from covey.settings import Settings
from covey.smoothness import adapt, epochs

_FIRST_CHECKPOINT = 10  # slots
_MOST_CHECKPOINTS = 1000
_MOST_SEEDS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,59}")


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The `[scenario]` table, as a person writes it."""

    name: str = "simulation"
    horizon_slots: int
    seeds: int | list[int] = 5  # how many, or which
    checkpoints: int | list[int] = 24  # how many, evenly on a logarithmic scale, or which slots
    memory_limit_mb: int = 4096
    workers: int | None = None  # processes; None: one per core


class Scenario(NamedTuple):
    """All that a simulation is told."""

    name: str
    horizon: int  # slots
    seeds: tuple[int, ...]
    checkpoints: tuple[int, ...]  # slots, ascending; the last is the horizon
    workers: int
    policies: dict[str, Settings]
    environments: dict[str, Environment]

    def titles(self) -> dict[str, str]:
        """Return one line on each policy for a person."""
        return {
            name: " / ".join(
                dict.fromkeys(
                    self.policy(name, world).title for world in self.environments.values()
                )
            )
            for name in self.policies
        }

    def descriptions(self) -> dict[str, str]:
        """Return one line on each environment for a person."""
        return {name: _described(world) for name, world in self.environments.items()}

    def policy(self, name: str, environment: Environment) -> Policy:
        """Return what a policy comes to in an environment; in its last epoch, if it has several."""
        settings = self.policies[name]
        if settings.horizon == "doubling":
            alpha = 1.0 if isinstance(settings.alpha, str) else settings.alpha
            *_, last = epochs(settings.first_epoch, until=self.horizon)
            settings = adapt(settings, last, alpha=alpha)
        return resolve(
            settings, dimension=environment.dimension, most_functions=max(environment.counts)
        )


def load(source: Path | Mapping[str, Any] | None = None, **changes: int | None) -> Scenario:
    """Return the scenario in a TOML file, or the same given as a mapping; None: the embedded one.

    `changes` are keys of `[scenario]` that stand instead of what is written there, unless None.
    Raises `ConfigError` with a sentence for whatever cannot be simulated.
    """
    if source is None:
        tables: Mapping[str, Any] = tomllib.loads(DEFAULT)
    else:
        tables = source if isinstance(source, Mapping) else read_toml(source)
    known = ("scenario", "policy", "environment")
    for key in tables:
        if key not in known:
            raise ConfigError(f"unknown table [{key}]{fields.nearest(key, known)}")
    given = {name.replace("_", "-"): value for name, value in changes.items() if value is not None}
    plan = fields.read({**tables.get("scenario", {}), **given}, Plan, where="[scenario]")
    scenario = Scenario(
        name=plan.name,
        horizon=_within("horizon-slots", plan.horizon_slots, MOST_SLOTS),
        seeds=_seeds(plan.seeds),
        checkpoints=_checkpoints(plan.checkpoints, plan.horizon_slots),
        workers=_within("workers", _cores() if plan.workers is None else plan.workers, 1024),
        policies=_policies(_named(tables, "policy")),
        environments=_environments(_named(tables, "environment")),
    )
    for environment in scenario.environments.values():
        check_horizon(environment, scenario.horizon)
        for settings in scenario.policies.values():
            runs.check(environment, settings, scenario.horizon, scenario.checkpoints)
    _check_memory(scenario, plan.memory_limit_mb)
    return scenario


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _within(key: str, value: int, most: int) -> int:
    fields.check_range(value, 1, most, f"[scenario] {key}")
    return value


def _seeds(seeds: int | list[int]) -> tuple[int, ...]:
    if isinstance(seeds, int):
        return tuple(range(_within("seeds", seeds, _MOST_SEEDS)))
    _within("seeds: their number", len(seeds), _MOST_SEEDS)
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise ConfigError(f"[scenario] seeds holds {seed}; a seed lies from 0 to {2**32 - 1}")
        if seeds.count(seed) > 1:
            raise ConfigError(f"[scenario] seeds holds {seed} more than once; seeds must differ")
    return tuple(seeds)


def _checkpoints(wanted: int | list[int], horizon: int) -> tuple[int, ...]:
    """Return the slots at which regret is noted, the horizon last."""
    if isinstance(wanted, int):
        _within("checkpoints", wanted, _MOST_CHECKPOINTS)
        first = math.log(min(_FIRST_CHECKPOINT, horizon))
        step = (math.log(horizon) - first) / max(1, wanted - 1)
        spread = {round(math.exp(first + place * step)) for place in range(wanted - 1)}
        return (*sorted(slot for slot in spread if slot < horizon), horizon)
    _within("checkpoints: their number", len(wanted), _MOST_CHECKPOINTS)
    for slot in wanted:
        if not 1 <= slot <= horizon:
            raise ConfigError(
                f"[scenario] checkpoints holds {slot}; a checkpoint lies from 1 to horizon-slots, "
                f"which is {horizon}"
            )
    return tuple(sorted({*wanted, horizon}))


def _named(tables: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Return the `[[kind]]` tables under their names, which differ and can name a folder."""
    found = tables.get(kind, [])
    if not isinstance(found, Sequence) or isinstance(found, str) or not found:
        raise ConfigError(f"no {kind}; add a [[{kind}]] table with a name")
    named: dict[str, dict[str, Any]] = {}
    for place, table in enumerate(found):
        name = table.get("name") if isinstance(table, Mapping) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"[[{kind}]] {place + 1} name is {name!r}; it must begin with a letter or digit "
                "and hold at most 60 letters, digits, blanks and any of . _ + -"
            )
        # Some file systems take CoS and cos for one name.
        if name.casefold() in map(str.casefold, named):
            raise ConfigError(f"{name!r} stands twice among the [[{kind}]] names; rename one")
        named[name] = dict(table)
    return named


def _policies(tables: Mapping[str, dict[str, Any]]) -> dict[str, Settings]:
    return {
        name: settings_from(
            {key: value for key, value in table.items() if key != "name"},
            where=f"[[policy]] {name!r}",
        )
        for name, table in tables.items()
    }


def _environments(tables: Mapping[str, dict[str, Any]]) -> dict[str, Environment]:
    return {
        name: environment_from(table, where=f"[[environment]] {name!r}")
        for name, table in tables.items()
    }


def _described(environment: Environment) -> str:
    arrivals, correlation = environment.process
    plain = msgspec.to_builtins(Environment(name=environment.name))
    said = [
        f"{key} {value}"
        for key, value in msgspec.to_builtins(environment).items()
        if value != plain[key] and key not in ("case", "arrivals", "correlation", "surfaces")
    ]
    return ", ".join([f"{arrivals} arrivals", f"{correlation} correlation", *said])


def _check_memory(scenario: Scenario, limit_mb: int) -> None:
    """Refuse what would not fit if every worker met the hungriest pair at once."""
    needs = {
        (policy, name): scenario.workers
        * most_bytes(scenario.policy(policy, environment), environment, scenario.horizon)
        / 1e6
        for policy in scenario.policies
        for name, environment in scenario.environments.items()
    }
    policy, name = max(needs, key=lambda pair: needs[pair])
    if needs[policy, name] > limit_mb:
        raise ConfigError(
            f"policy {policy!r} in environment {name!r} may need {needs[policy, name]:.0f} MB in "
            f"{scenario.workers} workers, above memory-limit-mb, {limit_mb}; take fewer workers, "
            "slices, dimensions or slots, or raise the limit"
        )


DEFAULT = """\
# Four learners with two functions each, in the paper's four cases: contexts spread evenly (C1, C2)
# or close together (C3, C4), arriving at one learner (C1, C3) or the same at all (C2, C4).
[scenario]
name = "Four cases of arrival"
horizon-slots = 20_000
seeds = 5

[[policy]]
name = "CoS"
preset = "cos"
parameters = "z1"

[[policy]]
name = "DCZA"
preset = "dcza"
parameters = "z1"
"""
DEFAULT += "".join(
    f"""
[[environment]]
name = "{case}"
case = "{case}"
learners = 4
functions = 2
dimension = 1
shape = "bumps"
lipschitz = 1.2
prices = 0.05
"""
    for case in ("C1", "C2", "C3", "C4")
)
