"""A learner decides by rows, takes labels, and can undo both."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.learner import NO_ANSWER, Learner
from covey.bandit.policies import DCZA, CoS, PolicyRecord
from covey.errors import ContextError, DataError
from covey.kernel import (
    NOT_DECIDED,
    UNPAID,
    arm_of,
    row_of,
    undecided_row,
)
from covey.kernel.rules import Cell
from covey.types import Loss
from support.snapshots import Snapshot, restore, snapshot_of

ONCE = {"scale": 0.0, "power": 0.0}


def make(
    settings_: PolicyRecord | None = None,
    *,
    functions: tuple[str, ...] = ("a", "b"),
    peers: tuple[str, ...] = (),
    costs: tuple[float, ...] = (),
    dimension: int = 1,
    **more: Any,
) -> Learner:
    policy = (settings_ or CoS(slices=4)).resolve(dimension=dimension, most_functions=2)
    costs = costs or (0.0,) * len(functions) + (0.1,) * len(peers)
    return Learner("north", functions=functions, peers=peers, costs=costs, policy=policy, **more)


def counters(learner: Learner) -> dict[str, list[int]]:
    return dict(snapshot_of(learner).cells)


def decide(
    learner: Learner, context: tuple[float, ...] = (0.1,), arrivals: int = 0, slot: int = 0
) -> tuple[int, int]:
    """Decide at the next slot, or at `slot`; peers report `arrivals`. Return code and slot."""
    slot = slot or learner.slot + 1
    code = learner.decide(context, slot)
    while code < 0:
        row = undecided_row(code)
        for peer in learner.peers_to_query(row, slot):
            learner.receive_report(row, peer, (arrivals, 0.0, 1.0, ()), slot)
        code = learner.resume(row, context, slot)
    learner.advance(slot)
    return code, slot


def learn(learner: Learner, gain: int, context: tuple[float, ...] = (0.1,)) -> None:
    code, slot = decide(learner, context)
    learner.settle(code, gain, context, slot)


def chosen(learner: Learner, code: int) -> tuple[str, str]:
    choice = learner.choice(code)
    return choice.phase, choice.arm


def test_the_first_decision_explores_the_first_function_at_its_cost() -> None:
    learner = make(costs=(0.2, 0.0))

    choice = learner.choice(learner.decide((0.3,), 1))

    assert (choice.phase, choice.arm, choice.price, choice.function) == ("explore", "a", 0.2, 0)


def test_rows_decided_together_are_decided_as_one_by_one() -> None:
    contexts = np.random.default_rng(1).random((40, 1))
    together, single = make(), make()
    codes = np.full(40, NOT_DECIDED, np.int64)

    done = together.decide_rows(contexts, 1, codes)

    assert done == 40
    assert codes.tolist() == [decide(single, tuple(x))[0] for x in contexts.tolist()]
    assert counters(together) == counters(single)


def test_rows_stop_where_peers_must_be_queried() -> None:
    learner = make(CoS(slices=1, explore=ONCE), peers=("south",))
    for _ in range(2):
        learn(learner, 1)
    codes = np.full(3, NOT_DECIDED, np.int64)

    done = learner.decide_rows(np.full((3, 1), 0.1), 3, codes)

    assert (done, codes.tolist()) == (0, [-1, NOT_DECIDED, NOT_DECIDED])


@pytest.mark.parametrize("settings_", [CoS(slices=3, pending=True), DCZA(split_power=1.0)])
def test_rows_settled_together_are_settled_as_one_by_one(settings_: PolicyRecord) -> None:
    contexts = np.random.default_rng(2).random((60, 1))
    together, single = make(settings_), make(settings_)
    slots, codes = np.arange(1, 61), np.full(60, NOT_DECIDED, np.int64)
    for learner in (together, single):
        learner.decide_rows(contexts, 1, codes)
        code = learner.serve(Cell(0, (0,)), 61, "peer")
    gains = slots % 2

    together.settle_rows(contexts, slots, codes, gains)
    together.settle_rows(
        np.empty((1, 0)), np.array([61]), np.array([code]), np.array([1]), space=""
    )
    for k, context in enumerate(contexts.tolist()):
        single.settle(int(codes[k]), int(gains[k]), tuple(context), int(slots[k]))
    single.settle(code, 1, (), 61, space="")

    assert snapshot_of(together) == snapshot_of(single)


def test_what_was_paid_is_learnt_and_nothing_where_nothing_was_seen() -> None:
    learner = make(CoS(slices=1), learns_costs=True)
    slots, codes = np.arange(1, 4), np.full(3, NOT_DECIDED, np.int64)
    learner.decide_rows(np.full((3, 1), 0.1), 1, codes)

    learner.settle(int(codes[0]), 1, (0.1,), 1, 250_000)
    learner.settle(int(codes[1]), 1, (0.1,), 2)
    learner.settle_rows(
        np.full((1, 1), 0.1), slots[2:], codes[2:], np.array([1]), np.array([UNPAID])
    )

    table = learner.tables[""]
    assert table.saved.arm_counters(0, arm_of(int(codes[0])))[2:4] == [250_000, 1]


@pytest.mark.parametrize(
    ("loss", "prediction", "label", "gain"),
    [
        (None, 1, 1, 1),
        (None, "a", "b", 0),
        (None, NO_ANSWER, 1, 0),
        (Loss("absolute", 4.0), 2.0, 3.0, 750_000),
        (Loss("absolute", 4.0), 2.0, 30.0, 0),
        (Loss("absolute", 4.0), NO_ANSWER, 3.0, 0),
    ],
)
def test_a_gain_is_right_or_wrong_or_by_the_loss(
    loss: Loss | None, prediction: Any, label: Any, gain: int
) -> None:
    learner = make(loss=loss)

    assert learner.gain_of(prediction, label) == gain
    assert learner.unit == (1 if loss is None else 1_000_000)


def test_a_loss_refuses_labels_that_are_no_numbers() -> None:
    learner = make(loss=Loss("absolute", 1.0))

    with pytest.raises(DataError, match="needs labels that are numbers; learner 'north' was given"):
        learner.gain_of(1, "a")
    assert learner.gain_of("a", 1) == 0  # a peer may answer anything


def test_a_label_that_is_waited_for_no_longer_leaves_the_arm_underexplored() -> None:
    learner = make(CoS(slices=1, explore=ONCE, pending=True))
    codes = [decide(learner)[0] for _ in range(2)]

    learner.forget_rows(codes[:1])

    assert [chosen(learner, decide(learner)[0])[1] for _ in range(2)] == ["a", "a"]


@pytest.mark.parametrize("context", [(), (0.1, 0.2), (1.5,), (-0.1,), (float("nan"),)])
def test_a_context_outside_the_cube_is_an_error_and_counts_nothing(context: tuple) -> None:
    learner = make()

    with pytest.raises(ContextError):
        learner.decide(context, 1)
    assert counters(learner) == {}


def test_a_peer_is_trained_only_after_it_was_queried() -> None:
    learner = make(CoS(slices=1, explore=ONCE), peers=("south",))
    for _ in range(2):
        learn(learner, 1)

    first = learner.decide((0.1,), 3)
    queried = learner.peers_to_query(undecided_row(first), 3)
    learner.receive_report(0, 0, (0, 0.0, 1.0, ()), 3)
    choice = learner.choice(learner.resume(0, (0.1,), 3))

    assert (first, queried) == (-1, [0])
    assert (choice.phase, choice.arm, choice.peer, choice.function) == (
        "train",
        "south",
        "south",
        -1,
    )


@pytest.mark.parametrize(
    "settings_", [CoS(slices=3, pending=True), DCZA(split_power=1.0, pending=True)]
)
def test_a_retracted_decision_leaves_all_counters_as_before(settings_: PolicyRecord) -> None:
    learner = make(settings_, peers=("south",))
    play(learner, 60, first=0)
    before = counters(learner)

    for k in range(7):
        context, slot = (k / 7,), learner.slot + 1
        code, undo = learner.decide(context, slot), []
        if code < 0:
            row = undecided_row(code)
            undo = [(row, 0, learner.receive_report(row, 0, (1_000, 0.0, 1.0, ()), slot))]
            code = learner.resume(row, context, slot)
        learner.retract(code, context, slot)
        for one in reversed(undo):
            learner.table.unrefresh(*one)

    assert {name: known for name, known in counters(learner).items() if name in before} == before


def test_a_retracted_decision_is_made_again_the_same_way() -> None:
    learner = make(CoS(slices=1, explore=ONCE), peers=("south",))
    for _ in range(2):
        learn(learner, 1)
    old = learner.receive_report(0, 0, (1_000, 0.0, 1.0, ()), 3)
    learner.retract(learner.resume(0, (0.1,), 3), (0.1,), 3)
    learner.table.unrefresh(0, 0, old)

    assert learner.decide((0.1,), 3) == -1


def test_retracting_leaves_cells_that_became_known_later_as_they_are() -> None:
    learner = make(DCZA(split_power=1.0))
    codes = np.full(2, NOT_DECIDED, np.int64)
    learner.decide_rows(np.full((2, 1), 0.1), 1, codes)
    fine = learner.open(Cell(3, (0,)), 3)
    known = learner.tables[""].saved.stored(fine)

    for k in (1, 0):
        learner.retract(int(codes[k]), (0.1,), 1 + k)

    assert learner.tables[""].saved.stored(fine) == known
    assert all(arrivals == own == 0 for _, arrivals, own, *_ in counters(learner).values())


def counted(snapshot: Snapshot) -> tuple[Any, ...]:
    """Return a snapshot without the periods in which arriving labels are counted: these go on."""
    return snapshot.slot, snapshot.cells, snapshot.seen


def test_retracted_rows_are_as_if_never_decided() -> None:
    learner = make(CoS(slices=2, pending=True))
    play(learner, 20, first=0)
    before = snapshot_of(learner)
    codes = np.full(25, NOT_DECIDED, np.int64)
    contexts = np.random.default_rng(3).random((25, 1))
    learner.decide_rows(contexts, 21, codes)

    for k in range(25):
        learner.retract(int(codes[k]), tuple(contexts[k]), 21 + k)

    assert counted(snapshot_of(learner)) == counted(before)


def test_a_served_row_has_the_most_accurate_function_and_a_later_slot_is_kept() -> None:
    learner = make(CoS(slices=4, explore={"scale": 0.1, "power": 0.0}))
    for gain in (0, 1):
        learn(learner, gain)

    code = learner.serve(Cell(0, (0,)), 50, "peer")

    assert (chosen(learner, code), learner.slot) == (("serve", "b"), 50)


def test_a_served_row_may_be_given_its_function() -> None:
    learner = make()

    code = learner.serve(Cell(0, (0,)), 5, "peer", function=1)

    assert chosen(learner, code) == ("serve", "b")
    assert learner.report(Cell(0, (0,)), 6, "") == (1, 0.0, 1.0, ())
    learner.retract(code, (), 5, space="")
    assert learner.report(Cell(0, (0,)), 6, "") == (0, 0.0, 1.0, ())


def test_labels_of_a_cell_answer_for_it() -> None:
    learner = make(remembers=True)
    cell = Cell(0, (0,))
    nothing, code = learner.recall(cell, 1)
    for label in ("x", "y", "y"):
        learner.remember(code, label, (), 1, space="")

    assert nothing is NO_ANSWER
    assert learner.recall(cell, 2)[0] == "y"
    assert learner.estimate(cell, 2, is_by_context=True) == (2 / 3, 3)
    assert learner.estimate(cell, 2, is_by_context=False) == (0.0, 0)


def test_a_learner_without_labels_goes_by_estimates_of_open_peers() -> None:
    learner = make(peers=("south", "east"), costs=(0.0,) * 4, is_supervised=False)
    closed = learner.closed(["south"])
    row = undecided_row(learner.decide((0.1,), 1, closed))

    assert learner.peers_to_query(row, 1) == [0, 1]
    assert learner.peers_to_query(row, 1, closed) == [1]
    told = {0: (0.9, 10), 1: (0.5, 10)}
    assert chosen(learner, learner.consult(row, (0.1,), told)) == ("exploit", "south")
    assert chosen(learner, learner.consult(row, (0.1,), told, closed)) == ("exploit", "east")
    assert chosen(learner, learner.consult(row, (0.1,), {}))[1] == "a"
    assert learner.table.blind_decisions == 1


def test_closed_arms_are_those_of_the_peers_named() -> None:
    learner = make(peers=("south", "east"), context_peers=("south",), costs=(0.0,) * 5)

    assert learner.behind() == [("south", False), ("east", False), ("south", True)]
    assert learner.closed(["south"]) == b"\0\0\1\0\1"
    assert learner.closed([]) is None


def test_a_restored_learner_decides_as_the_one_it_was_taken_from() -> None:
    learner = make(DCZA(split_power=1.0), peers=("south",))
    other = make(DCZA(split_power=1.0), peers=("south",))
    play(learner, 80, first=0)
    restore(other, snapshot_of(learner))

    assert play(other, 80, first=80) == play(learner, 80, first=80)


@pytest.mark.parametrize("forget", [{}, {"window": 5}, {"discount": 0.9}])
def test_pending_labels_are_not_part_of_a_snapshot(forget: dict[str, float]) -> None:
    learner = make(CoS(slices=1, pending=True, forget=forget), peers=("south",))
    plain = make(CoS(slices=1, forget=forget), peers=("south",))
    other = make(CoS(slices=1, pending=True, forget=forget), peers=("south",))
    play(learner, 30, first=0)
    play(plain, 30, first=0)
    decide(learner)
    decide(plain)

    assert counted(snapshot_of(learner)) == counted(snapshot_of(plain))
    restore(other, snapshot_of(learner))
    assert counted(snapshot_of(other)) == counted(snapshot_of(plain))


@pytest.mark.parametrize("forget", [{}, {"window": 5}, {"discount": 0.9}])
def test_a_learner_may_begin_to_count_pending_labels_at_any_time(
    forget: dict[str, float],
) -> None:
    learner = make(CoS(slices=1, forget=forget), peers=("south",))
    other = make(CoS(slices=1, forget=forget, pending=True), peers=("south",))
    play(learner, 30, first=0)
    play(other, 30, first=0)
    open_ = [decide(learner) for _ in range(2)]
    assert [decide(other) for _ in range(2)] == open_

    for _ in range(2):
        learner.count_pending({"": [code for code, _ in open_]})

    assert learner.is_pending
    assert counted(snapshot_of(learner)) == counted(snapshot_of(other))
    for code, slot in open_:
        learner.settle(code, 1, (0.1,), slot)
        other.settle(code, 1, (0.1,), slot)
    assert play(learner, 200, first=32) == play(other, 200, first=32)


def test_labels_from_before_a_learner_began_to_count_them_are_pending() -> None:
    learner = make(CoS(slices=1, explore=ONCE))
    code, _ = decide(learner)

    learner.count_pending({"": [code]})

    assert chosen(learner, decide(learner)[0])[1] == "b"


@pytest.mark.parametrize(
    ("costs", "gains", "best"),
    [((0.0, 0.0), [1, 0], 0), ((0.0, 0.0), [0, 1], 1), ((0.5, 0.0), [1, 1], 1), ((0, 0), [1], 0)],
)
def test_the_best_own_function_is_the_most_accurate_less_its_cost(
    costs: tuple[float, ...], gains: list[int], best: int
) -> None:
    learner = make(CoS(slices=1, explore=ONCE), costs=costs)
    for gain in gains:
        learn(learner, gain)

    assert learner.table.best_own(0) == best


def test_accuracies_are_the_shares_of_right_labels_of_each_arm() -> None:
    learner = make(CoS(slices=1, explore=ONCE), peers=("south",))
    for gain in (1, 0):
        learn(learner, gain)

    assert learner.table.accuracies(0, (0.5,)) == [1.0, 0.0, 0.0]


def play(learner: Learner, slots: int, *, first: int) -> list[tuple[str, str]]:
    made = []
    for k in range(first, first + slots):
        context = (k * 37 % 101 / 101,)
        code, slot = decide(learner, context, arrivals=k // 3)
        learner.settle(code, int(k % 3 // 2 == 1), context, slot)
        made.append(chosen(learner, code))
    return made


@settings(max_examples=60)
@given(
    order=st.lists(st.integers(0, 39), unique=True),
    settings_=st.sampled_from([CoS(slices=3), CoS(slices=3, pending=True), CoS(count="labelled")]),
)
def test_counters_equal_the_fold_over_settled_rows_in_any_order(
    order: list[int], settings_: PolicyRecord
) -> None:
    learner = make(settings_)
    made = [(*decide(learner, (k % 5 / 5,)), k) for k in range(40)]

    fold: dict[str, list[int]] = {name: [0] * 4 for name in counters(learner)}
    for place in order:
        code, slot, k = made[place]
        learner.settle(code, k % 2, (k % 5 / 5,), slot)
        known = fold[learner.name_at("", row_of(code))]
        known[arm_of(code)] += 1
        known[2 + arm_of(code)] += k % 2

    assert {name: known[3:7] for name, known in counters(learner).items()} == fold
