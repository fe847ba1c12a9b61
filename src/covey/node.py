"""The async shell of one site: judgement, functions, peers and store, joined by tickets.

A node meets the world through its `Doors` alone, and the event loop that runs it is its clock: a
whole network can run in one process under a virtual one.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from covey import lotbook
from covey.batches import plain_label, points_of, rows_of
from covey.books import MOST_CELLS, OWN, Book, Question, Reply, holder, is_own, settle_old
from covey.bulk import Bulk, told_of
from covey.classifiers import Function
from covey.config import Site
from covey.counsel import Counsel
from covey.decisions import NO_ANSWER, Decision, Settlement
from covey.desks import Key, Trust
from covey.errors import (
    ConflictingLabel,
    DataError,
    LimitError,
    PeerError,
    StoreError,
    UnknownTicket,
)
from covey.journal import Journal
from covey.labelsets import ANY, LabelSet
from covey.learner import Learner
from covey.lotbook import Settlements
from covey.lots import Lot
from covey.outbox import Outbox
from covey.peers import NO_INSTANCE, Help, Patience, Peer, Request
from covey.records import Batch, Owed, Ticket
from covey.shapes import shape_of
from covey.standins import OwnFunctions
from covey.states import Ledger, PeerState, State, arms_of
from covey.store import Store
from covey.teaching import Teaching, Work
from covey.types import MEMORY, Context, Label, Report
from covey.views import ALL, cut, shown

MOST_SLOTS = 2**53
Found = TypeVar("Found", Ticket, Lot)


class Doors(msgspec.Struct, frozen=True):
    """All that a node sees of the world, besides the clock of its event loop."""

    store: Store
    peers: Mapping[str, Peer]
    chance: random.Random  # for ids and jitter
    work: Work


class Limits(msgspec.Struct, frozen=True):
    """What a node holds at most."""

    tickets: int = 1_000_000  # of own clients in memory, labelled or not
    peer_tickets: int = 100_000  # of each peer
    cells: int = MOST_CELLS  # that each peer may make known
    under_way: int = 256  # requests of own clients that are being answered
    for_peers: int = 128  # requests of peers that are being answered


class Node:
    """One site at work. `start` opens it from its store; `stop` leaves it as a crash would."""

    def __init__(  # noqa: PLR0913 - a node is a site and all that it meets
        self,
        site: Site,
        learner: Learner,
        functions: Sequence[Function],
        doors: Doors,
        *,
        trust: Mapping[str, Trust] | None = None,
        patience: Patience | None = None,
        limits: Limits | None = None,
        labels: LabelSet = ANY,
        shape: str | None = None,
    ) -> None:
        """`trust` says how the labels of each peer count; `isolated` for those not named.

        `shape` says what its counters mean, if that is more than the learner shows.
        """
        self.name = site.name
        self.learner = learner
        self._views = site.views
        self._labels = labels
        self._doors = doors
        self._own = OwnFunctions(functions, learner, doors.work)
        self._teaching = Teaching(functions, doors.work)
        self._limits = Limits() if limits is None else limits
        loaded = doors.store.load(site.name, shape_of(learner) if shape is None else shape)
        self.starts = loaded.starts  # this one included
        self._book = Book(learner, loaded, trust, most_cells=self._limits.cells)
        patience = Patience() if patience is None else patience
        self._counsel = Counsel(learner, self._book, doors.peers, patience, doors.chance)
        self._bulk = Bulk(
            self._book,
            self._counsel,
            self._own,
            views=site.views,
            new_id=self._new_id,
        )
        self._latest = learner.slot
        self._under_way: dict[Key, asyncio.Event] = {}
        self._promised: Counter[str] = Counter()  # tickets of those, by who will hold them
        self._journal = Journal(self._book, self._commit)
        self._outbox = Outbox(self._counsel.guards, loaded.owed, doors.chance, self._tell)

    @property
    def is_ready(self) -> bool:
        """Whether it can answer and keep what it is told."""
        return self._journal.failure is None

    @property
    def is_broken(self) -> bool:
        """Whether it must be started again, as what happens could not be written."""
        return self._journal.is_broken.is_set()

    @property
    def owed(self) -> int:
        """How many labels peers are still to be told."""
        return len(self._outbox)

    @property
    def ledger(self) -> Ledger:
        """What was decided and labelled so far."""
        return self._book.ledger

    @property
    def failures(self) -> Mapping[str, int]:
        """How many calls of each own function have failed since the start."""
        return self._own.failures

    @property
    def previous_label(self) -> Label | None:
        """The label of the latest own instance of which it is known; None: of none is."""
        return self._book.previous_label

    def state(self) -> State:
        """Return how the site stands; for one that was started."""
        peers = [
            PeerState(peer, "resting" if guard.is_resting else "open", self._outbox.owed(peer))
            for peer, guard in self._counsel.guards.items()
        ]
        return State(
            name=self.name,
            is_ready=self.is_ready,
            starts=self.starts,
            uptime_s=asyncio.get_running_loop().time() - self._started_s,
            slot=self.learner.slot,
            phases=self.ledger.phases(),
            arms=arms_of(self.learner, self.ledger, self._counsel.prices),
            peers=peers,
            open_tickets=self.learner.open_tickets + self._book.lots.waiting,
            cells=self._book.cells,
            owed=self.owed,
            for_peers=self._book.for_peers(),
        )

    def start(self) -> None:
        """Begin to tell peers the labels that they are owed."""
        self._started_s = asyncio.get_running_loop().time()
        self._outbox.start()

    async def drained(self) -> None:
        """Return when no label is owed to any peer."""
        await self._outbox.drained()

    async def failed(self) -> StoreError:
        """Return why, when a batch could not be written; a full disk is no such failure."""
        await self._journal.is_broken.wait()
        assert self._journal.failure is not None
        return self._journal.failure

    def stop(self) -> None:
        """Stop at once; what is not on the disk is lost, and nobody was told otherwise."""
        self._outbox.stop()
        self._journal.stop()

    async def predict(
        self,
        instance: Any,
        context: Context = (),
        *,
        question: Question | None = None,
        slot: int | None = None,
    ) -> Ticket:
        """Return a label for `instance`, with the ticket under which its true label is to be said.

        The same question again gets the same ticket; another one under its id raises
        `ConflictingLabel`. Raises `ContextError`, `FunctionError`, `LimitError` or `StoreError`;
        then no ticket was given.
        """
        asked = Question(OWN, self._new_id()) if question is None else question

        async def answer() -> Ticket:
            decision, reply = await self._answer(instance, tuple(context), self._slot(slot))
            return self._book.accept(decision, asked, reply)

        return _as(Ticket, await self._once(asked, answer, is_new=question is None), asked)

    async def learn(
        self,
        id: str,  # noqa: A002 - the problem's word
        label: Label,
        *,
        source: str = OWN,
    ) -> Settlement:
        """Take a true label from who asked, and return when it is on the disk.

        The function that answered is taught first, if it can be. Raises `UnknownTicket`,
        `LateLabel`, `ConflictingLabel`, `UnfitLabel`, or `FunctionError` if the function cannot
        learn from it; then no counter has moved, and the label can be sent again.
        """
        label = plain_label(label)
        self._check_fits([label], source)
        self._check_alive()
        await self._teaching.over((source, id))
        ticket = self._book.find(source, id)
        is_old = ticket is None
        if ticket is None:
            ticket = await self._find_old(source, id)
        if isinstance(ticket, Lot):
            raise DataError(f"{id!r} has {len(ticket)} rows; say of which row this is the label")
        if is_old or ticket is None:
            return settle_old(ticket, label, id=id)
        self._check_takes_labels(source)
        await self._teaching.teach((source, id), self._book.waiting(ticket), label)
        try:
            return self._book.settle(ticket, label)
        finally:
            await self._journal.flush()  # what a refusal goes by must not be lost either

    async def predict_batch(
        self,
        instances: Any,
        contexts: Any = None,
        *,
        question: Question | None = None,
        slot: int | None = None,
    ) -> Lot:
        """Return labels for many rows of a client under one id: each is told by its row.

        The rows are decided in consecutive slots, as `predict` would one after the other with all
        labels still to come. Every function and every peer is asked once. Raises as `predict`
        does, and `DataError` for rows that do not fit together; then nothing was given out.
        """
        rows = rows_of(instances)
        if not len(rows):
            raise DataError("the batch has no rows")
        dimension = self.learner.policies[self.learner.space].dimension
        points = points_of(contexts, rows, dimension=dimension)
        asked = Question(OWN, self._new_id()) if question is None else question

        async def answer() -> Lot:
            return await self._bulk.answer(rows, points, asked, self._slot(slot, len(rows)))

        found = await self._once(asked, answer, is_new=question is None, rows=len(rows))
        return _as(Lot, found, asked)

    async def learn_many(
        self,
        id: str,  # noqa: A002 - the problem's word
        rows: Sequence[int],
        labels: Any,
        *,
        source: str = OWN,
    ) -> Settlements:
        """Take true labels of rows of a batch, all or none; return when they are on the disk.

        What was asked alone is row 0. Raises as `learn` does, and `UnknownRow` for a row that there
        is not.
        """
        self._check_alive()
        await self._teaching.over((source, id))
        lot = self._book.find(source, id)
        if lot is None:
            lot = await self._find_old(source, id)
        if lot is None:
            raise UnknownTicket(f"there is no ticket {id!r}")
        truths = told_of(lot, rows, labels)
        if not isinstance(lot, Lot):
            told = [await self.learn(id, label, source=source) for label in truths.values()]
            return Settlements([one.is_new for one in told], [one.is_right for one in told])
        self._check_fits(list(truths.values()), source)
        self._check_takes_labels(source)
        lotbook.check(lot, truths)
        await self._teaching.teach_rows((source, id), lot.lessons, truths)
        try:
            return self._book.lots.settle(lot, truths)
        finally:
            await self._journal.flush()  # what a refusal goes by must not be lost either

    async def _find_old(self, source: str, id: str) -> Ticket | Lot | None:  # noqa: A002
        """Return what the store has of a ticket that the book knows no longer."""
        await self._journal.flush()  # its label may be on the way to the store
        return await self._doors.work(self._doors.store.find, source, id)

    def _check_fits(self, labels: Sequence[Label], source: str) -> None:
        (self._labels.check_own if is_own(source) else self._labels.check)(labels)

    def _check_takes_labels(self, source: str) -> None:
        if not self.learner.is_supervised and is_own(source):
            raise DataError(f"learner {self.name!r} has supervised = false, and takes no labels")

    # -- for peers ------------------------------------------------------------------------------

    async def assist(self, request: Request, *, source: str) -> Help:
        """Answer a peer by an own function, or from memory; a request is never passed on."""
        cell, slot = self.learner.names.parse(request.cell), _checked_slot(request.slot)
        asked = Question(source, request.id)

        async def answer() -> Ticket:
            if request.instance is NO_INSTANCE:
                decision = self._book.recall(source, cell, slot)
                said = decision.label
                return self._book.keep(decision, asked, Reply(said, said, MEMORY))
            decision = self._book.assist(source, cell, slot)
            with self._book.or_abandoned(decision, source):
                said = await self._own.answer(decision.choice.function, request.instance)
                reply = Reply(said, said, decision.choice.arm)
            if self._book.is_pooled(source):
                self._teaching.prepare(decision, decision.choice.function, request.instance)
            return self._book.accept(decision, asked, reply)

        ticket = _as(Ticket, await self._once(asked, answer, is_new=False), asked)
        return Help(ticket.answer, ticket.function, ticket.width)

    async def report(self, cell: str, slot: int, *, source: str) -> Report:
        """Tell a peer the arrivals in a cell, which is known from now on."""
        return self._book.report(source, self.learner.names.parse(cell), _checked_slot(slot))

    async def estimate(
        self, cell: str, slot: int, *, source: str, is_by_context: bool
    ) -> tuple[float, int]:
        """Tell a peer how accurate answers in a cell would be."""
        where, at = self.learner.names.parse(cell), _checked_slot(slot)
        return self._book.estimate(source, where, at, is_by_context=is_by_context)

    # -- one instance ---------------------------------------------------------------------------

    async def _once(
        self,
        asked: Question,
        answer: Callable[[], Awaitable[Ticket | Lot]],
        *,
        is_new: bool,
        rows: int = 1,
    ) -> Ticket | Lot:
        """Answer a question that was not asked before; else return what was answered then."""
        key = (asked.source, asked.id)
        while key in self._under_way:
            await self._under_way[key].wait()
        found = None if is_new else self._book.find(*key)
        if found is None:
            self._check_room(asked.source, rows)
            done = self._under_way[key] = asyncio.Event()
            self._promised[holder(asked.source)] += rows
            try:
                if not is_new and self._doors.store.may_have(*key):
                    found = await self._doors.work(self._doors.store.find, *key)
                found = found or await answer()
            finally:
                self._promised[holder(asked.source)] -= rows
                del self._under_way[key]
                done.set()
        if found.digest != asked.digest:
            raise _other_question(asked)
        await self._journal.flush()
        return found

    async def _answer(self, instance: Any, context: Context, slot: int) -> tuple[Decision, Reply]:
        """Decide and let the arm answer; if a peer fails, by what the site has itself."""
        talk = self._counsel.begin()
        decision = self._book.decide(context, slot)
        try:
            with self._book.or_abandoned(decision):
                while decision.asks:
                    await self._counsel.consult(decision, talk)
                if decision.choice.function < 0:
                    return decision, await self._ask(instance, decision, talk.deadline_s)
        except PeerError as error:
            decision = self._counsel.decide_alone(context, slot, error)
        with self._book.or_abandoned(decision):
            return decision, await self._answer_own(instance, decision)

    async def _ask(self, instance: Any, decision: Decision, deadline_s: float) -> Reply:
        """Ask the chosen peer; where it has no answer, the own best function has one."""
        choice = decision.choice
        part = self._seen(instance, decision)
        request = Request(
            self._new_id(),
            self.learner.cell_name(decision),
            decision.slot,
            NO_INSTANCE if choice.is_by_context else part,
        )
        (helped,) = await self._counsel.guards[choice.peer].ask([request], deadline_s)
        decision.width = helped.width
        if helped.label is not NO_ANSWER:
            return Reply(helped.label, helped.label, helped.function, request.id)
        own = await self._run_own(self.learner.best_own(decision), lambda _: part, decision)
        return Reply(NO_ANSWER, own.answer, own.function, request.id)

    async def _answer_own(self, instance: Any, decision: Decision) -> Reply:
        """Let the chosen function answer a client; where it fails, another one does."""
        chosen = decision.choice.function
        return await self._run_own(
            chosen, lambda number: self._seen(instance, decision, number), decision
        )

    async def _run_own(self, chosen: int, part: Callable[[int], Any], decision: Decision) -> Reply:
        """Run own functions until one answers a client, which teaches it by the label."""
        number, label = await self._own.first_answer(decision.code >> 20, chosen, part)
        self._teaching.prepare(decision, number, part(number))
        said = label if number == chosen else NO_ANSWER
        return Reply(said, label, self.learner.arms[number])

    def _seen(self, instance: Any, decision: Decision, function: int = -1) -> Any:
        """Return what the chosen arm gets to see, or a function in its place."""
        if not self._views:
            return instance
        arm = decision.choice.arm if function < 0 else self.learner.arms[function]
        number = shown(self._views, arm, decision.context)
        return instance if number == ALL else cut(instance, self._views[number].columns)

    # -- the doors ------------------------------------------------------------------------------

    def _new_id(self) -> str:
        return f"{self._doors.chance.getrandbits(128):032x}"

    def _slot(self, slot: int | None, rows: int = 1) -> int:
        """Return the first slot of some rows; those under way have theirs already."""
        latest = max(self._latest, self.learner.slot)
        first = latest + 1 if slot is None else max(slot, latest)
        self._latest = first + rows - 1
        return first

    def _check_alive(self) -> None:
        if self._journal.failure is not None:
            raise self._journal.failure

    def _check_room(self, source: str, rows: int = 1) -> None:
        """Raise `LimitError` if there is none; peers cannot take that of own clients."""
        self._check_alive()
        is_ours = is_own(source)
        held = self._book.held(source) + self._promised[holder(source)]
        if held + rows > (self._limits.tickets if is_ours else self._limits.peer_tickets):
            raise LimitError(f"{held} tickets are held or under way; try again later")
        most = self._limits.under_way if is_ours else self._limits.for_peers
        if len(self._under_way) < most:
            return
        if sum(is_own(one) == is_ours for one, _ in self._under_way) >= most:
            raise LimitError(f"{most} requests are under way; try again later")

    async def _commit(self, batch: Batch) -> None:
        await self._doors.work(self._doors.store.commit, batch)
        # Not where the label came in: whoever sent it may have hung up since.
        for owed in batch.owed:
            self._outbox.add(owed)

    async def _tell(self, owed: Sequence[Owed]) -> None:
        for one in owed:
            self._book.tell(one)
        await self._journal.flush()


def _as(kind: type[Found], found: Ticket | Lot, asked: Question) -> Found:
    """Return what was answered if it is of the kind that was asked for."""
    if not isinstance(found, kind):
        raise _other_question(asked)
    return found


def _other_question(asked: Question) -> ConflictingLabel:
    return ConflictingLabel(f"id {asked.id!r} was used for another question; choose another")


def _checked_slot(slot: int) -> int:
    if not 1 <= slot <= MOST_SLOTS:
        raise DataError(f"the slot is {slot}; it must lie from 1 to 2**53")
    return slot
