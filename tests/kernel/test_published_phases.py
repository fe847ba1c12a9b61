"""The paper's parameters train and explore as often as its tables print."""

from typing import Any

import numpy as np
import pytest

import covey

HORIZON = 20_000
PUBLISHED: dict[str, Any] = {
    "policy": {"preset": "cos", "parameters": "z1", "horizon": HORIZON},
    "learner": [
        {
            "name": name,
            "functions": [f"{name}1", f"{name}2"],
            "peers": dict.fromkeys("bcd", 0.0) if name == "a" else {},
            "arrivals": name == "a",
        }
        for name in "abcd"
    ],
}


def phase_percents(right: np.ndarray, contexts: np.ndarray) -> list[float]:
    """Return the shares of training and exploration at the only learner with arrivals."""
    trace = covey.replay(
        PUBLISHED,
        predictions=right,
        labels=np.ones(HORIZON, np.int64),
        contexts=contexts[:, np.newaxis],
    )
    return (100 * np.bincount(trace.phase, minlength=3)[:2] / HORIZON).tolist()


def random_answers(rng: np.random.Generator) -> np.ndarray:
    return (rng.random((8, HORIZON)) < rng.random((8, 1))).astype(np.int64)


def test_the_time_context_trains_and_explores_as_published_when_all_are_right() -> None:
    time = np.arange(1, HORIZON + 1) / HORIZON

    # The paper prints 10.3 and 8.5.
    assert phase_percents(np.ones((8, HORIZON), np.int64), time) == [10.365, 8.61]


@pytest.mark.parametrize("seed", range(4))
def test_the_time_context_trains_as_published_whatever_the_functions_do(seed: int) -> None:
    answers = random_answers(np.random.default_rng(seed))
    train, explore = phase_percents(answers, np.arange(1, HORIZON + 1) / HORIZON)

    assert train == 10.365
    assert 8.3 <= explore <= 8.61


@pytest.mark.parametrize("seed", range(4))
def test_a_context_of_two_values_trains_and_explores_as_published(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers = random_answers(rng)
    train, explore = phase_percents(answers, rng.integers(0, 2, HORIZON).astype(float))

    # The paper prints 2 and 1.4, one digit after the point.
    assert 1.9 <= round(train, 1) <= 2.1
    assert 1.1 <= round(explore, 1) <= 1.5
