"""Links that change: nodes that reload them decide as a replay does."""

from typing import Any

import pytest

import covey
from covey.config import load
from covey.node.node import Question
from support import virtual
from support.flow import (
    NODE_SLOTS,
    Row,
    Stream,
    config_of,
    recorded_stream,
    replayed,
)

LINKS = [
    {"between": ["site0", "site1"], "cost": 0.05},
    {"from": "site1", "to": "site2", "cost": 0.04},
    {"from": "site0", "to": "site2", "cost": 0.3},
    {"from": "site2", "to": "site0", "cost": "gone"},
]
CHANGES = [
    {"slot": 150, "from": "site0", "to": "site2", "cost": 0.02},
    {"slot": 200, "from": "site2", "to": "site0", "cost": 0.03},
    {"slot": 300, "between": ["site0", "site1"], "cost": "gone"},
    {"slot": 400, "between": ["site0", "site1"], "cost": 0.01},
]
PRESETS = ["auto", "cos", "dcza"]


@pytest.fixture(scope="module")
def stream() -> Stream:
    return recorded_stream()


def with_links(preset: str, changes: list[dict[str, Any]]) -> dict[str, Any]:
    config = config_of(preset, "spec")
    learners = [{key: one[key] for key in one if key != "peers"} for one in config["learner"]]
    more = {"link-change": changes} if changes else {}
    return {**config, "learner": learners, "link": LINKS, **more}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("restart_every", [10, NODE_SLOTS + 1])
def test_nodes_that_reload_changed_links_decide_as_a_replay_with_changes_by_slot(
    stream: Stream, preset: str, restart_every: int
) -> None:
    """A node knows no slots of others: its file is changed, and read again, before that slot."""
    config = with_links(preset, CHANGES)

    live = virtual.run(through_reloads(stream, config, restart_every=restart_every))

    assert live == replayed(stream, config)[:NODE_SLOTS]


async def through_reloads(
    stream: Stream, config: dict[str, Any], *, restart_every: int
) -> list[Row]:
    """Return the decisions of nodes whose files are changed at the slots of the changes."""
    changes = {one["slot"]: one for one in config.get("link-change", [])}
    text = {key: config[key] for key in config if key != "link-change"}
    world = virtual.World(text, stream.functions, dimension=2, trust="full")
    live: list[Row] = []
    for slot in range(NODE_SLOTS):
        if slot + 1 in changes:
            text = changed(text, changes[slot + 1])
            world.setup = load(text)
            for name in world.names:
                world.crash(name)
                world.boot(name)
        name = stream.at[slot]
        if slot % restart_every == restart_every - 1:
            world.crash(name)
            world.boot(name)
        node, context = world.nodes[name], tuple(stream.contexts[slot].tolist())
        ticket = await node.predict(slot, context, question=Question("", str(slot)), slot=slot + 1)
        settlement = await node.learn(str(slot), int(stream.labels[slot]))
        await node.drained()
        right = settlement.is_right
        live.append((ticket.phase, ticket.arm, ticket.function, ticket.price, right))
    for node in world.nodes.values():
        node.stop()
    return live


def changed(text: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a file with one link that costs something else."""
    ends = {key: change[key] for key in ("between", "from", "to") if key in change}
    links = [
        {**one, "cost": change["cost"]} if ends.items() <= one.items() else one
        for one in text["link"]
    ]
    assert links != text["link"]
    return {**text, "link": links}


def test_prices_change_by_slot_and_by_hand_alike(stream: Stream) -> None:
    config = with_links("cos", CHANGES[:1])
    by_hand = covey.Network(with_links("cos", []), functions=stream.functions, dimension=2)
    live = []
    for slot in range(NODE_SLOTS):
        if slot + 1 == CHANGES[0]["slot"]:
            by_hand.reprice("site0", "site2", 0.02)
        site = by_hand[stream.at[slot]]
        answer = site.predict(slot, tuple(stream.contexts[slot]), slot=slot + 1)
        settled = site.learn(answer.ticket, int(stream.labels[slot]))
        live.append((answer.phase, answer.arm, answer.function, answer.price, settled.is_right))

    assert live == replayed(stream, config)[:NODE_SLOTS]
