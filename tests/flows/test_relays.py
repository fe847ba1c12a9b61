"""Peers that are asked through a relay: replay, network, nodes and processes decide the same."""

from pathlib import Path
from typing import Any

import pytest

from support import virtual
from support.flow import (
    NODE_SLOTS,
    SITES,
    Row,
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

PRESETS = ["auto", "cos", "dcza"]
ASKED = {  # whom each site may ask; site0 and site1 forward to these for others
    "site0": {"site1": 0.05},
    "site1": {"site0": 0.05, "site2": 0.04},
    "site2": {"site0": 0.03},
}
BY_HAND = {
    "site0": {"site1": 0.05, "site2": 0.09},
    "site1": {"site0": 0.05, "site2": 0.04},
    "site2": {"site0": 0.03, "site1": 0.08},
}


@pytest.fixture(scope="module")
def stream() -> Stream:
    return recorded_stream()


def with_relays(preset: str) -> dict[str, Any]:
    config = config_of(preset, "spec")
    learners = [
        {**one, "peers": ASKED[one["name"]], "relay": one["name"] != "site2"}
        for one in config["learner"]
    ]
    return {**config, "learner": learners}


def by_hand(preset: str) -> dict[str, Any]:
    config = config_of(preset, "spec")
    return {
        **config,
        "learner": [{**one, "peers": BY_HAND[one["name"]]} for one in config["learner"]],
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_asking_through_a_relay_costs_the_sum_of_the_path_in_replay_and_network(
    stream: Stream, preset: str
) -> None:
    config = with_relays(preset)
    recorded = replayed(stream, config)

    assert recorded == replayed(stream, by_hand(preset))
    assert decided_in_a_network(stream, config) == recorded
    assert recorded != replayed(
        stream, {**config, "learner": [{**one, "relay": False} for one in config["learner"]]}
    )


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("restart_every", [10, NODE_SLOTS + 1])
def test_nodes_that_relay_decide_as_a_replay_restarted_or_not(
    stream: Stream, preset: str, restart_every: int
) -> None:
    config = with_relays(preset)

    live = virtual.run(through_nodes(stream, config, restart_every=restart_every))

    assert live == replayed(stream, config)[:NODE_SLOTS]
    assert {("site2", 0.09), ("site1", 0.08)} & {(arm, price) for _, arm, _, price, _ in live}


KNOWN = {  # by site: the sites that it knows, and those behind them
    "site0": {"site1": {"relays": {"site2": 0.04}}, "site2": {}},
    "site1": {"site0": {}, "site2": {}},
    "site2": {"site0": {"relays": {"site1": 0.05}}, "site1": {}},
}
PROCESS_SLOTS = 120


@pytest.mark.beside_the_kernel
def test_processes_over_https_that_relay_decide_as_a_replay_also_after_a_restart(
    stream: Stream, tmp_path: Path
) -> None:
    config = with_relays("cos")
    for key in ("finest-level", "mode"):
        config["policy"].pop(key, None)
    config["policy"] |= {"pending": False, "check-claims": False, "slices": 1}
    offices = Offices(tmp_path, [f"site{k}" for k in range(SITES)])
    sites = {f"site{k}": site_file(offices, config, k, KNOWN[f"site{k}"]) for k in range(SITES)}
    live: list[Row] = []

    for begin, end in ((0, PROCESS_SLOTS // 2), (PROCESS_SLOTS // 2, PROCESS_SLOTS)):
        with served(tmp_path, sites) as clients:
            for slot in range(begin, end):
                live.append(through(clients[stream.at[slot]], stream, slot))
                while any(client.state()["owed"] for client in clients.values()):
                    pass  # a relay passes labels on
            phases = clients["site1"].state()["phases"]

    assert live == replayed(stream, config)[:PROCESS_SLOTS]
    assert phases["relay"] >= 1
