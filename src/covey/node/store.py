"""What a site must keep, in one SQLite file: requests, labels, counters, labels for peers.

A commit is written whole or not at all, and `commit` returns only when it is on the disk. A label
is acknowledged after that. One process has the file at a time.
"""

import contextlib
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey.errors import StoreError, StoreFailed, StoreFull
from covey.node import migration, store_file, tables
from covey.node.requests import (
    Arm,
    Asked,
    CellLine,
    Commit,
    Counts,
    Delivery,
    LabelPart,
    Loaded,
    Payment,
    Regrouped,
    Request,
    SeriesLine,
    SetAside,
    SourceState,
    StoreChange,
    add_counts,
)
from covey.node.store_file import StoreFile
from covey.node.tables import opened, sealed, sealed_flagged

PRUNED_AT_ONCE = 256  # rows that are folded in one commit at least, if there are too many
IDS_AT_ONCE = 498  # in one query, which names them twice; older SQLite takes 999 parameters
BLOOM_BITS = 25  # 2**25 bits for a million ids: about 3 in 1,000 unknown ones are taken for known
ADDED_AT_ONCE = 65_536
READ_AT_ONCE = 4096  # requests, where all are read
_MASK = (1 << BLOOM_BITS) - 1


class BloomFilter:
    """Tells which ids are certainly unknown, without keeping them."""

    def __init__(self) -> None:
        self._bits = bytearray(1 << BLOOM_BITS - 3)

    def add(self, key: tuple[str, str]) -> None:
        """Add the id of a source."""
        for place in _places(hash(key)):
            self._bits[place >> 3] |= 1 << (place & 7)

    def add_many(self, keys: Iterable[tuple[str, str]]) -> None:
        """Add ids of sources, at a tenth of the time."""
        bits, numbers = np.frombuffer(self._bits, np.uint8), map(hash, keys)
        while len(some := np.fromiter(islice(numbers, ADDED_AT_ONCE), np.int64)):
            for places in _places(some):
                np.bitwise_or.at(bits, places >> 3, (1 << (places & 7)).astype(np.uint8))

    def __contains__(self, key: tuple[str, str]) -> bool:
        """Return whether the id may have been added; if not, it was not."""
        return all(self._bits[place >> 3] >> (place & 7) & 1 for place in _places(hash(key)))


def _places(numbers: Any) -> tuple[Any, Any]:
    """Return the two places of a hash, or of an array of hashes.

    `hash` differs from process to process, so no client can choose ids that collide with others.
    """
    return numbers & _MASK, numbers >> 32 & _MASK


class Store:
    """The file of one site; `Store.memory()` keeps the same in memory, for as long as it lives."""

    def __init__(
        self,
        path: str | Path,
        *,
        is_new_allowed: bool = True,
        rows_kept: int = 1_000_000,
        connect: Callable[..., sqlite3.Connection] | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Of rows beyond `rows_kept`, the oldest are folded: only their counts are kept.

        `tell` gets a sentence before each step of a start that takes seconds for a large store. A
        file of an earlier version is migrated, after a copy of it was written beside it.
        """
        self._path = str(path)
        self._tell = tell
        self._rows_kept, self._rows = rows_kept, 0
        self._known: BloomFilter | None = None
        self.copy: Path | None = None  # of the earlier version, if the file was migrated
        self.is_new = False  # the file was made by this store
        self._file: StoreFile | None = None
        # A disk of its own (`connect`) has no files that could be looked at.
        if self._path != ":memory:" and not connect:
            self._file = StoreFile(Path(self._path), is_new_allowed=is_new_allowed)
        with self._sentences("opened"):
            self._base = (connect or store_file.connect)(
                self._path, timeout=0, isolation_level=None, check_same_thread=False
            )
            try:
                self._set_up()
            except BaseException:
                self._base.close()
                raise
        if connect is None:
            weakref.finalize(self, self._base.close)  # Python 3.13 warns of open connections
        if self._file is not None:
            self._file.watch()

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
            self._start(name, fingerprint)
            self._rows = self._number("SELECT TOTAL(rows) FROM requests")
            self._known = BloomFilter()
            self._known.add_many(self._base.execute(tables.IDS))
            loaded = self._load(self._requests(tables.OPEN), self._asked())
        self._tell(f"{self._path} is read: {len(loaded.requests)} requests wait for labels")
        return loaded

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
        self._check_files()
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
        return self.find_many(source, [id]).get(id)

    def find_many(self, source: str, ids: Sequence[str]) -> dict[str, tuple[Request, int | None]]:
        """Return by id what `find` returns; ids that there are not are left out."""
        with self._sentences("read"):
            found: list[tuple[str, int, int | None]] = []
            for start in range(0, len(ids), IDS_AT_ONCE):
                some = ids[start : start + IDS_AT_ONCE]
                query = tables.FIND.format(wanted=", ".join("?" * len(some)))
                found += self._base.execute(query, (source, *some) * 2)  # 3.12 warns of numbers
            if not found:
                return {}
            numbers = tables.as_text(sorted({number for _, number, _ in found}))
            requests = {one.number: one for one in self._requests(tables.LISTED, (numbers,))}
            return {id_: (requests[number], row) for id_, number, row in found}

    def counters(self) -> Counts:
        """Return cell, source, arm -> labels, right."""
        with self._sentences("read"):
            rows = self._base.execute("SELECT * FROM counters").fetchall()
        return {(cell, source, arm): (labels, right) for cell, source, arm, labels, right in rows}

    def arms(self) -> list[Arm]:
        """Return the arms that the site has or had."""
        with self._sentences("read"):
            return [Arm(*columns) for columns in self._all("arms")]

    def set_aside(self, id: str) -> list[SetAside]:  # noqa: A002 - the field of an arm
        """Return what tables held of a retired arm."""
        query = "SELECT * FROM set_aside WHERE id = ?"
        with self._sentences("read"):
            rows = opened("set_aside", self._base.execute(query, (id,)))
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
            one, name, _, starts = next(self._all("site"))
            self._write_site((one, name, change.fingerprint, starts))
            base.execute("DELETE FROM arms")
            rows = map(sealed, map(msgspec.structs.astuple, change.arms))
            base.executemany("INSERT INTO arms VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            if change.cells is not None:
                base.execute("DELETE FROM cells")
                self._write(Commit(sources=change.sources, cells=change.cells))
            base.executemany("DELETE FROM set_aside WHERE id = ?", [(i,) for i in change.returned])
            aside = [
                sealed((*msgspec.structs.astuple(one)[:3], tables.as_text(one.counters)))
                for one in change.set_aside
            ]
            base.executemany("INSERT OR REPLACE INTO set_aside VALUES (?, ?, ?, ?, ?)", aside)
            for one in change.requests:
                self._regroup(one)
        self._check_files()

    def _regroup(self, one: Regrouped) -> None:
        """Give a stored request other groups."""
        number = (one.request.number,)
        found = self._base.execute(f"SELECT * FROM requests WHERE {tables.ONE}", number)  # noqa: S608
        for columns in opened("requests", found.fetchall()):
            row = sealed_flagged((*columns[:7], *tables.group_columns(one), *columns[9:]))
            given = (*row[7:9], row[-1], *number)
            self._base.execute(tables.REGROUP, given)

    def check(self) -> list[str]:
        """Return a sentence for all damage, and for each counter that is not the sum of labels."""
        with self._sentences("read"):
            broken = [row[0] for row in self._base.execute("PRAGMA integrity_check")]
            found = [] if broken == ["ok"] else [f"SQLite finds: {one}" for one in broken]
            found += tables.damaged(self._base)
        # What is damaged cannot be counted.
        return found or self._differences()

    def payments(self, since_ms: int, until_ms: int = 2**53, *, is_ours: bool) -> list[Payment]:
        """Return what was paid to peers, or by them, from `since_ms` until before `until_ms`."""
        with self._sentences("read"):
            rows = self._base.execute(tables.PAYMENTS, (is_ours, since_ms, until_ms))
            return [tables.payment_of(row) for row in opened("payments", rows)]

    def unstated(self) -> list[Payment]:
        """Return the payments that peers have yet to be told of, oldest first."""
        with self._sentences("read"):
            rows = self._base.execute("SELECT * FROM payments WHERE is_unstated ORDER BY at_ms")
            return [tables.payment_of(row) for row in opened("payments", rows)]

    def series(self) -> list[SeriesLine]:
        """Return what the site did over time."""
        with self._sentences("read"):
            return [tables.series_of(one) for one in self._all("series")]

    def name(self) -> str:
        """Return the name of the site; "" if it was never started."""
        with self._sentences("read"):
            return str(next(self._all("site"), (1, ""))[1])

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
            self.is_new = is_empty and not application
            if self.is_new:
                self._create()
        if not self.is_new:
            self._check_file(application)
            version = self._number("PRAGMA user_version")
            if version < tables.VERSION:
                self._tell(f"{self._path} has form {version}: it is copied and migrated")
                self.copy = store_file.copied(self._base, Path(self._path), version)
            with self._transaction():
                migration.migrate(self._base, version, self._create)
        self._base.execute("PRAGMA foreign_keys = ON")

    def _check_files(self) -> None:
        if self._file is not None:
            self._file.check(self._base)

    def _check_file(self, application: int) -> None:
        if application != tables.APPLICATION:
            raise StoreError(f"{self._path} is not a store of covey; give another file")
        version = self._number("PRAGMA user_version")
        if version > tables.VERSION:
            raise StoreError(
                f"{self._path} was written by a newer covey (its form is {version}, this one "
                f"knows {tables.VERSION}); use that one"
            )
        size = self._number("PRAGMA page_count") * self._number("PRAGMA page_size")
        self._tell(f"{self._path} has {size / 1e6:.1f} MB; its pages are checked")
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

    def _all(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield all rows of a table."""
        return opened(table, self._base.execute(f"SELECT * FROM {table}"))  # noqa: S608

    def _start(self, name: str, fingerprint: str) -> None:
        """Count a start of a site, which may be the first one."""
        kept = next(self._all("site"), (1, name, fingerprint, 0))
        self._check_site(kept[1], name)
        self._write_site((*kept[:3], kept[3] + 1))
        own = sealed(tables.source_columns(SourceState("", 0)))
        self._base.execute("INSERT OR IGNORE INTO sources VALUES (?, ?, ?, ?, ?, ?)", own)

    def _write_site(self, columns: Sequence[Any]) -> None:
        self._base.execute("INSERT OR REPLACE INTO site VALUES (?, ?, ?, ?, ?)", sealed(columns))

    def _check_site(self, kept: str, name: str) -> None:
        if kept != name:
            raise StoreError(
                f"{self._path} is the store of site {kept!r}, not of {name!r}; give each its own "
                "file"
            )
        count = self._number("SELECT COUNT(*) FROM requests")
        self._tell(f"{self._path} has {count} requests; their labels are counted")
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
            tables.difference(key, kept.get(key, (0, 0)), counted.get(key, (0, 0)))
            for key in sorted(kept.keys() | counted.keys())
            if kept.get(key) != counted.get(key)
        ]

    def _asked(self) -> Asked:
        asked = tables.count_asked(self._base, tables.ALL)
        for cell, peer, *counts in self._all("folded_asked"):
            add_counts(asked, {(cell, peer): (counts[0], counts[1])})
        return asked

    def _load(self, requests: list[Request], asked: Asked) -> Loaded:
        sources = {row[0]: tables.source_of(row) for row in self._all("sources")}
        cells: dict[str, list[CellLine]] = {source: [] for source in sources}
        for cell in map(tables.cell_of, self._all("cells")):
            cells.setdefault(cell.source, []).append(cell)
        deliveries = self._all("outbox")  # by peer and id, its primary key
        _, _, fingerprint, starts = next(self._all("site"))
        return Loaded(
            sources,
            cells,
            self.counters(),
            [Delivery(peer, id_, msgspec.json.decode(label)) for peer, id_, label in deliveries],
            asked,
            starts,
            requests,
            self._number("SELECT COALESCE(MAX(number), 0) FROM requests"),
            fingerprint,
            self.arms(),
            [(one, other, state) for one, other, state in self._all("relations")],
        )

    def _requests(self, which: str, given: Sequence[Any] = ()) -> list[Request]:
        rows = self._base.execute(f"SELECT * FROM requests WHERE {which} ORDER BY number", given)  # noqa: S608
        requests = {row[0]: tables.request_of(row) for row in opened("requests", rows)}
        labels = self._base.execute(tables.TRUTHS.format(which=which), given)
        for number, _, _, places, truths, _ in opened("labels", labels):
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
            "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?, ?, ?)",
            [sealed(tables.source_columns(one)) for one in commit.sources],
        )
        base.executemany(
            "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?)",
            [sealed(tables.cell_columns(one)) for one in commit.cells],
        )
        base.executemany(
            "INSERT OR REPLACE INTO relations VALUES (?, ?, ?, ?)",
            [sealed(line) for line in commit.relations],
        )
        requests = map(tables.request_columns, commit.requests)
        self._execute(tables.INSERT_REQUEST, map(sealed_flagged, requests))
        row_ids = chain.from_iterable(map(tables.row_id_columns, commit.requests))
        self._execute(tables.INSERT_ROW_ID, map(sealed, row_ids))
        base.executemany(tables.JOIN, map(tables.join_columns, commit.joined))
        self._write_labels(commit.labels.values())
        base.executemany(tables.ADD_LABELS.format(table="counters"), _rows(commit.counts))
        self._execute(tables.CLOSE, ((number,) for number in commit.closed))
        rows = [sealed((one.peer, one.id, tables.as_text(one.label))) for one in commit.deliveries]
        base.executemany("INSERT OR IGNORE INTO outbox VALUES (?, ?, ?, ?)", rows)
        base.executemany(
            "DELETE FROM outbox WHERE peer = ? AND id = ?",
            [(one.peer, one.id) for one in commit.delivered],
        )
        paid = [sealed_flagged(tables.payment_columns(one)) for one in commit.payments]
        base.executemany("INSERT OR IGNORE INTO payments VALUES (?, ?, ?, ?, ?, ?, ?, ?)", paid)
        tables.write_series(base, commit.series)
        base.executemany(tables.STATED, [(one.at_ms, one.peer, one.id) for one in commit.stated])

    def _write_labels(self, parts: Iterable[LabelPart]) -> None:
        try:
            for part in parts:
                self._check_unlabelled(part)
            self._execute(tables.INSERT_LABELS, map(sealed, map(tables.label_columns, parts)))
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
        between = (oldest[0][0], oldest[-1][0])
        counts = tables.count_labels(base, tables.BETWEEN, between)
        asked = tables.count_asked(base, tables.BETWEEN, between)
        base.executemany(tables.ADD_LABELS.format(table="folded"), _rows(counts))
        for where in list(asked):
            earlier = base.execute("SELECT * FROM folded_asked WHERE cell = ? AND peer = ?", where)
            for _, _, answers, labels in opened("folded_asked", earlier):
                add_counts(asked, {where: (answers, labels)})
        rows = map(sealed, _rows(asked))
        base.executemany("INSERT OR REPLACE INTO folded_asked VALUES (?, ?, ?, ?, ?)", rows)
        names = [(one[2], id_) for one in oldest for id_ in msgspec.json.decode(one[3] or "[]")]
        base.executemany("DELETE FROM row_ids WHERE source = ? AND id = ?", names)
        numbers = [(one[0],) for one in oldest]
        base.executemany("DELETE FROM labels WHERE request = ?", numbers)
        base.execute(f"DELETE FROM requests WHERE {tables.BETWEEN}", between)  # noqa: S608
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
            raise kind(store_file.sentence(self._path, verb, error)) from error
        except (ValueError, LookupError) as error:  # a column that cannot be decoded
            raise StoreError(
                f"{self._path} is damaged ({type(error).__name__}: {error}); restore it from a copy"
            ) from error


def _rows(sums: Counts | Asked) -> list[tuple[Any, ...]]:
    return [(*key, *counted) for key, counted in sums.items()]
