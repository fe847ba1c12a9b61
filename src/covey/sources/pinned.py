"""Read files that are pinned by their SHA-256."""

import hashlib
import hmac
from pathlib import Path
from typing import Protocol

from covey.errors import ConfigError


class Pinned(Protocol):
    """The keys of every kind that reads a model from a file."""

    @property
    def name(self) -> str:
        """The function's name."""

    @property
    def file(self) -> str:
        """The path of the model."""

    @property
    def sha256(self) -> str:
        """The expected hash of the file."""


def content_of(table: Pinned, folder: Path) -> bytes:
    """Return the hashed bytes, so that the file cannot be replaced between check and use.

    Raises `ConfigError` if the file is missing or has another hash.
    """
    path = folder / table.file
    where = f"function {table.name!r}"
    if len(table.sha256) != 64 or not set(table.sha256.lower()) <= set("0123456789abcdef"):
        raise ConfigError(
            f"{where}: sha256 is {table.sha256!r}; write the 64 digits that sha256sum prints for "
            f"{table.file}"
        )
    if path.exists() and not path.is_file():
        raise ConfigError(f"{where}: {path} is not a file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: cannot read {path}: {error.strerror}") from None
    digest = hashlib.sha256(content).hexdigest()
    if not hmac.compare_digest(digest, table.sha256.lower()):
        raise ConfigError(
            f"{where}: {path} has sha256 {digest}, but {table.sha256.lower()} is pinned; it was "
            "not loaded. If the change is intended, pin the new hash"
        )
    return content
