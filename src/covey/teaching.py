"""Teaching own functions: once for each label, in the order in which labels come."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from covey.classifiers import UNKNOWN, Function
from covey.decisions import Decision
from covey.errors import FunctionError
from covey.types import Label

Given = TypeVar("Given")


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

    async def over(self, key: Any) -> None:
        """Return when nothing is being taught from the labels of `key`."""
        while key in self._under_way:
            await self._under_way[key].wait()

    def prepare(self, decision: Decision, number: int, instance: Any) -> None:
        """Keep the instance that a function has answered until its label comes."""
        if self._functions[number].teach is not None:
            decision.lesson = (number, instance)

    async def teach(self, key: Any, decision: Decision | None, label: Label) -> None:
        """Teach what answered, if it can be taught and has not been.

        Raises `FunctionError` if it cannot learn from the label; then it may be sent again.
        """
        if decision is None or decision.lesson is UNKNOWN:
            return
        (number, instance), decision.lesson = decision.lesson, UNKNOWN
        learn = self._functions[number].learn
        with self._alone(key):
            try:
                # Whoever sent the label may hang up; the function is taught all the same.
                await asyncio.shield(self._work(learn, instance, label))
            except FunctionError:
                decision.lesson = (number, instance)
                raise

    async def teach_rows(
        self, key: Any, lessons: dict[int, tuple[int, Any]], truths: Mapping[int, Label]
    ) -> None:
        """Teach the rows of a lot, each function all of its own at once; raise as `teach`."""
        rows = [row for row in truths if row in lessons]
        if not rows:
            return
        with self._alone(key):
            for number in sorted({lessons[row][0] for row in rows}):
                mine = {
                    row: lessons.pop(row) for row in rows if lessons.get(row, (-1,))[0] == number
                }
                labels = [truths[row] for row in mine]
                pupil, taught = self._functions[number], list[Any]()
                instances = [instance for _, instance in mine.values()]
                try:
                    await asyncio.shield(self._work(_teach, pupil, instances, labels, taught))
                except FunctionError:
                    lessons.update(list(mine.items())[len(taught) :])
                    raise

    @contextlib.contextmanager
    def _alone(self, key: Any) -> Iterator[None]:
        done = self._under_way[key] = asyncio.Event()
        try:
            yield
        finally:
            del self._under_way[key]
            done.set()


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
