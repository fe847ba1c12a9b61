"""Functions in threads: one for each, with deadlines, and turns that are fair to all sources."""

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from covey.errors import FunctionBusy
from covey.node.requests import OWN, SHADOW, is_own
from covey.node.training import Steps

log = logging.getLogger(__name__)
TURN_S = 0.001  # for which calls are run together before their results are handed over
TAKEN_S = 1.0  # that one call may take before others no longer wait for its function
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # for which a function that was late is not called
# A future, its method that ends it, and what that is given.
Outcome = tuple[asyncio.Future[Any], Callable[[Any], None], Any]


class Job(msgspec.Struct, eq=False):
    """A call that waits for a function, or has begun."""

    result: asyncio.Future[Any]
    call: Callable[[], Any]
    source: str
    patience_s: float  # for which it waits for another call
    is_begun: bool = False


class FairQueue:
    """Jobs by source: own clients first, in order, then peers in turn, then those in the shadow.

    Two threads use it.
    """

    def __init__(self) -> None:
        self._own: deque[Job] = deque()
        self._peers: dict[str, deque[Job]] = {}  # the first is the next one
        self._shadow: deque[Job] = deque()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._own or self._peers or self._shadow)

    def add(self, job: Job) -> None:
        with self._lock:
            self._of(job).append(job)

    def put_back(self, job: Job) -> None:
        """Return a job that is not done: the next one of its source, after other sources."""
        with self._lock:
            self._of(job).appendleft(job)

    def take(self) -> Job | None:
        """Remove and return the next job; None: there is none."""
        with self._lock:
            if self._own:
                return self._own.popleft()
            if not self._peers:
                return self._shadow.popleft() if self._shadow else None
            source = next(iter(self._peers))
            jobs = self._peers.pop(source)
            job = jobs.popleft()
            if jobs:
                self._peers[source] = jobs
            return job

    def remove(self, is_wanted: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the jobs for which this holds."""
        with self._lock:
            removed: list[Job] = []
            for jobs in (self._own, *self._peers.values(), self._shadow):
                removed += filter(is_wanted, jobs)
                kept = [one for one in jobs if not is_wanted(one)]
                jobs.clear()
                jobs.extend(kept)
            self._peers = {source: jobs for source, jobs in self._peers.items() if jobs}
            return removed

    def _of(self, job: Job) -> deque[Job]:
        if job.source == SHADOW:
            return self._shadow
        return self._own if is_own(job.source) else self._peers.setdefault(job.source, deque())


class FunctionThread:
    """Runs the calls of one function in a thread, one at a time, within a deadline.

    Calls that wait go there together, as handing one over costs more than most calls do. A call
    that is late gets `FunctionBusy`, and so do those that wait. The function is then called again
    when it has returned and a pause is over, with one call at first; pauses double.
    """

    def __init__(self, name: str, timeout_s: float = math.inf) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._taken_s = min(TAKEN_S, timeout_s)
        self._jobs = FairQueue()
        self._done: deque[Outcome] = deque()
        self._turns: queue.SimpleQueue[asyncio.AbstractEventLoop | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = self._is_stopped = False
        self._running: Job | None = None
        self._began_s = math.inf  # the call in progress
        self._has_overrun = False  # a call of this turn
        self._is_late = False  # since a call overran, until one returns in time
        self._is_stuck = False  # that call has not returned
        self._pause_s, self._until_s = FIRST_PAUSE_S, -math.inf

    @property
    def is_available(self) -> bool:
        """Whether a call would not wait long."""
        if self._is_late:
            is_free = not (self._is_stuck or self._is_busy)
            return is_free and time.monotonic() >= self._until_s
        return not self._is_busy or time.monotonic() - self._began_s < self._taken_s

    async def run(
        self, call: Callable[[], Any], *, source: str = OWN, patience_s: float = math.inf
    ) -> Any:
        """Return `call()`; raise `FunctionBusy` if it is late.

        The call waits for its turn unless one before it takes longer than `patience_s`.
        """
        if self._is_stopped:
            raise RuntimeError(f"{self._name} is stopped")
        if self._is_stuck or (patience_s < math.inf and not self.is_available):
            raise FunctionBusy(f"{self._name} is busy; try again later")
        loop = asyncio.get_running_loop()
        result = loop.create_future()
        self._jobs.add(Job(result, call, source, patience_s))
        if not self._is_busy:
            self._is_busy = True
            # Not at once: calls that are about to come can go along.
            loop.call_soon(self._start, loop)
        return await result

    def stop(self) -> None:
        """Run no further calls."""
        self._is_stopped = True
        self._turns.put(None)

    def has_ended(self, within_s: float) -> bool:
        """Wait until the thread has ended; return whether it has."""
        if self._thread is not None:
            self._thread.join(max(0.0, within_s))
        return self._thread is None or not self._thread.is_alive()

    # -- in the event loop ----------------------------------------------------------------------

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._is_stopped:
            self._release(RuntimeError(f"{self._name} is stopped"), self._jobs.remove(_is_any))
            self._is_busy = False
            return
        if self._thread is None:
            # A daemon: a function that never returns must not keep the process.
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        if self._timer is None and self._timeout_s < math.inf:
            self._timer = loop.call_later(self._taken_s, self._watch, loop)
        self._turns.put(loop)

    def _finish(self, loop: asyncio.AbstractEventLoop) -> None:
        self._resolve()
        if self._has_overrun:
            self._has_overrun, self._is_late = False, True
            self._until_s = time.monotonic() + self._pause_s
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
            if self._is_stuck:
                log.warning("%s has returned, after its deadline", self._name)
            busy = FunctionBusy(f"{self._name} is busy; try again later")
            self._release(busy, self._jobs.remove(lambda one: one.patience_s < math.inf))
        else:
            self._is_late, self._pause_s = False, FIRST_PAUSE_S
        self._is_stuck = False
        self._is_busy = bool(self._jobs)
        if self._is_busy:
            self._start(loop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give up on calls that take too long."""
        self._timer = None
        if not self._is_busy or self._is_stuck:
            return
        busy_s = max(0.0, time.monotonic() - self._began_s)
        if busy_s >= self._timeout_s:
            self._give_up()
            return
        if busy_s >= self._taken_s:
            waiting = self._jobs.remove(lambda one: not one.is_begun and one.patience_s <= busy_s)
            self._release(FunctionBusy(f"{self._name} is busy; try again later"), waiting)
        left_s = (self._taken_s if busy_s < self._taken_s else self._timeout_s) - busy_s
        self._timer = loop.call_later(left_s, self._watch, loop)

    def _give_up(self) -> None:
        self._is_stuck = self._is_late = True
        log.warning(
            "%s has not returned within %g s; it is not called until it has",
            self._name,
            self._timeout_s,
        )
        self._resolve()
        running = [] if self._running is None else [self._running]
        self._release(self._late(), [*running, *self._jobs.remove(_is_any)])

    def _late(self) -> FunctionBusy:
        return FunctionBusy(f"{self._name} did not return within {self._timeout_s:g} s")

    def _release(self, error: Exception, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if not job.result.done():
                job.result.set_exception(error)

    def _resolve(self) -> None:
        while self._done:
            result, resolve, value = self._done.popleft()
            if not result.done():
                resolve(value)

    # -- in the thread --------------------------------------------------------------------------

    def _work(self) -> None:
        while (loop := self._turns.get()) is not None:
            self._run_some()
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._finish, loop)

    def _run_some(self) -> None:
        """Run jobs until the turn is over."""
        now_s = time.monotonic()
        until_s, has_results = now_s + TURN_S, False
        while not (has_results and now_s >= until_s) and (job := self._jobs.take()) is not None:
            if job.result.done():
                continue
            self._running, self._began_s = job, now_s
            outcome = self._run_one(job)
            now_s, began_s, self._began_s = time.monotonic(), self._began_s, math.inf
            if now_s - began_s >= self._timeout_s:
                self._has_overrun = True
                outcome = job.result, job.result.set_exception, self._late()
            if outcome is None:
                self._jobs.put_back(job)
            else:
                self._done.append(outcome)
                has_results = True
            if self._has_overrun:
                break
        self._running = None

    def _run_one(self, job: Job) -> Outcome | None:
        """Run a job, or a part of it; return its outcome, None if there is more to do."""
        job.is_begun, call = True, job.call
        try:
            if not isinstance(call, Steps):
                return job.result, job.result.set_result, call()
            return (job.result, job.result.set_result, call.result) if call.step() else None
        except BaseException as error:
            return job.result, job.result.set_exception, error


def _is_any(job: Job) -> bool:
    return True
