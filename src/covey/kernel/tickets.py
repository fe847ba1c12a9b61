# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Decisions whose labels are accepted, by ticket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from covey.kernel.cells import block
from covey.kernel.table import Table

if not cython.compiled:
    from covey.kernel.cells import integers
    from covey.kernel.counters import UNPAID

    # Layout of a row: its integers, and its objects.
    SLOT, CODE, ROWS, INTEGERS = range(4)  # `ROWS` of its request; 0: it is held by itself
    CONTEXT, ANSWER, TRUTH, SOURCE, NOTE, OBJECTS = range(6)  # `NOTE`: a peer's, or the request
    NOT_HERE = -1
    ASKED = -2


class Tickets:
    """Rows in the order of their tickets, which are consecutive numbers from 1.

    They form a ring: one that expires leaves its place to another. A row is held by itself or,
    with others, in a request, an object that only its owner looks into.
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
        self.table: Table | None = None
        self.other: Any = None
        self.pending = 0  # rows whose label has not arrived
        self.first = self.next = 1  # the oldest ticket, and the next one
        self.due = 0  # no row expires before this slot has passed
        self.mask = 15
        self.block = block(8 * INTEGERS * 16)
        self.integers = integers(self.block, 0, INTEGERS * 16)
        self.objects: list[Any] = [None] * (OBJECTS * 16)

    def count_in(self, table: Any, is_pending: bool) -> None:
        """Settle rows in `table` from now on; `is_pending`: it counts pending labels."""
        # One that only has the methods of a table is called as any object.
        self.table = table if type(table) is Table else None
        self.other = None if type(table) is Table else table
        self.is_pending = is_pending

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
        place = self._add(slot, 0)
        self.integers[place * INTEGERS + CODE] = code
        base = place * OBJECTS
        self.objects[base + CONTEXT] = context
        self.objects[base + ANSWER] = answer
        self.objects[base + TRUTH] = self.unknown
        self.objects[base + SOURCE] = source
        self.objects[base + NOTE] = note
        ticket = self.next - 1
        if slot > self.due:
            self.expire(now)
        return ticket

    def hold_request(self, request: Any, rows: int, slot: int, now: int) -> None:
        """Hold a request whose latest slot is `slot`; its rows get the next tickets."""
        for _ in range(rows):
            place = self._add(slot, rows)  # which may replace `objects`
            self.objects[place * OBJECTS + NOTE] = request
        if slot > self.due:
            self.expire(now)

    def settle(self, ticket: Any, label: Any, paid: int = UNPAID, is_told: bool = False) -> int:
        """Learn from the label of a row that is held by itself; return 1 if it is right, else 0.

        Nothing happens if no such row waits for its label (-1), or if a peer answered that is to
        get the label first (-2; `is_told`: it has it). `paid` is as in `Table.settle`.
        """
        place = self._place(ticket)
        if place < 0:
            return NOT_HERE
        base = place * OBJECTS
        if self.integers[place * INTEGERS + ROWS] or self.objects[base + TRUTH] is not self.unknown:
            return NOT_HERE
        if not is_told and self.objects[base + NOTE] is not None:
            return ASKED
        is_right = bool(self.objects[base + ANSWER] == label)
        gain = int(is_right)
        if self.gain_of is not None:
            gain = self.gain_of(self.objects[base + ANSWER], label)
        code = self.integers[place * INTEGERS + CODE]
        slot = self.integers[place * INTEGERS + SLOT]
        context = self.objects[base + CONTEXT]
        if self.table is not None:
            self.table.settle(code, gain, context, slot, paid)
        else:
            self.other.settle(code, gain, context, slot, paid)
        if self.remembers:
            table: Any = self.table if self.other is None else self.other
            table.remember(code, label, context, slot, self.objects[base + ANSWER])
        self.objects[base + TRUTH] = label
        self.pending -= 1
        return is_right

    def request(self, ticket: Any) -> Any:
        """Return the request of a ticket; None: there is none, or its row is held by itself."""
        place = self._place(ticket)
        if place < 0 or self.integers[place * INTEGERS + ROWS] == 0:
            return None
        return self.objects[place * OBJECTS + NOTE]

    def row(self, ticket: int) -> tuple[int, int, tuple[float, ...], Any, Any, str, Any]:
        """Return code, slot, context, answer, label, source and note of a row held by itself."""
        place = ticket & self.mask
        base = place * OBJECTS
        return (
            self.integers[place * INTEGERS + CODE],
            self.integers[place * INTEGERS + SLOT],
            self.objects[base + CONTEXT],
            self.objects[base + ANSWER],
            self.objects[base + TRUTH],
            self.objects[base + SOURCE],
            self.objects[base + NOTE],
        )

    def replace(self, ticket: int, request: Any) -> None:
        """Hold a row in a request of its own from now on."""
        place = ticket & self.mask
        self._clear(place)
        self.integers[place * INTEGERS + ROWS] = 1
        self.objects[place * OBJECTS + NOTE] = request

    def begin(self, first: int, due: int) -> None:
        """Continue from earlier tickets: the next one is `first`, and none expires before `due`."""
        self.first = self.next = first
        self.due = due

    def note(self, ticket: int, label: Any) -> None:
        """Note the label of a row held by itself, which was learnt before."""
        self.objects[(ticket & self.mask) * OBJECTS + TRUTH] = label
        self.pending -= 1

    def take_back(self, ticket: int) -> None:
        """Forget the rows from this ticket on, which have no labels."""
        while self.next > ticket:
            self.next -= 1
            self.pending -= 1
            self._clear(self.next & self.mask)

    def requests(self) -> list[Any]:
        """Return the requests, oldest first."""
        found: list[Any] = []
        number = self.first
        while number < self.next:
            place = number & self.mask
            rows = self.integers[place * INTEGERS + ROWS]
            if rows:
                found.append(self.objects[place * OBJECTS + NOTE])
            number += max(1, rows)
        return found

    def pending_codes(self) -> list[int]:
        """Return the decisions on rows held by themselves whose label has not arrived."""
        found = []
        for number in range(self.first, self.next):
            place = number & self.mask
            is_part = self.integers[place * INTEGERS + ROWS] > 0
            if not is_part and self.objects[place * OBJECTS + TRUTH] is self.unknown:
                found.append(self.integers[place * INTEGERS + CODE])
        return found

    def _place(self, ticket: Any) -> int:
        """Return the place of a ticket; -1: it is unknown."""
        if type(ticket) is not int:
            return -1
        try:
            number = ticket
        except OverflowError:
            return -1
        return number & self.mask if self.first <= number < self.next else -1

    def _add(self, slot: int, rows: int) -> int:
        """Make place for the next row, and return it."""
        if self.next - self.first > self.mask:
            self._grow()
        place = self.next & self.mask
        self.next += 1
        self.pending += 1
        self.integers[place * INTEGERS + SLOT] = slot
        self.integers[place * INTEGERS + ROWS] = rows
        return place

    def _grow(self) -> int:
        """Double the ring: the place of a row stays, or moves by the old size."""
        before = memoryview(self.block)
        self.block = block(2 * len(before))
        memoryview(self.block)[: len(before)] = before
        memoryview(self.block)[len(before) :] = before
        self.integers = integers(self.block, 0, len(before) // 4)
        self.objects = self.objects + self.objects
        self.mask = 2 * self.mask + 1
        for number in range(self.next, self.first + self.mask + 1):
            self._clear(number & self.mask)
        return 0

    def expire(self, now: int) -> int:
        """Forget rows that are older than `wait`, up to the first that is not."""
        while self.first < self.next:
            place = self.first & self.mask
            due = self.integers[place * INTEGERS + SLOT] + self.wait
            if now <= due:
                self.due = due
                return 0
            rows = self.integers[place * INTEGERS + ROWS]
            if rows:
                self.close(self.objects[place * OBJECTS + NOTE])
            elif self.objects[place * OBJECTS + TRUTH] is self.unknown:
                self.pending -= 1
                if self.is_pending:
                    table: Any = self.table if self.other is None else self.other
                    table.forget(self.integers[place * INTEGERS + CODE])
            end = self.first + max(1, rows)
            while self.first < end:
                self._clear(self.first & self.mask)
                self.first += 1
        self.due = now + self.wait
        return 0

    def _clear(self, place: int) -> int:
        """Let go of the objects of a row."""
        base = place * OBJECTS
        for k in range(OBJECTS):
            self.objects[base + k] = None
        return 0
