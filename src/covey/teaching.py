"""Teaching own functions: once for each label, in the order in which labels come."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from covey.classifiers import UNKNOWN, Function
from covey.decisions import Decision
from covey.errors import FunctionError
from covey.notices import place_of
from covey.types import Label

Given = TypeVar("Given")
MOST_FAILURES = 3  # lessons in a row, after which a function is taught no more
log = logging.getLogger(__name__)


class Work(Protocol):
    """Runs something that blocks, such as a function or a commit, without stopping the node."""

    def __call__(self, run: Callable[..., Given], /, *given: Any) -> Awaitable[Given]:
        """Return what `run(*given)` returns."""


class Teaching:
    """Teaches the functions of a site; nobody else changes them."""

    def __init__(self, functions: Sequence[Function], work: Work) -> None:
        self._functions = functions
        self._work = work
        self._under_way: dict[Any, asyncio.Event] = {}
        self._failures: Counter[int] = Counter()  # lessons of each function, in a row
        self._given_up: set[int] = set()

    async def over(self, key: Any) -> None:
        """Return when nothing is being taught from the labels of `key`."""
        while key in self._under_way:
            await self._under_way[key].wait()

    def prepare(self, decision: Decision, number: int, instance: Any) -> None:
        """Keep the instance that a function has answered until its label comes."""
        if self._functions[number].teach is not None and number not in self._given_up:
            decision.lesson = (number, instance)

    async def teach(self, key: Any, decision: Decision | None, label: Label) -> None:
        """Teach what answered, if it can be taught and has not been.

        Raises `FunctionError` if it cannot learn from the label; then it may be sent again. What
        could not learn `MOST_FAILURES` times in a row is taught no more.
        """
        if decision is None or decision.lesson is UNKNOWN:
            return
        (number, instance), decision.lesson = decision.lesson, UNKNOWN
        if number in self._given_up:
            return
        await self._to_its_end(key, self._teach(decision, number, instance, label))

    async def teach_rows(
        self, key: Any, lessons: dict[int, tuple[int, Any]], truths: Mapping[int, Label]
    ) -> None:
        """Teach the rows of a lot, each function all of its own at once; raise as `teach`."""
        rows = [row for row in truths if row in lessons]
        if not rows:
            return
        await self._to_its_end(key, self._teach_rows(lessons, rows, truths))

    async def _to_its_end(self, key: Any, lesson: Coroutine[Any, Any, None]) -> None:
        """Give a lesson alone, to its end: whoever sent the label may hang up before."""
        self._under_way[key] = asyncio.Event()
        task = asyncio.ensure_future(lesson)
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._end(key, task)
            else:
                task.add_done_callback(lambda _: self._end(key, task))

    def _end(self, key: Any, lesson: "asyncio.Task[None]") -> None:
        if not lesson.cancelled():
            lesson.exception()  # if nobody waits, whoever sends the label again will hear of it
        self._under_way.pop(key).set()

    async def _teach(self, decision: Decision, number: int, instance: Any, label: Label) -> None:
        try:
            await self._work(self._functions[number].learn, instance, label)
        except FunctionError as error:
            decision.lesson = (number, instance)
            self._fail(number, error)
            raise
        self._failures[number] = 0

    def _fail(self, number: int, error: FunctionError) -> None:
        """Give up a function that fails in one lesson after the other."""
        self._failures[number] += 1
        if self._failures[number] < MOST_FAILURES or number in self._given_up:
            return
        self._given_up.add(number)
        cause = error.__cause__ or error
        log.error(
            "%s raised %s at %s: it failed in %d lessons in a row, and is taught no more until the "
            "site is started again; labels count all the same",
            self._functions[number],
            type(cause).__name__,
            place_of(cause),
            MOST_FAILURES,
        )

    async def _teach_rows(
        self, lessons: dict[int, tuple[int, Any]], rows: list[int], truths: Mapping[int, Label]
    ) -> None:
        for number in sorted({lessons[row][0] for row in rows}):
            mine = {row: lessons.pop(row) for row in rows if lessons.get(row, (-1,))[0] == number}
            labels = [truths[row] for row in mine]
            pupil, taught = self._functions[number], list[Any]()
            instances = [instance for _, instance in mine.values()]
            if number in self._given_up:
                continue
            try:
                await self._work(_teach, pupil, instances, labels, taught)
            except FunctionError as error:
                lessons.update(list(mine.items())[len(taught) :])
                self._failures[number] = 0 if taught else self._failures[number]
                self._fail(number, error)
                raise
            self._failures[number] = 0


def _teach(
    function: Function, instances: Sequence[Any], labels: Sequence[Label], taught: list[Any]
) -> None:
    """Teach many instances; those that were taught, also if it then fails, are put in `taught`."""
    if function.teach_many is not None:
        function.learn_many(list(instances), list(labels))
        return
    for instance, label in zip(instances, labels, strict=True):
        function.learn(instance, label)
        taught.append(instance)
