"""The tables of a store: each is of records, and its columns, statements and checksums follow.

The SQL is what SQLite and PostgreSQL both know; where they differ, each has a `Dialect`.

SQLite finds damage of its own structure, but not a changed bit within a value; its checksum VFS is
a C extension that Python's `sqlite3` cannot set up. So every row has a checksum. Counters and
folded sums have none: each is the sum of labels that have one.
"""

import zlib
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

import msgspec
import numpy as np

from covey.bandit.learner import NO_ANSWER, UNKNOWN
from covey.functions.function import Late
from covey.site.requests import (
    FEW,
    HOUR_S,
    NONE,
    SPANS_KEPT,
    AnsweredRows,
    Arm,
    ArmKind,
    Belief,
    BeliefNotes,
    CellLine,
    CountedArm,
    DayPayments,
    Delivery,
    Flags,
    LabelPart,
    OwnLabel,
    PeerAnswer,
    RelationLine,
    Request,
    RowGroup,
    RowNumbers,
    SeriesLine,
    ShadowRow,
    ShadowSpan,
    SiteRecord,
    SourceState,
)
from covey.store.database import Dialect
from covey.types import Label

SIZES = (64, 16, 4, 1)  # of statements that write many rows; few, so that each is made once
CHANGED = "the schema is damaged"
Record = TypeVar("Record", bound=msgspec.Struct)
RowStatement = tuple[str, int]  # with the place of its rows, and the number of their columns
_encode = msgspec.msgpack.Encoder().encode


class DamagedRow(Exception):
    """A row that does not fit its checksum."""


# -- columns ------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How the values of a type are stored."""

    sql: str  # a field of `Dialect`
    encode: Callable[[Any], Any] | None = None  # None: the value is stored as it is
    decode: Callable[[Any], Any] | None = None
    check: str = ""


class StoreColumn(NamedTuple):
    """A column, which has the values of a field of records."""

    name: str
    kind: Kind
    is_optional: bool

    def definition(self, dialect: Dialect) -> str:
        kind = getattr(dialect, self.kind.sql) + ("" if self.is_optional else " NOT NULL")
        check = f' CHECK ("{self.name}" {self.kind.check})' if self.kind.check else ""
        return f'"{self.name}" {kind}{check}'


def _column(field: msgspec.structs.FieldInfo) -> StoreColumn:
    is_optional = NoneType in get_args(field.type)
    value = get_args(field.type)[0] if is_optional else field.type
    kind = KINDS.get(value) or Kind("text", as_text, msgspec.json.Decoder(value).decode)
    return StoreColumn(field.name, kind, is_optional)


def as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def row_numbers(content: bytes) -> list[int]:
    """Return the numbers of rows, or of groups, from a column."""
    return array("I", content).tolist()


def _slots(content: bytes) -> list[int]:
    return array("q", content).tolist()


def _groups_text(groups: Sequence[RowGroup]) -> str:
    return as_text([msgspec.structs.astuple(group)[:-1] for group in groups])  # without codes


def _labels_text(labels: Sequence[Label]) -> str:
    """Return labels as JSON; null: there is none."""
    if NO_ANSWER in labels or type(labels[0]) is Late:
        labels = [None if label is NO_ANSWER or type(label) is Late else label for label in labels]
    return as_text(labels)


def _labels(text: str) -> list[Label]:
    return [NO_ANSWER if label is None else label for label in msgspec.json.decode(text)]


Natural = Annotated[int, "not negative"]
Positive = Annotated[int, "not zero"]
Slots = Annotated[Sequence[int], "slots"]
Labels = Annotated[Sequence[Label], "labels"]
Groups = Annotated[Sequence[RowGroup], "groups"]
groups_of = msgspec.json.Decoder(list[RowGroup]).decode
# Values of all other types are stored as JSON.
KINDS = {
    str: Kind("text"),
    ArmKind: Kind("text"),
    int: Kind("integer"),
    Natural: Kind("integer", check=">= 0"),
    Positive: Kind("integer", check=">= 1"),
    bool: Kind("integer", int, bool),
    bytes: Kind("blob"),
    RowNumbers: Kind("blob", lambda rows: array("I", rows).tobytes(), row_numbers),
    Slots: Kind("blob", lambda slots: array("q", slots).tobytes(), _slots),
    Flags: Kind("blob", bytes, lambda flags: list(map(bool, flags))),
    Labels: Kind("text", _labels_text, _labels),
    Groups: Kind("text", _groups_text, groups_of),
}


# -- tables -------------------------------------------------------------------------------------


class StoreTable:
    """A table of records; the first columns are its key, the last one is a checksum."""

    def __init__(
        self,
        name: str,
        record: type[msgspec.Struct],
        key: int = 1,
        *,
        is_loaded: bool = False,
        has_rowid: bool = False,
        is_sum: bool = False,
        constraints: Sequence[str] = (),
    ) -> None:
        """Derive all from the fields of a kind of records.

        A start reads what `is_loaded`. What `is_sum` of labels has no checksum.
        """
        self.name, self.record = name, record
        self.is_loaded, self.is_sum, self._has_rowid = is_loaded, is_sum, has_rowid
        self._stored = list(map(_column, msgspec.structs.fields(record)))
        self._constraints = constraints
        self._encoders = [column.kind.encode for column in self._stored]
        self._decoders = [column.kind.decode for column in self._stored]
        self.columns = tuple(column.name for column in self._stored)
        self.columns += () if is_sum else ("sum",)
        self.width = key
        self._keys = ", ".join(self.columns[:key])
        self.select = f"SELECT * FROM {name} ORDER BY {self._keys}"
        count, others = len(self.columns), self.columns[key:]
        into = f"INSERT INTO {name} VALUES {{rows}} ON CONFLICT"
        replaced = ", ".join(f'"{column}" = excluded."{column}"' for column in others)
        added = ", ".join(
            f'"{column}" = {name}."{column}" + excluded."{column}"' for column in others
        )
        # A key that is there already is an error, or the row is left, replaced or added to.
        self.insert: RowStatement = f"INSERT INTO {name} VALUES {{rows}}", count
        self.insert_new: RowStatement = f"{into} DO NOTHING", count
        self.upsert: RowStatement = f"{into} ({self._keys}) DO UPDATE SET {replaced}", count
        self.add: RowStatement = f"{into} ({self._keys}) DO UPDATE SET {added}", count

    def definition(self, dialect: Dialect) -> str:
        """Return the statement that makes the table, if it is not there."""
        lines = [column.definition(dialect) for column in self._stored]
        lines += [] if self.is_sum else [f'"sum" {dialect.integer} NOT NULL']
        lines += [f"PRIMARY KEY ({self._keys})", *self._constraints]
        end = dialect.end_of_rows if self._has_rowid else dialect.end_of_keys
        text = ",\n  ".join(lines)
        return f"CREATE TABLE IF NOT EXISTS {self.name} (\n  {text}\n){end}"

    def row(self, record: Any) -> tuple[Any, ...]:
        """Return the columns of a record."""
        values = zip(self._encoders, msgspec.structs.astuple(record), strict=True)
        columns = [
            value if encode is None or value is None else encode(value) for encode, value in values
        ]
        return tuple(columns) if self.is_sum else self.sealed(columns)

    def record_of(self, row: Sequence[Any]) -> Any:
        """Return the record of a row; raise `DamagedRow` if it does not fit its checksum."""
        if not self.fits(row):
            raise DamagedRow(self.misfit(row))
        values = zip(self._decoders, row, strict=False)
        return self.record(
            *[
                value if decode is None or value is None else decode(value)
                for decode, value in values
            ]
        )

    def sealed(self, columns: Sequence[Any]) -> tuple[Any, ...]:
        """Return the columns of a row with their checksum, a CRC-32 as a signed number.

        Where the last one is a flag that a statement clears, 0 complements the checksum: so the
        statement needs no other columns.
        """
        if self.columns[-2] != FLAG:
            return *columns, zlib.crc32(_encode(columns)) - 0x80000000
        checksum = zlib.crc32(_encode(columns[:-1])) - 0x80000000
        return *columns, checksum if columns[-1] else ~checksum

    def fits(self, row: Sequence[Any]) -> bool:
        """Return whether a row fits its checksum."""
        return self.is_sum or bool(self.sealed(row[:-1])[-1] == row[-1])

    def misfit(self, row: Sequence[Any]) -> str:
        """Return what is wrong with a row that does not fit."""
        first = f"the row of table {self.name} that begins with {row[0]!r:.60}"
        return f"{first} does not fit its checksum"


class RequestLine(msgspec.Struct, frozen=True):
    """A request as it is stored, without its labels."""

    number: Positive
    source: str
    id: str
    digest: str
    slot: Natural
    rows: Positive
    space: str
    groups: Groups
    group_of: bytes | None  # None: there is one group
    slots: Slots | None
    contexts: bytes
    predictions: Labels
    answers: Labels | None  # None: the predictions
    scored: dict[int, Any] | None
    peer_answers: dict[int, PeerAnswer] | None
    row_ids: Sequence[str] | None
    price: Natural
    is_open: bool


class CountedLabels(msgspec.Struct, frozen=True):
    """How many labels of a source an arm has in a cell, and how many of them it answered right."""

    cell: str
    source: str
    arm: str
    labels: Positive
    right: int


class RowId(msgspec.Struct, frozen=True):
    """The id of a row of a request but the first one, whose id is that of the request."""

    source: str
    id: str
    request: int
    row: Positive


FLAG = "is_open"
RIGHT_OF_ALL = ('CHECK ("right" BETWEEN 0 AND labels)',)
ALL_TABLES = (  # in which no row names one of a later table
    StoreTable(
        "requests",
        RequestLine,
        has_rowid=True,
        constraints=(
            "UNIQUE (source, id)",
            "CHECK (length(group_of) = 4 * rows)",
            "CHECK (length(slots) = 8 * rows)",
            "CHECK (length(contexts) % (8 * rows) = 0)",
        ),
    ),
    StoreTable("row_ids", RowId, 2),
    StoreTable(
        "labels",
        LabelPart,
        2,
        constraints=(
            "FOREIGN KEY (request) REFERENCES requests",
            'CHECK (length(rows) = 4 * length("right"))',
        ),
    ),
    StoreTable("counters", CountedLabels, 3, is_sum=True, constraints=RIGHT_OF_ALL),
    StoreTable("folded", CountedLabels, 3, is_sum=True, constraints=RIGHT_OF_ALL),
    StoreTable("site", SiteRecord),
    StoreTable("sources", SourceState, is_loaded=True),
    StoreTable("cells", CellLine, 3, is_loaded=True),
    StoreTable("arm_counters", CountedArm, 3, is_loaded=True),
    StoreTable("beliefs", Belief, 3, is_loaded=True),
    StoreTable("belief_notes", BeliefNotes, 3, is_loaded=True),
    StoreTable("relations", RelationLine, 2, is_loaded=True),
    StoreTable("own_labels", OwnLabel, is_loaded=True),
    StoreTable("answered", AnsweredRows, 2, is_loaded=True),
    StoreTable("outbox", Delivery, 2, is_loaded=True),
    StoreTable("arms", Arm, is_loaded=True),
    StoreTable("payments", DayPayments, 3),
    StoreTable("series", SeriesLine, 2),
    StoreTable("shadow_spans", ShadowSpan),
    StoreTable("shadow_rows", ShadowRow, 2),
)
TABLES = {table.name: table for table in ALL_TABLES}
OF = {table.record: table for table in ALL_TABLES}
# What is counted again if other settings mean other counters.
COUNTED_AGAIN = ("cells", "arm_counters", "beliefs", "belief_notes")
REQUESTS, _, LABELS, COUNTERS, FOLDED = ALL_TABLES[:5]


# -- statements ---------------------------------------------------------------------------------

CLOSE = ("UPDATE requests SET is_open = 0, sum = ~sum WHERE is_open = 1 AND number IN ({rows})", 1)
# SQLite needs CROSS JOIN to read the first table first.
TRUTHS = """
SELECT labels.* FROM requests CROSS JOIN labels
WHERE request = number AND {which} ORDER BY number, part
"""
FIND = """
SELECT column1,
(SELECT request FROM row_ids WHERE source = ? AND id = column1),
(SELECT row FROM row_ids WHERE source = ? AND id = column1),
(SELECT number FROM requests WHERE source = ? AND id = column1)
FROM (VALUES {wanted}) AS ids
"""
OLDEST = """
SELECT number, rows, source, row_ids FROM requests WHERE is_open = 0 ORDER BY number LIMIT ?
"""
TOTALS = """
SELECT COUNT(*), COALESCE(SUM(rows), 0),
(SELECT COALESCE(SUM(length("right")), 0) FROM labels),
(SELECT COUNT(*) FROM outbox) FROM requests
"""
ALL, OPEN, FROM_TO = "1 = 1", "is_open = 1", "number BETWEEN ? AND ?"
# Rows of one group are alike, and many: they are added up by what they have in common.
LABELLED_ALIKE = """
SELECT source, groups, "right" FROM {tables}
WHERE request = number AND group_of IS NULL AND {which}
"""
LABELLED = """
SELECT source, groups, group_of, labels.rows, "right" FROM {tables}
WHERE request = number AND group_of IS NOT NULL AND {which}
"""
IN_PARTS = """
SELECT request, rows FROM labels WHERE request IN (SELECT request FROM labels WHERE part > 0)
ORDER BY request
"""
BETWEEN = f"{FROM_TO} AND is_open = 0"
LISTED = "number IN ({wanted})"
LABELS_OF = "SELECT request, rows FROM labels WHERE request IN ({wanted})"


def schema(dialect: Dialect) -> list[str]:
    """Return the statements that make all tables that are not there."""
    return [table.definition(dialect) for table in ALL_TABLES]


@cache
def with_places(query: str, count: int) -> str:
    """Return a query for so many wanted values."""
    return query.format(wanted=", ".join(["(?)"] * count))


@cache
def statement_for(statement: RowStatement, rows: int) -> str:
    """Return a statement for so many rows of its number of columns."""
    text, columns = statement
    return text.format(rows=", ".join(["(" + ", ".join("?" * columns) + ")"] * rows))


def outdated(lines: Sequence[SeriesLine]) -> list[tuple[int, int]]:
    """Return the lengths of spans of time, and before when those of a length are not kept.

    With the line of an hour these are removed, and not with every minute.
    """
    hours = [line.at for line in lines if line.every_s == HOUR_S]
    return [(every_s, max(hours) - kept_s) for every_s, kept_s in SPANS_KEPT.items() if hours]


# -- requests -----------------------------------------------------------------------------------


STORED_AS_IS = (
    *("number", "source", "id", "digest", "slot", "slots", "space", "groups", "predictions"),
    *("row_ids", "price", "is_open"),
)


def line_of(request: Request) -> RequestLine:
    """Return a request as it is stored."""
    contexts: Any = request.contexts
    if not isinstance(contexts, np.ndarray):
        contexts = array("d", chain.from_iterable(contexts))
    of_row = None
    if len(request.groups) > 1:
        of_row = np.asarray(request.group_of, np.uint32).tobytes()
    # Before the predictions: an answer that comes meanwhile must not count as one that is known.
    helped = dict(request.peer_answers) or None
    return RequestLine(
        rows=len(request),
        group_of=of_row,
        contexts=contexts.tobytes(),
        answers=None if request.answers is request.predictions else request.answers,
        scored=dict(request.scored) or None,
        peer_answers=helped,
        **{name: getattr(request, name) for name in STORED_AS_IS},
    )


def request_of(line: RequestLine) -> Request:
    """Return a request without its labels."""
    rows = line.rows
    return Request(
        group_of=_group_of(line.group_of, rows),
        contexts=_contexts(line.contexts, rows),
        answers=line.predictions if line.answers is None else line.answers,
        peer_answers=line.peer_answers or NONE,
        truths=[UNKNOWN] * rows,
        scored=line.scored or NONE,
        is_stored=True,
        **{name: getattr(line, name) for name in STORED_AS_IS},
    )


def row_ids_of(request: Request) -> list[RowId]:
    """Return the ids of all rows but the first."""
    ids = (request.row_ids or ())[1:]
    return [RowId(request.source, id_, request.number, row) for row, id_ in enumerate(ids, 1)]


def _group_of(content: bytes | None, rows: int) -> Sequence[int] | np.ndarray:
    if content is not None:
        return row_numbers(content) if rows <= FEW else np.frombuffer(content, np.uint32)
    return (0,) * rows if rows <= FEW else np.zeros(rows, np.uint32)


def _contexts(content: bytes, rows: int) -> Sequence[tuple[float, ...]] | np.ndarray:
    if not content:
        return [()] * rows
    if rows == 1:
        return [tuple(array("d", content))]
    points: np.ndarray = np.frombuffer(content).reshape(rows, -1).copy()
    return points
