"""Create functions from `[[function]]` tables."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from covey.classifiers import Function, as_function, fresh, frozen
from covey.errors import ConfigError
from covey.fields import nearest, read
from covey.sources import constant, onnx, python, remote, river, skops
from covey.sources.lessons import Remember, remembering
from covey.sources.tables import Kind, Taught

KINDS: dict[str, Kind] = {
    "constant": constant.KIND,
    "onnx": onnx.KIND,
    "python": python.KIND,
    "remote": remote.KIND,
    "river": river.KIND,
    "skops": skops.KIND,
}


def functions_from(
    tables: object, *, owner: str, folder: Path, remember: Remember = remembering
) -> dict[str, Function]:
    """Return the functions of a site's `[[function]]` tables, by name.

    File paths are relative to `folder`, that of the configuration; `remember` handles training
    logs. Raises `ConfigError` if a table is not valid, and `MissingExtra` if its library is not
    installed.
    """
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise ConfigError("function is not a list of tables; write [[function]] in double brackets")
    functions: dict[str, Function] = {}
    files: dict[Path, str] = {}
    for number, raw in enumerate(tables, 1):
        where = f"[[function]] {number}"
        table = _table(raw, where)
        if table.name in functions:
            raise ConfigError(f"{where}: duplicate function name {table.name!r}; names must differ")
        _check_own_lessons(table, folder, files)
        functions[table.name] = _function(table, owner, folder, remember)
    return functions


def _table(raw: object, where: str) -> Any:
    kind = raw.get("kind") if isinstance(raw, Mapping) else None
    if not isinstance(kind, str):
        raise ConfigError(f"{where} has no kind; known: {', '.join(KINDS)}")
    if kind not in KINDS:
        raise ConfigError(f"{where}: unknown kind {kind!r}{nearest(kind, KINDS)}")
    table = read(raw, KINDS[kind].table, where=where)
    if not table.name:
        raise ConfigError(f"{where}: name is empty; give one")
    return table


def _check_own_lessons(table: Any, folder: Path, files: dict[Path, str]) -> None:
    if not isinstance(table, Taught) or table.lessons is None:
        return
    other = files.setdefault((folder / table.lessons).resolve(), table.name)
    if other != table.name:
        raise ConfigError(
            f"functions {other!r} and {table.name!r} have the same lessons file, {table.lessons}; "
            "give each another one"
        )


def _function(table: Any, owner: str, folder: Path, remember: Remember) -> Function:
    if isinstance(table, Taught):
        _check_lessons(table)
    function = _made(table, owner, folder)
    if not isinstance(table, Taught) or table.lessons is None:
        return function
    if function.teach is None:
        raise ConfigError(f"function {table.name!r} cannot learn; remove lessons")
    is_single = isinstance(table, python.Entry) and python.is_shared(table)
    again = None if is_single else partial(_made, table, owner, folder)
    return remember(function, folder / table.lessons, most=table.lessons_kept, again=again)


def _made(table: Any, owner: str, folder: Path) -> Function:
    given = KINDS[table.kind].load(table, folder)
    classes = tuple(getattr(table, "classes", None) or ())
    if isinstance(table, Taught):
        given = fresh(given, classes=classes) if classes else given
        given = given if table.learns else frozen(given)
    return as_function(given, name=table.name, owner=owner)._replace(classes=classes)


def _check_lessons(table: Taught) -> None:
    where = f"function {table.name!r}"
    if not table.learns and (table.classes or table.lessons is not None):
        key = "classes" if table.classes else "lessons"
        raise ConfigError(
            f"{where} has {key}, which are for functions that learn; set learns = true or remove "
            f"{key}"
        )
    if table.lessons_kept < 1:
        raise ConfigError(f"{where}: lessons-kept is {table.lessons_kept}; it must be 1 or more")
