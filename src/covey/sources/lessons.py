"""What a function was taught, kept in a file, so that it can be taught again after a restart.

No library offers a state of its models that is safe to read back, so the labels are what is kept:
the last of them, as lines of JSON, one line per call that taught.
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
MOST_SKIPPED = 20  # lessons that cannot be learnt; with more the file is not the function's
SCALARS = (str, int, float, bool)


log = logging.getLogger(__name__)


class Remember(Protocol):
    """Teaches a function what a file holds."""

    def __call__(
        self, function: Function, path: Path, *, most: int, again: Again | None
    ) -> Function:
        """Return the function so taught, by the last `most` instances at most.

        `again` makes it anew, as if it had learnt nothing; None: there is only this one.
        """


class Lessons:
    """The file of a function's lessons; only its owner may read it, since instances are in it."""

    def __init__(self, path: Path, *, most: int) -> None:
        self.path = path
        self._most = most
        self._count = 0

    def recall(self) -> list[Lesson]:
        """Return the last lessons, oldest first, and forget those before them.

        A line that was cut off by a crash was never acknowledged, and is dropped.
        """
        _append(self.path, b"")  # fail now if it cannot be written
        kept, is_all = self._look()
        self._count = sum(len(labels) for _, labels in kept)
        if not is_all:
            part = self.path.with_name(f".{self.path.name}.part")
            part.unlink(missing_ok=True)
            _append(part, b"".join(map(_line, kept)))
            part.replace(self.path)
        return kept

    def look(self) -> list[Lesson]:
        """Return what `recall` would, and leave the file as it is: a node may be writing it.

        Raises `OSError` if it could not be written.
        """
        is_there = self.path.exists()
        if not os.access(self.path if is_there else self.path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return self._look()[0] if is_there else []

    def _look(self) -> tuple[list[Lesson], bool]:
        """Return the last lessons, and whether there is nothing else in the file."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        lessons = [self._read(number, line) for number, line in enumerate(whole.splitlines(), 1)]
        kept = self._last(lessons)
        return kept, len(kept) == len(lessons) and whole == content

    @contextmanager
    def taking(self, lesson: Lesson) -> Iterator[None]:
        """Keep the lesson, unless what is done meanwhile fails."""
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
                f"{self.path} line {number} is not a lesson; move the file away to begin anew"
            ) from None
        return instances, labels

    def _last(self, lessons: list[Lesson]) -> list[Lesson]:
        start, count = len(lessons), 0
        while start > 0 and (count == 0 or count + len(lessons[start - 1][1]) <= self._most):
            start -= 1
            count += len(lessons[start][1])
        return lessons[start:]


def remembering(
    function: Function, path: Path, *, most: int, again: Again | None = None
) -> Function:
    """Return `function`, taught what the file holds, and keeping there what it is taught next.

    It is taught instances as JSON gives them back, so that it comes out the same next time.
    """
    lessons = Lessons(path, most=most)
    function = _taught(function, lessons.path, lessons.recall, again)

    def teach_many(instances: list[Any], labels: list[Label]) -> None:
        lesson = ([plain(one) for one in instances], [_plain_label(one) for one in labels])
        with lessons.taking(lesson):
            _teach(function, lesson)

    def teach(instance: Any, label: Label) -> None:
        teach_many([instance], [label])

    is_many = function.teach_many is not None
    return function._replace(teach=teach, teach_many=teach_many if is_many else None)


def recalling(function: Function, path: Path, *, most: int, again: Again | None = None) -> Function:
    """Return `function`, taught what the file holds, for a look at it: nothing is written."""
    return _taught(function, path, Lessons(path, most=most).look, again)


def plain(instance: Any) -> Any:
    """Return `instance` as JSON would give it back; raise `DataError` if it cannot."""
    if isinstance(instance, np.ndarray | np.generic):
        return plain(instance.tolist())
    if isinstance(instance, Mapping):
        if not all(isinstance(key, str) for key in instance):
            raise DataError("a lesson is kept as JSON, but the instance has names that are no text")
        return {key: plain(value) for key, value in instance.items()}
    if isinstance(instance, list | tuple):
        return [plain(value) for value in instance]
    if isinstance(instance, float) and not math.isfinite(instance):
        raise DataError(f"a lesson is kept as JSON, which has no {instance}; leave the value out")
    if instance is None or isinstance(instance, SCALARS):
        return instance
    raise DataError(f"a lesson is kept as JSON, which has no {type(instance).__name__}")


def _plain_label(label: Label) -> Any:
    if not isinstance(label, SCALARS):
        raise DataError(f"a lesson is kept as JSON, but the label is a {type(label).__name__}")
    return label


def _teach(function: Function, lesson: Lesson) -> None:
    instances, labels = lesson
    if function.teach_many is not None:
        function.teach_many(instances, labels)
    elif function.teach is not None:
        for instance, label in zip(instances, labels, strict=True):
            function.teach(instance, label)


def _taught(
    function: Function, path: Path, recall: Callable[[], list[Lesson]], again: Again | None
) -> Function:
    """Return a function that has learnt what can be learnt; what cannot is skipped.

    One that failed may have learnt half of a lesson, so it is made anew, if it can be.
    """
    try:
        good = recall()
    except OSError as error:
        raise ConfigError(f"{function}: cannot keep lessons in {path}: {error.strerror}") from None
    bad = begin = 0
    while (place := _first_failure(function, good, path, begin, is_last=bad == MOST_SKIPPED)) >= 0:
        bad += 1
        del good[place]
        begin = place if again is None else 0
        function = function if again is None else again()
    return function


def _first_failure(
    function: Function, lessons: list[Lesson], path: Path, begin: int, *, is_last: bool
) -> int:
    """Teach lessons from `begin` on, and return the place of the first that fails; -1: none."""
    for place in range(begin, len(lessons)):
        try:
            function.learn_many(*lessons[place])
        except FunctionError as error:
            if is_last:
                raise ConfigError(
                    f"{path} does not fit: {error.__cause__}; if {function} has changed, move the "
                    "file away to begin anew"
                ) from error
            cause = error.__cause__ or error
            said = f"{type(cause).__name__} at {place_of(cause)}"
            log.warning("%s: a lesson in %s cannot be learnt, skipped: %s", function, path, said)
            return place
    return -1


def _line(lesson: Lesson) -> bytes:
    return json.dumps(lesson, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _append(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with open(descriptor, "ab") as file:
        file.write(content)
