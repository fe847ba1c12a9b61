"""Baselines get the same labels at the same time as learners."""

from pathlib import Path

import pytest

from covey.config import load
from covey.replay.replay import replay_file
from support.replays import LEARNERS, NETWORK, stream, write


@pytest.mark.parametrize(
    ("policy", "hidden_from", "errors"),
    [
        ({}, None, 1),  # Only the first slot has no label before it.
        ({}, "south", 1),
        ({}, "north", 6),  # South sees all labels, but receives no row.
        ({"label-wait": 1}, None, 6),
    ],
)
def test_baselines_know_the_labels_that_a_receiving_learner_knows_in_time(
    policy: dict[str, int], hidden_from: str | None, errors: int, tmp_path: Path
) -> None:
    learners = [
        {"name": "north", "functions": ["a"], "arrivals": True},
        {"name": "south", "functions": ["b"], "arrivals": False},
    ]
    for learner in learners:
        learner["label-probability"] = float(learner["name"] != hidden_from)
    late = [2] * 6 if policy else [0] * 6
    log = {"a": [0] * 6, "b": [0] * 6, "label": [1] * 6, "late": late}
    setup = load({"data": {"delay": "late"}, "policy": policy, "learner": learners})
    outcome = replay_file(write(log, tmp_path / "log.parquet"), setup, baselines=["previous-label"])

    assert outcome.baselines is not None
    assert outcome.baselines["previous-label"].errors == errors


def test_answers_from_memory_are_no_functions_to_baselines(tmp_path: Path) -> None:
    shown = {"name": "south", "functions": ["svm"], "context-peers": {"north": 0.0}}
    network = {**NETWORK, "learner": [LEARNERS[0], shown, LEARNERS[2]]}
    path = write(stream(400), tmp_path / "log.csv")
    names = ["follow-the-leader", "adaboost"]
    plain, with_memory = (
        replay_file(path, load(config), baselines=names).baselines for config in (NETWORK, network)
    )

    assert with_memory == plain
