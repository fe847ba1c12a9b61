"""Of several candidate contexts the one that matters is found, by what it is worth."""

import functools
from collections import Counter
from typing import Any

import numpy as np
import pytest

import covey
from support.two_sites import GRID, NORTH, ZOOMING, answers, stream

BOTH = pytest.mark.parametrize("preset", ["grid", "zooming"])
THREE = ["x0", "x1", "x2"]
SLOTS = 20_000


@functools.cache
def found(preset: str, *candidates: str) -> tuple[covey.Trace, np.ndarray]:
    """Return the trace of a learner with these contexts, and its regret up to each slot.

    Of three contexts only x1 says which function is right: regret is against who goes by it.
    """
    rng = np.random.default_rng(1)
    labels, contexts = rng.integers(0, 2, SLOTS), rng.random((SLOTS, 3))
    is_low = contexts[:, 1] < 0.5
    chances = np.array([np.where(is_low, 0.9, 0.5), np.where(is_low, 0.5, 0.9)])
    trace = covey.replay(
        {
            "data": {"candidates": list(candidates)},
            "policy": GRID if preset == "grid" else ZOOMING,
            "learner": [NORTH],
        },
        predictions=answers(labels, *chances),
        labels=labels,
        contexts=contexts[:, [THREE.index(name) for name in candidates]],
    )
    return trace, np.cumsum(chances.max(axis=0) - chances[trace.arm, np.arange(SLOTS)])


@BOTH
def test_of_three_contexts_the_one_that_matters_is_found(preset: str) -> None:
    trace, _ = found(preset, *THREE)
    is_late = (trace.phase == 2) & (trace.slot > SLOTS / 2)
    went_by = Counter(trace.names["cell"][cell].split("/")[0] for cell in trace.cell[is_late])

    assert set(went_by) == set(THREE)
    assert went_by["x1"] > 0.8 * went_by.total()


@BOTH
def test_the_regret_against_the_best_single_context_grows_as_the_theorem_says(preset: str) -> None:
    """With alpha = 1 it is T^(3/4); sixteen times as many slots are then eight times the regret."""
    _, regret = found(preset, *THREE)

    assert regret[-1] < 8 * regret[SLOTS // 16]


@BOTH
def test_not_seeing_the_context_costs_less_than_one_slot_in_fifty(preset: str) -> None:
    _, regret = found(preset, *THREE)
    _, told = found(preset, "x1")

    assert told[-1] < regret[-1] < told[-1] + SLOTS / 50


def test_a_candidate_may_be_a_pair_where_no_single_context_matters() -> None:
    rng = np.random.default_rng(4)
    labels, contexts = rng.integers(0, 2, 20_000), rng.random((20_000, 2))
    is_same = (contexts[:, 0] < 0.5) == (contexts[:, 1] < 0.5)
    given = {
        "predictions": answers(labels, np.where(is_same, 0.9, 0.5), np.where(is_same, 0.5, 0.9)),
        "labels": labels,
        "contexts": contexts,
    }

    def right(candidates: list[Any]) -> float:
        config = {
            "data": {"candidates": candidates},
            "policy": {"preset": "cos", "slices": 2},
            "learner": [NORTH],
        }
        return float(covey.replay(config, **given).correct[-5_000:].mean())

    assert right(["x0", "x1"]) < 0.75
    assert right(["x0", "x1", ["x0", "x1"]]) > 0.87


def explored(reading: str, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return the candidates and the arms of a learner that explores in all slots."""
    often = {"scale": 1_000.0, "power": 0.0}
    config = {
        "data": {"candidates": ["x0", "x1"]},
        "policy": {"preset": "cos", "reading": reading, "seed": seed, "explore": often},
        "learner": [NORTH],
    }
    trace = covey.replay(config, **stream(400, 0.5, 0.5) | {"contexts": np.full((400, 2), 0.5)})
    columns = trace.columns()
    return [cell.split("/")[0] for cell in columns["cell"][1:]], columns["arm"][1:]


def test_by_the_paper_one_of_all_arms_that_need_exploration_is_drawn() -> None:
    cells, arms = explored("paper")
    pairs = Counter(zip(cells, arms, strict=True))

    # Of 399 slots 100 are expected for each pair; 4.5 standard deviations are 39.
    assert {pair: abs(count - 100) < 39 for pair, count in pairs.items()} == dict.fromkeys(
        [("x0", "a"), ("x0", "b"), ("x1", "a"), ("x1", "b")], True
    )
    assert explored("paper") == (cells, arms) != explored("paper", seed=1)
    assert explored("spec") == (["x0"] * 399, ["a"] * 399)
