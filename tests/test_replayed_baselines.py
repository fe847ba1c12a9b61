"""Baselines get from a log what a learner gets: the same labels, at the same time."""

from pathlib import Path

import numpy as np
import pytest

from covey.backtest import compare_baselines, replay_file
from covey.config import load
from replays import LEARNERS, NETWORK, stream, write


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
    policy: dict[str, int], hidden_from: str | None, errors: int
) -> None:
    learners = [
        {"name": "north", "functions": ["a"], "arrivals": True},
        {"name": "south", "functions": ["b"], "arrivals": False},
    ]
    for learner in learners:
        learner["label-probability"] = float(learner["name"] != hidden_from)
    late = [2] * 6 if policy else [0] * 6
    found = compare_baselines(
        {"policy": policy, "learner": learners},
        ["previous-label"],
        predictions=np.zeros((2, 6), int),
        labels=np.ones(6, int),
        delay=late,
    )

    assert found["previous-label"].errors == errors


def test_a_log_of_several_chunks_gives_baselines_what_its_arrays_give(tmp_path: Path) -> None:
    columns = stream(70_000)
    names = ["previous-label", "win-stay", "follow-the-leader", "adaboost", "oza-russell"]
    path = write(columns, tmp_path / "log.parquet")
    told = {name: columns[NETWORK["data"][name]] for name in ("at", "revealed", "delay")}
    functions = [columns[name] for name in ("nb", "tree", "svm", "knn")]
    of_arrays = compare_baselines(
        NETWORK, names, predictions=functions, labels=columns["label"], **told
    )
    of_file = replay_file(path, load(NETWORK), baselines=names).baselines

    assert of_file == of_arrays
    assert list(of_arrays) == [*names, "best-in-hindsight"]


def test_answers_from_memory_are_no_functions_to_baselines(tmp_path: Path) -> None:
    shown = {"name": "south", "functions": ["svm"], "context-peers": {"north": 0.0}}
    network = {**NETWORK, "learner": [LEARNERS[0], shown, LEARNERS[2]]}
    path = write(stream(400), tmp_path / "log.csv")
    names = ["win-stay", "follow-the-leader", "oza-russell"]
    plain, with_memory = (
        replay_file(path, load(config), baselines=names).baselines for config in (NETWORK, network)
    )

    assert with_memory == plain
