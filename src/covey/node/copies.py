"""Copies of stores: of one that is in use, to read it, and of one that moves elsewhere."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from covey.errors import StoreError
from covey.node import tables
from covey.node.database import DatabaseUrl
from covey.node.store import Store

ATTEMPTS = 20  # to copy a file between two checkpoints of a running node
AT_ONCE = 4_096  # rows that are written together


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
    if not place.exists():
        raise StoreError(f"there is no store {place}; give the file that a node has written")
    return _copied_file(place, folder)


def _copied_file(store: Path, folder: Path) -> Path:
    """Copy a file and its log.

    A node only appends to the log, and writes the file itself at a checkpoint: a copy is whole if
    there was none meanwhile.
    """
    copy = folder / store.name
    try:
        for _ in range(ATTEMPTS):
            before = _version(store)
            shutil.copyfile(store, copy)
            log = Path(f"{store}-wal")
            if log.exists():
                shutil.copyfile(log, f"{copy}-wal")
            if _version(store) == before:
                return copy
    except OSError as error:
        raise StoreError(f"{store} cannot be copied to {folder}: {error.strerror}") from None
    raise StoreError(f"{store} is being written too fast to be copied; try again later")


def _version(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def move(
    source: Path | DatabaseUrl,
    target: Path | DatabaseUrl,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, int]:
    """Copy a store that is not in use to a place where there is none; return its size.

    The copy is checked, as `covey check` does, before it is complete. Raises `StoreError` if it
    cannot be made; then the target stays empty, and the source is as it was in any case.
    """
    with (
        closing(Store(source, is_new_allowed=False)) as one,
        closing(Store(target, tell=tell)) as other,
    ):
        if not other.is_new:
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
