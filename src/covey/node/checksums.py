"""A checksum in every row of a store, so that no damage of a row goes unseen.

SQLite finds damage of its own structure, but not a changed bit within a value; its checksum VFS is
a C extension that Python's `sqlite3` cannot set up. Counters and folded sums have no checksum of
their own: each is the sum of labels that have one.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from covey.node import tables

_encode = msgspec.msgpack.Encoder().encode


def sealed(columns: Sequence[Any]) -> tuple[Any, ...]:
    """Return the columns of a row with their checksum, a CRC-32 as a signed number."""
    return *columns, zlib.crc32(_encode(columns)) - 0x80000000


def sealed_flagged(columns: Sequence[Any]) -> tuple[Any, ...]:
    """Return the columns of a row whose last one is a flag: 0 complements the checksum.

    So a statement can clear the flag without the other columns.
    """
    found = zlib.crc32(_encode(columns[:-1])) - 0x80000000
    return *columns, found if columns[-1] else ~found


SEALS = {
    name: sealed_flagged if name in tables.FLAGGED else sealed
    for name in tables.NAMES
    if name not in tables.SUMS
}


def opened(table: str, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows without their checksums; raise `sqlite3.DatabaseError` for a damaged one."""
    seal = SEALS[table]
    for row in rows:
        columns = tuple(row[:-1])
        if seal(columns)[-1] != row[-1]:
            error = sqlite3.DatabaseError(f"{_named(table, columns)} does not fit its checksum")
            error.sqlite_errorname = "SQLITE_CORRUPT"
            raise error
        yield columns


def damaged(base: sqlite3.Connection) -> Iterator[str]:
    """Yield a sentence for each row that does not fit its checksum, and for a changed schema."""
    with sqlite3.connect(":memory:") as fresh:
        for statement in tables.SCHEMA.split(";"):
            fresh.execute(statement)
        expected = _schema(fresh)
    fresh.close()
    if _schema(base) != expected:
        yield "the schema is damaged"
        return
    for table, seal in SEALS.items():
        try:
            for row in base.execute(f"SELECT * FROM {table}"):  # noqa: S608 - a name of ours
                if seal(row[:-1])[-1] != row[-1]:
                    yield f"{_named(table, row)} does not fit its checksum"
        except sqlite3.Error as error:
            yield f"table {table} cannot be read: {error}"


def _schema(base: sqlite3.Connection) -> list[Any]:
    found = base.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
    return [tuple(row) for row in found]


def _named(table: str, columns: Sequence[Any]) -> str:
    return f"the row of table {table} that begins with {columns[0]!r:.60}"
