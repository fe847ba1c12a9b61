"""`replay` of arrays accepts valid input and refuses other input with a message."""

import numpy as np
import pytest

import covey
from covey.errors import ConfigError, LimitError

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


@pytest.mark.parametrize("name", ["at", "revealed", "delay"])
def test_a_column_that_the_configuration_names_must_be_given(name: str) -> None:
    config = {**TWO, "data": {name: "some column"}}

    with pytest.raises(ConfigError, match=f"give replay the array {name}"):
        covey.replay(config, predictions=[[1, 1], [0, 0]], labels=[1, 1], contexts=CONTEXTS)


def test_a_root_that_may_not_be_split_is_an_error_when_it_is_due() -> None:
    config = {**TWO, "policy": {"preset": "dcza", "max-level": 0}}

    with pytest.raises(LimitError, match="raise max-level"):
        covey.replay(config, predictions=np.ones((2, 2)), labels=[1, 1], contexts=CONTEXTS)
