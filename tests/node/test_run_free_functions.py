"""Free functions where they really run: in the call of a network, in the threads of a node."""

import sys
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from test_overlay import Cell, SourceStatistics, make, request

import covey
from covey.bandit.learner import UNKNOWN
from covey.site.requests import Request, RowGroup
from covey.store.tables import REQUESTS, line_of, request_of
from support import virtual
from support.lives import FUNCTIONS
from support.snapshots import snapshot_of

ALWAYS = {"zero": lambda _: 0, "one": lambda _: 1}
BOTH = {"name": "north", "functions": ["zero", "one"], "peers": {}, "free": True}
PLAIN = {"preset": "share-ucb", "slices": 1}


def records(learner: Any) -> list[tuple[int, int]]:
    """Return the labels of each arm in the first cell, and the right ones."""
    return [learner.table.record(0, arm) for arm in range(len(learner.arms))]


# -- in one process --------------------------------------------------------------------------------


def test_a_label_counts_once_for_each_free_function_of_the_site() -> None:
    network = covey.Network({"policy": PLAIN, "learner": [BOTH]}, functions=ALWAYS, dimension=1)
    for _ in range(5):
        north = network["north"]
        north.learn(north.predict("x", (0.5,)).ticket, 1)

    assert records(network["north"].learner) == [(5, 0), (5, 5)]


@pytest.mark.parametrize("policy", [PLAIN, {"preset": "cos", "forget": {"window": 4}}])
def test_labels_of_a_batch_count_as_one_by_one(policy: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    rows, points = rng.integers(0, 10**6, 40).tolist(), rng.random((40, 1))
    learners = [
        {"name": "north", "functions": ["a", "b"], "peers": {"south": 0.0}, "free": True},
        {"name": "south", "functions": ["c", "d"], "peers": {}, "free": ["d"]},
    ]

    def learnt(*, at_once: bool) -> list[Any]:
        network = covey.Network(
            {"policy": policy, "learner": learners},
            functions={name: FUNCTIONS[name] for name in "abcd"},
            dimension=1,
        )
        north = network["north"]
        answers = north.predict_batch(rows, points)
        tickets, labels = [answer.ticket for answer in answers], [row % 2 for row in rows]
        if at_once:
            north.learn_batch(tickets, labels)
        else:
            for ticket, label in zip(tickets, labels, strict=True):
                north.learn(ticket, label)
        return [snapshot_of(one.learner) for one in network.values()]

    assert learnt(at_once=True) == learnt(at_once=False)


def broken(_: Any) -> int:
    raise ValueError("nothing")


def greedy(_: Any) -> int:
    raise MemoryError


@pytest.mark.parametrize("other", [broken, sys.exit, greedy, lambda _: Future()])
def test_a_free_function_without_an_answer_is_not_scored(other: Any) -> None:
    learner = {**BOTH, "functions": ["one", "zero"]}  # the first one is tried first
    network = covey.Network(
        {"policy": PLAIN, "learner": [learner]},
        functions={"one": ALWAYS["one"], "zero": other},
        dimension=1,
    )
    north = network["north"]

    answer = north.predict("x", (0.5,))
    north.learn(answer.ticket, 1)

    assert (answer.function, answer.label) == ("one", 1)
    assert records(network["north"].learner) == [(1, 1), (0, 0)]


# -- with a store ----------------------------------------------------------------------------------


def test_what_free_functions_answered_is_stored_with_the_request() -> None:
    one = Request(
        number=3,
        source="",
        id="x",
        slot=7,
        groups=[RowGroup("g1:0", "exploit", "a", 0.0)],
        group_of=(0, 0),
        contexts=[(0.5,), (0.25,)],
        predictions=["yes", 2],
        answers=["no", 2],
        truths=[UNKNOWN, UNKNOWN],
        scored={1: {"b": True, "c#2": "yes"}},
    )

    again = request_of(REQUESTS.record_of(REQUESTS.row(line_of(one))))

    assert again.scored == {1: {"b": True, "c#2": "yes"}}
    assert (list(again.predictions), list(again.answers)) == (["yes", 2], ["no", 2])


def test_labels_of_an_isolated_peer_score_free_functions_for_that_peer_only() -> None:
    learner = make(PLAIN, free=(0, 1))
    statistics = SourceStatistics(learner, {})
    code = statistics.serve("south", Cell(0, (0,)), 1)
    asked = request(statistics, "south", [code], [1])
    asked.scored = {0: {"a": 1, "b": 0}}

    statistics.settle(asked, [0], [1])

    table = statistics._overlays["south"].tables[""]
    assert [table.record(0, arm) for arm in range(3)] == [(1, 1), (1, 0), (0, 0)]
    assert records(learner) == [(0, 0)] * 4


@virtual.timed
async def test_a_free_function_that_fails_at_a_node_is_not_scored_and_fails_no_request() -> None:
    learner = {"name": "north", "functions": ["a", "b"], "peers": {}, "free": ["b"]}
    functions = {"a": FUNCTIONS["a"], "b": sys.exit}
    world = virtual.World({"policy": PLAIN, "learner": [learner]}, functions, dimension=1)
    node = world.nodes["north"]
    for k in range(6):
        await world.predict("north", str(k), k, (0.5,))
        await world.learn("north", str(k), 1)
    chosen = sum(arm.decisions for arm in node.state().arms if arm.name == "b")

    assert chosen < 6
    assert records(node.learner)[1][0] == chosen
