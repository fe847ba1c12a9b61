"""Sites that see different columns decide the same in a replay, a network, nodes and processes."""

from pathlib import Path
from typing import Any

import pytest

from support import virtual
from support.effort import effort
from support.examined import examine, states
from support.flow import (
    Stream,
    column_file,
    decided_in_a_network,
    drawn_stream,
    replayed,
    through_nodes,
    through_processes,
)
from support.site_processes import Offices, served

SITES = ["site0", "site1", "site2"]
OWN = (["a"], ["b"], ["a"])  # the third sees what the first does
SLOTS, NODE_SLOTS, PROCESS_SLOTS = 1_200, effort(240, plain=160, long=400), 120
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


@pytest.fixture(scope="module")
def play() -> Stream:
    return drawn_stream(3, ["a", "b"], slots=SLOTS)


def config(preset: str = "cos", own: Any = OWN) -> dict[str, Any]:
    return {
        "policy": {**EARLY, "preset": preset},
        "learner": [
            {
                "name": name,
                "functions": [f"f{2 * k}", f"f{2 * k + 1}"],
                "context": own[k],
                "peers": {other: 0.05 for other in SITES if other != name},
            }
            for k, name in enumerate(SITES)
        ],
    }


@pytest.mark.parametrize("preset", ["cos", "dcza"])
def test_replay_and_network_decide_the_same(play: Stream, preset: str) -> None:
    live = decided_in_a_network(play, config(preset))

    assert live == replayed(play, config(preset))
    assert any(row[1].startswith("site") for row in live)


@pytest.mark.parametrize("restart_every", [10, NODE_SLOTS + 1])
@pytest.mark.parametrize("preset", ["cos", "dcza"])
def test_replay_and_nodes_decide_the_same_restarted_or_not(
    play: Stream, preset: str, restart_every: int
) -> None:
    live = virtual.run(
        through_nodes(play, config(preset), slots=NODE_SLOTS, restart_every=restart_every)
    )

    assert live == replayed(play, config(preset))[:NODE_SLOTS]


def files(offices: Offices, play: Stream, setup: dict[str, Any]) -> dict[str, str]:
    """Return the files of sites; the first does not list the last, which has the same contexts."""
    files = {name: column_file(offices, play, setup, name) for name in SITES}
    return files | {"site0": column_file(offices, play, setup, "site0", known=["site1"])}


@pytest.mark.beside_the_kernel
def test_replay_and_processes_over_https_decide_the_same_also_after_a_restart(
    play: Stream, tmp_path: Path
) -> None:
    sites = files(Offices(tmp_path, SITES), play, config())

    half = PROCESS_SLOTS // 2
    live = through_processes(play, sites, tmp_path, slots=range(half))
    live += through_processes(play, sites, tmp_path, slots=range(half, PROCESS_SLOTS))

    assert live == replayed(play, config())[:PROCESS_SLOTS]
    assert sum(row[1].startswith("site") for row in live) > PROCESS_SLOTS / 20  # peers are asked


def two(offices: Offices, play: Stream, *own: Any) -> dict[str, str]:
    """Return the files of two sites, each with one context for all that it knows."""
    setup = config(own=[[], [], []])
    setup["learner"] = [
        {**one, "peers": {other: 0.05 for other in SITES[:2] if other != one["name"]}}
        for one in setup["learner"][:2]
    ]
    for one in setup["learner"]:
        one.pop("context")
    return {
        name: column_file(offices, play, {**setup, "data": {"context": own[k]}}, name, known=[])
        for k, name in enumerate(SITES[:2])
    }


A_IN_TENTHS = {"column": "a", "scale": "linear", "low": 0.0, "high": 10.0}


@pytest.mark.beside_the_kernel
@pytest.mark.parametrize(
    ("there", "said"),
    [
        (["b"], "asks by contexts 'a', and it knows only 'b'"),
        ([A_IN_TENTHS], "contexts 'a' have other scales there"),
    ],
)
def test_the_doctor_says_which_contexts_of_a_peer_are_others(
    play: Stream, tmp_path: Path, there: Any, said: str
) -> None:
    sites = two(Offices(tmp_path, SITES), play, ["a"], there)

    with served(tmp_path, {"site1": sites["site1"]}):
        found = examine(tmp_path, sites["site0"])

    assert states(found) == {"peer site1, settings": "failure"}
    assert said in found["peer site1, settings"].message
