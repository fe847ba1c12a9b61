"""A replay knows a label in the slot in which it has come, and not before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import covey
from covey.replay.engine import CellView
from support.replays import EVERY_KIND, PATIENT, play, trace_in


def play_patient(labels: Sequence[int], **told: Any) -> list[tuple[str, str]]:
    """Return phase and arm of every slot, where one function is always right and one never."""
    trace = covey.replay(
        PATIENT,
        predictions=[labels, [1 - label for label in labels]],
        labels=labels,
        contexts=np.empty((len(labels), 0)),
        **told,
    )
    columns = trace.columns()
    return list(zip(columns["phase"], columns["arm"], strict=True))


def test_a_delayed_label_is_applied_at_the_end_of_the_slot_in_which_it_is_due() -> None:
    assert play_patient([1, 0, 1, 0, 1, 0, 1, 0], delay=[2] * 8) == [
        *[("explore", "good")] * 3,
        *[("explore", "bad")] * 3,
        *[("exploit", "good")] * 2,
    ]


@EVERY_KIND
def test_labels_due_after_the_last_row_never_come(tmp_path: Path, kind: str) -> None:
    columns = {"label": [1, 1], "good": [1, 1], "bad": [0, 0], "late": [2, 1]}
    outcome = play(columns, {**PATIENT, "data": {"delay": "late"}}, tmp_path, kind)

    assert outcome.learners[0].cells == [CellView("g1", (), (), 2, None, None)]


def test_a_label_due_at_the_last_row_comes(tmp_path: Path) -> None:
    columns = {"label": [1, 1], "good": [1, 1], "bad": [0, 0], "late": [1, 1]}
    outcome = play(columns, {**PATIENT, "data": {"delay": "late"}}, tmp_path)

    assert outcome.learners[0].cells == [CellView("g1", (), (), 2, "good", 1.0)]


def test_hidden_labels_teach_nothing() -> None:
    decided = play_patient([1, 0, 1, 0], revealed=[0, 1, 0, 0])

    assert decided == [("explore", "good")] * 2 + [("explore", "bad")] * 2


def test_hidden_labels_count_in_the_error_and_empty_ones_do_not(tmp_path: Path) -> None:
    columns = {
        "label": [1, 1, 1, "", 1],
        "good": [1, 0, 0, 1, 1],
        "bad": [0, 0, 0, 0, 0],
        "seen": [0, 0, 0, 0, 0],
    }
    outcome = play(columns, {**PATIENT, "data": {"revealed": "seen"}}, tmp_path)

    assert (outcome.learners[0].numbers.errors, outcome.learners[0].judged) == (2, 4)
    assert trace_in(tmp_path)["correct"] == ["1", "0", "0", "", "1"]


def test_by_the_papers_reading_labels_are_hidden_from_the_first_only() -> None:
    policy = {**PATIENT["policy"], "preset": "cos", "reading": "paper"}
    learners = [{"name": name, "functions": [f"{name}1", f"{name}2"]} for name in "ab"]
    trace = covey.replay(
        {"policy": policy, "learner": [{**learner, "peers": {}} for learner in learners]},
        predictions=np.ones((4, 3)),
        labels=np.ones(3),
        contexts=np.empty((3, 0)),
        revealed=[0, 0, 0],
    )
    columns = trace.columns()

    assert columns["arm"][0::2] == ["a1", "a1", "a1"]
    assert columns["arm"][1::2] == ["b1", "b2", "b1"]
