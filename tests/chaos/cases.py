"""What is classified in a storm, and the functions that do it; some of them can be trained."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from covey.node.functions import MOST_FAILURES
from covey.types import Label

MARK = b"SECRET"  # in every instance of a client, however it is written
PER_CLIENT = 1_000  # cases
MOST_ROWS = 4  # of a request
MOST_SITES = 10
ALONE = 900  # the number of the first client that asks when all is over


def instance_of(case: int, truth: int) -> Any:
    """Return a case as clients send it: numbers, or a record with text; one kind per request."""
    if case // MOST_ROWS % 2:
        return {"case": case, "truth": truth, "word": f"{MARK.decode()} of {case}"}
    return [case, truth, int.from_bytes(MARK, "little")]


def forged(place: int, number: int) -> list[int]:
    """Return an instance that the site at a place has made up."""
    return [-1 - place - MOST_SITES * number, 0, 0]


def is_shown(sent: bytes) -> bool:
    """Return whether there is anything of a client's instance in some bytes."""
    return MARK in sent or MARK[::-1] in sent


def origin(case: int, clients: Sequence[str], sites: Sequence[str]) -> str:
    """Return the site whose client sent a case, given the sites of the clients."""
    if case < 0:
        return sites[(-1 - case) % MOST_SITES]
    number = case // PER_CLIENT
    return clients[number] if number < len(clients) else sites[number - ALONE]


def _read(instance: Any) -> tuple[int, int]:
    case, truth, _ = instance.values() if isinstance(instance, dict) else instance
    return case, truth


class Function:
    """Right in some cases, and sometimes out of order."""

    def __init__(self, name: str, accuracy: float, is_broken: Callable[[], bool]) -> None:
        self.name = name
        self._accuracy = accuracy
        self._is_broken = is_broken
        self._number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")

    def __call__(self, instance: Any) -> int:
        if self._is_broken():
            raise RuntimeError("out of order")
        return self.label(*_read(instance))

    def label(self, case: int, truth: int) -> int:
        """Return what it answers to a case, unless it is trained meanwhile."""
        is_right = (case * 7919 + self._number) % 1000 < 1000 * self._accuracy
        return truth if is_right else 1 - truth


class TrainedFunction(Function):
    """A function that gets better with every label, and knows which it had since it was loaded."""

    def __init__(
        self,
        name: str,
        accuracy: float,
        is_broken: Callable[[], bool],
        trained: Callable[[str, int, int], None],
    ) -> None:
        """`trained` is called with the function, the case, and how often it had that case."""
        super().__init__(name, accuracy, is_broken)
        self._first = accuracy
        self._trained = trained
        self.load()

    def load(self) -> None:
        """Begin with what it knew at first, as in a new process."""
        self._accuracy, self._times = self._first, Counter[int]()
        self._answered: set[int] = set()
        self._failures = 0  # in a row; after so many it is trained no more

    def __call__(self, instance: Any) -> int:
        answer = super().__call__(instance)
        self._answered.add(_read(instance)[0])
        return answer

    def has_missed(self, case: int) -> bool:
        """Return whether it answered a case and was not trained with it, though it could be."""
        is_given_up = self._failures >= MOST_FAILURES
        return case in self._answered and not self._times[case] and not is_given_up

    def learn(self, instance: Any, label: Label) -> None:
        if self._is_broken():
            self._failures += 1
            raise RuntimeError("out of order")
        self._failures = 0
        case, _ = _read(instance)
        self._times[case] += 1
        self._accuracy = min(1.0, self._accuracy + 0.01)
        self._trained(self.name, case, self._times[case])
