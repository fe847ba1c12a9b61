"""Jobs in worker processes: of this machine, or of a Ray cluster."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from covey.errors import ConfigError, LimitError

Job = TypeVar("Job")
Result = TypeVar("Result")


class Pool(Protocol):
    """Makes calls somewhere; the place of all jobs."""

    @property
    def workers(self) -> int:
        """How many calls it makes at a time."""

    @property
    def ahead(self) -> int:
        """How many calls to submit before one of them has ended, so that no worker is idle."""

    @property
    def check_every_s(self) -> float | None:
        """How often to call `check` while no call ends; None: never."""

    def check(self) -> None:
        """Raise `LostJob` if no call can end any more."""

    def submit(self, call: Callable[..., Result], /, *args: Any, **options: Any) -> Future[Result]:
        """Begin a call; it must be importable."""


class LostJob(BrokenExecutor):
    """A cluster lost a job for good; the message says how."""


AHEAD = 2  # jobs submitted per worker, so that none is idle


class WorkerPool(ProcessPoolExecutor):
    """A pool of worker processes that never receive interrupts."""

    check_every_s = None

    def __init__(self, workers: int) -> None:
        super().__init__(workers, mp_context=multiprocessing.get_context("spawn"))
        self.workers = workers
        self.ahead = AHEAD * workers

    def check(self) -> None:
        """Do nothing: a process that ends breaks the pool."""

    def submit(self, call: Callable[..., Result], /, *args: Any, **options: Any) -> Future[Result]:
        with _interrupts_blocked():
            return super().submit(call, *args, **options)


class SameProcess(Executor):
    """Makes calls in this process."""

    workers = ahead = 1
    check_every_s = None

    def check(self) -> None:
        """Do nothing: calls end when they are submitted."""

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
    pool = WorkerPool(workers)
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
    except LostJob as error:
        raise LimitError(f"{error}; repeat the command: finished {kept} are kept") from None


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


Submit = Callable[[Pool, Job], "Future[Result]"]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_pool(
    on: str | None, *, workers: int, is_importable: bool = True
) -> AbstractContextManager[Pool]:
    """Return where jobs run: the cluster of an address, or so many processes of this machine.

    What other processes cannot import runs in this one. Raises `ConfigError` if a cluster would be
    needed for that, and if there is no such cluster.
    """
    if on is None:
        return worker_pool(workers) if is_importable else SameProcess()
    if not is_importable:
        raise ConfigError(
            "a policy or an environment is a class that only this process has; write it in a "
            "module that all nodes can import, or leave out the cluster"
        )
    from covey.jobs import ray_cluster

    return ray_cluster.connected(on)


def completed(
    jobs: Iterable[Job], submit: "Submit[Job, Result]", pool: Pool
) -> Generator[tuple[Job, "Future[Result]"], None, None]:
    """Yield each job with its future, in the order in which they finish.

    A deque of jobs may grow meanwhile: what follows from a result is a job of its own.
    """
    waiting = jobs if isinstance(jobs, deque) else deque(jobs)
    futures = dict["Future[Result]", Job]()
    while waiting or futures:
        while waiting and len(futures) < pool.ahead:
            job = waiting.popleft()
            futures[submit(pool, job)] = job
        done, _ = wait(futures, timeout=pool.check_every_s, return_when=FIRST_COMPLETED)
        if not done:
            pool.check()
        # Failed jobs last, so that no finished one is lost.
        ordered = [future for future in futures if future in done]
        for future in sorted(ordered, key=lambda future: future.exception() is not None):
            yield futures.pop(future), future
