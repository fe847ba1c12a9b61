"""Boosting over fixed functions, against exact fractions and plain retraining."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.replay.baselines import (
    AdaBoost,
    BaselineAnswer,
    SlidingAdaBoost,
    boost,
    elect,
)
from support.streams import stream

Row = tuple[tuple[int, ...], int]  # what functions said, label
rows_of = st.lists(
    st.tuples(st.tuples(*[st.integers(0, 2)] * 3), st.integers(0, 2)), min_size=1, max_size=30
)
many = settings(max_examples=150)


def exact_weights(rows: Sequence[Row], rounds: int) -> list[float]:
    """AdaBoost (SAMME) as it is written down, row by row, in fractions."""
    functions = len(rows[0][0])
    classes = max(2, len({label for _, label in rows}))
    mass = [Fraction(1, len(rows))] * len(rows)
    odds: list[list[Fraction]] = [[] for _ in range(functions)]
    for _ in range(rounds):
        errors = [
            sum(
                (m for m, (said, label) in zip(mass, rows, strict=True) if said[k] != label),
                Fraction(),
            )
            for k in range(functions)
        ]
        best = errors.index(min(errors))
        error = errors[best]
        if error == 0:
            return [float(k == best) for k in range(functions)]
        if error >= 1 - Fraction(1, classes):
            break
        factor = (1 - error) / error * (classes - 1)
        odds[best].append(factor)
        mass = [
            m * factor if said[best] != label else m
            for m, (said, label) in zip(mass, rows, strict=True)
        ]
        total = sum(mass)
        mass = [m / total for m in mass]
    if not any(odds):
        return [1.0] * functions
    return [sum(math.log(factor) for factor in factors) for factors in odds]


def taught(baseline: AdaBoost | SlidingAdaBoost, rows: Sequence[Row]) -> list[int]:
    answers = []
    for said, label in rows:
        guess = baseline.predict(said)
        answers.append(guess.label)
        baseline.learn(guess, label)
    return answers


def rows_from(rates: Sequence[float], slots: int, *, classes: int, seed: int) -> list[Row]:
    said, labels = stream(rates, slots, classes=classes, seed=seed)
    return list(zip(zip(*said.tolist(), strict=True), labels.tolist(), strict=True))


def test_two_rounds_by_hand() -> None:
    # Of 10 observations the first function is wrong on 2 and the second on 3 others. Round 1:
    # error 2/10, ln 4, and the two wrong ones then have half of the weight, the other eight 1/16
    # each. Round 2: the second function errs on 3/16, ln(13/3); after it the first one errs on
    # (1/2) * 16/13 / 2 = 4/13, and that is round 3.
    wrong = np.array([[0.0, 1, 0], [0, 0, 1]])
    counts = np.array([5.0, 2, 3])
    two, three = (boost(wrong, counts, classes=2, rounds=rounds) for rounds in (2, 3))

    assert two == pytest.approx([math.log(4), math.log(13 / 3)])
    assert three == pytest.approx([math.log(4) + math.log(9 / 4), math.log(13 / 3)])


def test_with_three_classes_an_error_of_a_half_is_better_than_chance() -> None:
    weights = boost(np.array([[1.0, 0.0]]), np.array([5.0, 5.0]), classes=3, rounds=1)

    assert weights == pytest.approx([math.log(2)])


def test_functions_no_better_than_chance_have_a_vote_each() -> None:
    assert boost(np.array([[1.0, 0], [1, 0]]), np.array([6.0, 4]), classes=2, rounds=5) == [1, 1]


def test_the_first_function_that_is_never_wrong_decides_alone() -> None:
    wrong = np.array([[1.0, 0], [0, 0], [0, 0]])

    assert boost(wrong, np.array([1.0, 9]), classes=2, rounds=5) == [0, 1, 0]


@many
@given(rows=rows_of, rounds=st.integers(1, 6))
def test_weights_from_counts_of_patterns_are_those_of_exact_arithmetic(
    rows: list[Row], rounds: int
) -> None:
    baseline = AdaBoost(3, training=len(rows), rounds=rounds)
    taught(baseline, rows)

    assert baseline.weights == pytest.approx(exact_weights(rows, rounds), abs=1e-6)


def test_until_the_training_is_over_every_function_has_one_vote() -> None:
    rows = [((0, 0, 1), 1), ((1, 1, 0), 0)]
    baseline = AdaBoost(3, training=2)
    before = taught(baseline, rows)
    after = taught(baseline, rows)

    assert (before, after) == ([0, 1], [1, 0])


def test_after_the_training_labels_change_nothing() -> None:
    baseline = AdaBoost(3, training=20)
    taught(baseline, rows_from([0.9, 0.6, 0.6], 20, classes=2, seed=1))
    weights = baseline.weights
    taught(baseline, rows_from([0.1, 0.9, 0.9], 200, classes=2, seed=2))

    assert baseline.weights == weights


@many
@given(rows=rows_of, window=st.integers(1, 12))
def test_a_sliding_window_equals_retraining_in_every_slot(rows: list[Row], window: int) -> None:
    baseline = SlidingAdaBoost(3, window=window, rounds=5)
    for slot, (said, label) in enumerate(rows, start=1):
        baseline.learn(BaselineAnswer(0, said), label)
        anew = exact_weights(rows[max(0, slot - window) : slot], 5)

        assert baseline.weights == pytest.approx(anew, abs=1e-6)


def test_a_window_follows_a_switch_within_about_half_its_length() -> None:
    rows = [((0, 1), 0)] * 300 + [((0, 1), 1)] * 300
    answers = taught(SlidingAdaBoost(2, window=100), rows)
    errors = sum(answer != label for answer, (_, label) in zip(answers, rows, strict=True))

    # At 50 against 50 both err by a half; then all votes weigh 1, and the first one wins.
    assert errors == 51


def test_tied_votes_elect_the_first_prediction() -> None:
    assert [elect([1, 1], [3, 0]), elect([0.1, 0.2, 0.3], [1, 1, 0])] == [3, 1]
