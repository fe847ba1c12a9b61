"""Trained functions: each kind learns a simple task; own implementations match their definition."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.data import Floats, Instances, Labels
from reproduction.models import KINDS, RbfNetwork, VotedPerceptron, train


def instances(count: int, *, seed: int) -> tuple[Instances, Labels]:
    """Make rows where the first number, and nearly as well the word, tell the label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count).astype(np.int8)
    numbers = np.column_stack([4.0 * labels + rng.normal(size=count), rng.normal(size=count)])
    is_told = rng.random(count) < 0.9
    words = np.where(labels == is_told, "http", "smtp")[:, None]
    return Instances(numbers, words), labels


def test_there_are_six_kinds_to_train() -> None:
    assert len(KINDS) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_classifies_new_rows(kind: str) -> None:
    predict = train(kind, *instances(400, seed=1))
    rows, labels = instances(400, seed=2)

    said = predict(rows)
    assert said.dtype == np.int8
    assert np.mean(said == labels) > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_training_every_kind_is_repeatable(kind: str) -> None:
    rows, labels = instances(200, seed=1)
    others, _ = instances(200, seed=2)

    assert np.array_equal(train(kind, rows, labels)(others), train(kind, rows, labels)(others))


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_that_was_not_in_training_gets_a_prediction(kind: str) -> None:
    predict = train(kind, *instances(200, seed=1))
    numbers = np.array([[4.0, 0.0], [0.0, 0.0]])

    said = predict(Instances(numbers, np.array([["gopher"], ["gopher"]])))
    assert set(said.tolist()) <= {0, 1}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_words_can_be_classified(kind: str) -> None:
    rows, labels = instances(200, seed=1)
    bare = Instances(rows.numbers, np.empty((200, 0), np.str_))

    assert np.mean(train(kind, bare, labels)(bare) == labels) > 0.9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("label", [0, 1])
def test_a_function_trained_on_one_label_always_predicts_it(kind: str, label: int) -> None:
    rows, _ = instances(20, seed=1)
    predict = train(kind, rows, np.full(20, label, np.int8))

    assert predict(rows).tolist() == [label] * 20


def voted(points: Floats, labels: Labels, new: Floats) -> list[int]:
    """Vote as the text of Freund and Schapire has it, one number at a time."""
    vectors: list[tuple[list[float], int]] = []
    vector, survived = [0.0] * (points.shape[1] + 1), 0
    for point, label in zip(points.tolist(), labels.tolist(), strict=True):
        sign = 1 if label else -1
        said = sum(v * x for v, x in zip(vector, [*point, 1.0], strict=True))
        if sign * said > 0:
            survived += 1
        else:
            vectors.append((vector, survived))
            vector = [v + sign * x for v, x in zip(vector, [*point, 1.0], strict=True)]
            survived = 1
    vectors.append((vector, survived))
    totals = []
    for point in new.tolist():
        sums = [sum(v * x for v, x in zip(w, [*point, 1.0], strict=True)) for w, _ in vectors]
        totals.append(sum(c * ((s > 0) - (s < 0)) for s, (_, c) in zip(sums, vectors, strict=True)))
    return [int(total > 0) for total in totals]


@given(st.integers(0, 10_000), st.integers(1, 30))
def test_the_voted_perceptron_equals_its_definition(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    # Whole numbers, so that sums are exact in any order.
    points = rng.integers(-3, 4, (count, 3)).astype(np.float64)
    new = rng.integers(-3, 4, (10, 3)).astype(np.float64)
    labels = rng.integers(0, 2, count).astype(np.int8)
    perceptron = VotedPerceptron()
    perceptron.fit(points, labels)

    assert perceptron.predict(new).tolist() == voted(points, labels, new)


def test_the_rbf_network_separates_a_disc_from_its_surroundings() -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(400, 2)) * 3.0
    labels = (np.hypot(*points.T) < 2.0).astype(np.int8)
    network = RbfNetwork()
    network.fit(points, labels)

    assert network.predict(np.array([[0.0, 0.0], [7.0, 0.0], [0.0, -7.0]])).tolist() == [1, 0, 0]


def test_the_rbf_network_can_be_trained_with_one_row_of_a_label() -> None:
    points = np.array([[0.0], [0.1], [0.2], [5.0]])
    network = RbfNetwork()
    network.fit(points, np.array([0, 0, 0, 1], np.int8))

    assert network.predict(points).tolist() == [0, 0, 0, 1]


def test_the_error_without_scikit_learn_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from covey.errors import MissingExtra\n"
        "from reproduction import data\n"
        "try: data.fetch_kdd()\n"
        "except MissingExtra as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert done.stdout == (
        "the paper's functions need scikit-learn; install the extra in a clone of covey: "
        'pip install ".[sklearn]"\n'
    )
