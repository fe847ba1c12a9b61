"""The scenarios of this folder -> their runs, kept in a folder from which the same call goes on."""

import hashlib
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey.bandit.policies import AnyPolicy, PolicyRecord, policy_from
from covey.simulation import run as simulation_run
from covey.simulation import runner
from covey.simulation import scenario as simulation_scenario
from covey.simulation.comparison import total
from covey.simulation.environment import environment_from
from covey.simulation.run import Run
from covey.simulation.scenario import Scenario

HERE = Path(__file__).parent
# What a policy does in these worlds names it: runs of one that decides otherwise are not mixed in.
PROBES: tuple[dict[str, Any], ...] = (
    {"name": "switching", "prices": 0.05, "delay-slots": 40, "label-probability": 0.8,
     "drift": {"kind": "switch", "severity": 0.3, "every-slots": 1_500}},
    {"name": "two dimensions", "prices": 0.05, "dimension": 2},
    {"name": "one receives", "prices": 0.05, "correlation": "worst"},
)  # fmt: skip
probe_slots = 6_000  # fewer where all is quick


class Effort(NamedTuple):
    """How long and how often is played: as the files say (None), or less."""

    slots: int | None = None
    seeds: int | None = None
    horizons: tuple[int, ...] | None = None
    workers: int | None = None

    def changes(self) -> dict[str, int | None]:
        """Return the keys of `[scenario]` that stand instead of what is written there."""
        return {"seeds": self.seeds, "workers": self.workers}


class Played(NamedTuple):
    """A scenario and its runs, seed by seed."""

    scenario: Scenario
    runs: list[Run]

    def team(self, policy: str, environment: str) -> list[Run]:
        """Return the runs of a policy in an environment, in the order of their seeds."""
        mine = [r for r in self.runs if (r.policy, r.environment) == (policy, environment)]
        return sorted(mine, key=lambda run: run.seed)

    def losses(self, policy: str, environment: str) -> list[float]:
        """Return the regret of one receiving learner per slot, seed by seed."""
        return [total(run)[-1] / run.slots[-1] for run in self.team(policy, environment)]


def behaviour(settings: PolicyRecord) -> str:
    """Return a name for what a policy does: runs stay valid while its code changes, but not it."""
    return _behaviour(msgspec.json.encode(settings))


@cache
def _behaviour(written: bytes) -> str:
    settings = msgspec.json.decode(written, type=AnyPolicy)
    found = hashlib.sha256(written)
    slots = min(probe_slots, settings.slots or probe_slots)
    marks = range(max(1, slots // 20), slots + 1, max(1, slots // 20))
    for table in PROBES:
        world = environment_from(table)
        run = simulation_run.play(world, settings, seed=1, horizon=slots, checkpoints=marks)
        found.update(msgspec.json.encode(msgspec.structs.replace(run, seconds=0.0)))
    return found.hexdigest()[:12]


def play(name: str, kept: Path, effort: Effort) -> Played:
    """Play the scenario of the file `name`.toml."""
    chosen = simulation_scenario.load(
        HERE / f"{name}.toml", horizon_slots=effort.slots, **effort.changes()
    )
    return _played(chosen, kept / name)


def play_series(name: str, kept: Path, effort: Effort) -> list[Played]:
    """Play the scenario of the file `name`.toml for each of its horizons."""
    tables = tomllib.loads((HERE / f"{name}.toml").read_text())
    series = tables.pop("series")
    return [
        _played(
            simulation_scenario.load(_made_for(tables, horizon, series), **effort.changes()),
            kept / name / str(horizon),
        )
        for horizon in effort.horizons or series["horizons"]
    ]


def _played(chosen: Scenario, folder: Path) -> Played:
    """Play a scenario; the folder of its runs is named by its worlds and its policies."""
    print(f"{chosen.name}: {chosen.horizon:,} slots, {len(chosen.seeds)} seeds", file=sys.stderr)
    found = hashlib.sha256(msgspec.json.encode(chosen.environments, order="sorted"))
    found.update(repr([chosen.horizon, chosen.checkpoints, chosen.seeds]).encode())
    for settings in chosen.policies.values():
        found.update(behaviour(settings).encode())
    return Played(chosen, runner.simulate(chosen, folder / found.hexdigest()[:12]))


def _made_for(tables: Mapping[str, Any], horizon: int, series: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario of so many slots whose policies are made for it."""
    dimension = tables["environment"][0].get("dimension", 1)
    policies = [
        {**table, "horizon": horizon} if table["preset"] == "cos" else table
        for table in tables["policy"]
    ]
    if "threshold-scale" in series:
        policies = [
            table | dict(_scaled(table, dimension, series["threshold-scale"])) for table in policies
        ]
    plan = {**tables["scenario"], "horizon-slots": horizon}
    return {**tables, "scenario": plan, "policy": policies}


def _scaled(table: Mapping[str, Any], dimension: int, scale: float) -> Iterator[tuple[str, Any]]:
    """Yield the thresholds of a policy, times `scale`, for learners with two functions."""
    written = {key: value for key, value in table.items() if key != "name"}
    policy = policy_from(written).resolve(dimension=dimension, most_functions=2)
    for key in ("explore", "train", "explore-peers"):
        threshold = getattr(policy, key.replace("-", "_"))
        yield key, {"scale": scale * threshold.scale, "power": threshold.power}
