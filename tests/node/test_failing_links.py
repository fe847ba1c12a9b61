"""Nodes among failing links and restarts: no label is lost and none counts twice."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from test_node import config, truth, world_of

from covey.errors import (
    StoreError,
)
from covey.node.trust import Trust
from support import virtual
from support.virtual import Crashed, Weather, World

pytestmark = pytest.mark.beside_the_kernel

# -- storms -----------------------------------------------------------------------------------


class Oracle:
    """The labels that were acknowledged to clients."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.answered = 0


async def client(world: World, oracle: Oracle, name: str, number: int, rounds: int) -> None:
    chance = world.chance
    for k in range(rounds):
        id_, label, context = f"{number}-{k}", chance.randrange(2), (chance.random(),)
        await asyncio.sleep(chance.expovariate(1.0))
        await persistently(partial(world.predict, name, id_, label, context))
        oracle.answered += 1
        if chance.random() < 0.2:
            continue  # its label never comes
        await asyncio.sleep(chance.expovariate(0.2))
        for _ in range(1 + (chance.random() < 0.2)):
            await persistently(partial(world.learn, name, id_, label))
            oracle.acknowledged[name, id_] = label


async def persistently(call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Try until there is an answer; a node that is down or about to be comes back."""
    while True:
        try:
            await call()
        except (Crashed, StoreError):
            await asyncio.sleep(1.0)
        else:
            return


async def keeper(world: World) -> None:
    """Start nodes that are down."""
    while True:
        await asyncio.sleep(world.chance.expovariate(0.5))
        for name in world.stores:
            if name not in world.nodes:
                world.boot(name)


async def storm(seed: int) -> tuple[World, Oracle]:
    trust: Trust = ("full", "isolated", "robust")[seed % 3]
    setup = config(3, **{"label-wait": 100_000})
    world, oracle = world_of(setup, seed=seed, trust=trust), Oracle()
    world.weather = Weather(delay_s=0.05, loss=0.05, repeats=0.1, commit_s=0.005, crash=0.01)
    keeping = asyncio.ensure_future(keeper(world))
    clients = [client(world, oracle, f"site{k % 3}", k, 25) for k in range(9)]
    await asyncio.gather(*clients)
    world.weather = Weather(delay_s=0.05, commit_s=0.005)
    await asyncio.sleep(30)
    keeping.cancel()
    for node in world.nodes.values():
        await node.drained()
        node.stop()
    return world, oracle


@pytest.mark.parametrize("seed", range(12))
def test_in_a_storm_no_acknowledged_label_is_lost_and_none_counts_twice(seed: int) -> None:
    world, oracle = virtual.run(storm(seed))

    assert world.counts["crashes"] > 0
    assert oracle.answered == 225
    for (name, id_), label in oracle.acknowledged.items():
        assert truth(world.stores[name], "", id_) == label
    for store in world.stores.values():
        assert store.check() == []
        assert store.size()["deliveries"] == 0


@pytest.mark.parametrize("seed", range(12))
def test_after_a_storm_every_label_was_delivered_to_the_peer_that_answered(seed: int) -> None:
    world, oracle = virtual.run(storm(seed))

    passed_on = 0
    for name, id_ in oracle.acknowledged:
        found = world.stores[name].find("", id_)
        assert found is not None
        request, _ = found
        if request.peer_answers:
            peer = world.stores[request.group(0).peer]
            assert truth(peer, name, request.peer_answers[0].id) == request.truths[0]
            passed_on += 1
    assert passed_on > 0


def test_the_same_seed_is_the_same_storm() -> None:
    def outcome(world: World, oracle: Oracle) -> Any:
        counters = [store.counters() for store in world.stores.values()]
        return dict(world.counts), oracle.acknowledged, counters

    assert outcome(*virtual.run(storm(5))) == outcome(*virtual.run(storm(5)))
