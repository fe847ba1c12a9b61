"""Baselines on a log: which labels they get and when, and how errors are counted."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.data.logs import EncodedLog
from covey.errors import ConfigError
from covey.replay.baselines import (
    HINDSIGHT,
    Baseline,
    BaselineAnswer,
    BaselineNumbers,
    BaselineRun,
    PreviousLabel,
)
from support.streams import cut, log_of


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
