"""Convert a configuration table to a validated record; errors name the field."""

import contextlib
import difflib
import math
import pkgutil
import re
import sys
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields

from covey.errors import ConfigError


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raise `ConfigError` if it cannot be read."""
    try:
        return tomllib.loads(path.read_bytes().decode().replace("\r\n", "\n"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def text_of(value: Any) -> str:
    """Return a value as TOML; tables are written inline. Texts are quoted as JSON does."""
    if isinstance(value, Mapping):
        pairs = [f"{key_text(key)} = {text_of(item)}" for key, item in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return msgspec.json.encode(value).decode()


def key_text(key: str) -> str:
    """Return a key as TOML, quoted where it must be."""
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else msgspec.json.encode(key).decode()


@contextlib.contextmanager
def modules_beside(file: Any) -> Iterator[None]:
    """Let the block import modules in the folder of a file, after all others.

    A table may name them. What is no path has no folder.
    """
    folder = str(Path(file).resolve().parent) if isinstance(file, str | Path) else None
    if folder is None or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


class LocalName(str):
    """The name of a class or function that cannot be imported by it, with what it names."""

    entry: Any

    def __eq__(self, other: object) -> bool:
        is_same = isinstance(other, LocalName) and other.entry is self.entry
        return is_same and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def named(entry: Any) -> str:
    """Return "module:name" of a class or function, which `imported` finds by it."""
    own = entry if hasattr(entry, "__qualname__") else type(entry)
    name = f"{own.__module__}:{own.__qualname__}"
    if is_importable(name) and pkgutil.resolve_name(name) is entry:
        return name
    local = LocalName(name)
    local.entry = entry
    return local


def is_importable(name: str) -> bool:
    """Return whether every process finds what a table names as "module:name"."""
    try:
        return not isinstance(name, LocalName) and pkgutil.resolve_name(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def imported(name: str, *, where: str) -> Any:
    """Return what a table names as "module:name"; raise `ConfigError` if it is not found."""
    try:
        return name.entry if isinstance(name, LocalName) else pkgutil.resolve_name(name)
    except (Exception, SystemExit) as error:  # also what a module raises
        raise ConfigError(
            f"{where} {name!r} cannot be imported ({type(error).__name__}: {error}); write "
            "module:name, and put the module beside the configuration or on the Python path"
        ) from error


Record = TypeVar("Record", bound=msgspec.Struct)


def read(table: object, kind: type[Record], *, where: str) -> Record:
    """Return `table` as a record of `kind`.

    Raises `ConfigError` that names all unknown keys (with the nearest known ones), or else all
    missing keys and values of the wrong type.
    """
    unknown = list(_unknown_keys(table, kind, where))
    if unknown:
        raise ConfigError("; ".join(unknown))
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        wrong = list(_wrong_values(table, kind)) or [(str(error), kind)]
        raise ConfigError("; ".join(_sentence(*each, where) for each in wrong)) from None


def check(record: msgspec.Struct) -> None:
    """Raise `ConfigError` unless the fields of a record that Python made are of their types."""
    for name, kind in _types_of(type(record)).items():
        value = getattr(record, name)
        value = value.item() if hasattr(value, "item") else value  # of NumPy
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            wanted = str(error).replace("`", "").replace(" | null", "").replace("Exp", "exp")
            raise ConfigError(f"{name.replace('_', '-')} is {value}; {wanted}") from None


def nearest(word: str, candidates: Iterable[str], *, listed: str = "") -> str:
    """Return a message suffix that suggests the known name most similar to `word`.

    Without a similar one, it lists all: the text `listed`, or the names in order.
    """
    names = sorted(candidates)
    if not names:
        return ""
    close = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {listed or ', '.join(names)}"


def check_range(value: float, low: float, high: float, what: str) -> None:
    """Raise `ConfigError` unless `value` lies in the range; `what` names the key."""
    if not low <= value <= high:
        raise ConfigError(f"{what} is {value}; it must lie from {low:g} to {high:g}")


Pair = tuple[object, str, str]  # whether both are there, and what they are


def check_apart(pairs: Iterable[Pair], *, remedy: str = "") -> None:
    """Raise `ConfigError` for the first two things that are there and cannot be combined."""
    for are_both, thing, other in pairs:
        if are_both:
            raise ConfigError(
                f"{thing} cannot be combined with {other}; remove one of them{remedy}"
            )


@cache
def _types_of(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the types of the fields of a record; `fields` evaluates them at every call."""
    return {field.encode_name: field.type for field in fields(kind)}


def _unknown_keys(table: Any, kind: type[msgspec.Struct], where: str) -> Iterator[str]:
    """Yield a sentence for each unknown key."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is not a table of keys and values")
    kinds = _types_of(kind)
    for key, value in table.items():
        if key not in kinds:
            yield f"unknown key {key!r} in {where}{nearest(str(key), kinds)}"
            continue
        inner = _record_in(kinds[key])
        if inner is not None and isinstance(value, Mapping):
            yield from _unknown_keys(value, inner, f"{where} {key}")


def _wrong_values(table: Any, kind: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
    """Yield the error of msgspec for each key by itself, and the type of its value."""
    for field in fields(kind):
        key = field.encode_name
        if key not in table:
            if field.required:
                yield f"Object missing required field `{key}`", field.type
            continue
        try:
            msgspec.convert(table[key], field.type)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$")
            if path == "[...]`":  # of a value in a table of any keys
                path = f" {_wrong_item(table[key], field.type)!r}`"
            if not path and isinstance(table[key], int | float) and ", got" not in problem:
                problem = f"{problem}, got {table[key]}"
            yield f"{problem} - at `$.{key}{path or '`'}", field.type


def _wrong_item(table: Mapping[str, Any], kind: Any) -> str:
    """Return the first key of a table that makes it invalid."""
    for key, value in table.items():
        try:
            msgspec.convert({key: value}, kind)
        except msgspec.ValidationError:
            return key
    return "..."


def _record_in(kind: Any) -> type[msgspec.Struct] | None:
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    records = [
        kind for kind in options if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ]
    return records[0] if records else None


def _allowed(error: str, kind: Any) -> str:
    """Return a message suffix with the allowed values, for an invalid enum value."""
    if not error.startswith(("Invalid enum value", "Expected `str")):
        return ""
    value = error.removeprefix("Invalid enum value ").partition(" - at")[0].strip("'")
    return nearest(value, map(str, _words_in(kind)))


def _words_in(kind: Any) -> set[Any]:
    """Return all literals in a nested type."""
    if typing.get_origin(kind) is typing.Literal:
        return set(typing.get_args(kind))
    is_record = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    parts = _types_of(kind).values() if is_record else typing.get_args(kind)
    return {word for inner in parts for word in _words_in(inner)}


def _sentence(error: str, kind: Any, where: str) -> str:
    """Turn "Expected `int | null`, got `str` - at `$.slices`" into "[policy] slices: ..."."""
    problem, _, path = error.partition(" - at `$")
    name = path.rstrip("`").lstrip(".")
    problem = problem.replace("`", "").replace(" | null", "").replace("Object missing", "missing")
    named = f"{where} {name}: {problem[0].lower()}{problem[1:]}".replace(" :", ":").strip()
    return named + _allowed(error, kind)
