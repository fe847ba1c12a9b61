"""The async shell of one site: judgement, functions, peers and store, joined by tickets.

A node meets the world through its `Doors` alone, and the event loop that runs it is its clock: a
whole network can run in one process under a virtual one.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from covey.books import MOST_CELLS, OWN, Book, Question, Reply, is_own, settle_old, shape_of
from covey.classifiers import Function
from covey.config import Site
from covey.decisions import NO_ANSWER, Decision, Settlement
from covey.desks import Key, Trust
from covey.errors import ConfigError, ConflictingLabel, DataError, LimitError, PeerError
from covey.journal import Journal
from covey.learner import Learner
from covey.outbox import Outbox
from covey.peers import NO_INSTANCE, Guard, Help, Patience, Peer, Request, plain_label
from covey.states import Ledger, PeerState, State, arms_of
from covey.store import Batch, Owed, Store, Ticket
from covey.types import MEMORY, Cell, Context, Label, Report
from covey.views import ALL, cut, shown

Given = TypeVar("Given")
MOST_SLOTS = 2**53
NOTHING_TOLD = (0.0, 0)


class Work(Protocol):
    """Runs something that blocks, such as a function or a commit, without stopping the node."""

    def __call__(self, run: Callable[..., Given], /, *given: Any) -> Awaitable[Given]:
        """Return what `run(*given)` returns."""


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
    ) -> None:
        """`trust` says how the labels of each peer count; `isolated` for those not named."""
        self.name = site.name
        self.learner = learner
        self._functions = functions
        self._views = site.views
        self._doors = doors
        self._limits = Limits() if limits is None else limits
        self._prices = _prices(learner)
        patience = Patience() if patience is None else patience
        self._guards = {
            peer: Guard(peer, self._door(peer), patience, doors.chance) for peer in self._prices
        }
        self._shut: set[str] = set()  # peers that are not to be asked for now
        loaded = doors.store.load(site.name, shape_of(learner))
        self.starts = loaded.starts  # this one included
        self._book = Book(learner, loaded, trust, most_cells=self._limits.cells)
        self._latest = learner.slot
        self._under_way: dict[Key, asyncio.Event] = {}
        self._journal = Journal(self._book, self._commit)
        self._outbox = Outbox(self._guards, loaded.owed, doors.chance, self._tell)

    @property
    def is_ready(self) -> bool:
        """Whether it can answer and keep what it is told."""
        return self._journal.failure is None

    @property
    def owed(self) -> int:
        """How many labels peers are still to be told."""
        return len(self._outbox)

    @property
    def ledger(self) -> Ledger:
        """What was decided and labelled so far."""
        return self._book.ledger

    def state(self) -> State:
        """Return how the site stands; for one that was started."""
        peers = [
            PeerState(peer, "resting" if guard.is_resting else "open", self._outbox.owed(peer))
            for peer, guard in self._guards.items()
        ]
        return State(
            name=self.name,
            is_ready=self.is_ready,
            starts=self.starts,
            uptime_s=asyncio.get_running_loop().time() - self._started_s,
            slot=self.learner.slot,
            phases=self.ledger.phases(),
            arms=arms_of(self.learner, self.ledger, self._prices),
            peers=peers,
            open_tickets=self.learner.open_tickets,
            cells=self._book.cells,
            owed=self.owed,
        )

    def start(self) -> None:
        """Begin to tell peers the labels that they are owed."""
        self._started_s = asyncio.get_running_loop().time()
        self._outbox.start()

    async def drained(self) -> None:
        """Return when no label is owed to any peer."""
        await self._outbox.drained()

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

        return await self._once(asked, answer, is_new=question is None)

    async def learn(
        self,
        id: str,  # noqa: A002 - the problem's word
        label: Label,
        *,
        source: str = OWN,
    ) -> Settlement:
        """Take a true label from who asked, and return when it is on the disk.

        Raises `UnknownTicket`, `LateLabel` or `ConflictingLabel`.
        """
        label = plain_label(label)
        self._check_alive()
        ticket = self._book.find(source, id)
        if ticket is None:
            await self._journal.flush()  # its label may be on the way to the store
            ticket = await self._doors.work(self._doors.store.find, source, id)
            return settle_old(ticket, label, id=id)
        if not self.learner.is_supervised and is_own(source):
            raise DataError(f"learner {self.name!r} has supervised = false, and takes no labels")
        try:
            return self._book.settle(ticket, label)
        finally:
            await self._journal.flush()  # what a refusal goes by must not be lost either

    # -- for peers ------------------------------------------------------------------------------

    async def assist(self, request: Request, *, source: str) -> Help:
        """Answer a peer by an own function, or from memory; a request is never passed on."""
        cell, slot = self._cell(request.cell), _checked_slot(request.slot)
        asked = Question(source, request.id)

        async def answer() -> Ticket:
            if request.instance is NO_INSTANCE:
                decision = self._book.recall(source, cell, slot)
                said = decision.label
                return self._book.keep(decision, asked, Reply(said, said, MEMORY))
            decision = self._book.assist(source, cell, slot)
            with self._or_abandoned(decision, source):
                reply = await self._run(decision.choice.function, request.instance)
            return self._book.accept(decision, asked, reply)

        ticket = await self._once(asked, answer, is_new=False)
        return Help(ticket.answer, ticket.function, ticket.width)

    async def report(self, cell: str, slot: int, *, source: str) -> Report:
        """Tell a peer the arrivals in a cell, which is known from now on."""
        return self._book.report(source, self._cell(cell), _checked_slot(slot))

    async def estimate(
        self, cell: str, slot: int, *, source: str, is_by_context: bool
    ) -> tuple[float, int]:
        """Tell a peer how accurate answers in a cell would be."""
        where, at = self._cell(cell), _checked_slot(slot)
        return self._book.estimate(source, where, at, is_by_context=is_by_context)

    # -- one instance ---------------------------------------------------------------------------

    async def _once(
        self, asked: Question, answer: Callable[[], Awaitable[Ticket]], *, is_new: bool
    ) -> Ticket:
        """Answer a question that was not asked before; else return what was answered then."""
        key = (asked.source, asked.id)
        while key in self._under_way:
            await self._under_way[key].wait()
        ticket = None if is_new else self._book.find(*key)
        if ticket is None:
            self._check_room(asked.source)
            done = self._under_way[key] = asyncio.Event()
            try:
                if not is_new:
                    ticket = await self._doors.work(self._doors.store.find, *key)
                ticket = ticket or await answer()
            finally:
                del self._under_way[key]
                done.set()
        if ticket.digest != asked.digest:
            raise ConflictingLabel(f"id {asked.id!r} was used for another question; choose another")
        await self._journal.flush()
        return ticket

    async def _answer(self, instance: Any, context: Context, slot: int) -> tuple[Decision, Reply]:
        """Decide and let the arm answer; if a peer fails, by what the site has itself."""
        self._open_and_shut()
        deadline_s = min((one.deadline_s() for one in self._guards.values()), default=math.inf)
        decision = self._book.decide(context, slot)
        try:
            with self._or_abandoned(decision):
                while decision.asks:
                    await self._consult(decision, deadline_s)
                if decision.choice.function < 0:
                    return decision, await self._ask(instance, decision, deadline_s)
        except PeerError:
            decision = self._decide_alone(context, slot)
        with self._or_abandoned(decision):
            part = self._seen(instance, decision)
            return decision, await self._run(decision.choice.function, part)

    @contextlib.contextmanager
    def _or_abandoned(self, decision: Decision, source: str = OWN) -> Iterator[None]:
        """Take a decision back if it comes to nothing."""
        try:
            yield
        except BaseException:
            self._book.abandon(decision, source)
            raise

    async def _consult(self, decision: Decision, deadline_s: float) -> None:
        """Ask peers what the decision needs to know."""
        cell, slot = self.learner.cell_name(decision), decision.slot
        if not self.learner.is_supervised:
            await self._consult_blindly(decision, deadline_s)
            return
        reports = await asyncio.gather(
            *(self._guards[peer].report(cell, slot, deadline_s) for peer in decision.asks)
        )
        # Whatever a peer says, it has seen what it answered: so it cannot have itself trained on.
        floors = [self._book.asked(cell, peer) for peer in decision.asks]
        self._book.inform(
            decision,
            [
                (max(arrivals, floor), low, high)
                for (arrivals, low, high), floor in zip(reports, floors, strict=True)
            ],
        )

    async def _consult_blindly(self, decision: Decision, deadline_s: float) -> None:
        cell, slot = self.learner.cell_name(decision), decision.slot
        told = await asyncio.gather(
            *(
                self._guards[peer].estimate(cell, slot, deadline_s, is_by_context=is_by_context)
                for peer, is_by_context in self.learner.behind()
            ),
            return_exceptions=True,
        )
        for one in told:
            if isinstance(one, BaseException) and not isinstance(one, PeerError):
                raise one
        self._book.consult(
            decision, [NOTHING_TOLD if isinstance(one, BaseException) else one for one in told]
        )

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
        (helped,) = await self._guards[choice.peer].ask([request], deadline_s)
        decision.width = helped.width
        if helped.label is not NO_ANSWER:
            return Reply(helped.label, helped.label, helped.function, request.id)
        own = await self._run(self.learner.best_own(decision), part)
        return Reply(NO_ANSWER, own.answer, own.function, request.id)

    async def _run(self, number: int, instance: Any) -> Reply:
        """Run an own function."""
        function = self._functions[number]
        label = plain_label(await self._doors.work(function.answer, instance))
        return Reply(label, label, function.name)

    def _seen(self, instance: Any, decision: Decision) -> Any:
        number = shown(self._views, decision.choice.arm, decision.context) if self._views else ALL
        return instance if number == ALL else cut(instance, self._views[number].columns)

    def _decide_alone(self, context: Context, slot: int) -> Decision:
        """Decide as if there were nobody to ask."""
        with self._all_shut():
            decision = self._book.decide(context, slot)
            if decision.asks:
                self._book.consult(decision, [NOTHING_TOLD for _ in self.learner.behind()])
        return decision

    @contextlib.contextmanager
    def _all_shut(self) -> Iterator[None]:
        is_open = [peer for peer in self._prices if peer not in self._shut]
        for peer in is_open:
            self.learner.reprice(peer, math.inf)
        yield
        for peer in is_open:
            self.learner.reprice(peer, self._prices[peer])

    def _open_and_shut(self) -> None:
        """Let the learner know which peers are left alone for now."""
        for peer, guard in self._guards.items():
            if guard.is_resting != (peer in self._shut):
                self._shut ^= {peer}
                price = math.inf if peer in self._shut else self._prices[peer]
                self.learner.reprice(peer, price)

    # -- the doors ------------------------------------------------------------------------------

    def _door(self, peer: str) -> Peer:
        if peer not in self._doors.peers:
            raise ConfigError(f"learner {self.name!r} may ask {peer!r}, but there is no way to it")
        return self._doors.peers[peer]

    def _new_id(self) -> str:
        return f"{self._doors.chance.getrandbits(128):032x}"

    def _slot(self, slot: int | None) -> int:
        """Return the slot of an instance; those under way have theirs already."""
        latest = max(self._latest, self.learner.slot)
        self._latest = latest + 1 if slot is None else max(slot, latest)
        return self._latest

    def _cell(self, name: str) -> Cell:
        """Return the cell that a peer speaks of; raise `DataError` if there can be none such."""
        space, _, rest = name.rpartition("/")
        policy = self.learner.policies.get(space)
        if policy is None:
            raise DataError(f"cell {name!r} lies in a context space that is not known here")
        cell = policy.partition.parse(rest)
        if len(cell.coordinates) != policy.dimension:
            raise DataError(f"cell {name!r} does not have {policy.dimension} coordinates")
        return cell._replace(space=space) if space else cell

    def _check_alive(self) -> None:
        if self._journal.failure is not None:
            raise self._journal.failure

    def _check_room(self, source: str) -> None:
        """Raise `LimitError` if there is none; peers cannot take that of own clients."""
        self._check_alive()
        is_ours, held = is_own(source), self._book.held(source)
        if held >= (self._limits.tickets if is_ours else self._limits.peer_tickets):
            raise LimitError(f"{held} tickets are held; send their labels, or wait")
        most = self._limits.under_way if is_ours else self._limits.for_peers
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


def _prices(learner: Learner) -> dict[str, float]:
    """Return what asking each peer costs."""
    behind = learner.behind()
    names = [peer for peer, _ in behind]
    for peer in names:
        if names.count(peer) > 1:
            raise ConfigError(
                f"learner {learner.name!r} has {peer!r} in peers and in context-peers; a node "
                "takes one of them"
            )
    costs = learner.costs[len(learner.costs) - len(names) :]
    return dict(zip(names, costs, strict=True))


def _checked_slot(slot: int) -> int:
    if not 1 <= slot <= MOST_SLOTS:
        raise DataError(f"the slot is {slot}; it must lie from 1 to 2**53")
    return slot
