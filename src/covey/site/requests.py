"""The records of a node: requests of one or many rows, their labels, and what a store keeps."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

import msgspec
import numpy as np

from covey.bandit.learner import NO_ANSWER, UNKNOWN
from covey.data.inputs import Rows, check_plain
from covey.errors import ConflictingLabel, DataError, UnknownRow
from covey.functions.function import Late
from covey.kernel import NOT_DECIDED
from covey.kernel.rules import Cell
from covey.types import MEMORY, Context, Label

Key = TypeVar("Key")
Kind = TypeVar("Kind", bound=msgspec.Struct)
Counts = dict[tuple[str, str, str], tuple[int, int]]  # cell, source, arm -> labels, right
QueryKind = Literal["arrivals", "accuracy", "seen"]  # what a peer is asked to report of a cell
OWN = ""  # the source of requests of the site's own clients, if they have no name
ROW_ID = re.compile(r"(.+):(0|[1-9][0-9]{0,4})", re.DOTALL)  # of a row in a request of many
CLIENT = "client/"  # precedes the names of own clients that have one
SHADOW = "shadow/"  # the source of calls in the shadow; no peer has such a name
RECALL = "recall"  # the phase of rows answered from labels that were seen
RELAY = "relay"  # the phase of rows that a peer asked another one through this site
ALARM = "alarm/"  # begins what is delivered like a label, and says that a change was detected
NOT_COUNTED = ("train", RECALL, RELAY)  # phases whose labels change no counter of an arm
NO_INSTANCE = msgspec.UNSET
# The code of rows whose label changes no table: their arm is retired, or they were forwarded.
DETACHED = NOT_DECIDED
FEW = 16  # rows up to which plain Python is faster than arrays
HOUR_S = 3_600
SPANS_KEPT = {60: 86_400, HOUR_S: 31 * 86_400}  # by length, in seconds; days are kept for ever
RowNumbers = Annotated[list[int], "numbers of rows"]
Flags = Annotated[list[bool], "flags"]
NONE: Mapping[int, Any] = MappingProxyType({})  # shared by all requests without such entries


def is_own(source: str) -> bool:
    """Return whether a source is a client of the site itself; else it is a peer."""
    return source == OWN or source.startswith(CLIENT)


class Question(msgspec.Struct, frozen=True):
    """The source and id of a request; an equal digest means the same request again."""

    source: str
    id: str
    digest: str = ""


def other_request(asked: Question) -> ConflictingLabel:
    """Return the error of an id that another request has."""
    return ConflictingLabel(f"id {asked.id!r} was used for another request; choose another")


def alarm_id(slot: int, cell: str) -> str:
    """Return the id under which peers are told of a change: of a slot, and of a cell's space."""
    return f"{ALARM}{slot}/{cell}"


def alarm_of(id: str) -> tuple[int, str]:
    """Return the slot and the cell of such an id; raise `DataError` if it has none."""
    slot, _, cell = id.removeprefix(ALARM).partition("/")
    if not (slot.isascii() and slot.isdecimal()):
        raise DataError(f"{id!r} is not an alarm; expected {ALARM}, a slot, / and a cell")
    return int(slot), cell


def holder(source: str) -> str:
    """Return under which name requests of a source are limited: own clients share one."""
    return OWN if is_own(source) else source


class RowGroup(msgspec.Struct, frozen=True, array_like=True):
    """What rows with the same decision have in common; what is stored names the arm and the cell.

    `id` is under which labels of the arm are counted, if that is not its name. `code` is the
    kernel's decision: it is found when a request is loaded, and never stored.
    """

    cell: str
    phase: str
    arm: str
    price: float
    peer: str = ""
    id: str = ""
    code: int = NOT_DECIDED

    @property
    def counted_as(self) -> str:
        """The arm that labels count for: one version of it."""
        return self.id or self.arm

    @property
    def is_counted(self) -> bool:
        """Whether labels change a counter of the arm."""
        return self.phase not in NOT_COUNTED


class PeerAnswer(NamedTuple):
    """What a row has beyond its group: the function that answered in the end.

    `id` is the id of the row at the peer; "" where another own function replaced the chosen one.
    """

    function: str
    id: Any
    is_awaited: bool = False  # the peer's answer has not come; an own function answered instead


class Request(msgspec.Struct, eq=False, gc=False, kw_only=True):
    """Rows decided and answered under one id; only `truths` and the fields after it change."""

    number: int = 0  # it gets one when it is recorded
    source: str = OWN
    id: str = ""
    slot: int  # of the first row
    groups: Sequence[RowGroup] = ()
    contexts: Sequence[Context] | np.ndarray  # rows x dimension; empty for rows of peers
    predictions: Sequence[Label]  # of the arms; NO_ANSWER: none
    answers: Sequence[Label]  # that the source received
    truths: list[Any] = []  # true labels; UNKNOWN: has not arrived
    space: str = ""
    group_of: Sequence[int] | np.ndarray = (0,)  # the group of each row
    digest: str = ""  # of what was asked, so that another request with the same id is noticed
    slots: Sequence[int] | None = None  # None: consecutive; a peer names the slot of each row
    peer_answers: Mapping[int, PeerAnswer] = NONE  # by row
    row_ids: Sequence[str] | None = None  # where a peer has an id for each row; `id` is the first
    # Row -> own function, by what its labels count as, and instance; not stored.
    training: Mapping[int, tuple[str, Any]] = NONE
    # Row -> answers of free functions that were not chosen, by what their labels count as.
    scored: Mapping[int, Mapping[str, Label]] = NONE
    price: int = 0  # that a peer pays for the answer to each row, in millionths
    parts: int = 0  # in which labels were recorded
    is_open: bool = True  # its labels are accepted
    is_stored: bool = False

    def __len__(self) -> int:
        return len(self.truths)

    @property
    def last_slot(self) -> int:
        """The latest slot of a row."""
        return self.slot + len(self.truths) - 1 if self.slots is None else max(self.slots)

    @property
    def codes(self) -> np.ndarray:
        """The kernel's decisions, row by row."""
        codes = np.array([group.code for group in self.groups], np.int64)
        by_row: np.ndarray = codes[np.asarray(self.group_of)]
        return by_row

    @property
    def pending(self) -> list[int]:
        """The rows whose label has not arrived."""
        if self.truths.count(UNKNOWN) == len(self.truths):
            return list(range(len(self.truths)))
        return [row for row, truth in enumerate(self.truths) if truth is UNKNOWN]

    def codes_of(self, rows: Sequence[int]) -> list[int]:
        """Return the kernel's decisions on some rows."""
        if len(rows) <= FEW:
            return [self.group(row).code for row in rows]
        codes: list[int] = self.codes[rows].tolist()
        return codes

    def slot_of(self, row: int) -> int:
        return self.slot + row if self.slots is None else self.slots[row]

    def slots_of(self, rows: Sequence[int]) -> np.ndarray:
        places = np.array(rows, np.int64)
        return self.slot + places if self.slots is None else np.asarray(self.slots)[places]

    def context(self, row: int) -> Context:
        context: Any = self.contexts[row]
        if type(context) is np.ndarray:  # an array is slow to iterate over
            context = context.tolist()
        return context if type(context) is tuple else tuple(context)

    def group(self, row: int) -> RowGroup:
        return self.groups[self.group_of[row]]

    def function(self, row: int) -> str:
        """Return the function that answered a row, of the site or of a peer."""
        answer = self.peer_answers.get(row)
        return (self.group(row).arm or MEMORY) if answer is None else answer.function


class Draft(msgspec.Struct, eq=False):
    """A request that is being answered."""

    rows: Rows
    contexts: Any
    slot: int
    closed: bytes | None
    step: int = 1  # slots between two rows
    codes: Any = None
    done: int = 0  # rows before this one are decided
    is_counted: bool = False  # where rows are counted together: they are
    row: int = -1  # the cell of the next one, if peers must be queried about it
    predictions: list[Any] = []
    helped: dict[int, PeerAnswer] = {}
    training: dict[int, tuple[str, Any]] = {}
    scored: dict[int, dict[str, Label]] = {}
    undo: list[tuple[int, int, int]] = []  # training counters before the reports

    def __post_init__(self) -> None:
        count = len(self.rows)
        self.codes = [0] if count == 1 else np.full(count, NOT_DECIDED, np.int64)
        self.predictions = [None] * count

    @property
    def slots(self) -> list[int] | None:
        """The slots of the rows; None: they are consecutive."""
        return None if self.step or len(self.codes) == 1 else [self.slot] * len(self.codes)

    def slot_of(self, row: int) -> int:
        return self.slot + row * self.step

    def context(self, row: int) -> Context:
        context = self.contexts[row]
        return context if type(context) is tuple else tuple(context.tolist())


class Prediction(msgspec.Struct, frozen=True, gc=False):
    """A label for an instance, and the ticket under which its true label is to be reported."""

    label: Any  # None: no function has an answer yet
    ticket: Any  # a number in a `Network`, the id of the request at a `Node`
    phase: str  # train, explore, exploit; serve where another learner asked
    arm: str  # own function or asked learner
    function: str  # the one that answered
    price: float  # in units of reward


def prediction_of(request: Request, row: int, ticket: Any) -> Prediction:
    group = request.groups[request.group_of[row]]
    function = request.function(row) if request.peer_answers else group.arm
    label = None if request.answers[row] is NO_ANSWER else request.answers[row]
    return Prediction(label, ticket, group.phase, group.arm, function, group.price)


def rows_kept(request: Request, truths: Mapping[int, Any]) -> frozenset[int]:
    """Put late answers that arrived into their places; keep labels for the others, return these."""
    kept: set[int] = set()
    for row, label in truths.items():
        late: Any = request.predictions[row]
        if type(late) is Late and request.truths[row] is UNKNOWN:
            if late.is_there():
                cast("list[Any]", request.predictions)[row] = late.label()
            else:
                late.keep(request.number + row, label)
                kept.add(row)
    return frozenset(kept)


def truths_of(request: Request, rows: Sequence[int], labels: Any) -> dict[int, Label]:
    """Return the label of each row; raise `DataError`, `UnknownRow` or `ConflictingLabel`."""
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(rows) != len(values):
        raise DataError(f"there are {len(rows)} rows and {len(values)} labels; give one for each")
    for row in (min(rows), max(rows)) if len(rows) else ():
        checked_row(request, row)
    check_plain(values)
    truths: dict[int, Label] = dict(zip(rows, values, strict=True))
    for row, label in zip(rows, values, strict=True) if len(truths) < len(rows) else ():
        if truths[row] != label:
            raise ConflictingLabel(
                f"row {row} of {request.id!r} is given two labels; none was taken"
            )
    return truths


def checked_row(request: Request, row: int) -> int:
    """Return the number of a row; raise `UnknownRow` if there is none."""
    count = len(request)
    if not 0 <= row < count:
        there = f"rows 0 to {count - 1}" if count > 1 else "one row, which is 0"
        raise UnknownRow(f"{request.id!r} has {there}; there is no row {row}")
    return row


class AskRow(msgspec.Struct, frozen=True):
    """A row for a peer to label; a repeated id gets the same answer."""

    id: str
    cell: str | Cell  # its name between sites; in one process the cell itself
    slot: int
    instance: Any = NO_INSTANCE  # left out: the peer sees the cell and never the instance
    price: int = 0  # that is paid for an answer, in millionths


class Assistance(msgspec.Struct, frozen=True, gc=False):
    """A peer's answer to a row; the true label is delivered under the id of the row."""

    label: Label
    function: str
    id: Any = None  # of the row at the peer, where it chose one
    is_awaited: bool = False  # it will come later

    @property
    def is_given(self) -> bool:
        return self.label is not NO_ANSWER


class LabelPart(msgspec.Struct):
    """Labels of a request that arrived since the last commit."""

    request: int
    part: int
    rows: RowNumbers = []
    truths: list[Label] = []
    right: Flags = []


class Delivery(msgspec.Struct, frozen=True):
    """A label that a peer must receive, under the id of its row; or an alarm: see `alarm_id`."""

    peer: str
    id: str
    label: Any


FUNCTIONS, SERVING, LABELS = "/functions", "/serving", "/labels"
# In place of a peer: what nobody receives, and what own answers were worth; names in an account.
NO_PEERS = {FUNCTIONS: "spent", SERVING: "serving_cost", LABELS: "right"}


class DayPayments(msgspec.Struct, frozen=True):
    """What a site paid a peer for answers in a day, or was paid by it."""

    is_ours: bool  # the site paid the peer; else the peer paid the site
    day: int  # since the epoch, by the clock of the site (UTC)
    peer: str
    requests: int = 0
    rows: int = 0  # that have an answer
    amount: int = 0  # in millionths


class SiteRecord(msgspec.Struct, frozen=True):
    """The site that a store is of."""

    one: int  # there is one
    name: str
    fingerprint: str  # what its counters mean
    starts: int


class AnsweredRows(msgspec.Struct, frozen=True):
    """How many rows of a cell a peer has answered, and how many of these have a label."""

    cell: str
    peer: str
    answers: int = 0
    labels: int = 0


class RelationLine(msgspec.Struct, frozen=True):
    """Two sources, and what `node.earned` knows of them."""

    source: str
    other: str
    state: str


class OwnLabel(msgspec.Struct, frozen=True):
    """One of the latest labels of the site itself, which are compared with those of sources."""

    place: int  # in a ring
    number: int
    function: str
    regions: list[str]
    gain: float
    slot: int


class SourceState(msgspec.Struct, frozen=True):
    """The state of the statistics of a source; those of the site itself have the source OWN."""

    source: str
    slot: int
    changes: dict[str, list[int]] = {}  # what is in no row, by context space
    latest: tuple[int, Any] | None = None  # slot and label of the latest own instance
    arms: list[str] = []  # by place, as `changes` has them


class Belief(msgspec.Struct, frozen=True):
    """What is believed of an arm by all labels of a source: large, and so stored now and then."""

    source: str
    space: str
    arm: str
    numbers: bytes


class BeliefNotes(msgspec.Struct, frozen=True):
    """The labels since a belief was stored."""

    source: str
    space: str
    arm: str
    notes: list[int]


class CellLine(msgspec.Struct, frozen=True):
    """A known cell: its row in the table of a source, its counters, the labels seen in it."""

    source: str
    space: str
    line: int
    name: str
    counters: list[int]  # that are of no arm
    seen: list[tuple[Any, int]] = []


class CountedArm(msgspec.Struct, frozen=True):
    """What a source's table counts of an arm in a cell, as `parts` of the kernel has it."""

    source: str
    cell: str
    arm: str
    counters: list[int]


ArmKind = Literal["own", "peer", "context_only"]


class Arm(msgspec.Struct, frozen=True):
    """An arm that a site has or had: a version of an own function, or a peer."""

    id: str  # under which its labels are counted; no other arm ever has it
    name: str
    kind: ArmKind
    version: str = ""
    place: int = -1  # among the arms of the site; -1: it is retired
    since: int = 0  # slot
    until: int | None = None  # slot in which it was retired
    number: int = 0  # that no other arm ever has


class SeriesLine(msgspec.Struct, frozen=True):
    """What the arms of a site did in a span of time."""

    every_s: int  # the length of the span: a minute, an hour or a day
    at: int  # its beginning, in seconds since the epoch
    counts: dict[str, tuple[int, ...]]  # by arm: decisions, labels, right ones, cost


class ShadowSpan(msgspec.Struct, frozen=True):
    """Which share of the rows is run in the shadow, from a request on; see `node.shadow`."""

    first: int  # number of the request
    share: float
    seed: str  # by which rows are drawn, in hexadecimal
    arms: list[str]  # that are run, by what their labels count as


def is_drawn(span: ShadowSpan, source: str, id: str, row: int) -> bool:
    """Return whether a row of a request is run in the shadow."""
    key = bytes.fromhex(span.seed)
    drawn = hashlib.blake2b(f"{source}\0{id}\0{row}".encode(), key=key, digest_size=8).digest()
    return int.from_bytes(drawn, "big") < span.share * 2**64


def known_answers(request: Request, row: int) -> dict[str, Any]:
    """Return what the chosen arm and free functions answered; None: an arm failed."""
    answers = {arm: label for arm, label in request.scored.get(row, {}).items() if arm}
    group, answer = request.group(row), request.predictions[row]
    if group.arm:
        answers[group.counted_as] = None if answer is NO_ANSWER else answer
    return answers


class ShadowRow(msgspec.Struct, frozen=True):
    """What arms that were not chosen answered to a row."""

    request: int
    row: int
    answers: dict[str, Any]  # by what labels of the arm count as; None: it failed


class Commit(msgspec.Struct):
    """What is written together, or not at all."""

    records: list[msgspec.Struct] = []  # in place of those with the same keys
    requests: list[Request] = []
    labels: dict[int, LabelPart] = {}  # by the number of the request
    counts: Counts = {}
    closed: list[int] = []  # numbers of requests that accept labels no longer
    joined: list[Request] = []  # whose late answer has come
    deliveries: list[Delivery] = []
    delivered: list[Delivery] = []

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return the records of a kind."""
        return [record for record in self.records if type(record) is kind]

    def add_labels(self, request: Request, rows: list[int], right: list[bool]) -> Counts:
        """Record labels of a request and count them; return what was counted."""
        part = self.labels.get(request.number)
        if part is None:
            part = self.labels[request.number] = LabelPart(request.number, request.parts)
            request.parts += 1
        part.rows += rows
        part.truths += [request.truths[row] for row in rows]
        part.right += right
        counted = count_labels(request, rows, right)
        add_counts(self.counts, counted)
        return counted


class Loaded(msgspec.Struct, frozen=True):
    """All that a site continues from."""

    records: Mapping[type, list[Any]]  # by their kinds; those of retired arms, too
    counters: Counts = {}
    starts: int = 1  # how often the store was loaded
    requests: list[Request] = []  # that are open, in order
    latest_number: int = 0
    fingerprint: str = ""  # what the counters mean

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return the records of a kind, in the order of their keys."""
        return self.records.get(kind, [])

    @property
    def sources(self) -> dict[str, SourceState]:
        """The state of each source; OWN is always there."""
        return {state.source: state for state in self.of(SourceState)}


def count_labels(request: Request, rows: Sequence[int], right: Sequence[Any]) -> Counts:
    """Return labels of some rows by cell, source and arm, and how many were right."""
    sums: Counts = {}
    if len(rows) <= FEW:
        for row, is_right in zip(rows, right, strict=True):
            group = request.group(row)
            if group.is_counted:
                key = (group.cell, request.source, group.counted_as)
                labels, hits = sums.get(key, (0, 0))
                sums[key] = labels + 1, hits + bool(is_right)
        return sums
    which = np.asarray(request.group_of)[np.asarray(rows)]
    groups = request.groups
    labels_of = np.bincount(which, minlength=len(groups)).tolist()
    right_of = np.bincount(which[np.asarray(right, bool)], minlength=len(groups)).tolist()
    for group, labels, hits in zip(groups, labels_of, right_of, strict=True):
        if labels and group.is_counted:
            add_counts(sums, {(group.cell, request.source, group.counted_as): (labels, hits)})
    return sums


def add_counts(sums: dict[Key, tuple[int, int]], more: Mapping[Key, tuple[int, int]]) -> None:
    for key, (first, second) in more.items():
        old = sums.get(key, (0, 0))
        sums[key] = old[0] + first, old[1] + second
