"""The work of a node that blocks or waits: functions in threads and processes, and the journal.

Threads and processes have deadlines and turns that are fair to all sources.
"""

import asyncio
import contextlib
import logging
import math
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextvars import ContextVar
from functools import partial
from itertools import chain, islice
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np
from msgspec import Meta

from covey.data.inputs import LabelSet, Rows, check_plain, plain_label
from covey.errors import (
    ConfigError,
    CoveyError,
    DataError,
    FunctionBusy,
    FunctionError,
    PeerError,
    StoreError,
    StoreFull,
    place_of,
)
from covey.functions.function import Function, Late
from covey.kernel.rules import Report
from covey.node.peers import DEADLINE_S, CircuitBreaker, LogThrottle, PaymentCounters
from covey.site.requests import (
    OWN,
    SHADOW,
    AskRow,
    Assistance,
    Commit,
    QueryKind,
    Request,
    SeriesLine,
    is_own,
)
from covey.site.state import MOST_CELLS, StoredState
from covey.site.status import SiteHistory
from covey.store.store import Store
from covey.types import Label

log = logging.getLogger(__name__)
TURN_S = 0.001  # for which calls are run together before their results are handed over
TAKEN_S = 1.0  # that one call may take before others no longer wait for its function
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # for which a function that was late is not called
# A future, its method that ends it, and what that is given.
Outcome = tuple[asyncio.Future[Any], Callable[[Any], None], Any]
MOST_FAILURES = 3  # of a function in a row, after which it is trained no more


class Steps:
    """Calls of a function that can be made one after the other; calling it makes those left."""

    result: Any = None

    def step(self) -> bool:
        """Make the next calls, if any are left; return whether none is left then."""
        raise NotImplementedError

    def __call__(self) -> Any:
        while not self.step():
            pass
        return self.result


class Trainer:
    """Trains the functions of a site: once for each label, in the order in which labels come."""

    def __init__(
        self,
        functions: Sequence[Function],
        run: Callable[..., Awaitable[Any]],
        places: Callable[[], Mapping[str, int]],
    ) -> None:
        """`run(function, call)` runs a call; `places` returns functions by what they count as."""
        self._functions = functions
        self._run = run
        self._places = places
        self._failures: Counter[int] = Counter()  # of each function, in a row
        self.trainable = {k for k, function in enumerate(functions) if function.teach is not None}

    async def train(self, request: Request, rows: Sequence[int], truths: Mapping[int, Any]) -> None:
        """Train with the labels of rows, each function with all its rows at once.

        Raises `FunctionError` if a function cannot learn; what it was trained with is not repeated.
        A function that failed `MOST_FAILURES` times in a row is trained no more. One that is busy,
        or does not return in time, is not trained with these labels: they must not wait for it.
        """
        training, places = dict(request.training), self._places()
        request.training = training
        for number, id_ in sorted(
            {(places.get(training[row][0], -1), training[row][0]) for row in rows}
        ):
            part = {row: training.pop(row) for row in rows if training.get(row, ("",))[0] == id_}
            if number not in self.trainable:
                continue
            function = self._functions[number]
            instances = [instance for _, instance in part.values()]
            training_of = Training(function, instances, [truths[row] for row in part])
            try:
                await self._run(function, training_of)
            except FunctionBusy:
                log.warning(
                    "%s is busy; %d labels count and do not train it",
                    function,
                    len(part) - training_of.done,
                )
            except FunctionError as error:
                done = training_of.done
                training.update(list(part.items())[done:])
                self._failures[number] = 1 if done else self._failures[number] + 1
                if self._failures[number] >= MOST_FAILURES and number in self.trainable:
                    self.trainable.discard(number)
                    log.error(
                        "%s: training failed %d times in a row and stops until the next start; "
                        "labels still count",
                        _raised(function, error.__cause__ or error),
                        MOST_FAILURES,
                    )
                raise
            else:
                self._failures[number] = 0


class Training(Steps):
    """Trains a function with many instances; `done` counts those before a failure."""

    def __init__(
        self, function: Function, instances: Sequence[Any], labels: Sequence[Label]
    ) -> None:
        self._function = function
        self._instances = instances
        self._labels = labels
        self.done = 0

    def step(self) -> bool:
        count = len(self._instances)
        if count > 1 and self._function.teach_many is not None:
            self._function.learn_many(list(self._instances), list(self._labels))
            self.done = count
        elif self.done < count:
            self._function.learn(self._instances[self.done], self._labels[self.done])
            self.done += 1
        return self.done == count


class Job(msgspec.Struct, eq=False):
    """A call that waits for a function, or has begun."""

    result: asyncio.Future[Any]
    call: Any  # without arguments
    source: str
    patience_s: float  # for which it waits for another call
    is_begun: bool = False

    def fail(self, error: Exception) -> None:
        """Let those that wait for it get an error."""
        if not self.result.done():
            self.result.set_exception(error)


class FairQueue:
    """Jobs of a function: own clients first, in order, then peers in turn, then the shadow.

    Two threads use it.
    """

    def __init__(self, function: str) -> None:
        self._function = function
        self._jobs: dict[str, deque[Job]] = {}  # by source; of peers, the first is the next one
        self._lock = threading.Lock()
        self.is_stopped = False

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def busy(self) -> FunctionBusy:
        return FunctionBusy(f"{self._function} is busy; try again later")

    def check_running(self) -> None:
        if self.is_stopped:
            raise RuntimeError(f"{self._function} is stopped")

    def stop(self) -> None:
        """Take no more jobs; those that wait fail."""
        self.is_stopped = True
        self.refuse(RuntimeError(f"{self._function} is stopped"))

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
            if not self._jobs:
                return None
            source = min(self._jobs, key=lambda source: (source != OWN) + (source == SHADOW))
            jobs = self._jobs.pop(source)
            job = jobs.popleft()
            if jobs:
                self._jobs[source] = jobs
            return job

    def refuse(
        self, error: Exception, is_refused: Callable[[Job], bool] = lambda job: True
    ) -> None:
        """Remove the jobs for which this holds; those that wait for them get an error."""
        with self._lock:
            jobs = list(chain.from_iterable(self._jobs.values()))
            self._jobs = {}
            for job in jobs:
                if is_refused(job):
                    job.fail(error)
                else:
                    self._of(job).append(job)

    def _of(self, job: Job) -> deque[Job]:
        return self._jobs.setdefault(OWN if is_own(job.source) else job.source, deque())


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
        self._jobs = FairQueue(name)
        self._done: deque[Outcome] = deque()
        self._turns: queue.SimpleQueue[asyncio.AbstractEventLoop | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = False
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
        self._jobs.check_running()
        if self._is_stuck or (patience_s < math.inf and not self.is_available):
            raise self._jobs.busy()
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
        self._jobs.is_stopped = True
        self._turns.put(None)

    def has_ended(self, within_s: float) -> bool:
        """Wait until the thread has ended; return whether it has."""
        if self._thread is not None:
            self._thread.join(max(0.0, within_s))
        return self._thread is None or not self._thread.is_alive()

    # -- in the event loop ----------------------------------------------------------------------

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._jobs.is_stopped:
            self._jobs.stop()
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
            self._jobs.refuse(self._jobs.busy(), lambda job: job.patience_s < math.inf)
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
            self._jobs.refuse(
                self._jobs.busy(), lambda job: not job.is_begun and job.patience_s <= busy_s
            )
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
        if (running := self._running) is not None:  # the thread may end its turn meanwhile
            running.fail(self._late())
        self._jobs.refuse(self._late())

    def _late(self) -> FunctionBusy:
        return FunctionBusy(f"{self._name} did not return within {self._timeout_s:g} s")

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


class Answering(Steps):
    """The labels of rows of a source, or why there are none.

    A function that takes one row at a time is called row by row, others all at once.
    """

    def __init__(self, function: Function, rows: Rows) -> None:
        self._function = function
        self.rows = rows
        self._labels: list[Label] = []
        self.result: list[Label] | CoveyError = self._labels

    def step(self) -> bool:
        """Answer the next rows; return whether they were the last."""
        count, function = len(self.rows), self._function
        if count == 1 or function.predict_many is not None:
            self.result = _answer(function, self.rows)
            return True
        labels, now_s = self._labels, time.monotonic
        until_s = now_s() + TURN_S
        try:
            for row in islice(self.rows, len(labels), None):
                labels.append(function.answer(row))
                if now_s() >= until_s:
                    break
            if len(labels) < count:
                return False
            check_plain(labels)
        except (FunctionError, DataError) as error:
            self.result = error
        return True

    def rest(self, most: int) -> Rows:
        """Return the next rows: `most` of them, or all if the function takes them at once."""
        done = len(self._labels)
        if self._function.predict_many is not None:
            most = len(self.rows)
        return self.rows[done : done + most]

    def add(self, labels: list[Label] | CoveyError) -> bool:
        """Take labels of the next rows, or why there are none; return whether all are done."""
        if isinstance(labels, CoveyError):
            self.result = labels
            return True
        self._labels += labels
        return len(self._labels) == len(self.rows)


def _answer(function: Function, rows: Rows) -> list[Label] | CoveyError:
    """Return the labels of rows, or why there are none."""
    try:
        if len(rows) == 1:
            return [plain_label(function.answer(rows[0]))]
        labels = function.answer_many(rows)
        check_plain(labels)
    except (FunctionError, DataError) as error:
        return error
    return labels


def raised_in(error: BaseException) -> str:
    """Return what was raised where, without its message, which may quote an instance."""
    return f"{type(error).__name__} at {place_of(error)}"


# -- functions in processes: one call at a time in each; one that is late or dies is replaced ------

LOAD_S = 300.0  # in which a process must load its function
SLICE_S = 0.05  # after which a process returns the labels that it has
MOST_ROWS = 256  # that go to a process at once, if its function takes one row at a time
SPAWN = multiprocessing.get_context("spawn")  # a copy of a process with threads may deadlock

_functions: list[Function] = []  # in a process of a function: one


def _prepare() -> None:
    """Let the process end with the site, and not by a signal to all processes of a service."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_site, daemon=True).start()


def _end_with_site() -> None:
    site = multiprocessing.parent_process()
    assert site is not None
    site.join()
    os._exit(0)


def _load(load: Callable[[], Function]) -> None:
    _functions.append(load())


def _answer_there(rows: Rows) -> "tuple[list[Label] | CoveyError, str]":
    """Return the labels of the first rows, or why there are none, and what was raised where."""
    answering, until_s = Answering(_functions[0], rows), time.monotonic() + SLICE_S
    try:
        while not answering.step() and time.monotonic() < until_s:
            pass
        if isinstance(answering.result, list):
            check_plain(answering.result)
    except BaseException as error:  # also what would end a site: this is not the site's process
        failure = FunctionError(f"{_functions[0]} raised {type(error).__name__}: {error}")
        return failure, raised_in(error)
    cause = getattr(answering.result, "__cause__", None)
    return answering.result, "" if cause is None else raised_in(cause)


class RaisedElsewhere(Exception):
    """What was raised in another process: its text is a type and a place in the code."""


class FunctionProcess:
    """A process that has loaded a function."""

    def __init__(self, function: Function) -> None:
        assert function.processes is not None
        self._name, self._load = str(function), function.processes.load
        self._executor: ProcessPoolExecutor | None = None
        self._pid = 0
        self.is_up = self.is_free = False
        self.began_s = math.inf  # the call in progress
        self.losses = 0  # of processes in a row

    async def start(self) -> None:
        """Start a process, and load the function; raise `ConfigError` if that fails."""
        loop = asyncio.get_running_loop()
        self._executor = executor = ProcessPoolExecutor(1, SPAWN, _prepare)
        try:
            started = await asyncio.to_thread(executor.submit, os.getpid)
            self._pid = await asyncio.wrap_future(started)
            loading = loop.run_in_executor(executor, _load, self._load)
            await asyncio.wait_for(loading, LOAD_S)
        except BaseException as error:
            self.leave()
            if not isinstance(error, Exception):
                raise
            why = str(error) or f"this takes longer than {LOAD_S:g} s"
            raise ConfigError(f"{self._name} cannot be loaded in a process: {why}") from error
        self.is_up = self.is_free = True

    def answer(self, rows: Rows) -> "asyncio.Future[tuple[list[Label] | CoveyError, str]]":
        """Begin to answer rows."""
        return asyncio.get_running_loop().run_in_executor(self._executor, _answer_there, rows)

    def leave(self) -> None:
        """Kill the process, and do not wait for its end."""
        self._kill()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _kill(self) -> None:
        self.is_up = self.is_free = False
        pid, self._pid = self._pid, 0
        if pid:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(pid, signal.SIGKILL)

    def close(self, within_s: float) -> None:
        """End the process when its call has returned, and kill it if that takes too long."""
        if self._executor is not None:
            killing = threading.Timer(max(0.0, within_s), self._kill)
            killing.start()
            self._executor.shutdown(wait=True, cancel_futures=True)
            killing.cancel()


class FunctionProcesses:
    """Runs the calls of one function in processes, with the deadlines of a `FunctionThread`."""

    def __init__(self, function: Function) -> None:
        assert function.processes is not None
        self._function, self._name = function, str(function)
        self._timeout_s = function.timeout_s
        self._taken_s = min(TAKEN_S, function.timeout_s)
        self._jobs = FairQueue(self._name)
        self._processes = [FunctionProcess(function) for _ in range(function.processes.number)]
        self._tasks: set[asyncio.Task[None]] = set()
        self.stop = self._jobs.stop

    async def open(self) -> None:
        """Return when every process has loaded the function; raise `ConfigError` if one cannot."""
        await asyncio.gather(*(process.start() for process in self._processes if not process.is_up))

    @property
    def is_available(self) -> bool:
        """Whether a call would not wait long."""
        now_s = time.monotonic()
        return any(
            process.is_up and now_s - process.began_s < self._taken_s for process in self._processes
        )

    async def run(
        self, call: Answering, *, source: str = OWN, patience_s: float = math.inf
    ) -> list[Label] | CoveyError:
        """Return the labels of rows, which are divided among the processes, or why there are none.

        Raises `FunctionBusy` if a process is late, as `FunctionThread` does.
        """
        self._jobs.check_running()
        count = sum(process.is_up for process in self._processes)
        if not count or (patience_s < math.inf and not self.is_available):
            raise self._jobs.busy()
        loop, size = asyncio.get_running_loop(), -(-len(call.rows) // count)
        jobs = []
        for begin in range(0, len(call.rows), size):
            share = Answering(self._function, call.rows[begin : begin + size])
            jobs.append(Job(loop.create_future(), share, source, patience_s))
            self._jobs.add(jobs[-1])
        for process in self._processes:
            if process.is_free and self._jobs:
                process.is_free = False
                task = loop.create_task(self._work(process))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        results = await asyncio.gather(*(job.result for job in jobs))
        failures = [result for result in results if isinstance(result, CoveyError)]
        return failures[0] if failures else list(chain.from_iterable(results))

    def has_ended(self, within_s: float) -> bool:
        """End the processes; return True, as one that does not return is killed."""
        until_s = time.monotonic() + within_s
        for process in self._processes:
            process.close(until_s - time.monotonic())
        return True

    async def _work(self, process: FunctionProcess) -> None:
        """Run jobs in a process until there are none."""
        while not self._jobs.is_stopped and (job := self._jobs.take()) is not None:
            if not job.result.done():
                await self._run_one(process, job)
        process.is_free = process.is_up

    async def _run_one(self, process: FunctionProcess, job: Job) -> None:
        """Run a job, or a part of it, which is put back then."""
        answering: Answering = job.call
        job.is_begun, process.began_s = True, time.monotonic()
        try:
            answer = await self._answered(process, answering.rest(MOST_ROWS))
        except FunctionError as error:
            job.fail(error)
            await self._replace(process)
            return
        process.began_s, process.losses = math.inf, 0
        if not answering.add(answer):
            self._jobs.put_back(job)
        elif not job.result.done():
            job.result.set_result(answering.result)

    async def _answered(self, process: FunctionProcess, rows: Rows) -> list[Label] | CoveyError:
        """Return what a process answers; raise `FunctionError` if it is late, or has ended."""
        try:
            answer = process.answer(rows)
            await asyncio.wait([answer], timeout=self._taken_s)
            if not answer.done() and not self.is_available:
                self._jobs.refuse(self._jobs.busy(), lambda job: job.patience_s < math.inf)
            await asyncio.wait([answer], timeout=self._timeout_s - self._taken_s)
            result, cause = answer.result()
        except asyncio.InvalidStateError:  # there is none yet
            answer.add_done_callback(_retrieved)
            raise FunctionBusy(
                f"{self._name} did not return within {self._timeout_s:g} s; its process is replaced"
            ) from None
        except BrokenProcessPool:
            raise FunctionError(
                f"the process of {self._name} has ended; another one is started"
            ) from None
        except Exception as error:  # such as a label that cannot be sent
            return self._function.failed(error)
        if cause and isinstance(result, CoveyError):
            result.__cause__ = RaisedElsewhere(cause)
        return result

    async def _replace(self, process: FunctionProcess) -> None:
        """Start another process; if that one is lost as well, there is a pause before the next."""
        process.leave()
        process.began_s = math.inf
        if not any(process.is_up for process in self._processes):
            self._jobs.refuse(self._jobs.busy())
        while not (process.is_up or self._jobs.is_stopped):
            if process.losses:
                pause_s = FIRST_PAUSE_S * 2.0 ** min(process.losses - 1, 6)
                await asyncio.sleep(min(LONGEST_PAUSE_S, pause_s))
            process.losses += 1
            if not self._jobs.is_stopped:
                try:
                    await process.start()
                except ConfigError as error:
                    log.error("%s", error)
        process.is_free = False


def _retrieved(answer: "asyncio.Future[Any]") -> None:
    """Take an answer that nobody waits for, so that its failure is not reported as lost."""
    if not answer.cancelled():
        answer.exception()


CLOSE_S = 2.0  # for which functions in progress are waited for at the end
PEER_TICKETS = 100_000  # rows of each peer in memory, labelled or not
MOST_ROUNDS = 16  # of the event loop, for which a commit is held back while more is added to it
LONGEST_CALL_S = 30.0  # that the server of a store may take to write a commit, or to find ids
RETRY_S = 1.0  # after which a commit that found the disk full is written again
FULL_WARNING_S = 600.0  # between lines of the log while the disk is full
Waiting = asyncio.Future[None]
Found = tuple[Request, int | None]  # a request, and a row if the id is that of a row


class Workers(Protocol):
    """Runs what blocks without blocking the event loop."""

    async def run(
        self, function: Function, call: Any, *, source: str = OWN, patience_s: float = math.inf
    ) -> Any:
        """Return `call()`, which uses an own function for a source; one call of it at a time.

        `patience_s` is how long the function may be taken by one call before this one begins.
        Raises `FunctionBusy` if the function does not return in time, or is not free.
        """

    def is_available(self, function: Function) -> bool:
        """Return whether a function can be called now."""

    async def commit(self, commit: Commit) -> None:
        """Write a commit durably."""

    async def find(self, source: str, ids: Sequence[str]) -> dict[str, Found]:
        """Return what the store has for ids; those that it does not have are left out."""


# -- threads ------------------------------------------------------------------------------------


class ThreadWorkers:
    """One thread for the disk and one for each function, which need not be thread-safe."""

    def __init__(
        self,
        store: Store,
        write: Callable[[float, bool], None] = lambda took_s, is_written: None,
    ) -> None:
        """`write` gets the duration of commits, and whether they succeeded."""
        self._store = store
        self.history = SiteHistory(store.all(SeriesLine))
        self._write = write
        self._disk = ThreadPoolExecutor(1, "covey-store")
        # By name, and what a reload may change.
        self._runners: dict[tuple[object, ...], FunctionThread | FunctionProcesses] = {}
        self._lock = asyncio.Lock()  # of the store

    async def run(
        self, function: Function, call: Any, *, source: str = OWN, patience_s: float = math.inf
    ) -> Any:
        """Return `call()`; a function that returns instantly needs no thread."""
        if function.is_instant:
            try:
                return call()
            except KeyboardInterrupt as error:  # the site takes signals of the process itself
                raise FunctionError(f"{function} raised KeyboardInterrupt") from error
        return await self._runner(function).run(call, source=source, patience_s=patience_s)

    def is_available(self, function: Function) -> bool:
        return self._runner(function).is_available

    async def open(self, functions: Sequence[Function]) -> None:
        """Start the processes of functions; raise `ConfigError` if one cannot be loaded there."""
        runners = map(self._runner, functions)
        await asyncio.gather(
            *(runner.open() for runner in runners if isinstance(runner, FunctionProcesses))
        )

    def keep(self, functions: Sequence[Function]) -> None:
        """Stop threads and processes of all other functions."""
        kept = {_key(function) for function in functions}
        for key in self._runners.keys() - kept:
            runner = self._runners.pop(key)
            runner.stop()
            asyncio.get_running_loop().run_in_executor(None, runner.has_ended, CLOSE_S)

    def _runner(self, function: Function) -> FunctionThread | FunctionProcesses:
        runner = self._runners.get(key := _key(function))
        if runner is None:
            if function.processes is None:
                runner = FunctionThread(str(function), function.timeout_s)
            else:
                runner = FunctionProcesses(function)
            self._runners[key] = runner
        return runner

    async def commit(self, commit: Commit) -> None:
        loop, is_written = asyncio.get_running_loop(), False
        async with self._lock:
            begun_s = loop.time()
            series = commit.of(SeriesLine) or self.history.due(time.time())
            commit.records += [] if commit.of(SeriesLine) else series
            try:
                # In another thread every statement would wait for the interpreter lock.
                self._store.write(commit)
                await self._on_disk(self._store.sync, commit)
                is_written = True
                self.history.written(series)
            finally:
                self._write(loop.time() - begun_s, is_written)

    async def find(self, source: str, ids: Sequence[str]) -> dict[str, Found]:
        if self._store.finds_at_once:
            return self._store.find_many(source, ids)
        async with self._lock:
            requests: dict[str, Found] = await self._on_disk(self._store.find_many, source, ids)
            return requests

    async def _on_disk(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a call of the store returns, unless its server takes too long."""
        loop = asyncio.get_running_loop()
        patience = loop.call_later(LONGEST_CALL_S, self._store.give_up)
        try:
            return await loop.run_in_executor(self._disk, call, *arguments)
        finally:
            patience.cancel()

    def close(self) -> None:
        """Wait for the disk, and for a while for functions; one that never returns is left."""
        until_s = time.monotonic() + CLOSE_S
        for runner in self._runners.values():
            runner.stop()
        for (name, *_), runner in self._runners.items():
            if not runner.has_ended(until_s - time.monotonic()):
                log.warning("function %r has not returned; the site stops without it", name)
        self._disk.shutdown()


def _key(function: Function) -> tuple[object, ...]:
    return function.name, function.version, function.timeout_s, function.processes


# -- functions ----------------------------------------------------------------------------------


def _as_taken(function: Function, rows: Rows) -> Rows:
    """Return rows in the form that a function takes: single ones are plain lists."""
    takes_arrays = function.predict_many is not None and function.teach is None
    return rows if takes_arrays or not isinstance(rows, np.ndarray) else rows.tolist()


def _described(function: Function, error: CoveyError) -> str:
    """Return what went wrong without foreign messages, which may quote an instance."""
    if not isinstance(error, FunctionError):
        return f"{function} returned an invalid label"
    cause = error.__cause__
    return str(error) if cause is None else _raised(function, cause)


def _raised(function: Function, error: BaseException) -> str:
    return f"{function} raised {error if isinstance(error, RaisedElsewhere) else raised_in(error)}"


# -- the effects of a handler -------------------------------------------------------------------

# The source of a request that is being answered: own clients, or a peer.
_SOURCE: ContextVar[str] = ContextVar("_SOURCE", default=OWN)
# What peers reported in a request, by peer and cell, with the slot of each report.
_REPORTS: ContextVar[dict[tuple[str, str], tuple[int, Report]]] = ContextVar("_REPORTS")
ANY_ACCURACY = (0.0, 1.0)  # bounds reported by peers that report arrivals only


class NodeEffects:
    """Awaits what the handler of a node needs: function threads, and peers with a deadline."""

    def __init__(
        self,
        state: StoredState,
        functions: Sequence[Function],
        workers: Workers,
        breakers: Mapping[str, CircuitBreaker],
        new_id: Callable[[], str],
        payments: PaymentCounters,
        valid: LabelSet,
    ) -> None:
        self._state = state
        self._valid = valid
        self._payments = payments
        self._functions = functions
        self._workers = workers
        self._breakers = breakers
        self.new_id = new_id
        self.cell = state.learner.place_name
        trainer = Trainer(functions, workers.run, lambda: state.learning.places)
        self.trainable, self.train = trainer.trainable, trainer.train
        self.failures = Counter({function.name: 0 for function in functions})  # calls, by function
        self._unlogged = 0  # rows decided without peers since that was last logged
        self._throttle = LogThrottle()
        self._throttles = {name: LogThrottle() for name in self.failures}

    def begin(self, source: str = OWN) -> None:
        """Begin a request: all its calls to peers share one deadline."""
        DEADLINE_S.set(
            min((breaker.deadline_s() for breaker in self._breakers.values()), default=math.inf)
        )
        _REPORTS.set({})
        _SOURCE.set(source)

    def unavailable(self) -> bytes | None:
        """Return the arms that are not available now; None: all are.

        If none is, own functions are not closed: they are waited for, or fail at once.
        """
        learner = self._state.learner
        closed = learner.closed(
            peer
            for peer, breaker in self._breakers.items()
            if breaker.is_open or self._payments.is_over(peer)
        )
        busy = [not self._workers.is_available(function) for function in self._functions]
        if True not in busy:
            return closed
        own = len(busy)
        peers = bytes(len(learner.arms) - own) if closed is None else closed[own:]
        return closed if all(busy) and all(peers) else bytes(busy) + peers

    async def run(
        self, function: int, rows: Any, *, is_served: bool = False
    ) -> list[Label] | FunctionError:
        """Return the labels of rows; every failure is a `FunctionError`, and counted."""
        own, source = self._functions[function], _SOURCE.get()
        # Where there is no other function, own clients wait for it.
        can_wait = len(self._functions) == 1 and is_own(source)
        patience_s = math.inf if can_wait else TAKEN_S
        call = Answering(own, _as_taken(own, rows))
        try:
            labels = await self._workers.run(own, call, source=source, patience_s=patience_s)
        except FunctionError as error:
            labels = error
        if isinstance(labels, list) and self._valid.unfit(labels):
            # Without the label: it may quote an instance, and this is logged.
            labels = FunctionError(
                f"{own} returned a label that is not {self._valid.wanted}; correct the function, "
                "or list the label in [node] classes"
            )
        return self._failed(own, labels) if isinstance(labels, CoveyError) else labels

    def _failed(self, function: Function, error: CoveyError) -> FunctionError:
        """Count and log a failure; return it as a `FunctionError`."""
        self.failures[function.name] += 1
        if self._throttles[function.name].is_due():
            count = self.failures[function.name]
            log.warning("%s; %d failures since the start", _described(function, error), count)
        if isinstance(error, FunctionError):
            return error
        return FunctionError(f"{function} returned an invalid label: {error}")

    async def ask(
        self, peer: str, rows: Sequence[AskRow], *, may_be_late: bool = False
    ) -> list[Assistance]:
        ask = partial(self._breakers[peer].ask, may_be_late=may_be_late)
        return await self._payments.ask(peer, rows, ask)

    async def query(self, peer: str, cell: str, slot: int, what: QueryKind = "arrivals") -> Report:
        """Ask a peer once in a request; again if it reports bounds and the slot has doubled."""
        if what != "arrivals":
            return await self._breakers[peer].report(cell, slot, what)
        known = _REPORTS.get()
        at, report = known.get((peer, cell), (0, (0, *ANY_ACCURACY, ())))
        if not (slot <= 2 * at or (at and report[1:] == (*ANY_ACCURACY, ()))):
            report = await self._breakers[peer].report(cell, slot)
            known[peer, cell] = slot, report
        return report

    async def together(self, calls: Sequence[Awaitable[Any]]) -> list[Any]:
        if len(calls) == 1:
            try:
                return [await calls[0]]
            except PeerError as error:
                return [error]
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            # `run` returns a `FunctionError` as its result.
            if isinstance(result, BaseException) and not isinstance(
                result, PeerError | FunctionError
            ):
                raise result
        return results

    async def has_come(self, late: Late) -> bool:
        return late.is_there()

    def withdraw(self, peer: str, id: Any) -> None:
        """Leave the answer: the peer waits for its label until label-wait has expired."""
        self._payments.withdraw(id)

    def note_alone(self, rows: int, reason: PeerError) -> None:
        self._state.changes.counters.alone += rows
        self._unlogged += rows
        if self._throttle.is_due():
            log.warning("%d rows were decided without peers (%s)", self._unlogged, reason)
            self._unlogged = 0


# -- limits --------------------------------------------------------------------------------------


MOST_TICKETS = 100_000_000  # of own clients in memory
Many = Annotated[int, Meta(ge=1, le=65_536)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """`[limits]`: what a site takes and holds; clients and peers are counted separately."""

    rows: Many = 1_024  # of a request
    json_kib: Many = 256  # of a body in JSON
    binary_kib: Annotated[int, Meta(ge=1, le=1_048_576)] = 16_384  # of any other body
    connections: Many = 256
    in_flight: Many = 64  # requests that are being answered
    # Of a client; None: 1,000 off the loopback.
    requests_per_s: Annotated[float, Meta(ge=0.001, le=1e9)] | None = None
    # That a peer asks about or labels; one message, of 1,024 rows, must be possible.
    peer_rows_per_s: Annotated[float, Meta(ge=1_024, le=1e9)] = 10_000.0
    # Rows of own clients in memory, labelled or not.
    tickets: Annotated[int, Meta(ge=1, le=MOST_TICKETS)] = 1_000_000
    # In the store; of older ones it keeps what they counted.
    tickets_kept: Annotated[int, Meta(ge=1, le=10**10)] = 1_000_000
    cells: Annotated[int, Meta(ge=1, le=10**8)] = MOST_CELLS  # that each peer may make known


# -- group commit -------------------------------------------------------------------------------


class Journal:
    """Group commit: one commit at a time; what happens meanwhile goes into the next one.

    While the disk is full it accepts nothing and retries; any other failure is permanent.
    """

    def __init__(
        self,
        state: StoredState,
        commit: Callable[[Commit], Awaitable[None]],
    ) -> None:
        self._state = state
        self._commit = commit
        self._waiting: list[Waiting] = []  # for the commit after the one that is being written
        self._writing: asyncio.Task[None] | None = None
        self.failure: StoreError | None = None
        self.is_broken = asyncio.Event()  # set by a failure other than a full disk
        self._throttle = LogThrottle(FULL_WARNING_S)

    async def flush(self) -> None:
        """Return when all that has happened so far is durable.

        Raises `StoreError` if it may not be, and from then on always; `StoreFull` as long as the
        disk is full.
        """
        if self.failure is not None:
            raise self.failure
        loop = asyncio.get_running_loop()
        # One future per caller: a caller may be cancelled while the commit continues for others.
        written: Waiting = loop.create_future()
        self._waiting.append(written)
        if self._writing is None:
            self._writing = loop.create_task(self._write())
        await written

    def stop(self) -> None:
        """Write no more, not even the commit in progress."""
        self.failure = StoreError("the node is stopped")
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        """Write commits until no caller waits."""
        waiting: list[Waiting] = []
        try:
            while self._waiting:
                await self._collect()
                waiting, self._waiting = self._waiting, []
                commit = self._state.take()
                if commit is not None:
                    await self._write_one(commit, waiting)
                _release(waiting)
        except asyncio.CancelledError:
            for future in (*waiting, *self._waiting):
                future.cancel()
        except StoreError as error:
            self.fail(error, waiting)
        except Exception as error:  # the state of the disk is unknown then, too
            self.fail(StoreError(f"a commit failed: {error!r}"), waiting)
        finally:
            self._writing = None

    async def _write_one(self, commit: Commit, waiting: Sequence[Waiting]) -> None:
        """Write a commit, retrying while the disk is full; callers get `StoreFull`."""
        while True:
            try:
                await self._commit(commit)
                break
            except StoreFull as full:
                self.fail(full, waiting)
                if self._throttle.is_due():
                    log.error("%s", full)
            await asyncio.sleep(RETRY_S)
        self._state.is_written(commit)
        if isinstance(self.failure, StoreFull):
            self.failure, self._throttle = None, LogThrottle(FULL_WARNING_S)
            log.info("the store can be written again: the disk has room")

    def fail(self, failure: StoreError, waiting: Sequence[Waiting] = ()) -> None:
        """Take a failure of the store, also one that was met outside a commit."""
        self.failure = failure
        if not isinstance(failure, StoreFull):
            self.is_broken.set()
        _release((*waiting, *self._waiting), failure)

    async def _collect(self) -> None:
        """Let more callers join: a commit costs the same for one as for many."""
        known = 0
        for _ in range(MOST_ROUNDS):
            if len(self._waiting) == known:
                break
            known = len(self._waiting)
            await asyncio.sleep(0)


def _release(waiting: Sequence[Waiting], error: StoreError | None = None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
