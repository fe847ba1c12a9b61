"""Several candidate contexts decide the same in a replay, a network, nodes and processes."""

from pathlib import Path
from typing import Any

import pytest

from support import virtual
from support.effort import effort
from support.flow import (
    Stream,
    column_file,
    decided_in_a_network,
    drawn_stream,
    replayed,
    through_nodes,
    through_processes,
)
from support.site_processes import Offices

SITES = ["site0", "site1", "site2"]
SLOTS, NODE_SLOTS = 1_200, effort(240, plain=160, long=400)
PROCESS_SLOTS, LATE = 120, 25
EARLY = {
    "slices": 2,
    "split-scale": 5.0,
    "split-power": 2.0,
    "explore": {"scale": 0.5, "power": 0.0},
    "train": {"scale": 1.0, "power": 0.0},
    "explore-peers": {"scale": 0.5, "power": 0.0},
    "pending": False,
    "check-claims": False,  # as in a replay
}
# All choose among the same; or one among some, one has its own context, one chooses among others.
SAME = [{"candidates": ["a", "b", ["a", "b"]]}] * 3
OTHERS = [{"candidates": ["a", "b"]}, {"context": ["b"]}, {"candidates": [["a", "c"], "b"]}]
BOTH = pytest.mark.parametrize("own", [SAME, OTHERS], ids=["same", "others"])
PRESETS = pytest.mark.parametrize("preset", ["cos", "dcza"])


@pytest.fixture(scope="module")
def play() -> Stream:
    return drawn_stream(3, ["a", "b", "c"], slots=SLOTS)


def config(own: Any, preset: str = "cos", **policy: Any) -> dict[str, Any]:
    return {
        "policy": {**EARLY, "preset": preset, **policy},
        "learner": [
            {
                "name": name,
                "functions": [f"f{2 * k}", f"f{2 * k + 1}"],
                "peers": {other: 0.05 for other in SITES if other != name},
                **own[k],
            }
            for k, name in enumerate(SITES)
        ],
    }


@BOTH
@PRESETS
@pytest.mark.parametrize("mode", ["spec", "paper"])
def test_replay_and_network_decide_the_same(play: Stream, own: Any, preset: str, mode: str) -> None:
    live = decided_in_a_network(play, config(own, preset, mode=mode))

    assert live == replayed(play, config(own, preset, mode=mode))
    if mode == "spec":
        assert {row[0] for row in live} == {"train", "explore", "exploit"}
        assert any(row[1].startswith("site") for row in live)


@BOTH
@PRESETS
@pytest.mark.parametrize("restart_every", [10, NODE_SLOTS + 1])
def test_replay_and_nodes_decide_the_same_restarted_or_not(
    play: Stream, own: Any, preset: str, restart_every: int
) -> None:
    setup = config(own, preset)

    live = virtual.run(through_nodes(play, setup, slots=NODE_SLOTS, restart_every=restart_every))

    assert live == replayed(play, setup)[:NODE_SLOTS]


@PRESETS
@pytest.mark.parametrize("restart_every", [10, NODE_SLOTS + 1])
def test_nodes_whose_labels_come_late_decide_the_same_restarted_or_not(
    play: Stream, preset: str, restart_every: int
) -> None:
    setup = config(SAME, preset, pending=True)

    live = virtual.run(
        through_nodes(play, setup, slots=NODE_SLOTS, restart_every=restart_every, delay=LATE)
    )

    assert live == replayed(play, setup, delay=LATE)[:NODE_SLOTS]


@pytest.mark.parametrize("trust", ["earned", "isolated"])
def test_nodes_decide_the_same_restarted_or_not_whatever_the_trust(
    play: Stream, trust: str
) -> None:
    setup = config(SAME)

    often, never = (
        virtual.run(through_nodes(play, setup, slots=200, restart_every=every, trust=trust))
        for every in (10, 201)
    )

    assert often == never
    assert any(row[1].startswith("site") for row in often)


@pytest.mark.beside_the_kernel
def test_replay_and_processes_over_https_decide_the_same_also_after_a_restart(
    play: Stream, tmp_path: Path
) -> None:
    offices, setup = Offices(tmp_path, SITES), config(OTHERS)
    sites = {name: column_file(offices, play, setup, name) for name in SITES}

    half = PROCESS_SLOTS // 2
    live = through_processes(play, sites, tmp_path, slots=range(half))
    live += through_processes(play, sites, tmp_path, slots=range(half, PROCESS_SLOTS))

    assert live == replayed(play, setup)[:PROCESS_SLOTS]
    assert sum(row[1].startswith("site") for row in live) > PROCESS_SLOTS / 20  # peers are asked
