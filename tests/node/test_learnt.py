"""What a network knows: `peek`, `observe`, tables of cells, and functions without an answer yet.

That `peek` says what is decided, with every policy and extension, is shown in `golden`.
"""

import asyncio
import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.errors import FunctionError
from support.flow import config_of, recorded_stream

SITE: dict[str, Any] = {
    "data": {"context": [{"column": "x", "scale": "linear", "low": 0, "high": 10}]},
    "policy": {"preset": "cos", "slices": 2, "explore": {"scale": 1, "power": 0}},
    "learner": [{"name": "north", "functions": ["low", "sign"]}],
}


def north() -> Any:
    functions = {"low": lambda r: 0, "sign": lambda r: int(r["x"] > 5)}
    return covey.Network(SITE, functions=functions)["north"]


def test_peek_has_the_estimates_of_all_arms() -> None:
    site = north()
    for x in (6, 7, 8, 9):
        site.observe({"x": x}, 1)

    found = site.peek({"x": 6.5})

    assert (found.arm, found.label, found.phase) == ("sign", 1, "exploit")
    assert {name: (one.labels, one.accuracy) for name, one in found.estimates.items()} == {
        "low": (2, 0.0),
        "sign": (2, 1.0),
    }
    assert site.peek({"x": 1}).estimates["low"].accuracy is None


def test_observe_is_predict_and_learn() -> None:
    one, other = north(), north()
    for x in range(10):
        observed = one.observe({"x": x}, int(x > 5))
        answer = other.predict({"x": x})
        other.learn(answer.ticket, int(x > 5))
        assert observed == answer

    assert one.learnt().columns() == other.learnt().columns()


def test_peek_does_not_take_a_coroutine_for_a_label() -> None:
    async def slow(x: float) -> int:
        await asyncio.sleep(0)
        return 1

    config = {"learner": [{"name": "north", "functions": ["slow"]}]}
    site = covey.Network(config, functions={"slow": slow}, dimension=0)["north"]

    with pytest.raises(FunctionError, match="which must be awaited"):
        site.peek(0.5)


# -- tables ---------------------------------------------------------------------------------------


def test_what_was_learnt_is_a_table_of_cells_and_arms() -> None:
    site = north()
    for x in (6, 7, 1):
        site.observe({"x": x}, 1)

    columns = site.learnt().columns()

    assert list(columns) == ["site", "cell", "arrivals", "arm", "labels", "right", "estimate"]
    lines = list(zip(*columns.values(), strict=True))
    assert lines == [
        ("north", columns["cell"][0], 2, "low", 1, 0.0, 0.0),
        ("north", columns["cell"][0], 2, "sign", 1, 1.0, 1.0),
        ("north", columns["cell"][2], 1, "low", 1, 0.0, 0.0),
        ("north", columns["cell"][2], 1, "sign", 0, 0.0, None),
    ]


def test_a_network_has_the_table_of_all_sites(tmp_path: Path) -> None:
    stream = recorded_stream()
    network = covey.Network(config_of("auto"), functions=stream.functions, dimension=2)
    for slot in range(50):
        name, context = stream.at[slot], tuple(stream.contexts[slot].tolist())
        network[name].observe(slot, int(stream.labels[slot]), context)

    columns = network.learnt().columns()

    assert set(columns["site"]) == {"site0", "site1", "site2"}
    assert set(columns["arm"]) == {"f0", "f1", "f2", "f3", "f4", "f5", "site0", "site1", "site2"}


# -- no answer yet --------------------------------------------------------------------------------


class Echo:
    """Answers the latest label, and None before the first."""

    def __init__(self) -> None:
        self.latest: Any = None

    def predict(self, x: Any) -> Any:
        return self.latest

    def learn(self, x: Any, label: Any) -> None:
        self.latest = label


def test_a_function_without_an_answer_is_never_right_and_another_answers() -> None:
    config = {"learner": [{"name": "north", "functions": ["learns", "ham"]}]}
    functions = {"learns": Echo(), "ham": lambda x: "ham"}
    site = covey.Network(config, functions=functions, dimension=0)["north"]

    answer = site.predict("mail")
    settled = site.learn(answer.ticket, "ham")

    assert (answer.arm, answer.function, answer.label) == ("learns", "ham", "ham")
    assert (settled.is_new, settled.is_right) == (True, False)
    assert functions["learns"].latest == "ham"  # type: ignore[attr-defined]


def test_the_label_is_none_while_no_function_has_an_answer() -> None:
    config = {"learner": [{"name": "north", "functions": ["learns"]}]}
    site = covey.Network(config, functions={"learns": Echo()}, dimension=0)["north"]

    assert site.peek("mail").label is None
    answer = site.predict("mail")
    assert answer.label is None
    site.learn(answer.ticket, "spam")
    assert site.predict("mail").label == site.peek("mail").label == "spam"


def test_batches_without_answers_train_the_function() -> None:
    config = {"learner": [{"name": "north", "functions": ["learns"]}]}
    site = covey.Network(config, functions={"learns": Echo()}, dimension=0)["north"]

    answers = site.predict_batch(["a", "b", "c"])
    assert [answer.label for answer in answers] == [None, None, None]
    site.learn_batch([answer.ticket for answer in answers], ["x", "y", "z"])
    assert site.predict("d").label == "z"


def test_a_peer_without_an_answer_is_replaced_by_an_own_function_and_learns() -> None:
    config = {
        "policy": {"preset": "cos", "slices": 1, "explore": {"scale": 0, "power": 0}},
        "learner": [
            {"name": "north", "functions": ["ham"], "peers": {"south": 0.0}},
            {"name": "south", "functions": ["learns"]},
        ],
    }
    functions = {"learns": Echo(), "ham": lambda x: "ham"}
    network = covey.Network(config, functions=functions, dimension=1)
    site = network["north"]
    while (answer := site.predict("mail", (0.3,))).arm != "south":
        site.learn(answer.ticket, "spam")

    assert (answer.label, answer.function) == ("ham", "ham")
    assert not site.learn(answer.ticket, "spam").is_right
    assert functions["learns"].latest == "spam"  # type: ignore[attr-defined]
    while (answer := site.predict("mail", (0.3,))).arm != "south":
        site.learn(answer.ticket, "spam")
    assert answer.label == "spam"


def test_a_function_that_cannot_learn_needs_an_answer() -> None:
    config = {"learner": [{"name": "north", "functions": ["none"]}]}
    site = covey.Network(config, functions={"none": lambda x: None}, dimension=0)["north"]

    with pytest.raises(FunctionError, match="answered None, which is not a label"):
        site.predict("mail")


# -- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 2, 8])
def test_the_context_that_tells_functions_apart_has_the_largest_effect(dimension: int) -> None:
    rng = np.random.default_rng(5)
    functions = {"a": lambda row: row[0], "b": lambda row: row[1]}
    config = {"learner": [{"name": "north", "functions": ["a", "b"]}]}
    site = covey.Network(config, functions=functions, dimension=dimension)["north"]
    before = copy.deepcopy(site.learnt().columns())
    assert site.effects() == []
    assert site.learnt().columns() == before
    for _ in range(600):
        point, label = rng.random(dimension), int(rng.integers(2))
        chances = (0.95, 0.5) if point[-1] < 0.5 else (0.5, 0.95)
        row = [label if rng.random() < chance else 1 - label for chance in chances]
        site.observe(row, label, tuple(point))

    after = site.learnt().columns()
    effects = site.effects()
    assert effects[0].context == f"context {dimension}"
    last = [effect for effect in effects if effect.context == effects[0].context]
    falling, rising = sorted(last, key=lambda effect: effect.function)
    assert falling.low > falling.high + 0.05
    assert rising.low < rising.high - 0.05
    assert site.learnt().columns() == after
