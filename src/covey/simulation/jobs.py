"""Jobs in worker processes, and a folder that keeps their finished results."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from covey import files
from covey.errors import ConfigError, DataError, LimitError

Job = TypeVar("Job")
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


AHEAD = 2  # jobs submitted per worker, so that none is idle
Submit = Callable[[Executor, Job], "Future[Result]"]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def completed(
    jobs: Sequence[Job], submit: "Submit[Job, Result]", *, workers: int, is_here: bool = False
) -> Generator[tuple[Job, "Future[Result]"], None, None]:
    """Yield each job with its future, in the order in which they finish.

    `is_here`: in this process, because worker processes cannot import what a job calls.
    """
    waiting, futures = deque(jobs), dict["Future[Result]", Job]()
    ahead = 1 if is_here else AHEAD * workers
    with SameProcess() if is_here else worker_pool(min(workers, max(1, len(jobs)))) as pool:
        while waiting or futures:
            while waiting and len(futures) < ahead:
                job = waiting.popleft()
                futures[submit(pool, job)] = job
            done, _ = wait(futures, return_when=FIRST_COMPLETED)
            # Failed jobs last, so that no finished one is lost.
            ordered = [future for future in futures if future in done]
            for future in sorted(ordered, key=lambda future: future.exception() is not None):
                yield futures.pop(future), future


def claim(folder: Path, own: Mapping[str, Any], *, file: str, what: str) -> None:
    """Mark `folder` as that of the work described by `own`; raise `ConfigError` if it is another's.

    `file` holds the description, and `what` names the kind of work in messages.
    """
    path = folder / file
    own = msgspec.json.decode(msgspec.json.encode(own))
    stored: Mapping[str, Any]
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        stored = own
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); choose another folder") from None
    if stored != own:
        raise ConfigError(
            f"{folder} holds runs of another {what}: {_difference(stored, own)}; choose another "
            "folder, or remove this one"
        )
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(path, msgspec.json.format(msgspec.json.encode(own)) + b"\n")


def _difference(stored: Mapping[str, Any], own: Mapping[str, Any], where: str = "") -> str:
    """Return the first key that differs, with both values."""
    key = next(key for key in {**own, **stored} if stored.get(key) != own.get(key))
    old, new = stored.get(key), own.get(key)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _difference(old, new, f"{where}{key} ")
    if isinstance(old, Mapping) or isinstance(new, Mapping):
        return f"{where}{key} is {'only there' if new is None else 'not there'}"
    return f"{where}{key} is {old!r} there and {new!r} here"


def kept(path: Path, kind: type[Result]) -> Result | None:
    """Return the result in a file; None if there is none, or a power loss damaged it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def keep(path: Path, result: Any) -> None:
    """Write a finished result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, msgspec.json.encode(result))
