"""The extensions with real functions: what a replay decides, a network in one process decides."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import covey
from covey.errors import ConfigError, DataError

SLOTS = 800
NAMES = ("phase", "arm", "function", "cost", "correct")


def site(name: str, functions: list[str], **more: Any) -> dict[str, Any]:
    return {"name": name, "functions": functions, **more}


def both_ways(
    config: dict[str, Any], *, classes: int = 2, columns: dict[str, Any] | None = None, **data: Any
) -> tuple[list[Any], list[Any]]:
    """Return the decisions of a replay and of a network that is given the same stream."""
    rng = np.random.default_rng(5)
    functions = [name for one in config["learner"] for name in one["functions"]]
    labels = rng.integers(0, classes, SLOTS)
    accuracies = rng.uniform(0.4, 1.0, (len(functions), 1))
    is_right = rng.random((len(functions), SLOTS)) < accuracies
    predictions = np.where(is_right, labels, (labels + 1) % classes)
    contexts = rng.random((SLOTS, 2))
    # Labels go with the second coordinate, so that a memory of them is worth something.
    labels = np.where(rng.random(SLOTS) < 0.8, (contexts[:, 1] * classes).astype(int), labels)
    at = [config["learner"][k]["name"] for k in rng.integers(0, 2, SLOTS)]
    trace = covey.replay(
        {"data": {"context": ["x0", "x1"]}, **config},
        predictions=predictions,
        labels=labels,
        contexts=contexts,
        at=at,
        columns=columns,
        **data,
    )
    network = covey.Network(
        {"data": {"context": ["x0", "x1"]}, **config},
        functions={
            name: lambda slot, row=row: int(row[slot])
            for name, row in zip(functions, predictions, strict=True)
        },
    )
    own = {
        one["name"]: [int(c[1]) for c in one.get("context", ["x0", "x1"])]
        for one in config["learner"]
    }
    live: list[Any] = []
    for slot in range(SLOTS):
        member = network[at[slot]]
        context = tuple(contexts[slot][own[at[slot]]])
        answer = member.predict(slot, context, slot=slot + 1)
        paid = _paid(config, columns, at[slot], answer.arm, slot)
        if member.learner.is_supervised:
            member.learn(answer.ticket, int(labels[slot]), cost=paid)
        cost = answer.price + (paid or 0.0)
        is_right_now = int(answer.label == labels[slot])
        live.append((answer.phase, answer.arm, answer.function, pytest.approx(cost), is_right_now))
    recorded = trace.columns()
    return list(zip(*(recorded[name] for name in NAMES), strict=True)), live


def _paid(config: Any, columns: Any, who: str, arm: str, slot: int) -> float | None:
    (table,) = (one for one in config["learner"] if one["name"] == who)
    column = table.get("cost-columns", {}).get(arm)
    return None if column is None else float(columns[column][slot])


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
def test_context_only_peers_are_asked_alike_in_replay_and_live(preset: str) -> None:
    phases = {"slices": 3, "split-scale": 30.0, "train": {"scale": 0.3, "power": 0.1}}
    config = {
        "policy": {"preset": preset, **(phases if preset != "auto" else {})},
        "learner": [
            site("north", ["a"], **{"peers": {"south": 0.1}, "context-peers": {"south": 0.02}}),
            site("south", ["b", "c"], peers={}),
        ],
    }

    recorded, live = both_ways(config, classes=3)

    assert recorded == live
    assert any(row[1] == "south (context)" for row in live)


@pytest.mark.parametrize("preset", ["cos", "dcza"])
def test_learners_with_own_contexts_decide_alike_in_replay_and_live(preset: str) -> None:
    config = {
        "policy": {"preset": preset, "slices": 3, "split-power": 2.0},
        "learner": [
            site("north", ["a"], context=["x1"], peers={"south": 0.05}),
            site("south", ["b", "c"], context=["x0"], peers={"north": 0.05}),
        ],
    }

    recorded, live = both_ways(config)

    assert recorded == live


def test_random_costs_are_learnt_alike_in_replay_and_live() -> None:
    rng = np.random.default_rng(3)
    columns = {"p": np.round(rng.random(SLOTS), 3), "q": np.round(rng.random(SLOTS) / 4, 3)}
    config = {
        "policy": {"slices": 2},
        "learner": [
            site("north", ["a"], **{"cost-columns": {"south": "p", "a": "q"}}),
            site("south", ["b", "c"], peers={}),
        ],
    }

    recorded, live = both_ways(config, columns=columns)

    assert recorded == live


def test_a_learner_without_labels_decides_alike_in_replay_and_live() -> None:
    config = {
        "policy": {"slices": 2},
        "learner": [
            site("north", ["a"], supervised=False, **{"context-peers": {"south": 0.01}}),
            site("south", ["b", "c"]),
        ],
    }

    recorded, live = both_ways(config)

    assert recorded == live


def test_a_learner_without_labels_refuses_them_and_counts_its_decisions_without_estimates() -> None:
    config = {
        "learner": [site("north", ["a"], supervised=False), site("south", ["b"])],
    }
    network = covey.Network(config, functions={"a": lambda x: 0, "b": lambda x: 1}, dimension=0)
    answer = network["north"].predict("x")

    with pytest.raises(DataError) as raised:
        network["north"].learn(answer.ticket, 1)

    assert "supervised = false" in str(raised.value)
    assert network["north"].learner.blind_decisions == 1


def test_numeric_labels_have_partial_rewards_in_a_network() -> None:
    config = {
        "data": {"loss": {"kind": "absolute", "bound": 10.0}},
        "policy": {"slices": 1},
        "learner": [site("north", ["near", "far"], peers={})],
    }
    network = covey.Network(
        config, functions={"near": lambda x: x + 1, "far": lambda x: x + 9}, dimension=0
    )
    member = network["north"]
    answers = []
    for x in range(200):
        answers.append(member.predict(x))
        member.learn(answers[-1].ticket, x)

    assert {answer.arm for answer in answers if answer.phase == "exploit"} == {"near"}
    with pytest.raises(DataError, match="numbers"):
        member.learn(member.predict(1).ticket, "one")


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
        "policy": {"preset": preset, "slices": 2},
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
        ({"columns": ["x"], "arms": ["sout"]}, "did you mean 'south'"),
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
    before = network["north"].learner.snapshot()

    with pytest.raises(DataError, match="size"):
        network["north"].predict({"hour": 1})

    assert [counters[1:] for _, counters in network["north"].learner.snapshot().cells] == [
        [0] * len(counters[1:]) for _, counters in network["north"].learner.snapshot().cells
    ]
    assert before.slot == network["north"].learner.snapshot().slot


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


def test_what_was_seen_survives_a_snapshot() -> None:
    config = {
        "policy": {"slices": 2},
        "learner": [
            site("north", ["a"], **{"peers": {}, "context-peers": {"south": 0.0}}),
            site("south", ["b"], peers={}),
        ],
    }
    functions = {"a": lambda x: 0, "b": lambda x: 0}
    first, second = (covey.Network(config, functions=functions, dimension=1) for _ in range(2))
    for k, label in enumerate("ccbbbac"):
        answer = first["south"].predict(k, (0.3,))
        first["south"].learn(answer.ticket, label)

    second["south"].learner.restore(first["south"].learner.snapshot())

    cell = second["south"].learner.known_cell("", 0)
    recalled = [one["south"].state.recall("north", [cell], [9]) for one in (first, second)]
    assert [request.answers for request in recalled] == [["b"], ["b"]]
