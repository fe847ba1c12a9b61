"""What a site must keep: requests, labels, counters, labels for peers; in a file, or a database.

A commit is written whole or not at all, and `commit` returns only when it is durable. A label is
acknowledged after that. One process has the store at a time.
"""

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from covey.errors import StoreError, StoreFailed, StoreFull
from covey.site.requests import (
    Commit,
    Counts,
    LabelPart,
    Loaded,
    Request,
    RowGroup,
    SeriesLine,
    SiteRecord,
    SourceState,
    add_counts,
)
from covey.store import tables
from covey.store.database import APPLICATION, VERSION, Database, DatabaseUrl, Form, is_url
from covey.store.store_file import MEMORY, SqliteFile, SqliteReader
from covey.store.tables import DamagedRow, Record, RowStatement, StoreTable, row_numbers

PRUNED_AT_ONCE = 256  # rows that are folded in one commit at least, if there are too many
IDS_AT_ONCE = 498  # in one query, which names them twice; older SQLite takes 999 parameters
READ_AT_ONCE = 4096  # requests, where all are read


class Store:
    """The store of one site; `Store.memory()` keeps the same in memory, for as long as it lives."""

    def __init__(
        self,
        place: str | Path | DatabaseUrl,
        *,
        is_new_allowed: bool = True,
        rows_kept: int = 1_000_000,
        connect: Callable[..., Any] | None = None,
        tell: Callable[[str], None] = lambda text: None,
        only_reads: bool = False,
    ) -> None:
        """Open the file, or the database of a URL; raise `StoreError` if that cannot be.

        Of rows beyond `rows_kept`, the oldest are folded: only their counts are kept.
        `tell` gets a sentence before each step of a start that takes seconds for a large store.
        `connect` opens a file on a disk of its own. `only_reads` is for `reading`.
        """
        is_database = isinstance(place, str) and is_url(place)
        where = DatabaseUrl(str(place)) if is_database else place
        self._path = str(where)
        self._tell = tell
        self.rows_kept, self._rows = rows_kept, 0  # a reload may change the first
        self._start: int | None = None  # the number of the start that loaded it
        self.is_new = False  # it was made by this store
        self._only_reads = only_reads
        self._base = _database(
            where, only_reads=only_reads, is_new_allowed=is_new_allowed, connect=connect
        )
        try:
            with self._sentences("opened"):
                self._set_up()
        except BaseException:
            self._base.close()
            raise
        if connect is None and not only_reads:
            weakref.finalize(self, self._base.close)  # Python 3.13 warns of open connections

    @classmethod
    def memory(cls) -> "Store":
        """Return a store without a file."""
        return cls(MEMORY)

    @classmethod
    @contextlib.contextmanager
    def reading(cls, place: Path | DatabaseUrl) -> Iterator["Store"]:
        """Open a store to read what it holds at one instant; a node may have it meanwhile.

        Raises `StoreError` if it cannot be read, or if no node has been started with it.
        """
        store = cls(place, only_reads=True)
        with contextlib.closing(store):
            yield store

    @property
    def path(self) -> str:
        """The file, ":memory:", or the URL of the database, without a password."""
        return self._path

    def load(self, name: str, fingerprint: str) -> Loaded:
        """Return what was written, for a site of this name; a new store gets this fingerprint.

        Raises `StoreError` if the store is of another site, or if its counters are not the sum of
        its labels.
        """
        self._start = None  # of an earlier load, which this one replaces
        with self._sentences("read"), self._transaction():
            start = self._count_start(name, fingerprint)
            self._rows = self._base.number("SELECT COALESCE(SUM(rows), 0) FROM requests")
            loaded = self._load(self._requests(tables.OPEN))
        self._start = start
        self._tell(f"{self._path} is read: {len(loaded.requests)} requests wait for labels")
        return loaded

    def peek(self, name: str) -> Loaded:
        """Return what the next start of a site would load, without a start; raise as `load`."""
        with self._sentences("read"):
            self._check_site(self.name(), name)
            return self._load(self._requests(tables.OPEN))

    def load_again(self, requests: list[Request]) -> Loaded:
        """Return what was written since it was loaded; open requests are in memory."""
        with self._sentences("read"), self._transaction():
            return self._load(requests)

    def commit(self, commit: Commit) -> None:
        """Write a commit and return when it is durable.

        Raises `StoreError` if that fails; then it is not known what is on the disk, and the store
        must not be used before it is opened again.
        """
        self.write(commit)
        self.sync(commit)

    def write(self, commit: Commit) -> None:
        """Do all for a commit but the disk, which `sync` does next; raise as `commit` does."""
        with self._sentences("written"):
            self._base.begin(self._start)
            with self._or_rolled_back():
                self._write(commit)

    def sync(self, commit: Commit) -> None:
        """Return when the commit that was written last is on the disk; raise as `commit` does."""
        with self._sentences("written"), self._or_rolled_back():
            self._check_unlabelled(commit.labels.values())
            rows = self._prune(sum(map(len, commit.requests)))
            self._base.commit()
        self._rows = rows

    @property
    def finds_at_once(self) -> bool:
        """Whether `find` needs no wait, not even for a commit that is being written."""
        return self._base.lookup is not None

    def find(self, source: str, id: str) -> tuple[Request, int | None] | None:
        """Return the request of a source with this id, however old; None if there is none.

        Where the source has an id for each row, the number of the row is returned with it.
        """
        return self.find_many(source, [id]).get(id)

    def find_many(self, source: str, ids: Sequence[str]) -> dict[str, tuple[Request, int | None]]:
        """Return by id what `find` returns; ids that there are not are left out."""
        execute = self._base.lookup or self._base.execute
        with self._sentences("read"):
            places: dict[str, tuple[int, int]] = {}
            for part in _parts(ids):
                query = tables.with_places(tables.FIND, len(part))
                for id_, request, row, number in execute(query, (source,) * 3 + (*part,)):
                    if number is not None or request is not None:
                        places[id_] = (number, 0) if request is None else (request, row)
            if not places:
                return {}
            requests: dict[int, Request] = {}
            for numbers in _parts(sorted({number for number, _ in places.values()})):
                listed = tables.with_places(tables.LISTED, len(numbers))
                loaded = self._requests(listed, numbers, execute)
                requests |= {request.number: request for request in loaded}
        return {
            id_: (requests[number], row if requests[number].row_ids else None)
            for id_, (number, row) in places.items()
            if number in requests  # else it was folded in between
        }

    def counters(self) -> Counts:
        """Return cell, source, arm -> labels, right."""
        with self._sentences("read"):
            rows = self._base.execute(tables.COUNTERS.select).fetchall()
        return {(cell, source, arm): (labels, right) for cell, source, arm, labels, right in rows}

    def all(self, kind: type[Record]) -> list[Record]:
        """Return the records of a kind in the order of their keys: see `tables.TABLES`."""
        table = tables.OF[kind]
        with self._sentences("read"):
            return list(map(table.record_of, self._base.execute(table.select)))

    def requests(self) -> Iterator[Request]:
        """Return all requests that are still stored with their labels, in order."""
        first = 1
        with self._sentences("read"):
            last = self._base.number("SELECT COALESCE(MAX(number), 0) FROM requests")
            while first <= last:
                yield from self._requests(tables.FROM_TO, (first, first + READ_AT_ONCE - 1))
                first += READ_AT_ONCE

    def shadowed(self) -> list[Request]:
        """Return the requests with rows that were run in the shadow, with their labels."""
        with self._sentences("read"):
            return self._requests("number IN (SELECT request FROM shadow_rows)")

    def change(self, commit: Commit, fingerprint: str, *, is_recounted: bool = False) -> None:
        """Write what another configuration changes; counted again: in place of all counters.

        Raises `StoreFull`, and then nothing has changed, or `StoreFailed`, and then it is not known
        what is on the disk.
        """
        try:
            with self._sentences("written"), self._transaction():
                (site,) = self.all(SiteRecord)
                for table in tables.COUNTED_AGAIN if is_recounted else ():
                    self._base.execute(f"DELETE FROM {table}")
                self._put([msgspec.structs.replace(site, fingerprint=fingerprint)])
                self._write(commit)
        except StoreFull:
            raise
        except StoreError as error:
            raise StoreFailed(str(error)) from error

    def check(self) -> list[str]:
        """Return a sentence for all damage, and for each counter that is not the sum of labels."""
        with self._sentences("read"):
            faults = self._base.faults()
        return faults if tables.CHANGED in faults else faults + self._all_differences()

    def _all_differences(self) -> list[str]:
        with self._sentences("read"):
            damage = [text for table in tables.ALL_TABLES for text in self._damaged(table)]
        return damage or self._differences()  # what is damaged cannot be counted

    def _damaged(self, table: StoreTable) -> Iterator[str]:
        """Yield a sentence for each row that does not fit its checksum."""
        try:
            for row in self._base.stream(table.select):
                if not table.fits(row):
                    yield table.misfit(row)
        except self._base.errors as error:
            yield f"table {table.name} cannot be read: {error}"

    def name(self) -> str:
        """Return the name of the site; "" if it was never started."""
        return "".join(site.name for site in self.all(SiteRecord))

    def stored_rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table as they are stored, with their checksums."""
        with self._sentences("read"):
            yield from map(tuple, self._base.stream(tables.TABLES[table].select))

    @contextlib.contextmanager
    def filling(self) -> Iterator[Callable[[str, Iterable[Sequence[Any]]], None]]:
        """Yield what writes rows of tables into a new store; all of them are kept, or none.

        Raises `StoreError` if they are damaged, or if counters are not the sum of their labels.
        """
        with self._sentences("written"), self._transaction():
            yield lambda name, rows: self._execute(tables.TABLES[name].insert, rows)
            faults = self._all_differences()
            if faults:
                raise StoreError(f"{self._path} cannot be a copy: {faults[0]}; nothing was written")

    def size(self) -> dict[str, int]:
        """Return how many requests, rows, labels and undelivered labels there are."""
        names = ("requests", "rows", "labels", "deliveries")
        with self._sentences("read"):
            totals = map(int, self._base.execute(tables.TOTALS).fetchone())
            return dict(zip(names, totals, strict=True))

    def give_up(self) -> None:
        """Let a write fail that waits for a database in another thread."""
        self._base.give_up()

    def close(self) -> None:
        self._base.close()

    # -- opening --------------------------------------------------------------------------------

    def _set_up(self) -> None:
        if self._only_reads:
            form = self._base.form()
            if form is not None:
                self._check_form(form)
            if form is None or not self.name():
                raise StoreError(f"{self._path} holds no site yet; start it first")
            return
        with self._transaction():
            form = self._base.form()
            self.is_new = form is None
            if form is None:
                self._base.create(tables.schema(self._base.dialect))
        if form is not None:
            self._check_form(form)
            self._base.inspect(self._tell)
        self._base.is_set_up()

    def _check_form(self, form: Form) -> None:
        if form.application != APPLICATION:
            raise StoreError(f"{self._path} is not a store of covey; give another one")
        if form.version != VERSION:
            raise StoreError(
                f"{self._path} is a store of form {form.version}, and this covey reads form "
                f"{VERSION}; use the covey that wrote it, or give another file"
            )

    # -- reading --------------------------------------------------------------------------------

    def _count_start(self, name: str, fingerprint: str) -> int:
        """Count a start of a site, which may be the first one; return how many there were."""
        (site,) = self.all(SiteRecord) or [SiteRecord(1, name, fingerprint, 0)]
        self._check_site(site.name, name)
        starts = site.starts + 1
        self._put([msgspec.structs.replace(site, starts=starts)])
        self._insert([SourceState("", 0)], may_be_there=True)
        return starts

    def _check_site(self, kept: str, name: str) -> None:
        if kept != name:
            raise StoreError(
                f"{self._path} is the store of site {kept!r}, not of {name!r}; give each its own"
            )
        count = self._base.number("SELECT COUNT(*) FROM requests")
        self._tell(f"{self._path} has {count} requests; their labels are counted")
        differences = self._differences()
        if differences:
            raise StoreError(f"{self._path} is damaged: {differences[0]}; restore it from a copy")

    def _differences(self) -> list[str]:
        kept = self.counters()
        with self._sentences("read"):
            counted = count_labels(self._base, tables.ALL)
            for cell, source, arm, *counts in self._base.execute(tables.FOLDED.select):
                add_counts(counted, {(cell, source, arm): (counts[0], counts[1])})
        return [
            _difference(key, kept.get(key, (0, 0)), counted.get(key, (0, 0)))
            for key in sorted(kept.keys() | counted.keys())
            if kept.get(key) != counted.get(key)
        ]

    def _load(self, requests: list[Request]) -> Loaded:
        kinds = [table.record for table in tables.ALL_TABLES if table.is_loaded]
        records = {kind: self.all(kind) for kind in kinds}
        (site,) = self.all(SiteRecord)
        return Loaded(
            records,
            self.counters(),
            site.starts,
            requests,
            self._base.number("SELECT COALESCE(MAX(number), 0) FROM requests"),
            site.fingerprint,
        )

    def _requests(
        self, which: str, values: Sequence[Any] = (), execute: Callable[..., Any] | None = None
    ) -> list[Request]:
        execute = execute or self._base.execute
        rows = execute(f"SELECT * FROM requests WHERE {which} ORDER BY number", values)
        lines = map(tables.REQUESTS.record_of, rows)
        requests = {line.number: tables.request_of(line) for line in lines}
        labels = execute(tables.TRUTHS.format(which=which), values)
        for part in map(tables.LABELS.record_of, labels):
            request = requests[part.request]
            request.parts += 1
            for row, truth in zip(part.rows, part.truths, strict=True):
                request.truths[row] = truth
        return list(requests.values())

    # -- writing --------------------------------------------------------------------------------

    def _write(self, commit: Commit) -> None:
        base = self._base
        self._put(commit.records)
        self._insert(map(tables.line_of, commit.requests))
        self._insert(chain.from_iterable(map(tables.row_ids_of, commit.requests)))
        self._put(map(tables.line_of, commit.joined))
        self._insert(commit.labels.values())
        self._add(tables.COUNTERS, commit.counts)
        self._execute(tables.CLOSE, ((number,) for number in commit.closed))
        self._insert(commit.deliveries, may_be_there=True)
        base.executemany(
            "DELETE FROM outbox WHERE peer = ? AND id = ?",
            [(delivery.peer, delivery.id) for delivery in commit.delivered],
        )
        old = tables.outdated(commit.of(SeriesLine))
        base.executemany("DELETE FROM series WHERE every_s = ? AND at < ?", old)

    def _check_unlabelled(self, parts: Iterable[LabelPart]) -> None:
        """Raise `StoreError` if a row has two labels; a first part needs no look at the store."""
        rows = {part.request: list(part.rows) for part in parts if not part.part}
        later = [part.request for part in parts if part.part]
        for numbers in _parts(later):
            stored = self._base.execute(tables.with_places(tables.LABELS_OF, len(numbers)), numbers)
            for request, content in stored:
                rows.setdefault(request, []).extend(row_numbers(content))
        if any(map(_has_twice, rows.values())):
            raise StoreError(self._not_waited_for())

    def _not_waited_for(self) -> str:
        text = "was given the label of a row that waits for none; nothing of the commit was written"
        return f"{self._path} {text}"

    def _insert(self, records: Iterable[msgspec.Struct], *, may_be_there: bool = False) -> None:
        """Write records whose keys are not there; leave those that may be there as they are."""
        for table, rows in _by_table(records):
            self._execute(table.insert_new if may_be_there else table.insert, rows)

    def _put(self, records: Iterable[msgspec.Struct]) -> None:
        """Write records in place of those with the same keys; of several of these, the last."""
        for table, rows in _by_table(records):
            self._execute(table.upsert, {row[: table.width]: row for row in rows}.values())

    def _add(self, table: StoreTable, counts: Counts) -> None:
        self._execute(table.add, [(*key, *counted) for key, counted in counts.items()])

    def _execute(self, statement: RowStatement, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows in few statements: threads take turns at each of them."""
        waiting, done = list(rows), 0
        for size in tables.SIZES:
            whole = (len(waiting) - done) // size * size
            if whole:
                values = [
                    list(chain.from_iterable(waiting[start : start + size]))
                    for start in range(done, done + whole, size)
                ]
                self._base.executemany(tables.statement_for(statement, size), values)
                done += whole

    # -- pruning --------------------------------------------------------------------------------

    def _prune(self, new: int) -> int:
        """Fold old rows faster than new ones come, if there are too many; return the rest."""
        rows = self._rows + new
        excess = min(rows - self.rows_kept, 2 * new + PRUNED_AT_ONCE)
        while excess > 0 and (folded := self._fold(excess)):
            rows, excess = rows - folded, excess - folded
        return rows

    def _fold(self, excess: int) -> int:
        """Fold the oldest closed requests, the last of which may exceed `excess`; return rows."""
        base = self._base
        oldest, folded = [], 0
        for request in base.execute(tables.OLDEST, (min(excess, PRUNED_AT_ONCE),)):
            oldest.append(request)
            folded += request[1]
            if folded >= excess:
                break
        if not oldest:
            return 0
        # Open requests between them have numbers of this range, too, and stay.
        between = (oldest[0][0], oldest[-1][0])
        self._add(tables.FOLDED, count_labels(base, tables.BETWEEN, between))
        names = [(row[2], id_) for row in oldest for id_ in msgspec.json.decode(row[3] or "[]")]
        base.executemany("DELETE FROM row_ids WHERE source = ? AND id = ?", names)
        numbers = [(row[0],) for row in oldest]
        base.executemany("DELETE FROM labels WHERE request = ?", numbers)
        base.executemany("DELETE FROM shadow_rows WHERE request = ?", numbers)
        base.execute(f"DELETE FROM requests WHERE {tables.BETWEEN}", between)
        return folded

    # -- transactions and errors ----------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.begin(self._start)
        with self._or_rolled_back():
            yield
            self._base.commit()

    @contextlib.contextmanager
    def _or_rolled_back(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._base.rollback()
            raise

    @contextlib.contextmanager
    def _sentences(self, verb: str) -> Iterator[None]:
        try:
            yield
        except self._base.errors as error:
            if self._base.refused_table(error) == "labels":
                raise StoreError(self._not_waited_for()) from error
            raise self._base.failure(verb, error) from error
        except (DamagedRow, ValueError, LookupError) as error:  # or it cannot be decoded
            kind = "" if isinstance(error, DamagedRow) else f"{type(error).__name__}: "
            text = f"{self._path} is damaged ({kind}{error}); restore it from a copy"
            raise StoreError(text) from error


def _database(
    place: str | Path | DatabaseUrl, *, only_reads: bool, is_new_allowed: bool, connect: Any
) -> Database:
    if isinstance(place, DatabaseUrl):
        from covey.store.postgres import PostgresDatabase  # needs an optional package

        return PostgresDatabase(place, is_new_allowed=is_new_allowed, only_reads=only_reads)
    if only_reads:
        return SqliteReader(str(place))
    return SqliteFile(str(place), is_new_allowed=is_new_allowed, connect=connect)


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield values, as many as one query may name at once."""
    for start in range(0, len(values), IDS_AT_ONCE):
        yield values[start : start + IDS_AT_ONCE]


def _by_table(
    records: Iterable[msgspec.Struct],
) -> Iterable[tuple[StoreTable, list[tuple[Any, ...]]]]:
    """Return the rows of records by their tables."""
    rows: dict[StoreTable, list[tuple[Any, ...]]] = {}
    for record in records:
        table = tables.OF[type(record)]
        rows.setdefault(table, []).append(table.row(record))
    return rows.items()


def _has_twice(rows: Sequence[int]) -> bool:
    return len(set(rows)) < len(rows)


def count_labels(base: Database, which: str, values: Sequence[Any] = ()) -> Counts:
    """Count the labels of requests; raise `StoreError` where a row has two."""
    sums: Counts = {}

    def add(source: str, group: RowGroup, labels: int, right: int) -> None:
        if group.is_counted:
            add_counts(sums, {(group.cell, source, group.counted_as): (labels, right)})

    # Labels first is faster for all of them, and reads too many of them for a part.
    order = "labels CROSS JOIN requests" if which == tables.ALL else "requests CROSS JOIN labels"
    alike = base.stream(tables.LABELLED_ALIKE.format(tables=order, which=which), values)
    for (source, groups, right), count in Counter(alike).items():
        (group,) = tables.groups_of(groups)
        add(source, group, count * len(right), count * sum(right))
    mixed = base.stream(tables.LABELLED.format(tables=order, which=which), values)
    for source, groups, group_of, rows, right in mixed:
        by_number, of_row = tables.groups_of(groups), row_numbers(group_of)
        for row, is_right in zip(row_numbers(rows), right, strict=True):
            add(source, by_number[of_row[row]], 1, is_right)
    in_parts = base.stream(tables.IN_PARTS) if which == tables.ALL else ()
    for number, parts in groupby(in_parts, itemgetter(0)):
        if _has_twice([row for _, rows in parts for row in row_numbers(rows)]):
            raise StoreError(f"a row of request {number} has two labels")
    return sums


def _difference(key: Sequence[str], kept: tuple[int, int], counted: tuple[int, int]) -> str:
    """Return what is wrong with the counters of a cell."""
    cell, source, arm = key
    return (
        f"cell {cell}, source {source or 'own'}, arm {arm}: {kept[1]} right of {kept[0]} are kept, "
        f"but the labels of the requests have {counted[1]} of {counted[0]}"
    )
