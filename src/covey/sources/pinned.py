"""Files whose content is known beforehand, by its hash."""

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
        """Where the model is."""

    @property
    def sha256(self) -> str:
        """What the file's hash must be."""


def content_of(table: Pinned, folder: Path) -> bytes:
    """Return the bytes that were hashed: nobody can swap the file between the check and its use.

    Raises `ConfigError` if the file is not there or is another one.
    """
    path = folder / table.file
    who = f"function {table.name!r}"
    if len(table.sha256) != 64 or not set(table.sha256.lower()) <= set("0123456789abcdef"):
        raise ConfigError(
            f"{who}: sha256 is {table.sha256!r}; write the 64 digits that sha256sum prints for "
            f"{table.file}"
        )
    if path.exists() and not path.is_file():
        raise ConfigError(f"{who}: {path} is not a file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{who}: cannot read {path}: {error.strerror}") from None
    digest = hashlib.sha256(content).hexdigest()
    if not hmac.compare_digest(digest, table.sha256.lower()):
        raise ConfigError(
            f"{who}: {path} has sha256 {digest}, but {table.sha256.lower()} is pinned; it was not "
            "loaded. If you meant to change the file, pin its new hash"
        )
    return content
