"""A long stream, in a replay and in a network in process."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import covey
from support.presets import fitting

SITES = 3
SLOTS = 1_500
EARLY = {  # few cells and low thresholds, so that peers are asked soon
    "slices": 2,
    "split-scale": 5.0,
    "split-power": 2.0,
    "explore": {"scale": 0.5, "power": 0.0},
    "train": {"scale": 1.0, "power": 0.0},
    "explore-peers": {"scale": 0.5, "power": 0.0},
}
Row = tuple[Any, ...]  # phase, arm, function, price, whether it was right


class Stream(NamedTuple):
    """A recorded stream, and functions that say what was recorded of them."""

    predictions: Any  # functions x slots
    labels: Any
    contexts: Any  # slots x coordinates
    at: list[str]  # the site of each slot

    @property
    def functions(self) -> dict[str, Callable[[int], int]]:
        """The functions, which take a slot."""
        rows = enumerate(self.predictions)
        return {f"f{k}": lambda slot, row=row: int(row[slot]) for k, row in rows}


def recorded_stream(seed: int = 11) -> Stream:
    """Return a stream of two classes, which arrives at three sites."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, SLOTS)
    is_right = rng.random((2 * SITES, SLOTS)) < rng.uniform(0.5, 1.0, (2 * SITES, 1))
    predictions = np.where(is_right, labels, 1 - labels)
    contexts = rng.random((SLOTS, 2))
    at = [f"site{k}" for k in rng.integers(0, SITES, SLOTS)]
    return Stream(predictions, labels, contexts, at)


def changing_stream(dimension: int, *, slots: int = 600, seed: int = 5) -> Stream:
    """Return a stream whose functions depend on all coordinates, and on none as before at last."""
    rng = np.random.default_rng(seed)
    labels, contexts = rng.integers(0, 2, slots), rng.random((slots, dimension))
    slopes = 2 * rng.normal(size=(2 * SITES, dimension))
    chance = 1 / (1 + np.exp(-(contexts - 0.5) @ slopes.T - 0.7)).T
    chance[:, slots // 2 :] = 1 - chance[:, slots // 2 :]
    predictions = np.where(rng.random(chance.shape) < chance, labels, 1 - labels)
    at = [f"site{k}" for k in rng.integers(0, SITES, slots)]
    return Stream(predictions, labels, contexts, at)


def decided_in_a_network(stream: Stream, config: dict[str, Any]) -> list[Any]:
    """Return the decisions of a network in this process, each with its label at once."""
    dimension = stream.contexts.shape[1]
    network = covey.Network(config, functions=stream.functions, dimension=dimension)
    live = []
    for slot, name in enumerate(stream.at):
        site = network[name]
        answer = site.predict(slot, tuple(stream.contexts[slot]), slot=slot + 1)
        settlement = site.learn(answer.ticket, int(stream.labels[slot]))
        live.append((answer.phase, answer.arm, answer.function, answer.price, settlement.is_right))
    return live


def replayed(stream: Stream, config: dict[str, Any]) -> list[Row]:
    """Return the decisions of a replay."""
    recorded = covey.replay(
        config,
        predictions=stream.predictions,
        labels=stream.labels,
        contexts=stream.contexts,
        at=stream.at,
    ).columns()
    names = ("phase", "arm", "function", "cost", "correct")
    return list(zip(*(recorded[name] for name in names), strict=True))


def config_of(preset: str) -> dict[str, Any]:
    """Return three sites that do not only use own functions, and whose labels raise alarms."""
    return {
        "policy": fitting({"preset": preset, "alarm": 5.0, **EARLY}),
        "learner": [
            {
                "name": f"site{k}",
                "functions": [f"f{2 * k}", f"f{2 * k + 1}"],
                "function-costs": [0.0, 0.02],
                "peers": {f"site{other}": 0.05 for other in range(SITES) if other != k},
            }
            for k in range(SITES)
        ],
    }
