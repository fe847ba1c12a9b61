"""The scenarios of this folder -> their runs, kept in a folder from which the same call goes on."""

import hashlib
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import covey
from covey.bandit.policies import resolve, settings_from
from covey.simulation import runner
from covey.simulation import scenario as simulation_scenario
from covey.simulation.comparison import total
from covey.simulation.run import Run
from covey.simulation.scenario import Scenario

HERE = Path(__file__).parent
# What a run comes to depends on these alone: runs of other versions of them are not mixed in.
SOURCES = (
    "bandit/partitions",
    "bandit/policies",
    "bandit/theorems",
    *(
        f"kernel/{part}"
        for part in (
            "arena",
            "belief",
            "cells",
            "counters",
            "index",
            "phases",
            "spaces",
            "table",
            "tree",
        )
    ),
    "kernel/thresholds",
    "replay/engine",
    "simulation/drift",
    "simulation/environment",
    "simulation/oracle",
    "simulation/run",
    "simulation/sites",
    "simulation/world",
)


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


def digest() -> str:
    """Return a name for the code that runs depend on."""
    source = Path(covey.__file__).parent
    texts = [(source / f"{name}.py").read_bytes() for name in SOURCES]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:12]


def play(name: str, kept: Path, effort: Effort) -> Played:
    """Play the scenario of the file `name`.toml."""
    chosen = simulation_scenario.load(
        HERE / f"{name}.toml", horizon_slots=effort.slots, **effort.changes()
    )
    return _played(chosen, _folder(kept, name))


def play_series(name: str, kept: Path, effort: Effort) -> list[Played]:
    """Play the scenario of the file `name`.toml for each of its horizons."""
    tables = tomllib.loads((HERE / f"{name}.toml").read_text())
    series = tables.pop("series")
    return [
        _played(
            simulation_scenario.load(_made_for(tables, horizon, series), **effort.changes()),
            _folder(kept, name) / str(horizon),
        )
        for horizon in effort.horizons or series["horizons"]
    ]


def _folder(kept: Path, name: str) -> Path:
    """Return where the runs of a file are kept: those of another text of it lie elsewhere."""
    text = (HERE / f"{name}.toml").read_bytes()
    return kept / f"{name}-{hashlib.sha256(text).hexdigest()[:6]}"


def _played(chosen: Scenario, folder: Path) -> Played:
    print(f"{chosen.name}: {chosen.horizon:,} slots, {len(chosen.seeds)} seeds", file=sys.stderr)
    return Played(chosen, runner.simulate(chosen, folder))


def _made_for(tables: Mapping[str, Any], horizon: int, series: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario of so many slots whose policies are made for it."""
    dimension = tables["environment"][0].get("dimension", 1)
    policies = [{**table, "horizon": horizon} for table in tables["policy"]]
    if "threshold-scale" in series:
        policies = [
            table | dict(_scaled(table, dimension, series["threshold-scale"])) for table in policies
        ]
    plan = {**tables["scenario"], "horizon-slots": horizon}
    return {**tables, "scenario": plan, "policy": policies}


def _scaled(table: Mapping[str, Any], dimension: int, scale: float) -> Iterator[tuple[str, Any]]:
    """Yield the thresholds of a policy, times `scale`, for learners with two functions."""
    written = {key: value for key, value in table.items() if key != "name"}
    policy = resolve(settings_from(written), dimension=dimension, most_functions=2)
    for key in ("explore", "train", "explore-peers"):
        threshold = getattr(policy, key.replace("-", "_"))
        yield key, {"scale": scale * threshold.scale, "power": threshold.power}
