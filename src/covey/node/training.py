"""Train the functions of a site with true labels."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from covey.errors import FunctionBusy, FunctionError
from covey.functions.function import Function
from covey.node.requests import Request
from covey.types import Label

MOST_FAILURES = 3  # of a function in a row, after which it is trained no more


class Steps:
    """Calls of a function that can be made one after the other; calling it makes those left."""

    result: Any = None

    def step(self) -> bool:
        """Make the next calls, if any are left; return whether none is left then."""
        raise NotImplementedError

    def __call__(self) -> Any:
        while not self.step():
            pass
        return self.result


class Trainer:
    """Trains the functions of a site: once for each label, in the order in which labels come."""

    def __init__(
        self,
        functions: Sequence[Function],
        run: Callable[..., Awaitable[Any]],
        given_up: Callable[[Function, FunctionError], None] = lambda function, error: None,
        untrained: Callable[[Function, int], None] = lambda function, labels: None,
    ) -> None:
        """`run(function, call)` runs a call.

        `given_up` gets the last failure, `untrained` how many labels a busy function did not get.
        """
        self._functions = functions
        self._run = run
        self._given_up = given_up
        self._untrained = untrained
        self._failures: Counter[int] = Counter()  # of each function, in a row
        self.trainable = {k for k, one in enumerate(functions) if one.teach is not None}

    async def train(self, request: Request, rows: Sequence[int], truths: Mapping[int, Any]) -> None:
        """Train with the labels of rows, each function with all its rows at once.

        Raises `FunctionError` if a function cannot learn; what it was trained with is not repeated.
        A function that failed `MOST_FAILURES` times in a row is trained no more. One that is busy,
        or does not return in time, is not trained with these labels: they must not wait for it.
        """
        training = dict(request.training)
        request.training = training
        for number in sorted({training[row][0] for row in rows}):
            mine = {row: training.pop(row) for row in rows if training.get(row, (-1,))[0] == number}
            if number not in self.trainable:
                continue
            function = self._functions[number]
            instances = [instance for _, instance in mine.values()]
            training_of = Training(function, instances, [truths[row] for row in mine])
            try:
                await self._run(function, training_of)
            except FunctionBusy:
                self._untrained(function, len(mine) - training_of.done)
            except FunctionError as error:
                done = training_of.done
                training.update(list(mine.items())[done:])
                self._failures[number] = 1 if done else self._failures[number] + 1
                if self._failures[number] >= MOST_FAILURES and number in self.trainable:
                    self.trainable.discard(number)
                    self._given_up(function, error)
                raise
            else:
                self._failures[number] = 0


class Training(Steps):
    """Trains a function with many instances; `done` counts those before a failure."""

    def __init__(
        self, function: Function, instances: Sequence[Any], labels: Sequence[Label]
    ) -> None:
        self._function = function
        self._instances = instances
        self._labels = labels
        self.done = 0

    def step(self) -> bool:
        count = len(self._instances)
        if count > 1 and self._function.teach_many is not None:
            self._function.learn_many(list(self._instances), list(self._labels))
            self.done = count
        elif self.done < count:
            self._function.learn(self._instances[self.done], self._labels[self.done])
            self.done += 1
        return self.done == count
