"""Sites in one process: what is held of open rows, and requests of one row without a draft.

The rules are those of `Handler`, which takes over where a row has a view of its own, a function is
trained or free, or a peer answers late or is shown the cell only. `tests/test_flow.py` holds both
to the same decisions.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from covey.bandit.learner import NO_ANSWER, RIGHT, UNKNOWN, WRONG, Choice, Learner, Settlement
from covey.errors import NoAnswerYet, UnknownTicket
from covey.functions.function import Function, Late
from covey.kernel import CHOICE, NOT_DECIDED, UNPAID, Tickets, row_of, undecided_row
from covey.kernel.rules import Cell, Report
from covey.node.cells import ArmPlaces
from covey.node.requests import (
    NONE,
    RECALL,
    Arm,
    Assistance,
    Draft,
    PeerAnswer,
    Prediction,
    Request,
)
from covey.node.state import SiteState, codes_of
from covey.node.trust import Record, SourceStatistics
from covey.types import Context, Label

Undo = list[tuple[int, int, int]]
SETTLED = (WRONG, RIGHT)
MOST_CELLS = 100_000  # that are cached


class TicketState(SiteState):
    """The learner of a site in one process and its open rows, by ticket.

    Most rows are held by themselves, in the columns of `tickets`; a request is made of such a row
    only where it is needed. The number of a request is the ticket of its first row.
    """

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner, SourceStatistics(learner, {}, default="full"))
        self.tickets = Tickets(
            learner.label_wait,
            unknown=UNKNOWN,
            close=self._close,
            gain_of=learner.gain_of if learner.unit > 1 else None,
            remembers=learner.remembers,
        )
        self.tickets.count_in(learner.table, learner.knows_ends)
        # Where functions were changed: all arms that there are or were, and what was learnt of
        # those that are retired.
        self.arms: list[Arm] = []
        self.aside: list[Record] = []

    def take_arms(self, arms: list[Arm], aside: list[Record]) -> None:
        """Count labels of arms under their identities; some rows may be of retired ones."""
        self.arms, self.aside = arms, aside
        self.arm_ids.update(ArmPlaces(self.learner, arms).renamed)

    @property
    def pending_rows(self) -> int:
        """How many rows have no label yet."""
        return self.tickets.pending

    @pending_rows.setter
    def pending_rows(self, rows: int) -> None:
        self.tickets.pending = rows

    def expire(self, slot: int) -> None:
        if slot > self.tickets.due:
            self.tickets.expire(slot)

    def _hold(self, request: Request) -> None:
        rows, learner = len(request), self.learner
        last = request.slot if rows == 1 else request.last_slot
        learner.advance(last)
        request.number = self.tickets.next
        self.tickets.hold_request(request, rows, last, learner.slot)

    def find_ticket(self, ticket: Any) -> tuple[Request, int]:
        """Return the request and the row of a ticket; raise `UnknownTicket`."""
        request: Request | None = self.tickets.request(ticket)
        if request is not None:
            return request, ticket - request.number
        number = _number(ticket)
        if not self.knows(number):
            wait = self.learner.label_wait
            was_issued = 0 < number < self.tickets.next
            why = f"label-wait is {wait} slots" if was_issued else "it was never issued"
            if isinstance(ticket, Prediction):
                why = "that is an answer, and its attribute `ticket` is the number"
            raise UnknownTicket(f"learner {self.learner.name!r}: unknown ticket {ticket!r}; {why}")
        request = self.tickets.request(number)
        if request is None:
            request = self._request_of(number)
        return request, number - request.number

    def knows(self, ticket: int) -> bool:
        """Return whether the label of a ticket can still be settled or compared."""
        return self.tickets.first <= ticket < self.tickets.next

    def held(self) -> Iterator[Request]:
        """Yield what accepts labels; a row that is held by itself is a request of one row."""
        ticket = self.tickets.first
        while ticket < self.tickets.next:
            request = self.tickets.request(ticket) or self._made(ticket)
            ticket += len(request)
            yield request

    def _request_of(self, ticket: int) -> Request:
        """Hold a row that was held by itself in a request from now on."""
        request = self._made(ticket)
        self.tickets.replace(ticket, request)
        return request

    def _made(self, ticket: int) -> Request:
        """Return a request of a row that is held by itself."""
        code, slot, context, answer, truth, source, helped = self.tickets.row(ticket)
        space, labels = self.learner.space, [answer]
        return Request(
            number=ticket,
            slot=slot,
            space=space,
            source=source,
            groups=(self._group(source, space, code),),
            contexts=[context],
            predictions=labels,
            answers=labels,
            truths=[truth],
            peer_answers=NONE if helped is None else answer_of(helped),
        )

    def withdraw(self, ticket: int) -> None:
        """Take back the latest request, which has this ticket; nothing if it is gone already.

        Nothing either if others came since, while a function was awaited: its label never comes.
        """
        if not self.knows(ticket):
            return
        request, _ = self.find_ticket(ticket)
        if request.number + len(request) != self.tickets.next:
            return
        self.tickets.take_back(request.number)
        if request.groups[0].phase != RECALL:
            codes = request.codes_of(range(len(request)))
            self.retract_served(request.source, request.space, codes)

    def pending(self) -> list[tuple[Request, int]]:
        """Return the rows of requests whose label has not arrived."""
        return [(request, row) for request in self.tickets.requests() for row in request.pending]

    def count_pending(self) -> None:
        """Count pending labels from now on."""
        learner = self.learner
        if not learner.is_pending:
            codes = codes_of(self.pending())
            codes.setdefault(learner.space, []).extend(self.tickets.pending_codes())
            learner.count_pending(codes)
            self.tickets.count_in(learner.table, learner.knows_ends)


class Site(Protocol):
    """A site that can be asked within the call."""

    @property
    def rows(self) -> "RowHandler":
        """What answers its requests of one row."""


class RowHandler:
    """Answers and settles requests of one row that nobody has to wait for."""

    def __init__(
        self,
        state: TicketState,
        functions: Sequence[Function],
        others: Mapping[str, Site],
        *,
        trainable: Collection[int],
        has_views: bool,
    ) -> None:
        self._state = state
        self._tickets = state.tickets
        self._learner = state.learner
        self._others = others
        self._trainable = trainable
        has_free = bool(state.learner.free)
        self.takes_handler = has_free or any(
            function.is_async for function in functions
        )  # for peers
        self._needs_handler = has_views or has_free
        self._is_wide = state.learner.table.cells.is_wide
        self._cells: dict[int, Cell] = {}  # by decision
        self._peers = [peer for peer, _ in state.learner.behind()]
        self._functions: list[Callable[[Any], Label | Late]] = [
            function.ask for function in functions
        ]
        # By the part `CHOICE` of a code; None: not an own function, or `Handler` runs it.
        self._at_once = [
            None
            if self._needs_handler
            or choice.function < 0
            or choice.function in trainable
            or functions[choice.function].is_async
            else self._functions[choice.function]
            for choice in state.learner.choices
        ]

    def predict(self, instance: Any, context: Context, slot: int | None) -> Prediction | Draft:
        """Decide an own row, and answer it; or return the draft, which `Handler` completes."""
        learner = self._learner
        slot = self._state.take_slots(slot, 1)
        undo: Undo | None = None
        helped = None
        code = NOT_DECIDED
        try:
            code = learner.table.decide(context, slot)
            if code < 0 and learner.is_supervised:
                undo = []
                code = self._query_peers(code, context, slot, undo)
            if code < 0:
                return _draft(instance, context, slot, code)
            which = code & CHOICE
            call, choice = self._at_once[which], learner.choices[which]
            if call is not None:
                label, function = call(instance), choice.arm
                if type(label) is Late:
                    label = label.label()
            else:
                helped = self._ask_peer(code, choice, instance, context, slot)
                if helped is None or type(helped.label) is Late or not helped.is_given:
                    return _draft(instance, context, slot, code, undo, helped)
                label, function = helped.label, helped.function
        except BaseException:
            self._state.retract([context], slot, [code], 1)
            self._state.undo_reports(undo or ())
            self._state.return_slots(slot, 1)
            raise
        if slot > learner.slot:  # noqa: PLR1730 - max() costs twice as much
            learner.slot = slot
        ticket = self._tickets.hold(code, slot, learner.slot, context, label, "", helped)
        return Prediction(label, ticket, choice.phase, choice.arm, function, choice.price)

    def report(self, cell: Cell, slot: int, source: str) -> Report:
        """Return what a peer may know of a cell."""
        self._state.expire(slot)
        return self._learner.report(cell, slot, source)

    def _query_peers(self, code: int, context: Context, slot: int, undo: Undo) -> int:
        """Decide a row with the reports of peers; `code` is that of the row undecided."""
        table = self._learner.table
        while code < 0:
            row, cell = undecided_row(code), self._cell(code, context)
            for k in table.stale(row, slot):
                report = self._others[self._peers[k]].rows.report(cell, slot, self._learner.name)
                undo.append((row, k, table.hear(row, k, report, slot)))
            code = table.resume(row, context, slot)
        return code

    def _ask_peer(
        self, code: int, choice: Choice, instance: Any, context: Context, slot: int
    ) -> Assistance | None:
        if choice.function >= 0 or choice.is_by_context or self._needs_handler:
            return None
        peer = self._others[choice.peer].rows
        if peer.takes_handler:
            return None
        return peer.assist(instance, self._cell(code, context), slot, self._learner.name)

    def _cell(self, code: int, context: Context) -> Cell:
        """Return what a peer is told of a decision, or of a row that is undecided."""
        if self._is_wide:
            return self._learner.place(self._learner.space, 0, context)
        cell = self._cells.get(code)
        if cell is None:
            if len(self._cells) >= MOST_CELLS:
                self._cells.clear()
            learner, row = self._learner, row_of(code) if code >= 0 else undecided_row(code)
            cell = self._cells[code] = learner.known_cell(learner.space, row)
        return cell

    def assist(self, instance: Any, cell: Cell, slot: int, source: str) -> Assistance:
        """Answer a row of a peer by an own function."""
        learner, space = self._learner, cell.space
        self._state.expire(slot)
        code, context = learner.serve(cell, slot, source), learner.middle(cell)
        choice = learner.choices[code & CHOICE]
        try:
            label = self._functions[choice.function](instance)
        except NoAnswerYet:
            label = NO_ANSWER
        except BaseException:
            self._state.retract_served(source, space, [code])
            raise
        if type(label) is Late or choice.function in self._trainable or space != learner.space:
            is_trained = choice.function in self._trainable
            request = Request(
                slot=slot,
                space=space,
                source=source,
                contexts=[context],
                predictions=[label],
                answers=[label],
                training={0: (self._state.id_of(choice.arm), instance)} if is_trained else NONE,
            )
            ticket = self._state.accept(request, [code]).number
        else:
            ticket = self._tickets.hold(code, slot, learner.slot, context, label, source)
        return Assistance(label, choice.arm, ticket)

    def learn(self, ticket: int, label: Label) -> Settlement | None:
        """Take the label of a row that a peer answered, there too; None: it takes more than that.

        It is a row for which `Tickets.settle` returned `ASKED`.
        """
        code, _, _, _, _, _, helped = self._tickets.row(ticket)
        if not self._others[self._learner.choice(code).peer].rows.is_told(helped.id, label):
            return None
        return SETTLED[self._tickets.settle(ticket, label, UNPAID, True)]

    def is_told(self, ticket: int, label: Label) -> bool:
        """Take the label of a row answered for a peer, if it is open; False: that takes more."""
        return self._tickets.settle(ticket, label) >= 0 or ticket < self._tickets.first


def _draft(
    instance: Any,
    context: Context,
    slot: int,
    code: int,
    undo: Undo | None = None,
    helped: Assistance | None = None,
) -> Draft:
    draft = Draft([instance], [context], slot, None)
    draft.undo = undo or []
    if code >= 0:
        draft.codes[0], draft.done = code, 1
    else:
        draft.row = undecided_row(code)
    if helped is not None:
        draft.predictions[0] = helped.label
        draft.helped = answer_of(helped)
    return draft


def answer_of(helped: Assistance) -> dict[int, PeerAnswer]:
    """Return what a request of one row keeps of the answer of a peer."""
    return {0: PeerAnswer(helped.function, helped.id)}


def _number(ticket: Any) -> int:
    """Return a ticket as a number; 0 for what is none."""
    try:
        number = int(ticket)
    except (TypeError, ValueError, OverflowError):
        return 0
    return number if number == ticket else 0
