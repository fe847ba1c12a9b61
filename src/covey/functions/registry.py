"""Functions from `[[function]]` tables: constants, Python, River models; training logs."""

import errno
import importlib
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from covey.data.inputs import Columns, named
from covey.errors import ConfigError, DataError, FunctionError, need_of, optional_module, place_of
from covey.functions.function import (
    Function,
    FunctionKind,
    Named,
    Processes,
    Scalar,
    Taught,
    as_function,
    frozen,
    untrained,
)
from covey.functions.model_files import Onnx, Skops, load_onnx, load_skops
from covey.functions.remote import Remote, load_remote
from covey.toml import imported, nearest, read
from covey.types import Label

MOST_PROCESSES = 64  # of one function


class Constant(Named, frozen=True, kw_only=True):
    """A function that ignores the instance."""

    is_instant: ClassVar[bool] = True
    label: Scalar

    def predict(self, rows: Any) -> list[Scalar]:
        return [self.label] * len(rows)


class Entry(Taught, frozen=True, kw_only=True):
    """A name in a module; a class, or an entry with options, is called."""

    entry: str
    options: dict[str, Any] | None = None
    version: str = ""


class Python(Entry, frozen=True, kw_only=True):
    """An entry that may run in processes of its own."""

    processes: Annotated[int, Meta(ge=1, le=MOST_PROCESSES)] | None = None


def load_python(table: Entry, folder: Path) -> Any:
    entry = _found(table)
    if is_shared(table):
        return entry
    try:
        return entry(**(table.options or {}))
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"function {table.name!r}: {table.entry} raised {type(error).__name__} when called "
            f"with its options: {error}"
        ) from error


def is_shared(table: Entry) -> bool:
    return table.options is None and not isinstance(_found(table), type)


def _found(table: Entry) -> Any:
    return imported(table.entry, where=f"function {table.name!r}: entry")


class River(Entry, frozen=True, kw_only=True):
    """An entry that creates a River model."""

    columns: list[str] | None = None


class RiverModel:
    """A River model whose features are finite numbers, text or booleans."""

    def __init__(self, model: Any, columns: Columns) -> None:
        self.model = model
        self.columns = columns

    def predict_one(self, instance: Any) -> Any:
        """Return the model's label; None if it is untrained."""
        return self.model.predict_one(self._features(instance))

    def learn_one(self, instance: Any, label: Any) -> None:
        self.model.learn_one(self._features(instance), label)

    def _features(self, instance: Any) -> dict[str, Any]:
        record = named(instance, self.columns)
        columns = record if self.columns is None else self.columns
        for column in columns:
            if column not in record:
                raise DataError(f"an instance has no {column!r}, which columns names")
        return {column: _value(column, record[column]) for column in columns}


def load_river(table: River, folder: Path) -> RiverModel:
    optional_module("river", missing=need_of("functions of kind river", "river", extra="river"))
    model = load_python(table, folder)
    if not (hasattr(model, "predict_one") and hasattr(model, "learn_one")):
        raise ConfigError(
            f"function {table.name!r}: {table.entry} is a {type(model).__name__} without "
            "predict_one and learn_one; if it is a function that creates the model, add options "
            "= {}"
        )
    return RiverModel(model, table.columns)


def _value(name: str, value: Any) -> Any:
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, float) and not math.isfinite(plain):
        raise DataError(f"an instance has {plain} for {name!r}; omit missing values")
    if not isinstance(plain, str | int | float):
        raise DataError(
            f"an instance has a {type(plain).__name__} for {name!r}; give a number or text"
        )
    return plain


Lesson = tuple[list[Any], list[Any]]  # instances, labels
Again = Callable[[], Function]
Remember = Callable[..., Function]  # `with_training_log` or `replay_training`
MOST_SKIPPED = 20  # entries that fail; with more, the file belongs to another function
SCALARS = (str, int, float, bool)


log = logging.getLogger(__name__)


class TrainingLog:
    """A training log; only its owner may read the file, since it contains instances."""

    def __init__(self, path: Path, *, most: int) -> None:
        self.path = path
        self._most = most
        self._count = 0

    def recall(self) -> list[Lesson]:
        """Return the latest entries, oldest first, and delete older ones.

        An incomplete last line was never acknowledged, and is dropped.
        """
        _append(self.path, b"")  # fail now if the file is not writable
        kept, is_all = self._latest()
        self._count = sum(len(labels) for _, labels in kept)
        if not is_all:
            part = self.path.with_name(f".{self.path.name}.part")
            part.unlink(missing_ok=True)
            _append(part, b"".join(map(_line, kept)))
            part.replace(self.path)
        return kept

    def look(self) -> list[Lesson]:
        """Return the result of `recall` without changing the file: a node may be writing it.

        Raises `OSError` if the file is not writable.
        """
        exists = self.path.exists()
        if not os.access(self.path if exists else self.path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return self._latest()[0] if exists else []

    def _latest(self) -> tuple[list[Lesson], bool]:
        """Return the latest entries, and whether the file holds nothing else."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        entries = [self._read(number, line) for number, line in enumerate(whole.splitlines(), 1)]
        start, count = len(entries), 0
        while start > 0 and (count == 0 or count + len(entries[start - 1][1]) <= self._most):
            start -= 1
            count += len(entries[start][1])
        return entries[start:], start == 0 and whole == content

    @contextmanager
    def taking(self, lesson: Lesson) -> Iterator[None]:
        """Append the entry; remove it if the block fails."""
        line = _line(lesson)
        if self._count >= 2 * self._most:
            self.recall()
        before = self.path.stat().st_size if self.path.exists() else 0
        try:
            _append(self.path, line)
            yield
        except BaseException:
            if self.path.exists():
                os.truncate(self.path, before)
            raise
        self._count += len(lesson[1])

    def _read(self, number: int, line: bytes) -> Lesson:
        try:
            instances, labels = json.loads(line)
            if len(instances) != len(labels):
                raise ValueError
        except (ValueError, TypeError):
            raise ConfigError(
                f"{self.path} line {number} is not a training log entry; move the file away to "
                "start again"
            ) from None
        return instances, labels


def with_training_log(
    function: Function, path: Path, *, most: int, again: Again | None = None
) -> Function:
    """Return the function trained from the log; later training is appended to the log.

    The log keeps the last `most` instances; `again` creates the function untrained, if possible.
    It learns from instances decoded from JSON, so that retraining gives the same function.
    """
    lessons = TrainingLog(path, most=most)
    function = _trained(function, lessons.path, lessons.recall, again)

    def teach_many(instances: list[Any], labels: list[Label]) -> None:
        lesson = (list(map(plain, instances)), list(map(_plain_label, labels)))
        with lessons.taking(lesson):
            function.learn_many(*lesson)

    def teach(instance: Any, label: Label) -> None:
        teach_many([instance], [label])

    is_many = function.teach_many is not None
    return function._replace(teach=teach, teach_many=teach_many if is_many else None)


def replay_training(
    function: Function, path: Path, *, most: int, again: Again | None = None
) -> Function:
    return _trained(function, path, TrainingLog(path, most=most).look, again)


def plain(instance: Any) -> Any:
    """Return `instance` as decoded from JSON; raise `DataError` if that is impossible."""
    if isinstance(instance, np.ndarray | np.generic):
        return plain(instance.tolist())
    if isinstance(instance, Mapping):
        if not all(isinstance(key, str) for key in instance):
            raise DataError(
                "the training log is JSON, but the instance has names that are not text"
            )
        return {key: plain(value) for key, value in instance.items()}
    if isinstance(instance, list | tuple):
        return [plain(value) for value in instance]
    if isinstance(instance, float) and not math.isfinite(instance):
        raise DataError(f"the training log is JSON, which has no {instance}; omit the value")
    if instance is None or isinstance(instance, SCALARS):
        return instance
    raise DataError(f"the training log is JSON, which has no {type(instance).__name__}")


def _plain_label(label: Label) -> Any:
    if not isinstance(label, SCALARS):
        raise DataError(f"the training log is JSON, but the label is a {type(label).__name__}")
    return label


def _trained(
    function: Function, path: Path, recall: Callable[[], list[Lesson]], again: Again | None
) -> Function:
    """Return the function trained on all entries that do not fail.

    A failed call may have learnt half of an entry, so the function is created again, if possible.
    """
    try:
        good = recall()
    except OSError as error:
        raise ConfigError(
            f"{function}: cannot keep the training log {path}: {error.strerror}"
        ) from None
    skipped = index = 0
    while index < len(good):
        try:
            function.learn_many(*good[index])
            index += 1
        except FunctionError as error:
            if skipped == MOST_SKIPPED:
                raise ConfigError(
                    f"{path} does not fit: {error.__cause__}; if {function} has changed, move the "
                    "file away to start again"
                ) from error
            cause = error.__cause__ or error
            reason = f"{type(cause).__name__} at {place_of(cause)}"
            log.warning("%s: training log entry in %s skipped: %s", function, path, reason)
            skipped += 1
            del good[index]
            if again is not None:
                function, index = again(), 0
    return function


def _line(lesson: Lesson) -> bytes:
    return json.dumps(lesson, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _append(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with open(descriptor, "ab") as file:
        file.write(content)


KINDS: dict[str, FunctionKind] = {
    "constant": FunctionKind(Constant, lambda table, folder: table),
    "onnx": FunctionKind(Onnx, load_onnx),
    "python": FunctionKind(Python, load_python),
    "remote": FunctionKind(Remote, load_remote),
    "river": FunctionKind(River, load_river),
    "skops": FunctionKind(Skops, load_skops),
}


def functions_from(
    tables: object,
    *,
    owner: str,
    folder: Path,
    remember: Remember = with_training_log,
    first: int = 1,
    before: Mapping[str, Function] | None = None,
) -> dict[str, Function]:
    """Return the functions of a site's `[[function]]` tables, by name.

    File paths are relative to `folder`, that of the configuration; `remember` handles training
    logs; `first` is the number of the first table. Functions of `before` with the same table are
    used on, with all that they have learnt; the module of one with another version is imported
    again. Raises `ConfigError` if a table is not valid, and `MissingExtra` if its library is not
    installed.
    """
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise ConfigError("function is not a list of tables; write [[function]] in double brackets")
    functions: dict[str, Function] = {}
    files: dict[Path, str] = {}
    for number, raw in enumerate(tables, first):
        where = f"[[function]] {number}"
        table = _table(raw, where)
        if table.name in functions:
            raise ConfigError(f"{where}: duplicate function name {table.name!r}; names must differ")
        if isinstance(table, Taught):
            _check_lessons(table, folder, files)
        old = (before or {}).get(table.name)
        if old is not None and _is_same(old.table, table):
            functions[table.name] = old._replace(carry=table.carry, table=table)
        else:
            log.info("loading function %r (%s)", table.name, table.kind)
            is_renewed = old is not None and old.version != version_of(table)
            with _imported_again(table) if is_renewed else nullcontext():
                functions[table.name] = _function(table, owner, folder, remember)
    return functions


def version_of(table: Any) -> str:
    """Return what tells a version of a function: the hash of its file, or what the table says."""
    if isinstance(table, Constant):
        return json.dumps(table.label)
    return getattr(table, "sha256", "").lower() or getattr(table, "version", "")


def _is_same(old: Any, table: Any) -> bool:
    if type(old) is not type(table):
        return False
    return bool(replace(old, carry=table.carry, free=table.free) == table)


@contextmanager
def _imported_again(table: Any) -> Iterator[None]:
    """Import the module of an entry anew; if that fails, the known one stays."""
    name = getattr(table, "entry", "").partition(":")[0]
    module = sys.modules.pop(name, None)
    importlib.invalidate_caches()
    try:
        yield
    except BaseException:
        if module is not None:
            sys.modules[name] = module
        raise


def _table(raw: object, where: str) -> Any:
    kind = raw.get("kind") if isinstance(raw, Mapping) else None
    if not isinstance(kind, str):
        raise ConfigError(f"{where} has no kind; known: {', '.join(KINDS)}")
    if kind not in KINDS:
        raise ConfigError(f"{where}: unknown kind {kind!r}{nearest(kind, KINDS)}")
    if isinstance(raw, Mapping) and "processes" in raw and kind != "python":
        raise ConfigError(
            f"{where}: processes is for functions of kind python, and this one is {kind}; remove it"
        )
    return read(raw, KINDS[kind].table, where=where)


def _function(table: Any, owner: str, folder: Path, remember: Remember) -> Function:
    function = _made(table, owner, folder)
    if isinstance(table, Python) and table.processes is not None:
        return _in_processes(function, table.processes, partial(_made, table, owner, folder))
    if getattr(table, "lessons", None) is None:
        return function
    if function.teach is None:
        raise ConfigError(f"function {table.name!r} cannot learn; remove lessons")
    is_single = isinstance(table, Entry) and is_shared(table)
    again = None if is_single else partial(_made, table, owner, folder)
    return remember(function, folder / table.lessons, most=table.lessons_kept, again=again)


def _in_processes(function: Function, number: int, load: Callable[[], Function]) -> Function:
    if function.teach is not None:
        raise ConfigError(
            f"function {function.name!r} learns, and each of its processes would learn something "
            "else; set learns = false, or remove processes"
        )
    return function._replace(processes=Processes(number, load), is_instant=False)


def _made(table: Any, owner: str, folder: Path) -> Function:
    model = KINDS[table.kind].load(table, folder)
    classes = tuple(getattr(table, "classes", None) or ())
    if isinstance(table, Taught):
        model = untrained(model, classes=classes) if classes else model
        model = model if table.learns else frozen(model)
    return as_function(model, name=table.name, owner=owner)._replace(
        classes=classes,
        timeout_s=table.timeout_s,
        version=version_of(table),
        carry=table.carry,
        table=table,
    )


def _check_lessons(table: Taught, folder: Path, files: dict[Path, str]) -> None:
    if table.lessons is not None:
        other = files.setdefault((folder / table.lessons).resolve(), table.name)
        if other != table.name:
            raise ConfigError(
                f"functions {other!r} and {table.name!r} have the same lessons file, "
                f"{table.lessons}; give each another one"
            )
    if not table.learns and (table.classes or table.lessons is not None):
        key = "classes" if table.classes else "lessons"
        raise ConfigError(
            f"function {table.name!r} has {key}, which are for functions that learn; set learns = "
            f"true or remove {key}"
        )
