"""What a site must keep, in one SQLite file: requests, labels, counters, labels for peers.

A commit is written whole or not at all, and `commit` returns only when it is on the disk. A label
is acknowledged after that. One process has the file at a time.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from covey.errors import StoreError, StoreFailed, StoreFull
from covey.node import migration, tables
from covey.node.requests import (
    Arm,
    Asked,
    CellLine,
    Commit,
    Counts,
    Delivery,
    LabelPart,
    Loaded,
    Request,
    SetAside,
    StoreChange,
    add_counts,
)

PRUNED_AT_ONCE = 256  # rows that are folded in one commit at least, if there are too many
BLOOM_BITS = 25  # 2**25 bits for a million ids: about 3 in 1,000 unknown ones are taken for known
READ_AT_ONCE = 4096  # requests, where all are read
_MASK = (1 << BLOOM_BITS) - 1


class BloomFilter:
    """Tells which ids are certainly unknown, without keeping them."""

    def __init__(self) -> None:
        self._bits = bytearray(1 << BLOOM_BITS - 3)

    def add(self, key: tuple[str, str]) -> None:
        """Add the id of a source."""
        for place in _places(key):
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, key: tuple[str, str]) -> bool:
        """Return whether the id may have been added; if not, it was not."""
        return all(self._bits[place >> 3] >> (place & 7) & 1 for place in _places(key))


def _places(key: tuple[str, str]) -> tuple[int, int]:
    # `hash` differs from process to process, so no client can choose ids that collide with others.
    number = hash(key)
    return number & _MASK, number >> 32 & _MASK


class Store:
    """The file of one site; `Store.memory()` keeps the same in memory, for as long as it lives."""

    def __init__(
        self,
        path: str | Path,
        *,
        is_new_allowed: bool = True,
        rows_kept: int = 1_000_000,
        connect: Callable[..., sqlite3.Connection] | None = None,
    ) -> None:
        """Of rows beyond `rows_kept`, the oldest are folded: only their counts are kept.

        A file of an older version is migrated, after a copy of it was written beside it.
        """
        self._path = str(path)
        self._rows_kept, self._rows = rows_kept, 0
        self._known: BloomFilter | None = None
        self.copy: Path | None = None  # of an older version, if the file was migrated
        is_file = self._path != ":memory:"
        if is_file and not is_new_allowed and not Path(path).exists():
            raise StoreError(f"there is no store {path}; give the file that a node has written")
        with self._sentences("opened"):
            self._base = (connect or _connect)(
                self._path, timeout=0, isolation_level=None, check_same_thread=False
            )
            try:
                self._set_up()
            except BaseException:
                self._base.close()
                raise

    @classmethod
    def memory(cls) -> "Store":
        """Return a store without a file."""
        return cls(":memory:")

    @property
    def path(self) -> str:
        """The file, or ":memory:"."""
        return self._path

    def load(self, name: str, fingerprint: str) -> Loaded:
        """Return what was written, for a site of this name; a new store gets this fingerprint.

        Raises `StoreError` if the store is of another site, or if its counters are not the sum of
        its labels.
        """
        with self._sentences("read"), self._transaction():
            self._base.execute(
                "INSERT OR IGNORE INTO site VALUES (1, ?, ?, 0)", (name, fingerprint)
            )
            self._base.execute("INSERT OR IGNORE INTO sources VALUES ('', 0, '{}', 'null', NULL)")
            self._base.execute("UPDATE site SET starts = starts + 1")
            self._check_site(name)
            self._rows = self._number("SELECT COALESCE(SUM(rows), 0) FROM requests")
            self._known = BloomFilter()
            for key in self._base.execute(tables.IDS):
                self._known.add(key)
            return self._load(self._requests(tables.OPEN), self._asked())

    def load_again(self, requests: list[Request], asked: Asked) -> Loaded:
        """Return what was written since it was loaded; open requests and `asked` are in memory."""
        with self._sentences("read"), self._transaction():
            return self._load(requests, asked)

    def commit(self, commit: Commit) -> None:
        """Write a commit and return when it is on the disk.

        Raises `StoreError` if that fails; then it is not known what is on the disk, and the store
        must not be used before it is opened again.
        """
        self.write(commit)
        self.sync(commit)

    def write(self, commit: Commit) -> None:
        """Do what there is to compute for a commit; the disk is left to `sync`, which must follow.

        Raises as `commit` does.
        """
        with self._sentences("written"):
            self._base.execute("BEGIN IMMEDIATE")
            with self._or_rolled_back():
                self._write(commit)

    def sync(self, commit: Commit) -> None:
        """Return when the commit that was written last is on the disk; raise as `commit` does."""
        with self._sentences("written"), self._or_rolled_back():
            rows = self._prune(sum(map(len, commit.requests)))
            self._base.execute("COMMIT")
        self._rows = rows
        if self._known is not None:
            for request in commit.requests:
                for one in request.row_ids or (request.id,):
                    self._known.add((request.source, one))

    def may_have(self, source: str, id: str) -> bool:  # noqa: A002 - as in a request
        """Return whether `find` may find something, without reading; if not, there is nothing."""
        return self._known is None or (source, id) in self._known

    def find(self, source: str, id: str) -> tuple[Request, int | None] | None:  # noqa: A002
        """Return the request of a source with this id, however old; None if there is none.

        Where the source has an id for each row, the number of the row is returned with it.
        """
        with self._sentences("read"):
            found = self._base.execute(
                "SELECT number, CASE WHEN row_ids IS NULL THEN NULL ELSE 0 END FROM requests "
                "WHERE source = ?1 AND id = ?2 "
                "UNION ALL SELECT request, row FROM row_ids WHERE source = ?1 AND id = ?2",
                (source, id),
            ).fetchall()
            if not found:
                return None
            number, row = found[0]
            (request,) = self._requests(tables.ONE, (number,))
            return request, row

    def counters(self) -> Counts:
        """Return cell, source, arm -> labels, right."""
        with self._sentences("read"):
            rows = self._base.execute("SELECT * FROM counters").fetchall()
        return {(cell, source, arm): (labels, right) for cell, source, arm, labels, right in rows}

    def arms(self) -> list[Arm]:
        """Return the arms that the site has or had."""
        with self._sentences("read"):
            return [Arm(*columns) for columns in self._base.execute("SELECT * FROM arms")]

    def set_aside(self, id: str) -> list[SetAside]:  # noqa: A002 - the field of an arm
        """Return what tables held of a retired arm."""
        query = "SELECT * FROM set_aside WHERE id = ?"
        with self._sentences("read"):
            rows = self._base.execute(query, (id,)).fetchall()
        return [
            SetAside(id_, source, cell, msgspec.json.decode(counters))
            for id_, source, cell, counters in rows
        ]

    def requests(self) -> Iterator[Request]:
        """Return all requests that are still stored with their labels, in order."""
        first = 1
        with self._sentences("read"):
            last = self._number("SELECT COALESCE(MAX(number), 0) FROM requests")
            while first <= last:
                yield from self._requests(tables.FROM_TO, (first, first + READ_AT_ONCE - 1))
                first += READ_AT_ONCE

    def change(self, change: StoreChange) -> None:
        """Write what another configuration changes.

        Raises `StoreFull`, and then nothing has changed, or `StoreFailed`, and then it is not known
        what is on the disk.
        """
        try:
            self._change(change)
        except StoreFull:
            raise
        except StoreError as error:
            raise StoreFailed(str(error)) from error

    def _change(self, change: StoreChange) -> None:
        with self._sentences("written"), self._transaction():
            base = self._base
            base.execute("UPDATE site SET fingerprint = ?", (change.fingerprint,))
            base.execute("DELETE FROM arms")
            rows = map(msgspec.structs.astuple, change.arms)
            base.executemany("INSERT INTO arms VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            if change.cells is not None:
                base.execute("DELETE FROM cells")
                self._write(Commit(sources=change.sources, cells=change.cells))
            base.executemany("DELETE FROM set_aside WHERE id = ?", [(i,) for i in change.returned])
            aside = [
                (*msgspec.structs.astuple(one)[:3], tables.as_text(one.counters))
                for one in change.set_aside
            ]
            base.executemany("INSERT OR REPLACE INTO set_aside VALUES (?, ?, ?, ?)", aside)
            groups = [(*tables.group_columns(one), one.request.number) for one in change.requests]
            base.executemany("UPDATE requests SET groups=?, group_of=? WHERE number=?", groups)

    def check(self) -> list[str]:
        """Count all labels again; return a sentence for each counter that differs."""
        with self._sentences("read"):
            broken = [row[0] for row in self._base.execute("PRAGMA integrity_check")]
        found = [] if broken == ["ok"] else [f"SQLite finds: {one}" for one in broken]
        return found + self._differences()

    def size(self) -> dict[str, int]:
        """Return how many requests, rows, labels and undelivered labels there are."""
        names = ("requests", "rows", "labels", "deliveries")
        with self._sentences("read"):
            return dict(zip(names, self._base.execute(tables.TOTALS).fetchone(), strict=True))

    def close(self) -> None:
        """Release the file."""
        self._base.close()

    # -- opening --------------------------------------------------------------------------------

    def _set_up(self) -> None:
        for setting in (
            "locking_mode = EXCLUSIVE",
            "journal_mode = WAL",
            "synchronous = FULL",
            # If a sync failed before, the system takes the log for written though it is not: its
            # content is written again, so that nothing depends on it.
            "wal_checkpoint(TRUNCATE)",
        ):
            self._base.execute(f"PRAGMA {setting}").fetchall()
        with self._transaction():
            application = self._number("PRAGMA application_id")
            is_empty = not self._number("SELECT COUNT(*) FROM sqlite_schema")
            if is_empty and not application:
                self._create()
        if not is_empty or application:
            self._check_file(application)
            if self._number("PRAGMA user_version") < tables.VERSION:
                self.copy = migration.keep_copy(self._base, Path(self._path))
                with self._transaction():
                    migration.migrate(self._base, self._create)
        self._base.execute("PRAGMA foreign_keys = ON")

    def _check_file(self, application: int) -> None:
        if application != tables.APPLICATION:
            raise StoreError(f"{self._path} is not a store of covey; give another file")
        version = self._number("PRAGMA user_version")
        if version > tables.VERSION:
            raise StoreError(
                f"{self._path} was written by a newer covey (its form is {version}, this one "
                f"knows {tables.VERSION}); use that one"
            )
        (found,) = self._base.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise StoreError(f"{self._path} is damaged ({found}); restore it from a copy")

    def _create(self) -> None:
        for statement in tables.SCHEMA.split(";"):
            self._base.execute(statement)
        self._base.execute(f"PRAGMA application_id = {tables.APPLICATION}")
        self._base.execute(f"PRAGMA user_version = {tables.VERSION}")

    # -- reading --------------------------------------------------------------------------------

    def _number(self, query: str) -> int:
        return int(self._base.execute(query).fetchone()[0])

    def _check_site(self, name: str) -> None:
        (kept,) = self._base.execute("SELECT name FROM site").fetchone()
        if kept != name:
            raise StoreError(
                f"{self._path} is the store of site {kept!r}, not of {name!r}; give each its own "
                "file"
            )
        found = self._differences()
        if found:
            raise StoreError(f"{self._path} is damaged: {found[0]}; restore it from a copy")

    def _differences(self) -> list[str]:
        kept = self.counters()
        with self._sentences("read"):
            counted = tables.count_labels(self._base, tables.ALL)
            for cell, source, arm, *counts in self._base.execute("SELECT * FROM folded"):
                add_counts(counted, {(cell, source, arm): (counts[0], counts[1])})
        return [
            _difference(key, kept.get(key, (0, 0)), counted.get(key, (0, 0)))
            for key in sorted(kept.keys() | counted.keys())
            if kept.get(key) != counted.get(key)
        ]

    def _asked(self) -> Asked:
        asked = tables.count_asked(self._base, tables.ALL)
        for cell, peer, *counts in self._base.execute("SELECT * FROM folded_asked"):
            add_counts(asked, {(cell, peer): (counts[0], counts[1])})
        return asked

    def _load(self, requests: list[Request], asked: Asked) -> Loaded:
        sources = {
            row[0]: tables.source_of(row) for row in self._base.execute("SELECT * FROM sources")
        }
        cells: dict[str, list[CellLine]] = {source: [] for source in sources}
        for cell in map(tables.cell_of, self._base.execute("SELECT * FROM cells")):
            cells.setdefault(cell.source, []).append(cell)
        deliveries = self._base.execute("SELECT * FROM outbox ORDER BY peer, id")
        return Loaded(
            sources,
            cells,
            self.counters(),
            [Delivery(peer, id_, msgspec.json.decode(label)) for peer, id_, label in deliveries],
            asked,
            self._number("SELECT starts FROM site"),
            requests,
            self._number("SELECT COALESCE(MAX(number), 0) FROM requests"),
            self._base.execute("SELECT fingerprint FROM site").fetchone()[0],
            self.arms(),
        )

    def _requests(self, which: str, given: Sequence[Any] = ()) -> list[Request]:
        rows = self._base.execute(f"SELECT * FROM requests WHERE {which} ORDER BY number", given)  # noqa: S608
        requests = {row[0]: tables.request_of(row) for row in rows}
        for number, places, truths in self._base.execute(tables.TRUTHS.format(which=which), given):
            request = requests[number]
            request.parts += 1
            for row, truth in zip(
                tables.row_numbers(places), msgspec.json.decode(truths), strict=True
            ):
                request.truths[row] = truth
        return list(requests.values())

    # -- writing --------------------------------------------------------------------------------

    def _write(self, commit: Commit) -> None:
        base = self._base
        base.executemany(
            "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?, ?)",
            map(tables.source_columns, commit.sources),
        )
        base.executemany(
            "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?)",
            map(tables.cell_columns, commit.cells),
        )
        self._execute(tables.INSERT_REQUEST, map(tables.request_columns, commit.requests))
        row_ids = map(tables.row_id_columns, commit.requests)
        self._execute(tables.INSERT_ROW_ID, chain.from_iterable(row_ids))
        self._write_labels(commit.labels.values())
        base.executemany(tables.ADD_LABELS.format(table="counters"), _rows(commit.counts))
        self._execute(tables.CLOSE, ((number,) for number in commit.closed))
        rows = [(one.peer, one.id, tables.as_text(one.label)) for one in commit.deliveries]
        base.executemany("INSERT OR IGNORE INTO outbox VALUES (?, ?, ?)", rows)
        base.executemany(
            "DELETE FROM outbox WHERE peer = ? AND id = ?",
            [(one.peer, one.id) for one in commit.delivered],
        )

    def _write_labels(self, parts: Iterable[LabelPart]) -> None:
        try:
            for part in parts:
                self._check_unlabelled(part)
            self._execute(tables.INSERT_LABELS, map(tables.label_columns, parts))
        except sqlite3.IntegrityError as error:
            raise StoreError(
                f"{self._path} was given the label of a row that waits for none; nothing of the "
                "commit was written"
            ) from error

    def _check_unlabelled(self, part: LabelPart) -> None:
        """Raise if a row has a label already; a first part needs no look at the file."""
        rows = list(part.rows)
        if part.part:
            query = "SELECT rows FROM labels WHERE request = ?"
            for (places,) in self._base.execute(query, (part.request,)):
                rows += tables.row_numbers(places)
        if len(set(rows)) < len(rows):
            raise sqlite3.IntegrityError("a row has two labels")

    def _execute(self, statement: tuple[str, int], rows: Iterable[Sequence[Any]]) -> None:
        """Write rows in few statements: threads take turns at each of them."""
        waiting = list(rows)
        for size in tables.SIZES:
            while len(waiting) >= size:
                given = list(chain.from_iterable(waiting[:size]))
                self._base.execute(tables.statement_for(statement, size), given)
                del waiting[:size]

    # -- pruning --------------------------------------------------------------------------------

    def _prune(self, new: int) -> int:
        """Fold old rows faster than new ones come, if there are too many; return the rest."""
        rows = self._rows + new
        excess = min(rows - self._rows_kept, 2 * new + PRUNED_AT_ONCE)
        while excess > 0:
            folded = self._fold(excess)
            if not folded:
                break
            rows, excess = rows - folded, excess - folded
        return rows

    def _fold(self, excess: int) -> int:
        """Fold the oldest closed requests, the last of which may exceed `excess`; return rows."""
        base = self._base
        oldest, folded = [], 0
        for request in base.execute(tables.OLDEST, (min(excess, PRUNED_AT_ONCE),)).fetchall():
            oldest.append(request)
            folded += request[1]
            if folded >= excess:
                break
        if not oldest:
            return 0
        # Open requests between them have numbers of this range, too, and stay.
        where = (oldest[0][0], oldest[-1][0])
        counts = tables.count_labels(base, tables.BETWEEN, where)
        asked = tables.count_asked(base, tables.BETWEEN, where)
        base.executemany(tables.ADD_LABELS.format(table="folded"), _rows(counts))
        base.executemany(tables.ADD_ASKED, _rows(asked))
        names = [(one[2], id_) for one in oldest for id_ in msgspec.json.decode(one[3] or "[]")]
        base.executemany("DELETE FROM row_ids WHERE source = ? AND id = ?", names)
        numbers = [(one[0],) for one in oldest]
        base.executemany("DELETE FROM labels WHERE request = ?", numbers)
        base.execute(f"DELETE FROM requests WHERE {tables.BETWEEN}", where)  # noqa: S608
        return folded

    # -- transactions and errors ----------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        with self._or_rolled_back():
            yield
            self._base.execute("COMMIT")

    @contextlib.contextmanager
    def _or_rolled_back(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # A commit that failed may have rolled back by itself.
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _sentences(self, verb: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            kind = StoreFull if name == "SQLITE_FULL" else StoreError
            raise kind(_sentence(self._path, verb, error)) from error


def _connect(path: str, **given: Any) -> sqlite3.Connection:
    """Open a file; a new one, and so its log, is for its owner alone."""
    if path != ":memory:":
        with contextlib.suppress(OSError):  # SQLite has a better message
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    base: sqlite3.Connection = sqlite3.connect(path, **given)
    return base


def _sentence(path: str, verb: str, error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_BUSY"):
        return f"{path} is in use by another process; a store has one node at a time"
    if name.startswith("SQLITE_CANTOPEN"):
        folder = Path(path).parent
        return f"{path} cannot be opened; is there a folder {folder}, and may it be written?"
    if name in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
        return f"{path} is damaged, or not a store of covey ({error}); restore it from a copy"
    if name == "SQLITE_FULL":
        return f"{path} cannot be written, the disk is full; make room, and the node continues"
    return f"{path} cannot be {verb}: {error}"


def _rows(sums: Counts | Asked) -> list[tuple[Any, ...]]:
    return [(*key, *counted) for key, counted in sums.items()]


def _difference(key: Sequence[str], kept: tuple[int, int], counted: tuple[int, int]) -> str:
    cell, source, arm = key
    return (
        f"cell {cell}, source {source or 'own'}, arm {arm}: {kept[1]} right of {kept[0]} are kept, "
        f"but the labels of the requests have {counted[1]} of {counted[0]}"
    )
