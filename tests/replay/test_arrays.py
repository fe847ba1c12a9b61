"""`replay` of arrays accepts valid input and refuses other input with a message."""

import numpy as np
import pytest

import covey
from covey.errors import ConfigError, DataError, LimitError

TWO = {"learner": [{"name": "north", "functions": ["a"]}, {"name": "south", "functions": ["b"]}]}
CONTEXTS = [[0.1], [0.9]]


@pytest.mark.parametrize("names", [("a", "a"), ("label", "a"), ("a", "delay")])
def test_every_array_has_a_name_of_its_own(names: tuple[str, str]) -> None:
    pairs = zip(("north", "south"), names, strict=True)
    config = {"learner": [{"name": name, "functions": [function]} for name, function in pairs]}

    with pytest.raises(DataError, match="two arrays have the name .*; rename"):
        covey.replay(config, predictions=[[1, 1], [0, 0]], labels=[1, 1], delay=[0, 0])


@pytest.mark.parametrize("name", ["at", "revealed", "delay"])
def test_a_column_that_the_configuration_names_must_be_given(name: str) -> None:
    config = {**TWO, "data": {name: "some column"}}

    with pytest.raises(ConfigError, match=f"give replay the array {name}"):
        covey.replay(config, predictions=[[1, 1], [0, 0]], labels=[1, 1], contexts=CONTEXTS)


def test_a_root_that_may_not_be_split_is_an_error_when_it_is_due() -> None:
    config = {**TWO, "policy": {"preset": "dcza", "max-level": 0}}

    with pytest.raises(LimitError, match="raise max-level"):
        covey.replay(config, predictions=np.ones((2, 2)), labels=[1, 1], contexts=CONTEXTS)
