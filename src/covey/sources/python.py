"""`kind = "python"`: an object of installed code, or one that it creates."""

import functools
import importlib
from pathlib import Path
from typing import Any

from covey.errors import ConfigError
from covey.sources.tables import Kind, Taught


class Entry(Taught, frozen=True, kw_only=True):
    """A name in a module; a class, or an entry with options, is called."""

    entry: str
    options: dict[str, Any] | None = None


def load(table: Entry, folder: Path) -> Any:
    """Return the object that the entry names, or creates from its options."""
    found = _found(table)
    if is_shared(table):
        return found
    try:
        return found(**(table.options or {}))
    except Exception as error:
        raise ConfigError(
            f"function {table.name!r}: {table.entry} raised {type(error).__name__} when called "
            f"with its options: {error}"
        ) from error


def is_shared(table: Entry) -> bool:
    """Return whether the entry is the object itself, not a factory."""
    return table.options is None and not isinstance(_found(table), type)


def _found(table: Entry) -> Any:
    module, colon, name = table.entry.partition(":")
    if not (module and colon and name):
        raise ConfigError(
            f"function {table.name!r}: entry is {table.entry!r}; write package.module:name"
        )
    try:
        return functools.reduce(getattr, name.split("."), _module(module))
    except AttributeError:
        problem = f"{module} has no {name}"
    except ConfigError as error:
        problem = str(error)
    raise ConfigError(f"function {table.name!r}: {problem}")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error}; install it where covey is installed") from error
    except Exception as error:
        raise ConfigError(f"importing {name} raised {type(error).__name__}: {error}") from error


KIND = Kind(Entry, load)
