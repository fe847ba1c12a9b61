"""Boosting over fixed functions, against exact fractions and plain retraining."""

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.replay.baselines import (
    AdaBoost,
    BaselineAnswer,
    SlidingAdaBoost,
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


def test_tied_votes_elect_the_first_prediction() -> None:
    assert [elect([1, 1], [3, 0]), elect([0.1, 0.2, 0.3], [1, 1, 0])] == [3, 1]
