"""A table of a configuration -> a checked record, or one sentence that names the field."""

import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from covey.errors import ConfigError

Record = TypeVar("Record", bound=msgspec.Struct)


def read(table: object, kind: type[Record], *, where: str) -> Record:
    """Return `table` as a record of `kind`.

    Raises `ConfigError` for an unknown key (with the nearest known one), a missing key or a value
    of the wrong type.
    """
    _check_keys(table, kind, where)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(_sentence(str(error), where) + _allowed(str(error), kind)) from None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the known name nearest to `word`."""
    names = sorted(known)
    if not names:
        return ""
    close = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"


def _check_keys(table: object, kind: type[msgspec.Struct], where: str) -> None:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is not a table of keys and values")
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        if key not in fields:
            raise ConfigError(f"unknown key {key!r} in {where}{nearest(str(key), fields)}")
        inner = _record_in(fields[key])
        if inner is not None and isinstance(value, Mapping):
            _check_keys(value, inner, f"{where} {key}")


def _record_in(kind: Any) -> type[msgspec.Struct] | None:
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    records = [one for one in options if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    return records[0] if records else None


def _allowed(error: str, kind: type[msgspec.Struct]) -> str:
    """Return the end of a sentence about a word that is none of those which a field may have."""
    if not error.startswith("Invalid enum value"):
        return ""
    name = error.rpartition("$")[2].strip(".`").partition(".")[0].partition("[")[0]
    types_of = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    given = error.removeprefix("Invalid enum value ").partition(" - at")[0].strip("'")
    return nearest(given, map(str, _words_in(types_of.get(name))))


def _words_in(kind: Any) -> set[Any]:
    """Return the literals in a type, however deep."""
    if typing.get_origin(kind) is typing.Literal:
        return set(typing.get_args(kind))
    return {word for inner in typing.get_args(kind) for word in _words_in(inner)}


def _sentence(error: str, where: str) -> str:
    """Turn "Expected `int | null`, got `str` - at `$.slices`" into "[policy] slices: ..."."""
    problem, _, path = error.partition(" - at `$")
    name = path.rstrip("`").lstrip(".")
    problem = problem.replace("`", "").replace(" | null", "").replace("Object missing", "missing")
    return f"{where} {name}: {problem[0].lower()}{problem[1:]}".replace(" :", ":")
