"""What a router calls at its shards, and what they give. No I/O."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from covey.bandit.learner import NO_ANSWER
from covey.data.inputs import Rows
from covey.kernel.rules import Report
from covey.node.requests import (
    NO_INSTANCE,
    AskRow,
    Assistance,
    Payment,
    PeerAnswer,
    Request,
    RowGroup,
    SeriesLine,
)
from covey.node.shard_node import RowPart, SettledRow
from covey.node.status import State

Label = Any  # text, a number or a boolean, which MessagePack tells apart
Cost = Any  # as in `covey.types`


class Message(msgspec.Struct, array_like=True, gc=False):
    """A call, or a part of one."""


class SlotClock(Message):
    """The slots of the site, and of the peer that calls, whatever shard has seen them.

    Requests that are too old by `now` are closed. `slot` is the latest that was named: it closes
    requests when the next one is recorded, as at a site in one process.
    """

    now: int
    slot: int
    source: str = ""
    source_now: int = 0
    source_slot: int = 0


class Start(Message, tag=True):
    """Begin to serve: the file of the site, and which part of it."""

    path: str
    content: bytes
    number: int  # from 1
    shards: int
    log_form: str = ""


class Started(Message):
    """What a shard continues from."""

    slot: int
    starts: int
    latest: tuple[int, Label] | None
    askers: list[str]
    peer_slots: dict[str, int]
    series: list[SeriesLine]


class ListIds(Message, tag=True):
    """Ask for the ids of requests, so many at once."""

    after: int
    most: int


class Ids(Message):
    """Sources and ids of requests; `last` is where to go on, 0: that is all."""

    keys: list[tuple[str, str]]
    last: int


class Array(msgspec.Struct, frozen=True):
    """An array as bytes."""

    kind: str
    shape: list[int]
    data: bytes

    @classmethod
    def of(cls, array: np.ndarray) -> "Array":
        return cls(array.dtype.str, list(array.shape), np.ascontiguousarray(array).tobytes())

    def read(self) -> np.ndarray:
        # Copied: what is read here must be writable.
        return np.frombuffer(self.data, np.dtype(self.kind)).reshape(self.shape).copy()


class AnswerRows(Message, tag=True):
    """Answer rows of own clients."""

    clock: SlotClock
    part: RowPart
    rows: list[Any] | Array
    contexts: list[list[float]] | Array

    def instances(self) -> Rows:
        return self.rows.read() if isinstance(self.rows, Array) else self.rows

    def points(self) -> Any:
        if isinstance(self.contexts, Array):
            return self.contexts.read()
        return [tuple(one) for one in self.contexts]


class AnsweredRows(Message):
    """Answers to rows: what each was decided by, and by whom it was answered."""

    groups: list[RowGroup]
    group_of: list[int]
    answers: list[Any]
    others: dict[int, tuple[str, str, int]]  # row -> what it has beyond its group
    numbers: list[int]  # of the rows in the request

    @classmethod
    def of(cls, request: Request, places: Mapping[int, int]) -> "AnsweredRows":
        """Return the answers to rows of a request at a shard; `places` are by row number."""
        group_of = np.asarray(request.group_of).tolist()
        others = request.peer_answers
        return cls(
            list(request.groups),
            [group_of[place] for place in places.values()],
            [_plain(request.answers[place]) for place in places.values()],
            {k: others[place] for k, place in enumerate(places.values()) if place in others},
            list(places),
        )


def gathered(parts: list[AnsweredRows], *, count: int, source: str, id: str) -> Request:
    """Return the answers of all parts as those of one request."""
    groups: list[RowGroup] = []
    group_of, answers = [0] * count, [None] * count
    others: dict[int, PeerAnswer] = {}
    for part in parts:
        for k, row in enumerate(part.numbers):
            group_of[row] = part.group_of[k] + len(groups)
            answers[row] = part.answers[k]
            if k in part.others:
                others[row] = PeerAnswer(*part.others[k])
        groups += part.groups
    return Request(
        number=0,
        source=source,
        id=id,
        slot=0,
        groups=groups,
        contexts=(),
        predictions=answers,
        answers=answers,
        truths=[None] * count,
        group_of=group_of,
        peer_answers=others,
    )


class FindEarlier(Message, tag=True):
    """Ask for the rows of a request that were answered before."""

    source: str
    id: str
    digest: str
    count: int


class FindSize(Message, tag=True):
    """Ask how many rows a request has whose first row is here."""

    source: str
    id: str


class FindIds(Message, tag=True):
    """Ask which ids of a source are known."""

    source: str
    ids: list[str]


class LearnRow(Message, tag=True):
    """Take the label of a ticket."""

    clock: SlotClock
    source: str
    id: str
    label: Label
    cost: Cost = None


class LearnRows(Message, tag=True):
    """Take labels of rows of a request."""

    clock: SlotClock
    source: str
    id: str
    truths: dict[int, Label]
    costs: dict[int, Cost] | None = None


class CheckRows(Message, tag=True):
    """Ask which rows are here, and whether their labels would be taken."""

    clock: SlotClock
    source: str
    id: str
    truths: dict[int, Label]


class Verdict(Message):
    """A row that is here, and the error of its label, if it would be refused."""

    row: int
    error: str
    sentence: str


class Learnt(Message):
    """The effect of labels, and the latest label of the shard."""

    rows: list[SettledRow]
    latest: tuple[int, Label] | None


class Row(Message):
    """A row of a peer; without an instance, only the cell is shown."""

    id: str
    cell: str
    slot: int
    instance: Any = None
    has_instance: bool = True

    @classmethod
    def of(cls, row: AskRow) -> "Row":
        if row.instance is NO_INSTANCE:
            return cls(row.id, str(row.cell), row.slot, None, False)
        return cls(row.id, str(row.cell), row.slot, row.instance)

    def asked(self) -> AskRow:
        instance = self.instance if self.has_instance else NO_INSTANCE
        return AskRow(self.id, self.cell, self.slot, instance)


class Assist(Message, tag=True):
    """Answer rows of a peer."""

    clock: SlotClock
    rows: list[Row]


class Assisted(Message):
    """The answers to rows of a peer, and its latest slot."""

    rows: "list[Given]"
    slot: int


class Given(Message):
    """An answer to a row of a peer."""

    label: Label | None
    function: str
    width: int
    is_given: bool = True

    @classmethod
    def of(cls, one: Assistance) -> "Given":
        return cls(one.label if one.is_given else None, one.function, one.width, one.is_given)

    def assistance(self) -> Assistance:
        label: Any = self.label if self.is_given else NO_ANSWER
        return Assistance(label, self.function, self.width)


class GetReport(Message, tag=True):
    """Report the arrivals in a cell."""

    clock: SlotClock
    cell: str
    slot: int


class GetEstimate(Message, tag=True):
    """Estimate the accuracy of answers in a cell."""

    clock: SlotClock
    cell: str
    slot: int
    is_by_context: bool


class TakeLabels(Message, tag=True):
    """Take labels that a peer delivers."""

    clock: SlotClock
    labels: list[tuple[str, Label]]


class TakePayments(Message, tag=True):
    """Take what a peer says that it pays."""

    payments: list[Payment]


class GetStatus(Message, tag=True):
    """Ask for the state; for the page also the cells, for Prometheus the metrics."""

    cells: int = 0  # at most so many
    has_metrics: bool = False


class MapCell(Message):
    """A cell of the page's map: as `CellPreference`."""

    places: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    arrivals: int
    arm: str | None


class Status(Message):
    """The state of a shard."""

    state: State
    decisions: list[tuple[str, str, int]]  # phase, arm, rows
    asked: dict[str, int]  # rows of each peer
    cells: list[MapCell] = []
    metrics: bytes = b""


class ReloadKeys(Message, tag=True):
    """Read certificates again."""


class Stop(Message, tag=True):
    """Stop; what was acknowledged is in the store."""


AnyCall = (
    Start
    | ListIds
    | AnswerRows
    | FindEarlier
    | FindSize
    | FindIds
    | LearnRow
    | LearnRows
    | CheckRows
    | Assist
    | GetReport
    | GetEstimate
    | TakeLabels
    | TakePayments
    | GetStatus
    | ReloadKeys
    | Stop
)
ANSWERS: dict[type[Any], Any] = {
    Start: Started,
    ListIds: Ids,
    AnswerRows: AnsweredRows,
    FindEarlier: list[AnsweredRows],
    FindSize: int,
    FindIds: list[str],
    LearnRow: Learnt,
    LearnRows: Learnt,
    CheckRows: list[Verdict],
    Assist: Assisted,
    GetReport: Report,
    GetEstimate: tuple[float, int],
    TakeLabels: list[str],
    TakePayments: list[str],
    GetStatus: Status,
    ReloadKeys: None,
    Stop: None,
}


def _plain(answer: Any) -> Any:
    return None if answer is NO_ANSWER else answer
