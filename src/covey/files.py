"""Files that appear whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def replace(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write `path` so that a reader sees the old content or the new one, never a part.

    It has its permissions from its first byte on, less those of the umask, and is on the disk.
    """
    with _part(path, content, mode) as part:
        part.replace(path)


def create(path: Path, content: bytes, *, mode: int) -> None:
    """Write `path` whole, with permissions from its first byte on, and on the disk.

    Raises `FileExistsError` if it is there already, even from another process.
    """
    with _part(path, content, mode) as part:
        os.link(part, path)


def version(path: Path) -> tuple[int, ...]:
    """Return a value that changes when the file changes."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that change its files with this function."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _part(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        yield part
        sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
