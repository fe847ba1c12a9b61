"""One learner's judgement: decide, assist, settle, snapshot. No I/O, no clock, no randomness.

Events in, instructions out: `decide` says which peers to ask for their arrivals (`inform` takes
what they say) and then which arm to run; `accept` takes the arm's label and gives the ticket out,
`abandon` takes the decision back. Whoever carries the instructions out may be synchronous or not.
"""

from collections.abc import Sequence

import msgspec

from covey.engine import Clock, Table
from covey.errors import ConflictingLabel, UnknownTicket
from covey.policies import Policy
from covey.types import PHASES, Cell, Context, Label

LABEL_WAIT_SLOTS = 10_000
UNKNOWN = msgspec.UNSET
_PHASES = (*PHASES, "serve")


class Choice(msgspec.Struct, frozen=True):
    """An arm, why it was chosen and at what price."""

    phase: str  # train, explore, exploit; serve where another learner asked
    arm: str  # own function or asked learner
    price: float  # in units of reward
    function: int  # the own function to run; -1: ask the learner `arm`


class Decision(msgspec.Struct, gc=False):
    """An instance's way through a learner: the choice, then the answer, then the truth.

    While `asks` is not empty the choice is open; `label` and `ticket` come with acceptance.
    """

    code: int  # the kernel's
    context: Context
    slot: int
    choice: Choice
    asks: tuple[str, ...] = ()  # peers to be asked for their arrivals in the cell
    label: Label | msgspec.UnsetType = UNKNOWN
    ticket: int = 0
    peer_ticket: int | None = None
    truth: Label | msgspec.UnsetType = UNKNOWN
    refreshed: tuple[tuple[int, int], ...] = ()  # peers' counters as they were


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What a label did; `is_new` is False if the same label had been settled before."""

    is_new: bool
    is_right: bool
    peer: str | None = None  # whom to pass the label on to, and under which ticket
    peer_ticket: int | None = None


OPEN = Choice("", "", 0.0, -1)
RIGHT = Settlement(True, True)
WRONG = Settlement(True, False)


class Snapshot(msgspec.Struct, frozen=True):
    """A learner's counters; open tickets are not part of it."""

    slot: int
    cells: list[tuple[str, list[int]]]


class Learner:
    """The judgement of one site: which arm, per cell, and what each label teaches."""

    def __init__(
        self,
        name: str,
        *,
        functions: Sequence[str],
        peers: Sequence[str],
        costs: Sequence[float],
        policy: Policy,
        position: int = 0,
    ) -> None:
        self.name = name
        self.slot = 0
        wait = policy.settings.label_wait
        self.label_wait = LABEL_WAIT_SLOTS if wait is None else wait
        self._policy = policy
        self._functions = len(functions)
        self._arms = (*functions, *peers)
        self._costs = tuple(costs)
        rule = policy.rule(functions=len(functions), costs=self._costs, position=position)
        self._table = Table(Clock(policy.scales(), policy.powers()), rule)
        self._choices = [self._choice(code) for code in range(4 * len(self._arms))]
        self._tickets: dict[int, Decision] = {}
        self._oldest_ticket = 1
        self._next_ticket = 1
        self._expiry_slot = 0

    @property
    def open_tickets(self) -> int:
        """How many labels are waited for."""
        return sum(decision.truth is UNKNOWN for decision in self._tickets.values())

    def decide(self, context: Context, slot: int | None = None) -> Decision:
        """Decide for an own instance at the next slot, or at `slot` if that is handed in."""
        if slot is None:
            slot = self.slot + 1
        elif slot < self.slot:
            slot = self.slot
        code = self._table.decide(context, slot)
        if code < 0:
            return self._undecided(-1 - code, context, slot)
        return Decision(code, context, slot, self._choices[code & 0xFFFFF])

    def inform(self, decision: Decision, arrivals: Sequence[int]) -> None:
        """Go on with a decision, given what the peers it asks say of their arrivals."""
        row = decision.code >> 20
        places = [
            self._arms.index(peer, self._functions) - self._functions for peer in decision.asks
        ]
        decision.refreshed = tuple(
            (place, self._table.refresh(row, place, count))
            for place, count in zip(places, arrivals, strict=True)
        )
        code = self._table.resume(row, decision.context, decision.slot)
        decision.code = code
        decision.choice = self._choices[code & 0xFFFFF]
        decision.asks = ()

    def report(self, cell: Cell, slot: int) -> int:
        """Return the arrivals seen in `cell`, for a peer that asks at its slot `slot`."""
        self.slot = max(self.slot, slot)
        return self._table.arrivals(self._table.meet(cell, slot))

    def assist(self, cell: Cell, slot: int) -> Decision:
        """Decide for somebody else's instance, which lies in `cell`: always an own function."""
        self.slot = max(self.slot, slot)
        code = self._table.serve(self._table.meet(cell, slot), slot)
        return Decision(code, (), slot, self._choices[code & 0xFFFFF])

    def accept(self, decision: Decision, label: Label, peer_ticket: int | None = None) -> int:
        """Take the label that the arm gave, and give out the ticket for the true one."""
        slot = decision.slot
        self.slot = max(self.slot, slot)
        if slot > self._expiry_slot:
            self._expire(slot)
        self._next_ticket = 1 + (ticket := self._next_ticket)
        decision.label = label
        decision.ticket = ticket
        decision.peer_ticket = peer_ticket
        self._tickets[ticket] = decision
        return ticket

    def abandon(self, decision: Decision) -> None:
        """Take back a decision that came to nothing: all counters are as before."""
        if not decision.asks:
            self._table.retract(decision.code, decision.context)
        for peer, old in decision.refreshed:
            self._table.unrefresh(decision.code >> 20, peer, old)

    def settle(self, ticket: int, label: Label) -> Settlement:
        """Take the true label of a ticket.

        Raises `UnknownTicket` if the ticket was never given out or its label was waited for too
        long, `ConflictingLabel` if another label was settled before. The same label again does
        nothing, and the settlement says so.
        """
        decision = self._tickets.get(ticket)
        if decision is None:
            raise self._unknown(ticket)
        is_right = decision.label == label
        if decision.truth is not UNKNOWN:
            return self._settle_again(decision, label)
        self._table.settle(decision.code, is_right, decision.context, decision.slot)
        decision.truth = label
        if decision.peer_ticket is None:
            return RIGHT if is_right else WRONG
        return Settlement(True, is_right, decision.choice.arm, decision.peer_ticket)

    def cell(self, decision: Decision) -> Cell:
        """Return the cell that a decision lies in."""
        return self._table.cell(decision.code >> 20)

    def cell_name(self, decision: Decision) -> str:
        """Return the canonical name of that cell."""
        return self._policy.partition.name(self.cell(decision))

    def snapshot(self) -> Snapshot:
        """Return the counters, cell by cell."""
        table = self._table
        name = self._policy.partition.name
        rows = range(len(table))
        return Snapshot(self.slot, [(name(table.cell(row)), table.counters(row)) for row in rows])

    def restore(self, snapshot: Snapshot) -> None:
        """Take over the counters of a snapshot; meant for a learner that has not begun."""
        self.slot = snapshot.slot
        for name, counters in snapshot.cells:
            self._table.load(self._policy.partition.parse(name), counters)

    def _undecided(self, row: int, context: Context, slot: int) -> Decision:
        asks = tuple(self._arms[self._functions + k] for k in self._table.stale(row, slot))
        return Decision(row << 20, context, slot, OPEN, asks)

    def _choice(self, code: int) -> Choice:
        arm, phase = code >> 2, _PHASES[code & 3]
        is_own = arm < self._functions
        price = 0.0 if phase == "serve" else self._costs[arm]
        return Choice(phase, self._arms[arm], price, arm if is_own else -1)

    def _expire(self, slot: int) -> None:
        """Stop waiting for labels that are older than the wait; tickets are in order of slots."""
        tickets = self._tickets
        while (oldest := tickets.get(self._oldest_ticket)) is not None:
            self._expiry_slot = oldest.slot + self.label_wait
            if slot <= self._expiry_slot:
                return
            del tickets[self._oldest_ticket]
            self._oldest_ticket += 1
            if oldest.truth is UNKNOWN:
                self._table.forget(oldest.code)
        self._expiry_slot = slot + self.label_wait

    def _unknown(self, ticket: int) -> UnknownTicket:
        was_given = isinstance(ticket, int) and 0 < ticket < self._next_ticket
        why = (
            f"its label was due within {self.label_wait} slots"
            if was_given
            else "it was never given"
        )
        return UnknownTicket(f"learner {self.name!r} does not know ticket {ticket!r}: {why}")

    def _settle_again(self, decision: Decision, label: Label) -> Settlement:
        if decision.truth != label:
            raise ConflictingLabel(
                f"ticket {decision.ticket} of learner {self.name!r} was settled with "
                f"{decision.truth!r}; {label!r} contradicts it and was not taken"
            )
        return Settlement(False, decision.label == label)
