"""Run a scenario in worker processes; interrupted runs resume."""

import contextlib
import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from covey import files
from covey.bandit.policies import is_importable
from covey.data.logs import TraceFile, parquet_module
from covey.errors import ConfigError, CoveyError, DataError, LimitError
from covey.replay.replay import Progress
from covey.simulation import run as simulation_run
from covey.simulation.environment import name_of
from covey.simulation.run import Run
from covey.simulation.scenario import Scenario

Result = TypeVar("Result")


class WorkerPool(ProcessPoolExecutor):
    """A pool of worker processes that never receive interrupts; calls must be importable."""

    def submit(self, call: Callable[..., Result], /, *args: Any, **options: Any) -> Future[Result]:
        with _interrupts_blocked():
            return super().submit(call, *args, **options)


class SameProcess(Executor):
    """Makes calls in this process."""

    def submit(self, call: Callable[..., Result], /, *args: Any, **options: Any) -> Future[Result]:
        future: Future[Result] = Future()
        try:
            future.set_result(call(*args, **options))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def worker_pool(workers: int) -> Iterator[WorkerPool]:
    """Yield processes that end with the block, immediately if it fails."""
    others = set(multiprocessing.active_children())
    pool = WorkerPool(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def unbroken(kept: str) -> Iterator[None]:
    """Raise `LimitError` if a worker was killed; finished `kept` are not lost."""
    try:
        yield
    except BrokenProcessPool:
        raise LimitError(
            "a worker process was killed, probably because memory ran out; repeat the command with "
            f"fewer workers: finished {kept} are kept"
        ) from None


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Defer interrupts until the block ends; processes that it starts never receive them.

    A terminal interrupts all processes; the parent terminates the workers, without tracebacks.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "pthread_sigmask") or not is_main_thread:
        yield
        return
    received: list[int] = []
    # If another thread gets the signal, Python still runs the handler in this one.
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if received and callable(handler):
            handler(signal.SIGINT, None)


_AHEAD = 2  # runs submitted per worker, so that none is idle


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
    scenario: Scenario,
    folder: Path,
    *,
    play: Play = simulation_run.play,
    progress: Progress | None = None,
) -> list[Run]:
    """Run what is not finished yet in `folder`, and return all runs of the scenario.

    Raises `ConfigError` if the folder belongs to another scenario or version. Interrupted
    simulations resume.
    """
    parquet_module()  # fail now if it is missing, not after hours
    claim(folder, scenario)
    tasks = [
        Task(policy, environment, seed)
        for seed in scenario.seeds
        for environment in scenario.environments
        for policy in scenario.policies
    ]
    finished = {task: run for task in tasks if (run := _finished(task.path(folder))) is not None}
    left = [task for task in tasks if task not in finished]
    with contextlib.closing(_runs(scenario, left, play)) as results:
        for count, (task, run) in enumerate(results, 1):
            path = task.path(folder)
            path.parent.mkdir(parents=True, exist_ok=True)
            files.replace(path, msgspec.json.encode(run))
            finished[task] = run
            if progress is not None:
                progress(count / len(left), count * scenario.horizon)
    ordered = [finished[task] for task in tasks]
    _write_results(ordered, folder / "results.parquet")
    return ordered


def claim(folder: Path, scenario: Scenario) -> None:
    """Mark `folder` as the scenario's, or raise `ConfigError` if it is another's.

    Seeds and workers may change: existing runs stay valid.
    """
    path = folder / "scenario.json"
    own = _identity(scenario)
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        stored = own
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); choose another folder") from None
    if stored != own:
        raise ConfigError(
            f"{folder} holds runs of another scenario: {_difference(stored, own)}; choose another "
            "folder, or remove this one"
        )
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(path, msgspec.json.format(msgspec.json.encode(own)) + b"\n")


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


def _difference(stored: Mapping[str, Any], own: Mapping[str, Any], where: str = "") -> str:
    """Return the first key that differs, with both values."""
    key = next(key for key in {**own, **stored} if stored.get(key) != own.get(key))
    old, new = stored.get(key), own.get(key)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _difference(old, new, f"{where}{key} ")
    if isinstance(old, Mapping) or isinstance(new, Mapping):
        return f"{where}{key} is {'only there' if new is None else 'not there'}"
    return f"{where}{key} is {old!r} there and {new!r} here"


def _finished(path: Path) -> Run | None:
    """Return the run in a file; None if there is none, or a power loss damaged it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _runs(
    scenario: Scenario, tasks: Sequence[Task], play: Play
) -> Generator[tuple[Task, Run], None, None]:
    """Yield each task with its run, in the order in which they finish."""
    waiting, futures = deque(tasks), dict[Future[Run], Task]()
    # Worker processes find a class of the user's by its name only.
    is_here = any(callable(world.entry) for world in scenario.environments.values()) or not all(
        is_importable(settings) for settings in scenario.policies.values()
    )
    workers = min(scenario.workers, max(1, len(tasks)))
    ahead = 1 if is_here else _AHEAD * scenario.workers
    with SameProcess() if is_here else worker_pool(workers) as pool:
        while waiting or futures:
            while waiting and len(futures) < ahead:
                task = waiting.popleft()
                context = scenario.contexts.get(task.policy)
                with _named(task):
                    future = pool.submit(
                        play,
                        scenario.environments[task.environment],
                        scenario.policies[task.policy],
                        seed=task.seed,
                        horizon=scenario.horizon,
                        checkpoints=list(scenario.checkpoints),
                        **({} if context is None else {"context": context}),
                    )
                futures[future] = task
            done, _ = wait(futures, return_when=FIRST_COMPLETED)
            # Failed runs last, so that no finished run is lost.
            ordered = [future for future in futures if future in done]
            for future in sorted(ordered, key=lambda future: future.exception() is not None):
                task = futures.pop(future)
                with _named(task):
                    run = future.result()
                names = {"policy": task.policy, "environment": task.environment}
                yield task, msgspec.structs.replace(run, **names)


@contextlib.contextmanager
def _named(task: Task) -> Iterator[None]:
    """Name the run in errors."""
    where = f"policy {task.policy!r} in environment {task.environment!r}, seed {task.seed}"
    with unbroken("runs"):
        try:
            yield
        except CoveyError as error:
            raise type(error)(f"{where}: {error}") from None


def _write_results(found: Sequence[Run], path: Path) -> None:
    """Write one row per run, checkpoint and cause, atomically."""
    rows = [
        (run.policy, run.environment, run.seed, run.learners, slot, cause, value)
        for run in found
        for cause, curve in run.regret.items()
        for slot, value in zip(run.slots, curve, strict=True)
    ]
    names = ("policy", "environment", "seed", "learners", "slot", "cause", "regret")
    with TraceFile(path) as table:
        table.write(dict(zip(names, zip(*rows, strict=True), strict=True)))
