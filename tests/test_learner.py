"""A learner decides, waits for labels within bounds, and never counts one twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.errors import ConflictingLabel, ContextError, UnknownTicket
from covey.learner import Learner
from covey.policies import DCZA, CoS, resolve
from covey.settings import Settings
from covey.types import Cell


def make(
    settings_: Settings | None = None,
    *,
    functions: tuple[str, ...] = ("a", "b"),
    peers: tuple[str, ...] = (),
    dimension: int = 1,
) -> Learner:
    policy = resolve(settings_ or CoS(slices=4), dimension=dimension, most_functions=2)
    costs = [0.0] * len(functions) + [0.1] * len(peers)
    return Learner("north", functions=functions, peers=peers, costs=costs, policy=policy)


def counters(learner: Learner) -> dict[str, list[int]]:
    return dict(learner.snapshot().cells)


def answer(learner: Learner, context: tuple[float, ...] = (0.1,), label: object = 1) -> int:
    return learner.accept(learner.decide(context), label)


def test_the_first_decision_explores_the_first_function_at_its_cost() -> None:
    decision = make().decide((0.3,))

    assert (decision.choice.phase, decision.choice.arm, decision.choice.price, decision.slot) == (
        "explore",
        "a",
        0.0,
        1,
    )


def test_a_label_moves_the_counters_of_the_function_that_answered() -> None:
    learner = make()

    learner.settle(answer(learner), 1)

    # since, arrivals, own arrivals; labels of a, b; right of a, b
    assert counters(learner) == {"g4:0": [1, 1, 1, 1, 0, 1, 0]}


def test_a_decision_without_a_label_moves_arrivals_only() -> None:
    learner = make()

    answer(learner)

    assert counters(learner) == {"g4:0": [1, 1, 1, 0, 0, 0, 0]}


def test_the_same_label_again_has_no_effect_and_says_so() -> None:
    learner = make()
    ticket = answer(learner)
    first = learner.settle(ticket, 1)
    before = counters(learner)

    again = learner.settle(ticket, 1)

    assert (first.is_new, again.is_new, again.is_right) == (True, False, True)
    assert counters(learner) == before


def test_a_different_label_for_a_settled_ticket_is_an_error_and_moves_nothing() -> None:
    learner = make()
    ticket = answer(learner)
    learner.settle(ticket, 1)
    before = counters(learner)

    with pytest.raises(ConflictingLabel, match="was settled with 1; 0 contradicts it"):
        learner.settle(ticket, 0)
    assert counters(learner) == before


@pytest.mark.parametrize("ticket", [0, 2, -1, "1", None])
def test_a_ticket_that_was_never_given_is_an_error(ticket: object) -> None:
    learner = make()
    answer(learner)

    with pytest.raises(UnknownTicket, match="was never given"):
        learner.settle(ticket, 1)  # type: ignore[arg-type]


def test_a_label_that_comes_after_the_wait_is_an_error_that_says_how_long_it_was() -> None:
    learner = make(CoS(slices=4, label_wait=3))
    ticket = answer(learner)
    for _ in range(4):
        answer(learner)

    with pytest.raises(UnknownTicket, match="due within 3 slots"):
        learner.settle(ticket, 1)


def test_a_label_that_comes_at_the_end_of_the_wait_is_taken() -> None:
    learner = make(CoS(slices=4, label_wait=3))
    ticket = answer(learner)
    for _ in range(3):
        answer(learner)

    assert learner.settle(ticket, 1).is_new


@pytest.mark.parametrize("has_labels", [False, True])
def test_open_tickets_are_bounded_by_the_wait(has_labels: bool) -> None:
    learner = make(CoS(slices=4, label_wait=10))

    for _ in range(100):
        ticket = answer(learner)
        if has_labels:
            learner.settle(ticket, 1)

    assert learner.open_tickets == (0 if has_labels else 11)


def test_labels_under_way_keep_an_arm_from_being_explored_again_if_they_count() -> None:
    learner = make(CoS(slices=1, explore={"scale": 0.0, "power": 0.0}, pending=True))

    arms = [learner.decide((0.1,)).choice.arm for _ in range(2)]

    assert arms == ["a", "b"]


def test_a_label_that_never_comes_makes_the_arm_underexplored_again_after_the_wait() -> None:
    learner = make(CoS(slices=1, explore={"scale": 0.0, "power": 0.0}, pending=True, label_wait=2))
    arms = []
    for _ in range(4):
        decision = learner.decide((0.1,))
        learner.accept(decision, 1)
        arms.append(decision.choice.arm)

    assert arms == ["a", "b", "a", "a"]


@pytest.mark.parametrize("context", [(), (0.1, 0.2), (1.5,), (-0.1,), (float("nan"),)])
def test_a_context_outside_the_cube_is_an_error_and_counts_nothing(context: tuple) -> None:
    learner = make()

    with pytest.raises(ContextError):
        learner.decide(context)
    assert counters(learner) == {}


def test_a_peer_is_trained_only_after_it_was_asked_for_its_arrivals() -> None:
    learner = make(CoS(slices=1, explore={"scale": 0, "power": 0}), peers=("south",))
    for _ in range(2):
        learner.settle(answer(learner), 1)

    decision = learner.decide((0.1,))
    asked = decision.asks
    learner.inform(decision, [(0, 0.0, 1.0)])

    assert asked == ("south",)
    assert (decision.choice.phase, decision.choice.arm, decision.choice.function) == (
        "train",
        "south",
        -1,
    )


def test_a_peer_with_many_arrivals_is_explored_instead_of_trained() -> None:
    learner = make(CoS(slices=1, explore={"scale": 0, "power": 0}), peers=("south",))
    for _ in range(2):
        learner.settle(answer(learner), 1)

    decision = learner.decide((0.1,))
    learner.inform(decision, [(1_000, 0.0, 1.0)])

    assert (decision.choice.phase, decision.choice.arm, decision.choice.price) == (
        "explore",
        "south",
        0.1,
    )


@pytest.mark.parametrize(
    "settings_", [CoS(slices=3, pending=True), DCZA(split_power=1.0, pending=True)]
)
def test_an_abandoned_decision_leaves_all_counters_as_before(settings_: Settings) -> None:
    learner = make(settings_, peers=("south",))
    for k in range(60):
        decision = learner.decide((k % 7 / 7,))
        if decision.asks:
            learner.inform(decision, [(k, 0.0, 1.0)])
        ticket = learner.accept(decision, 1)
        learner.settle(ticket, k % 2)
    before = counters(learner)

    for k in range(7):
        decision = learner.decide((k / 7,))
        if decision.asks:
            learner.inform(decision, [(1_000, 0.0, 1.0)])
        learner.abandon(decision)

    assert {name: known for name, known in counters(learner).items() if name in before} == before


def test_an_abandoned_decision_is_made_again_the_same_way() -> None:
    learner = make(CoS(slices=1, explore={"scale": 0, "power": 0}), peers=("south",))
    for _ in range(2):
        learner.settle(answer(learner), 1)
    decision = learner.decide((0.1,))
    learner.inform(decision, [(1_000, 0.0, 1.0)])
    learner.abandon(decision)

    again = learner.decide((0.1,))

    assert again.asks == ("south",)


def test_who_is_asked_picks_by_accuracy_and_takes_the_larger_slot() -> None:
    learner = make(CoS(slices=4, reading={"helper": "greedy"}))
    for label in (0, 1):
        decision = learner.decide((0.1,))
        learner.settle(learner.accept(decision, 1), label)

    served = learner.assist(Cell(0, (0,)), 50)

    assert (served.choice.phase, served.choice.arm, learner.slot) == ("serve", "b", 50)


def test_a_restored_learner_decides_as_the_one_it_was_taken_from() -> None:
    learner = make(DCZA(split_power=1.0), peers=("south",))
    twin = make(DCZA(split_power=1.0), peers=("south",))
    play(learner, 80, first=0)
    twin.restore(learner.snapshot())

    assert play(twin, 80, first=80) == play(learner, 80, first=80)


@pytest.mark.parametrize("forget", [{}, {"window": 5}, {"discount": 0.9}])
def test_what_is_under_way_is_not_part_of_a_snapshot(forget: dict[str, float]) -> None:
    learner = make(CoS(slices=1, pending=True, forget=forget), peers=("south",))
    plain = make(CoS(slices=1, forget=forget), peers=("south",))
    twin = make(CoS(slices=1, pending=True, forget=forget), peers=("south",))
    play(learner, 30, first=0)
    play(plain, 30, first=0)
    answer(learner)
    answer(plain)

    assert learner.snapshot() == plain.snapshot()
    twin.restore(learner.snapshot())
    assert twin.snapshot() == plain.snapshot()
    assert counters(twin) == counters(learner)


@pytest.mark.parametrize("forget", [{}, {"window": 5}, {"discount": 0.9}])
def test_a_learner_may_begin_to_count_labels_under_way_at_any_time(
    forget: dict[str, float],
) -> None:
    learner = make(CoS(slices=1, forget=forget), peers=("south",))
    twin = make(CoS(slices=1, forget=forget, pending=True), peers=("south",))
    play(learner, 30, first=0)
    play(twin, 30, first=0)
    tickets = [answer(learner), answer(learner)]
    assert [answer(twin), answer(twin)] == tickets

    learner.count_under_way()
    learner.count_under_way()

    assert learner.snapshot() == twin.snapshot()
    for ticket in tickets:
        assert learner.settle(ticket, 1) == twin.settle(ticket, 1)
    assert play(learner, 200, first=32) == play(twin, 200, first=32)


def test_labels_from_before_a_learner_began_to_count_them_are_under_way() -> None:
    learner = make(CoS(slices=1, explore={"scale": 0.0, "power": 0.0}))
    answer(learner)

    learner.count_under_way()

    assert learner.decide((0.1,)).choice.arm == "b"


def test_settled_labels_and_training_are_not_under_way() -> None:
    once = {"scale": 0, "power": 0}
    learner = make(CoS(slices=1, explore=once, explore_peers=once), peers=("south",))
    for _ in range(2):
        learner.settle(answer(learner), 1)
    trained = learner.decide((0.1,))
    learner.inform(trained, [(0, 0.0, 1.0)])
    learner.accept(trained, 1)

    learner.count_under_way()
    again = learner.decide((0.1,))
    learner.inform(again, [(1_000, 0.0, 1.0)])

    assert trained.choice.phase == "train"
    assert (again.choice.phase, again.choice.arm) == ("explore", "south")


def test_an_abandoned_decision_is_under_way_no_longer() -> None:
    learner = make(CoS(slices=1, explore={"scale": 0.0, "power": 0.0}, pending=True))
    learner.abandon(learner.decide((0.1,)))

    assert learner.decide((0.1,)).choice.arm == "a"


def test_the_latest_ticket_can_be_withdrawn_as_if_it_had_never_been_given() -> None:
    learner = make(CoS(slices=1, pending=True))
    answer(learner)
    before = counters(learner)
    ticket = answer(learner)

    learner.withdraw(ticket)

    assert counters(learner) == before
    with pytest.raises(UnknownTicket, match="was never given"):
        learner.settle(ticket, 1)
    assert answer(learner) == ticket


@pytest.mark.parametrize(
    ("costs", "labels", "best"),
    [([0.0, 0.0], [1, 0], 0), ([0.0, 0.0], [0, 1], 1), ([0.5, 0.0], [1, 1], 1), ([0, 0], [1], 0)],
)
def test_the_best_own_function_is_the_most_accurate_less_its_cost(
    costs: list[float], labels: list[int], best: int
) -> None:
    policy = resolve(CoS(slices=1, explore={"scale": 0, "power": 0}), dimension=1, most_functions=2)
    learner = Learner("north", functions=("a", "b"), peers=(), costs=costs, policy=policy)
    for label in labels:
        learner.settle(answer(learner), label)

    assert learner.best_own(learner.decide((0.1,))) == best


def test_decisions_that_are_accepted_together_wait_for_their_labels_as_if_one_by_one() -> None:
    together = make(CoS(slices=1, label_wait=3))
    decisions = [together.decide((0.1,), slot) for slot in (1, 2, 3)]

    together.accept_all(decisions, [1, 1, 1], [None] * 3)
    answer(together)
    is_known = [together.held(ticket) is not None for ticket in (1, 2, 3, 4)]
    answer(together)

    assert is_known == [True, True, True, True]
    assert [together.held(ticket) is not None for ticket in (1, 2, 3, 4, 5)] == [
        False,
        True,
        True,
        True,
        True,
    ]


def play(learner: Learner, slots: int, *, first: int) -> list[tuple[str, str]]:
    made = []
    for k in range(first, first + slots):
        decision = learner.decide((k * 37 % 101 / 101,))
        if decision.asks:
            learner.inform(decision, [(k // 3, 0.0, 1.0)])
        learner.settle(learner.accept(decision, 1), k % 3 // 2)
        made.append((decision.choice.phase, decision.choice.arm))
    return made


@settings(max_examples=60)
@given(
    orders=st.lists(st.tuples(st.integers(0, 39), st.sampled_from(["new", "again", "wrong"]))),
    settings_=st.sampled_from(
        [CoS(slices=3), CoS(slices=3, pending=True), CoS(reading={"count": "uses"})]
    ),
)
def test_counters_equal_the_fold_over_settled_tickets_whatever_comes(
    orders: list[tuple[int, str]], settings_: Settings
) -> None:
    """Late, repeated, contradicting and missing labels, in any order."""
    learner = make(settings_)
    decisions = []
    for k in range(40):
        decision = learner.decide((k % 5 / 5,))
        learner.accept(decision, k % 2)
        decisions.append(decision)
    settled: dict[int, int] = {}
    for place, kind in orders:
        ticket = decisions[place].ticket
        if kind == "wrong" and ticket in settled:
            with pytest.raises(ConflictingLabel):
                learner.settle(ticket, 1 - settled[ticket])
        else:
            learner.settle(ticket, settled.setdefault(ticket, place % 3 % 2))

    fold: dict[str, list[int]] = {name: [0] * 4 for name in counters(learner)}
    for decision in decisions:
        if decision.ticket in settled:
            known = fold[learner.cell_name(decision)]
            known[decision.choice.function] += 1
            known[2 + decision.choice.function] += decision.label == settled[decision.ticket]
    assert {name: known[3:7] for name, known in counters(learner).items()} == fold


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["one", "some", "label", "take back", "ahead"]), st.integers(0, 9)
        )
    )
)
def test_open_tickets_are_those_whose_label_has_not_come(steps: list[tuple[str, int]]) -> None:
    learner = make(CoS(slices=2, label_wait=6))
    for step, number in steps:
        kept = learner.kept_tickets
        if step == "one":
            answer(learner)
        elif step == "some":
            made = [learner.decide((0.1,), learner.slot + k) for k in range(1, number % 4 + 1)]
            learner.accept_all(made, [1] * len(made), [None] * len(made))
        elif step == "label" and kept:
            learner.settle(kept[number % len(kept)], 1)
        elif step == "take back":
            learner.withdraw(answer(learner))
        elif step == "ahead":
            learner.advance(learner.slot + number)

        assert learner.open_tickets == len(learner.waiting())
