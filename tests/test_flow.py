"""One stream, the same decisions everywhere: replay, a network in process, nodes, processes."""

from pathlib import Path

import pytest

from covey.bandit.policies import PRESETS
from support import virtual
from support.flow import (
    NODE_SLOTS,
    SITES,
    Stream,
    changing_stream,
    config_of,
    decided_in_a_network,
    early,
    recorded_stream,
    replayed,
    site_file,
    through,
    through_nodes,
)
from support.site_processes import Offices, served

PROCESS_SLOTS = 200
LATE = 25  # slots until a label comes
OWN = "support.own_policies"
EVERY_POLICY = [*sorted(PRESETS), f"{OWN}:CellUCB", f"{OWN}:EpsilonGreedy"]


@pytest.fixture(scope="module")
def stream() -> Stream:
    return recorded_stream()


@pytest.mark.parametrize("preset", EVERY_POLICY)
def test_replay_and_the_network_in_process_decide_the_same(stream: Stream, preset: str) -> None:
    config = config_of(preset)

    assert decided_in_a_network(stream, config) == replayed(stream, config)


@pytest.mark.parametrize("preset", EVERY_POLICY)
def test_nodes_that_are_restarted_all_the_time_decide_the_same(stream: Stream, preset: str) -> None:
    config = config_of(preset, "spec")

    live = virtual.run(through_nodes(stream, config, restart_every=10))

    assert live == replayed(stream, config)[:NODE_SLOTS]


@pytest.mark.parametrize("restart_every", [10, NODE_SLOTS + 1])
@pytest.mark.parametrize("preset", EVERY_POLICY[:-1])  # the last does not look at them
def test_nodes_whose_labels_come_late_decide_the_same_restarted_or_not(
    stream: Stream, preset: str, restart_every: int
) -> None:
    """What is under way is not stored: a node that starts counts its open tickets."""
    config = config_of(preset, "spec")
    config["policy"]["pending"] = True
    late = {"restart_every": restart_every, "delay": LATE}

    live = virtual.run(through_nodes(stream, config, **late))

    assert live == replayed(stream, config, delay=LATE)[:NODE_SLOTS]
    config["policy"]["pending"] = False
    assert live != replayed(stream, config, delay=LATE)[:NODE_SLOTS]


@pytest.mark.parametrize("dimension", [0, 1, 3, 5])
def test_a_network_decides_as_a_replay_in_any_number_of_contexts(dimension: int) -> None:
    stream, config = changing_stream(dimension), config_of("auto")
    config["policy"]["alarm"] = 2.0

    live = decided_in_a_network(stream, config)

    assert live == replayed(stream, config)
    assert any(row[1].startswith("site") for row in live)


@pytest.mark.parametrize("delay", [0, LATE])
def test_restarted_nodes_decide_as_a_replay_in_many_contexts(delay: int) -> None:
    """What a linear belief learnt since it was stored is learnt again."""
    stream, config = changing_stream(5), config_of("auto")
    config["policy"] |= {"alarm": 1.0, "pending": True}

    live = virtual.run(through_nodes(stream, config, restart_every=20, delay=delay))

    assert live == replayed(stream, config, delay=delay)[:NODE_SLOTS]


@pytest.mark.parametrize("preset", ["cos", "dcza", None], ids=str)
def test_replay_and_processes_over_https_decide_the_same(
    stream: Stream, preset: str | None, tmp_path: Path
) -> None:
    policy = {} if preset is None else {**early(preset), "pending": False}
    policy["check-claims"] = False  # as in a replay
    config = {**config_of("cos", "spec"), "policy": policy}
    offices = Offices(tmp_path, [f"site{k}" for k in range(SITES)])
    sites = {f"site{k}": site_file(offices, config, k) for k in range(SITES)}

    with served(tmp_path, sites) as clients:
        live = [through(clients[stream.at[slot]], stream, slot) for slot in range(PROCESS_SLOTS)]

    assert live == replayed(stream, config)[:PROCESS_SLOTS]
    assert sum(row[1].startswith("site") for row in live) > PROCESS_SLOTS / 20  # peers are asked
