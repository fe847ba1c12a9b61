"""The work of a node that blocks or waits: functions and commits in threads, the journal."""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import islice
from typing import Any, Protocol

import msgspec
import numpy as np

from covey.data.inputs import Rows, check_plain, plain_label
from covey.errors import (
    CoveyError,
    DataError,
    FunctionBusy,
    FunctionError,
    LimitError,
    PeerError,
    StoreError,
    StoreFull,
    place_of,
)
from covey.functions.function import Function, Late
from covey.kernel.rules import Report
from covey.node import threads
from covey.node.budgets import PaymentLedger
from covey.node.late import answered
from covey.node.peers import DEADLINE_S, CircuitBreaker, LogThrottle
from covey.node.recorded import MOST_CELLS, RecordedState
from covey.node.requests import OWN, AskRow, Assistance, Commit, Payment, Request, holder, is_own
from covey.node.series import SiteHistory
from covey.node.spans import NO_SPANS, Observer, Spans
from covey.node.store import Store
from covey.node.threads import TAKEN_S, FunctionThread
from covey.node.training import MOST_FAILURES, Steps, Trainer
from covey.types import Label

log = logging.getLogger(__name__)
CLOSE_S = 2.0  # for which functions in progress are waited for at the end
MOST_ROUNDS = 16  # of the event loop, for which a commit is held back while more is added to it
LONGEST_CALL_S = 30.0  # that the server of a store may take to write a commit, or to find ids
RETRY_S = 1.0  # after which a commit that found the disk full is written again
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

    def __init__(self, store: Store, observer: Observer | None = None) -> None:
        """`observer` gets the duration of commits."""
        self._store = store
        self.history = SiteHistory(store.series())
        self._observer = Observer() if observer is None else observer
        self.spans = self._observer.spans
        self._disk = ThreadPoolExecutor(1, "covey-store")
        # By name: what the function is, which a reload may have changed, and its thread.
        self._threads: dict[str, tuple[object, FunctionThread]] = {}
        self._lock = asyncio.Lock()  # of the store

    async def run(self, function: Function, call: Callable[..., Any], /, *arguments: Any) -> Any:
        """Return `call(*arguments)`; a function that returns instantly needs no thread."""
        if function.is_instant:
            return call(*arguments)
        thread = self._thread(function)
        if isinstance(call, Answering):
            return await thread.run(call, source=call.source, patience_s=call.patience_s)
        return await thread.run(partial(call, *arguments) if arguments else call)

    def is_available(self, function: Function) -> bool:
        return self._thread(function).is_available

    def _thread(self, function: Function) -> FunctionThread:
        """Return the thread of a function; that of an earlier version is stopped."""
        what = (function.version, function.timeout_s)
        known, thread = self._threads.get(function.name, (None, None))
        if thread is not None and known != what:
            thread.stop()
            thread = None
        if thread is None:
            thread = FunctionThread(str(function), function.timeout_s)
            self._threads[function.name] = what, thread
        return thread

    async def commit(self, commit: Commit) -> None:
        loop, is_written = asyncio.get_running_loop(), False
        async with self._lock:
            begun_s = loop.time()
            commit.series = commit.series or self.history.due(time.time())
            try:
                # In another thread every statement would wait for the interpreter lock.
                self._store.write(commit)
                await self._on_disk(self._store.sync, commit)
                is_written = True
                self.history.written(commit.series)
            finally:
                self._observer.write(loop.time() - begun_s, is_written=is_written)

    async def find(self, source: str, ids: Sequence[str]) -> dict[str, Found]:
        async with self._lock:
            found: dict[str, Found] = await self._on_disk(self._store.find_many, source, ids)
            return found

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
        for _, thread in self._threads.values():
            thread.stop()
        for name, (_, thread) in self._threads.items():
            if not thread.has_ended(until_s - time.monotonic()):
                log.warning("function %r has not returned; the site stops without it", name)
        self._disk.shutdown()


# -- functions ----------------------------------------------------------------------------------


def _as_taken(function: Function, rows: Rows) -> Rows:
    """Return rows in the form that a function takes: single ones are plain lists."""
    takes_arrays = function.predict_many is not None and function.teach is None
    return rows if takes_arrays or not isinstance(rows, np.ndarray) else rows.tolist()


class Answering(Steps):
    """The labels of rows of a source, or why there are none.

    A function that takes one row at a time is called row by row, others all at once.
    """

    def __init__(self, function: Function, rows: Rows, source: str, patience_s: float) -> None:
        """`patience_s` is how long the function may be taken by one call before this one begins."""
        self._function = function
        self.rows = rows
        self.source = source
        self.patience_s = patience_s
        self._labels: list[Label] = []
        self.result: list[Label] | CoveyError = self._labels

    def step(self) -> bool:
        """Answer the next rows; return whether they were the last."""
        count, function = len(self.rows), self._function
        if count == 1 or function.predict_many is not None:
            self.result = _answer(function, self.rows)
            return True
        labels, now_s = self._labels, time.monotonic
        until_s = now_s() + threads.TURN_S
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


def _described(function: Function, error: CoveyError) -> str:
    """Return what went wrong without foreign messages, which may quote an instance."""
    if not isinstance(error, FunctionError):
        return f"{function} returned an invalid label"
    cause = error.__cause__
    return str(error) if cause is None else _raised(function, cause)


def _raised(function: Function, error: BaseException) -> str:
    return f"{function} raised {type(error).__name__} at {place_of(error)}"


def _log_given_up(function: Function, error: FunctionError) -> None:
    log.error(
        "%s: training failed %d times in a row and stops until the next start; labels still count",
        _raised(function, error.__cause__ or error),
        MOST_FAILURES,
    )


def _log_untrained(function: Function, labels: int) -> None:
    log.warning("%s is busy; %d labels count and do not train it", function, labels)


# -- the driver of a handler --------------------------------------------------------------------

# The source of a request that is being answered: own clients, or a peer.
_SOURCE: ContextVar[str] = ContextVar("_SOURCE", default=OWN)
# What peers reported in a request, by peer and cell, with the slot of each report.
_REPORTS: ContextVar[dict[tuple[str, str], tuple[int, Report]]] = ContextVar("_REPORTS")
ANY_ACCURACY = (0.0, 1.0)  # bounds reported by peers that report arrivals only


class NodeDriver:
    """Awaits what the handler of a node needs: function threads, and peers with a deadline."""

    def __init__(
        self,
        state: RecordedState,
        functions: Sequence[Function],
        workers: Workers,
        breakers: Mapping[str, CircuitBreaker],
        new_id: Callable[[], str],
        ledger: PaymentLedger,
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._functions = functions
        self._workers = workers
        self._breakers = breakers
        self.new_id = new_id
        self.cell = state.learner.name_at
        trainer = Trainer(functions, workers.run, _log_given_up, _log_untrained)
        self.trainable, self.train = trainer.trainable, trainer.train
        self.failures = Counter({one.name: 0 for one in functions})  # calls, by function
        self._unlogged = 0  # rows decided without peers since that was last logged
        self._throttle = LogThrottle()
        self._throttles = {name: LogThrottle() for name in self.failures}

    def begin(self, source: str = OWN) -> None:
        """Begin a request: all its calls to peers share one deadline."""
        DEADLINE_S.set(min((one.deadline_s() for one in self._breakers.values()), default=math.inf))
        _REPORTS.set({})
        _SOURCE.set(source)

    def closed(self) -> bytes | None:
        """Return the arms that are not available now; None: all are.

        If none is, own functions are not closed: they are waited for, or fail at once.
        """
        learner = self._state.learner
        closed = learner.closed(
            peer
            for peer, one in self._breakers.items()
            if one.is_open or self._ledger.is_over(peer)
        )
        busy = [not self._workers.is_available(one) for one in self._functions]
        if True not in busy:
            return closed
        own = len(busy)
        peers = bytes(len(learner.arms) - own) if closed is None else closed[own:]
        return closed if all(busy) and all(peers) else bytes(busy) + peers

    async def run(
        self, function: int, rows: Any, *, is_served: bool = False
    ) -> list[Label] | FunctionError:
        """Return the labels of rows; every failure is a `FunctionError`, and counted."""
        one, source = self._functions[function], _SOURCE.get()
        # Where there is no other function, own clients wait for it.
        can_wait = len(self._functions) == 1 and is_own(source)
        patience_s = math.inf if can_wait else TAKEN_S
        answering = Answering(one, _as_taken(one, rows), source, patience_s)
        try:
            with self._workers.spans.function(one.name, len(rows)):
                labels = await self._workers.run(one, answering)
        except FunctionBusy as busy:
            labels = busy
        return self._failed(one, labels) if isinstance(labels, CoveyError) else labels

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
        breaker = self._breakers[peer]
        if not (may_be_late and breaker.is_patient):
            return await self._ledger.ask(peer, rows, lambda: breaker.ask(rows))
        return await self._ledger.ask(
            peer, rows, lambda: answered(peer, list(rows), breaker.ask_patiently(rows))
        )

    async def report(self, peer: str, cell: str, slot: int) -> Report:
        """Ask a peer once in a request; again if it reports bounds and the slot has doubled."""
        known = _REPORTS.get()
        at, report = known.get((peer, cell), (0, (0, *ANY_ACCURACY)))
        if not (slot <= 2 * at or (at and report[1:] == ANY_ACCURACY)):
            report = await self._breakers[peer].report(cell, slot)
            known[peer, cell] = slot, report
        return report

    async def estimate(
        self, peer: str, cell: str, slot: int, *, is_by_context: bool
    ) -> tuple[float, int]:
        return await self._breakers[peer].estimate(cell, slot, is_by_context=is_by_context)

    async def gather(self, calls: Sequence[Awaitable[Any]]) -> list[Any]:
        if len(calls) == 1:
            try:
                return [await calls[0]]
            except PeerError as error:
                return [error]
        results = await asyncio.gather(*calls, return_exceptions=True)
        for one in results:
            # `run` returns a `FunctionError` as its result.
            if isinstance(one, BaseException) and not isinstance(one, PeerError | FunctionError):
                raise one
        return results

    async def has_come(self, late: Late) -> bool:
        return late.is_there()

    def withdraw(self, peer: str, id: Any) -> None:
        """Leave the answer: the peer waits for its label until label-wait has expired."""
        self._ledger.withdraw(id)

    def settle(self, ids: Iterable[str]) -> list[Payment]:
        """Return what is paid for the answers of peers to rows that are recorded now."""
        return self._ledger.settle_rows(ids)

    def note_alone(self, rows: int, reason: PeerError) -> None:
        self._state.counters.alone += rows
        self._unlogged += rows
        if self._throttle.is_due():
            log.warning("%d rows were decided without peers (%s)", self._unlogged, reason)
            self._unlogged = 0

    async def pass_on(self, request: Request, truths: Mapping[int, Any]) -> None:
        """Do nothing: deliveries are committed with the label and sent after that."""

    def settle_peers(self) -> None:
        """Do nothing: see `pass_on`."""


# -- sections -----------------------------------------------------------------------------------


class Sections:
    """Runs coroutines to their end one after the other per key, also if the caller is cancelled."""

    def __init__(self) -> None:
        self._running: dict[Any, asyncio.Event] = {}

    async def free(self, key: Any) -> None:
        """Return when nothing runs for a key."""
        while key in self._running:
            await self._running[key].wait()

    async def run(self, key: Any, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine to its end."""
        self._running[key] = asyncio.Event()
        task = asyncio.ensure_future(work)
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._end(key, task)
            else:
                task.add_done_callback(lambda _: self._end(key, task))

    def _end(self, key: Any, task: "asyncio.Task[object]") -> None:
        if not task.cancelled():
            task.exception()  # without a caller, the next one that sends the label gets it
        self._running.pop(key).set()


# -- requests in progress -----------------------------------------------------------------------


class Limits(msgspec.Struct, frozen=True):
    """What a node holds at most."""

    tickets: int = 1_000_000  # rows of own clients in memory, labelled or not
    peer_tickets: int = 100_000  # rows of each peer
    cells: int = MOST_CELLS  # that each peer may open
    requests: int = 256  # of own clients in progress
    peer_requests: int = 128  # of peers in progress


class InProgress:
    """The requests in progress, under the source and id of each of their rows."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.by_key: dict[tuple[str, str], asyncio.Event] = {}
        self._requests: Counter[bool] = Counter()  # those of own clients, of peers
        self._reserved: Counter[str] = Counter()  # their rows, by holder

    async def free(self, keys: Sequence[tuple[str, str]]) -> None:
        """Return when none of these is in progress."""
        while running := next(filter(None, map(self.by_key.get, keys)), None):
            await running.wait()

    def check_room(self, source: str, state: RecordedState, rows: int) -> None:
        """Raise `LimitError` if there is none; peers cannot use up that of own clients."""
        is_ours = is_own(source)
        most = self._limits.tickets if is_ours else self._limits.peer_tickets
        rows += self._reserved[holder(source)]
        state.make_room(source, most - rows)
        held = state.held(source)
        if held + rows > most:
            raise LimitError(f"{held} rows are in memory or in progress; try again later")
        most = self._limits.requests if is_ours else self._limits.peer_requests
        if self._requests[is_ours] >= most:
            raise LimitError(f"{most} requests are in progress; try again later")

    @contextmanager
    def noted(self, keys: Sequence[tuple[str, str]], rows: int) -> Iterator[None]:
        """Note a request while it is in progress."""
        source, done = keys[0][0], asyncio.Event()
        self.by_key.update(dict.fromkeys(keys, done))
        self._requests[is_own(source)] += 1
        self._reserved[holder(source)] += rows
        try:
            yield
        finally:
            self._requests[is_own(source)] -= 1
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
            for one in (*waiting, *self._waiting):
                one.cancel()
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
            await asyncio.sleep(RETRY_S)
        self._state.is_written(commit)
        if isinstance(self.failure, StoreFull):
            self.failure = None

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
    for one in waiting:
        if one.done():
            continue
        if error is None:
            one.set_result(None)
        else:
            one.set_exception(error)
