"""A store in a file of SQLite: its lock, its pages, whether it is still the same, and its readers.

A node has the lock of a file beside the store, so there is one at a time. SQLite's own locks are
held for each transaction only: other processes read the store while the node writes it.
"""

import contextlib
import errno
import fcntl
import filecmp
import itertools
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from covey.errors import StoreAway, StoreError, StoreFull
from covey.files import create, replace, sync
from covey.store import tables
from covey.store.database import APPLICATION, TAKEN_OVER, VERSION, Database, Dialect, Form
from covey.store.tables import schema

MEMORY = ":memory:"
SAVED = ".saved"  # after the name of a store that was removed: what it held
LOG_BYTES = 64 << 20  # to which a log is cut that grew while others read the store
WAIT_S = 5.0  # for other processes that read or write the store


SQLITE = Dialect("INTEGER", "TEXT", "BLOB", " STRICT", " STRICT, WITHOUT ROWID")
IN_USE = "is in use by another process; a store has one node at a time"
FULL = "cannot be written, the disk is full; make room, and the node continues"
DAMAGED = "is damaged, or not a store of covey ({error}); restore it from a copy"
SENTENCES: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_BUSY": (StoreAway, IN_USE),
    "SQLITE_FULL": (StoreFull, FULL),
    "SQLITE_CANTOPEN": (
        StoreError,
        "cannot be opened; is there such a folder, and may it be written?",
    ),
    "SQLITE_READONLY": (StoreError, "may not be written; start the node as the owner of the file"),
    "SQLITE_NOTADB": (StoreError, DAMAGED),
    "SQLITE_CORRUPT": (StoreError, DAMAGED),
}
HOW: dict[str, Any] = {"timeout": WAIT_S, "isolation_level": None, "check_same_thread": False}


class SqliteFile(Database):
    """The database in one file, or in memory; one process has it at a time."""

    errors = sqlite3.Error
    dialect = SQLITE
    sentences = SENTENCES
    _base: Any = None  # a connection
    _finder: Any = None  # another one, which reads what is committed while the first one commits

    def __init__(
        self,
        path: str,
        *,
        is_new_allowed: bool = True,
        connect: Callable[..., sqlite3.Connection] | None = None,
    ) -> None:
        """Raise `StoreError` if the file is not there and must not be begun anew."""
        self.name = path
        # A disk of its own (`connect`) has no files that could be looked at.
        self._has_files = path != MEMORY and not connect
        self._file: StoreFile | None = None
        if self._has_files:
            self._file = StoreFile(Path(path), is_new_allowed=is_new_allowed)
        try:
            self._base = (connect or _connect)(path, **HOW)
            self._configure()
        except sqlite3.Error as error:
            self.close()
            raise self.failure("opened", error) from error
        except BaseException:
            self.close()
            raise

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        return self._base.execute(statement, values)

    stream = execute

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        self._base.executemany(statement, rows)

    def _configure(self) -> None:
        if not self._has_files:  # nothing that processes could share: SQLite needs its own lock
            self.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        log = f"journal_size_limit = {LOG_BYTES}"
        for setting in ("journal_mode = WAL", "synchronous = FULL", log):
            self.execute(f"PRAGMA {setting}").fetchall()
        # If a sync failed before, the system takes the log for written though it is not: its
        # content is written again, so that nothing depends on it.
        is_busy, *_ = self.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise StoreAway(f"{self.name} is being read by another process; wait for its end")

    def begin(self, start: int | None) -> None:
        self.execute("BEGIN IMMEDIATE")
        # The lock keeps every later start out, unless its file was removed.
        if start is not None and self.number("SELECT starts FROM site") != start:
            self.rollback()
            raise StoreError(f"{self.name} {TAKEN_OVER.format(start=start)}")

    def commit(self) -> None:
        self.execute("COMMIT")
        if self._file is not None:
            self._file.check(self._base)

    def rollback(self) -> None:
        if self._base.in_transaction:  # a commit that failed may have rolled back by itself
            self.execute("ROLLBACK")

    def form(self) -> Form | None:
        form = Form(self.number("PRAGMA application_id"), self.number("PRAGMA user_version"))
        if self.number("SELECT COUNT(*) FROM sqlite_schema"):
            return form
        # A store that was begun has the number of the application, and no version yet.
        if self._has_files and form != Form(APPLICATION, 0):
            raise StoreError(_empty(self.name))
        return None

    def mark(self) -> None:
        self.execute(f"PRAGMA application_id = {APPLICATION}")
        self.execute(f"PRAGMA user_version = {VERSION}")

    def inspect(self, tell: Callable[[str], None]) -> None:
        """Check the pages of the file."""
        size = self.number("PRAGMA page_count") * self.number("PRAGMA page_size")
        tell(f"{self.name} has {size / 1e6:.1f} MB; its pages are checked")
        (answer,) = self.execute("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise StoreError(f"{self.name} is damaged ({answer}); restore it from a copy")

    def is_set_up(self) -> None:
        self.execute("PRAGMA foreign_keys = ON")
        if self._file is not None:
            self._finder = sqlite3.connect(_uri(self.name), uri=True, **HOW)
            self.lookup = self._finder.execute
            self._file.watch()

    def faults(self) -> list[str]:
        """Return what SQLite finds in its pages, and whether the schema has changed."""
        broken = [row[0] for row in self.execute("PRAGMA integrity_check")]
        faults = [] if broken == ["ok"] else [f"SQLite finds: {fault}" for fault in broken]
        with contextlib.closing(sqlite3.connect(MEMORY)) as fresh:
            for statement in schema(SQLITE):
                fresh.execute(statement)
            is_changed = _schema(fresh) != _schema(self._base)
        return [*faults, tables.CHANGED] if is_changed else faults

    def code_of(self, error: Exception) -> str:
        return "_".join(str(getattr(error, "sqlite_errorname", "")).split("_")[:2])

    def refused_table(self, error: Exception) -> str | None:
        if not isinstance(error, sqlite3.IntegrityError):
            return None
        match = re.search(r"failed: (\w+)\.", str(error))
        return match[1] if match else "labels" if "FOREIGN KEY" in str(error) else None

    def close(self) -> None:
        for base in (self._finder, self._base):  # the last one that is closed removes the log
            if base is not None:
                base.close()
        if self._file is not None:
            self._file.close()


class SqliteReader(SqliteFile):
    """A file that is only read, as it is at one instant; a node may have it meanwhile."""

    def __init__(self, path: str) -> None:
        self.name, self._file, self._has_files = path, None, True
        file = Path(path)
        _check_there(file, is_new_allowed=False)
        # A store that was stopped has no log. Then nobody writes, and SQLite makes no file for it.
        self._has_log = log_of(file).exists()
        self._stamp = file.stat().st_mtime_ns
        uri = _uri(path) if self._has_log else f"{_uri(path)}&immutable=1"
        try:
            self._base = sqlite3.connect(uri, uri=True, **HOW)
            self.execute("BEGIN")
            self.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            super().close()
            if not os.access(path, os.R_OK):
                raise StoreError(f"{path} may not be read by this user; ask its owner") from error
            raise self.failure("read", error) from error

    def close(self) -> None:
        """Raise `StoreError` if a node has begun to write a store that was not written before."""
        super().close()
        file, is_checked, self._has_log = Path(self.name), self._has_log, True
        if not is_checked and (log_of(file).exists() or file.stat().st_mtime_ns != self._stamp):
            raise StoreError(f"{self.name} was started while it was read; try again")


def _uri(path: str) -> str:
    return f"{Path(path).absolute().as_uri()}?mode=ro"


def _empty(path: object) -> str:
    return f"{path} is empty; restore a copy or remove it, and a new store is begun"


def _schema(base: sqlite3.Connection) -> list[Any]:
    rows = base.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
    return [tuple(row) for row in rows]


class StoreFile:
    """The lock of a store, and its file and log, which must stay where they are meanwhile."""

    def __init__(self, path: Path, *, is_new_allowed: bool) -> None:
        """Raise `StoreError` if the store is not there and must not be begun anew, or is in use."""
        _check_there(path, is_new_allowed=is_new_allowed)
        self._lock = _locked(path)
        self._watched = [path, log_of(path)]
        self._files: list[tuple[int, int, bool] | None] = []

    def close(self) -> None:
        """Give up the lock, and remove its file."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                lock_of(self._watched[0]).unlink()
            os.close(self._lock)
            self._lock = None

    def watch(self) -> None:
        """Remember which files these are, once the store is open."""
        self._files = self._identities()

    def _identities(self) -> list[tuple[int, int, bool] | None]:
        """Return which files the paths of the store name now; None: there is none.

        The file of the store always has content, its log is begun again from time to time.
        """
        store, log = self._watched
        return [_identity(store), _identity(log, may_be_empty=True)]

    def check(self, base: sqlite3.Connection) -> None:
        """Raise `StoreError` if what was written went to files that the next start cannot find."""
        identities = self._identities()
        if not self._files or identities == self._files:
            return
        place = next(k for k, identity in enumerate(identities) if identity != self._files[k])
        now = identities[place]
        what = "removed" if now is None else "replaced" if now[2] else "emptied"
        text = f"{self._watched[place]} was {what} while the site ran"
        if what == "emptied":
            raise StoreError(f"{text}; restore a copy of it")
        try:  # this process has the file still
            copy = keep_copy(base, self._watched[0], SAVED)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{text}, and cannot be saved ({error}): restore a copy") from None
        raise StoreError(f"{text}; all of it was saved: rename {copy} to {self._watched[0].name}")


def keep_copy(base: sqlite3.Connection, path: Path, ending: str) -> Path:
    """Write a copy of a store beside it, on the disk and whole; return its name.

    No other copy is overwritten. Raises `OSError` if it cannot be written.
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


def lock_of(path: Path) -> Path:
    """Return the file whose lock a node has; it is the same for all names of a store."""
    file = path.resolve()
    return file.with_name(f"{file.name}.lock")


def _locked(path: Path) -> int | None:
    """Return the descriptor that has the lock of a store; None: SQLite says why there is none."""
    file = lock_of(path)
    while True:
        try:
            lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise StoreAway(f"{path} {IN_USE}") from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(file)):
                return lock
        os.close(lock)  # another node ended in between, and removed the file


def is_in_use(path: Path) -> bool:
    """Return whether a node has a store; raise `StoreError` if that cannot be found out."""
    try:
        lock = os.open(lock_of(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"{lock_of(path)} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _identity(path: Path, *, may_be_empty: bool = False) -> tuple[int, int, bool] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, may_be_empty or status.st_size > 0


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
    if is_there and not path.stat().st_size:
        raise StoreError(_empty(path))


def _connect(path: str, **options: Any) -> sqlite3.Connection:
    """Open a file; a new one, and so its log, is for its owner alone."""
    if path != MEMORY and not Path(path).exists():
        _begin(Path(path))
    base: sqlite3.Connection = sqlite3.connect(path, **options)
    return base


def _begin(path: Path) -> None:
    """Make the file of a new store at once, so that it can be told from an emptied one."""
    with contextlib.closing(sqlite3.connect(MEMORY)) as base:
        base.execute(f"PRAGMA application_id = {APPLICATION}")
        content = base.serialize()
    try:
        create(path, content, mode=0o600)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"{path} {FULL}") from None
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP):  # a disk without links
            replace(path, content, mode=0o600)
        # Of anything else SQLite has a better message.
