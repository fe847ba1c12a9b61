"""Trained functions: each kind learns a simple task; own implementations match their definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.data import Floats, Instances, Labels
from reproduction.models import KINDS, VotedPerceptron, train


def instances(count: int, *, seed: int) -> tuple[Instances, Labels]:
    """Make rows where the first number, and nearly as well the word, tell the label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count).astype(np.int8)
    numbers = np.column_stack([4.0 * labels + rng.normal(size=count), rng.normal(size=count)])
    is_told = rng.random(count) < 0.9
    words = np.where(labels == is_told, "http", "smtp")[:, None]
    return Instances(numbers, words), labels


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_classifies_new_rows(kind: str) -> None:
    predict = train(kind, *instances(400, seed=1))
    rows, labels = instances(400, seed=2)

    said = predict(rows)
    assert said.dtype == np.int8
    assert np.mean(said == labels) > 0.9


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
