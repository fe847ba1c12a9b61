"""Worker processes that end with their work, or immediately on an interrupt."""

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from covey.errors import LimitError

Result = TypeVar("Result")


class Crew:
    """A pool of worker processes."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def submit(self, call: Callable[..., Result], /, *args: Any, **options: Any) -> Future[Result]:
        """Submit a call of an importable function."""
        with _interrupts_blocked():
            return self._pool.submit(call, *args, **options)


@contextlib.contextmanager
def crew(workers: int) -> Iterator[Crew]:
    """Yield processes that end with the block, immediately if it fails."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield Crew(pool)
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
