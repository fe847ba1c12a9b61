"""What makes no sense of candidates, contexts apart, costs and waits is refused with a sentence."""

from typing import Any

import pytest

import covey
from covey.config import load
from covey.errors import ConfigError, DataError
from support.two_sites import NORTH, SOUTH, stream


@pytest.mark.parametrize(
    ("data", "north", "sentence"),
    [
        (
            {"context": ["x"], "candidates": ["y"]},
            {},
            "[data] has context and candidates; remove one of them",
        ),
        (
            {},
            {"context": ["x"], "candidates": ["y"]},
            "learner 'north' has context and candidates; remove one of them",
        ),
        (
            {},
            {"candidates": ["x", ["x", "y"], ["x"]]},
            "learner 'north' has a duplicate candidate; remove one",
        ),
        ({"candidates": []}, {}, "[data] candidates is empty; list contexts to choose from"),
        ({"candidates": "x"}, {}, "[data] candidates: expected array, got str"),
        ({"candidate": ["x"]}, {}, "unknown key 'candidate' in [data]; did you mean 'candidates'?"),
        (
            {},
            {"cost-columns": {"suth": "fee"}},
            "learner 'north' has a cost column for 'suth', which is not one of its arms; did you "
            "mean "
            "'south'?",
        ),
        (
            {},
            {"context-peers": {"suoth": 0.1}},
            "learner 'north' lists unknown learner 'suoth' in context-peers; did you mean 'south'?",
        ),
        (
            {},
            {"context-peers": {"north": 0.1}},
            "learner 'north' lists itself in context-peers",
        ),
        (
            {},
            {"context-peers": {"south": -0.1}},
            "the cost of peer 'south' is -0.1; it must be 0 or more",
        ),
        (
            {"loss": {"kind": "squared", "bound": 1.0}},
            {"context-peers": {"south": 0.1}},
            "[data] loss cannot be combined with context-peers",
        ),
        ({}, {"answer-wait": -1}, "learner 'north': answer-wait is -1; it must be 0 slots or more"),
        ({}, {"answer-delay": -2}, "answer-delay is -2; it must be 0 slots or more"),
        ({}, {"answer-wait": "long"}, "[[learner]] 1 answer-wait: expected int, got str"),
    ],
)
def test_an_invalid_configuration_is_rejected(
    data: dict[str, Any], north: dict[str, Any], sentence: str
) -> None:
    config = {
        "data": data,
        "learner": [{**NORTH, "peers": {"south": 0.1}, **north}, SOUTH],
    }

    with pytest.raises(ConfigError) as raised:
        load(config)
    assert sentence in str(raised.value)


def test_weights_per_cell_need_one_context_space() -> None:
    learners = [{**NORTH, "context": ["x"]}, {**SOUTH, "context": ["y"]}]

    with pytest.raises(ConfigError, match="needs one context space for all learners"):
        load({"ensemble": {"weights": "cell"}, "learner": learners})
    assert load({"ensemble": {"weights": "global"}, "learner": learners}).ensemble is not None


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([0.1, 1.5], "row 2: column 'fee' is 1.5; a cost must lie in [0, 1]"),
        ([-0.1, 0.5], "row 1: column 'fee' is -0.1; a cost must lie in [0, 1]"),
        ([0.1, float("nan")], "row 2: column 'fee' is nan; a cost must lie in [0, 1]"),
        ([0.1, "cheap"], "row 2: column 'fee' is 'cheap'; a cost must lie in [0, 1]"),
        ([0.1], "'fee' has shape (1,); it must have 2 entries"),
        (None, "the configuration names column 'fee'; give it in columns; did you mean 'fees'?"),
    ],
)
def test_an_invalid_cost_column_is_rejected(values: Any, sentence: str) -> None:
    config = {"learner": [{**NORTH, "cost-columns": {"a": "fee"}}]}
    columns = {"fees": [0, 0]} if values is None else {"fee": values}

    with pytest.raises(DataError) as raised:
        covey.replay(config, **stream(2, 0.5, 0.5), columns=columns)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("slots", [-1, 0.5, "soon"])
def test_an_invalid_answer_delay_is_rejected_with_its_row(slots: Any) -> None:
    config = {"learner": [NORTH, {**SOUTH, "answer-delay": "late"}]}

    with pytest.raises(DataError) as raised:
        covey.replay(config, **stream(2, 0.5, 0.5, 0.5), columns={"late": [1, slots]})
    assert f"row 2: column 'late' is {slots!r}; it must be a whole number" in str(raised.value)


@pytest.mark.parametrize(
    ("north", "what"),
    [
        ({"answer-wait": 3}, "answer-delay or answer-wait (give Network a wait instead)"),
        ({"answer-delay": 3}, "answer-delay or answer-wait (give Network a wait instead)"),
    ],
)
def test_a_network_refuses_what_only_a_replay_supports(north: dict[str, Any], what: str) -> None:
    functions = dict.fromkeys(("a", "b", "c"), lambda x: 1)
    config = {"learner": [{**NORTH, **north}, SOUTH]}

    with pytest.raises(ConfigError) as raised:
        covey.Network(config, functions=functions, dimension=1)
    assert f"the configuration has {what}, which only a replay supports" in str(raised.value)


def test_a_network_refuses_a_history_that_only_a_replay_supports() -> None:
    config = {"policy": {"reading": {"history": "asked"}}, "learner": [NORTH, SOUTH]}

    with pytest.raises(ConfigError, match='history = "asked", which only a replay supports'):
        covey.Network(config, functions={}, dimension=1)
