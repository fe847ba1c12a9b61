"""`replay` of arrays accepts valid input and refuses other input with a message."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.errors import ConfigError, DataError, LimitError

TWO = {"learner": [{"name": "north", "functions": ["a"]}, {"name": "south", "functions": ["b"]}]}
CONTEXTS = [[0.1], [0.9]]


def test_a_function_that_two_learners_list_has_a_row_for_each() -> None:
    config = {"learner": [{"name": n, "functions": ["a"], "peers": {}} for n in ("north", "south")]}

    trace = covey.replay(config, predictions=[[1, 1], [0, 0]], labels=[1, 1], contexts=CONTEXTS)

    assert trace.columns()["prediction"] == [1, 0, 1, 0]


@pytest.mark.parametrize("name", ["label", "at", "revealed", "delay"])
def test_a_function_may_be_called_as_an_argument_is(name: str) -> None:
    config = {"learner": [{"name": "north", "functions": [name]}]}

    trace = covey.replay(
        config, predictions=[[1, 0]], labels=[1, 1], contexts=CONTEXTS, delay=[0, 0]
    )

    assert trace.columns()["correct"] == [1, 0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"contexts": [["x"], ["y"]]}, "contexts cannot be read as an array"),
        ({"contexts": [[0.1], [0.2, 0.3]]}, "contexts cannot be read as an array"),
        ({"predictions": [[1, 1], [[1], [1, 2]]]}, "the predictions of 'b' cannot be read"),
        ({"labels": 3}, "there are no slots to replay"),
        ({"labels": []}, "there are no slots to replay"),
        ({"predictions": [[1, 1]]}, "predictions has 1 rows, but the learners list 2 functions"),
        ({"predictions": [[1, 1], [1]]}, "'b' has shape (1,); it must have 2 entries"),
        ({"delay": [0]}, "'delay' has shape (1,); it must have 2 entries"),
        ({"contexts": [[0.1], [1.1]]}, "slot 2: context 'context 0' is 1.1"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_a_sentence(
    changes: dict[str, Any], sentence: str
) -> None:
    given = {"predictions": [[1, 1], [0, 0]], "labels": [1, 1], "contexts": CONTEXTS, **changes}

    with pytest.raises(DataError) as raised:
        covey.replay(TWO, **given)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("name", ["at", "revealed", "delay"])
def test_a_column_that_the_configuration_names_must_be_given(name: str) -> None:
    config = {**TWO, "data": {name: "some column"}}

    with pytest.raises(ConfigError, match=f"give replay the array {name}"):
        covey.replay(config, predictions=[[1, 1], [0, 0]], labels=[1, 1], contexts=CONTEXTS)


def test_a_root_that_may_not_be_split_is_an_error_when_it_is_due() -> None:
    config = {**TWO, "policy": {"preset": "dcza", "max-level": 0}}

    with pytest.raises(LimitError, match="raise max-level"):
        covey.replay(config, predictions=np.ones((2, 2)), labels=[1, 1], contexts=CONTEXTS)
