"""The tables of a store: their columns, the records that these are, sums and checksums of them.

The schema is written for SQLite, the statements are SQL that PostgreSQL knows, too; `postgres` has
the few words that differ.

SQLite finds damage of its own structure, but not a changed bit within a value; its checksum VFS is
a C extension that Python's `sqlite3` cannot set up. So every row has a checksum. Counters and
folded sums have none: each is the sum of labels that have one.
"""

import re
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

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
    LabelPart,
    OwnLabel,
    PeerAnswer,
    RelationLine,
    Request,
    RowGroup,
    SeriesLine,
    ShadowRow,
    ShadowSpan,
    SiteRecord,
    SourceState,
)
from covey.store.database import Database

APPLICATION = 0x636F7679  # "covy"
VERSION = 1
SIZES = (64, 16, 4, 1)  # of statements that write many rows; few, so that each is made once
COUNTS = """CREATE TABLE IF NOT EXISTS {table} (
  cell TEXT NOT NULL,
  source TEXT NOT NULL,
  arm TEXT NOT NULL,
  labels INTEGER NOT NULL CHECK (labels >= 1),
  right INTEGER NOT NULL CHECK (right BETWEEN 0 AND labels),
  PRIMARY KEY (cell, source, arm)
) STRICT, WITHOUT ROWID;"""
SUM = "\n  sum INTEGER NOT NULL,"  # of the columns before it: see `sealed`
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS requests (
  number INTEGER PRIMARY KEY CHECK (number >= 1),
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  digest TEXT NOT NULL,
  slot INTEGER NOT NULL CHECK (slot >= 0),
  rows INTEGER NOT NULL CHECK (rows >= 1),
  space TEXT NOT NULL,
  groups TEXT NOT NULL,
  group_of BLOB CHECK (length(group_of) = 4 * rows),
  slots BLOB CHECK (length(slots) = 8 * rows),
  contexts BLOB NOT NULL CHECK (length(contexts) % (8 * rows) = 0),
  predictions TEXT NOT NULL,
  answers TEXT,
  peer_answers TEXT,
  row_ids TEXT,
  price INTEGER NOT NULL CHECK (price >= 0),
  is_open INTEGER NOT NULL CHECK (is_open IN (0, 1)),{SUM}
  UNIQUE (source, id)
) STRICT;
CREATE TABLE IF NOT EXISTS row_ids (
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  request INTEGER NOT NULL,
  row INTEGER NOT NULL CHECK (row >= 1),{SUM}
  PRIMARY KEY (source, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS labels (
  request INTEGER NOT NULL REFERENCES requests,
  part INTEGER NOT NULL CHECK (part >= 0),
  count INTEGER NOT NULL CHECK (count >= 1),
  rows BLOB NOT NULL CHECK (length(rows) = 4 * count),
  truths TEXT NOT NULL,
  right BLOB NOT NULL CHECK (length(right) = count),{SUM}
  PRIMARY KEY (request, part)
) STRICT, WITHOUT ROWID;
{COUNTS.format(table="counters")}
{COUNTS.format(table="folded")}
"""


class RecordTable(NamedTuple):
    """A table whose rows are records: a field is a column, in JSON unless SQL has its type."""

    record: Any
    key: int = 1  # how many of the first columns

    @property
    def fields(self) -> tuple[msgspec.structs.FieldInfo, ...]:
        return msgspec.structs.fields(self.record)

    def statement(self, name: str) -> str:
        columns = "\n".join(
            f"  {field.name} {KINDS.get(field.type, 'TEXT NOT NULL')}," for field in self.fields
        )
        key = ", ".join(field.name for field in self.fields[: self.key])
        return (
            f"CREATE TABLE IF NOT EXISTS {name} (\n{columns}{SUM}\n  PRIMARY KEY ({key})\n"
            ") STRICT, WITHOUT ROWID"
        )


KINDS = {
    int: "INTEGER NOT NULL",
    bool: "INTEGER NOT NULL",
    int | None: "INTEGER",
    bytes: "BLOB NOT NULL",
}
AS_THEY_ARE = (str, int, ArmKind, int | None, bytes)
RECORDS = {
    "site": RecordTable(SiteRecord),
    "sources": RecordTable(SourceState),
    "cells": RecordTable(CellLine, 3),
    "arm_counters": RecordTable(CountedArm, 3),
    "beliefs": RecordTable(Belief, 3),
    "belief_notes": RecordTable(BeliefNotes, 3),
    "relations": RecordTable(RelationLine, 2),
    "own_labels": RecordTable(OwnLabel),
    "answered": RecordTable(AnsweredRows, 2),
    "outbox": RecordTable(Delivery, 2),
    "arms": RecordTable(Arm),
    "payments": RecordTable(DayPayments, 3),
    "series": RecordTable(SeriesLine, 2),
    "shadow_spans": RecordTable(ShadowSpan),
    "shadow_rows": RecordTable(ShadowRow, 2),
}
SCHEMA += ";\n".join(table.statement(name) for name, table in RECORDS.items())
# What a start reads.
LOADED: list[type[msgspec.Struct]] = [
    SourceState,
    CellLine,
    CountedArm,
    Belief,
    BeliefNotes,
    RelationLine,
    OwnLabel,
    AnsweredRows,
    Delivery,
    Arm,
]
# What is counted again if other settings mean other counters.
COUNTED_AGAIN = ("cells", "arm_counters", "beliefs", "belief_notes")
NAME_OF: dict[Any, str] = {table.record: name for name, table in RECORDS.items()}
NAMES = re.findall("CREATE TABLE IF NOT EXISTS ([a-z_]+)", SCHEMA)
SUMS = ("counters", "folded")  # of labels: without checksums
FLAGGED = ("requests",)  # whose last column is a flag that is cleared
CHANGED = "the schema is damaged"
CLOSE = ("UPDATE requests SET is_open = 0, sum = ~sum WHERE is_open = 1 AND number IN ({rows})", 1)
JOIN = """
UPDATE requests SET predictions = ?, peer_answers = ?, sum = ? WHERE is_open = 1 AND number = ?
"""
ADD_LABELS = """
INSERT INTO {table} VALUES {{rows}} ON CONFLICT (cell, source, arm) DO UPDATE
SET labels = {table}.labels + excluded.labels, "right" = {table}."right" + excluded."right"
"""
TRUTHS = """
SELECT labels.* FROM requests CROSS JOIN labels ON request = number
WHERE {which} ORDER BY number, part
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
SELECT COUNT(*), COALESCE(SUM(rows), 0), (SELECT COALESCE(SUM(count), 0) FROM labels),
(SELECT COUNT(*) FROM outbox) FROM requests
"""
GROUPS = msgspec.json.Decoder(list[RowGroup])
PEER_ANSWERS = msgspec.json.Decoder(dict[int, PeerAnswer])
Record = TypeVar("Record", bound=msgspec.Struct)
_encode = msgspec.msgpack.Encoder().encode
ALL, OPEN, FROM_TO = "1 = 1", "is_open = 1", "number BETWEEN ? AND ?"
BETWEEN = f"{FROM_TO} AND is_open = 0"
LISTED = "number IN ({wanted})"
LABELS_OF = "SELECT request, rows FROM labels WHERE request IN ({wanted})"


RowStatement = tuple[str, int]  # with the place of its rows, and the number of their columns


class StoredTable(NamedTuple):
    """The columns of a table, and those of its primary key."""

    columns: tuple[str, ...]
    key: tuple[str, ...]


def _table(text: str) -> StoredTable:
    columns = re.findall(r"^  ([a-z_]+) [A-Z]+", text, re.MULTILINE)
    key = re.search(r"PRIMARY KEY \((.+)\)", text)
    return StoredTable(tuple(columns), tuple(key[1].split(", ")) if key else (columns[0],))


TABLES = {
    name: _table(text)
    for name, text in re.findall(
        r"CREATE TABLE IF NOT EXISTS ([a-z_]+) \(\n(.+?)\n\) STRICT", SCHEMA, re.DOTALL
    )
}


@cache
def insert(table: str) -> RowStatement:
    """Return the statement that adds rows; one with a key that is there is an error."""
    return f"INSERT INTO {table} VALUES {{rows}}", len(TABLES[table].columns)


@cache
def insert_new(table: str) -> RowStatement:
    """Return the statement that adds rows with keys that are not there."""
    text, columns = insert(table)
    return f"{text} ON CONFLICT DO NOTHING", columns


@cache
def upsert(table: str) -> RowStatement:
    """Return the statement that adds rows or replaces those with the same keys."""
    columns, key = TABLES[table]
    others = ", ".join(
        f'"{column}" = excluded."{column}"' for column in columns if column not in key
    )
    text, count = insert(table)
    return f"{text} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {others}", count


@cache
def add_labels(table: str) -> RowStatement:
    """Return the statement that adds to the counts of labels."""
    return ADD_LABELS.format(table=table), len(TABLES[table].columns)


@cache
def select(table: str) -> str:
    """Return the query of all rows, in the order of their keys."""
    return f"SELECT * FROM {table} ORDER BY {', '.join(TABLES[table].key)}"


@cache
def with_places(query: str, count: int) -> str:
    """Return a query for so many wanted values."""
    return query.format(wanted=", ".join(["(?)"] * count))


@cache
def statement_for(statement: RowStatement, rows: int) -> str:
    """Return a statement for so many rows of its number of columns."""
    text, columns = statement
    return text.format(rows=", ".join(["(" + ", ".join("?" * columns) + ")"] * rows))


def as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def outdated(lines: Sequence[SeriesLine]) -> list[tuple[int, int]]:
    """Return the lengths of spans of time, and before when those of a length are not kept.

    With the line of an hour these are removed, and not with every minute.
    """
    hours = [line.at for line in lines if line.every_s == HOUR_S]
    return [(every_s, max(hours) - kept_s) for every_s, kept_s in SPANS_KEPT.items() if hours]


# -- checksums ----------------------------------------------------------------------------------


def sealed(columns: Sequence[Any]) -> tuple[Any, ...]:
    """Return the columns of a row with their checksum, a CRC-32 as a signed number."""
    return *columns, zlib.crc32(_encode(columns)) - 0x80000000


def sealed_flagged(columns: Sequence[Any]) -> tuple[Any, ...]:
    """Return the columns of a row whose last one is a flag: 0 complements the checksum.

    So a statement can clear the flag without the other columns.
    """
    checksum = zlib.crc32(_encode(columns[:-1])) - 0x80000000
    return *columns, checksum if columns[-1] else ~checksum


SEALS = {name: sealed_flagged if name in FLAGGED else sealed for name in NAMES if name not in SUMS}


class DamagedRow(Exception):
    """A row that does not fit its checksum."""


def opened(table: str, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows without their checksums; raise `DamagedRow` for one that does not fit it."""
    seal = SEALS[table]
    for row in rows:
        columns = tuple(row[:-1])
        if seal(columns)[-1] != row[-1]:
            raise DamagedRow(f"{_named(table, columns)} does not fit its checksum")
        yield columns


def damaged(base: Database) -> Iterator[str]:
    """Yield a sentence for each row that does not fit its checksum."""
    for table, seal in SEALS.items():
        try:
            for row in base.stream(select(table)):
                if seal(row[:-1])[-1] != row[-1]:
                    yield f"{_named(table, row)} does not fit its checksum"
        except base.errors as error:
            yield f"table {table} cannot be read: {error}"


def _named(table: str, columns: Sequence[Any]) -> str:
    return f"the row of table {table} that begins with {columns[0]!r:.60}"


# -- records and columns: `..._columns` returns those of a record, `..._of` a record of them ------


def request_columns(request: Request) -> tuple[Any, ...]:
    contexts: Any = request.contexts
    if not isinstance(contexts, np.ndarray):
        contexts = array("d", chain.from_iterable(contexts))
    is_same = request.answers is request.predictions
    # Before the predictions: an answer that comes meanwhile must not count as one that is known.
    helped = as_text(dict(request.peer_answers)) if request.peer_answers else None
    return (
        request.number,
        request.source,
        request.id,
        request.digest,
        request.slot,
        len(request),
        request.space,
        *group_columns(request),
        None if request.slots is None else array("q", request.slots).tobytes(),
        contexts.tobytes(),
        _encoded(request.predictions, request.scored),
        None if is_same else _encoded(request.answers),
        helped,
        None if request.row_ids is None else as_text(request.row_ids),
        request.price,
        int(request.is_open),
    )


def join_columns(request: Request) -> tuple[Any, ...]:
    """Return what `JOIN` writes of an open request whose late answer has come."""
    *columns, _ = request_columns(request)
    sealed_columns = sealed_flagged([*columns, 1])
    return sealed_columns[11], sealed_columns[13], sealed_columns[-1], request.number


def group_columns(request: Request) -> tuple[str, bytes | None]:
    """Return the columns of groups, without their codes, and of the group of each row."""
    of_row = None
    if len(request.groups) > 1:
        of_row = np.asarray(request.group_of, np.uint32).tobytes()
    return as_text([msgspec.structs.astuple(group)[:-1] for group in request.groups]), of_row


def row_id_columns(request: Request) -> list[tuple[str, str, int, int]]:
    """Return the ids of all rows but the first, whose id is that of the request."""
    ids = (request.row_ids or ())[1:]
    return [(request.source, id_, request.number, row) for row, id_ in enumerate(ids, 1)]


def request_of(columns: Sequence[Any]) -> Request:
    """Return a request from the columns of its table, without its labels."""
    number, source, id_, digest, slot, rows, space, groups, group_of, slots, contexts = columns[:11]
    predictions, answers, peer_answers, row_ids, price, is_open = columns[11:]
    known, scored = _decoded(predictions, rows)
    return Request(
        number=number,
        source=source,
        id=id_,
        digest=digest,
        slot=slot,
        slots=None if slots is None else array("q", slots).tolist(),
        space=space,
        groups=GROUPS.decode(groups),
        group_of=_group_of(group_of, rows),
        contexts=_contexts(contexts, rows),
        predictions=known,
        answers=known if answers is None else _decoded(answers, rows)[0],
        peer_answers=NONE if peer_answers is None else PEER_ANSWERS.decode(peer_answers),
        row_ids=None if row_ids is None else msgspec.json.decode(row_ids),
        truths=[UNKNOWN] * rows,
        scored=scored,
        price=price,
        is_open=bool(is_open),
        is_stored=True,
    )


@cache
def _columns(record: Any) -> list[Callable[[Any], Any] | None]:
    """Return what makes columns of the fields of a record; None: nothing."""
    kinds = [field.type for field in msgspec.structs.fields(record)]
    return [None if kind in AS_THEY_ARE else int if kind is bool else as_text for kind in kinds]


@cache
def _decoders(record: Any) -> list[Callable[[Any], Any] | None]:
    kinds = [field.type for field in msgspec.structs.fields(record)]
    return [
        None if kind in AS_THEY_ARE else bool if kind is bool else msgspec.json.Decoder(kind).decode
        for kind in kinds
    ]


def columns_of(record: msgspec.Struct) -> tuple[Any, ...]:
    """Return the columns of a record of `RECORDS`, with their checksum."""
    values = zip(_columns(type(record)), msgspec.structs.astuple(record), strict=True)
    return sealed([value if make is None else make(value) for make, value in values])


def record_of(kind: type[Record], columns: Sequence[Any]) -> Record:
    """Return the record of columns without their checksum."""
    values = zip(_decoders(kind), columns, strict=True)
    return kind(*(value if make is None else make(value) for make, value in values))


def label_columns(part: LabelPart) -> tuple[Any, ...]:
    rows = array("I", part.rows).tobytes()
    return part.request, part.part, len(part.rows), rows, as_text(part.truths), bytes(part.right)


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


def row_numbers(content: bytes) -> list[int]:
    """Return the numbers of rows, or of groups, from a column."""
    return array("I", content).tolist()


def _encoded(labels: Sequence[Any], scored: Mapping[int, Any] = NONE) -> str:
    """Return labels as text; answers of free functions follow as an object, which no label is."""
    if NO_ANSWER in labels or type(labels[0]) is Late:
        labels = [None if label is NO_ANSWER or type(label) is Late else label for label in labels]
    return as_text([*labels, dict(scored)] if scored else labels)


def _decoded(text: str, rows: int) -> tuple[list[Any], Mapping[int, Any]]:
    labels = msgspec.json.decode(text)
    scored = NONE
    if len(labels) > rows:
        scored = {int(row): answers for row, answers in labels.pop().items()}
    return [NO_ANSWER if label is None else label for label in labels], scored
