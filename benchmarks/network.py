"""The 4 x 2 network of the replay figures: its configuration and its recorded predictions."""

from typing import Any, NamedTuple

import numpy as np

SITES = 4
FUNCTIONS = [f"f{k}" for k in range(2 * SITES)]


class Recorded(NamedTuple):
    """A log as arrays of NumPy's default types."""

    predictions: np.ndarray  # function, slot
    labels: np.ndarray
    contexts: np.ndarray  # slot, dimension


def config(**policy: Any) -> dict[str, Any]:
    """Return the configuration of the network under a policy."""
    names = [f"site{k}" for k in range(SITES)]
    sites = [
        {
            "name": name,
            "functions": FUNCTIONS[2 * k : 2 * k + 2],
            "peers": {peer: 0.0 for peer in names if peer != name},
        }
        for k, name in enumerate(names)
    ]
    return {"policy": policy, "learner": sites}


def draw(slots: int) -> Recorded:
    """Draw a log: 0/1 labels, functions whose accuracy differs between 12 slices of the context."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, slots)
    contexts = rng.random((slots, 1))
    accuracy = rng.uniform(0.5, 0.95, (len(FUNCTIONS), 12))[:, (contexts[:, 0] * 12).astype(int)]
    is_right = rng.random((len(FUNCTIONS), slots)) < accuracy
    return Recorded(np.where(is_right, labels, 1 - labels), labels, contexts)
