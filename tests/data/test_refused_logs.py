"""Logs and arrays that cannot be replayed are one sentence, and leave no trace."""

from pathlib import Path

import numpy as np
import pytest

import covey
from covey.errors import ConfigError, ContextError, DataError
from support.replays import EVERY_KIND, NETWORK, ONE_CONTEXT, PATIENT, RIGHT, Columns, play, stream

BAD_ROWS = [
    ("hour", "1.5", ContextError, "slot 3: context 'hour' is 1.5; contexts must lie in [0, 1]"),
    ("load", "nan", DataError, "slot 3: column 'load' is 'nan', which is not a number"),
    ("label", "", DataError, "row 3: the label in 'label' is missing"),
    ("tree", "", DataError, "row 3: the prediction in 'tree' is missing"),
    ("knn", "attack", DataError, "row 3: column 'knn' holds 'attack', but column 'label' (row 1)"),
    ("site", "nort", DataError, "row 3: column 'site' names 'nort', which is not a learner"),
    ("site", "west", DataError, "row 3: column 'site' names 'west', which has arrivals = false"),
    ("late", "-1", DataError, "row 3: column 'late' is '-1'; it must be a whole number of slots"),
    ("seen", "2", DataError, "row 3: column 'seen' is '2'; it must be 0 or 1"),
]


@pytest.mark.parametrize(("name", "value", "kind", "sentence"), BAD_ROWS)
def test_a_bad_row_is_named_and_leaves_no_trace(
    tmp_path: Path, name: str, value: str, kind: type[Exception], sentence: str
) -> None:
    columns = {**stream(5), "label": [1] * 5, "seen": [1] * 5}
    columns[name] = [*list(columns[name])[:2], value, *list(columns[name])[3:]]
    with pytest.raises(kind) as caught:
        play(columns, NETWORK, tmp_path)

    assert str(caught.value).startswith(sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


@EVERY_KIND
def test_a_column_that_the_log_lacks_is_named(tmp_path: Path, kind: str) -> None:
    columns = stream(5)
    columns["tre"] = columns.pop("tree")
    with pytest.raises(DataError) as caught:
        play(columns, NETWORK, tmp_path, kind)

    assert str(caught.value) == f"log.{kind} has no column 'tree'; did you mean 'tre'?"


@EVERY_KIND
def test_an_empty_log_is_refused_and_leaves_no_trace(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DataError) as caught:
        play({"label": [], "good": [], "bad": []}, PATIENT, tmp_path, kind)

    assert str(caught.value) == f"log.{kind} has no rows; a log needs at least one"
    assert [path.name for path in tmp_path.iterdir()] == [f"log.{kind}"]


@EVERY_KIND
def test_a_log_longer_than_the_horizon_is_refused(tmp_path: Path, kind: str) -> None:
    columns = {"label": [1] * 4, "good": [1] * 4, "bad": [1] * 4}
    with pytest.raises(ConfigError) as caught:
        play(columns, {**PATIENT, "policy": {"horizon": 3}}, tmp_path, kind)

    assert str(caught.value) == (
        "the log has more rows than the horizon of 3 slots; raise horizon in [policy]"
    )
    assert [path.name for path in tmp_path.iterdir()] == [f"log.{kind}"]


WRONG_ARRAYS = [
    (
        {"contexts": [0.1, 0.9]},
        "contexts has shape (2,); it must be slots x dimensions, here 2 x d",
    ),
    ({"contexts": [[0.1]]}, "contexts has shape (1, 1); it must be slots x dimensions, here 2 x d"),
    ({"contexts": np.zeros((2, 3))}, "the configuration names 1 contexts, but the array has 3"),
    ({"contexts": [[0.1], [1.5]]}, "slot 2: context 'hour' is 1.5; contexts must lie in [0, 1]"),
    ({"contexts": [[np.nan], [1]]}, "slot 1: context 'hour' is nan; contexts must lie in [0, 1]"),
    ({"predictions": [[1, 1]]}, "predictions has 1 rows, but the learners list 2 functions; give"),
    ({"predictions": [[1, 1], [0]]}, "'bad' has shape (1,); it must have 2 entries"),
    ({"predictions": [[1, 1], [[0], [0]]]}, "'bad' has shape (2, 1); it must have 2 entries"),
    ({"delay": [0]}, "'delay' has shape (1,); it must have 2 entries"),
    ({"at": ["north"] * 3}, "'at' has shape (3,); it must have 2 entries"),
    ({"predictions": [[1, None], [0, 0]]}, "row 2: the prediction in 'good' is missing"),
    ({"labels": [1, None]}, "row 2: the label in 'label' is missing"),
    (
        {"labels": [], "predictions": [[], []], "contexts": np.empty((0, 1))},
        "there are no slots to replay",
    ),
]


@pytest.mark.parametrize(("wrong", "sentence"), WRONG_ARRAYS)
def test_wrong_arrays_are_one_sentence(wrong: Columns, sentence: str) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        covey.replay(ONE_CONTEXT, **{**RIGHT, **wrong})

    assert str(caught.value).startswith(sentence)


def test_arrays_longer_than_the_horizon_are_refused() -> None:
    with pytest.raises(ConfigError, match="more rows than the horizon of 1 slots"):
        covey.replay({**ONE_CONTEXT, "policy": {"horizon": 1}}, **RIGHT)
