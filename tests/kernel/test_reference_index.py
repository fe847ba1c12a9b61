"""The reference of the index policies, worked by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import Decision, Lesson, Site
from reference.alarm import DOUBTS, Doubt, surprise
from reference.elimination import CosCe
from reference.index import ONE, PRESETS, Balance, MultiResolution
from reference.owners import OnceNetwork, index_setup, klucb, rounded_slot
from reference.records import MILLION, Cell, Record, Tally

pytestmark = pytest.mark.beside_the_kernel

HERE = Cell(0, 1, (0,))  # the one cell of a grid of one slice
RIGHT = Lesson(1, right=True, paid=0)
WRONG = Lesson(1, right=False, paid=0)


def site(name: str, functions: int = 1, **changes: Any) -> Site:
    given = {"costs": (0.0,) * functions, "arrivals": True, "peers": ()}
    return Site(name, functions, **(given | changes))


def network(preset: str, *sites: Site, once: bool = True, **changes: Any) -> Any:
    made = index_setup(preset, sites, **({"slices": 1} | changes))
    return PRESETS[preset](made, counts_once=once)


def decide(of: OnceNetwork, place: int, slot: int, context: tuple[float, ...] = (0.1,)) -> Decision:
    return of.decide(place, context, slot, [0] * len(of.setup.sites))


# -- the index ---------------------------------------------------------------------------------


def true_bound(a: float, b: float) -> float:
    """The largest q in [a, 1] with kl(a, q) <= b, by bisection."""
    low, high = a, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(a, middle) <= b else (low, middle)
    return low


def divergence(a: float, q: float) -> float:
    yes = a * math.log(a / q) if a > 0 else 0.0
    if a == 1:
        return yes
    return math.inf if q == 1 else yes + (1 - a) * math.log((1 - a) / (1 - q))


@settings(max_examples=500)
@given(
    labels=st.integers(1, 100_000),
    share=st.floats(0, 1),
    weight=st.floats(1 / ONE, 100_000),
    room=st.one_of(st.just(0.0), st.floats(1e-5, 30)),  # none is between, by slot or by weight
)
def test_the_index_is_an_upper_bound_and_close_to_the_least(
    labels: int, share: float, weight: float, room: float
) -> None:
    a = round(share * labels) / labels
    least = true_bound(a, room / weight)

    # Below: what bisection cannot tell apart where the divergence is near 0. Above: three steps
    # leave up to 5.2e-4, for accuracies near 0.98 and 100,000 labels.
    assert -1e-7 <= klucb(a, weight, room) - least <= 1e-4


@pytest.mark.parametrize(
    ("a", "n", "e", "index"),
    [(1.0, 9, 3.0, 1.0), (0.0, 4, math.log(16), 0.5), (0.5, 7, 0.0, 0.5), (0.5, 1e-9, 5.0, 1.0)],
)
def test_the_index_by_hand(a: float, n: float, e: float, index: float) -> None:
    assert klucb(a, n, e) == pytest.approx(index, abs=1e-15)


def test_a_slot_is_rounded_up_to_five_binary_digits() -> None:
    slots = {1: 1, 31: 31, 32: 32, 33: 34, 63: 64, 100: 100, 101: 104, 1000: 1024, 1025: 1088}

    assert {slot: rounded_slot(slot) for slot in slots} == slots
    assert all(slot <= rounded_slot(slot) < slot * 17 / 16 for slot in range(1, 5_000))


def test_which_labels_an_index_goes_by_is_the_presets() -> None:
    # At slot 16 four wrong labels give 1 - 16 ** (-1 / 4), two give 1 - 16 ** (-1 / 2).
    tally = Tally(4, 0, recent=2 * ONE)
    indices = [
        network(preset, site("north")).index(tally, 16, 0) for preset in ("share-ucb", "discounted")
    ]

    assert indices == pytest.approx([0.5, 0.75])


def test_a_function_whose_labels_are_all_forgotten_may_be_anything() -> None:
    tally = Tally(labels=5, right=0, recent=0)

    assert network("discounted", site("north")).index(tally, 16, 0) == 1.0


@pytest.mark.parametrize("preset", ["share-ucb", "discounted"])
def test_pending_labels_make_an_index_narrower_and_keep_its_middle(preset: str) -> None:
    # At slot 16 four wrong labels give 1 - 16 ** (-1 / 4); so do two, and two under way.
    of = network(preset, site("north"))
    known = Tally(labels=2, recent=2 * ONE)

    assert of.index(known, 16, 2) == pytest.approx(0.5)
    assert of.index(Tally(), 16, 0) == 1.0
    assert of.index(Tally(), 16, 10**9) == pytest.approx(0.5, abs=1e-4)


def test_a_peer_reports_no_pending_labels_and_the_asker_counts_what_it_sent() -> None:
    of = network("share-ucb", site("north", costs=(0.2,), peers=((1, 0.0),)), site("south"))
    of = type(of)(replace(of.setup, pending=True), counts_once=False)
    arms = []
    for slot in range(61, 101):
        decision = decide(of, 0, slot)
        of.end_slot(decision)
        arms.append(decision.arm)

    # By then the own function's 1 - 0.2 is more: kl(1/2, 4/5) is ln(5/4), and 20 times that is
    # ln 86.7. Slot 81 counts as 84, and 80, with 19 under way, as itself: 19 times it is ln 69.4.
    assert arms[:21] == [1] * 20 + [0]
    assert of.reply(1, HERE, 100) == 1.0


# -- owners, helpers and phases ----------------------------------------------------------------


def two_askers(preset: str = "share-ucb", *, once: bool = True) -> Any:
    """North and south ask east, as their own functions cost as much as a right label is worth."""
    ask_east = {"costs": (1.0,), "peers": ((2, 0.0),)}
    return network(
        preset, site("north", **ask_east), site("south", **ask_east), site("east"), once=once
    )


def served_in_a_slot(of: Any, slot: int) -> Tally:
    decisions = [decide(of, place, slot) for place in (0, 1)]
    for decision in decisions:
        of.end_slot(decision)
        of.learn(decision, RIGHT)
    assert [decision.owner for decision in decisions] == [2, 2]
    tally: Tally = of.known[2][HERE].arms[0]
    return tally


def test_an_instance_counts_once_for_a_function_but_for_each_asker_and_as_two_arrivals() -> None:
    shared = two_askers()
    labels = [served_in_a_slot(shared, slot).labels for slot in (1, 2)]

    assert labels == [1, 2]
    assert shared.known[2][HERE].arrivals == 4
    assert [shared.known[place][HERE].arms[1].labels for place in (0, 1)] == [2, 2]


def test_instances_of_ones_own_all_count() -> None:
    assert served_in_a_slot(two_askers(once=False), 1).labels == 2


def test_a_label_that_does_not_count_ages_no_other() -> None:
    once = served_in_a_slot(two_askers("discounted"), 1)
    assert once == Tally(1, 1, recent=ONE, recent_right=ONE)
    aged = served_in_a_slot(two_askers("discounted", once=False), 1)
    assert aged.recent == ONE + int(ONE * 0.99)


def test_own_use_and_a_request_for_the_same_instance_count_once() -> None:
    mixed = network("share-ucb", site("north", costs=(1.0,), peers=((1, 0.0),)), site("south"))
    for decision in [decide(mixed, place, 1) for place in (0, 1)]:
        mixed.learn(decision, RIGHT)

    assert mixed.known[1][HERE].arms[0].labels == 1


def test_a_helper_runs_its_highest_index_whatever_it_costs_it() -> None:
    helper = network("share-ucb", site("north", 3, costs=(0.0, 1.0, 0.0)))
    helper.record(0, HERE, 1).arms = [Tally(9, 3), Tally(9, 8), Tally(9, 8)]

    assert helper.assist(0, (HERE,), 20) == 1
    assert decide(helper, 0, 20).arm == 2


def test_the_arm_with_the_best_estimate_is_exploitation_and_another_is_exploration() -> None:
    alone = network("share-ucb", site("north", 2))
    arms = alone.record(0, HERE, 1).arms
    seen = []
    for tried in (Tally(), Tally(1, 1), Tally(50, 40)):
        arms[:] = [Tally(50, 45), tried]
        decision = decide(alone, 0, 100)
        seen.append((decision.phase, decision.arm))

    assert seen == [("explore", 1), ("exploit", 1), ("exploit", 0)]


def test_without_labels_the_shares_of_right_labels_decide_in_a_tree() -> None:
    asker = site("north", peers=((1, 0.125),), supervised=False)
    heard = network("auto", asker, site("south"), finest_level=0)
    for gain in (0, 1):
        heard.learners[0].add(HERE, 0, gain)
    arms = []
    for gain in (0, 1, 1, 1):  # south is worth 0, 1/2, 2/3 and 3/4, less its price
        heard.learners[1].add(HERE, 0, gain)
        arms.append(decide(heard, 0, 50).arm)

    assert arms == [0, 0, 1, 1]


@pytest.mark.parametrize("preset", sorted({*PRESETS} - {"auto"}))
def test_without_labels_the_best_word_is_taken_and_nothing_is_explored(preset: str) -> None:
    asker = site("north", peers=((1, 0.125),), supervised=False)
    heard = network(preset, asker, site("south"), finest_level=0)
    heard.record(0, HERE, 1).arms[0] = Tally(2, 1)
    decisions = []
    for right in (2, 3):
        heard.record(1, HERE, 1).arms[0] = Tally(4, right)
        decisions.append(decide(heard, 0, 50))

    assert [(made.phase, made.arm) for made in decisions] == [("exploit", 0), ("exploit", 1)]


# -- asking only when needed -------------------------------------------------------------------


def test_an_old_reply_holds_until_it_makes_the_peer_look_best() -> None:
    lazy = network("share-ucb", site("north", peers=((1, 0.0),)), site("south"))
    lazy.record(0, HERE, 1).arms[0] = Tally(4, 0)  # worth 1/2 at slot 16
    lazy.replies[0, HERE, 1] = (0.25, 9)
    own = decide(lazy, 0, 16)
    stale = dict(lazy.replies)
    lazy.replies[0, HERE, 1] = (0.75, 9)
    peer = decide(lazy, 0, 16)

    assert (own.arm, stale) == (0, {(0, HERE, 1): (0.25, 9)})
    assert (peer.arm, lazy.replies) == (1, {(0, HERE, 1): (1.0, 16)})


def test_a_peer_that_disappoints_when_asked_is_passed_over() -> None:
    lazy = network("share-ucb", site("north", peers=((1, 0.0),)), site("south"))
    lazy.record(0, HERE, 1).arms[0] = Tally(4, 0)
    lazy.record(1, HERE, 1).arms[0] = Tally(8, 0)

    assert decide(lazy, 0, 16).arm == 0
    assert lazy.replies == {(0, HERE, 1): (pytest.approx(1 - 16 ** (-1 / 8)), 16)}


# -- all levels at once ------------------------------------------------------------------------


def levels(of: MultiResolution, place: int, arm: int) -> dict[int, tuple[int, int]]:
    """Per side of a cell: the labels of the arm and the arrivals."""
    known = of.known[place].items()
    return {cell.side: (record.arms[arm].labels, record.arrivals) for cell, record in known}


def test_a_request_teaches_the_helper_in_all_levels_and_the_asker_in_the_finest() -> None:
    asker = site("north", costs=(1.0,), peers=((1, 0.0),))
    zoomed = network("multi-resolution", asker, site("south"), finest_level=2)
    asked = decide(zoomed, 0, 1, (0.6,))
    zoomed.end_slot(asked)
    zoomed.learn(asked, RIGHT)

    assert asked.cell == Cell(0, 4, (2,))
    assert levels(zoomed, 0, 1) == {4: (1, 1), 2: (0, 1), 1: (0, 1)}
    assert levels(zoomed, 1, 0) == {4: (1, 1), 2: (1, 0), 1: (1, 0)}


def test_own_labels_move_all_levels_around_the_context() -> None:
    zoomed = network("multi-resolution", site("north"), finest_level=2)
    for slot, context in enumerate([(0.1,), (0.3,), (1.0,)], start=1):
        zoomed.learn(decide(zoomed, 0, slot, context), RIGHT)

    assert {cell[1:]: record.arms[0].labels for cell, record in zoomed.known[0].items()} == {
        (1, (0,)): 3,
        (2, (0,)): 2,
        (2, (1,)): 1,
        (4, (0,)): 1,
        (4, (1,)): 1,
        (4, (3,)): 1,
    }


def test_the_level_that_promises_least_decides() -> None:
    zoomed = network("multi-resolution", site("north"), finest_level=1, lipschitz=0.5)
    fine, whole = Cell(0, 2, (0,)), Cell(0, 1, (0,))
    seen = [zoomed.upper(0, fine, 16)]
    zoomed.known[0][whole].arms[0] = Tally(2, 0)
    seen.append(zoomed.upper(0, fine, 16))
    zoomed.known[0][whole].arms[0] = Tally(4, 0)
    seen.append(zoomed.upper(0, fine, 16))
    zoomed.known[0][fine].arms[0] = Tally(4, 0)
    seen.append(zoomed.upper(0, fine, 16))

    # 1 + 1/4, the same as 3/4 + 1/2 is more, then 1/2 + 1/2, then 1/2 + 1/4.
    assert [value for (value,) in seen] == pytest.approx([1.25, 1.25, 1.0, 0.75])


def test_in_two_dimensions_the_diagonal_counts_and_alpha_bends_it() -> None:
    flat = network("multi-resolution", site("north"), lipschitz=2.0, alpha=0.5)

    assert flat.slack(Cell(0, 8, (1, 2))) == pytest.approx(2 * (math.sqrt(2) / 8) ** 0.5)
    assert flat.slack(Cell(0, 8, ())) == 0


def test_levels_may_be_two_apart_and_slices_leave_one() -> None:
    fine = Cell(0, 8, (5,))
    auto = network("two-sizes", site("north"))
    even = network("two-sizes", site("north"), finest_level=2)
    grid = network("two-sizes", site("north"), zooming=False)

    assert auto.cells_around(fine) == [fine, Cell(0, 2, (1,))]
    assert even.cells_around(Cell(0, 4, (3,))) == [Cell(0, 4, (3,)), Cell(0, 1, (0,))]
    assert (grid.cells_around(fine), grid.slack(fine)) == ([fine], 0.0)


# -- the alarm ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tally", "share", "nats"),
    [
        (Tally(3, 3), 0.0, 0.0),
        (Tally(4, 4), 0.0, math.log(9 / 4)),
        (Tally(4, 0), 0.0, math.log(21 / 20)),
        (Tally(4, 4), 1.0, math.log(3 / 4)),
        (Tally(4, 4), 0.5, math.log(27 / 16) / 2),
    ],
)
def test_the_surprise_by_hand(tally: Tally, share: float, nats: float) -> None:
    assert surprise(tally, share) == pytest.approx(nats * DOUBTS, abs=1)


def alarmed(slots: int = 21, **changes: Any) -> Any:
    """North asks south, who is right twenty times and then wrong: ln(25 / 4) = 1.83."""
    asker = site("north", costs=(1.0,), peers=((1, 0.5),))
    one = network("share-ucb", asker, site("south"), alarm=1.8, **changes)
    for slot in range(1, slots + 1):
        one.learn(decide(one, 0, slot), RIGHT if slot <= 20 else WRONG)
    return one


def test_the_asker_ignores_reports_and_the_helper_resets_its_function() -> None:
    one = alarmed()

    assert one.doubts == [Doubt(is_wary=True, forgotten=21), Doubt(forgotten=21)]
    assert [one.known[place][HERE].arms[1 - place].labels for place in (0, 1)] == [0, 0]


def test_a_wary_learner_opens_no_cell_at_a_peer_it_does_not_use() -> None:
    one = alarmed(slices=2)
    one.known[0][Cell(0, 2, (1,))] = Record(functions=1, peers=1, readers=0, since=22)
    one.known[0][Cell(0, 2, (1,))].arms[1] = Tally(999, 0)
    decision = decide(one, 0, 22, (0.9,))

    assert (decision.arm, list(one.known[1])) == (0, [Cell(0, 2, (0,))])


# -- peers that share nothing ------------------------------------------------------------------


def test_untried_peers_come_first_and_in_order_while_no_label_has_come() -> None:
    blind = network(
        "balance", site("north", peers=((1, 0.5), (2, 0.0))), site("south"), site("east")
    )
    first, again = decide(blind, 0, 1), decide(blind, 0, 2)
    blind.learn(first, WRONG)

    assert (first.arm, again.arm, decide(blind, 0, 3).arm) == (1, 1, 2)


def test_the_width_is_that_of_the_answer_and_counts_when_the_label_comes() -> None:
    blind = network("balance", site("north", peers=((1, 0.0),)), site("south"))
    serving = blind.record(1, HERE, 1).arms
    early = decide(blind, 0, 1)
    serving[0] = Tally(4, 0)
    late = decide(blind, 0, 16)
    serving[0] = Tally(400, 300)
    sums = [blind.widths[0, HERE, 1]]
    for decision in (late, early):
        blind.learn(decision, RIGHT)
        sums.append(blind.widths[0, HERE, 1])

    assert sums == [0, MILLION // 2, MILLION // 2 + MILLION]


def test_the_worth_of_a_blind_peer_by_hand() -> None:
    blind = network("balance", site("north", peers=((1, 0.0),)), site("south"))
    blind.record(0, HERE, 1).arms[1] = Tally(2, 1)
    blind.widths[0, HERE, 1] = MILLION // 2

    assert blind.peer_value(0, HERE, 1, 16) == pytest.approx(0.75 + math.sqrt(math.log(16)))


def test_a_blind_peer_is_asked_nothing_but_the_answer() -> None:
    blind = network("balance", site("north", peers=((1, 0.0),)), site("south"))
    blind.record(0, HERE, 1).arms = [Tally(9, 9), Tally(900, 0)]

    assert isinstance(blind, Balance)
    assert decide(blind, 0, 16).arm == 0
    assert blind.known[1] == {}


# -- elimination -------------------------------------------------------------------------------

TALLIES = st.integers(0, 3_000).flatmap(
    lambda labels: st.builds(Tally, st.just(labels), st.integers(0, labels))
)


@settings(max_examples=200)
@given(
    tallies=st.lists(TALLIES, min_size=1, max_size=5),
    costs=st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=5, max_size=5),
    slot=st.integers(1, 10**6),
    lipschitz=st.sampled_from([1e-3, 0.25, 2.0]),
)
def test_elimination_never_drops_the_only_arm_nor_the_one_with_the_best_lower_bound(
    tallies: list[Tally], costs: list[float], slot: int, lipschitz: float
) -> None:
    costs = costs[: len(tallies)]
    elimination = network(
        "cos-ce", site("north", len(tallies), costs=tuple(costs)), lipschitz=lipschitz
    )
    elimination.record(0, HERE, 1).arms = tallies
    bounds = elimination.bounds(0, HERE, slot)
    lows = [low - cost for (low, _), cost in zip(bounds, costs, strict=True)]
    active = elimination.active(0, HERE, slot)

    assert lows.index(max(lows)) in active
    assert {arm for arm, tally in enumerate(tallies) if tally.labels == 0} <= set(active)


def eliminating(*sites: Site, **changes: Any) -> CosCe:
    made: CosCe = network("cos-ce", *sites, **changes)
    return made


def test_an_arm_is_dropped_when_the_bias_cannot_explain_the_gap() -> None:
    # The radius of 10,000 labels is below 0.01 and the bias 1/4, which counts twice.
    three = eliminating(site("north", 3, costs=(0.0, 0.0, 0.25)))
    three.record(0, HERE, 1).arms = [
        Tally(10_000, 9_000),
        Tally(10_000, 4_500),
        Tally(10_000, 6_000),
    ]

    assert three.active(0, HERE, 1) == [0, 1]


def test_a_peer_is_judged_by_its_own_word_not_by_what_the_asker_saw() -> None:
    asker = site("north", peers=((1, 0.0),))
    two = eliminating(asker, site("south", 2), lipschitz=0.01)
    two.record(0, HERE, 1).arms = [Tally(10_000, 9_000), Tally(10_000, 0)]
    seen = [two.active(0, HERE, 1)]
    two.record(1, HERE, 1).arms[:2] = [Tally(10_000, 0), Tally()]
    seen.append(two.active(0, HERE, 1))
    two.record(1, HERE, 1).arms[1] = Tally(10_000, 0)
    seen.append(two.active(0, HERE, 1))

    assert seen == [[0, 1], [0, 1], [0]]


def test_an_eliminated_arm_is_never_explored_trained_queried_or_exploited() -> None:
    asker = site("north", 2, costs=(0.0, 1.0), peers=((1, 0.0),))
    two = eliminating(asker, site("south"), lipschitz=0.01, explore=(1e6, 0.0), train=(1e6, 0.0))
    two.record(0, HERE, 1).arms = [Tally(10_000, 9_000), Tally(10_000, 9_000), Tally(1, 1)]
    two.record(1, HERE, 1).arms[0] = Tally(10_000, 100)
    two.known[1][HERE].arrivals = 77
    explored = decide(two, 0, 2)
    two.setup = replace(two.setup, explore=(0.0, 0.0))
    exploited = decide(two, 0, 2)

    assert [(made.phase, made.arm) for made in (explored, exploited)] == [
        ("explore", 0),
        ("exploit", 0),
    ]
    assert two.known[0][HERE].training == {2: 0}


def test_thresholds_end_where_the_radius_is_no_more_than_the_bias() -> None:
    # Two slices and slope 3: the bias is 3/2, and ln(2 * 3 * 2 * 300 ** 2) / 4.5 = 3.1.
    huge = {"explore": (1e6, 0.0), "train": (1e6, 0.0), "explore_peers": (1e6, 0.0)}
    asker = site("north", peers=((1, 0.0),))
    capped = eliminating(asker, site("south", 2), lipschitz=3.0, slices=2, **huge)
    cell = Cell(0, 2, (0,))
    seen = []
    for own, arrivals, answers in [(3, 0, 0), (4, 6, 0), (4, 7, 0), (4, 10, 3), (4, 11, 4)]:
        capped.record(0, cell, 1).arms = [Tally(own, own), Tally(answers, 0)]
        capped.record(1, cell, 1).arrivals = arrivals
        decision = decide(capped, 0, 300)
        seen.append((decision.phase, decision.arm))

    # South has two functions, so it is trained up to 6.2 arrivals.
    assert seen == [("explore", 0), ("train", 1), ("explore", 1), ("explore", 1), ("exploit", 0)]


def test_an_eliminating_helper_explores_by_the_plain_threshold() -> None:
    helper = eliminating(site("north", 2), lipschitz=3.0, explore=(10.0, 0.0))
    helper.record(0, HERE, 1).arms = [Tally(1_000, 900), Tally(20, 0)]

    assert [helper.assist(0, (HERE,), slot) for slot in (7, 8)] == [0, 1]


def test_without_coordinates_nothing_is_capped() -> None:
    assert eliminating(site("north")).cap(Cell(0, 1, ()), 5) == math.inf
