"""The paper's reading, each key by hand; `test_kernel.py` compares it with the reference."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.policies import policy_from
from covey.errors import ConfigError
from covey.kernel import Clock, code_of, table_of
from covey.kernel.rules import Cell

ONCE = {"scale": 0.0, "power": 0.0}  # a threshold of 0: everything is tried once


def arms(policy: dict[str, Any], learners: list[dict[str, Any]], **given: Any) -> list[str]:
    """Return the arms that the first learner chooses."""
    thresholds = dict.fromkeys(("explore", "train", "explore-peers"), ONCE)
    policy = {"preset": "cos", "slices": 1, **thresholds, **policy}
    given = {"contexts": np.zeros((len(given["labels"]), 1)), **given}
    trace = covey.replay({"policy": policy, "learner": learners}, **given)
    columns = trace.columns()
    rows = zip(trace.learner.tolist(), columns["phase"], columns["arm"], strict=True)
    return [f"{phase} {arm}" for learner, phase, arm in rows if learner == 0]


@pytest.mark.parametrize(
    ("reading", "first"),
    [
        ("spec", ["explore n", "train west"]),
        ("paper", ["train south", "explore n", "train west"]),
    ],
)
def test_after_one_peer_that_is_trained_the_literal_go_to_leads_to_exploration(
    reading: str, first: list[str]
) -> None:
    """In the second row the first peer that is asked, south, is trained: west is not asked then."""
    learners = [
        {"name": "north", "functions": ["n"], "peers": {"south": 0.0, "west": 0.0}},
        {"name": "south", "functions": ["s"]},
        {"name": "west", "functions": ["w"], "arrivals": False},
    ]
    said = [1, 1, 1, 1]

    chosen = arms({"reading": reading}, learners, predictions=[said] * 3, labels=said)

    assert chosen[: len(first)] == first


@pytest.mark.parametrize(("reading", "best"), [("spec", 0), ("paper", 1)])
def test_a_cell_exploits_by_its_labels_or_by_the_average_of_its_halves(
    reading: str, best: int
) -> None:
    """Of one, 8 of 9 are right on the left and 0 of 1 on the right; of the other 5 and 1."""
    settings_ = covey.DCZA(split_scale=100.0, inherit=True, reading=reading)
    policy = settings_.resolve(dimension=1, most_functions=2)
    rule = policy.rule(functions=2, costs=(0.0, 0.0), position=0)
    table = table_of(Clock(*policy.curves()), rule)
    for context in (0.1, 0.9):
        table.decide((context,), 1)
    row = table.cells.find(Cell(0, (0,)))

    for arm, right_on_the_left, right in ((0, 8, 0), (1, 5, 1)):
        for place in range(9):
            table.settle(code_of(row, arm, 1), int(place < right_on_the_left), (0.1,), 1)
        table.settle(code_of(row, arm, 1), right, (0.9,), 1)

    assert max(range(2), key=lambda arm: table.worth(row, arm)) == best


@pytest.mark.parametrize(
    ("unlabelled", "last"), [("net", "exploit n"), ("accuracy", "exploit south")]
)
def test_a_learner_without_labels_goes_by_accuracies_with_or_without_prices(
    unlabelled: str, last: str
) -> None:
    learners = [
        {"name": "north", "functions": ["n"], "supervised": False, "peers": {"south": 0.75}},
        {"name": "south", "functions": ["s"], "peers": {"north": 0.0}},
    ]

    chosen = arms(
        {"unlabelled": unlabelled, "explore-peers": {"scale": 2.0, "power": 0.0}},
        learners,
        predictions=[[1, 1, 0] * 20, [1] * 60],
        labels=[1] * 60,
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
        "policy": {"preset": "cos", "slices": 1, **thresholds, "history": history},
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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reading", "paper"),
        ("count", "labelled"),
        ("history", "predictions"),
        ("unlabelled", "accuracy"),
    ],
)
@pytest.mark.parametrize("preset", [{}, {"preset": "auto"}, {"preset": "share-ucb"}], ids=str)
def test_keys_of_the_paper_are_refused_with_presets_that_do_not_have_them(
    preset: dict[str, str], key: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"{key} is a key of the presets cos and dcza"):
        policy_from({**preset, key: value})
    assert getattr(policy_from({"preset": "dcza", key: value}), key) == value


def test_a_key_goes_before_the_reading() -> None:
    paper = covey.CoS(reading="paper")
    spec = covey.CoS(reading="paper", history="labels", unlabelled="net", batch="slots")

    assert paper.rules == (True, False, True, True, True)
    assert spec.rules == (True, False, False, False, False)
