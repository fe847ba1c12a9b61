"""A learner without labels learns from labels that peers pass on, and does not settle on a few."""

import numpy as np
import pytest

import covey

SLOTS, SEEDS = 3_000, 6
ACCURACIES = (0.9, 0.55, 0.7)  # of north, and of the two functions of south
SITES = [
    {"name": "north", "functions": ["n"], "peers": {"south": 0.0}},
    {"name": "south", "functions": ["a", "b"], "supervised": False, "peers": {"north": 0.0}},
]


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
def test_it_ends_at_the_best_arm_with_each_seed(preset: str) -> None:
    policy = {"preset": preset, **({"slices": 1} if preset == "cos" else {})}
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, SLOTS)
        right = rng.random((3, SLOTS)) < np.array(ACCURACIES)[:, None]
        result = covey.replay(
            {"policy": policy, "learner": SITES},
            predictions=np.where(right, labels, 1 - labels),
            labels=labels,
        )

        arms = np.array(result.columns()["arm"]).reshape(SLOTS, 2)[SLOTS // 2 :, 1]
        assert (arms == "north").mean() > 0.8, seed
