"""The own functions of a site at work: what they answer, how often they fail, who stands in."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from covey.batches import plain_label
from covey.classifiers import Function
from covey.engine import record_of
from covey.errors import CoveyError, DataError, FunctionError
from covey.learner import Learner
from covey.notices import place_of
from covey.rates import Seldom
from covey.teaching import Work
from covey.types import Label

log = logging.getLogger(__name__)


class OwnFunctions:
    """The functions of a site; whatever goes wrong with one is a `FunctionError`, and counted."""

    def __init__(self, functions: Sequence[Function], learner: Learner, work: Work) -> None:
        self.functions = functions
        self.failures = Counter({one.name: 0 for one in functions})  # calls, by function
        self._learner = learner
        self.work = work
        self._lines = {one.name: Seldom() for one in functions}

    async def answer(self, number: int, instance: Any) -> Label:
        """Return what a function says; raise `FunctionError` if it fails."""
        try:
            return plain_label(await self.work(self.functions[number].answer, instance))
        except (FunctionError, DataError) as error:
            raise self.failed(number, error) from error.__cause__

    async def first_answer(
        self, cell: int, chosen: int, part: Callable[[int], Any]
    ) -> tuple[int, Label]:
        """Return who answers, `chosen` or else another, and what; `part` is what each is shown.

        Raises the first `FunctionError` if all fail.
        """
        failed = None
        for number in chain((chosen,), self.others(cell, chosen)):
            try:
                return number, await self.answer(number, part(number))
            except FunctionError as error:
                failed = failed or error
        assert failed is not None
        raise failed

    def failed(self, number: int, error: CoveyError) -> FunctionError:
        """Count a failure, and return what is to be said of it."""
        function = self.functions[number]
        self.failures[function.name] += 1
        if self._lines[function.name].is_due(asyncio.get_running_loop().time()):
            count = self.failures[function.name]
            log.warning("%s; %d failures since the start", _shown(function, error), count)
        if isinstance(error, FunctionError):
            return error
        return FunctionError(f"{function} answered what is no label: {error}")

    def others(self, cell: int, first: int) -> Iterator[int]:
        """Yield who may answer in the place of `first` in a cell, which its row tells: the best.

        Where nothing tells them apart they follow each other.
        """
        learner, count = self._learner, len(self.functions)
        known = record_of(learner.tables[learner.space], cell, len(learner.arms))

        def worth(number: int) -> float:
            labels, right = known[number]
            return (right / labels if labels else 0.0) - learner.costs[number]

        others = [(first + k) % count for k in range(1, count)]
        yield from sorted(others, key=worth, reverse=True)


def _shown(function: Function, error: CoveyError) -> str:
    """Return what went wrong; the words of others may quote an instance, and are left out."""
    cause = error.__cause__
    if not isinstance(error, FunctionError):
        return f"{function} answered what is no label"
    if cause is None:
        return str(error)
    return f"{function} raised {type(cause).__name__} at {place_of(cause)}"
