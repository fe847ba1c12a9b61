"""Teaching own functions: once for each label, in the order in which labels come."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
        done = self._under_way[key] = asyncio.Event()
        learn = self._functions[number].learn
        try:
            # Whoever sent the label may hang up; the function is taught all the same.
            await asyncio.shield(self._work(learn, instance, label))
        except FunctionError:
            decision.lesson = (number, instance)
            raise
        finally:
            del self._under_way[key]
            done.set()
