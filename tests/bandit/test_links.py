"""Links: prices against brute force over all paths, changes, learnt costs, tables, bad input."""

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey import config
from covey.bandit.links import Change, LinkPrices, Links, SitePrices, check_cost, price_changes
from covey.errors import ConfigError, DataError

NAMES = ("a", "b", "c", "d", "e")
PAIRS = list(itertools.permutations(NAMES, 2))
COSTS = st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0, 1.5])
GRAPHS = st.dictionaries(st.sampled_from(PAIRS), COSTS, max_size=12)

Graph = dict[tuple[str, str], float]


def links_of(graph: Graph) -> Links:
    return Links(NAMES, [(*pair, cost) for pair, cost in graph.items()])


def along(graph: Graph, path: Sequence[str]) -> float:
    """Return the costs of a path, added link by link: `sum` is more exact from Python 3.12 on."""
    return reduce(operator.add, (graph[step] for step in itertools.pairwise(path)), 0.0)


def cheapest(graph: Graph, asker: str, peer: str) -> float | None:
    """Return the price by trying every simple path."""
    others = [name for name in NAMES if name not in (asker, peer)]
    paths = (
        [asker, *between, peer]
        for count in range(len(others) + 1)
        for between in itertools.permutations(others, count)
    )
    sums = [
        along(graph, path)
        for path in paths
        if all(step in graph for step in itertools.pairwise(path))
    ]
    return min((total for total in sums if total <= 1), default=None)


def triangle() -> Links:
    """Make a chain a - b - c of mutual links, and a dear way from a to c."""
    chain = [("a", "b", 0.25), ("b", "a", 0.25), ("b", "c", 0.5), ("c", "b", 0.5)]
    return Links(["a", "b", "c"], [("a", "c", 0.9), *chain])


def unknown(guess: float = 0.0) -> Links:
    return Links(["a", "b"], learnt=[("a", "b", guess)])


@given(GRAPHS)
def test_the_price_is_the_cost_of_the_cheapest_path(graph: Graph) -> None:
    links = links_of(graph)

    assert {pair: links.price(*pair) for pair in PAIRS} == {
        pair: cheapest(graph, *pair) for pair in PAIRS
    }


@given(GRAPHS)
def test_the_links_of_the_path_add_up_to_the_price(graph: Graph) -> None:
    links = links_of(graph)

    for pair, price in links.prices().items():
        path = links.path(*pair)
        assert path is not None
        assert (path[0], path[-1]) == pair
        assert along(graph, path) == price


@given(GRAPHS, st.lists(st.tuples(st.sampled_from(PAIRS), st.none() | COSTS), max_size=8))
def test_changed_links_have_the_same_prices_as_new_links(
    graph: Graph, steps: list[tuple[tuple[str, str], float | None]]
) -> None:
    links, now = links_of(graph), dict(graph)
    for pair, cost in steps:
        before = {one: links.price(*one) for one in PAIRS}
        if cost is not None:
            now[pair] = cost
        elif now.pop(pair, None) is None:
            continue
        moved = links.apply([Change(1, *pair, cost)])
        after = {one: links.price(*one) for one in PAIRS}
        assert moved == {one: after[one] for one in PAIRS if after[one] != before[one]}

    assert links.prices() == links_of(now).prices()


def test_a_peer_is_reachable_up_to_a_price_of_one() -> None:
    links = Links(["a", "b", "c"], [("a", "b", 1.0), ("b", "c", 1.25)])

    assert (links.price("a", "b"), links.price("b", "c"), links.path("b", "c")) == (1.0, None, None)
    assert triangle().price("a", "a") is None  # no learner is its own peer


def test_a_removed_link_leaves_the_next_cheapest_path_or_none() -> None:
    moved = triangle().apply([Change(1, "b", "c", None), Change(1, "c", "b", None)])

    assert moved == {
        ("a", "c"): 0.9,
        ("b", "c"): None,
        ("c", "a"): None,
        ("c", "b"): None,
    }


def test_changes_of_one_slot_happen_at_once() -> None:
    swap = [Change(7, "a", "b", 0.5), Change(7, "b", "c", 0.25), Change(9, "a", "b", None)]

    links = triangle()
    assert price_changes(links, swap) == [
        Change(7, "a", "b", 0.5),
        Change(7, "b", "c", 0.25),
        Change(9, "a", "b", None),
        Change(9, "a", "c", 0.9),
    ]
    assert links.prices() == triangle().prices()  # nothing has changed yet


def test_an_expensive_learnt_link_is_avoided() -> None:
    links = Links(["a", "b", "c"], [("a", "b", 0.25), ("b", "c", 0.5)], learnt=[("a", "c", 0.0)])
    untried = links.path("a", "c")
    links.learn({("a", "c"): (0.8, 1)})

    assert untried == ("a", "c")
    assert (links.path("a", "c"), links.price("a", "c")) == (("a", "b", "c"), 0.75)


def test_a_learnt_cost_is_the_mean_of_the_observed_costs() -> None:
    links = unknown(0.9)
    assert links.price("a", "b") == 0.9  # a guess, before the first one
    links.learn({("a", "b"): (0.25, 1)})
    deepcopy(links).learn({("a", "b"): (0.5, 1)})
    links.learn({("a", "b"): (1.75, 3)})

    assert links.cost("a", "b") == 0.5


def test_a_known_cost_ignores_observed_costs() -> None:
    assert triangle().learn({("a", "b"): (0.9, 1), ("b", "c"): (0.9, 1)}) == {}


WRONG: list[tuple[Callable[[Links], Any], str]] = [
    (lambda links: links.apply([Change(1, "a", "a", 0.1)]), "to itself; remove it"),
    (
        lambda links: Links(["a", "b"], [("a", "b", 0.1)], learnt=[("a", "b", 0.1)]),
        "duplicate link from 'a' to 'b'; keep one",
    ),
    (
        lambda links: links.apply([Change(2, "x", "a", 0.5)]),
        "unknown learner 'x'; known: a, b, c",
    ),
]


@pytest.mark.parametrize(("call", "words"), WRONG)
def test_an_invalid_change_is_rejected_and_changes_nothing(
    call: Callable[[Links], Any], words: str
) -> None:
    links = triangle()
    with pytest.raises(ConfigError, match=words):
        call(links)

    assert links.prices() == triangle().prices()
    assert links.apply([Change(1, "a", "c", 0.8)]) == {}


@pytest.mark.parametrize("cost", [-0.1, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "call",
    [
        lambda cost: Links(["a", "b"], [("a", "b", cost)]),
        unknown,
        lambda cost: Links(["a", "b"]).apply([Change(2, "a", "b", cost)]),
    ],
)
def test_a_cost_is_a_finite_number_of_zero_or_more(
    call: Callable[[float], Any], cost: float
) -> None:
    with pytest.raises(ConfigError, match=f"costs {cost}; it must be a number, 0 or more"):
        call(cost)


def test_paths_lead_through_relays_only() -> None:
    chain = [("a", "b", 0.1), ("b", "c", 0.1), ("c", "d", 0.1)]

    assert Links("abcd", chain).path("a", "d") == ("a", "b", "c", "d")
    assert Links("abcd", chain, relays="b").path("a", "c") == ("a", "b", "c")
    assert deepcopy(Links("abcd", chain, relays="b")).path("a", "d") is None
    assert Links("abcd", chain, relays="").prices().keys() == {("a", "b"), ("b", "c"), ("c", "d")}


def test_of_paths_with_the_same_cost_the_shortest_is_used() -> None:
    around = [("z", "a", 0.25), ("a", "m", 0.25), ("z", "b", 0.5), ("b", "m", 0.0)]

    assert Links("zabm", [*around, ("z", "m", 0.5)]).path("z", "m") == ("z", "m")
    assert Links("zabm", around).path("z", "m") == ("z", "a", "m")


SITES = ("north", "south", "west")


def linked(*links: dict[str, Any], changes: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    learners = [{"name": name, "functions": [f"{name}-f"]} for name in SITES]
    later = {"link-change": list(changes)} if changes else {}
    return {"learner": learners, "link": list(links), **later}


def one_way(start: str, end: str, cost: Any = 0.5, **more: Any) -> dict[str, Any]:
    return {"from": start, "to": end, "cost": cost, **more}


def chain(**more: Any) -> dict[str, Any]:
    """Link north and south both ways and south to west; all of it changes, and west's way back."""
    near = {"between": ["north", "south"]}
    return more | linked(
        {**near, "cost": 0.25},
        one_way("south", "west", 0.5),
        one_way("west", "north", "gone"),
        changes=[
            {**near, "cost": 0.125, "slot": 1000},
            one_way("west", "north", 0.75, slot=2000),
            one_way("south", "west", "gone", slot=2000),
        ],
    )


def test_prices_are_those_of_cheapest_paths_and_a_peer_without_a_path_yet_is_a_closed_arm() -> None:
    north, south, west = config.load(chain()).sites

    assert (north.peers, north.costs) == ((1, 2), (0.0, 0.25, 0.75))
    assert (south.peers, south.costs) == ((0, 2), (0.0, 0.25, 0.5))
    assert (west.peers, west.costs) == ((0, 1), (0.0, math.inf, math.inf))
    fixed = config.load(linked())
    assert [site.peers for site in fixed.sites] == [(), (), ()]
    assert fixed.wiring is not None
    assert not fixed.wiring.is_moving


def moves(setup: config.NetworkConfig, slot: int) -> list[tuple[str, str, float]]:
    """Return what costs something else at a slot than at first: asker, peer and cost."""
    moved: list[tuple[str, str, float]] = []
    for learner in config.learners_of(setup, 0, links=setup.links()):
        assert learner.prices is not None
        learner.prices.apply(lambda *peer, name=learner.name: moved.append((name, *peer)), slot)
    return sorted(moved)


def test_arms_are_repriced_as_links_change() -> None:
    setup = config.load(chain())
    near = [("north", "south", 0.125), ("south", "north", 0.125)]
    gone = [("north", "west", math.inf), ("south", "west", math.inf)]

    assert moves(setup, 999) == []
    assert moves(setup, 1000) == sorted([*near, ("north", "west", 0.625)])
    changed = [("west", "north", 0.75), ("west", "south", 0.875)]
    assert moves(setup, 2000) == sorted([*near, *gone, *changed])


def test_prices_keep_serving_costs_when_a_link_changes() -> None:
    table = chain(policy={"carry-serving-costs": True})
    table["learner"][1]["serving-cost"] = 0.0625
    setup = config.load(table)

    assert setup.sites[0].costs == (0.0, 0.3125, 0.75)
    assert moves(setup, 1000) == [
        ("north", "south", 0.1875),
        ("north", "west", 0.625),
        ("south", "north", 0.125),
    ]


def test_learners_without_peers_are_not_repriced() -> None:
    setup = config.load(chain(policy={"preset": "cos", "reading": "paper"}))

    assert {asker for asker, _, _ in moves(setup, 1000)} == {"north"}


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
        one_way("north", "west", 0.5, slot=2),
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


TOLLED = linked(
    {"from": "north", "to": "west", "cost-column": "direct", "guess": 0.5},
    {"from": "north", "to": "south", "cost-column": "detour", "guess": 0.125},
    one_way("south", "west", 0.25),
    changes=[one_way("south", "west", 0.75, slot=31)],
)


def prices_of(table: dict[str, Any], every: int = 10, wait: int = 5) -> SitePrices:
    """Return the prices of north's peers, learnt every so many slots."""
    wiring = config.load(table).wiring
    assert wiring is not None
    carried = {"south": 0.0, "west": 0.0}
    return SitePrices(LinkPrices(wiring, every), "north", carried, label_wait=wait)


def told(prices: SitePrices, slot: int) -> dict[str, float]:
    """Return the costs that change at a slot; what is due says the same before."""
    due, moved = prices.due(slot), dict[str, float]()
    assert prices.apply(moved.__setitem__, slot) == bool(moved)
    assert moved == due
    return moved


def test_prices_are_learnt_in_the_first_slot_of_each_period_and_change_at_given_slots() -> None:
    prices = prices_of(TOLLED)
    prices.observe("west", 3, {"direct": 0.9, "detour": 0.375})  # by south: only detour is used

    assert [prices.links.next_slot(slot) for slot in (1, 10, 11, 30)] == [11, 11, 21, 31]
    assert (told(prices, 10), told(prices, 11)) == ({}, {"south": 0.375, "west": 0.5})
    prices.observe("west", 10, {"direct": 0.125, "detour": 0.625})  # of before: by south again
    prices.observe("west", 11, {"direct": 0.75, "detour": 0.0})  # now on the direct link
    assert told(prices, 21) == {"south": 0.5, "west": 0.75}
    assert told(prices, 31) == {}

    prices = prices_of(TOLLED, every=1)
    prices.observe("south", 1, {"detour": 0.5})
    assert told(prices, 2) == {"south": 0.5, "west": 0.5}


@pytest.mark.parametrize(("wait", "is_kept"), [(10, True), (9, False)])
def test_the_path_of_a_request_is_known_until_its_label_expires(wait: int, is_kept: bool) -> None:
    prices = prices_of(TOLLED, wait=wait)
    prices.observe("west", 1, {"detour": 0.375})
    told(prices, 11)  # west is asked directly from now on, and by south again from 21 on
    prices.observe("west", 11, {"direct": 0.75})
    told(prices, 21)
    prices.observe("west", 5, {"detour": 0.5})

    assert [link[:2] for link in prices.state().links.seen] == [("north", "south")] * is_kept


def test_restored_prices_are_those_that_were_paid_and_are_learnt_on() -> None:
    prices, again, fresh = (prices_of(TOLLED) for _ in range(3))
    prices.observe("west", 3, {"detour": 0.375})
    told(prices, 11)
    prices.observe("south", 12, {"detour": 0.75})
    prices.links.advance(21)  # another site has come there: its price is paid from the next slot on
    paid: dict[str, float] = {}
    again.restore(prices.state(), paid.__setitem__)

    assert paid == {"south": 0.375, "west": 0.5}
    assert told(again, 21) == told(prices, 21) == {"south": 0.5625}
    assert again.state() == prices.state()
    fresh.restore(again.state(), paid.__setitem__)
    assert fresh.state() == again.state()


@pytest.mark.parametrize(
    ("cost", "arms", "links", "sentence"),
    [
        ({"fe": 0.1}, ["fee"], ["toll"], "has no cost column 'fe'; did you mean 'fee'"),
        ({"toll": 1.5}, ["fee"], ["toll"], "the cost of 'toll' is 1.5; it must lie in"),
        ({"toll": -0.1}, [], ["toll"], "the cost of 'toll' is -0.1; it must lie in"),
        ({"toll": "dear"}, [], ["toll"], "the cost of 'toll' is 'dear'; it must lie in"),
        (1.5, ["fee"], [], "the cost is 1.5; it must lie in"),
        (-0.5, ["fee"], [], "the cost is -0.5; it must lie in"),
        (0.5, [], [], "has no cost-columns, and learns no costs; add them"),
        (0.5, [], ["toll"], 'send costs of links by column, like {"toll": 0.1}'),
    ],
)
def test_a_cost_is_one_number_from_0_to_1_or_one_for_each_column(
    cost: Any, arms: list[str], links: list[str], sentence: str
) -> None:
    with pytest.raises(DataError) as refused:
        check_cost(cost, arms, links, learner="north")

    assert sentence in str(refused.value)
    for valid in (0.0, 1.0, {"fee": 1.0, "toll": 0}):
        check_cost(valid, ["fee"], ["toll"], learner="north")
