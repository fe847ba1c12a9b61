"""Copies of stores: of one that is in use, to read it, and of one that moves elsewhere.

A node holds the exclusive lock of its file, so no other process can read it, and no reader can hold
up its checkpoints. A reader copies the file and its log instead, and opens the copy.
"""

import filecmp
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from covey.errors import StoreError
from covey.node import tables
from covey.node.database import DatabaseUrl
from covey.node.store import Store
from covey.node.store_file import log_of

ATTEMPTS = 20  # to copy a file between two checkpoints of a running node
LOG_HEAD = 32  # bytes at the beginning of a log, which change when SQLite begins it again
AT_ONCE = 4_096  # rows that are written together


@contextmanager
def opened_copy(place: Path | DatabaseUrl) -> Iterator[Store]:
    """Open a copy of a store, which may be in use; the store itself is not changed.

    Raises `StoreError`, which names the store itself, if it cannot be copied or read.
    """
    with tempfile.TemporaryDirectory(prefix="covey-store-") as folder:
        copy = snapshot(place, Path(folder))
        try:
            with closing(Store(copy)) as store:
                yield store
        except StoreError as error:
            raise StoreError(str(error).replace(str(copy), str(place))) from None


def snapshot(place: Path | DatabaseUrl, folder: Path) -> Path:
    """Copy a store, which may be in use, to a file in a folder; return the copy.

    Raises `StoreError` if it cannot be read, if there is no store, or no room.
    """
    if isinstance(place, DatabaseUrl):
        from covey.node import postgres  # needs an optional package

        copy = folder / "copy.store"
        with postgres.reading(place) as rows_of, closing(Store(copy)) as store:
            _fill(store, {name: rows_of(name) for name in tables.TABLES})
        return copy
    if not place.is_file():
        raise StoreError(f"there is no store {place}; give the file that a node has written")
    return _copied_file(place, folder)


def _copied_file(store: Path, folder: Path) -> Path:
    """Copy a file and its log; the copy is the store at one instant.

    A node appends to the log. It writes the file itself only at a checkpoint, and begins the log
    again after one, with another head. So the copy is whole if the file still has the copied bytes
    after the log was copied, and the log its head.
    """
    copy, log = folder / store.name, log_of(store)
    try:
        for _ in range(ATTEMPTS):
            log_of(copy).unlink(missing_ok=True)
            shutil.copyfile(store, copy)
            head = _head(log)
            if head:
                shutil.copyfile(log, log_of(copy))
            filecmp.clear_cache()  # it remembers files by their times, which are too coarse
            if filecmp.cmp(store, copy, shallow=False) and _head(log) == head:
                return copy
    except OSError as error:
        raise StoreError(f"{store} cannot be copied to {folder}: {error.strerror}") from None
    raise StoreError(f"{store} is being written too fast to be copied; try again later")


def _head(log: Path) -> bytes:
    """Return the first bytes of a log; none: there is no log, or it is empty."""
    try:
        with log.open("rb") as file:
            return file.read(LOG_HEAD)
    except FileNotFoundError:
        return b""


def move(
    source: Path | DatabaseUrl,
    target: Path | DatabaseUrl,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, int]:
    """Copy a store that is not in use to a place where there is none; return its size.

    The copy is checked, as `covey check` does, before it is complete. Raises `StoreError` if it
    cannot be made; then the target holds no site, and the source is as it was in any case.
    """
    with (
        closing(Store(source, is_new_allowed=False)) as one,
        closing(Store(target, tell=tell)) as other,
    ):
        if other.name():  # a site was started with it
            raise StoreError(f"there is a store in {other.path} already; give an empty place")
        tell(f"{one.path} has {one.size()['rows']} rows; they are checked and copied")
        _fill(other, {name: one.stored_rows(name) for name in tables.TABLES})
        return other.size()


def _fill(store: Store, rows: Mapping[str, Iterable[Any]]) -> None:
    """Write the rows of all tables in one transaction; raise `StoreError` for a damaged one."""
    with store.filling() as write:
        for table, some in rows.items():
            waiting = iter(some)
            while part := list(islice(waiting, AT_ONCE)):
                write(table, part)
