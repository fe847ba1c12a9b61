"""Baselines on a log: what they answer, which labels they get and when, how errors are counted."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.config import load
from covey.data.logs import EncodedLog
from covey.errors import ConfigError, MissingExtra
from covey.replay.baselines import (
    BASELINES,
    HINDSIGHT,
    PLAIN,
    Baseline,
    BaselineAnswer,
    BaselineNumbers,
    BaselineRun,
    FollowTheLeader,
    PreviousLabel,
    make,
)
from covey.replay.replay import replay_file
from support import replays
from support.replays import LEARNERS, NETWORK, write
from support.streams import cut, log_of, stream


class Diary:
    """A baseline that says what the first function says and writes down what it is told."""

    name = "diary"

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, int]] = []
        self._slot = 0

    def predict(self, said: tuple[int, ...]) -> BaselineAnswer:
        self._slot += 1
        self.lines.append(("predict", self._slot, said[0]))
        return BaselineAnswer(said[0], said, self._slot)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        self.lines.append(("learn", guess.by, label))


def told(*logs: EncodedLog, **settings: object) -> list[tuple[str, int, int]]:
    diary = Diary()
    contest = BaselineRun([diary], **settings)  # type: ignore[arg-type]
    for log in logs:
        contest.add(log)
    return diary.lines


def compare(baselines: Sequence[Baseline], log: EncodedLog) -> dict[str, BaselineNumbers]:
    contest = BaselineRun(baselines)
    contest.add(log)
    return contest.outcome()


def learnt(log: EncodedLog, **settings: object) -> list[int]:
    return [slot for what, slot, _ in told(log, **settings) if what == "learn"]


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 2), st.integers(-2, 5)), min_size=1),
    data=st.data(),
)
def test_labels_arrive_at_the_end_of_their_slot_older_slots_first(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    said, labels, delays = zip(*rows, strict=True)
    expected: list[tuple[str, int, int]] = []
    for slot in range(1, len(rows) + 1):
        expected.append(("predict", slot, said[slot - 1]))
        for origin in range(1, slot + 1):
            label, delay = labels[origin - 1], delays[origin - 1]
            if label >= 0 and delay >= 0 and origin + delay == slot:
                expected.append(("learn", origin, label))
    ends = sorted(data.draw(st.sets(st.integers(1, len(rows)), max_size=3)))
    log = log_of([said], labels, delays)

    assert told(log) == expected
    assert told(*cut(log, ends)) == expected


def test_a_label_later_than_the_label_wait_never_arrives() -> None:
    log = log_of([[0] * 7], [1] * 7, [0, 1, 2, 3, -1, -1, -1])

    assert (learnt(log, label_wait=2), learnt(log)) == ([1, 2, 3], [1, 2, 3, 4])


def with_shown(shown: Sequence[Sequence[int]], at: Sequence[int] | None = None) -> EncodedLog:
    log = log_of([[0] * len(shown)], [1] * len(shown))
    return log._replace(
        shown=np.array(shown, np.int8).data, at=None if at is None else np.array(at, np.int32).data
    )


def test_a_label_is_known_if_any_learner_that_received_the_row_sees_it() -> None:
    log = with_shown([[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]])

    assert (learnt(log), learnt(log, receivers=[0, 1])) == ([1, 2, 3], [2, 3])


def test_where_one_learner_receives_the_row_it_is_the_one_that_counts() -> None:
    assert learnt(with_shown([[0, 1], [0, 1], [1, 0]], at=[0, 1, 0])) == [2, 3]


def test_errors_are_counted_where_the_log_has_the_label_even_if_it_was_hidden() -> None:
    log = log_of([[0, 0, 0, 0], [1, 1, 0, 0]], [1, 0, -1, 1], [-1, 0, 0, 0])

    assert compare([PreviousLabel()], log) == {
        "previous-label": BaselineNumbers(2, 200 / 3),
        HINDSIGHT: BaselineNumbers(2, 200 / 3),
    }


def test_answers_that_are_right_in_part_are_refused() -> None:
    log = log_of([[0]], [0])._replace(gains=np.ones((1, 1), np.int32).data)

    with pytest.raises(ConfigError, match="but \\[data\\] has a loss; remove one of them"):
        BaselineRun([PreviousLabel()]).add(log)


def answers(baseline: Any, said: Any, labels: Any, delays: Any = None) -> list[int]:
    (given_answers,) = BaselineRun([baseline]).add(log_of(said, labels, delays)).values()
    return [int(answer) for answer in given_answers]


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-1, 6)), min_size=1, max_size=25
    )
)
def test_the_previous_label_is_that_of_the_latest_slot_of_those_that_came(
    rows: list[tuple[int, int, int]],
) -> None:
    said, labels, delays = zip(*rows, strict=True)
    expected = []
    for slot in range(len(rows)):
        came = [s for s in range(slot) if delays[s] >= 0 and s + delays[s] < slot]
        expected.append(labels[max(came)] if came else said[slot])

    assert answers(PreviousLabel(), [said], labels, delays) == expected


def test_the_leader_is_the_function_that_was_right_most_often() -> None:
    said, labels = stream([0.6, 0.5, 0.65], 300, classes=3, seed=1)
    is_right = said == labels
    expected = [int(said[is_right[:, :t].sum(axis=1).argmax(), t]) for t in range(300)]

    assert answers(FollowTheLeader(3), said, labels) == expected


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in PLAIN])
def test_without_river_its_baselines_name_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [one for one in sys.modules if one.partition(".")[0] == "river"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "river", None)

    with pytest.raises(MissingExtra, match=r'pip install "\.\[river\]"'):
        make([name], functions=2)


def test_a_bandit_learns_about_the_arm_that_it_pulled_however_late() -> None:
    # All labels come after the last slot but one, so what it knows then is what it pulled.
    labels = np.ones(40, int)
    said = np.array([np.zeros(40, int), labels])
    delays = np.arange(40)[::-1]
    (bandit,) = make(["river-ucb"], functions=2, seed=1)
    pulled = answers(bandit, said, labels, delays)[:39]
    after = answers(bandit, said, labels)

    assert 0 < sum(pulled) < 39
    assert sum(after) > 30


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
    path = write(replays.stream(400), tmp_path / "log.csv")
    names = ["follow-the-leader", "adaboost"]
    plain, with_memory = (
        replay_file(path, load(config), baselines=names).baselines for config in (NETWORK, network)
    )

    assert with_memory == plain
