"""A part of a site: a node that has some of the cells, and gets their rows from a router.

The router counts the slots and gives them with the rows. It sends each part of a request of many
rows to the process that has their cells; there every row has an id of its own, so that it is found
again, as rows of peers are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from covey.data.inputs import costs_of
from covey.errors import TicketError, UnknownRow, UnknownTicket
from covey.node.node import Node
from covey.node.questions import ROW_ID, Question, other_request, row_id, rows_in
from covey.node.requests import OWN, Request, is_own
from covey.types import Cost, Label


class RowPart(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one request that lie in cells of one process."""

    source: str
    id: str
    digest: str  # of the whole request
    slots: list[int]  # of each row
    numbers: list[int] | None = None  # of the rows in the request; None: it has one row


class SettledRow(msgspec.Struct, frozen=True, array_like=True):
    """The effect of a label on a row of a request."""

    row: int
    is_new: bool
    is_right: bool


def unknown_rows(id: str, rows: Iterable[int], size: int) -> UnknownTicket:
    """Return the error of labels for a request of `size` rows, 0: it is not known."""
    if not size:
        return UnknownTicket(f"unknown id {id!r}")
    there = f"rows 0 to {size - 1}" if size > 1 else "one row, which is 0"
    outside = next((row for row in rows if not 0 <= row < size), min(rows))
    return UnknownRow(f"{id!r} has {there}; there is no row {outside}")


class ShardNode(Node):
    """A node that answers some of the cells of a site."""

    def advance(self, source: str, now: int, slot: int) -> None:
        """Advance to slots of a source that other processes have seen; see `SlotClock`."""
        state = self._state
        if now > state.sources.slot(source):
            state.sources.advance(source, now)
            state.expire_all(source)
        state.sources.advance(source, slot)

    def askers(self) -> list[str]:
        """Return the peers that have ever asked."""
        return [one for one in (*self._breakers, *self._others) if self.has_asked(one)]

    def slot_of(self, source: str) -> int:
        """Return the latest slot of a source."""
        return self._state.sources.slot(source)

    @property
    def latest_label(self) -> tuple[int, Label] | None:
        """The slot and the label of the latest own instance here that has one."""
        return self._state.latest_label

    async def answer_part(self, part: RowPart, rows: Any, contexts: Any) -> Request:
        """Answer rows as `answer` does, in the slots that they have."""
        ids = [part.id] if part.numbers is None else [row_id(part.id, k) for k in part.numbers]
        slots: int | list[int] = part.slots
        if part.slots[-1] - part.slots[0] == len(ids) - 1 or self.learner.shares_slots:
            slots = part.slots[0]  # they are consecutive, or share a slot

        asked = Question(part.source, ids[0], part.digest)

        async def answer() -> Request:
            row_ids = ids if len(ids) > 1 else None
            return await self._decide(asked, rows, contexts, slot=slots, row_ids=row_ids)

        return await self._once(asked, answer, is_new=False, rows=len(ids), more_ids=ids[1:])

    async def earlier(self, asked: Question, count: int) -> dict[int, tuple[Request, int]]:
        """Return the rows of a request of `count` rows that were answered here.

        Raises `ConflictingLabel` if the id is that of another request.
        """
        marks = {row_id(asked.id, row): row for row in range(count)}
        found = await self._find(asked.source, [asked.id, *marks])
        for request, _ in found.values():
            if request.digest != asked.digest:
                raise other_request(asked)
        return {marks.get(id_, 0): (one, place or 0) for id_, (one, place) in found.items()}

    async def size_of(self, source: str, id: str) -> int:
        """Return how many rows a request has whose first row is here; 0: it is not."""
        first = row_id(id, 0)
        found = await self._find(source, [id, first])
        if id in found:
            return 1
        return rows_in(found[first][0].digest) if first in found else 0

    async def learn_part(
        self,
        id: str,
        truths: Mapping[int, Label],
        *,
        source: str = OWN,
        costs: Mapping[int, Cost] | None = None,
    ) -> list[SettledRow]:
        """Take labels of rows of a request, all or none; all rows must be here.

        Raises as `learn_rows` does.
        """
        self._check_fits(list(truths.values()), source)
        here = await self._here(source, id, truths)
        if len(here) < len(truths):
            raise unknown_rows(id, truths, await self.size_of(source, id))
        parts: dict[int, tuple[Request, dict[int, int]]] = {}  # rows of the request by local ones
        for row in truths:
            request, place = here[row]
            self._state.check(request, {place: truths[row]})
            parts.setdefault(request.number, (request, {}))[1][place] = row
        settled: list[SettledRow] = []
        for request, rows in parts.values():
            given = None if costs is None else [costs.get(row) for row in rows.values()]
            local = {place: truths[row] for place, row in rows.items()}
            many = await self._settle(request, local, costs_of(list(rows), given))
            settled += map(SettledRow, rows.values(), many.is_new, many.is_right)
        return settled

    async def check_part(
        self,
        id: str,
        truths: Mapping[int, Label],
        *,
        source: str = OWN,
    ) -> dict[int, TicketError | None]:
        """Return which rows are here, and why the label of each would be refused, if so."""
        self._check_fits(list(truths.values()), source)
        verdicts: dict[int, TicketError | None] = {}
        for row, (request, place) in (await self._here(source, id, truths)).items():
            verdicts[row] = None
            try:
                self._state.check(request, {place: truths[row]})
            except TicketError as error:
                verdicts[row] = error
        if any(verdicts.values()):
            await self._journal.flush()  # what a refusal is based on must not be lost
        return verdicts

    async def _here(
        self,
        source: str,
        id: str,
        rows: Iterable[int],
    ) -> dict[int, tuple[Request, int]]:
        """Return those rows of a request that are here: the request here, and the place in it."""
        marks = {row_id(id, row): row for row in rows}
        found = await self._find(source, [id, *marks])
        here = {marks.get(id_, 0): (one, place or 0) for id_, (one, place) in found.items()}
        return {row: here[row] for row in marks.values() if row in here}

    async def _locate(
        self,
        source: str,
        id: str,
        *,
        may_be_row: bool = True,
    ) -> tuple[Request, int | None]:
        row = ROW_ID.fullmatch(id) if may_be_row and is_own(source) else None
        if row is not None:
            mark = row_id(row[1], int(row[2]))
            found = await self._find(source, [id, mark])
            if id not in found and mark in found:
                return found[mark]
        return await super()._locate(source, id, may_be_row=may_be_row)

    async def knows(self, source: str, ids: Sequence[str]) -> list[str]:
        """Return those ids of a source that requests here have."""
        return list(await self._find(source, ids))
