"""Boosting against exact fractions, and what every baseline must keep; River's are real."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.data.logs import EncodedLog
from covey.replay.baselines import (
    BASELINES,
    AdaBoost,
    BaselineAnswer,
    BaselineRun,
    SlidingAdaBoost,
    elect,
    make,
)
from support.streams import log_of, stream

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


RATES = (0.4, 0.9, 0.6)
SLOTS = 240
every_baseline = pytest.mark.parametrize("name", BASELINES)
few_or_many_classes = pytest.mark.parametrize("classes", [2, 4])


def answers(name: str, *logs: EncodedLog, functions: int = 3, seed: int = 5) -> list[int]:
    contest = BaselineRun(make([name], functions=functions, seed=seed))
    return [one for log in logs for one in contest.add(log)[name].tolist()]


def log_with_delays(classes: int, seed: int = 1) -> EncodedLog:
    """A log in which one label in five never comes, and others are up to 30 slots late."""
    rng = np.random.default_rng(seed)
    said, labels = stream(RATES, SLOTS, classes=classes, seed=seed)
    delays = np.where(rng.random(SLOTS) < 0.2, -1, rng.integers(0, 2, SLOTS))
    return log_of(said, labels, delays * rng.integers(1, 30, SLOTS))


@few_or_many_classes
@every_baseline
def test_the_same_seed_gives_the_same_answers(name: str, classes: int) -> None:
    log = log_with_delays(classes)

    assert answers(name, log) == answers(name, log)


@few_or_many_classes
@every_baseline
def test_every_answer_is_a_prediction_or_a_label_seen_so_far(name: str, classes: int) -> None:
    # Here the labels are classes that no function knows in the first half of the log.
    said, labels = stream(RATES, SLOTS, classes=classes, seed=2)
    said[:, : SLOTS // 2] += classes
    given = answers(name, log_of(said, labels))
    seen = [{*said[:, : t + 1].flat, *labels[:t]} for t in range(SLOTS)]

    assert all(one in known for one, known in zip(given, seen, strict=True))


@every_baseline
def test_an_ensemble_with_one_function_that_is_always_right_is_soon_right(name: str) -> None:
    rng = np.random.default_rng(6)
    labels = np.full(1_600, 1)
    said = rng.integers(0, 2, (3, 1_600))
    said[1] = labels
    given = np.array(answers(name, log_of(said, labels)))

    # An epsilon of 0.1 costs 3 in 100: two functions in three are wrong half of the time.
    assert np.mean(given[1_000:] != 1) < 0.06
