"""The link tables: reachable peers and prices over time, and every error message."""

import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey import config
from covey.errors import ConfigError
from covey.replay import replay as replaying
from covey.replay.engine import LinkPrices, Repricing

pytestmark = pytest.mark.beside_the_kernel

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


def sentence_of(table: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load(table)
    return str(caught.value)


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
    roads = LinkPrices(setup, setup.sites)

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
    assert LinkPrices(setup, setup.sites).moves(1000) == [
        Repricing(place=0, arm=1, cost=0.1875),
        Repricing(place=0, arm=2, cost=0.625),
        Repricing(place=1, arm=1, cost=0.125),
    ]


def test_learners_without_peers_are_not_repriced() -> None:
    setup = config.load(table_of(CHAIN, policy={"reading": {"askers": "first"}}))

    assert {move.place for move in LinkPrices(setup, setup.sites).moves(1000)} == {0}


def test_an_empty_list_of_links_means_no_peers() -> None:
    assert [site.peers for site in config.load(linked()).sites] == [(), (), ()]


def test_a_replay_pays_the_price_of_the_path() -> None:
    table = linked(one_way("north", "south", 0.125), one_way("south", "west", 0.125))
    trace = covey.replay({**table, "policy": {"slices": 1}}, **perfect_west(3_000))
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


@pytest.mark.parametrize("policy", [{"slices": 1}, {"slices": 1, "horizon": "doubling"}])
def test_a_replay_pays_the_current_link_costs(policy: dict[str, Any]) -> None:
    trace = covey.replay({**CHANGING, "policy": policy}, **perfect_west(2_000))
    north = trace.learner == 0
    asks = trace.arm[north] == trace.names["arm"].index("west")
    prices = [
        set(cost[asked].tolist())
        for cost, asked in zip(np.split(trace.cost[north], 5), np.split(asks, 5), strict=True)
    ]

    assert prices == [set(), {0.125}, {0.25}, set(), {0.125}]


def test_statistics_of_a_peer_are_kept_while_it_is_unreachable() -> None:
    trace = covey.replay({**CHANGING, "policy": {"slices": 1}}, **perfect_west(2_000))
    back = np.flatnonzero((trace.learner == 0) & (trace.slot == 1601))

    assert trace.names["phase"][trace.phase[back[0]]] == "exploit"
    assert trace.names["arm"][trace.arm[back[0]]] == "west"


def test_a_file_is_replayed_with_the_same_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.data.tables.ROWS_PER_CHUNK", 300)
    columns = perfect_west(2_000)
    rows = zip(columns["labels"].tolist(), *columns["predictions"].tolist(), strict=True)
    header = ["label", *(f"{name}-f" for name in SITES)]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]))
    outcome = replaying.replay_file(log, config.load(CHANGING))
    trace = covey.replay({**CHANGING, "policy": {"slices": 1}}, **columns)

    assert [one.cost_total for one in outcome.learners] == [
        trace.cost[trace.learner == place].sum() for place in range(3)
    ]


def test_a_link_cost_above_one_warns() -> None:
    with pytest.warns(UserWarning, match="its cost 1.5 is above 1") as caught:
        config.load(linked(one_way("north", "south", 1.5)))

    assert [str(warning.message) for warning in caught] == [
        "the link from 'north' to 'south' is never used: its cost 1.5 is above 1, the value of a "
        "correct label"
    ]


@pytest.mark.parametrize(
    ("links", "sentence"),
    [
        (
            [one_way("north", "suoth")],
            "a link names unknown learner 'suoth'; did you mean 'south'?",
        ),
        (
            [{"between": ["nort", "south"], "cost": 0.5}],
            "a link names unknown learner 'nort'; did you mean 'north'?",
        ),
        (
            [one_way("north", "north")],
            "a link leads from 'north' to itself; remove it",
        ),
        (
            [one_way("north", "south"), {"between": ["south", "north"], "cost": 0.1}],
            "duplicate link from 'north' to 'south'; keep one",
        ),
        (
            [one_way("north", "south"), one_way("north", "south", "gone")],
            "duplicate link from 'north' to 'south'; keep one",
        ),
        (
            [one_way("north", "south", -0.5)],
            "the link from 'north' to 'south' costs -0.5; it must be a number, 0 or more",
        ),
        (
            [one_way("north", "south", math.inf)],
            "the link from 'north' to 'south' costs inf; it must be a number, 0 or more",
        ),
        (
            [one_way("north", "south", "dear")],
            "[[link]] 1 cost is 'dear'; it must be a number or \"gone\"",
        ),
        (
            [{"from": "north", "to": "south"}],
            "[[link]] 1 needs either cost, or cost-column for a learnt cost",
        ),
        (
            [one_way("north", "south", 0.1, **{"cost-column": "toll"})],
            "[[link]] 1 needs either cost, or cost-column for a learnt cost",
        ),
        (
            [one_way("north", "south", 0.1, guess=0.2)],
            "[[link]] 1 has cost and guess; remove one of them",
        ),
        (
            [one_way("north", "south", None, **{"cost-column": "toll", "guess": 1.5})],
            "[[link]] 1 guess is 1.5; it must lie in [0, 1]",
        ),
        (
            [one_way("north", "south", None, **{"cost-colum": "toll"})],
            "unknown key 'cost-colum' in [[link]] 1; did you mean 'cost-column'?",
        ),
        (
            [one_way("north", "south", None, **{"cost-column": 3})],
            "[[link]] 1 cost-column: expected str, got int",
        ),
        (
            [one_way("north", "south", between=["north", "south"])],
            "[[link]] 1 needs either between = [one, other], or from and to",
        ),
        (
            [{"from": "north", "cost": 0.1}],
            "[[link]] 1 needs either between = [one, other], or from and to",
        ),
        (
            [{"between": ["north", "south", "west"], "cost": 0.1}],
            "[[link]] 1 between: expected array of length 2, got 3",
        ),
        (
            [{"form": "north", "to": "south", "cost": 0.1}],
            "unknown key 'form' in [[link]] 1; did you mean 'from'?",
        ),
        ([0.5], "[[link]] 1 is not a table of keys and values"),
    ],
)
def test_a_wrong_link_is_one_sentence(links: list[Any], sentence: str) -> None:
    assert sentence_of(linked(*links)) == sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            [one_way("west", "south", slot=5)],
            "[[link-change]] 1: no [[link]] from 'west' to 'south'; add one, with "
            'cost = "gone" if it is initially absent',
        ),
        (
            [one_way("west", "suoth", slot=5)],
            "a link names unknown learner 'suoth'; did you mean 'south'?",
        ),
        (
            [one_way("north", "south", slot=9), one_way("north", "south", 0.1, slot=8)],
            "[[link-change]] 2 slot is 8, but the previous one is 9; list changes in order",
        ),
        (
            [one_way("north", "south", slot=9), one_way("north", "south", "gone", slot=9)],
            "[[link-change]] 2: duplicate change of the link from 'north' to 'south' at slot 9; "
            "keep one",
        ),
        (
            [one_way("south", "north", "gone", slot=9)],
            "[[link-change]] 1: the link from 'south' to 'north' is already gone; set a cost, "
            "or remove the change",
        ),
        (
            [one_way("north", "south", slot=1)],
            "[[link-change]] 1 slot is 1; it must be 2 or more ([[link]] sets the initial cost)",
        ),
        (
            [one_way("north", "south", math.nan, slot=9)],
            "the link from 'north' to 'south' costs nan; it must be a number, 0 or more",
        ),
        ([one_way("north", "south")], "[[link-change]] 1: missing required field slot"),
        (
            [one_way("west", "north", 0.1, slot=9)],
            "[[link-change]] 1: the cost of the link from 'west' to 'north' is learnt from 'toll'; "
            "remove the change, or set a cost for the link",
        ),
        (
            [one_way("north", "south", slot=9, **{"cost-column": "toll"})],
            "unknown key 'cost-column' in [[link-change]] 1; known: between, cost, from, slot, to",
        ),
        (
            [one_way("north", "south", slot="soon")],
            "[[link-change]] 1 slot: expected int, got str",
        ),
    ],
)
def test_a_wrong_change_is_one_sentence(changes: list[dict[str, Any]], sentence: str) -> None:
    links = [
        one_way("north", "south"),
        one_way("south", "north", "gone"),
        {"from": "west", "to": "north", "cost-column": "toll"},
    ]

    assert sentence_of(linked(*links, changes=changes)) == sentence


def test_tables_of_links_are_lists() -> None:
    assert sentence_of(table_of("", link={})) == "[[link]] must be a list of tables"


def test_changes_need_links() -> None:
    changes = [one_way("north", "south", slot=5)]

    assert sentence_of(table_of("", **{"link-change": changes})) == (
        "[[link-change]] without [[link]]; list the links first"
    )


def test_peers_and_links_together_are_rejected() -> None:
    table = linked(one_way("north", "south"))
    table["learner"][1]["peers"] = {"north": 0.5}

    assert sentence_of(table) == (
        "learner 'south' has peers, but prices come from [[link]] tables; remove one"
    )
