"""Rewards, losses and random costs: replay, network, nodes and processes decide the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import virtual
from support.flow import (
    NODE_SLOTS,
    SITES,
    SLOTS,
    Stream,
    config_of,
    decided_in_a_network,
    recorded_stream,
    replayed,
    site_file,
    through,
    through_nodes,
)
from support.site_processes import Offices, served

THRIFT = "support.own_rewards:thrift"
PROCESS_SLOTS = 200


@pytest.fixture(scope="module")
def stream() -> Stream:
    return recorded_stream()


def with_thrift(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "policy": {**config["policy"], "reward": THRIFT}}


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza", "share-ucb"])
def test_a_reward_of_ones_own_decides_the_same_in_replay_network_nodes_and_restarted_nodes(
    stream: Stream, preset: str
) -> None:
    usual = config_of(preset, "spec")
    config = with_thrift(usual)
    recorded = replayed(stream, config)

    assert decided_in_a_network(stream, config) == recorded
    for restart_every in (NODE_SLOTS + 1, 10):
        live = virtual.run(through_nodes(stream, config, restart_every=restart_every))
        assert live == recorded[:NODE_SLOTS]
    assert recorded[:NODE_SLOTS] != replayed(stream, usual)[:NODE_SLOTS]


@pytest.mark.beside_the_kernel
def test_a_reward_of_ones_own_decides_the_same_in_processes_over_https(
    stream: Stream, tmp_path: Path
) -> None:
    """The function is named in each site's file; its module is on the path of the processes."""
    usual = config_of("cos", "spec")
    for key in ("finest-level", "alarm", "mode"):
        usual["policy"].pop(key, None)
    usual["policy"] |= {"pending": False, "check-claims": False, "slices": 1}
    config = with_thrift(usual)
    offices = Offices(tmp_path, [f"site{k}" for k in range(SITES)])
    sites = {f"site{k}": site_file(offices, config, k) for k in range(SITES)}

    with served(tmp_path, sites) as clients:
        live = [through(clients[stream.at[slot]], stream, slot) for slot in range(PROCESS_SLOTS)]

    assert live == replayed(stream, config)[:PROCESS_SLOTS]
    assert live != replayed(stream, usual)[:PROCESS_SLOTS]


LOSSES = [
    {"kind": "absolute", "bound": 2.0},
    {"kind": "classes", "bound": 1.0, "errors": {"1": 1.0, "0": 0.1}},
    {"kind": "classes", "bound": 4.0, "errors": {"1": {"0": 3.0}, "0": 0.5}},
]


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
@pytest.mark.parametrize("loss", LOSSES, ids=["absolute", "classes", "pairs"])
def test_a_loss_decides_the_same_in_replay_network_nodes_and_restarted_nodes(
    stream: Stream, preset: str, loss: dict[str, Any]
) -> None:
    """In a replay `correct` is what an answer gains; live it is whether the label was right."""
    usual = config_of(preset, "spec")
    config = {**usual, "data": {"loss": loss}}
    recorded = [(*row[:-1], row[-1] == 1.0) for row in replayed(stream, config)]

    assert decided_in_a_network(stream, config) == recorded
    for restart_every in (NODE_SLOTS + 1, 10):
        live = virtual.run(through_nodes(stream, config, restart_every=restart_every))
        assert live == recorded[:NODE_SLOTS]
    assert recorded != replayed(stream, usual)


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
def test_random_costs_are_learnt_the_same_in_replay_network_nodes_and_restarted_nodes(
    stream: Stream, preset: str
) -> None:
    """Live the cost comes with the label, and the price of a decision is without it."""
    rng = np.random.default_rng(3)
    fees = {
        "own": np.round(rng.random(SLOTS) * 0.6, 3),
        "peer": np.round(rng.random(SLOTS) / 4, 3),
    }
    usual = config_of(preset, "spec")
    learners = [
        {**one, "cost-columns": {one["functions"][0]: "own", f"site{(k + 1) % SITES}": "peer"}}
        for k, one in enumerate(usual["learner"])
    ]
    config = {**usual, "learner": learners}
    recorded = replayed(stream, config, fees=fees)

    assert decided_in_a_network(stream, config, fees=fees) == recorded
    for restart_every in (NODE_SLOTS + 1, 10):
        live = virtual.run(through_nodes(stream, config, restart_every=restart_every, fees=fees))
        assert live == recorded[:NODE_SLOTS]
    assert [row[1] for row in recorded] != [row[1] for row in replayed(stream, usual)]
