"""Extensions with real functions in a network: costs, losses, views, peers that see cells only."""

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import covey
from covey.errors import ConfigError, DataError
from support.presets import fitting
from support.snapshots import snapshot_of


def site(name: str, functions: list[str], **more: Any) -> dict[str, Any]:
    return {"name": name, "functions": functions, **more}


def test_a_learner_without_labels_refuses_them_and_counts_its_decisions_without_estimates() -> None:
    config = {"learner": [site("north", ["a"], supervised=False), site("south", ["b"])]}
    network = covey.Network(config, functions={"a": lambda x: 0, "b": lambda x: 1}, dimension=0)
    answer = network["north"].predict("x")

    with pytest.raises(DataError) as raised:
        network["north"].learn(answer.ticket, 1)

    assert "supervised = false" in str(raised.value)
    assert network["north"].learner.table.blind_decisions == 1


class Instance:
    """Features that are not to leave their learner."""


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2), st.booleans()), max_size=60),
    st.sampled_from(["cos", "dcza"]),
    st.booleans(),
)
def test_no_feature_leaves_a_learner_whose_peers_see_the_context_only(
    stream: list[tuple[float, int, bool]], preset: str, in_a_batch: bool
) -> None:
    seen: list[Any] = []
    config = {
        "policy": fitting({"preset": preset, "slices": 2}),
        "learner": [
            site("north", ["own"], **{"peers": {}, "context-peers": {"south": 0.0, "west": 0.1}}),
            site("south", ["theirs"], peers={}),
            site("west", ["others"], peers={}),
        ],
    }
    remember = lambda instance: seen.append(instance) or 0  # noqa: E731
    network = covey.Network(
        config,
        functions={"own": lambda instance: 1, "theirs": remember, "others": remember},
        dimension=1,
    )
    kept: list[weakref.ref[Instance]] = []
    for context, label, is_labelled in stream:
        instance = Instance()
        kept.append(weakref.ref(instance))
        if in_a_batch:
            (answer,) = network["north"].predict_batch([instance], [(context,)])
        else:
            answer = network["north"].predict(instance, (context,))
        if is_labelled:
            network["north"].learn(answer.ticket, label)
    instance = None  # type: ignore[assignment]
    gc.collect()

    assert seen == []
    assert all(ref() is None for ref in kept)


def test_the_context_decides_which_columns_a_function_gets_to_see() -> None:
    config = {
        "data": {"context": ["night"]},
        "policy": {"preset": "cos"},
        "learner": [
            site(
                "north",
                ["a"],
                peers={"south": 0.0},
                view=[
                    {"columns": ["size"], "where": {"night": [0.5, 1.0]}},
                    {"columns": ["size", "hour"], "arms": ["south"]},
                ],
            ),
            site("south", ["b"], peers={}),
        ],
    }
    seen: dict[str, set[tuple[str, ...]]] = {"a": set(), "b": set()}

    def function(name: str) -> Any:
        return lambda instance: seen[name].add(tuple(instance)) or 0

    network = covey.Network(config, functions={"a": function("a"), "b": function("b")})
    row = {"size": 1, "hour": 2, "who": "secret"}
    for k in range(400):
        answer = network["north"].predict(row, (float(k % 2),))
        network["north"].learn(answer.ticket, 0)
    batch = network["north"].predict_batch([row] * 40, [(float(k % 2),) for k in range(40)])

    assert seen["a"] == {("size",), ("size", "hour", "who")}
    assert seen["b"] == {("size",), ("size", "hour")}
    assert len(batch) == 40


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        ({"columns": []}, "has no columns"),
        ({"columns": ["x"], "arms": ["sout"]}, "unknown arm 'sout'"),
        ({"columns": ["x"], "where": {"nigh": [0, 1]}}, "did you mean 'night'"),
        ({"columns": ["x"], "where": {"night": [0.7, 0.2]}}, "must be an interval in [0, 1]"),
    ],
)
def test_a_view_that_cannot_be_is_refused_with_a_sentence(
    view: dict[str, Any], sentence: str
) -> None:
    config = {
        "data": {"context": ["night"]},
        "learner": [site("north", ["a"], view=[view]), site("south", ["b"])],
    }

    with pytest.raises(ConfigError) as raised:
        covey.Network(config, functions={"a": lambda x: 0, "b": lambda x: 0})

    assert sentence in str(raised.value)


def test_a_view_of_columns_that_an_instance_lacks_names_them_and_counts_nothing() -> None:
    config = {"learner": [site("north", ["a"], peers={}, view=[{"columns": ["size"]}])]}
    network = covey.Network(config, functions={"a": lambda x: 0}, dimension=0)
    before = snapshot_of(network["north"].learner)

    with pytest.raises(DataError, match="size"):
        network["north"].predict({"hour": 1})

    assert [counters[1:] for _, counters in snapshot_of(network["north"].learner).cells] == [
        [0] * len(counters[1:]) for _, counters in snapshot_of(network["north"].learner).cells
    ]
    assert before.slot == snapshot_of(network["north"].learner).slot


def test_a_cost_outside_its_range_is_refused_and_the_label_can_be_sent_again() -> None:
    network = covey.Network(
        {"learner": [site("north", ["a"], peers={}, **{"cost-columns": {"a": "fee"}})]},
        functions={"a": lambda x: 0},
        dimension=0,
    )
    answer = network["north"].predict(1)

    with pytest.raises(DataError, match=r"\[0, 1\]"):
        network["north"].learn(answer.ticket, 0, cost=1.5)

    assert network["north"].learn(answer.ticket, 0, cost=0.5).is_new


def test_a_cost_that_nothing_learns_is_refused() -> None:
    network = covey.Network(
        {"learner": [site("north", ["a"], peers={})]}, functions={"a": lambda x: 0}, dimension=0
    )
    answer = network["north"].predict(1)

    with pytest.raises(DataError, match="'north' has no cost-columns, and learns no costs"):
        network["north"].learn(answer.ticket, 0, cost=0.5)
