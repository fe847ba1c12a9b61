"""A disk in memory under real SQLite, which may lose its power at any operation.

A write is seen at once by who reads, as the operating system sees to that; it outlives a loss of
power only if the file was synced after it. What was not synced is dropped, kept, or torn by sector.
"""

import contextlib
import functools
import itertools
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apsw

SECTOR = 512  # bytes
SYNC_FAILED = apsw.SQLITE_IOERR_FSYNC
FULL = apsw.SQLITE_FULL
GONE = apsw.SQLITE_IOERR

Write = tuple[int, bytes | None]  # where and what; None: the file is cut off there
Keeps = Callable[[int], bool]  # whether the next sector is kept, of the write of this number
_disks: dict[str, "Disk"] = {}
_numbers = itertools.count()


class File:
    """What programs see of a file, what is on the platter, and what happened in between."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.synced: bytearray | None = None  # None: the folder does not have it for good yet
        self.since: list[Write] = []

    def apply(self, write: Write) -> None:
        """Let programs see a write."""
        _apply(self.seen, write)
        self.since.append(write)

    def sync(self) -> None:
        """Bring all writes to the platter."""
        self.synced = bytearray() if self.synced is None else self.synced
        for write in self.since:
            _apply(self.synced, write)
        self.since.clear()

    def lose(self, keeps: Keeps) -> bool:
        """Be what is left without power; return whether there is a file at all."""
        if self.synced is None and not keeps(-1):
            return False
        left = bytearray() if self.synced is None else self.synced
        for number, (place, content) in enumerate(self.since):
            for piece in _sectors(place, content):
                if keeps(number):
                    _apply(left, piece)
        self.seen, self.synced, self.since = bytearray(left), left, []
        return True


class Disk:
    """The files of one site; `connect` is the door of a `Store` to them."""

    def __init__(self) -> None:
        self.name = f"disk{next(_numbers)}"
        self.files: dict[str, File] = {}
        self.boots = 0  # handles of an earlier boot are dead
        self.operations = 0  # that changed something
        self.fuse: int | None = None  # operations until the power goes
        self.is_cut = False
        self.room: int | None = None  # bytes; None: there is enough
        self.fails_sync = False  # and then takes what was written for written
        self.lies = False  # says that it synced
        _disks[self.name] = self

    def connect(self, path: str, **_: Any) -> "Connection":
        """Open a file as `sqlite3.connect` would."""
        _vfs()
        return Connection(f"/{self.name}/{path}")

    def kill(self) -> None:
        """Let the process be gone that has files open; what it wrote stays seen."""
        self.boots += 1
        self.fuse, self.is_cut = None, False

    def lose_power(self, keeps: Keeps) -> None:
        """Let the machine be gone, and come back with what is left."""
        self.kill()
        self.files = {name: one for name, one in self.files.items() if one.lose(keeps)}

    def remove(self) -> None:
        """Forget all of it."""
        _disks.pop(self.name, None)

    def change(self) -> None:
        """Count an operation; raise if the power goes before it."""
        if self.is_cut or self.fuse == 0:
            self.is_cut = True
            raise apsw.exception_for(GONE)
        self.operations += 1
        if self.fuse is not None:
            self.fuse -= 1


class Handle:
    """An open file, as SQLite sees it."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk, self._file, self._boot = disk, disk.files[name], disk.boots

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's names
        self._check()
        return bytes(self._file.seen[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._check()
        self._disk.change()
        end, room = offset + len(data), self._disk.room
        if room is not None and end > len(self._file.seen) and end > room:
            raise apsw.exception_for(FULL)
        self._file.apply((offset, bytes(data)))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._check()
        self._disk.change()
        self._file.apply((size, None))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._check()
        self._disk.change()
        if self._disk.lies:
            return
        if self._disk.fails_sync:
            # As Linux does it: the pages count as clean from now on, and never reach the platter.
            self._file.since.clear()
            raise apsw.exception_for(SYNC_FAILED)
        self._file.sync()

    def xFileSize(self) -> int:  # noqa: N802
        self._check()
        return len(self._file.seen)

    def xLock(self, level: int) -> None:  # noqa: N802
        self._check()

    def xUnlock(self, level: int) -> None:  # noqa: N802
        pass

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xClose(self) -> None:  # noqa: N802
        pass

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return int(apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE)

    def xFileControl(self, operation: int, pointer: int) -> bool:  # noqa: N802
        return False

    def _check(self) -> None:
        if self._boot != self._disk.boots:
            raise apsw.exception_for(GONE)


class Vfs(apsw.VFS):
    """All disks, told apart by the first part of a path."""

    def __init__(self) -> None:
        super().__init__("storm", "")

    def xOpen(self, name: Any, flags: list[int]) -> Handle:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        disk, file = _place(path)
        if file not in disk.files:
            disk.files[file] = File()
        flags[1] = flags[0]
        return Handle(disk, file)

    def xDelete(self, path: str, is_synced: bool) -> None:  # noqa: N802
        disk, file = _place(path)
        disk.change()
        disk.files.pop(file, None)

    def xAccess(self, path: str, flags: int) -> bool:  # noqa: N802
        disk, file = _place(path)
        return file in disk.files

    def xFullPathname(self, path: str) -> str:  # noqa: N802
        return path

    def xRandomness(self, size: int) -> bytes:  # noqa: N802
        return bytes(size)

    def xSleep(self, microseconds: int) -> int:  # noqa: N802
        return microseconds

    def xCurrentTimeInt64(self) -> int:  # noqa: N802
        return 0

    def xGetLastError(self) -> tuple[int, str]:  # noqa: N802
        return 0, ""


class Connection:
    """What a `Store` uses of `sqlite3.Connection`, over apsw."""

    def __init__(self, path: str) -> None:
        with _Errors():
            self._base = apsw.Connection(path, vfs="storm")

    @property
    def in_transaction(self) -> bool:
        return bool(self._base.in_transaction)

    def execute(self, statement: str, given: Any = ()) -> "Rows":
        with _Errors():
            before = self._base.total_changes()
            rows = self._base.execute(statement, given).fetchall()
            return Rows(rows, self._base.total_changes() - before)

    def executemany(self, statement: str, given: Iterable[Any]) -> None:
        with _Errors():
            self._base.executemany(statement, given)

    def close(self) -> None:
        with contextlib.suppress(apsw.Error):  # of a process that is gone
            self._base.close(True)


class Rows:
    """What a statement gave, and how many rows it changed."""

    def __init__(self, rows: list[Any], changed: int) -> None:
        self._rows = iter(rows)
        self.rowcount = changed

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class _Errors:
    """Turns apsw's errors into those of sqlite3."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, apsw.Error):
            told = sqlite3.OperationalError(str(error) or kind.__name__)
            code = getattr(error, "result", apsw.SQLITE_IOERR)
            told.sqlite_errorname = apsw.mapping_result_codes.get(code, "SQLITE_ERROR")
            raise told from error


def by_chance(chance: random.Random) -> Keeps:
    """Return one way in which power may be lost."""
    way = chance.randrange(5)
    if way == 0:
        return lambda number: False
    if way == 1:
        return lambda number: True
    if way == 2:
        last = chance.randrange(40)
        return lambda number: number < last  # in order, up to some write
    if way == 3:
        return lambda number: chance.random() < 0.5  # each sector for itself
    return functools.cache(lambda number: chance.random() < 0.5)  # each write for itself


@functools.cache
def _vfs() -> Vfs:
    return Vfs()


def _place(path: str) -> tuple[Disk, str]:
    _, disk, file = path.split("/", 2)
    if disk not in _disks:
        raise apsw.exception_for(GONE)
    return _disks[disk], file


def _apply(content: bytearray, write: Write) -> None:
    place, data = write
    if data is None:
        del content[place:]
        return
    if len(content) < place:
        content.extend(bytes(place - len(content)))
    content[place : place + len(data)] = data


def _sectors(place: int, content: bytes | None) -> Iterator[Write]:
    """Yield a write sector by sector."""
    if content is None:
        yield place, None
        return
    start, end = place, place + len(content)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield start, content[start - place : stop - place]
        start = stop
