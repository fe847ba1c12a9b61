"""The link tables: reachable peers and prices over time, and every error message."""

import math
import tomllib
from typing import Any

import numpy as np
import pytest

import covey
from covey import config
from covey.replay.engine import PathCosts, Repricing

SITES = ("north", "south", "west")

CHAIN = """
[[link]]
between = ["north", "south"]
cost = 0.25

[[link]]
from = "south"
to = "west"
cost = 0.5

[[link]]
from = "west"
to = "north"
cost = "gone"

[[link-change]]
slot = 1000
between = ["north", "south"]
cost = 0.125

[[link-change]]
slot = 2000
from = "west"
to = "north"
cost = 0.75

[[link-change]]
slot = 2000
from = "south"
to = "west"
cost = "gone"
"""


def table_of(toml: str, **more: Any) -> dict[str, Any]:
    learners = [{"name": name, "functions": [f"{name}-f"]} for name in SITES]
    return {"learner": learners, **tomllib.loads(toml), **more}


def linked(*links: dict[str, Any], changes: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    later = {} if changes is None else {"link-change": changes}
    return table_of("", link=list(links), **later)


def one_way(start: str, end: str, cost: Any = 0.5, **more: Any) -> dict[str, Any]:
    return {"from": start, "to": end, "cost": cost, **more}


def test_peers_and_prices_come_from_the_cheapest_paths() -> None:
    setup = config.load(linked(one_way("north", "south", 0.25), one_way("south", "west", 0.5)))

    assert [(site.peers, site.costs) for site in setup.sites] == [
        ((1, 2), (0.0, 0.25, 0.75)),
        ((2,), (0.0, 0.5)),
        ((), (0.0,)),
    ]
    assert setup.wiring is not None
    assert not setup.wiring.is_moving


def test_a_peer_that_becomes_reachable_later_is_a_closed_arm() -> None:
    north, south, west = config.load(table_of(CHAIN)).sites

    assert (north.peers, north.costs) == ((1, 2), (0.0, 0.25, 0.75))
    assert (south.peers, south.costs) == ((0, 2), (0.0, 0.25, 0.5))
    assert (west.peers, west.costs) == ((0, 1), (0.0, math.inf, math.inf))


def test_arms_are_repriced_as_links_change() -> None:
    setup = config.load(table_of(CHAIN))
    roads = PathCosts(setup, setup.sites)

    assert [roads.next_slot(slot) for slot in (1, 999)] == [1000, 1000]
    assert roads.moves(999) == []
    assert roads.moves(1000) == [
        Repricing(place=0, arm=1, cost=0.125),
        Repricing(place=0, arm=2, cost=0.625),
        Repricing(place=1, arm=1, cost=0.125),
    ]
    assert roads.next_slot(1000) == 2000
    assert roads.moves(2000) == [
        Repricing(place=0, arm=2, cost=math.inf),
        Repricing(place=1, arm=2, cost=math.inf),
        Repricing(place=2, arm=1, cost=0.75),
        Repricing(place=2, arm=2, cost=0.875),
    ]


def test_prices_keep_serving_costs_when_a_link_changes() -> None:
    table = table_of(CHAIN, policy={"carry-serving-costs": True})
    table["learner"][1]["serving-cost"] = 0.0625
    setup = config.load(table)

    assert setup.sites[0].costs == (0.0, 0.3125, 0.75)
    assert PathCosts(setup, setup.sites).moves(1000) == [
        Repricing(place=0, arm=1, cost=0.1875),
        Repricing(place=0, arm=2, cost=0.625),
        Repricing(place=1, arm=1, cost=0.125),
    ]


def test_learners_without_peers_are_not_repriced() -> None:
    setup = config.load(table_of(CHAIN, policy={"preset": "cos", "reading": "paper"}))

    assert {move.place for move in PathCosts(setup, setup.sites).moves(1000)} == {0}


def test_an_empty_list_of_links_means_no_peers() -> None:
    assert [site.peers for site in config.load(linked()).sites] == [(), (), ()]


def test_a_replay_pays_the_price_of_the_path() -> None:
    table = linked(one_way("north", "south", 0.125), one_way("south", "west", 0.125))
    trace = covey.replay(table, **perfect_west(3_000))
    columns = trace.columns()
    last = [(columns["learner"][k], columns["arm"][k], columns["cost"][k]) for k in range(-3, 0)]

    # South is asked for its own function only: it does not pass north's request on to west.
    assert last == [("north", "west", 0.25), ("south", "west", 0.125), ("west", "west-f", 0.0)]
    assert {
        function
        for arm, function in zip(columns["arm"], columns["function"], strict=True)
        if arm == "south"
    } == {"south-f"}


def perfect_west(slots: int) -> dict[str, Any]:
    """Return a log on which only west's function is better than guessing."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, slots)
    is_right = rng.random((3, slots)) < np.array([[0.5], [0.5], [1.0]])
    return {
        "predictions": np.where(is_right, labels, 1 - labels),
        "labels": labels,
        "contexts": np.zeros((slots, 1)),
    }


CHANGING = linked(
    one_way("north", "west", "gone"),
    changes=[
        one_way("north", "west", 0.125, slot=401),
        one_way("north", "west", 0.25, slot=801),
        one_way("north", "west", "gone", slot=1201),
        one_way("north", "west", 0.125, slot=1601),
    ],
)


def test_statistics_of_a_peer_are_kept_while_it_is_unreachable() -> None:
    trace = covey.replay(CHANGING, **perfect_west(2_000))
    back = np.flatnonzero((trace.learner == 0) & (trace.slot == 1601))

    assert trace.names["phase"][trace.phase[back[0]]] == "exploit"
    assert trace.names["arm"][trace.arm[back[0]]] == "west"


def test_a_link_cost_above_one_warns() -> None:
    with pytest.warns(UserWarning, match="'north' to 'south' .* its cost 1.5 is above 1"):
        config.load(linked(one_way("north", "south", 1.5)))
