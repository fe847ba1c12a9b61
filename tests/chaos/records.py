"""The rows of requests, one by one, as they are compared: those of a store and those in answers."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from covey.site.requests import OWN, Request, is_own
from covey.site.trust import Trust
from covey.store import tables
from covey.store.store import Store
from covey.types import Context, Label


class RowRecord(msgspec.Struct, frozen=True):
    """One row of a request."""

    source: str
    id: str
    slot: int
    last_slot: int  # of its request
    context: Context
    cell: str
    phase: str
    arm: str
    price: float
    function: str
    peer: str
    peer_id: str  # of the row at the peer that answered it; "": none did
    prediction: Label
    answer: Label
    truth: Any
    is_open: bool
    offered: int = 0  # by the peer that asked, in millionths
    scored: dict[str, Label] = {}  # answers of free functions that were not chosen

    @property
    def key(self) -> tuple[str, str]:
        return self.source, self.id

    @property
    def as_answered(self) -> "RowRecord":
        """Return it without what changes after the answer."""
        return msgspec.structs.replace(self, truth=None, is_open=True)


Rows = dict[tuple[str, str], RowRecord]  # by source and id


def rows_of(request: Request) -> list[RowRecord]:
    """Return the rows of a request; those of a client's batch have ids `id:row`."""
    return [_row(request, row, id_) for row, id_ in enumerate(_ids(request))]


def read(store: Store) -> Rows:
    """Return all rows of a store."""
    return {one.key: one for request in store._requests(tables.ALL) for one in rows_of(request)}


def cells_of(store: Store) -> list[tuple[str, str, list[int]]]:
    """Return source, name and counters of the cells of a store."""
    rows = store._base.execute("SELECT source, name, counters FROM cells").fetchall()
    return [(source, cell, json.loads(counters)) for source, cell, counters in rows]


def arrivals_without_request(store: Store, trust: Mapping[str, Trust]) -> Counter[tuple[str, str]]:
    """Return how many arrivals belong to no request, by source and cell."""
    found: Counter[tuple[str, str]] = Counter()
    for source, cell, counters in cells_of(store):
        found[source, cell] += counters[1]
    for row in read(store).values():
        if row.phase != "recall":
            is_pooled = is_own(row.source) or trust[row.source] == "full"
            found[OWN if is_pooled else row.source, row.cell] -= 1
    return found


def _ids(request: Request) -> list[str]:
    if request.row_ids is not None:
        return list(request.row_ids)
    if len(request) == 1:
        return [request.id]
    return [f"{request.id}:{row}" for row in range(len(request))]


def _row(request: Request, row: int, id_: str) -> RowRecord:
    group, answer = request.group(row), request.peer_answers.get(row)
    return RowRecord(
        source=request.source,
        id=id_,
        slot=request.slot_of(row),
        last_slot=request.last_slot,
        context=tuple(map(float, request.context(row))),
        cell=group.cell,
        phase=group.phase,
        arm=group.arm,
        price=group.price,
        function=request.function(row),
        peer=group.peer,
        peer_id="" if answer is None else answer.id,
        prediction=request.predictions[row],
        answer=request.answers[row],
        truth=request.truths[row],
        is_open=request.is_open,
        offered=request.price,
        scored=dict(request.scored.get(row, {})),
    )
