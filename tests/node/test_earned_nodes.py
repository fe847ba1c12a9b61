"""Nodes whose trust in peers is earned: they learn from labels passed on, and part liars."""

import logging
import random
from typing import Any

import pytest
from test_trust import config, instance_of, lie, world_of

from covey.node.node import Node
from covey.site.requests import AskRow
from support import virtual
from support.virtual import World


async def passed_on(node: Node, source: str, rows: int, chance: random.Random) -> None:
    """Let a peer ask rows and pass their labels on; the liar's make the bad function look best."""
    for row in range(1, rows + 1):
        instance = instance_of(chance)
        (answer,) = await node.for_peers.assist(
            [AskRow(f"{row}", "z8:128", row, instance)], source=source
        )
        label = lie(answer) if source == "liar" else instance[0]
        await node.learn(f"{row}", label, source=source)


async def arms_of_own_rows(node: Node, rows: int, *, labels: bool = True) -> list[str]:
    chance, arms = random.Random(2), []  # noqa: S311
    for _ in range(rows):
        instance = instance_of(chance)
        request = await node.answer([instance], [(0.5,)])
        arms.append(request.group(0).arm)
        if labels:
            await node.learn(request.id, instance[0])
    return arms


def settings(**site: Any) -> dict[str, Any]:
    setup = config("auto")
    setup["learner"][2] |= site
    return setup


@pytest.mark.parametrize(
    ("trust", "arms"), [("earned", ["good"] * 5), ("full", ["good"] * 5), ("isolated", ["bad"])]
)
@virtual.timed
async def test_an_asked_site_learns_from_labels_passed_on(trust: Any, arms: list[str]) -> None:
    """Row 3 of the extensions: its first own decision does not explore the bad function."""
    node = world_of(settings(), trust).nodes["site"]
    await passed_on(node, "honest", 111, random.Random(1))  # noqa: S311

    assert await arms_of_own_rows(node, len(arms)) == arms


@pytest.mark.parametrize(("trust", "arm"), [("earned", "good"), ("isolated", "bad")])
@virtual.timed
async def test_a_site_without_labels_of_its_own_learns_from_those_passed_on(
    trust: Any, arm: str
) -> None:
    node = world_of(settings(supervised=False), trust).nodes["site"]
    await passed_on(node, "honest", 60, random.Random(1))  # noqa: S311

    assert await arms_of_own_rows(node, 10, labels=False) == [arm] * 10


async def poisoned(world: World) -> Node:
    """Return a site that has met a liar, and has labels of its own."""
    chance, node = random.Random(3), world.nodes["site"]  # noqa: S311
    for _ in range(40):
        await arms_of_own_rows(node, 5)
        for k in range(5):
            instance = instance_of(chance)
            row = AskRow(f"{node.learner.slot}-{k}", "z8:128", node.learner.slot, instance)
            (answer,) = await node.for_peers.assist([row], source="liar")
            await node.learn(row.id, lie(answer), source="liar")
    return node


@virtual.timed
async def test_a_parted_peer_is_in_the_state_and_in_the_log_before_and_after_a_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of(settings(), "earned")
    with caplog.at_level(logging.WARNING, logger="covey"):
        node = await poisoned(world)
    states = [node.state().trust]
    world.crash("site")
    world.boot("site")
    states.append(world.nodes["site"].state().trust)
    assert world.stores["site"].check() == []
    before, after = states

    assert before == after
    ((name, state, since, _, why),) = [
        (one.source, one.state, one.since, one.pairs, one.why) for one in before
    ]
    assert (name, state) == ("liar", "parted")
    assert since > 0
    assert why.endswith("differ from the site's own")
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"labels of peer liar: parted since slot {since}, {why}"]


@virtual.timed
async def test_after_a_peer_is_parted_the_site_decides_as_if_it_had_never_been_there() -> None:
    found = []
    for trust in ("earned", "isolated"):
        world = world_of(settings(), "earned")
        node = await poisoned(world)
        if trust == "isolated":  # the same store, and nothing pooled
            world.trust["site"]["liar"] = "isolated"
            world.crash("site")
            world.boot("site")
            node = world.nodes["site"]
        found.append(await arms_of_own_rows(node, 30))
    earned, isolated = found

    assert earned == isolated


async def changed(trust: Any, *, is_restarted: bool) -> tuple[list[str], list[int]]:
    """Exchange the accuracies of the functions after 150 slots; return arms and alarms."""
    chance, arms = random.Random(4), []  # noqa: S311
    world = world_of(settings(), trust)
    for slot in range(1, 241):
        node = world.nodes["site"]
        for source in ("honest", "liar", None):
            truth, bad, good = instance_of(chance)
            instance = (truth, bad, good) if slot <= 150 else (truth, good, bad)
            if source is None:
                request = await node.answer([instance], [(0.5,)])
                arms.append(request.group(0).arm)
                await node.learn(request.id, truth)
            else:
                await node.for_peers.assist(
                    [AskRow(f"{slot}", "z8:128", slot, instance)], source=source
                )
                await node.learn(f"{slot}", truth, source=source)
        if is_restarted and slot % 20 == 0:
            world.crash("site")
            world.boot("site")
    assert world.stores["site"].check() == []
    return arms, world.nodes["site"].state().alarm_slots


def test_labels_passed_on_show_a_change_sooner_and_a_restart_changes_nothing() -> None:
    """All peers are honest here."""
    arms, alarms = virtual.run(changed("earned", is_restarted=False))

    assert virtual.run(changed("earned", is_restarted=True)) == (arms, alarms)
    _, alone = virtual.run(changed("isolated", is_restarted=False))
    assert 150 < alarms[0] < min([*alone, 240])
    assert set(arms[130:150]) == {"good"}
    assert set(arms[-20:]) == {"bad"}
