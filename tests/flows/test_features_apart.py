"""Sites that see different columns: what the doctor says of them."""

from pathlib import Path
from typing import Any

import pytest

from support.examined import examine, states
from support.flow import (
    Stream,
    column_file,
    drawn_stream,
)
from support.presets import fitting
from support.site_processes import Offices, served

SITES = ["site0", "site1", "site2"]
OWN = (["a"], ["b"], ["a"])  # the third sees what the first does
SLOTS = 1_200
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
        "policy": fitting({**EARLY, "preset": preset}),
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
