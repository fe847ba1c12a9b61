"""Train the functions of a site with true labels."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from covey.errors import FunctionError
from covey.functions.function import Function
from covey.node.requests import Request
from covey.types import Label

MOST_FAILURES = 3  # of a function in a row, after which it is trained no more


class Trainer:
    """Trains the functions of a site: once for each label, in the order in which labels come."""

    def __init__(
        self,
        functions: Sequence[Function],
        run: Callable[..., Awaitable[Any]],
        given_up: Callable[[Function, FunctionError], None] = lambda function, error: None,
    ) -> None:
        """`run(function, call, *arguments)` runs a call; `given_up` gets the last failure."""
        self._functions = functions
        self._run = run
        self._given_up = given_up
        self._failures: Counter[int] = Counter()  # of each function, in a row
        self.trainable = {k for k, one in enumerate(functions) if one.teach is not None}

    async def train(self, request: Request, rows: Sequence[int], truths: Mapping[int, Any]) -> None:
        """Train with the labels of rows, each function with all its rows at once.

        Raises `FunctionError` if a function cannot learn; what it was trained with is not repeated.
        A function that failed `MOST_FAILURES` times in a row is trained no more.
        """
        training = dict(request.training)
        request.training = training
        for number in sorted({training[row][0] for row in rows}):
            mine = {row: training.pop(row) for row in rows if training.get(row, (-1,))[0] == number}
            if number not in self.trainable:
                continue
            function, done = self._functions[number], list[Any]()
            instances = [instance for _, instance in mine.values()]
            labels = [truths[row] for row in mine]
            try:
                await self._run(function, _train, function, instances, labels, done)
            except FunctionError as error:
                training.update(list(mine.items())[len(done) :])
                self._failures[number] = 1 if done else self._failures[number] + 1
                if self._failures[number] >= MOST_FAILURES and number in self.trainable:
                    self.trainable.discard(number)
                    self._given_up(function, error)
                raise
            self._failures[number] = 0


def _train(
    function: Function, instances: Sequence[Any], labels: Sequence[Label], done: list[Any]
) -> None:
    """Train with many instances; those before a failure are put in `done`."""
    if len(instances) > 1 and function.teach_many is not None:
        function.learn_many(list(instances), list(labels))
        return
    for instance, label in zip(instances, labels, strict=True):
        function.learn(instance, label)
        done.append(instance)
