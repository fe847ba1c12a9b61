"""What a site must not forget, in one SQLite file: tickets, labels, counters, labels owed to peers.

A batch is written whole or not at all, and `commit` returns only when it is on the disk. Whoever
acknowledges a label does so after that. One process has the file at a time.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from covey import lots, pruning
from covey.decisions import Snapshot
from covey.errors import StoreError, StoreFull
from covey.lots import Lot, as_text
from covey.records import (
    Batch,
    Loaded,
    Owed,
    Saved,
    Standing,
    Ticket,
    Truth,
    as_value,
    differing,
    row_of,
    ticket_of,
)
from covey.schema import APPLICATION, COUNT, FOLD, LABEL, SCHEMA, VERSION, for_labels, values
from covey.sieve import Sieve
from covey.types import Label

SIZES = (64, 16, 4, 1)  # of statements that write many rows; few, so that each is made once
KEYS = "SELECT source, id FROM tickets UNION ALL SELECT source, id FROM lots"


class Store:
    """The file of one site; `Store.memory()` keeps the same in memory, for as long as it lives."""

    def __init__(
        self,
        path: str | Path,
        *,
        is_new_allowed: bool = True,
        tickets_kept: int = 1_000_000,
        connect: Callable[..., sqlite3.Connection] | None = None,
    ) -> None:
        """Of older tickets than `tickets_kept`, no more than what they counted is kept."""
        self._where = str(path)
        self._tickets_kept, self._kept = tickets_kept, 0
        self._given_out: Sieve | None = None
        is_file = self._where != ":memory:"
        if is_file and not is_new_allowed and not Path(path).exists():
            raise StoreError(f"there is no store {path}; give the file that a node has written")
        with self._sentences("opened"):
            self._base = (connect or _connect)(
                self._where, timeout=0, isolation_level=None, check_same_thread=False
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

    def load(self, name: str, shape: str) -> Loaded:
        """Return what was written, for a site of this name and of this shape.

        The shape says what its counters mean: arms, policy, contexts. Raises `StoreError` if the
        store is of another site or shape, or if its counters are not the sum of its labels.
        """
        with self._sentences("read"), self._transaction():
            self._base.execute("INSERT OR IGNORE INTO site VALUES (1, ?, ?, 0)", (name, shape))
            self._base.execute("INSERT OR IGNORE INTO desks VALUES ('', 0, 1, 1, '{}', 'null')")
            self._base.execute("UPDATE site SET starts = starts + 1")
            self._check_site(name, shape)
            self._kept = pruning.kept(self._base)
            self._given_out = Sieve()
            for key in self._base.execute(KEYS):
                self._given_out.add(key)
            return self._load()

    def commit(self, batch: Batch) -> None:
        """Write a batch and return when it is on the disk.

        Raises `StoreError` if that fails; then it is not known what is on the disk, and the store
        must not be used before it is opened again.
        """
        self.write(batch)
        self.sync(batch)

    def write(self, batch: Batch) -> None:
        """Do what there is to compute for a commit; the disk is left to `sync`, which must follow.

        Raises as `commit` does.
        """
        with self._sentences("written"):
            self._base.execute("BEGIN IMMEDIATE")
            with self._or_rolled_back():
                self._write(batch)

    def sync(self, batch: Batch) -> None:
        """Return when the batch that was written last is on the disk; raise as `commit` does."""
        with self._sentences("written"), self._or_rolled_back():
            kept = self._prune(batch)
            self._base.execute("COMMIT")
        self._kept = kept
        if self._given_out is not None:
            for ticket in batch.tickets:
                self._given_out.add((ticket.source, ticket.id))
            for lot in batch.lots.lots:
                self._given_out.add((lot.source, lot.id))

    def may_have(self, source: str, id: str) -> bool:  # noqa: A002 - the problem's word
        """Return whether `find` may find something, without looking; if not, there is nothing."""
        return self._given_out is None or (source, id) in self._given_out

    def find(self, source: str, id: str) -> Ticket | Lot | None:  # noqa: A002 - the problem's word
        """Return what `source` knows as `id`, however old; None if there is nothing."""
        with self._sentences("read"):
            rows = self._base.execute(
                "SELECT * FROM tickets WHERE source = ? AND id = ?", (source, id)
            ).fetchall()
            return ticket_of(rows[0]) if rows else lots.find(self._base, source, id)

    def counters(self) -> dict[tuple[str, str, str], tuple[int, int]]:
        """Return cell, source, arm -> labels, right."""
        return self._counted("SELECT cell, source, arm, labels, right FROM counters")

    def check(self) -> list[str]:
        """Recompute every counter from the labelled tickets; return a sentence per difference."""
        with self._sentences("read"):
            broken = [row[0] for row in self._base.execute("PRAGMA integrity_check")]
        found = [] if broken == ["ok"] else [f"SQLite finds: {one}" for one in broken]
        return found + self._differences()

    def size(self) -> dict[str, int]:
        """Return how many tickets there are, how many have their label, and how many are owed."""
        query = "SELECT COUNT(*), COUNT(truth), (SELECT COUNT(*) FROM outbox) FROM tickets"
        with self._sentences("read"):
            (tickets, labels, owed), *_ = self._base.execute(query).fetchall()
            rows, more = lots.size(self._base)
        return {"tickets": tickets + rows, "labels": labels + more, "owed": owed}

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    # -- opening --------------------------------------------------------------------------------

    def _set_up(self) -> None:
        for setting in (
            "locking_mode = EXCLUSIVE",
            "journal_mode = WAL",
            "synchronous = FULL",
            # If a sync failed before, the system takes the log for written though it is not: what
            # it holds is written anew, so that nothing is built on it.
            "wal_checkpoint(TRUNCATE)",
        ):
            self._base.execute(f"PRAGMA {setting}").fetchall()
        with self._transaction():
            application, version = (
                self._base.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("application_id", "user_version")
            )
            is_empty = not self._base.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]
            if is_empty and not application:
                self._create()
                return
        if application != APPLICATION:
            raise StoreError(f"{self._where} is not a store of covey; give another file")
        if version > VERSION:
            raise StoreError(
                f"{self._where} was written by a newer covey (its form is {version}, this one "
                f"knows {VERSION}); use that one"
            )
        (found,) = self._base.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise StoreError(f"{self._where} is damaged ({found}); restore it from a copy")

    def _create(self) -> None:
        for statement in SCHEMA.split(";"):
            self._base.execute(statement)
        self._base.execute(f"PRAGMA application_id = {APPLICATION}")
        self._base.execute(f"PRAGMA user_version = {VERSION}")

    # -- reading --------------------------------------------------------------------------------

    def _check_site(self, name: str, shape: str) -> None:
        kept = self._base.execute("SELECT name, shape FROM site").fetchone()
        if kept[0] != name:
            raise StoreError(
                f"{self._where} is the store of site {kept[0]!r}, not of {name!r}; give each its "
                "own file"
            )
        if kept[1] != shape:
            raise StoreError(
                f"{self._where} was written with other settings: "
                f"{'; '.join(differing(kept[1], shape))}. Its counters would mean something else; "
                "put the configuration back, or begin a new file"
            )
        differences = self._differences()
        if differences:
            raise StoreError(f"{self._where} is damaged: {differences[0]}; restore it from a copy")

    def _differences(self) -> list[str]:
        kept, folded = self.counters(), self._counted(FOLD)
        with self._sentences("read"):
            lots.add_up(self._base, folded)
            pruning.add_up(self._base, folded)
        return [
            _difference(key, kept.get(key, (0, 0)), folded.get(key, (0, 0)))
            for key in sorted(kept.keys() | folded.keys())
            if kept.get(key) != folded.get(key)
        ]

    def _load(self) -> Loaded:
        (starts,) = self._base.execute("SELECT starts FROM site").fetchone()
        standings = self._base.execute("SELECT * FROM desks ORDER BY desk").fetchall()
        owed = self._base.execute("SELECT peer, id, label FROM outbox ORDER BY peer, id")
        asked = self._base.execute(
            "SELECT cell, peer, COUNT(*), COUNT(truth) FROM tickets WHERE peer <> '' GROUP BY 1, 2"
        )
        answered = {(cell, peer): (count, labelled) for cell, peer, count, labelled in asked}
        lots.add_asked(self._base, answered)
        pruning.add_asked(self._base, answered)
        return Loaded(
            {
                desk: self._saved(
                    Standing(
                        desk,
                        slot,
                        range(oldest, following),
                        as_value(doubts),
                        _latest(as_value(latest)),
                    )
                )
                for desk, slot, oldest, following, doubts, latest in standings
            },
            self.counters(),
            [Owed(peer, id_, as_value(label)) for peer, id_, label in owed],
            answered,
            starts,
            lots.opened(self._base),
            lots.latest(self._base),
        )

    def _saved(self, standing: Standing) -> Saved:
        lines = self._base.execute(
            "SELECT name, counters, seen FROM cells WHERE desk = ? ORDER BY space, line",
            (standing.desk,),
        )
        cells, seen = [], []
        for name, counters, labels in lines.fetchall():
            cells.append((name, as_value(counters)))
            seen.append((name, [(label, count) for label, count in as_value(labels)]))
        kept = self._base.execute(
            "SELECT * FROM tickets WHERE desk = ? AND ticket >= ? ORDER BY ticket",
            (standing.desk, standing.kept.start),
        )
        snapshot = Snapshot(standing.slot, cells, [one for one in seen if one[1]], standing.doubts)
        tickets = [ticket_of(row) for row in kept]
        return Saved(snapshot, tickets, standing.kept, standing.latest)

    def _counted(self, query: str) -> dict[tuple[str, str, str], tuple[int, int]]:
        with self._sentences("read"):
            rows = self._base.execute(query).fetchall()
        return {(cell, source, arm): (labels, right) for cell, source, arm, labels, right in rows}

    # -- writing --------------------------------------------------------------------------------

    def _write(self, batch: Batch) -> None:
        base = self._base
        base.executemany(
            "INSERT OR REPLACE INTO desks VALUES (?, ?, ?, ?, ?, ?)",
            [
                (a.desk, a.slot, a.kept.start, a.kept.stop, as_text(a.doubts), as_text(a.latest))
                for a in batch.standings
            ],
        )
        base.executemany(
            "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?)",
            [
                (a.desk, a.space, a.line, a.name, as_text(a.counters), as_text(a.seen))
                for a in batch.lines
            ],
        )
        self._write_tickets([row_of(ticket) for ticket in batch.tickets])
        self._write_truths(batch.truths)
        lots.write(base, batch.lots)
        rows = [(one.peer, one.id, as_text(one.label)) for one in batch.owed]
        base.executemany("INSERT OR IGNORE INTO outbox VALUES (?, ?, ?)", rows)
        base.executemany(
            "DELETE FROM outbox WHERE peer = ? AND id = ?", [(a.peer, a.id) for a in batch.told]
        )

    def _prune(self, batch: Batch) -> int:
        """Let old tickets go faster than new ones come if there are too many; return the rest."""
        new = len(batch.tickets) + sum(map(len, batch.lots.lots))
        kept = self._kept + new
        excess = min(kept - self._tickets_kept, 2 * new + pruning.PIECE)
        return kept - pruning.prune(self._base, excess) if excess > 0 else kept

    def _write_tickets(self, rows: Sequence[Sequence[Any]]) -> None:
        width = len(Ticket.__struct_fields__) + 1
        for some, given in _pieces(rows):
            self._base.execute(f"INSERT INTO tickets VALUES {values(width, some)}", given)  # noqa: S608

    def _write_truths(self, truths: Sequence[Truth]) -> None:
        """Write labels, and count them."""
        rows = [(one.desk, one.ticket, as_text(one.label), int(one.is_right)) for one in truths]
        for some, given in _pieces(rows):
            if self._base.execute(for_labels(LABEL, some), given).rowcount != some:
                raise StoreError(
                    f"{self._where} was given the label of a ticket that waits for none; "
                    "nothing of the batch was written"
                )
            self._base.execute(for_labels(COUNT, some), given)

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
            raise kind(_sentence(self._where, verb, error)) from error


def _connect(path: str, **given: Any) -> sqlite3.Connection:
    """Open a file; a new one, and so its log, is for its owner alone."""
    if path != ":memory:":
        with contextlib.suppress(OSError):  # SQLite says it better
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    base: sqlite3.Connection = sqlite3.connect(path, **given)
    return base


def _sentence(where: str, verb: str, error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_BUSY"):
        return f"{where} is in use by another process; a store has one node at a time"
    if name.startswith("SQLITE_CANTOPEN"):
        folder = Path(where).parent
        return f"{where} cannot be opened; is there a folder {folder}, and may it be written?"
    if name in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
        return f"{where} is damaged, or not a store of covey ({error}); restore it from a copy"
    if name == "SQLITE_FULL":
        return f"{where} cannot be written, the disk is full; make room, and it goes on"
    return f"{where} cannot be {verb}: {error}"


def _difference(key: Sequence[str], kept: tuple[int, int], folded: tuple[int, int]) -> str:
    cell, source, arm = key
    return (
        f"cell {cell}, source {source or 'own'}, arm {arm}: {kept[1]} right of {kept[0]} are kept, "
        f"but the labelled tickets have {folded[1]} of {folded[0]}"
    )


def _pieces(rows: Sequence[Sequence[Any]]) -> Iterator[tuple[int, list[Any]]]:
    """Return rows as values for statements that take many: threads take turns at each of them."""
    begin = 0
    for size in SIZES:
        while len(rows) - begin >= size:
            yield size, [value for row in rows[begin : begin + size] for value in row]
            begin += size


def _latest(found: list[Any] | None) -> tuple[int, Label] | None:
    return None if found is None else (found[0], found[1])
