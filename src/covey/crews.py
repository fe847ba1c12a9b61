"""Worker processes that end when their work does, and at once when it is interrupted."""

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from covey.errors import LimitError

Given = TypeVar("Given")


class Crew:
    """Processes that calls are handed to."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def submit(self, call: Callable[..., Given], /, *given: Any, **more: Any) -> Future[Given]:
        """Hand over a call; what it runs must be importable."""
        with _interrupts_held():
            return self._pool.submit(call, *given, **more)


@contextlib.contextmanager
def crew(workers: int) -> Iterator[Crew]:
    """Give processes that end with the block, at once if it fails."""
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
    """Say what to do if a process was ended from outside; finished `kept` are not lost by that."""
    try:
        yield
    except BrokenProcessPool:
        raise LimitError(
            "a worker process was ended from outside, most likely for want of memory; run the same "
            f"command again with fewer workers: finished {kept} are kept"
        ) from None


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Keep interrupts until the block ends, and from processes that it starts for good.

    A terminal interrupts them all; it is the parent that ends the others, without their tracebacks.
    """
    if not hasattr(signal, "pthread_sigmask") or not _is_main_thread():
        yield
        return
    came: list[int] = []
    # Another thread may get the signal; Python would then interrupt this one all the same.
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(signal.SIGINT, None)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
