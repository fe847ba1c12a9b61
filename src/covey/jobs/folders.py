"""A folder that keeps the finished results of jobs, so that interrupted work resumes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from covey import files
from covey.errors import ConfigError, DataError

Result = TypeVar("Result")


def claim(folder: Path, own: Mapping[str, Any], *, file: str, what: str) -> None:
    """Mark `folder` as that of the work described by `own`; raise `ConfigError` if it is another's.

    `file` holds the description, and `what` names the kind of work in messages.
    """
    path = folder / file
    own = msgspec.json.decode(msgspec.json.encode(own))
    stored: Mapping[str, Any]
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        stored = own
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); choose another folder") from None
    if stored != own:
        raise ConfigError(
            f"{folder} holds runs of another {what}: {_difference(stored, own)}; choose another "
            "folder, or remove this one"
        )
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(path, msgspec.json.format(msgspec.json.encode(own)) + b"\n")


def _difference(stored: Mapping[str, Any], own: Mapping[str, Any], where: str = "") -> str:
    """Return the first key that differs, with both values."""
    key = next(key for key in {**own, **stored} if stored.get(key) != own.get(key))
    old, new = stored.get(key), own.get(key)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _difference(old, new, f"{where}{key} ")
    if isinstance(old, Mapping) or isinstance(new, Mapping):
        return f"{where}{key} is {'only there' if new is None else 'not there'}"
    return f"{where}{key} is {old!r} there and {new!r} here"


def kept(path: Path, kind: type[Result]) -> Result | None:
    """Return the result in a file; None if there is none, or a power loss damaged it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def keep(path: Path, result: Any) -> None:
    """Write a finished result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, msgspec.json.encode(result))
