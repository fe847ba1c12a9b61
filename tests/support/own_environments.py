"""Environments of a user: classes and functions that draw contexts, accuracies and answers."""

from collections.abc import Callable
from typing import Any

import numpy as np

Drawn = tuple[Any, ...]


class Waves:
    """Two functions whose accuracies are waves over the context; answers are covey's."""

    def __init__(self, rng: np.random.Generator, height: float = 0.3) -> None:
        self.rng, self.height, self.phase = rng, height, rng.random(2)

    def draw(self, first_slot: int, slots: int) -> Drawn:
        contexts = self.rng.random((slots, 1))
        waves = np.sin(2 * np.pi * (contexts.T + self.phase[:, None]))
        return contexts, 0.6 + self.height * waves


class Embeddings:
    """Two functions of which one is better on either side of a plane in many dimensions."""

    def __init__(self, rng: np.random.Generator, size: int = 50) -> None:
        self.rng, self.size = rng, size

    def draw(self, first_slot: int, slots: int) -> Drawn:
        contexts = self.rng.random((slots, self.size))
        is_above = contexts.sum(axis=1) > self.size / 2
        return contexts, np.where([is_above, ~is_above], 0.9, 0.6)


class Runs(Waves):
    """The same, but an answer has the luck of the one before with probability `stay`."""

    def __init__(self, rng: np.random.Generator, stay: float = 0.8) -> None:
        super().__init__(rng)
        self.stay, self.luck = stay, rng.random(2)

    def draw(self, first_slot: int, slots: int) -> Drawn:
        contexts, accuracies = super().draw(first_slot, slots)
        luck = np.empty((2, slots))
        for slot in range(slots):
            keeps, fresh = self.rng.random(2) < self.stay, self.rng.random(2)
            self.luck = luck[:, slot] = np.where(keeps, self.luck, fresh)
        return contexts, accuracies, luck < accuracies


def improving(rng: np.random.Generator, *, every: int = 500) -> Callable[[int, int], Drawn]:
    """Return a `draw`: per learner a stream, and the second function gets better with time."""

    def draw(first_slot: int, slots: int) -> Drawn:
        contexts = rng.random((slots, 2, 2))
        late = np.minimum(1.0, np.arange(first_slot, first_slot + slots) / every)
        both = np.stack([np.full(slots, 0.6), 0.3 + 0.5 * late])
        return contexts, np.stack([both, both])

    return draw


class Given:
    """Returns what the options hold, whatever is asked for."""

    def __init__(self, rng: np.random.Generator, **given: Any) -> None:
        self.given = given

    def draw(self, first_slot: int, slots: int) -> Any:
        filled = {"contexts": [[0.5]] * slots, "accuracies": [[0.5] * slots] * 2, **self.given}
        return filled.get("all", tuple(filled.values()))


class Fickle(Waves):
    """Gives answers in the first block only."""

    def draw(self, first_slot: int, slots: int) -> Drawn:
        contexts, accuracies = super().draw(first_slot, slots)
        return (contexts, accuracies, accuracies > 0.5)[: 3 if first_slot == 1 else 2]


def broken(rng: np.random.Generator) -> None:
    raise ValueError("no idea")


def nothing(rng: np.random.Generator) -> None:
    """Returns nothing that draws."""
