"""Serving costs: replay, network and nodes keep the same accounts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import astuple

import covey
from covey.bandit.policies import policy_from
from covey.node.node import Question
from covey.simulation.environment import environment_from
from covey.simulation.run import network, play
from covey.simulation.sites import log_of
from covey.simulation.world import World
from support import virtual

SLOTS = 300


async def of_nodes(log: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """Return the accounts of nodes that are restarted twice, by the last of their starts."""
    world = virtual.World(table, log["functions"], dimension=1, trust="full")
    for slot, label in enumerate(log["labels"].tolist()):
        if slot in (SLOTS // 3, SLOTS // 2):
            for one in world.names:
                world.crash(one)
                world.boot(one)
        node = world.nodes["learner-1"]
        question = Question("", str(slot))
        await node.predict(slot, log["points"][slot], question=question, slot=slot + 1)
        await node.learn(str(slot), label)
        await node.drained()
    accounts = {name: node.state().account for name, node in world.nodes.items()}
    for node in world.nodes.values():
        node.stop()
    return accounts


def of_a_network(log: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    sites = covey.Network(table, functions=log["functions"], dimension=1)
    for slot, label in enumerate(log["labels"].tolist()):
        answer = sites["learner-1"].predict(slot, context=log["points"][slot], slot=slot + 1)
        sites["learner-1"].learn(answer.ticket, label)
    return sites.accounts


def cents(accounts: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(round(sum_, 6) for sum_ in astuple(a)) for name, a in accounts.items()}


@pytest.mark.parametrize("price", [0.0, 0.05])
@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
def test_every_door_keeps_the_same_accounts(preset: str, price: float) -> None:
    """A world with one site that receives, whose rows are replayed, and go to live sites."""
    table = {"name": "w", "learners": 3, "low": 0.4, "prices": price, "function-costs": 0.02}
    serving = {"name": "learner-2", "serving-cost": 0.07, "arrivals": False}
    learners = [serving, {"name": "learner-3", "arrivals": False}]
    environment = environment_from({**table, "learner": learners})
    setup = network(environment, policy_from({"preset": preset}))
    rows = log_of(World(environment, seed=1, horizon=SLOTS).draw(SLOTS), environment, setup)
    names = [name for site in setup.sites for name in site.functions]
    contexts = np.asarray(rows.contexts).reshape(SLOTS, 1)
    said = dict(zip(names, np.asarray(rows.predictions).reshape(-1, SLOTS), strict=True))
    log = {
        "labels": np.asarray(rows.labels),
        "points": [tuple(point) for point in contexts.tolist()],
        "functions": {
            name: lambda slot, answers=answers: int(answers[slot]) for name, answers in said.items()
        },
    }
    config = {
        "policy": {"preset": preset},
        "learner": [
            {
                "name": site.name,
                "functions": [*site.functions],
                "function-costs": [0.02] * len(site.functions),
                "peers": {setup.sites[k].name: price for k in site.peers},
                "arrivals": site.receives,
                "serving-cost": site.serving_cost,
            }
            for site in setup.sites
        ],
    }

    columns = {"label": log["labels"], "x": contexts[:, 0], **said}
    replayed = covey.replay({**config, "data": {"context": ["x"]}}, columns).outcome.accounts
    simulated = play(
        environment, setup.settings, seed=1, horizon=SLOTS, checkpoints=[SLOTS]
    ).accounts

    assert replayed["learner-1"].bought > 20
    assert cents(simulated) == cents(replayed)
    assert cents(of_a_network(log, config)) == cents(replayed)
    assert cents(virtual.run(of_nodes(log, config))) == cents(replayed)
