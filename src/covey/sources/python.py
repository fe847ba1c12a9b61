"""`kind = "python"`: an object that installed code names, or makes."""

import functools
import importlib
from pathlib import Path
from typing import Any

from covey.errors import ConfigError
from covey.sources.tables import Kind, Taught


class Entry(Taught, frozen=True, kw_only=True):
    """A name in a module; a class, or anything given options, is called."""

    entry: str
    options: dict[str, Any] | None = None


def load(table: Entry, folder: Path) -> Any:
    """Return what the entry names, or makes of its options."""
    found = _found(table)
    if table.options is None and not isinstance(found, type):
        return found
    try:
        return found(**(table.options or {}))
    except Exception as error:
        raise ConfigError(
            f"function {table.name!r}: {table.entry} raised {type(error).__name__} when it was "
            f"called with its options: {error}"
        ) from error


def _found(table: Entry) -> Any:
    module, colon, name = table.entry.partition(":")
    if not (module and colon and name):
        raise ConfigError(
            f"function {table.name!r}: entry is {table.entry!r}; write package.module:name"
        )
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except AttributeError:
        problem = f"{module} has no {name}"
    except ModuleNotFoundError as error:
        problem = f"{error}; install it where covey is installed"
    except Exception as error:
        problem = f"importing {module} raised {type(error).__name__}: {error}"
    raise ConfigError(f"function {table.name!r}: {problem}")


KIND = Kind(Entry, load)
