"""The work of a node that blocks or waits: functions and commits in threads, the journal."""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol

import msgspec
import numpy as np

from covey.data.inputs import LabelSet, Rows
from covey.errors import CoveyError, FunctionError, LimitError, PeerError, StoreError, StoreFull
from covey.functions.function import Function, Late
from covey.kernel.rules import Report
from covey.node.peers import DEADLINE_S, CircuitBreaker, LogThrottle, PaymentCounters
from covey.node.requests import (
    OWN,
    AskRow,
    Assistance,
    Commit,
    QueryKind,
    Request,
    SeriesLine,
    holder,
    is_own,
)
from covey.node.state import MOST_CELLS, RecordedState
from covey.node.status import NO_SPANS, SiteHistory, Spans
from covey.node.store import Store
from covey.node.threads import (
    MOST_FAILURES,
    TAKEN_S,
    Answering,
    FunctionProcesses,
    FunctionThread,
    RaisedElsewhere,
    Trainer,
    raised_in,
)
from covey.types import Label

log = logging.getLogger(__name__)
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

    spans: Spans

    async def run(self, function: Function, call: Callable[..., Any], /, *arguments: Any) -> Any:
        """Return `call(*arguments)`, which uses an own function; one call of it at a time.

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
        spans: Spans = NO_SPANS,
        write: Callable[[float, bool], None] = lambda took_s, is_written: None,
    ) -> None:
        """`write` gets the duration of commits, and whether they succeeded."""
        self._store = store
        self.history = SiteHistory(store.all(SeriesLine))
        self.spans, self._write = spans, write
        self._disk = ThreadPoolExecutor(1, "covey-store")
        # By name, and what a reload may change.
        self._runners: dict[tuple[object, ...], FunctionThread | FunctionProcesses] = {}
        self._lock = asyncio.Lock()  # of the store

    async def run(self, function: Function, call: Callable[..., Any], /, *arguments: Any) -> Any:
        """Return `call(*arguments)`; a function that returns instantly needs no thread."""
        if function.is_instant:
            try:
                return call(*arguments)
            except KeyboardInterrupt as error:  # the site takes signals of the process itself
                raise FunctionError(f"{function} raised KeyboardInterrupt") from error
        runner = self._runner(function)
        if isinstance(call, Answering):
            return await runner.run(call, source=call.source, patience_s=call.patience_s)
        assert isinstance(runner, FunctionThread)  # a function in processes does not learn
        return await runner.run(partial(call, *arguments) if arguments else call)

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


def _log_given_up(function: Function, error: FunctionError) -> None:
    log.error(
        "%s: training failed %d times in a row and stops until the next start; labels still count",
        _raised(function, error.__cause__ or error),
        MOST_FAILURES,
    )


def _log_untrained(function: Function, labels: int) -> None:
    log.warning("%s is busy; %d labels count and do not train it", function, labels)


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
        state: RecordedState,
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
        trainer = Trainer(
            functions, workers.run, lambda: state.places, _log_given_up, _log_untrained
        )
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
        answering = Answering(own, _as_taken(own, rows), source, patience_s)
        try:
            with self._workers.spans.function(own.name, len(rows)):
                labels = await self._workers.run(own, answering)
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
        self._state.counters.alone += rows
        self._unlogged += rows
        if self._throttle.is_due():
            log.warning("%d rows were decided without peers (%s)", self._unlogged, reason)
            self._unlogged = 0


# -- sections -----------------------------------------------------------------------------------


class Sections:
    """Runs coroutines to their end one after the other per key, also if the caller is cancelled."""

    def __init__(self) -> None:
        self._running: dict[Any, asyncio.Future[object]] = {}

    async def free(self, key: Any) -> None:
        """Return when nothing runs for a key."""
        while key in self._running:
            await asyncio.wait([self._running[key]])

    async def run(self, key: Any, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine to its end."""
        task = self._running[key] = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: self._end(key, done))
        await asyncio.shield(task)

    def _end(self, key: Any, task: "asyncio.Future[object]") -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # without a caller, the next one that sends the label gets it


# -- requests in progress -----------------------------------------------------------------------


class Limits(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """`[limits]`: what a site takes and holds; clients and peers are counted separately."""

    rows: int = 1_024  # of a request
    json_kib: int = 256  # of a body in JSON
    binary_kib: int = 16_384  # of any other body
    connections: int = 256
    in_flight: int = 64  # requests that are being answered
    requests_per_s: float | None = None  # of a client; None: 1,000 off the loopback
    peer_rows_per_s: float = 10_000.0  # that a peer asks about or labels
    tickets: int = 1_000_000  # rows of own clients in memory, labelled or not
    tickets_kept: int = 1_000_000  # in the store; of older ones it keeps what they counted
    cells: int = MOST_CELLS  # that each peer may make known


class InProgress:
    """The requests in progress, under the source and id of each of their rows."""

    def __init__(self, tickets: int, peer_tickets: int) -> None:
        self._tickets, self._peer_tickets = tickets, peer_tickets
        self.by_key: dict[tuple[str, str], asyncio.Event] = {}
        self._reserved: Counter[str] = Counter()  # their rows, by holder

    async def free(self, keys: Sequence[tuple[str, str]]) -> None:
        """Return when none of these is in progress."""
        while running := next(filter(None, map(self.by_key.get, keys)), None):
            await running.wait()

    def check_room(self, source: str, state: RecordedState, rows: int) -> None:
        """Raise `LimitError` if there is none; peers cannot use up that of own clients."""
        most = self._tickets if is_own(source) else self._peer_tickets
        rows += self._reserved[holder(source)]
        state.make_room(source, most - rows)
        held = state.held(source)
        if held + rows > most:
            raise LimitError(f"{held} rows are in memory or in progress; try again later")

    @contextmanager
    def noted(self, keys: Sequence[tuple[str, str]], rows: int) -> Iterator[None]:
        """Note a request while it is in progress."""
        source, done = keys[0][0], asyncio.Event()
        self.by_key.update(dict.fromkeys(keys, done))
        self._reserved[holder(source)] += rows
        try:
            yield
        finally:
            self._reserved[holder(source)] -= rows
            for key in keys:
                del self.by_key[key]
            done.set()


# -- group commit -------------------------------------------------------------------------------


class Journal:
    """Group commit: one commit at a time; what happens meanwhile goes into the next one.

    While the disk is full it accepts nothing and retries; any other failure is permanent.
    """

    def __init__(
        self,
        state: RecordedState,
        commit: Callable[[Commit], Awaitable[None]],
        spans: Spans = NO_SPANS,
    ) -> None:
        self._state = state
        self._commit = commit
        self._spans = spans
        self._waiting: list[Waiting] = []  # for the commit after the one that is being written
        self._traced: list[object] = []  # those of them that are traced
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
        if (span := self._spans.here()) is not None:
            self._traced.append(span)
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
                traced, self._traced = self._traced, []
                commit = self._state.take()
                if commit is not None:
                    with self._spans.commit(traced):
                        await self._write_one(commit, waiting)
                _release(waiting)
        except asyncio.CancelledError:
            for future in (*waiting, *self._waiting):
                future.cancel()
        except StoreError as error:
            self._fail(error, waiting)
        except Exception as error:  # the state of the disk is unknown then, too
            self._fail(StoreError(f"a commit failed: {error!r}"), waiting)
        finally:
            self._writing = None

    async def _write_one(self, commit: Commit, waiting: Sequence[Waiting]) -> None:
        """Write a commit, retrying while the disk is full; callers get `StoreFull`."""
        while True:
            try:
                await self._commit(commit)
                break
            except StoreFull as full:
                self._fail(full, waiting)
                if self._throttle.is_due():
                    log.error("%s", full)
            await asyncio.sleep(RETRY_S)
        self._state.is_written(commit)
        if isinstance(self.failure, StoreFull):
            self.failure, self._throttle = None, LogThrottle(FULL_WARNING_S)
            log.info("the store can be written again: the disk has room")

    def fail(self, failure: StoreError) -> None:
        """Take a failure of the store that was met outside a commit."""
        self._fail(failure, ())

    def _fail(self, failure: StoreError, waiting: Sequence[Waiting]) -> None:
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
