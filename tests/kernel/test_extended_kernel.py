"""The kernel decides what the reference decides with every extension on; the reference by hand."""

from typing import Any

import pytest
from hypothesis import given, settings

import reference
from reference import Lesson, Network, Row, Setup, Site
from reference.records import Cell, History, Tally
from support.effort import effort
from support.networks import Case, crowded_case, extended_cases, kernel_rows, reference_rows

ONCE = (0.0, 0.0)  # a limit of 0: everything is tried once


@settings(max_examples=effort(100, plain=60, long=300))
@given(case=extended_cases())
def test_every_extended_decision_equals_that_of_the_reference(case: Case) -> None:
    assert kernel_rows(case) == reference_rows(case)


@pytest.mark.parametrize("seed", range(12))
def test_the_kernel_keeps_to_the_reference_where_everybody_asks_everybody(seed: int) -> None:
    case = crowded_case(seed)

    assert kernel_rows(case) == reference_rows(case)


def site(name: str, functions: int = 1, **changes: Any) -> Site:
    given = {"costs": (0.0,) * functions, "arrivals": True, "peers": ()}
    return Site(name, functions, **(given | changes))


def setup(*sites: Site, **changes: Any) -> Setup:
    given: dict[str, Any] = {
        "zooming": False,
        "slices": 2,
        "split_scale": 1.0,
        "split_power": 1.0,
        "level_offset": 0,
        "explore": ONCE,
        "train": ONCE,
        "explore_peers": ONCE,
        "order": "own-train-peers",
        "helper": "explore-first",
        "count": "arrivals",
        "askers": "all",
        "hidden_from": "all",
        "pending": False,
        "label_wait": None,
    }
    return Setup(sites, **(given | changes))


def of_north(rows: list[Row]) -> list[tuple[str, int, int, int | None]]:
    return [(row.phase, row.arm, row.function, row.correct) for row in rows if row.site == 0]


# -- candidates --------------------------------------------------------------------------------


def test_the_first_candidate_with_something_to_try_decides_and_then_the_best_estimate() -> None:
    two = setup(site("north", 2, spaces=(0, 1)), spaces=((0,), (1,)))
    low, high = (0.1, 0.1), (0.1, 0.9)

    rows = reference.replay(
        two,
        contexts=[low, low, high, high, high, low],
        predictions=[[1, 1, 0, 0, 0, 1], [0, 0, 1, 1, 1, 0]],  # which is right: x1 says it
        labels=[1] * 6,
    )

    assert [(row.cell, row.phase, row.arm) for row in rows] == [
        ("x0/g2:0", "explore", 0),
        ("x0/g2:0", "explore", 1),
        ("x1/g2:1", "explore", 0),
        ("x1/g2:1", "explore", 1),
        ("x1/g2:1", "exploit", 1),
        ("x1/g2:0", "exploit", 0),
    ]


def test_each_candidate_splits_by_itself_and_the_one_without_coordinates_never() -> None:
    zooming = setup(site("north", spaces=(0, 1)), spaces=((), (0,)), zooming=True)

    rows = reference.replay(zooming, contexts=[(0.1,)] * 5, predictions=[[1] * 5], labels=[1] * 5)

    # Level 0 of x0 is full after one arrival, level 1 after two; of equals the first is taken.
    assert [row.cell for row in rows] == ["/z0", "x0/z1:0", "/z0", "x0/z2:0", "/z0"]


def test_a_request_counts_and_teaches_in_all_cells_of_the_asker_and_in_none_of_the_peers() -> None:
    north = site("north", spaces=(0, 1), peers=((1, 0.0),))
    network = Network(setup(north, site("south", spaces=(2,)), spaces=((0,), (1,), (0, 1))))
    for cell in (Cell(0, 2, (0,)), Cell(1, 2, (1,))):
        network.record(0, cell, 1).arms[0].labels = 1

    asked = network.decide(0, (0.1, 0.9), 1, [0, 0])
    network.end_slot(asked)
    network.learn(asked, Lesson("yes", right=True, paid=0))

    assert (asked.phase, asked.owner) == ("train", 1)
    assert {
        cell: (record.arrivals, record.own_arrivals, record.arms[0].right, record.history.counts)
        for cell, record in network.known[1].items()
    } == {cell: (1, 0, 1, {"yes": 1}) for cell in asked.cells}


def test_an_asked_peer_explores_in_the_first_cell_that_needs_it_and_then_trusts_the_best() -> None:
    network = Network(setup(site("north"), site("south", 2), spaces=((0,), (1,))))
    cells = (Cell(0, 2, (0,)), Cell(1, 2, (0,)))
    first, second = (network.record(1, cell, 1) for cell in cells)
    first.arms = [Tally(labels=4, right=2), Tally(labels=4, right=3)]
    second.arms = [Tally(labels=4, right=3), Tally()]

    explored = network.assist(1, cells, 1)
    second.arms[1] = Tally(labels=1)
    tied = network.assist(1, cells, 1)
    second.arms[0].right = 4
    surer = network.assist(1, cells, 1)

    assert (explored, tied, surer) == (1, 1, 0)


def test_without_labels_the_largest_word_over_all_candidates_is_taken() -> None:
    north = site("north", spaces=(0, 1), peers=((1, 0.125),), supervised=False)
    network = Network(setup(north, site("south"), spaces=((0,), (1,))))
    second = Cell(1, 2, (0,))
    network.record(1, second, 1).arms[0] = Tally(labels=2, right=1)

    decision = network.decide(0, (0.1, 0.1), 1, [0, 0])

    assert (decision.phase, decision.arm, decision.cell) == ("exploit", 1, second)


# -- context only ------------------------------------------------------------------------------


def test_a_reader_answers_the_label_that_leads_where_it_has_seen_labels() -> None:
    rows = reference.replay(
        setup(site("north", readers=((1, 0.5),)), site("south")),
        contexts=[(0.1,)] * 3,
        predictions=[[0] * 3, [1] * 3],
        labels=[1] * 3,
    )

    # Own functions first, then the reader, whose answers bear the number 2 + 0.
    assert of_north(rows) == [("explore", 0, 0, 0), ("explore", 1, 2, 1), ("exploit", 1, 2, 1)]


def test_a_reader_without_labels_counts_as_wrong_and_the_own_function_learns_nothing() -> None:
    north = site("north", 2, costs=(1.0, 0.5), readers=((1, 0.0),))
    rows = reference.replay(
        setup(north, site("south", arrivals=False)),
        contexts=[(0.1,)] * 5,
        predictions=[[1] * 5, [0, 0, 1, 1, 1], [0] * 5],
        labels=[1] * 5,
    )

    # Own estimates stay 1 - 1 and 0 - 0.5: at slot 3 the first of them answers. The reader has
    # been told that label by slot 4, but its estimate is 0 - 0, no more than that of the first.
    assert of_north(rows) == [
        ("explore", 0, 0, 1),
        ("explore", 1, 1, 0),
        ("explore", 2, 0, 1),
        ("exploit", 0, 0, 1),
        ("exploit", 0, 0, 1),
    ]


def test_a_context_request_leaves_no_arrival_and_no_pending_label_at_the_reader() -> None:
    north = site("north", readers=((1, 0.0),))
    network = Network(setup(north, site("south"), pending=True))
    cell = Cell(0, 2, (0,))
    network.record(0, cell, 1).arms[0].labels = 1

    asked = network.decide(0, (0.1,), 1, [0, 0])
    network.end_slot(asked)
    under_way = network.known[0][cell].arms[1].under_way
    network.learn(asked, Lesson("yes", right=False, paid=0))

    south = network.known[1][cell]
    assert (asked.phase, asked.owner, asked.leader, asked.instead) == ("explore", 1, None, 0)
    assert under_way == 1
    assert network.known[0][cell].arms[1] == Tally(labels=1, times=1)
    assert (south.arrivals, south.arms, south.history.counts) == (0, [Tally()], {"yes": 1})


def test_of_several_cells_the_one_with_the_largest_share_answers() -> None:
    network = Network(setup(site("north"), site("south"), spaces=((0,), (1,), (0, 1))))
    cells = (Cell(0, 2, (0,)), Cell(1, 2, (0,)), Cell(2, 2, (0, 0)))
    said = [network.leader(1, cells, 1)]
    for cell, labels in zip(cells[1:], ("aab", "ccd"), strict=True):
        for label in labels:
            network.known[1][cell].history.take(label)
    said.append(network.leader(1, cells, 1))
    network.known[1][cells[2]].history.take("c")
    said.append(network.leader(1, cells, 1))

    assert said == [None, "a", "c"]


def test_a_label_leads_until_another_has_strictly_more() -> None:
    history = History()
    leaders = []
    for label in "abba":
        history.take(label)
        leaders.append(history.leader)

    assert leaders == ["a", "a", "b", "b"]
    assert history.share == 0.5


def test_without_labels_a_reader_is_worth_its_share_after_the_price() -> None:
    north = site("north", readers=((1, 0.125),), supervised=False)
    network = Network(setup(north, site("south")))
    network.record(0, Cell(0, 2, (0,)), 1).arms[0] = Tally(labels=2, right=1)
    arms = []
    for label in "abaaa":
        arms.append(network.decide(0, (0.1,), 1, [0, 0]).arm)
        network.known[1][Cell(0, 2, (0,))].history.take(label)

    # Shares 0, 1, 1/2, 2/3, 3/4 against an own accuracy of 1/2.
    assert arms == [0, 1, 0, 1, 1]


# -- busy peers --------------------------------------------------------------------------------


def busy_rows(patience: int | None, label_wait: int | None = None) -> list[Any]:
    north = site("north", peers=((1, 0.0),), patience=patience)
    rows = reference.replay(
        setup(north, site("south"), label_wait=label_wait),
        contexts=[(0.1,)] * 6,
        predictions=[[0] * 6, [1] * 6],
        labels=[1] * 6,
        busy=[(0, 3)] * 6,
    )
    return of_north(rows)


def test_the_label_of_an_answer_that_is_three_slots_late_counts_three_slots_later() -> None:
    assert busy_rows(None) == [
        ("explore", 0, 0, 0),
        *[("explore", 1, 1, 1)] * 4,
        ("exploit", 1, 1, 1),
    ]


def test_a_site_that_does_not_wait_answers_itself_and_still_learns_about_the_peer() -> None:
    assert busy_rows(2) == [("explore", 0, 0, 0), *[("explore", 1, 0, 0)] * 4, ("exploit", 1, 0, 0)]
    assert busy_rows(3) == busy_rows(None)


def test_an_answer_later_than_the_label_wait_teaches_nothing() -> None:
    assert busy_rows(None, label_wait=2) == [("explore", 0, 0, 0), *[("explore", 1, 1, 1)] * 5]


# -- random costs ------------------------------------------------------------------------------


def test_costs_are_learnt_with_the_reward_by_the_mean_of_what_was_paid() -> None:
    rows = reference.replay(
        setup(site("north", 2, cost_columns=(0, None))),
        contexts=[(0.1,)] * 6,
        predictions=[[1] * 6, [1, 1, 0, 0, 0, 0]],
        labels=[1] * 6,
        paid=[[0.75] * 6],
    )

    # The first is worth 1 - 3/4; the second 1, 1/2, 1/3 and then 1/4, when the lowest is taken.
    assert [row.arm for row in rows] == [0, 1, 1, 1, 1, 0]


def test_only_what_was_paid_for_a_label_that_the_asker_holds_against_the_arm_is_learnt() -> None:
    north = site("north", peers=((1, 0.0),), cost_columns=(None, 0))
    network = Network(setup(north, site("south")))
    cell = Cell(0, 2, (0,))
    network.record(0, cell, 1).arms[0].labels = 1

    phases = []
    for _ in range(2):
        asked = network.decide(0, (0.1,), 1, [0, 0])
        network.end_slot(asked)
        network.learn(asked, Lesson(1, right=True, paid=250_000))
        phases.append(asked.phase)

    assert phases == ["train", "explore"]
    assert network.known[1][cell].arms[0] == Tally(labels=2, right=2)
    assert network.known[0][cell].arms[1] == Tally(labels=1, right=1, spent=250_000, times=1)
    assert network.estimates(0, cell)[1] == 0.75
