"""One stream, the same decisions everywhere: replay and a network of real functions."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.policies import PRESETS

SITES = 3
SLOTS = 1_500


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("mode", ["spec", "paper"])
def test_replay_and_the_network_in_process_decide_the_same(preset: str, mode: str) -> None:
    rng = np.random.default_rng(11)
    config = _config(preset, mode)
    labels = rng.integers(0, 2, SLOTS)
    is_right = rng.random((2 * SITES, SLOTS)) < rng.uniform(0.5, 1.0, (2 * SITES, 1))
    predictions = np.where(is_right, labels, 1 - labels)
    contexts = rng.random((SLOTS, 2))
    at = [f"site{k}" for k in rng.integers(0, SITES, SLOTS)]
    recorded = covey.replay(
        config, predictions=predictions, labels=labels, contexts=contexts, at=at
    ).columns()

    functions = {f"f{k}": lambda slot, row=row: int(row[slot]) for k, row in enumerate(predictions)}
    network = covey.Network(config, functions=functions, dimension=2)
    live = []
    for slot in range(SLOTS):
        site = network[at[slot]]
        answer = site.predict(slot, tuple(contexts[slot]), slot=slot + 1)
        settlement = site.learn(answer.ticket, int(labels[slot]))
        live.append((answer.phase, answer.arm, answer.function, answer.price, settlement.is_right))

    names = ("phase", "arm", "function", "cost", "correct")
    assert live == list(zip(*(recorded[name] for name in names), strict=True))


def _config(preset: str, mode: str) -> dict[str, Any]:
    return {
        "policy": {"preset": preset, "mode": mode, "slices": 3, "split-power": 2.0},
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
