"""What every update rule must keep, alone and in an ensemble, whatever labels come and when."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.ensemble import UPDATES, Ensemble, EnsembleState, Update, Weighing
from covey.errors import ConflictingLabel, UnknownTicket

pytestmark = pytest.mark.beside_the_kernel

LEARNERS = ["north", "south", "west"]
RULES = {name: make(Weighing(update=name)) for name, make in UPDATES.items()}
START = EnsembleState((1 / 3, 1 / 3, 1 / 3), 0, (0, 0, 0))
every_update = pytest.mark.parametrize("update", UPDATES)
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
some = settings(max_examples=60)

Row = tuple[list[int], int]  # votes, label

codes = st.integers(0, 2)
rows_of_votes = st.lists(st.tuples(st.lists(codes, min_size=3, max_size=3), codes), max_size=20)


def noisy_rows(slots: int, seed: int, accuracies: Sequence[float] = (0.9, 0.6, 0.4)) -> list[Row]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, slots)
    is_wrong = rng.random((slots, 3)) > np.array(accuracies)
    votes = (labels[:, None] + is_wrong * rng.integers(1, 3, is_wrong.shape)) % 3
    return list(zip(votes.tolist(), labels.tolist(), strict=True))


def fold(rule: Update, rows: Sequence[Row], standing: EnsembleState = START) -> EnsembleState:
    for votes, label in rows:
        standing = rule.move(standing, votes, label)
    return standing


def fails(error: type[Exception], act: Callable[..., Any], *arguments: Any) -> bool:
    with pytest.raises(error):
        act(*arguments)
    return True


def test_there_are_four_rules_under_the_names_they_have() -> None:
    names = ["gradient", "majority", "hedge", "fixed-share"]

    assert (list(UPDATES), [rule.name for rule in RULES.values()]) == (names, names)


@every_rule
def test_weights_stay_finite_and_one_for_each_learner(rule: Update) -> None:
    weights = fold(rule, noisy_rows(2_000, 1)).weights

    assert [math.isfinite(weight) for weight in weights] == [True] * 3


@every_rule
def test_weights_that_are_shares_add_up_to_one_and_are_not_negative(rule: Update) -> None:
    weights = fold(rule, noisy_rows(2_000, 2)).weights
    is_share = min(weights) >= 0 and sum(weights) == pytest.approx(1)

    assert is_share or not rule.is_share


@every_rule
def test_only_weights_that_are_shares_may_be_sampled(rule: Update) -> None:
    assert rule.is_share == (rule.threshold is None)


@every_rule
def test_labels_are_counted(rule: Update) -> None:
    assert fold(rule, noisy_rows(7, 3)).labels == 7


@every_rule
def test_a_right_member_never_weighs_less_than_a_wrong_one(rule: Update) -> None:
    pairs = [(right, wrong) for right in range(3) for wrong in range(3) if right != wrong]
    after = [rule.move(START, [right, wrong, 0], right).weights for right, wrong in pairs]

    assert all(weights[0] > weights[1] for weights in after)


@every_rule
def test_the_member_that_is_right_most_often_ends_with_the_largest_weight(rule: Update) -> None:
    weights = fold(rule, noisy_rows(1_000, 4)).weights

    assert max(weights) == weights[0]


@every_rule
def test_classes_other_than_the_base_may_change_their_names(rule: Update) -> None:
    swap = [0, 2, 1]
    rows = noisy_rows(200, 5)
    renamed = [([swap[vote] for vote in votes], swap[label]) for votes, label in rows]

    assert fold(rule, renamed) == fold(rule, rows)


@every_rule
def test_learners_may_change_their_places(rule: Update) -> None:
    rows = noisy_rows(200, 6)
    turned = [(votes[::-1], label) for votes, label in rows]

    # Sums in another order are rounded differently.
    assert fold(rule, turned).weights == pytest.approx(fold(rule, rows).weights[::-1], abs=1e-9)


@every_update
def test_an_ensemble_starts_with_equal_weights(update: str) -> None:
    weights = Ensemble(LEARNERS, update=update).weights()

    assert weights == {"north": 1 / 3, "south": 1 / 3, "west": 1 / 3}


@every_update
@pytest.mark.parametrize("label", [0, 1, 2])
def test_a_unanimous_ensemble_gives_the_common_label(update: str, label: int) -> None:
    assert Ensemble(LEARNERS, update=update).vote([label] * 3) == (label, 1)


@every_update
def test_a_label_that_never_comes_moves_nothing(update: str) -> None:
    ensemble = Ensemble(LEARNERS, update=update)
    before = ensemble.weights()
    for votes, _ in noisy_rows(20, 7):
        ensemble.vote(votes)

    assert (ensemble.weights(), ensemble.open_tickets) == (before, 20)


@every_update
def test_the_same_label_twice_counts_once_and_another_one_never(update: str) -> None:
    ensemble = Ensemble(LEARNERS, update=update)
    _, ticket = ensemble.vote([1, 0, 2])
    first = ensemble.learn(ticket, 2)
    after = ensemble.weights()
    again = ensemble.learn(ticket, 2)

    assert (first.is_new, again.is_new, first.is_right, again.is_right) == (
        True,
        False,
        False,
        False,
    )
    assert fails(ConflictingLabel, ensemble.learn, ticket, 1)
    assert ensemble.weights() == after


@every_update
def test_a_label_that_comes_too_late_is_refused(update: str) -> None:
    ensemble = Ensemble(LEARNERS, update=update, label_wait=2)
    tickets = [ensemble.vote([1, 0, 2])[1] for _ in range(4)]

    assert fails(UnknownTicket, ensemble.learn, tickets[0], 1)
    assert ensemble.learn(tickets[1], 1).is_new
    assert ensemble.open_tickets == 2


@every_update
def test_weights_per_cell_do_not_mix(update: str) -> None:
    ensemble = Ensemble(LEARNERS, update=update, weights="cell")
    here, there = noisy_rows(40, 8), noisy_rows(40, 9)
    for (votes, label), (other_votes, other_label) in zip(here, there, strict=True):
        ensemble.learn(ensemble.vote(votes, cell="g2:0")[1], label)
        ensemble.learn(ensemble.vote(other_votes, cell="g2:1")[1], other_label)

    assert tuple(ensemble.weights("g2:0").values()) == fold(RULES[update], here).weights
    assert tuple(ensemble.weights("g2:1").values()) == fold(RULES[update], there).weights


@every_update
@some
@given(rows=rows_of_votes, data=st.data())
def test_weights_are_the_fold_over_the_labels_as_they_came(
    update: str, rows: list[Row], data: st.DataObject
) -> None:
    """Late, repeated, contradicting, unknown and missing labels: what counts is what came first."""
    ensemble = Ensemble(LEARNERS, update=update)
    tickets = [ensemble.vote(votes)[1] for votes, _ in rows]
    order = data.draw(st.lists(st.sampled_from(range(len(rows))), max_size=30)) if rows else []
    settled: dict[int, Row] = {}
    for place in order:
        ensemble.learn(tickets[place], rows[place][1])
        settled.setdefault(place, rows[place])
        fails(ConflictingLabel, ensemble.learn, tickets[place], (rows[place][1] + 1) % 3)
        fails(UnknownTicket, ensemble.learn, len(rows) + 1, 0)

    assert tuple(ensemble.weights().values()) == fold(RULES[update], [*settled.values()]).weights
