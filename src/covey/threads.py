"""What blocks, in threads: the disk in one, functions in another."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from covey.classifiers import Function
from covey.records import Batch
from covey.store import Store
from covey.watchers import Watcher

TURN_S = 0.001  # for which calls are run together before their answers are handed over


class Job(NamedTuple):
    """A call, and who waits for what it returns."""

    answer: asyncio.Future[Any]
    run: Callable[..., Any]
    given: tuple[Any, ...]


class Lane:
    """Runs calls in one thread, in order; those that wait go there together.

    To hand a call to a thread costs more than most calls do.
    """

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        """Take turns in the one thread of `pool`, which may have other work as well."""
        self._pool = pool
        self._jobs: deque[Job] = deque()
        self._is_busy = False

    async def __call__(self, run: Callable[..., Any], /, *given: Any) -> Any:
        """Return what `run` returns."""
        loop = asyncio.get_running_loop()
        job = Job(loop.create_future(), run, given)
        self._jobs.append(job)
        if not self._is_busy:
            self._is_busy = True
            # Not at once: whoever is about to call can come along.
            loop.call_soon(self._go, loop)
        return await job.answer

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            turn = loop.run_in_executor(self._pool, _run_some, self._jobs)
        except RuntimeError as error:  # the threads are closed
            while self._jobs:
                _tell(self._jobs.popleft().answer, None, error)
            self._is_busy = False
            return
        turn.add_done_callback(self._take)

    def _take(self, turn: asyncio.Future[list[tuple[Job, Any, BaseException | None]]]) -> None:
        for job, found, error in turn.result() if not turn.cancelled() else ():
            _tell(job.answer, found, error)
        self._is_busy = bool(self._jobs)
        if self._is_busy:
            self._go(turn.get_loop())


def _run_some(jobs: deque[Job]) -> list[tuple[Job, Any, BaseException | None]]:
    """Run jobs from the left until the turn is over."""
    done: list[tuple[Job, Any, BaseException | None]] = []
    until_s = time.monotonic() + TURN_S
    while jobs:
        job = jobs.popleft()
        if job.answer.cancelled():
            continue
        try:
            done.append((job, job.run(*job.given), None))
        except BaseException as error:
            done.append((job, None, error))
        if time.monotonic() >= until_s:
            break
    return done


def _tell(answer: asyncio.Future[Any], found: Any, error: BaseException | None) -> None:
    if answer.cancelled():
        return
    if error is None:
        answer.set_result(found)
    else:
        answer.set_exception(error)


class Threads:
    """Runs what blocks, one at a time in each thread: a classifier need not bear two callers."""

    def __init__(self, store: Store, watcher: Watcher | None = None) -> None:
        """`watcher` hears how long batches take to write."""
        self._store = store
        self._watcher = Watcher() if watcher is None else watcher
        self._writer = ThreadPoolExecutor(1, "covey-store")
        self._runner = ThreadPoolExecutor(1, "covey-functions")
        self._running = Lane(self._runner)
        self._is_free = asyncio.Lock()  # the store is

    async def __call__(self, run: Callable[..., Any], /, *given: Any) -> Any:
        """Return what `run` returns."""
        owner = getattr(run, "__self__", None)
        if run == self._store.commit:
            return await self._commit(*given)
        if owner is self._store:
            async with self._is_free:
                return await self._in_thread(run, *given)
        if isinstance(owner, Function) and owner.is_instant:
            return run(*given)
        return await self._running(run, *given)

    async def _commit(self, batch: Batch) -> None:
        loop, is_written = asyncio.get_running_loop(), False
        async with self._is_free:
            begun_s = loop.time()
            try:
                # In another thread every statement would wait for this one's turn to end.
                self._store.write(batch)
                await self._in_thread(self._store.sync, batch)
                is_written = True
            finally:
                self._watcher.write(loop.time() - begun_s, is_written=is_written)

    def _in_thread(self, run: Callable[..., Any], *given: Any) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._writer, run, *given)

    def close(self) -> None:
        """Wait for what is under way."""
        self._runner.shutdown()
        self._writer.shutdown()
