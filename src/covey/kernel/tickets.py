"""Decisions whose labels are accepted, by ticket."""

from collections.abc import Callable
from typing import Any

import msgspec

from covey.kernel.rules import ASKED, UNPAID

NOT_HERE = -1


class Held(msgspec.Struct):
    """A row whose label is accepted: held by itself, or as one of the rows of a request."""

    slot: int
    rows: int = 0  # of its request; 0: it is held by itself
    code: int = 0
    context: tuple[float, ...] = ()
    answer: Any = None
    truth: Any = None
    source: str = ""
    note: Any = None  # what a peer answered, or the request


class Tickets:
    """Rows in the order of their tickets, which are consecutive numbers from 1.

    A row is held by itself or, with others, in a request, an object that only its owner looks into.
    """

    def __init__(
        self,
        wait: int,
        *,
        unknown: Any,
        close: Callable[[Any], None],
        gain_of: Callable[[Any, Any], int] | None = None,
        remembers: bool = False,
    ) -> None:
        """`wait` is for how many slots a label is accepted; `close` gets requests that expire.

        `unknown` stands for a label that has not arrived. A right answer gains 1 and another 0,
        unless `gain_of` says otherwise. `remembers`: labels are kept with their cells.
        """
        self.wait = wait
        self.unknown = unknown
        self.close = close
        self.gain_of = gain_of
        self.remembers = remembers
        self.is_pending = False
        self.table: Any = None
        self.pending = 0  # rows whose label has not arrived
        self.first = self.next = 1  # the oldest ticket, and the next one
        self.due = 0  # no row expires before this slot has passed
        self._held: dict[int, Held] = {}  # by ticket

    def count_in(self, table: Any, is_pending: bool) -> None:
        """Settle rows in `table` from now on; `is_pending`: it counts pending labels."""
        self.table, self.is_pending = table, is_pending

    def hold(
        self,
        code: int,
        slot: int,
        now: int,
        context: tuple[float, ...],
        answer: Any,
        source: str = "",
        note: Any = None,
    ) -> int:
        """Hold a decision at `slot` and its answer; return the ticket.

        `now` is the latest slot, by which older rows expire. `note` is what a peer answered.
        """
        ticket = self._add(Held(slot, 0, code, context, answer, self.unknown, source, note))
        if slot > self.due:
            self.expire(now)
        return ticket

    def hold_request(self, request: Any, rows: int, slot: int, now: int) -> None:
        """Hold a request whose latest slot is `slot`; its rows get the next tickets."""
        for _ in range(rows):
            self._add(Held(slot, rows, note=request))
        if slot > self.due:
            self.expire(now)

    def settle(self, ticket: Any, label: Any, paid: int = UNPAID, is_told: bool = False) -> int:
        """Learn from the label of a row that is held by itself; return 1 if it is right, else 0.

        Nothing happens if no such row waits for its label (-1), or if a peer answered that is to
        get the label first (-2; `is_told`: it has it). `paid` is as in `Table.settle`.
        """
        held = self._at(ticket)
        if held is None or held.rows or held.truth is not self.unknown:
            return NOT_HERE
        if not is_told and held.note is not None:
            return ASKED
        is_right = bool(held.answer == label)
        gain = int(is_right) if self.gain_of is None else self.gain_of(held.answer, label)
        self.table.settle(held.code, gain, held.context, held.slot, paid)
        if self.remembers:
            self.table.remember(held.code, label, held.context, held.slot, held.answer)
        held.truth = label
        self.pending -= 1
        return is_right

    def request(self, ticket: Any) -> Any:
        """Return the request of a ticket; None: there is none, or its row is held by itself."""
        held = self._at(ticket)
        return None if held is None or not held.rows else held.note

    def row(self, ticket: int) -> tuple[int, int, tuple[float, ...], Any, Any, str, Any]:
        """Return code, slot, context, answer, label, source and note of a row held by itself."""
        row = self._held[ticket]
        return row.code, row.slot, row.context, row.answer, row.truth, row.source, row.note

    def replace(self, ticket: int, request: Any) -> None:
        """Hold a row in a request of its own from now on."""
        self._held[ticket] = Held(self._held[ticket].slot, 1, note=request)

    def begin(self, first: int, due: int) -> None:
        """Continue from earlier tickets: the next one is `first`, and none expires before `due`."""
        self.first = self.next = first
        self.due = due

    def note(self, ticket: int, label: Any) -> None:
        """Note the label of a row held by itself, which was learnt before."""
        self._held[ticket].truth = label
        self.pending -= 1

    def take_back(self, ticket: int) -> None:
        """Forget the rows from this ticket on, which have no labels."""
        while self.next > ticket:
            self.next -= 1
            self.pending -= 1
            del self._held[self.next]

    def requests(self) -> list[Any]:
        """Return the requests, oldest first."""
        notes = {id(held.note): held.note for held in self._held.values() if held.rows}
        return list(notes.values())

    def pending_codes(self) -> list[int]:
        """Return the decisions on rows held by themselves whose label has not arrived."""
        rows = self._held.values()
        return [held.code for held in rows if not held.rows and held.truth is self.unknown]

    def _at(self, ticket: Any) -> Held | None:
        """Return the row of a ticket; None: it is unknown."""
        return self._held.get(ticket) if type(ticket) is int else None

    def _add(self, held: Held) -> int:
        ticket = self.next
        self._held[ticket] = held
        self.next += 1
        self.pending += 1
        return ticket

    def expire(self, now: int) -> None:
        """Forget rows that are older than `wait`, up to the first that is not."""
        while self.first < self.next:
            held = self._held[self.first]
            due = held.slot + self.wait
            if now <= due:
                self.due = due
                return
            self._drop(held)
        self.due = now + self.wait

    def expire_before(self, ticket: int) -> None:
        """Forget rows with tickets before this one."""
        while self.first < min(ticket, self.next):
            self._drop(self._held[self.first])

    def _drop(self, held: Any) -> None:
        """Forget the oldest row, or request."""
        if held.rows:
            self.close(held.note)
        elif held.truth is self.unknown:
            self.pending -= 1
            if self.is_pending:
                self.table.forget(held.code)
        end = self.first + max(1, held.rows)
        while self.first < end:
            del self._held[self.first]
            self.first += 1
