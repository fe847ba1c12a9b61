"""Late answers of a busy peer join their requests: a node decides as a replay does.

In a replay a slot has no length. Here it takes a second: an answer that is k slots late comes
within second k, after the decision of that slot.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import covey
from covey.node.node import Question
from covey.node.peers import PeerTimeouts
from covey.site.requests import AskRow, Assistance
from support import virtual

SLOTS, BUSY_SLOTS, LATE = 120, 60, 3
PATIENT = PeerTimeouts(timeout_s=0.3, late_s=20.0, failures=10**6)
CONFIG: dict[str, Any] = {
    "policy": {
        "preset": "cos",
        "slices": 1,
        "explore": {"scale": 0.5, "power": 0.0},
        "train": {"scale": 0.5, "power": 0.0},
        "explore-peers": {"scale": 0.5, "power": 0.0},
    },
    "learner": [
        {"name": "north", "functions": ["poor", "fair"], "peers": {"south": 0.05}},
        {"name": "south", "functions": ["good"], "peers": {}},
    ],
}


class BusyLink(virtual.Link):
    """A link to a site that answers at once in its counters, and late to the asker."""

    busy_s = 0.0

    async def ask(self, rows: Sequence[AskRow]) -> list[Assistance]:
        late_s = self.busy_s
        answers = await super().ask(rows)
        await asyncio.sleep(late_s)
        return answers


@pytest.fixture
def log() -> dict[str, Any]:
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 2, SLOTS)
    right = rng.random((3, SLOTS)) < [[0.5], [0.6], [0.95]]
    return {
        "predictions": np.where(right, labels, 1 - labels),
        "labels": labels,
        "contexts": np.zeros((SLOTS, 0)),
        "at": ["north"] * SLOTS,
    }


def replayed(log: dict[str, Any]) -> list[Any]:
    learners = [
        {**CONFIG["learner"][0], "answer-wait": 0},
        {**CONFIG["learner"][1], "answer-delay": "busy"},
    ]
    busy = np.where(np.arange(SLOTS) < BUSY_SLOTS, LATE, 0)
    trace = covey.replay({**CONFIG, "learner": learners}, **log, columns={"busy": busy}).columns()
    names = ("phase", "arm", "function", "cost")
    return list(zip(*(trace[name] for name in names), strict=True))


def world_of(log: dict[str, Any], timeouts: PeerTimeouts) -> virtual.World:
    names = enumerate(["poor", "fair", "good"])
    functions = {name: lambda slot, k=k: int(log["predictions"][k][slot]) for k, name in names}
    BusyLink.busy_s = 0.0
    return virtual.World(
        CONFIG, functions, dimension=0, trust="full", timeouts=timeouts, link=BusyLink
    )


async def lived(
    log: dict[str, Any], timeouts: PeerTimeouts, *, restart_every: int = 0
) -> tuple[list[Any], virtual.World]:
    world, live, labels = world_of(log, timeouts), [], []
    for slot in range(SLOTS):
        BusyLink.busy_s = LATE + 0.7 if slot < BUSY_SLOTS else 0.0
        if restart_every and slot > BUSY_SLOTS + LATE and slot % restart_every == 0:
            world.crash("north")
            world.boot("north")
        node = world.nodes["north"]
        asked = Question("", str(slot))
        answer = await node.predict(slot, question=asked, slot=slot + 1)
        live.append((answer.phase, answer.arm, answer.function, answer.price))
        # The label of a row whose answer is late is settled when that comes.
        labels.append(asyncio.create_task(node.learn(str(slot), int(log["labels"][slot]))))
        await asyncio.sleep(slot + 1 - asyncio.get_running_loop().time())
    await asyncio.gather(*labels)
    return live, world


def stopped(pair: tuple[list[Any], virtual.World]) -> list[Any]:
    for node in pair[1].nodes.values():
        node.stop()
    return pair[0]


@pytest.mark.parametrize("restart_every", [0, 7])
def test_a_node_decides_as_a_replay_while_a_peer_is_busy(
    log: dict[str, Any], restart_every: int
) -> None:
    async def main() -> list[Any]:
        return stopped(await lived(log, PATIENT, restart_every=restart_every))

    live = virtual.run(main())

    assert live == replayed(log)
    late = [row for row in live[:BUSY_SLOTS] if row[1] == "south"]
    assert late
    assert all(row[2] in ("poor", "fair") for row in late)  # own functions answer
    assert live[-1][1:3] == ("south", "good")


def test_without_patience_nothing_is_learnt_of_a_busy_peer(log: dict[str, Any]) -> None:
    hasty = PeerTimeouts(timeout_s=0.3, failures=10**6)

    async def main() -> list[Any]:
        return stopped(await lived(log, hasty))

    assert not any(row[1] == "south" for row in virtual.run(main())[:BUSY_SLOTS])


async def asked_south(world: virtual.World) -> int:
    """Let north predict until it asks south; return the slot."""
    for slot in range(SLOTS):
        answer = await world.nodes["north"].predict(
            slot, question=Question("", str(slot)), slot=slot + 1
        )
        if answer.arm == "south" and answer.phase == "explore":
            return slot
        await world.nodes["north"].learn(str(slot), 1)
    raise AssertionError("south was never asked")


def known_of_south(world: virtual.World) -> tuple[int, int]:
    return world.nodes["north"].learner.table.record(0, 2)


@virtual.timed
async def test_an_answer_that_came_before_a_restart_counts_with_its_label(
    log: dict[str, Any],
) -> None:
    world = world_of(log, PATIENT)
    BusyLink.busy_s = 2.0
    slot = await asked_south(world)
    await asyncio.sleep(5.0)  # the answer has come
    await world.nodes["north"].for_peers.report("g1", 1, source="south")  # and a commit follows
    await world.nodes["north"].pause()
    world.crash("north")
    world.boot("north")
    truth = int(log["predictions"][2][slot])
    settled = await world.nodes["north"].learn(str(slot), truth)
    assert settled.is_right
    known = known_of_south(world)
    stopped(([], world))

    assert known == (1, 1)


def test_an_answer_that_is_lost_with_a_stop_changes_no_counter(
    log: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> tuple[int, int]:
        world = world_of(log, PATIENT)
        BusyLink.busy_s = 10.0
        slot = await asked_south(world)
        world.crash("north")
        world.boot("north")
        settled = await world.nodes["north"].learn(str(slot), 1)
        assert settled.is_new
        known = known_of_south(world)
        stopped(([], world))
        return known

    with caplog.at_level(logging.WARNING):
        assert virtual.run(main()) == (0, 0)
    assert "1 late answers of peers were lost with the last stop" in caplog.text


@virtual.timed
async def test_an_answer_that_never_comes_changes_no_counter(log: dict[str, Any]) -> None:
    world = world_of(log, PATIENT)
    BusyLink.busy_s = 1e6
    slot = await asked_south(world)
    begun_s = asyncio.get_running_loop().time()
    await world.nodes["north"].learn(str(slot), 1)
    assert asyncio.get_running_loop().time() - begun_s < PATIENT.late_s + 1
    known = known_of_south(world)
    stopped(([], world))

    assert known == (0, 0)


@pytest.mark.parametrize("late_s", [0.0, 5.0])
@virtual.timed
async def test_labels_of_rows_of_a_dead_peer_count_for_own_functions_unless_its_answer_is_awaited(
    log: dict[str, Any], late_s: float
) -> None:
    """The reason why late-answer-s is off by default."""
    timeouts = PeerTimeouts(timeout_s=0.3, failures=10**6, late_s=late_s)

    world = world_of(log, timeouts)
    node, asked = world.nodes["north"], 0
    for slot in range(20):
        BusyLink.busy_s = 1e6
        answer = await node.predict(slot, question=Question("", str(slot)), slot=slot + 1)
        asked += answer.arm == "south"
        await node.learn(str(slot), int(log["labels"][slot]))
    counted = sum(arm.labels for arm in node.state().arms if arm.kind == "own")
    for one in world.nodes.values():
        one.stop()

    assert counted == 20 - asked
    assert (asked > 0) == (late_s > 0)
