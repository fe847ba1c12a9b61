"""Serving costs: replay, network and nodes keep the same accounts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import astuple

import covey
from covey.config import load
from covey.node.node import Question
from covey.replay.outcome import Account, total_account
from covey.replay.replay import replay_file
from covey.site.status import AccountState
from support import virtual

SLOTS = 300


def config(*, carry: bool = False, cost: float = 0.2) -> dict[str, Any]:
    return {
        "policy": {
            "preset": "cos",
            "slices": 1,
            "carry-serving-costs": carry,
            "explore": {"scale": 0.5, "power": 0.0},
            "train": {"scale": 0.5, "power": 0.0},
            "explore-peers": {"scale": 0.5, "power": 0.0},
        },
        "learner": [
            {"name": "north", "functions": ["poor"], "peers": {"south": 0.05}},
            {
                "name": "south",
                "functions": ["good"],
                "function-costs": [0.01],
                "peers": {"north": 0.05},
                "serving-cost": cost,
            },
        ],
    }


@pytest.fixture(scope="module")
def log() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, SLOTS)
    right = rng.random((2, SLOTS)) < [[0.6], [0.95]]
    return {
        "predictions": np.where(right, labels, 1 - labels),
        "labels": labels,
        "contexts": np.zeros((SLOTS, 0)),
        "at": [("north", "south")[k] for k in rng.integers(0, 2, SLOTS)],
    }


def functions(log: dict[str, Any]) -> dict[str, Any]:
    names = enumerate(["poor", "good"])
    return {name: lambda slot, k=k: int(log["predictions"][k][slot]) for k, name in names}


def of_a_replay(log: dict[str, Any], table: dict[str, Any], folder: Path) -> dict[str, Account]:
    rows = zip(log["at"], log["labels"], *log["predictions"], strict=True)
    lines = [["site", "label", "poor", "good"], *rows]
    (folder / "log.csv").write_text("\n".join(",".join(map(str, line)) for line in lines))
    setup = load({**table, "data": {"at": "site"}})
    outcome = replay_file(folder / "log.csv", setup)
    return outcome.accounts


@pytest.mark.parametrize("carry", [False, True])
def test_a_network_keeps_the_accounts_of_a_replay(
    log: dict[str, Any], carry: bool, tmp_path: Path
) -> None:
    network = covey.Network(config(carry=carry), functions=functions(log), dimension=0)
    for slot, name in enumerate(log["at"]):
        answer = network[name].predict(slot, slot=slot + 1)
        network[name].learn(answer.ticket, int(log["labels"][slot]))
    expected = of_a_replay(log, config(carry=carry), tmp_path)

    for name, account in network.accounts.items():
        assert astuple(account) == pytest.approx(astuple(expected[name]))
    total = total_account(network.accounts.values())
    assert total.paid == pytest.approx(total.earned)
    assert total.balance == -total.serving_cost
    assert network.accounts["south"].sold > 50


async def through_nodes(log: dict[str, Any], *, restart: bool) -> dict[str, Any]:
    world = virtual.World(config(), functions(log), dimension=0, trust="full")
    for slot, name in enumerate(log["at"]):
        if restart and slot == SLOTS // 2:
            for one in world.names:
                world.crash(one)
                world.boot(one)
        node = world.nodes[name]
        await node.predict(slot, question=Question("", str(slot)), slot=slot + 1)
        await node.learn(str(slot), int(log["labels"][slot]))
        await node.drained()
    states = {name: node.state() for name, node in world.nodes.items()}
    for node in world.nodes.values():
        node.stop()
    return states


def test_the_account_of_a_restarted_node_is_that_since_the_start(log: dict[str, Any]) -> None:
    whole = virtual.run(through_nodes(log, restart=False))["south"].account
    second = virtual.run(through_nodes(log, restart=True))["south"].account

    assert isinstance(second, AccountState)
    assert 0 < second.served < whole.served
    assert 0 < second.right < whole.right
