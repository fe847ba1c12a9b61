"""Bugs that a node might have, to be planted one by one: a storm must find each of them."""

import asyncio
import contextlib
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from inspect import isfunction
from types import ModuleType
from typing import Any

import msgspec
import pytest

from chaos import message_bugs
from covey.bandit.learner import UNKNOWN
from covey.errors import LateLabel, PeerError, StoreError, StoreFull
from covey.node.functions import Journal
from covey.node.node import KnownRequests, Node, Question
from covey.node.peers import TAKEN, CircuitBreaker, LabelDelivery, PaymentCounters
from covey.site.earned import EarnedTrust
from covey.site.handler import Draft, Handler
from covey.site.requests import Commit, Delivery, LabelPart, Request, SiteRecord, is_own
from covey.site.state import (
    Changes,
    Learning,
    OpenRequests,
    Settlements,
    SiteState,
    StoredState,
)
from covey.site.trust import PoolingLearner, SourceStatistics
from covey.store import tables
from covey.store.store import Store
from covey.store.store_file import SqliteFile

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]
Truths = dict[int, Any]


# -- acknowledgements ---------------------------------------------------------------------------


def acknowledges_before_the_commit(patch: Patch) -> None:
    async def flush(self: Journal) -> None:
        _in_background(real(self))

    real = Journal.flush
    patch.setattr(Journal, "flush", flush)


def answers_requests_before_the_commit(patch: Patch) -> None:
    is_asked = ContextVar("is_asked", default=False)

    async def once(self: KnownRequests, *given: Any, **more: Any) -> Any:
        token = is_asked.set(True)
        try:
            return await real(self, *given, **more)
        finally:
            is_asked.reset(token)

    async def flush(self: Journal) -> None:
        if is_asked.get():
            _in_background(write(self))
        else:
            await write(self)

    real, write = KnownRequests.once, Journal.flush
    patch.setattr(KnownRequests, "once", once)
    patch.setattr(Journal, "flush", flush)


def refuses_labels_before_the_commit(patch: Patch) -> None:
    async def settle(self: Node, request: Request, truths: Truths) -> Settlements:
        self._state.check(request, truths)
        return await real(self, request, truths)

    real = Node._settle
    patch.setattr(Node, "_settle", settle)


def looks_up_closed_requests_before_the_commit(patch: Patch) -> None:
    async def locate(self: KnownRequests, source: str, id: str, **more: Any) -> Any:  # noqa: A002
        if self.open.find(source, id) is None:
            found = (await self._workers.find(source, [id])).get(id)
            if found is not None:
                return found
        return await real(self, source, id, **more)

    real = KnownRequests.locate
    patch.setattr(KnownRequests, "locate", locate)


def acknowledges_labels_that_came_too_late(patch: Patch) -> None:
    async def settle(self: Node, request: Request, truths: Truths) -> Settlements:
        try:
            return await real(self, request, truths)
        except LateLabel:
            return Settlements([False for _ in truths], [False for _ in truths])

    real = Node._settle
    patch.setattr(Node, "_settle", settle)


# -- deliveries ---------------------------------------------------------------------------------


def keeps_deliveries_in_memory_only(patch: Patch) -> None:
    def write(self: Store, commit: Commit) -> None:
        real(self, msgspec.structs.replace(commit, deliveries=[]))

    real = Store._write
    patch.setattr(Store, "_write", write)


def forgets_deliveries_at_start(patch: Patch) -> None:
    def init(self: LabelDelivery, peers: Any, deliveries: Any, rng: Any, mark: Any) -> None:
        real(self, peers, (), rng, mark)

    real = LabelDelivery.__init__
    patch.setattr(LabelDelivery, "__init__", init)


def queues_deliveries_only_while_the_client_waits(patch: Patch) -> None:
    async def commit(self: Node, commit: Commit) -> None:
        await self._dependencies.workers.commit(commit)

    async def settle(self: Node, request: Request, truths: Truths) -> Settlements:
        settled = await real(self, request, truths)
        for row, is_new in zip(truths, settled.is_new, strict=True):
            answer = request.peer_answers.get(row)
            if is_new and answer is not None and answer.id:
                self._delivery.add(Delivery(request.group(row).peer, answer.id, truths[row]))
        return settled

    real = Node._settle
    patch.setattr(Node, "_commit", commit)
    patch.setattr(Node, "_settle", settle)


def delivers_the_first_row_of_a_request_only(patch: Patch) -> None:
    def deliver(self: Changes, request: Request, rows: Sequence[int]) -> None:
        real(self, request, rows[:1])

    real = Changes._deliver
    patch.setattr(Changes, "_deliver", deliver)


def tries_a_delivery_only_once(patch: Patch) -> None:
    async def deliver(self: CircuitBreaker, labels: Any) -> list[str]:
        try:
            return await real(self, labels)
        except PeerError:
            return [TAKEN for _ in labels]

    real = CircuitBreaker.deliver
    patch.setattr(CircuitBreaker, "deliver", deliver)


def marks_labels_delivered_before_they_are(patch: Patch) -> None:
    async def deliver_some(self: LabelDelivery, peer: str, deliveries: Any) -> None:
        await self._mark_delivered(deliveries)
        await real(self, peer, deliveries)

    real = LabelDelivery._deliver_some
    patch.setattr(LabelDelivery, "_deliver_some", deliver_some)


# -- labels -------------------------------------------------------------------------------------


def counts_a_repeated_label(patch: Patch) -> None:
    def settle(self: StoredState, request: Request, truths: Truths, *given: Any) -> Settlements:
        done = real(self, request, truths, *given)
        for (row, label), is_new in zip(truths.items(), done.is_new, strict=True):
            if not is_new:
                self.learning.learn(request, [row], [label], None)
        return done

    real = SiteState.settle
    patch.setattr(SiteState, "settle", settle)


def stores_a_repeated_label_as_new(patch: Patch) -> None:
    def settle(self: Any, request: Request, truths: Truths, *given: Any) -> Settlements:
        done = real(self, request, truths, *given)
        for row, is_new, is_right in zip(truths, done.is_new, done.is_right, strict=True):
            if not is_new:
                self.changes.commit.add_labels(request, [row], [is_right])
        return done

    real = SiteState.settle
    patch.setattr(SiteState, "settle", settle)
    _store_any_labels(patch)


def takes_a_second_conflicting_label(patch: Patch) -> None:
    def check(self: StoredState, request: Request, truths: Truths) -> None:
        for row, label in truths.items():
            if request.is_open and request.truths[row] not in (UNKNOWN, label):
                request.truths[row] = UNKNOWN
        real(self, request, truths)

    real = SiteState.check
    patch.setattr(SiteState, "check", check)
    _store_any_labels(patch)


def takes_all_labels_of_a_batch_but_the_last(patch: Patch) -> None:
    def learn(self: Any, request: Request, rows: Any, labels: Any, costs: Any) -> None:
        more = len(rows) > 1
        real(self, request, rows[:-1] if more else rows, labels[:-1] if more else labels, costs)

    real = Learning.learn
    patch.setattr(Learning, "learn", learn)


def lets_any_source_label_a_request(patch: Patch) -> None:
    def find(self: OpenRequests, source: str, id: str) -> Any:  # noqa: A002
        own = real(self, source, id)
        others = (one for (_, name), one in self.by_id.items() if name == id)
        return own or next(others, None)

    real = OpenRequests.find
    patch.setattr(OpenRequests, "find", find)


def closes_requests_too_early(patch: Patch) -> None:
    def expire(self: OpenRequests, queue: Any, slot: int) -> None:
        wait, self.learner.label_wait = self.learner.label_wait, self.learner.label_wait // 2
        real(self, queue, slot)
        self.learner.label_wait = wait

    real = OpenRequests._expire
    patch.setattr(OpenRequests, "_expire", expire)


# -- requests -----------------------------------------------------------------------------------


def does_not_recognise_a_repeated_request(patch: Patch) -> None:
    async def once(self: KnownRequests, asked: Question, answer: Any, **_: Any) -> Request:
        request: Request = await answer()
        await self._journal.flush()
        return request

    patch.setattr(KnownRequests, "once", once)


def accepts_row_ids_that_were_used_before(patch: Patch) -> None:
    async def check_unused(self: KnownRequests, keys: Any) -> None:
        pass

    patch.setattr(KnownRequests, "_check_unused", check_unused)


def uses_ids_again_after_a_restart(patch: Patch) -> None:
    def new_id(self: Node) -> str:
        numbers = self.__dict__.setdefault("numbers", itertools.count())
        return f"r{next(numbers)}"

    patch.setattr(Node, "new_id", new_id)


def ignores_its_limits(patch: Patch) -> None:
    patch.setattr(KnownRequests, "_check_room", lambda self, *_: None)


def keeps_the_arrivals_of_a_failed_request(patch: Patch) -> None:
    def retract(self: Any, contexts: Any, slot: int, codes: Any, done: int) -> None:
        real(self, contexts, slot, codes, done - 1)

    real = SiteState.retract
    patch.setattr(SiteState, "retract", retract)


def keeps_the_arrivals_of_a_failed_ask(patch: Patch) -> None:
    patch.setattr(SiteState, "retract_served", lambda self, source, space, codes: None)


def mixes_the_rows_of_a_batch_up(patch: Patch) -> None:
    def groups(self: Handler, draft: Draft, places: Sequence[int]) -> Any:
        return [(choice, view, rows[::-1]) for choice, view, rows in real(self, draft, places)]

    real = Handler._groups
    patch.setattr(Handler, "_groups", groups)


def fails_when_a_peer_fails(patch: Patch) -> None:
    def decide_again(self: Handler, draft: Draft, places: Any, reason: PeerError) -> None:
        raise reason

    patch.setattr(Handler, "_decide_again", decide_again)


def waits_for_peers_for_ever(patch: Patch) -> None:
    patch.setattr(CircuitBreaker, "deadline_s", lambda self: math.inf)


def asks_peers_whose_circuit_is_open(patch: Patch) -> None:
    patch.setattr(CircuitBreaker, "is_open", property(lambda self: False))


def believes_what_peers_report(patch: Patch) -> None:
    patch.setattr(SiteState, "answered", lambda self, cell, peer: 0)


def does_not_count_what_peers_pay(patch: Patch) -> None:
    patch.setattr(PaymentCounters, "earned", lambda self, request: [])


# -- statistics per source ----------------------------------------------------------------------


def counts_labels_of_isolated_peers_as_own(patch: Patch) -> None:
    def learn(self: Any, request: Request, rows: Any, labels: Any, costs: Any) -> None:
        real(self, request, rows, labels, costs)
        if not self.sources.is_pooled(request.source):
            own = self.learner.tables[request.space]
            for row, label in zip(rows, labels, strict=True):
                group = request.group(row)
                there = own.cells.find(self.learner.names.parse(group.cell))
                if group.is_counted and there >= 0:
                    code = there << 20 | group.code & 0xFFFFF
                    gain = self.learner.gain_of(request.predictions[row], label)
                    self.learner.settle(code, gain, (), request.slot, space=request.space)
                    self.sources.own.note(request.space, code)

    real = Learning.learn
    patch.setattr(Learning, "learn", learn)


def leaves_own_counts_in_an_overlay(patch: Patch) -> None:
    def combined(
        self: Any,
        tables: Any,
        space: str,
        row: int,
        call: Callable[[Any], Any],
        pooled: Sequence[Any],
    ) -> Any:
        if tables is not self.own:
            tables.tables[space].combine(row, self._learner.tables[space], 1)
        return call(tables.tables[space])

    patch.setattr(SourceStatistics, "_combined", combined)


def leaves_pooled_labels_in_own_counters(patch: Patch) -> None:
    def added(
        self: PoolingLearner, others: Sequence[Any], row: int, call: Callable[[], Any]
    ) -> Any:
        for other in others:
            self._learner.table.combine(row, other, 1)
        return call()

    patch.setattr(PoolingLearner, "_with", added)


def forgets_at_start_which_peers_agree(patch: Patch) -> None:
    patch.setattr(EarnedTrust, "load", lambda self, lines, labels: None)


def forgets_overlays_at_start(patch: Patch) -> None:
    def load(self: SourceStatistics, state: Any, stored: Any) -> None:
        self._overlay(state.source).advance(state.slot)

    patch.setattr(SourceStatistics, "_load", load)


def trusts_all_peers_like_the_most_trusted(patch: Patch) -> None:
    def is_pooled(self: SourceStatistics, source: str) -> bool:
        return is_own(source) or "full" in self._trust.values()

    patch.setattr(SourceStatistics, "is_pooled", is_pooled)


# -- the store ----------------------------------------------------------------------------------


def syncs_now_and_then(patch: Patch) -> None:
    _after_set_up(patch, "PRAGMA synchronous = NORMAL")


def never_syncs(patch: Patch) -> None:
    _after_set_up(patch, "PRAGMA synchronous = OFF")


def builds_on_a_log_that_was_not_synced(patch: Patch) -> None:
    def configure(self: SqliteFile) -> None:
        execute = self.execute
        self.execute = _Skipping(execute, "PRAGMA wal_checkpoint").execute  # type: ignore[assignment]
        real(self)
        self.execute = execute

    real = SqliteFile._configure
    patch.setattr(SqliteFile, "_configure", configure)


def counts_in_a_second_transaction(patch: Patch) -> None:
    def write(self: Store, commit: Commit) -> None:
        real_write(self, msgspec.structs.replace(commit, counts={}))

    def sync(self: Store, commit: Commit) -> None:
        real_sync(self, commit)
        with self._sentences("written"), self._transaction():
            self._add(tables.COUNTERS, commit.counts)

    real_write, real_sync = Store._write, Store.sync
    patch.setattr(Store, "_write", write)
    patch.setattr(Store, "sync", sync)


def does_not_count_its_starts(patch: Patch) -> None:
    def put(self: Store, records: Sequence[Any]) -> None:
        sites = [
            msgspec.structs.replace(record, starts=1) for record in records if _is_site(record)
        ]
        real(self, [*sites, *(record for record in records if not _is_site(record))])

    real = Store._put
    patch.setattr(Store, "_put", put)


def goes_on_after_a_failed_commit(patch: Patch) -> None:
    async def flush(self: Journal) -> None:
        self.failure = None
        await real(self)

    real = Journal.flush
    patch.setattr(Journal, "flush", flush)


def gives_up_when_the_disk_is_full(patch: Patch) -> None:
    async def write_one(self: Journal, commit: Commit, waiting: Any) -> None:
        await self._commit(commit)
        self._state.is_written(commit)

    patch.setattr(Journal, "_write_one", write_one)


def drops_a_commit_that_found_the_disk_full(patch: Patch) -> None:
    async def write_one(self: Journal, commit: Commit, waiting: Any) -> None:
        try:
            await self._commit(commit)
        except StoreFull as full:
            self.fail(full, waiting)
            self.failure = None
        self._state.is_written(commit)

    patch.setattr(Journal, "_write_one", write_one)


def _planted(module: ModuleType) -> list[Bug]:
    """Return the bugs of a module: all of its public functions."""
    functions = [each for name, each in vars(module).items() if not name.startswith("_")]
    return [each for each in functions if isfunction(each) and each.__module__ == module.__name__]


BUGS: tuple[Bug, ...] = (*_planted(sys.modules[__name__]), *_planted(message_bugs))


def _is_site(record: Any) -> bool:
    return isinstance(record, SiteRecord)


class _Skipping:
    """Leaves one kind of statement out."""

    def __init__(self, execute: Callable[..., Any], what: str) -> None:
        self._execute, self._what = execute, what

    def execute(self, statement: str, *given: Any) -> Any:
        if statement.startswith(self._what):
            return self._execute("SELECT 0")
        return self._execute(statement, *given)


def _store_any_labels(patch: Patch) -> None:
    """Let a store accept a second label of a row."""

    def check(self: Store, parts: Iterable[LabelPart]) -> None:
        pass

    patch.setattr(Store, "_check_unlabelled", check)


def _after_set_up(patch: Patch, statement: str) -> None:
    def set_up(self: Store) -> None:
        real(self)
        self._base.execute(statement).fetchall()

    real = Store._set_up
    patch.setattr(Store, "_set_up", set_up)


def _in_background(call: Any) -> None:
    """Run something without waiting for it."""
    task = asyncio.ensure_future(_quiet(call))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


async def _quiet(call: Any) -> None:
    with contextlib.suppress(StoreError, asyncio.CancelledError):
        await call
