"""Bugs that a node might have, to be planted one by one: a storm must find each of them."""

import asyncio
import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from covey import node as nodes
from covey.books import Book, settle_old
from covey.counsel import Counsel
from covey.decisions import UNKNOWN, Decision, Settlement
from covey.errors import ConflictingLabel, LateLabel, PeerError, StoreError, StoreFull
from covey.journal import Journal
from covey.learner import Learner
from covey.lots import as_text
from covey.node import store as node_store
from covey.node.node import Node
from covey.outbox import Outbox
from covey.peers import TAKEN, Guard
from covey.records import Batch, Owed, Ticket, Truth
from covey.schema import COUNT, LABEL, for_labels
from covey.store import Store
from storm import letter_bugs

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]


def answers_before_the_commit(patch: Patch) -> None:
    async def flush(self: Journal) -> None:
        _aside(real(self))

    real = Journal.flush
    patch.setattr(Journal, "flush", flush)


def gives_tickets_out_before_the_commit(patch: Patch) -> None:
    is_asked = ContextVar("is_asked", default=False)

    async def once(self: Node, *given: Any, **more: Any) -> Any:
        token = is_asked.set(True)
        try:
            return await real(self, *given, **more)
        finally:
            is_asked.reset(token)

    async def flush(self: Journal) -> None:
        if is_asked.get():
            _aside(write(self))
        else:
            await write(self)

    real, write = Node._once, Journal.flush
    patch.setattr(Node, "_once", once)
    patch.setattr(Journal, "flush", flush)


def keeps_the_outbox_in_memory_only(patch: Patch) -> None:
    def write(self: Store, batch: Batch) -> None:
        real(self, msgspec.structs.replace(batch, owed=[]))

    real = Store._write
    patch.setattr(Store, "_write", write)


def forgets_the_outbox_at_start(patch: Patch) -> None:
    def init(self: Outbox, guards: Any, owed: Any, chance: Any, tell: Any) -> None:
        real(self, guards, (), chance, tell)

    real = Outbox.__init__
    patch.setattr(Outbox, "__init__", init)


def passes_labels_on_where_they_came_in(patch: Patch) -> None:
    async def commit(self: Node, batch: Batch) -> None:
        await self._doors.work(self._doors.store.commit, batch)

    async def learn(self: Node, id: str, label: Any, *, source: str = "") -> Settlement:  # noqa: A002
        ticket = self._book.find(source, id)
        done = await real(self, id, label, source=source)
        if done.is_new and done.peer and ticket is not None and ticket.peer_ticket is not None:
            self._outbox.add(Owed(done.peer, ticket.peer_ticket, label))
        return done

    real = Node.learn
    patch.setattr(Node, "_commit", commit)
    patch.setattr(Node, "learn", learn)


def delivers_only_once(patch: Patch) -> None:
    async def deliver(self: Guard, labels: Any) -> list[str]:
        try:
            return await real(self, labels)
        except PeerError:
            return [TAKEN for _ in labels]

    real = Guard.deliver
    patch.setattr(Guard, "deliver", deliver)


def crosses_labels_off_before_they_are_told(patch: Patch) -> None:
    async def deliver_some(self: Outbox, peer: str, owed: Any) -> None:
        await self._tell(owed)
        await real(self, peer, owed)

    real = Outbox._deliver_some
    patch.setattr(Outbox, "_deliver_some", deliver_some)


def counts_a_repeated_label(patch: Patch) -> None:
    def settle(self: Learner, ticket: int, label: Any, paid: float | None = None) -> Settlement:
        decision = self.held(ticket)
        done = real(self, ticket, label, paid)
        if decision is not None and not done.is_new:
            table = self.tables[decision.space]
            table.settle(decision.code, done.is_right, decision.context, decision.slot)
        return done

    real = Learner.settle
    patch.setattr(Learner, "settle", settle)


def stores_a_repeated_label_as_new(patch: Patch) -> None:
    def settle(self: Book, ticket: Ticket, label: Any) -> Settlement:
        done = real(self, ticket, label)
        if not done.is_new:
            self._batch.truths.append(Truth(ticket.ticket, label, done.is_right, ticket.desk))
            self._has_moved = True
        return done

    real = Book.settle
    patch.setattr(Book, "settle", settle)
    patch.setattr(Store, "_write_truths", _write_any_truths)


def takes_a_second_conflicting_label(patch: Patch) -> None:
    def settle(self: Learner, ticket: int, label: Any, paid: float | None = None) -> Settlement:
        decision = self.held(ticket)
        if decision is not None and decision.truth is not UNKNOWN and decision.truth != label:
            decision.truth = UNKNOWN
        return real(self, ticket, label, paid)

    real = Learner.settle
    patch.setattr(Learner, "settle", settle)
    patch.setattr(Store, "_write_truths", _write_any_truths)


def does_not_know_a_question_again(patch: Patch) -> None:
    async def once(self: Node, asked: Any, answer: Any, **_: Any) -> Ticket:
        ticket: Ticket = await answer()
        await self._journal.flush()
        return ticket

    patch.setattr(Node, "_once", once)


def believes_what_peers_report(patch: Patch) -> None:
    patch.setattr(Book, "asked", lambda self, cell, peer: 0)


def lets_anybody_label_a_ticket(patch: Patch) -> None:
    def find(self: Book, source: str, id: str) -> Ticket | None:  # noqa: A002
        own = real(self, source, id)
        others = (one for (_, name), one in self._tickets.items() if name == id)
        return own or next(others, None)

    real = Book.find
    patch.setattr(Book, "find", find)


def syncs_now_and_then(patch: Patch) -> None:
    _after_set_up(patch, "PRAGMA synchronous = NORMAL")


def never_syncs(patch: Patch) -> None:
    _after_set_up(patch, "PRAGMA synchronous = OFF")


def builds_on_a_log_that_was_not_synced(patch: Patch) -> None:
    def skip(self: Any) -> None:
        self._base = _Skipping(self._base, "PRAGMA wal_checkpoint")

    _around_set_up(patch, before=skip)


def counts_in_a_second_transaction(patch: Patch) -> None:
    def sync(self: Store, batch: Batch) -> None:
        real(self, batch)
        with self._sentences("written"), self._transaction():
            self._base.executemany(for_labels(COUNT, 1), _told(batch.truths))

    def write_truths(self: Store, truths: Sequence[Truth]) -> None:
        self._base.executemany(for_labels(LABEL, 1), _told(truths))

    real = Store.sync
    patch.setattr(Store, "_write_truths", write_truths)
    patch.setattr(Store, "sync", sync)


def goes_on_after_a_failed_commit(patch: Patch) -> None:
    async def flush(self: Journal) -> None:
        self.failure = None
        await real(self)

    real = Journal.flush
    patch.setattr(Journal, "flush", flush)


def gives_up_when_the_disk_is_full(patch: Patch) -> None:
    async def write_one(self: Journal, batch: Batch, waiting: Any) -> None:
        await self._commit(batch)
        self._book.is_written(batch)

    patch.setattr(Journal, "_write_one", write_one)


def forgets_what_found_no_room(patch: Patch) -> None:
    async def write_one(self: Journal, batch: Batch, waiting: Any) -> None:
        try:
            await self._commit(batch)
        except StoreFull as full:
            self._fail(full, waiting)
            self.failure = None
        self._book.is_written(batch)

    patch.setattr(Journal, "_write_one", write_one)


def uses_ids_again_after_a_restart(patch: Patch) -> None:
    def new_id(self: Node) -> str:
        numbers = self.__dict__.setdefault("numbers", itertools.count())
        return f"r{next(numbers)}"

    patch.setattr(Node, "_new_id", new_id)


def forgets_tickets_too_early(patch: Patch) -> None:
    def expire(self: Learner, slot: int) -> None:
        wait, self.label_wait = self.label_wait, self.label_wait // 2
        real(self, slot)
        self.label_wait = wait

    real = Learner._expire
    patch.setattr(Learner, "_expire", expire)


def thanks_for_labels_that_came_too_late(patch: Patch) -> None:
    def settle(ticket: Ticket | None, label: Any, *, id: str) -> Settlement:  # noqa: A002
        try:
            return settle_old(ticket, label, id=id)
        except LateLabel:
            return Settlement(False, False)

    patch.setattr(nodes, "settle_old", settle)


def does_not_count_its_starts(patch: Patch) -> None:
    def load(self: Store, name: str, shape: str) -> Any:
        self._base = _Skipping(self._base, "UPDATE site SET starts")  # type: ignore[assignment]
        return real(self, name, shape)

    real = Store.load
    patch.setattr(Store, "load", load)


def waits_for_peers_for_ever(patch: Patch) -> None:
    patch.setattr(Guard, "deadline_s", lambda self: math.inf)


def fails_when_a_peer_fails(patch: Patch) -> None:
    def decide_alone(self: Counsel, context: Any, slot: int) -> Decision:
        raise PeerError("nobody answered")

    patch.setattr(Counsel, "decide_alone", decide_alone)


def refuses_by_what_is_not_written(patch: Patch) -> None:
    async def learn(self: Node, id: str, label: Any, *, source: str = "") -> Settlement:  # noqa: A002
        ticket = self._book.find(source, id)
        if ticket is not None:
            decision = self._book.learners[ticket.desk].held(ticket.ticket)
            if decision is not None and decision.truth not in (UNKNOWN, label):
                raise ConflictingLabel("there is another")
        return await real(self, id, label, source=source)

    real = Node.learn
    patch.setattr(Node, "learn", learn)


def looks_up_old_tickets_at_once(patch: Patch) -> None:
    async def learn(self: Node, id: str, label: Any, *, source: str = "") -> Settlement:  # noqa: A002
        if self._book.find(source, id) is None:
            return settle_old(self._doors.store.find(source, id), label, id=id)
        return await real(self, id, label, source=source)

    real = Node.learn
    patch.setattr(Node, "learn", learn)


def counts_labels_of_peers_for_everybody(patch: Patch) -> None:
    real = Book._desk
    patch.setattr(Book, "_desk", lambda self, source: real(self, ""))


def holds_any_number_of_tickets(patch: Patch) -> None:
    patch.setattr(Node, "_check_room", lambda self, *_: self._check_alive())


BUGS: tuple[Bug, ...] = (
    answers_before_the_commit,
    gives_tickets_out_before_the_commit,
    keeps_the_outbox_in_memory_only,
    forgets_the_outbox_at_start,
    passes_labels_on_where_they_came_in,
    delivers_only_once,
    crosses_labels_off_before_they_are_told,
    counts_a_repeated_label,
    stores_a_repeated_label_as_new,
    takes_a_second_conflicting_label,
    does_not_know_a_question_again,
    believes_what_peers_report,
    lets_anybody_label_a_ticket,
    syncs_now_and_then,
    never_syncs,
    builds_on_a_log_that_was_not_synced,
    counts_in_a_second_transaction,
    goes_on_after_a_failed_commit,
    gives_up_when_the_disk_is_full,
    forgets_what_found_no_room,
    uses_ids_again_after_a_restart,
    forgets_tickets_too_early,
    thanks_for_labels_that_came_too_late,
    does_not_count_its_starts,
    waits_for_peers_for_ever,
    fails_when_a_peer_fails,
    refuses_by_what_is_not_written,
    looks_up_old_tickets_at_once,
    counts_labels_of_peers_for_everybody,
    holds_any_number_of_tickets,
    *letter_bugs.BUGS,
)


class _Skipping:
    """A connection that leaves one kind of statement out."""

    def __init__(self, base: Any, what: str) -> None:
        self.base, self._what = base, what

    def execute(self, statement: str, *given: Any) -> Any:
        if statement.startswith(self._what):
            return self.base.execute("SELECT 1")
        return self.base.execute(statement, *given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)


def _write_any_truths(self: Store, truths: Sequence[Truth]) -> None:
    for told in _told(truths):
        self._base.execute(for_labels(LABEL, 1).replace("AND tickets.truth IS NULL", ""), told)
        self._base.execute(for_labels(COUNT, 1), told)


def _told(truths: Sequence[Truth]) -> list[tuple[Any, ...]]:
    return [(one.desk, one.ticket, as_text(one.label), int(one.is_right)) for one in truths]


def _after_set_up(patch: Patch, statement: str) -> None:
    _around_set_up(patch, after=lambda store: store._base.execute(statement).fetchall())


def _around_set_up(
    patch: Patch,
    *,
    before: Callable[[Any], Any] = lambda store: None,
    after: Callable[[Any], Any] = lambda store: None,
) -> None:
    for kind in (Store, node_store.Store):

        def set_up(self: Any, real: Callable[[Any], None] = kind._set_up) -> None:
            before(self)
            real(self)
            after(self)

        patch.setattr(kind, "_set_up", set_up)


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = name
    return function


def _aside(call: Any) -> None:
    """Let something run that nobody waits for."""
    task = asyncio.ensure_future(_quiet(call))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


async def _quiet(call: Any) -> None:
    with contextlib.suppress(StoreError, asyncio.CancelledError):
        await call
