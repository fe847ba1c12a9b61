"""The bandit task of the figures that go one decision at a time, drawn beforehand."""

from typing import NamedTuple

import numpy as np

SLICES = 12
ARMS = 5
SLOTS = 20_000


class Task(NamedTuple):
    """Contexts, and what every arm would answer in every slot: 1 is right, 0 is wrong."""

    contexts: list[tuple[float]]
    buckets: list[int]
    outcomes: list[tuple[int, ...]]  # slot, arm
    best_mean: float  # if the best arm of every bucket is known
    random_mean: float


def draw(seed: int, *, arms: int = ARMS, slots: int = SLOTS) -> Task:
    """Draw a task; an arm's accuracy in a bucket is uniform on [0.3, 0.9]."""
    rng = np.random.default_rng(seed)
    accuracy = rng.uniform(0.3, 0.9, (SLICES, arms))
    contexts = rng.random(slots)
    buckets = (contexts * SLICES).astype(int)
    outcomes = (rng.random((slots, arms)) < accuracy[buckets]).astype(int)
    return Task(
        contexts=[(context,) for context in contexts.tolist()],
        buckets=buckets.tolist(),
        outcomes=[tuple(row) for row in outcomes.tolist()],
        best_mean=float(accuracy.max(axis=1)[buckets].mean()),
        random_mean=float(accuracy.mean(axis=1)[buckets].mean()),
    )
