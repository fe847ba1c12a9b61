"""A learner whose every event is written down: what happened in memory, and what is to be stored.

Nothing here reads or writes. `take` hands over the batch that makes the store agree with the
learner; a learner that is opened from what the store then holds goes on as this one would.
"""

import msgspec

from covey.decisions import NO_ANSWER, UNKNOWN, Decision, Settlement
from covey.errors import ConflictingLabel, LateLabel, UnknownTicket
from covey.footprints import Footprints
from covey.learner import Learner
from covey.store import Batch, Loaded, Owed, Ticket, Truth
from covey.types import Label

Key = tuple[str, str]  # who asked, and under which id


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
    """One learner, its tickets by id, and what has happened since the last batch."""

    def __init__(self, learner: Learner, loaded: Loaded) -> None:
        self.learner = learner
        learner.restore(loaded.snapshot)
        learner.reopen([ticket.decision() for ticket in loaded.tickets], loaded.kept)
        self._footprints = Footprints(learner)
        self._footprints.take()  # all of it is in the store already
        self._keys = {ticket.ticket: (ticket.source, ticket.id) for ticket in loaded.tickets}
        self._tickets = {(one.source, one.id): one for one in loaded.tickets}
        self._oldest = loaded.kept.start
        self._written = loaded.kept.stop  # tickets before this one are in the store
        self._asked = {
            where: count if learner.tells_at_once else labelled
            for where, (count, labelled) in loaded.asked.items()
        }
        self._batch = Batch()
        self._has_moved = False

    @property
    def kept(self) -> int:
        """How many tickets are held in memory."""
        return len(self._tickets)

    def asked(self, cell: str, peer: str) -> int:
        """Return how many arrivals an honest peer must have seen in a cell: those it answered."""
        return self._asked.get((cell, peer), 0)

    def find(self, source: str, id: str) -> Ticket | None:  # noqa: A002 - the problem's word
        """Return the ticket that `source` knows as `id`, if the learner still knows it."""
        return self._tickets.get((source, id))

    def accept(self, decision: Decision, question: Question, reply: Reply) -> Ticket:
        """Take what the arm said, and give out a ticket under the asker's id."""
        self.learner.accept(decision, reply.prediction, reply.peer_ticket)
        return self.keep(decision, question, reply)

    def keep(self, decision: Decision, question: Question, reply: Reply) -> Ticket:
        """Write down a decision that the learner has accepted."""
        choice = decision.choice
        ticket = Ticket(
            ticket=decision.ticket,
            source=question.source,
            id=question.id,
            digest=question.digest,
            slot=decision.slot,
            cell=self.learner.cell_name(decision),
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
        key = (question.source, question.id)
        self._tickets[key] = ticket
        self._keys[ticket.ticket] = key
        self._batch.tickets.append(ticket)
        if choice.peer and self.learner.tells_at_once:
            self._count_asked(ticket)
        self._note(decision)
        self._expire()
        return ticket

    def abandon(self, decision: Decision) -> None:
        """Take back a decision that came to nothing."""
        self.learner.abandon(decision)
        self._note(decision)

    def note_request(self) -> None:
        """Note that somebody asked about a cell, which may have become known by that."""
        self._has_moved = True

    def settle(self, ticket: Ticket, label: Label) -> Settlement:
        """Take the true label of a ticket; raise as the learner does, and `LateLabel`."""
        decision = self.learner.held(ticket.ticket)
        if decision is None:
            return settle_old(ticket, label, id=ticket.id)
        settlement = self.learner.settle(ticket.ticket, label)
        if not settlement.is_new:
            return settlement
        self._tickets[ticket.source, ticket.id] = msgspec.structs.replace(ticket, truth=label)
        self._batch.truths.append(Truth(ticket.ticket, label, settlement.is_right))
        if settlement.peer and ticket.peer_ticket is not None:
            self._batch.owed.append(Owed(settlement.peer, ticket.peer_ticket, label))
        if ticket.peer and not self.learner.tells_at_once:
            self._count_asked(ticket)
        self._note(decision)
        return settlement

    def tell(self, owed: Owed) -> None:
        """Note that a peer has been told a label, or that it waits for it no longer."""
        self._batch.told.append(owed)
        self._has_moved = True

    def take(self) -> Batch | None:
        """Return what has happened since the last batch; None: nothing."""
        if not self._has_moved:
            return None
        batch, self._batch, self._has_moved = self._batch, Batch(), False
        batch.slot, batch.kept = self.learner.slot, self.learner.kept_tickets
        batch.lines = self._footprints.take()
        return batch

    def is_written(self, batch: Batch) -> None:
        """Note that a batch is in the store; what is old enough may be looked up there."""
        self._written = batch.kept.stop
        self._expire()

    def _note(self, decision: Decision) -> None:
        self._footprints.note(decision)
        self._has_moved = True

    def _count_asked(self, ticket: Ticket) -> None:
        where = (ticket.cell, ticket.peer)
        self._asked[where] = self._asked.get(where, 0) + 1

    def _expire(self) -> None:
        """Forget the ids of tickets that the learner knows no longer and the store does."""
        oldest = min(self.learner.kept_tickets.start, self._written)
        for ticket in range(self._oldest, oldest):
            self._tickets.pop(self._keys.pop(ticket))
        self._oldest = max(self._oldest, oldest)


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
        raise ConflictingLabel(
            f"ticket {id!r} was settled with {ticket.truth!r}; {label!r} contradicts it and was "
            "not taken"
        )
    return Settlement(False, ticket.prediction is not NO_ANSWER and ticket.prediction == label)


def shape_of(learner: Learner) -> str:
    """Return what counters mean, in words: if this changes, what is stored does not fit."""
    cells = [f"{one.partition} of {one.dimension} dimensions" for one in learner.policies.values()]
    settings = next(iter(learner.policies.values())).settings
    return (
        f"the arms {', '.join(learner.arms)}; cells of {' and '.join(cells)}; preset "
        f"{settings.preset}, forget {settings.forget.window} and {settings.forget.discount}"
    )
