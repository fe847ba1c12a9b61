"""The file of a store: whether it is there, whether it is still the same one, and copies of it."""

import contextlib
import filecmp
import itertools
import os
import sqlite3
from pathlib import Path
from typing import Any

from covey.errors import StoreError
from covey.files import sync

SAVED = ".saved"  # after the name of a store that was removed: what it held


class StoreFile:
    """The file of a store and its log, which must stay where they are while it is open."""

    def __init__(self, path: Path, *, is_new_allowed: bool) -> None:
        """Raise `StoreError` if the store is not there and must not be begun anew."""
        _check_there(path, is_new_allowed=is_new_allowed)
        self._watched = [path, _log_of(path)]
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
        if found == self._files:
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


def _log_of(path: Path) -> Path:
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
    log = _log_of(path)
    # SQLite would drop the log, with all labels in it, and begin a new file.
    if log.exists() and (not is_there or (not path.stat().st_size and log.stat().st_size)):
        what = "is empty" if is_there else "is not there"
        raise StoreError(
            f"{path} {what}, but its log {log} is there, so the store was removed; restore both "
            "from a copy, or remove the log to begin a new store"
        )


def connect(path: str, **given: Any) -> sqlite3.Connection:
    """Open a file; a new one, and so its log, is for its owner alone."""
    if path != ":memory:":
        with contextlib.suppress(OSError):  # SQLite has a better message
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    base: sqlite3.Connection = sqlite3.connect(path, **given)
    return base


def sentence(path: str, verb: str, error: sqlite3.Error) -> str:
    """Return what an error of SQLite means, and what to do."""
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
