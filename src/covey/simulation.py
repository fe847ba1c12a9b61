"""A scenario -> its runs, in all processes at once, in a folder that can be resumed.

The folder holds `scenario.json`, which says whose runs these are, one file per finished run under
`runs`, and in the end `results.parquet`. A run is written when it is finished, whole or not at all.
"""

import contextlib
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from covey import files, runs
from covey.crews import Crew, crew, unbroken
from covey.environments import Environment
from covey.errors import ConfigError, CoveyError, DataError
from covey.logs import parquet_module
from covey.scenario import Scenario
from covey.settings import Settings
from covey.traces import TraceFile
from covey.types import Run

_AHEAD = 2  # runs handed out per worker, so that none has to wait for the next


class Play(Protocol):
    """What plays one policy in one world; a worker process must be able to import it."""

    def __call__(
        self,
        environment: Environment,
        settings: Settings,
        *,
        seed: int,
        horizon: int,
        checkpoints: list[int],
    ) -> Run:
        """Return what came of it."""


class Task(NamedTuple):
    """One run: which policy, in which environment, with which seed."""

    policy: str
    environment: str
    seed: int

    def path(self, folder: Path) -> Path:
        """Return where the finished run stands."""
        return folder / "runs" / self.policy / self.environment / f"{self.seed}.json"


class Shown(Protocol):
    """What is told how far the work has come."""

    def __call__(self, share: float, slots: int) -> None:
        """Take the share that is done, and the slots played so far."""


def simulate(
    scenario: Scenario, folder: Path, *, play: Play = runs.play, progress: Shown | None = None
) -> list[Run]:
    """Play what is not finished yet in `folder`, and return all runs of the scenario.

    Raises `ConfigError` if the folder belongs to another scenario or version. An interruption
    leaves a folder with which the same call goes on.
    """
    parquet_module()  # its absence is better known now than after hours
    claim(folder, scenario)
    tasks = tasks_of(scenario)
    finished = {task: run for task in tasks if (run := _finished(task.path(folder))) is not None}
    left = [task for task in tasks if task not in finished]
    with contextlib.closing(_played(scenario, left, play)) as played:
        for count, (task, run) in enumerate(played, 1):
            path = task.path(folder)
            path.parent.mkdir(parents=True, exist_ok=True)
            files.replace(path, msgspec.json.encode(run))
            finished[task] = run
            if progress is not None:
                progress(count / len(left), count * scenario.horizon)
    found = [finished[task] for task in tasks]
    _write_results(found, folder / "results.parquet")
    return found


def tasks_of(scenario: Scenario) -> list[Task]:
    """Return every run of a scenario, all policies and environments of a seed before the next."""
    return [
        Task(policy, environment, seed)
        for seed in scenario.seeds
        for environment in scenario.environments
        for policy in scenario.policies
    ]


def claim(folder: Path, scenario: Scenario) -> None:
    """Make `folder` that of the scenario, or refuse it with the reason.

    More or other seeds and workers are no other scenario: runs that are there remain what they are.
    """
    path = folder / "scenario.json"
    mine = _identity(scenario)
    try:
        theirs = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        theirs = mine
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); choose another folder") from None
    if theirs != mine:
        raise ConfigError(
            f"{folder} holds runs of another scenario: {_difference(theirs, mine)}; choose another "
            "folder, or remove this one"
        )
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(path, msgspec.json.format(msgspec.json.encode(mine)) + b"\n")


def _identity(scenario: Scenario) -> dict[str, Any]:
    """Return all that a run depends on besides its seed, as JSON would give it back."""
    identity = {
        "covey": version("covey"),
        "horizon-slots": scenario.horizon,
        "checkpoints": scenario.checkpoints,
        "policy": scenario.policies,
        "environment": scenario.environments,
    }
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(identity))
    return decoded


def _difference(theirs: Mapping[str, Any], mine: Mapping[str, Any], where: str = "") -> str:
    """Return the first key that differs, with both values."""
    key = next(key for key in {**mine, **theirs} if theirs.get(key) != mine.get(key))
    there, here = theirs.get(key), mine.get(key)
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        return _difference(there, here, f"{where}{key} ")
    if isinstance(there, Mapping) or isinstance(here, Mapping):
        return f"{where}{key} is {'only there' if here is None else 'not there'}"
    return f"{where}{key} is {there!r} there and {here!r} here"


def _finished(path: Path) -> Run | None:
    """Return the run in a file; None if there is none, or a power loss left it in pieces."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _played(
    scenario: Scenario, tasks: Sequence[Task], play: Play
) -> Generator[tuple[Task, Run], None, None]:
    """Yield each task with its run, as they are finished."""
    waiting, futures = deque(tasks), dict[Future[Run], Task]()
    with crew(min(scenario.workers, max(1, len(tasks)))) as pool:
        while waiting or futures:
            while waiting and len(futures) < _AHEAD * scenario.workers:
                task = waiting.popleft()
                with _named(task):
                    futures[_submit(pool, task, scenario, play)] = task
            done, _ = wait(futures, return_when=FIRST_COMPLETED)
            # Those that failed come last, so that none that succeeded is lost on them.
            ordered = [future for future in futures if future in done]
            for future in sorted(ordered, key=lambda future: future.exception() is not None):
                task = futures.pop(future)
                with _named(task):
                    run = future.result()
                names = {"policy": task.policy, "environment": task.environment}
                yield task, msgspec.structs.replace(run, **names)


def _submit(pool: Crew, task: Task, scenario: Scenario, play: Play) -> Future[Run]:
    return pool.submit(
        play,
        scenario.environments[task.environment],
        scenario.policies[task.policy],
        seed=task.seed,
        horizon=scenario.horizon,
        checkpoints=list(scenario.checkpoints),
    )


@contextlib.contextmanager
def _named(task: Task) -> Iterator[None]:
    """Say in which run something went wrong."""
    where = f"policy {task.policy!r} in environment {task.environment!r}, seed {task.seed}"
    with unbroken("runs"):
        try:
            yield
        except CoveyError as error:
            raise type(error)(f"{where}: {error}") from None


def _write_results(found: Sequence[Run], path: Path) -> None:
    """Write one row per run, checkpoint and cause; the file appears once it is whole."""
    rows = [
        (run.policy, run.environment, run.seed, run.learners, slot, cause, value)
        for run in found
        for cause, curve in run.regret.items()
        for slot, value in zip(run.slots, curve, strict=True)
    ]
    names = ("policy", "environment", "seed", "learners", "slot", "cause", "regret")
    with TraceFile(path) as table:
        table.write(dict(zip(names, zip(*rows, strict=True), strict=True)))
