"""A store in a file of SQLite: whether it is still the same one, its pages, and copies of it."""

import contextlib
import filecmp
import itertools
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from covey.errors import StoreAway, StoreError, StoreFull
from covey.files import sync
from covey.node import tables
from covey.node.database import Form

MEMORY = ":memory:"
SAVED = ".saved"  # after the name of a store that was removed: what it held


class SqliteFile:
    """The database in one file, or in memory; one process has it at a time."""

    errors = sqlite3.Error

    def __init__(
        self,
        path: str,
        *,
        is_new_allowed: bool = True,
        connect: Callable[..., sqlite3.Connection] | None = None,
    ) -> None:
        """Raise `StoreError` if the file is not there and must not be begun anew."""
        self.path = path
        # A disk of its own (`connect`) has no files that could be looked at.
        has_files = path != MEMORY and not connect
        self._file = StoreFile(Path(path), is_new_allowed=is_new_allowed) if has_files else None
        try:
            self._base = (connect or _connect)(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
            self.execute = self.stream = self._base.execute
            self.executemany = self._base.executemany
            try:
                self._configure()
            except BaseException:
                self.close()
                raise
        except sqlite3.Error as error:
            raise self.failure("opened", error) from error

    def _configure(self) -> None:
        for setting in (
            "locking_mode = EXCLUSIVE",
            "journal_mode = WAL",
            "synchronous = FULL",
            # If a sync failed before, the system takes the log for written though it is not: its
            # content is written again, so that nothing depends on it.
            "wal_checkpoint(TRUNCATE)",
        ):
            self.execute(f"PRAGMA {setting}").fetchall()

    def begin(self, start: int | None) -> None:
        """Begin a transaction; the lock of the file keeps every later start out."""
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.execute("COMMIT")
        if self._file is not None:
            self._file.check(self._base)

    def rollback(self) -> None:
        if self._base.in_transaction:  # a commit that failed may have rolled back by itself
            self.execute("ROLLBACK")

    def form(self) -> Form | None:
        found = Form(self._number("PRAGMA application_id"), self._number("PRAGMA user_version"))
        is_empty = not self._number("SELECT COUNT(*) FROM sqlite_schema")
        return None if is_empty and not found.application else found

    def create(self) -> None:
        for statement in tables.SCHEMA.split(";"):
            self.execute(statement)
        if self.form() != Form(tables.APPLICATION, tables.VERSION):
            self.execute(f"PRAGMA application_id = {tables.APPLICATION}")
            self.execute(f"PRAGMA user_version = {tables.VERSION}")

    def inspect(self, tell: Callable[[str], None]) -> None:
        """Check the pages of the file."""
        size = self._number("PRAGMA page_count") * self._number("PRAGMA page_size")
        tell(f"{self.path} has {size / 1e6:.1f} MB; its pages are checked")
        (found,) = self.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise StoreError(f"{self.path} is damaged ({found}); restore it from a copy")

    def keep_copy(self, version: int) -> Path | None:
        return copied(self._base, Path(self.path), version)

    def is_set_up(self) -> None:
        self.execute("PRAGMA foreign_keys = ON")  # not earlier: a migration writes tables again
        if self._file is not None:
            self._file.watch()

    def faults(self) -> list[str]:
        """Return what SQLite finds in its pages, and whether the schema has changed."""
        broken = [row[0] for row in self.execute("PRAGMA integrity_check")]
        found = [] if broken == ["ok"] else [f"SQLite finds: {one}" for one in broken]
        with contextlib.closing(sqlite3.connect(MEMORY)) as fresh:
            for statement in tables.SCHEMA.split(";"):
                fresh.execute(statement)
            is_changed = _schema(fresh) != _schema(self._base)
        return [*found, tables.CHANGED] if is_changed else found

    def failure(self, verb: str, error: Exception) -> StoreError:
        name = str(getattr(error, "sqlite_errorname", ""))
        if name.startswith("SQLITE_BUSY"):
            text = f"{self.path} is in use by another process; a store has one node at a time"
            return StoreAway(text)
        if name == "SQLITE_FULL":
            text = "cannot be written, the disk is full; make room, and the node continues"
            return StoreFull(f"{self.path} {text}")
        return StoreError(_sentence(self.path, verb, name, error))

    def refused_table(self, error: Exception) -> str | None:
        if not isinstance(error, sqlite3.IntegrityError):
            return None
        found = re.search(r"failed: (\w+)\.", str(error))
        return found[1] if found else "labels" if "FOREIGN KEY" in str(error) else None

    def give_up(self) -> None:
        """Do nothing: a disk that does not answer cannot be left."""

    def close(self) -> None:
        self._base.close()

    def _number(self, query: str) -> int:
        return int(self.execute(query).fetchone()[0])


def _sentence(path: str, verb: str, name: str, error: Exception) -> str:
    """Return what an error of SQLite means, and what to do."""
    if name.startswith("SQLITE_CANTOPEN"):
        folder = Path(path).parent
        return f"{path} cannot be opened; is there a folder {folder}, and may it be written?"
    if name in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
        return f"{path} is damaged, or not a store of covey ({error}); restore it from a copy"
    return f"{path} cannot be {verb}: {error}"


def _schema(base: sqlite3.Connection) -> list[Any]:
    found = base.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
    return [tuple(row) for row in found]


class StoreFile:
    """The file of a store and its log, which must stay where they are while it is open."""

    def __init__(self, path: Path, *, is_new_allowed: bool) -> None:
        """Raise `StoreError` if the store is not there and must not be begun anew."""
        _check_there(path, is_new_allowed=is_new_allowed)
        self._watched = [path, log_of(path)]
        self._files: list[tuple[int, int] | None] = []

    def watch(self) -> None:
        """Remember which files these are, once the store is open."""
        self._files = self._identities()

    def _identities(self) -> list[tuple[int, int] | None]:
        """Return which files the paths of the store name now; None: there is none."""
        return [_identity(one) for one in self._watched]

    def check(self, base: sqlite3.Connection) -> None:
        """Raise `StoreError` if what was written went to files that the next start cannot find."""
        found = self._identities()
        if not self._files or found == self._files:
            return
        place = next(k for k, one in enumerate(found) if one != self._files[k])
        what = "removed" if found[place] is None else "replaced"
        text = f"{self._watched[place]} was {what} while the site ran"
        try:  # this process has the file still
            copy = keep_copy(base, self._watched[0], SAVED)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{text}, and cannot be saved ({error}): restore a copy") from None
        raise StoreError(f"{text}; all of it was saved: rename {copy} to {self._watched[0].name}")


def copied(base: sqlite3.Connection, path: Path, version: int) -> Path | None:
    """Write a copy of a store that is to be migrated; None: it has no file."""
    if not path.is_file():
        return None
    try:
        return keep_copy(base, path, f".v{version}.bak")
    except OSError as error:
        raise StoreError(
            f"{path} is to be migrated, and no copy of it can be written: {error}; nothing was "
            "changed"
        ) from None


def keep_copy(base: sqlite3.Connection, path: Path, ending: str) -> Path:
    """Write a copy of a store beside it, on the disk and whole; return its name.

    No other copy is overwritten: after a return to an earlier version, it is of an earlier
    migration. Raises `OSError` if it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        with contextlib.closing(sqlite3.connect(part)) as target:
            base.backup(target)
        sync(part)
        copy = _name_of(part, path, ending)
        part.replace(copy)
        sync(copy.parent)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return copy


def _name_of(part: Path, path: Path, ending: str) -> Path:
    """Return the first name of a copy that is free, or that a copy with the same content has."""
    for number in itertools.count(1):
        copy = path.with_name(path.name + ending + (f".{number}" if number > 1 else ""))
        if not copy.exists() or (copy.is_file() and filecmp.cmp(copy, part, shallow=False)):
            break
    return copy


def log_of(path: Path) -> Path:
    """Return the name that SQLite gives the log of a store."""
    return path.with_name(path.name + "-wal")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _check_there(path: Path, *, is_new_allowed: bool) -> None:
    """Raise `StoreError` if the store is not there and must not be begun anew."""
    is_there = path.exists()
    if not is_there and not is_new_allowed:
        raise StoreError(f"there is no store {path}; give the file that a node has written")
    saved = path.with_name(path.name + SAVED)
    if not is_there and saved.exists():
        raise StoreError(
            f"{path} is not there, but what it held when it was removed, {saved}, is there; rename "
            f"it to {path.name}, or remove it to begin a new store"
        )
    log = log_of(path)
    # SQLite would drop the log, with all labels in it, and begin a new file.
    if log.exists() and (not is_there or (not path.stat().st_size and log.stat().st_size)):
        what = "is empty" if is_there else "is not there"
        raise StoreError(
            f"{path} {what}, but its log {log} is there, so the store was removed; restore both "
            "from a copy, or remove the log to begin a new store"
        )


def _connect(path: str, **given: Any) -> sqlite3.Connection:
    """Open a file; a new one, and so its log, is for its owner alone."""
    if path != MEMORY:
        with contextlib.suppress(OSError):  # SQLite has a better message
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    base: sqlite3.Connection = sqlite3.connect(path, **given)
    return base
