"""A batch as one slot (`batch = "slot"`): slots, labels, times and failures."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.errors import FunctionError, LateLabel
from covey.node.functions import Limits
from covey.node.node import Question
from covey.site.requests import AskRow
from support import virtual
from support.snapshots import snapshot_of


def test_a_batch_in_one_slot_may_be_longer_than_label_wait() -> None:
    table = small_config()
    table["policy"]["label-wait"] = 2
    site = covey.Network(table, functions=dict.fromkeys("abc", lambda x: 0), dimension=1)["north"]

    answers = site.predict_batch(list(range(50)), np.full((50, 1), 0.5))
    settled = site.learn_batch([answer.ticket for answer in answers], [0] * 50)

    assert all(one.is_new for one in settled)


def test_a_batch_in_one_slot_that_fails_changes_no_counter() -> None:
    def fails_at_7(x: int) -> int:
        if x == 7:
            raise ValueError(x)
        return 0

    network = small_network(fails_at_7)
    site = network["north"]
    for k in range(5):
        site.learn(site.predict(k, (0.1 * k,)).ticket, 0)
    before = snapshot_of(site.learner), snapshot_of(network["south"].learner)

    with pytest.raises(FunctionError, match="7"):
        site.predict_batch([5, 6, 7, 8], [(0.1,), (0.3,), (0.7,), (0.9,)])

    assert (snapshot_of(site.learner), snapshot_of(network["south"].learner)) == before
    assert site.predict(9, (0.1,)).ticket == 6


def small_config() -> dict[str, Any]:
    return {
        "policy": {"preset": "cos", "slices": 1, "batch": "slot"},
        "learner": [
            {"name": "north", "functions": ["a", "b"], "peers": {"south": 0.1}},
            {"name": "south", "functions": ["c"]},
        ],
    }


def small_network(function: Any) -> covey.Network:
    return covey.Network(small_config(), functions=dict.fromkeys("abc", function), dimension=1)


@pytest.mark.parametrize("source", ["own clients", "a peer"])
@virtual.timed
async def test_a_node_whose_tickets_share_slots_makes_room_for_new_ones(source: str) -> None:
    """Only new tickets let slots pass: by its limit it would refuse for good."""
    table = small_config()
    world = virtual.World(table, dict.fromkeys("abc", lambda x: 0), dimension=1, trust="full")
    world.limits, world.peer_tickets = Limits(tickets=20), 20
    for name in ("north", "south"):
        world.crash(name)
        world.boot(name)
    node = world.nodes["north"]
    held = []
    for number in range(1, 12):
        rows, ids = [0, 1, 2, 3, 4], [f"{number}:{row}" for row in range(5)]
        if source == "own clients":
            asked = Question("", str(number))
            await node.answer(rows, np.full((5, 1), 0.5), question=asked, slot=number)
        else:
            asked_rows = [AskRow(one, "g1:0", number, 0) for one in ids]
            await node.for_peers.assist(asked_rows, source="south")
        held.append(node.state().open_tickets + node.state().for_peers.open_tickets)
    outcomes = []
    for number in (1, 11):
        try:
            if source == "own clients":
                await node.learn_rows(str(number), [0], [0])
                outcomes.append("taken")
            else:
                outcomes += await node.for_peers.take_labels([(f"{number}:0", 0)], source="south")
        except LateLabel:
            outcomes.append("late")

    assert held == [5, 10, 15] + [20] * 8
    assert outcomes == ["late", "taken"]
