"""Two sites, and recorded functions that are right as often as they are asked to be."""

from typing import Any

import numpy as np

import covey

GRID, ZOOMING = {"preset": "cos", "slices": 4}, {"preset": "dcza"}
NORTH = {"name": "north", "functions": ["a", "b"], "peers": {}}
SOUTH = {"name": "south", "functions": ["c"], "peers": {}}


def answers(labels: np.ndarray, *accuracies: Any, seed: int = 0) -> np.ndarray:
    """Return predictions of functions that are right with these chances, slot by slot or always."""
    rng = np.random.default_rng([7, seed])
    chance = np.array([np.broadcast_to(accuracy, len(labels)) for accuracy in accuracies])
    return np.where(rng.random(chance.shape) < chance, labels, 1 - labels)


def stream(slots: int, *accuracies: float, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, slots)
    return {
        "predictions": answers(labels, *accuracies, seed=seed),
        "labels": labels,
        "contexts": rng.random((slots, 1)),
    }


def late_arms(trace: covey.Trace, place: int = 0) -> list[str]:
    """Return what a learner exploited in the second half of the log."""
    is_late = (trace.slot > trace.slot[-1] / 2) & (trace.phase == 2) & (trace.learner == place)
    return [str(trace.names["arm"][arm]) for arm in trace.arm[is_late]]
