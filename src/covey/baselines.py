"""The baselines by name; all receive every function's prediction and learn from every label."""

from collections.abc import Callable, Iterable

import numpy as np

from covey.boosting import AdaBoost, OzaRussell, SlidingAdaBoost
from covey.errors import ConfigError
from covey.fields import nearest
from covey.river_baselines import epsilon_greedy, forest, thompson, ucb
from covey.types import Array, Baseline, Chunk, Guess


class PreviousLabel:
    """Predicts the known label of the latest slot; without any, the first function's prediction."""

    name = "previous-label"

    def __init__(self) -> None:
        self._slots = 0
        self._latest: tuple[int, int] | None = None  # slot, label

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Predict the latest label."""
        self._slots += 1
        return Guess(self._latest[1] if self._latest else said[0], said, self._slots)

    def learn(self, guess: Guess, label: int) -> None:
        """Keep the label, unless one of a later slot is known."""
        if self._latest is None or guess.by > self._latest[0]:
            self._latest = (guess.by, label)

    def play(self, chunk: Chunk) -> Array:
        """Predict all slots at once."""
        slots, labels = chunk.slots + self._slots + 1, chunk.labels
        is_known = self._latest is not None
        if self._latest is not None:
            slots, labels = np.append(self._latest[0], slots), np.append(self._latest[1], labels)
        self._slots += len(chunk.said)
        if not len(slots):
            return chunk.said[:, 0]
        latest = np.maximum.accumulate(slots)
        latest_labels = labels[np.searchsorted(latest, latest)]
        self._latest = (int(latest[-1]), int(latest_labels[-1]))
        known = chunk.came + is_known
        return np.where(known > 0, latest_labels[known - 1], chunk.said[:, 0])


class WinStay:
    """Uses a function while it is right, and changes to the next one when it is wrong."""

    name = "win-stay"

    def __init__(self) -> None:
        self._function = 0

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Predict as the current function does."""
        return Guess(said[self._function], said, self._function)

    def learn(self, guess: Guess, label: int) -> None:
        """Change the function if the current one was wrong."""
        if guess.by == self._function and guess.label != label:
            self._function = (self._function + 1) % len(guess.said)


class FollowTheLeader:
    """Predicts as the function that was right most often so far; ties: the first."""

    name = "follow-the-leader"

    def __init__(self, functions: int) -> None:
        self._right = [0] * functions
        self._leader = 0

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Predict as the leader does."""
        return Guess(said[self._leader], said, self._leader)

    def learn(self, guess: Guess, label: int) -> None:
        """Count the functions that were right."""
        for k, prediction in enumerate(guess.said):
            self._right[k] += prediction == label
        self._leader = self._right.index(max(self._right))


Make = Callable[[int, int], Baseline]  # number of functions, seed

BASELINES: dict[str, Make] = {
    "previous-label": lambda functions, seed: PreviousLabel(),
    "win-stay": lambda functions, seed: WinStay(),
    "follow-the-leader": lambda functions, seed: FollowTheLeader(functions),
    "adaboost": lambda functions, seed: AdaBoost(functions),
    "sliding-adaboost-100": lambda functions, seed: SlidingAdaBoost(functions, window=100),
    "sliding-adaboost-1000": lambda functions, seed: SlidingAdaBoost(functions, window=1_000),
    "oza-russell": lambda functions, seed: OzaRussell(functions),
    "river-epsilon-greedy": epsilon_greedy,
    "river-ucb": ucb,
    "river-thompson": thompson,
    "river-forest": forest,
}
PLAIN = tuple(name for name in BASELINES if not name.startswith("river-"))


def make(names: Iterable[str], *, functions: int, seed: int = 0) -> list[Baseline]:
    """Return new baselines by name.

    Raises `ConfigError` for an unknown or duplicate name, and `MissingExtra` if River is needed
    and missing.

    >>> [baseline.name for baseline in make(["win-stay", "adaboost"], functions=3)]
    ['win-stay', 'adaboost']
    """
    chosen = list(names)
    for name in chosen:
        if name not in BASELINES:
            raise ConfigError(f"unknown baseline {name!r}{nearest(name, BASELINES)}")
        if chosen.count(name) > 1:
            raise ConfigError(f"duplicate baseline {name!r}; name it once")
    return [BASELINES[name](functions, seed) for name in chosen]
