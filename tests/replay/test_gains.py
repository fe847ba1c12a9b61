"""The interval of a gain: exact by hand, wide enough where errors come in runs."""

import math

import numpy as np
import pytest

from covey.replay.outcome import aligned, gain_of, student
from covey.types import Interval


def test_no_rows_give_no_gain_and_few_rows_no_interval() -> None:
    assert gain_of([0.0] * 4, [0] * 4) is None
    assert gain_of([1.0, 0.0], [2, 2]) == Interval(25.0)


@pytest.mark.parametrize(
    ("freedom", "certainty", "printed"),
    [(1, 0.95, 12.706), (4, 0.95, 2.776), (31, 0.95, 2.040), (31, 0.99, 2.744), (2, 0.5, 0.816)],
)
def test_quantiles_are_those_of_printed_tables(
    freedom: int, certainty: float, printed: float
) -> None:
    assert student(freedom, certainty) == pytest.approx(printed, abs=5e-4)


def test_the_interval_is_that_of_batch_means_by_hand() -> None:
    sums = [1.0, -1.0] * 16
    found = gain_of(sums, [10] * 32)

    # 32 batches with mean 0; the variance of their mean is 32 / 31 * 32 * 1 / 320 ** 2.
    assert found is not None
    assert found.mean == 0.0
    expected = 100 * student(31) * math.sqrt(32 / 31 * 32 / 320**2)
    assert (found.low, found.high) == pytest.approx((-expected, expected))


def test_intervals_of_several_comparisons_are_those_of_a_higher_certainty() -> None:
    sums = [1.0, -1.0] * 16
    one, five = gain_of(sums, [10] * 32), gain_of(sums, [10] * 32, comparisons=5)

    assert one is not None
    assert five is not None
    assert one.high is not None
    assert five.high is not None
    assert five.high / one.high == pytest.approx(student(31, 0.99) / student(31))


def test_sums_of_learners_with_other_buckets_are_aligned() -> None:
    fine = (2, np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 2.0, 2.0, 1.0]))
    coarse = (4, np.array([10.0, 20.0]), np.array([4.0, 4.0]))
    sums, counts = aligned([fine, coarse])

    assert sums[:2].tolist() == [13.0, 27.0]
    assert counts[:2].tolist() == [8.0, 7.0]
    assert not sums[2:].any()


def coverage(stay: float, *, runs: int = 1_000, rows: int = 4_096) -> float:
    """Return how often the interval holds the true mean, 0, of a chain of +1 and -1."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(runs):
        turns = np.where(rng.random(rows) < stay, 1, -1)
        chain = rng.choice([-1, 1]) * np.cumprod(turns)
        found = gain_of(chain.reshape(256, -1).sum(axis=1), [rows // 256] * 256)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0 <= found.high
    return hits / runs


@pytest.mark.parametrize("stay", [0.5, 0.8, 0.9])
def test_the_interval_holds_the_truth_where_errors_come_in_runs(stay: float) -> None:
    assert 0.93 <= coverage(stay) <= 0.97
