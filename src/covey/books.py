"""A site whose every event is written down: what happened in memory, and what is to be stored.

Nothing here reads or writes. `take` hands over the batch that makes the store agree with the
learners; those that are opened from what the store then holds go on as these would.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from covey.decisions import NO_ANSWER, UNKNOWN, Decision, Settlement
from covey.desks import SITE, Desk, DeskApart, Key, Trust
from covey.errors import ConflictingLabel, LateLabel, LimitError, UnknownTicket
from covey.learner import Learner
from covey.lotbook import Draft, LotBook, Said, waiting
from covey.lots import Lot
from covey.medians import Medians
from covey.records import Batch, Loaded, Owed, Ticket, Truth
from covey.schema import UNCOUNTED
from covey.states import ForPeers, Ledger
from covey.types import Cell, Context, Label, Report

OWN = ""  # the source of what clients of the site ask and say, if they have no name
CLIENT = "client/"  # stands before the names of those that have one
MOST_CELLS = 65_536


def is_own(source: str) -> bool:
    """Say whether a source is a client of the site itself; else it is a peer."""
    return source == OWN or source.startswith(CLIENT)


def holder(source: str) -> str:
    """Return who holds the tickets of a source: own clients are one, each peer is another."""
    return OWN if is_own(source) else source


class Question(msgspec.Struct, frozen=True):
    """Who asks, and under which id; the digest tells whether it is the same question again."""

    source: str
    id: str
    digest: str = ""


class Reply(msgspec.Struct, frozen=True):
    """What an arm said and what the asker is told: by which function, and by whom."""

    prediction: Label
    answer: Label
    function: str
    peer_ticket: str | None = None  # the id under which the peer was asked


class Book:
    """The desks of a site, their tickets by id, and what has happened since the last batch."""

    def __init__(
        self,
        learner: Learner,
        loaded: Loaded,
        trust: Mapping[str, Trust] | None = None,
        *,
        most_cells: int = MOST_CELLS,
    ) -> None:
        """`trust` says how labels of peers count; those of others are kept apart."""
        self.learner = learner
        self._trust = dict(trust or {})
        self._most_cells = most_cells  # that each peer may make known
        self._site = Desk(SITE, learner)
        self._apart: dict[str, DeskApart] = {}
        self._tickets: dict[Key, Ticket] = {}
        self._held: Counter[str] = Counter()
        self._opened: Counter[str] = Counter()
        self.ledger = Ledger(
            (arm, *counted)
            for (_, source, arm), counted in loaded.counters.items()
            if is_own(source)
        )
        self.ledger.labels_of_peers = sum(
            labels for (_, source, _), (labels, _) in loaded.counters.items() if not is_own(source)
        )
        self._medians = self._heard(loaded) if "robust" in self._trust.values() else None
        self._load(loaded)
        self._waits_from = learner.kept_tickets.start
        self._asked = {
            where: count if learner.tells_at_once else labelled
            for where, (count, labelled) in loaded.asked.items()
        }
        self.lots = LotBook(
            self._site, self._apart, self._asked, self._medians, self.ledger, loaded
        )
        self._batch = Batch()
        self._has_moved = False

    def _load(self, loaded: Loaded) -> None:
        twins = {
            name: DeskApart(name, self.learner, most_cells=self._most_cells)
            for name in loaded.desks
            if name != SITE
        }
        others = list(waiting(loaded.lots, self._site))
        self._site.load(loaded.desks[SITE], others)
        for name, desk in twins.items():
            desk.load(loaded.desks[name], others)
            self._apart[name] = desk
            self._opened[name] = desk.cells - self._site.cells
        for saved in loaded.desks.values():
            for ticket in saved.tickets:
                self._hold(ticket)

    def _heard(self, loaded: Loaded) -> Medians:
        arms = self.learner.arms
        heard = Medians(arms[: len(arms) - len(self.learner.behind())])
        for (cell, source, arm), counted in loaded.counters.items():
            heard.add(cell, holder(source), arm, counted)
        return heard

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of all desks by name; the site's own is the first, and has none."""
        return {desk.name: desk.learner for desk in self._desks()}

    @property
    def cells(self) -> int:
        """How many cells the site knows."""
        return self._site.cells

    def for_peers(self) -> ForPeers:
        """Return what there is of those who ask this site."""
        waiting = sum(desk.learner.open_tickets for desk in self._apart.values())
        return ForPeers(waiting, self.ledger.labels_of_peers, self._opened.total())

    def held(self, source: str) -> int:
        """Return how many tickets of a source are held in memory; own clients count as one."""
        return self._held[holder(source)] + (self.lots.held if is_own(source) else 0)

    def asked(self, cell: str, peer: str) -> int:
        """Return how many arrivals an honest peer must have seen in a cell: those it answered."""
        return self._asked.get((cell, peer), 0)

    def find(self, source: str, id: str) -> Ticket | Lot | None:  # noqa: A002 - the problem's word
        """Return what `source` knows as `id`, if its desk still knows it."""
        return self._tickets.get((source, id)) or self.lots.find(source, id)

    def waiting(self, ticket: Ticket) -> Decision | None:
        """Return the decision of a ticket whose label has not come, if its desk still knows it."""
        decision = self._desk_named(ticket.desk).learner.held(ticket.ticket)
        return None if decision is None or decision.truth is not UNKNOWN else decision

    def is_pooled(self, source: str) -> bool:
        """Say whether labels of a source count for the site itself."""
        return is_own(source) or self._trust.get(source) == "full"

    # -- own instances --------------------------------------------------------------------------

    def decide(self, context: Context, slot: int | None = None) -> Decision:
        """Decide for an own instance, as the learner does."""
        decision = self.learner.decide(context, slot)
        self._watch(decision)
        return decision

    def inform(self, decision: Decision, reports: Sequence[Report]) -> None:
        """Go on with a decision, given what peers report."""
        self.learner.inform(decision, reports)
        self._watch(decision)

    def consult(self, decision: Decision, told: Sequence[tuple[float, int]]) -> None:
        """Go on with a decision without labels, given what others say of their accuracy."""
        self.learner.consult(decision, told)
        self._watch(decision)

    # -- for peers ------------------------------------------------------------------------------

    def assist(self, source: str, cell: Cell, slot: int) -> Decision:
        """Decide for an instance of a peer, from the labels that count for it."""
        desk = self._desk_for(source, cell, slot)
        function = None
        if self._medians is not None and self._trust.get(source) == "robust":
            function = self._medians.best(self.learner.names.of(cell))
        decision = desk.learner.assist(cell, slot, function)
        if desk is self._site:
            self._watch(decision)
        return decision

    def recall(self, source: str, cell: Cell, slot: int) -> Decision:
        """Answer a peer that shows no more than the cell; the decision is accepted already."""
        return self._desk_for(source, cell, slot).learner.recall(cell, slot)

    def report(self, source: str, cell: Cell, slot: int) -> Report:
        """Return what a peer may know of a cell, which is known from now on."""
        self._has_moved = True
        return self._desk_for(source, cell, slot).learner.report(cell, slot)

    def estimate(
        self, source: str, cell: Cell, slot: int, *, is_by_context: bool
    ) -> tuple[float, int]:
        """Return how accurate answers to a peer would be."""
        self._has_moved = True
        learner = self._desk_for(source, cell, slot).learner
        return learner.estimate(cell, slot, is_by_context=is_by_context)

    # -- tickets --------------------------------------------------------------------------------

    def accept(self, decision: Decision, question: Question, reply: Reply) -> Ticket:
        """Take what the arm said, and give out a ticket under the asker's id."""
        learner = self._desk(question.source).learner
        learner.accept(decision, reply.prediction, reply.peer_ticket)
        return self.keep(decision, question, reply)

    def keep(self, decision: Decision, question: Question, reply: Reply) -> Ticket:
        """Write down a decision that a learner has accepted."""
        desk, choice = self._desk(question.source), decision.choice
        ticket = Ticket(
            desk=desk.name,
            ticket=decision.ticket,
            source=question.source,
            id=question.id,
            digest=question.digest,
            slot=decision.slot,
            cell=desk.learner.cell_name(decision),
            code=decision.code,
            phase=choice.phase,
            arm=choice.arm,
            function=reply.function,
            price=choice.price,
            space=decision.space,
            context=decision.context,
            prediction=reply.prediction,
            answer=reply.answer,
            peer=choice.peer,
            peer_ticket=reply.peer_ticket,
            width=decision.width,
        )
        self._hold(ticket)
        self.ledger.decide(ticket)
        desk.keys[ticket.ticket] = (question.source, question.id)
        self._batch.tickets.append(ticket)
        if choice.peer and self.learner.tells_at_once:
            self._count_asked(ticket)
        self._note(desk, decision)
        self._wait_no_longer()
        return ticket

    def accept_lot(
        self, draft: Draft, question: Question, said: Said, prices: Mapping[str, float]
    ) -> Lot:
        """Take what the arms said to many rows, and give them out under the asker's id."""
        asked = (question.source, question.id, question.digest)
        lot = self.lots.accept(draft, asked, said, prices)
        self._wait_no_longer()
        return lot

    def abandon(self, decision: Decision, source: str = OWN) -> None:
        """Take back a decision that came to nothing."""
        desk = self._desk(source)
        if desk is self._site and not decision.asks:
            for apart in self._apart.values():
                apart.unwatch(decision)
        desk.learner.abandon(decision)
        self._note(desk, decision)

    def or_abandoned(self, decision: Decision, source: str = OWN) -> "_OrAbandoned":
        """Take a decision back if what is done meanwhile comes to nothing."""
        return _OrAbandoned(self, decision, source)

    @property
    def previous_label(self) -> Label | None:
        """The label of the latest own instance of which it is known; None: of none is."""
        return None if self._site.latest is None else self._site.latest[1]

    def settle(self, ticket: Ticket, label: Label) -> Settlement:
        """Take the true label of a ticket; raise as the learner does, and `LateLabel`."""
        desk = self._desk_named(ticket.desk)
        decision = desk.learner.held(ticket.ticket)
        if decision is None:
            return settle_old(ticket, label, id=ticket.id)
        try:
            settlement = desk.learner.settle(ticket.ticket, label)
        except ConflictingLabel:  # it knows the ticket by a number that nobody else knows
            raise _conflict(ticket.id, decision.truth, label) from None
        if not settlement.is_new:
            return settlement
        if desk is self._site:
            for apart in self._apart.values():
                apart.learn(decision, label, is_right=settlement.is_right)
        self._write_truth(ticket, label, settlement)
        self._note(desk, decision)
        return settlement

    def tell(self, owed: Owed) -> None:
        """Note that a peer has been told a label, or that it waits for it no longer."""
        self._batch.told.append(owed)
        self._has_moved = True

    # -- batches --------------------------------------------------------------------------------

    def take(self) -> Batch | None:
        """Return what has happened since the last batch; None: nothing."""
        if not self._has_moved and not self.lots.has_moved:
            return None
        batch, self._batch, self._has_moved = self._batch, Batch(), False
        batch.lots, owed = self.lots.take()
        batch.owed += owed
        for desk in self._desks():
            standings, lines = desk.take()
            batch.standings += standings
            batch.lines += lines
        return batch

    def is_written(self, batch: Batch) -> None:
        """Note that a batch is in the store; what is old enough may be looked up there."""
        for standing in batch.standings:
            self._desk_named(standing.desk).is_written(standing)
        self.lots.is_written(batch.lots)
        self._expire()

    # -- desks ----------------------------------------------------------------------------------

    def _desk(self, source: str) -> Desk:
        """Return the desk that a source is served at."""
        if self.is_pooled(source):
            return self._site
        if source not in self._apart:
            desk = self._apart[source] = DeskApart(
                source, self.learner, most_cells=self._most_cells
            )
            desk.copy()
        return self._apart[source]

    def _desk_for(self, source: str, cell: Cell, slot: int) -> Desk:
        """Return the desk that a peer is served at, where its cell is known."""
        desk = self._desk(source)
        if not desk.knows(cell):
            if self._opened[source] >= self._most_cells:
                raise LimitError(
                    f"{source!r} has spoken of {self._most_cells} cells, which is the cap; "
                    "coarser cells are fewer"
                )
            self._opened[source] += desk.meet(cell, slot)
        return desk

    def _desks(self) -> list[Desk]:
        return [self._site, *self._apart.values()]

    def _desk_named(self, name: str) -> Desk:
        return self._apart[name] if name else self._site

    def _watch(self, decision: Decision) -> None:
        """Let the desks apart see what the site has decided, once it has."""
        if not decision.asks:
            for apart in self._apart.values():
                apart.watch(decision)

    def _note(self, desk: Desk, decision: Decision) -> None:
        desk.footprints.note(decision)
        self._has_moved = True

    # -- tickets in memory ----------------------------------------------------------------------

    def _hold(self, ticket: Ticket) -> None:
        self._tickets[ticket.source, ticket.id] = ticket
        self._held[holder(ticket.source)] += 1

    def _write_truth(self, ticket: Ticket, label: Label, settlement: Settlement) -> None:
        is_right = settlement.is_right
        self._tickets[ticket.source, ticket.id] = msgspec.structs.replace(ticket, truth=label)
        self._batch.truths.append(Truth(ticket.ticket, label, is_right, ticket.desk))
        if is_own(ticket.source):
            self._site.note_label(ticket.slot, label)
        slot = self._desk_named(ticket.desk).learner.slot
        self.ledger.settle(ticket, is_right=is_right, is_own=is_own(ticket.source), slot=slot)
        if settlement.peer and ticket.peer_ticket is not None:
            self._batch.owed.append(Owed(settlement.peer, ticket.peer_ticket, label))
        if ticket.peer and not self.learner.tells_at_once:
            self._count_asked(ticket)
        if self._medians is not None and ticket.phase not in UNCOUNTED:
            self._medians.add(ticket.cell, holder(ticket.source), ticket.arm, (1, int(is_right)))

    def _count_asked(self, ticket: Ticket) -> None:
        where = (ticket.cell, ticket.peer)
        self._asked[where] = self._asked.get(where, 0) + 1

    def _expire(self) -> None:
        """Forget the ids of tickets that no learner knows any longer and the store does."""
        self._wait_no_longer()
        for desk in self._desks():
            for key in desk.expired():
                self._held[holder(key[0])] -= 1
                del self._tickets[key]

    def _wait_no_longer(self) -> None:
        """Let the desks apart and the lots forget labels that the site does not wait for."""
        self.lots.expire()
        oldest = self.learner.kept_tickets.start
        for number in range(self._waits_from, oldest) if self._apart else ():
            ticket = self._tickets[self._site.keys[number]]
            if ticket.truth is UNKNOWN:
                for apart in self._apart.values():
                    apart.forget(ticket.decision())
        self._waits_from = oldest


class _OrAbandoned:
    """Not of `contextlib`, which costs more than most decisions do."""

    __slots__ = ("_book", "_decision", "_source")

    def __init__(self, book: Book, decision: Decision, source: str) -> None:
        self._book = book
        self._decision = decision
        self._source = source

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._book.abandon(self._decision, self._source)


def settle_old(
    ticket: Ticket | None,
    label: Label,
    *,
    id: str,  # noqa: A002 - the problem's word
) -> Settlement:
    """Say what a label does for a ticket that the learner knows no longer: nothing, or an error."""
    if ticket is None:
        raise UnknownTicket(f"there is no ticket {id!r}")
    if ticket.truth is UNKNOWN:
        raise LateLabel(f"the label of ticket {id!r} was waited for too long; it was not taken")
    if ticket.truth != label:
        raise _conflict(id, ticket.truth, label)
    return Settlement(False, ticket.prediction is not NO_ANSWER and ticket.prediction == label)


def _conflict(ticket: str, truth: Any, label: Label) -> ConflictingLabel:
    return ConflictingLabel(
        f"ticket {ticket!r} was settled with {truth!r}; {label!r} contradicts it and was not taken"
    )
