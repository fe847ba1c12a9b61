"""Training log of a function, from which it is retrained after a restart.

No library can store its models in a format that is safe to load, so the latest labelled instances
are kept instead: lines of JSON, one line per training call.
"""

import errno
import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from covey.classifiers import Function
from covey.errors import ConfigError, DataError, FunctionError
from covey.notices import place_of
from covey.types import Label

Lesson = tuple[list[Any], list[Any]]  # instances, labels
Again = Callable[[], Function]
MOST_SKIPPED = 20  # entries that fail; with more, the file belongs to another function
SCALARS = (str, int, float, bool)


log = logging.getLogger(__name__)


class Remember(Protocol):
    """Trains a function from its training log."""

    def __call__(
        self, function: Function, path: Path, *, most: int, again: Again | None
    ) -> Function:
        """Return the function trained on the last `most` instances.

        `again` creates it untrained; None: it cannot be created again.
        """


class Lessons:
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


def remembering(
    function: Function, path: Path, *, most: int, again: Again | None = None
) -> Function:
    """Return the function trained from the log; later training is appended to the log.

    It learns from instances decoded from JSON, so that retraining gives the same function.
    """
    lessons = Lessons(path, most=most)
    function = _trained(function, lessons.path, lessons.recall, again)

    def teach_many(instances: list[Any], labels: list[Label]) -> None:
        lesson = (list(map(plain, instances)), list(map(_plain_label, labels)))
        with lessons.taking(lesson):
            _teach(function, lesson)

    def teach(instance: Any, label: Label) -> None:
        teach_many([instance], [label])

    is_many = function.teach_many is not None
    return function._replace(teach=teach, teach_many=teach_many if is_many else None)


def recalling(function: Function, path: Path, *, most: int, again: Again | None = None) -> Function:
    """Return the function trained from the log, read-only."""
    return _trained(function, path, Lessons(path, most=most).look, again)


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


def _teach(function: Function, lesson: Lesson) -> None:
    instances, labels = lesson
    if function.teach_many is not None:
        function.teach_many(instances, labels)
    elif function.teach is not None:
        for instance, label in zip(instances, labels, strict=True):
            function.teach(instance, label)


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
    bad = begin = 0
    while (index := _first_failure(function, good, path, begin, is_last=bad == MOST_SKIPPED)) >= 0:
        bad += 1
        del good[index]
        begin = index if again is None else 0
        function = function if again is None else again()
    return function


def _first_failure(
    function: Function, lessons: list[Lesson], path: Path, begin: int, *, is_last: bool
) -> int:
    """Train on entries from `begin` on; return the index of the first that fails, or -1."""
    for index in range(begin, len(lessons)):
        try:
            function.learn_many(*lessons[index])
        except FunctionError as error:
            if is_last:
                raise ConfigError(
                    f"{path} does not fit: {error.__cause__}; if {function} has changed, move the "
                    "file away to start again"
                ) from error
            cause = error.__cause__ or error
            reason = f"{type(cause).__name__} at {place_of(cause)}"
            log.warning("%s: training log entry in %s skipped: %s", function, path, reason)
            return index
    return -1


def _line(lesson: Lesson) -> bytes:
    return json.dumps(lesson, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _append(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with open(descriptor, "ab") as file:
        file.write(content)
