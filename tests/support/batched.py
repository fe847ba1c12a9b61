"""A network of two sites that takes batches, and functions that remember how they were called."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import covey
from covey.site.requests import Prediction
from support.presets import fitting
from support.snapshots import snapshot_of

ONCE = {"scale": 0.0, "power": 0.0}  # an arm is known well enough with its first label
TWO_SITES = [
    {"name": "north", "functions": ["a", "b"], "peers": {"south": 0.1}},
    {"name": "south", "functions": ["c", "d"], "peers": {}},
]
CONTEXTS = [(0.5,)] * 8
ROWS = np.zeros((8, 2))


class Counted:
    """Answers a constant for a batch, and remembers the sizes of what it was called with."""

    def __init__(self, label: object = 1) -> None:
        self.label = label
        self.sizes: list[int] = []

    def predict(self, rows: Sequence[object]) -> list[object]:
        self.sizes.append(len(rows))
        return [self.label] * len(rows)


def network(functions: dict[str, Any] | None = None, **policy: object) -> covey.Network:
    table = fitting({"preset": "cos", "slices": 1, "explore": ONCE, **policy})
    config = {"policy": table, "learner": TWO_SITES}
    defaults = {name: Counted() for name in "abcd"}
    return covey.Network(config, functions={**defaults, **(functions or {})}, dimension=1)


def tickets(answers: list[Prediction]) -> list[int]:
    return [answer.ticket for answer in answers]


def counters(sites: covey.Network) -> dict[str, Any]:
    return {name: snapshot_of(site.learner).cells for name, site in sites.items()}
