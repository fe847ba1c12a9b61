"""Links: prices against brute force over all paths, changes, learnt costs, invalid input."""

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bandit.links import Change, Links, price_changes
from covey.errors import ConfigError

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


def test_no_learner_is_its_own_peer() -> None:
    assert triangle().price("a", "a") is None


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

    assert price_changes(triangle(), swap) == [
        Change(7, "a", "b", 0.5),
        Change(7, "b", "c", 0.25),
        Change(9, "a", "b", None),
        Change(9, "a", "c", 0.9),
    ]


def test_price_changes_does_not_modify_the_links() -> None:
    links = triangle()
    before = links.prices()
    price_changes(links, [Change(2, "a", "b", None)])

    assert links.prices() == before


def test_a_copy_is_independent() -> None:
    links = unknown()
    deepcopy(links).learn({("a", "b"): (0.5, 1)})

    assert links.price("a", "b") == 0.0


def test_an_unknown_link_begins_with_a_guess() -> None:
    assert unknown(0.3).price("a", "b") == 0.3


def test_an_expensive_learnt_link_is_avoided() -> None:
    links = Links(["a", "b", "c"], [("a", "b", 0.25), ("b", "c", 0.5)], learnt=[("a", "c", 0.0)])
    untried = links.path("a", "c")
    links.learn({("a", "c"): (0.8, 1)})

    assert untried == ("a", "c")
    assert (links.path("a", "c"), links.price("a", "c")) == (("a", "b", "c"), 0.75)


def test_a_learnt_cost_is_the_mean_of_the_observed_costs() -> None:
    links = unknown(0.9)
    links.learn({("a", "b"): (0.25, 1)})
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
    (lambda links: links.learn({("a", "b"): (0.0, 1), ("c", "a"): (0.1, 1)}), "'a'; add it first"),
    (
        lambda links: links.apply([Change(2, "a", "b", 0.0), Change(2, "c", "a", None)]),
        "no link from 'c' to 'a'; add it first",
    ),
    (
        lambda links: links.apply([Change(2, "a", "b", 0.0), Change(2, "x", "a", 0.5)]),
        "unknown learner 'x'; known: a, b, c",
    ),
    (lambda links: links.price("a", "x"), "unknown learner 'x'; known: a, b, c"),
    (lambda links: links.path("x", "a"), "unknown learner 'x'; known: a, b, c"),
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
