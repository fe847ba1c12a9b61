"""Labels of which most never come: replay, network, node and restarted node decide the same."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.policies import PRESETS
from support.label_flows import (
    EARLY,
    FlowStream,
    flow_config,
    flow_stream,
    in_a_network,
    replayed,
    through_nodes,
)

PHASED = ["cos", "dcza", "cos-ce"]
LATEST = 25  # slots until a label comes


@pytest.fixture(scope="module")
def stream() -> FlowStream:
    return flow_stream(400, seed=4, share=0.3, latest=LATEST)


def policy_of(preset: str) -> dict[str, Any]:
    return {"preset": preset, "pending": True, **EARLY, "label-wait": 10_000}


@pytest.mark.parametrize("preset", PHASED)
def test_a_network_decides_as_a_replay_where_most_labels_never_come(
    stream: FlowStream, preset: str
) -> None:
    config = flow_config(policy_of(preset))

    live = in_a_network(stream, config)

    assert live == replayed(stream, config)
    assert any(row[1].startswith("site") for row in live)


@pytest.mark.parametrize("restart_every", [0, 10])
@pytest.mark.parametrize("preset", PHASED)
def test_nodes_decide_as_a_replay_where_most_labels_never_come(
    stream: FlowStream, preset: str, restart_every: int
) -> None:
    """The share of labels that arrive is stored, so that a restarted node knows it."""
    config = flow_config(policy_of(preset))

    assert through_nodes(stream, config, restart_every=restart_every) == replayed(stream, config)


@pytest.mark.parametrize("preset", PHASED)
def test_restarted_nodes_with_isolated_peers_decide_as_those_that_are_not(
    stream: FlowStream, preset: str
) -> None:
    """Each isolated peer has its own share of labels that arrive, which is stored, too."""
    config = flow_config(policy_of(preset))
    apart = {"trust": "isolated"}

    restarted = through_nodes(stream, config, restart_every=10, **apart)

    assert restarted == through_nodes(stream, config, **apart)
    assert restarted != replayed(stream, config)  # all that is pooled there


def alone(preset: str, **policy: Any) -> dict[str, Any]:
    table = {"preset": preset, "pending": True, "label-wait": 10_000, "slices": 1, **policy}
    return {"policy": table, "learner": [{"name": "north", "functions": ["a", "b", "c"]}]}


def played(share: float, delay: int = 0, **policy: Any) -> tuple[covey.Trace, np.ndarray]:
    """Return the trace of one site of which this share of labels comes, and which come."""
    rng = np.random.default_rng(8)
    slots = 2_000
    labels = rng.integers(0, 2, slots)
    right = rng.random((3, slots)) < [[0.6], [0.7], [0.9]]
    comes = rng.random(slots) < share
    trace = covey.replay(
        alone(**{"preset": "cos", **policy}),
        predictions=np.where(right, labels, 1 - labels),
        labels=labels,
        contexts=rng.random((slots, 1)),
        delay=np.full(slots, delay),
        revealed=comes.astype(int),
    )
    return trace, comes


@pytest.mark.parametrize("preset", ["cos", "cos-ce"])
def test_no_site_exploits_before_a_label_of_each_function_has_come(preset: str) -> None:
    trace, comes = played(0.1, preset=preset)
    first = int(np.argmax(trace.phase == 2))
    known = Counter(trace.function[:first][comes[:first]].tolist())

    assert min(known[function] for function in range(3)) > 0
    assert first > 13


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_exploration_takes_as_many_labels_as_if_no_label_were_missing(share: float) -> None:
    """A pending label stands for no exploration: what is explored by labels stays the same."""

    def explored(comes_share: float) -> int:
        trace, comes = played(comes_share)
        return int(np.sum((trace.phase == 1) & comes))

    assert explored(share) >= 0.8 * explored(1.0)


def test_late_labels_that_all_come_are_counted_before_they_come() -> None:
    with_pending, _ = played(1.0, delay=50)
    without, _ = played(1.0, delay=50, pending=False)

    assert np.sum(with_pending.phase == 1) < np.sum(without.phase == 1)


def test_the_error_with_a_tenth_of_the_labels_is_near_that_without_pending() -> None:
    with_pending, _ = played(0.1)
    without, _ = played(0.1, pending=False)
    late = slice(1_000, 2_000)

    assert 1 - with_pending.correct[late].mean() <= 1.1 * (1 - without.correct[late].mean())


def test_a_first_batch_explores_all_rows_and_spreads_them() -> None:
    network = covey.Network(alone("cos"), functions=dict.fromkeys("abc", lambda _: 1), dimension=1)

    answers = network["north"].predict_batch([0] * 60, [(0.5,)] * 60)

    assert {answer.phase for answer in answers} == {"explore"}
    assert Counter(answer.arm for answer in answers) == {"a": 20, "b": 20, "c": 20}


def test_labels_of_own_clients_and_of_peers_are_weighed_apart() -> None:
    """South answers north, whose labels come; its own clients never send one."""
    config = flow_config({"preset": "cos", "pending": True, "slices": 1})
    config["learner"] = [
        {"name": "north", "functions": ["a"], "peers": {"south": 0.0}},
        {"name": "south", "functions": ["b", "c"], "peers": {}},
    ]
    functions = {"a": lambda _: 0, "b": lambda _: 1, "c": lambda _: 1}
    network = covey.Network(config, functions=functions, dimension=0)
    tickets = []
    for slot in range(1, 400):
        tickets.append(network["north"].predict(0, slot=slot).ticket)
        if slot > 5:
            network["north"].learn(tickets[slot - 6], 1)
        network["south"].predict(0, slot=slot)
    doubts = network["south"].learner.snapshot().doubts[""]
    waits = [-1 - one for one in doubts if one < 0]
    pool, came, pool_of_peers, came_of_peers = (*waits[5:7], *waits[12:])

    assert pool > 100 > came == 0
    assert came_of_peers == pool_of_peers == 5


def test_every_preset_of_phases_is_tested_here() -> None:
    by_other_rules = {"auto", "two-sizes", "multi-resolution", "share-ucb", "discounted", "balance"}

    assert set(PRESETS) - by_other_rules == set(PHASED)
