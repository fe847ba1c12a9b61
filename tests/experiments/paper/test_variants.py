"""Rules of the paper's tables for which covey has no setting, each by hand."""

from typing import Any

import numpy as np
import pytest

from reproduction.experiments import Case, PreparedWindow
from reproduction.run import _replay

SLOTS = 2_000
COS = {"preset": "cos", "reading": "spec", "parameters": "z1"}


def window(labels: np.ndarray, answers: list[np.ndarray]) -> PreparedWindow:
    """Return the window of two learners with two functions each; contexts are the labels."""
    said = np.array(answers, np.int8)
    contexts = {"A1": labels[:, None].astype(float)}
    none = np.empty(0, np.int8)
    noise = (-1.0,) * len(answers)
    return PreparedWindow(labels, said, (), noise, contexts, none, none)


def of_the_first(labels: np.ndarray, answers: list[np.ndarray], **case: Any) -> dict[str, Any]:
    """Return what the first learner did, by the columns of the trace."""
    chosen = Case(trial="S1", context="A1", policy=COS, slots=SLOTS, learners=2, **case)
    trace = _replay(chosen, window(labels, answers))
    is_first = trace.learner == 0
    columns = {name: np.array(values)[is_first] for name, values in trace.columns().items()}
    return columns | {"error": float((columns["correct"] == 0).mean())}


@pytest.fixture
def labels() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 2, SLOTS).astype(np.int8)


def test_a_greedy_helper_never_finds_its_better_function(labels: np.ndarray) -> None:
    """Its last function is never right, so that all have the mean 0 as long as it is used."""
    tosses = np.random.default_rng(4).integers(0, 2, (2, SLOTS))
    answers = [tosses[0], tosses[1], labels, 1 - labels]

    explores = of_the_first(labels, answers, arrivals="first")
    greedy = of_the_first(labels, answers, arrivals="first", is_greedy=True)

    assert set(greedy["function"][greedy["arm"] == "2"]) == {"2.2"}
    assert {"2.1", "2.2"} <= set(explores["function"])
    assert explores["error"] < 0.2 < greedy["error"]


def test_a_peer_that_locks_in_repeats_one_label(labels: np.ndarray) -> None:
    tosses = np.random.default_rng(4).integers(0, 2, (4, SLOTS))

    seen = of_the_first(labels, list(tosses), shown="context")
    locked = of_the_first(labels, list(tosses), shown="context", locks_in=True)

    asked = locked["arm"] == "2 (context)"
    assert set(locked["prediction"][asked]) == {0}
    assert seen["error"] < 0.2 < locked["error"]
