"""Run a scenario in worker processes or on a cluster; interrupted runs resume."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey import toml
from covey.data.logs import TraceFile, parquet_module
from covey.jobs import running
from covey.jobs.running import worked
from covey.replay.replay import Progress
from covey.simulation import run as simulation_run
from covey.simulation.run import Run
from covey.simulation.scenario import Scenario

# Called with an environment, settings, and the keywords seed, horizon and checkpoints.
Play = Callable[..., Run]


class Task(NamedTuple):
    """One run: which policy, in which environment, with which seed."""

    policy: str
    environment: str
    seed: int

    def title(self) -> str:
        return f"policy {self.policy!r} in environment {self.environment!r}, seed {self.seed}"

    def path(self, folder: Path) -> Path:
        return folder / "runs" / self.policy / self.environment / f"{self.seed}.json"


def simulate(
    scenario: Scenario,
    folder: str | Path,
    *,
    play: Play = simulation_run.play,
    progress: Progress = lambda share, slots: None,
    on: str | None = None,
) -> list[Run]:
    """Run what is not finished yet in `folder`, and return all runs of the scenario.

    Raises `ConfigError` if the folder belongs to another scenario or version. Interrupted
    simulations resume. `on` is a Ray cluster, "ray" or "ray://host:port", in place of processes.
    """
    parquet_module()  # fail now if it is missing, not after hours
    folder = Path(folder)
    claim(folder, scenario)
    tasks = [
        Task(policy, environment, seed)
        for seed in scenario.seeds
        for environment in scenario.environments
        for policy in scenario.policies
    ]
    played = itertools.count(1)
    runs = worked(
        {task: partial(_run, play, scenario, task) for task in tasks},
        kind=Run,
        paths={task: task.path(folder) for task in tasks},
        workers=scenario.workers,
        on=on,
        is_importable=_is_importable(scenario),
        title=Task.title,
        progress=lambda share, _: progress(share, next(played) * scenario.horizon),
    )
    ordered = list(runs.values())
    with TraceFile(folder / "results.parquet") as table:
        table.write(curves_of(ordered))
    return ordered


def claim(folder: Path, scenario: Scenario) -> None:
    """Mark `folder` as the scenario's, or raise `ConfigError` if it is another's.

    Seeds and workers may change: existing runs stay valid.
    """
    identity = {
        "covey": version("covey"),
        "horizon-slots": scenario.horizon,
        "checkpoints": scenario.checkpoints,
        "policy": scenario.policies,
        "environment": scenario.environments,
    }
    running.claim(folder, identity, file="scenario.json", what="scenario")


def _run(play: Play, scenario: Scenario, task: Task) -> Run:
    run = play(
        scenario.environments[task.environment],
        scenario.policies[task.policy],
        seed=task.seed,
        horizon=scenario.horizon,
        checkpoints=list(scenario.checkpoints),
    )
    return msgspec.structs.replace(run, policy=task.policy, environment=task.environment)


def _is_importable(scenario: Scenario) -> bool:
    """Return whether worker processes find all classes of the user's, by their names."""
    return all(settings.is_importable for settings in scenario.policies.values()) and all(
        toml.is_importable(world.entry) and not world.entry.startswith("__main__:")
        for world in scenario.environments.values()
        if world.entry is not None
    )


def curves_of(runs: Sequence[Run]) -> dict[str, Sequence[Any]]:
    """Return one row per run, checkpoint and cause."""
    rows = [
        (run.policy, run.environment, run.seed, run.learners, slot, cause, value)
        for run in runs
        for cause, curve in run.regret.items()
        for slot, value in zip(run.slots, curve, strict=True)
    ]
    names = ("policy", "environment", "seed", "learners", "slot", "cause", "regret")
    return dict(zip(names, zip(*rows, strict=True), strict=True))
