"""Rewards that are functions: replay, network, nodes and processes decide the same."""

from pathlib import Path
from typing import Any

import pytest

from support import virtual
from support.flow import (
    NODE_SLOTS,
    SITES,
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
