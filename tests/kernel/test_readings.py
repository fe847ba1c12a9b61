"""Readings of the paper: the kernel decides what the reference decides, and each by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import covey
from covey.bandit.policies import settings_from
from covey.errors import ConfigError
from support.effort import effort
from support.networks import Case, kernel_rows, reading_cases, reference_rows

ONCE = {"scale": 0.0, "power": 0.0}  # a threshold of 0: everything is tried once


@settings(max_examples=effort(100, plain=60, long=300))
@given(case=reading_cases())
def test_every_decision_by_another_reading_equals_that_of_the_reference(case: Case) -> None:
    assert kernel_rows(case) == reference_rows(case)


def arms(reading: dict[str, Any], learners: list[dict[str, Any]], **given: Any) -> list[str]:
    """Return the arms that the first learner chooses."""
    options = given.pop("policy", {})
    thresholds = dict.fromkeys(("explore", "train", "explore-peers"), ONCE)
    policy = {"preset": "cos", "slices": 1, **thresholds, **options, "reading": reading}
    given = {"contexts": np.zeros((len(given["labels"]), 1)), **given}
    trace = covey.replay({"policy": policy, "learner": learners}, **given)
    columns = trace.columns()
    rows = zip(trace.learner.tolist(), columns["phase"], columns["arm"], strict=True)
    return [f"{phase} {arm}" for learner, phase, arm in rows if learner == 0]


@pytest.mark.parametrize(("queries", "third"), [("all", "train west"), ("one", "explore south")])
def test_after_one_peer_that_is_trained_the_literal_go_to_leads_to_exploration(
    queries: str, third: str
) -> None:
    """South saw the first two rows too, and needs no training; west saw none."""
    learners = [
        {"name": "north", "functions": ["n"]},
        {"name": "south", "functions": ["s"], "peers": {}},
        {"name": "west", "functions": ["w"], "peers": {}, "arrivals": False},
    ]
    said = [1, 1, 1, 1]

    chosen = arms({"queries": queries}, learners, predictions=[said] * 3, labels=said)

    assert chosen[:2] == ["explore n", third]


@pytest.mark.parametrize(("children", "last"), [("pooled", "exploit a"), ("averaged", "exploit b")])
def test_a_cell_exploits_by_its_labels_or_by_the_average_of_its_halves(
    children: str, last: str
) -> None:
    """Of a, 8 of 9 are right on the left and 0 of 1 on the right; of b, 5 of 9 and 1 of 1."""
    of_a = [1] * 8 + [0, 0, 1]
    of_b = [1] * 5 + [0] * 4 + [1, 1]

    chosen = arms(
        {"children": children},
        [{"name": "north", "functions": ["a", "b"], "free": True}],
        predictions=[of_a, of_b],
        labels=[1] * 11,
        contexts=np.array([[0.1]] * 9 + [[0.9], [0.1]]),
        policy={"preset": "dcza", "split-scale": 100.0, "inherit": True},
    )

    assert chosen[-1] == last


@pytest.mark.parametrize(
    ("preset", "unlabelled", "last"),
    [
        ("cos", "net", "exploit n"),
        ("cos", "accuracy", "exploit south"),
        ("auto", "accuracy", "exploit south"),
    ],
)
def test_a_learner_without_labels_goes_by_accuracies_with_or_without_prices(
    preset: str, unlabelled: str, last: str
) -> None:
    learners = [
        {"name": "north", "functions": ["n"], "supervised": False, "peers": {"south": 0.75}},
        {"name": "south", "functions": ["s"], "peers": {"north": 0.0}},
    ]

    chosen = arms(
        {"unlabelled": unlabelled},
        learners,
        predictions=[[1, 1, 0] * 20, [1] * 60],
        labels=[1] * 60,
        policy={"preset": preset, "explore-peers": {"scale": 2.0, "power": 0.0}},
    )

    assert chosen[-1] == last


def labels_seen(history: str) -> list[Any]:
    """Return what a context-only peer answers: it always says 1 or 2, and 1 is right more often.

    The label 3 is the most frequent one, and the peer has never predicted it.
    """
    labels = [1, 3, 3, 2, 1, 3, 3, 2, 2, 2, 3, 3] + [3] * 20
    said = [1, 1, 2, 2, 1, 1, 2, 2, 2, 2, 2, 2] + [2] * 20
    learners = [
        {"name": "north", "functions": ["n"], "peers": {}, "context-peers": {"south": 0.0}},
        {"name": "south", "functions": ["s"], "peers": {}},
    ]
    often = {"scale": 1.0, "power": 0.0}
    thresholds = {"explore": often, "explore-peers": often}
    config = {
        "policy": {"preset": "cos", "slices": 1, **thresholds, "reading": {"history": history}},
        "learner": learners,
    }
    columns = covey.replay(
        config, predictions=[[0] * 32, said], labels=labels, contexts=np.zeros((32, 1))
    ).columns()
    asked = [k for k, arm in enumerate(columns["arm"]) if arm == "south (context)"]
    return [columns["prediction"][k] for k in asked]


def test_a_context_only_peer_answers_with_its_prediction_that_was_right_most_often() -> None:
    assert labels_seen("labels")[-1] == 3
    assert set(labels_seen("predictions")) == {1}


@pytest.mark.parametrize("key", ["queries", "children", "batch"])
def test_readings_of_the_phases_are_refused_with_presets_that_have_none(key: str) -> None:
    value = {"queries": "one", "children": "averaged", "batch": "slot"}[key]

    with pytest.raises(ConfigError, match=f'{key} = "{value}" cannot be combined with preset'):
        covey.Auto(reading={key: value})
    with pytest.raises(ConfigError, match="cos-ce"):
        settings_from({"preset": "cos-ce", "reading": {key: value}})
    assert covey.Auto(mode="paper").reading.queries == "one"  # which has no meaning there
