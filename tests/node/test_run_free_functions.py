"""Free functions where they really run: in the call of a network, in the threads of a node."""

import sys
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from test_overlay import Cell, SourceStatistics, make, request

import covey
from covey.bandit.learner import UNKNOWN
from covey.node.requests import Request, RowGroup
from covey.node.tables import request_columns, request_of
from support import virtual
from support.changes import ChangingWorld, known_of, live, recorded, site
from support.lives import FUNCTIONS, GRID, POLICIES

ALWAYS = {"zero": lambda _: 0, "one": lambda _: 1}
BOTH = {"name": "north", "functions": ["zero", "one"], "peers": {}, "free": True}
PLAIN = {"preset": "share-ucb", "slices": 1}


def labels_of(node: Any) -> dict[str, int]:
    """Return the labels of each arm in all cells of a site's own table."""
    sums: dict[str, int] = {}
    for (_, arm), counters in known_of(node).items():
        sums[arm] = sums.get(arm, 0) + counters[0]
    return sums


def records(network: covey.Network, name: str) -> list[tuple[int, int]]:
    return network[name].learner.records(0)


# -- in one process --------------------------------------------------------------------------------


def test_a_label_counts_once_for_each_free_function_of_the_site() -> None:
    network = covey.Network({"policy": PLAIN, "learner": [BOTH]}, functions=ALWAYS, dimension=1)
    for _ in range(5):
        north = network["north"]
        north.learn(north.predict("x", (0.5,)).ticket, 1)

    assert records(network, "north") == [(5, 0), (5, 5)]


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
        tickets, labels = [one.ticket for one in answers], [row % 2 for row in rows]
        if at_once:
            north.learn_batch(tickets, labels)
        else:
            for ticket, label in zip(tickets, labels, strict=True):
                north.learn(ticket, label)
        return [one.learner.snapshot() for one in network.values()]

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
    assert records(network, "north") == [(1, 1), (0, 0)]


# -- with a store ----------------------------------------------------------------------------------


def test_what_free_functions_answered_is_stored_with_the_request() -> None:
    one = Request(
        number=3,
        source="",
        id="x",
        slot=7,
        groups=[RowGroup(5, "g1:0", "exploit", "a", 0.0)],
        group_of=(0, 0),
        contexts=[(0.5,), (0.25,)],
        predictions=["yes", 2],
        answers=["no", 2],
        truths=[UNKNOWN, UNKNOWN],
        scored={1: {"b": True, "c#2": "yes"}},
    )

    again = request_of(request_columns(one))

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
    assert learner.records(0) == [(0, 0)] * 4


@pytest.mark.parametrize("name", ["grid", "zooming", "window", "auto", "shared"])
@pytest.mark.parametrize("trust", ["full", "isolated"])
def test_a_restarted_node_has_what_free_functions_were_scored(name: str, trust: str) -> None:
    async def main() -> None:
        world = ChangingWorld(site(POLICIES[name], free=True), {}, dimension=1, trust=trust)
        node = world.nodes["north"]
        waiting = await live(node, 80, seed=5)
        await node.drained()
        before = known_of(node)
        labels = labels_of(node)
        assert labels["a"] == labels["b"] >= 80 - len(waiting)  # of several levels if there are
        # Labels that are reported are those of answers only.
        assert sum(labels for labels, _ in recorded(world.stores["north"]).values()) <= 80
        world.crash("north")
        world.boot("north")
        node = world.nodes["north"]

        assert known_of(node) == before
        for id_ in waiting:
            await node.learn(id_, 1)
        assert labels_of(node)["a"] == labels_of(node)["b"] >= labels["a"] + len(waiting)
        assert world.stores["north"].check() == []

    virtual.run(main())


@pytest.mark.parametrize("is_restarted", [True, False], ids=["restarted", "running"])
def test_answers_of_an_earlier_version_do_not_score_the_new_one(is_restarted: bool) -> None:
    async def main() -> None:
        world = ChangingWorld(site(GRID, free=True), {}, dimension=1)
        waiting = await live(world.nodes["north"], 40, seed=5, unlabelled=1.0)
        changed = site(GRID, free=True, functions=["b", "a"])  # in another order
        node = await world.become(changed, is_restarted=is_restarted, b=("2", 0.0))
        for id_ in waiting:
            await node.learn(id_, 1)
        labels = labels_of(node)
        of_b = next(arm.id for arm in node.arms if arm.name == "b" and arm.place >= 0)

        # Rows for which the old version of b was chosen teach nothing any more.
        assert labels[of_b] == 0
        assert 0 < labels["a"] <= 40
        assert world.stores["north"].check() == []

    virtual.run(main())


def test_labels_counted_again_in_other_cells_score_free_functions_as_well() -> None:
    async def main() -> None:
        world = ChangingWorld(site(GRID, free=True), {}, dimension=1)
        waiting = await live(world.nodes["north"], 60, seed=5)
        await world.nodes["north"].drained()
        before = labels_of(world.nodes["north"])
        node = await world.become(site({**GRID, "slices": 4}, free=True), is_restarted=True)

        assert labels_of(node) == before
        assert before["a"] == 60 - len(waiting)

    virtual.run(main())


def test_a_free_function_that_fails_at_a_node_is_not_scored_and_fails_no_request() -> None:
    async def main() -> None:
        learner = {"name": "north", "functions": ["a", "b"], "peers": {}, "free": ["b"]}
        functions = {"a": FUNCTIONS["a"], "b": sys.exit}
        world = virtual.World({"policy": PLAIN, "learner": [learner]}, functions, dimension=1)
        node = world.nodes["north"]
        for k in range(6):
            await world.predict("north", str(k), k, (0.5,))
            await world.learn("north", str(k), 1)
        chosen = sum(arm.decisions for arm in node.state().arms if arm.name == "b")

        assert chosen < 6
        assert node.learner.records(0)[1][0] == chosen

    virtual.run(main())
