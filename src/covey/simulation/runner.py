"""Run a scenario in worker processes or on a cluster; interrupted runs resume."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey.bandit.policies import is_importable
from covey.data.logs import TraceFile, parquet_module
from covey.errors import CoveyError
from covey.jobs import folders
from covey.jobs.folders import keep, kept
from covey.jobs.running import Pool, completed, open_pool, unbroken
from covey.replay.replay import Progress
from covey.simulation import run as simulation_run
from covey.simulation.environment import name_of
from covey.simulation.run import Run
from covey.simulation.scenario import Scenario, load

# Called with an environment, settings, and the keywords seed, horizon and checkpoints, and with
# context if the policy has its own.
Play = Callable[..., Run]


class Task(NamedTuple):
    """One run: which policy, in which environment, with which seed."""

    policy: str
    environment: str
    seed: int

    def path(self, folder: Path) -> Path:
        """Return the file of the finished run."""
        return folder / "runs" / self.policy / self.environment / f"{self.seed}.json"


def simulate(
    scenario: Scenario | str | Path | Mapping[str, Any] | None,
    folder: str | Path,
    *,
    play: Play = simulation_run.play,
    progress: Progress | None = None,
    on: str | None = None,
) -> list[Run]:
    """Run what is not finished yet in `folder`, and return all runs of the scenario.

    `scenario` is a checked one, a TOML file, its tables, or None for the embedded one. Raises
    `ConfigError` if the folder belongs to another scenario or version. Interrupted simulations
    resume. `on` is a Ray cluster, "ray" or "ray://host:port", in place of processes here.
    """
    parquet_module()  # fail now if it is missing, not after hours
    folder, scenario = Path(folder), checked(scenario)
    claim(folder, scenario)
    tasks = [
        Task(policy, environment, seed)
        for seed in scenario.seeds
        for environment in scenario.environments
        for policy in scenario.policies
    ]
    finished = {task: run for task in tasks if (run := kept(task.path(folder), Run)) is not None}
    left = [task for task in tasks if task not in finished]
    with contextlib.closing(_runs(scenario, left, play, on)) as results:
        for count, (task, run) in enumerate(results, 1):
            keep(task.path(folder), run)
            finished[task] = run
            if progress is not None:
                progress(count / len(left), count * scenario.horizon)
    ordered = [finished[task] for task in tasks]
    _write_results(ordered, folder / "results.parquet")
    return ordered


def checked(source: Scenario | str | Path | Mapping[str, Any] | None) -> Scenario:
    """Return the scenario of a TOML file or its tables; a checked one as it is."""
    if isinstance(source, Scenario):
        return source
    return load(Path(source) if isinstance(source, str) else source)


def claim(folder: Path, scenario: Scenario) -> None:
    """Mark `folder` as the scenario's, or raise `ConfigError` if it is another's.

    Seeds and workers may change: existing runs stay valid.
    """
    folders.claim(folder, _identity(scenario), file="scenario.json", what="scenario")


def _identity(scenario: Scenario) -> dict[str, Any]:
    """Return all that a run depends on besides its seed, decoded from JSON."""
    identity = {
        "covey": version("covey"),
        "horizon-slots": scenario.horizon,
        "checkpoints": scenario.checkpoints,
        "policy": scenario.policies,
        "environment": scenario.environments,
        "context": scenario.contexts,
    }
    packed = msgspec.json.encode(identity, enc_hook=name_of)
    decoded: dict[str, Any] = msgspec.json.decode(packed)
    return decoded


def _runs(
    scenario: Scenario, tasks: Sequence[Task], play: Play, on: str | None
) -> Generator[tuple[Task, Run], None, None]:
    """Yield each task with its run, in the order in which they finish."""
    # Worker processes find a class of the user's by its name only.
    are_found = all(is_importable(settings) for settings in scenario.policies.values()) and not any(
        callable(world.entry) for world in scenario.environments.values()
    )
    if not tasks:
        return

    def submit(pool: Pool, task: Task) -> Future[Run]:
        context = scenario.contexts.get(task.policy)
        with _named(task):
            return pool.submit(
                play,
                scenario.environments[task.environment],
                scenario.policies[task.policy],
                seed=task.seed,
                horizon=scenario.horizon,
                checkpoints=list(scenario.checkpoints),
                **({} if context is None else {"context": context}),
            )

    workers = min(scenario.workers, len(tasks))
    where = open_pool(on, workers=workers, is_importable=are_found)
    with where as pool, unbroken("runs"):
        for task, future in completed(tasks, submit, pool):
            with _named(task):
                run = future.result()
            names = {"policy": task.policy, "environment": task.environment}
            yield task, msgspec.structs.replace(run, **names)


@contextlib.contextmanager
def _named(task: Task) -> Iterator[None]:
    """Name the run in errors."""
    where = f"policy {task.policy!r} in environment {task.environment!r}, seed {task.seed}"
    try:
        yield
    except CoveyError as error:
        raise type(error)(f"{where}: {error}") from None


def _write_results(found: Sequence[Run], path: Path) -> None:
    """Write one row per run, checkpoint and cause, atomically."""
    with TraceFile(path) as table:
        table.write(curves_of(found))


def curves_of(found: Sequence[Run]) -> dict[str, Sequence[Any]]:
    """Return the regret of runs as columns, with one row per run, checkpoint and cause."""
    rows = [
        (run.policy, run.environment, run.seed, run.learners, slot, cause, value)
        for run in found
        for cause, curve in run.regret.items()
        for slot, value in zip(run.slots, curve, strict=True)
    ]
    names = ("policy", "environment", "seed", "learners", "slot", "cause", "regret")
    return dict(zip(names, zip(*rows, strict=True), strict=True))
