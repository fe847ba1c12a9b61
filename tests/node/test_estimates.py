"""Estimates from drawn rows: unbiased, with intervals that hold the truth as often as they say."""

import numpy as np
import pytest

from covey.store.reading import estimate

RUNS = 600
# Rows, share, and how often the choice is right where the answer was wrong, and the reverse.
TRUTHS = [
    (300, 0.2, 0.5, 0.02),
    (300, 0.2, 0.0, 0.0),
    (2_000, 0.05, 0.2, 0.05),
    (2_000, 0.05, 0.05, 0.4),
    (2_000, 0.5, 0.3, 0.1),
]


@pytest.mark.parametrize(("rows", "share", "gains", "loses"), TRUTHS)
def test_estimates_are_unbiased_and_intervals_cover(
    rows: int, share: float, gains: float, loses: float
) -> None:
    rng = np.random.default_rng(7)
    served = (rng.random(rows) < 0.75).astype(float)
    luck = rng.random(rows)
    right = np.where(served == 1, luck >= loses, luck < gains).astype(float)
    truth = 100 * (1 - right.mean())
    found = []
    for _ in range(RUNS):
        drawn = rng.random(rows) < share
        known = np.where(drawn, right, -1)
        found.append(
            estimate("x", served=served, right=known, drawn=drawn, share=np.full(rows, share))
        )
    errors = np.array([one.error_percent for one in found], float)
    covered = [one.low_percent <= truth <= one.high_percent for one in found]  # type: ignore[operator]
    deviation = errors.std() / np.sqrt(RUNS)

    assert abs(errors.mean() - truth) <= 4 * deviation + 1e-9
    # 95 % of 600 runs is 570, with a standard deviation of 5.3; few rows make it wider, not less.
    assert sum(covered) >= 0.93 * RUNS


def test_rows_with_other_shares_count_for_as_many_as_they_stand_for() -> None:
    rng = np.random.default_rng(3)
    rows = 3_000
    share = np.where(np.arange(rows) < 1_000, 0.5, 0.05)
    served = np.ones(rows)
    right = (np.arange(rows) >= 1_500).astype(float)  # half of them, but mostly of the small share
    found = [
        estimate(
            "x",
            served=served,
            right=np.where(drawn, right, -1),
            drawn=drawn,
            share=share,
        ).error_percent
        for drawn in (rng.random(rows) < share for _ in range(RUNS))
    ]

    assert (
        abs(np.mean(np.array(found, float)) - 50.0) < 4 * np.std(np.array(found, float)) / RUNS**0.5
    )


def test_a_few_rows_without_a_difference_do_not_show_that_there_is_none() -> None:
    served, drawn = np.tile([0.0, 1.0], 50), np.arange(100) < 10
    right = np.where(drawn, served, -1)
    found = estimate("x", served=served, right=right, drawn=drawn, share=np.full(100, 0.1))

    # As if one row more had gained and one had lost, each of variance (1 - 0.1) / 0.1 ** 2.
    half = 1.96 * 180**0.5
    assert found.error_percent == 50.0
    assert (found.low_percent, found.high_percent) == pytest.approx(
        (50 - half, 50 + half), abs=0.01
    )


def test_missing_answers_widen_the_interval_by_both_cases() -> None:
    served, share = np.array([1.0, 1.0, 0.0, 0.0]), np.ones(4)
    right, drawn = np.array([1.0, -1.0, 1.0, -1.0]), np.ones(4, bool)
    found = estimate("x", served=served, right=right, drawn=drawn, share=share)

    assert (found.low_percent, found.high_percent) == (0.0, 50.0)
    assert found.error_percent == 0.0  # they are taken to be like the others
    assert (found.drawn, found.missing) == (2, 2)


def test_answers_missing_because_of_the_case_stay_within_the_interval() -> None:
    rng = np.random.default_rng(5)
    rows, share = 2_000, 0.2
    served = (rng.random(rows) < 0.7).astype(float)
    right = (rng.random(rows) < 0.5).astype(float)
    covered = 0
    for _ in range(200):
        drawn = rng.random(rows) < share
        # Half of the rows on which the choice errs are lost: the worst kind of loss.
        known = np.where(drawn & ~((right == 0) & (rng.random(rows) < 0.5)), right, -1)
        found = estimate("x", served=served, right=known, drawn=drawn, share=np.full(rows, share))
        truth = 100 * (1 - right.mean())
        assert found.low_percent is not None
        assert found.high_percent is not None
        covered += found.low_percent <= truth <= found.high_percent

    assert covered >= 190


def test_without_a_known_row_there_is_no_estimate() -> None:
    found = estimate(
        "x",
        served=np.ones(3),
        right=np.full(3, -1.0),
        drawn=np.array([True, False, False]),
        share=np.full(3, 0.1),
    )

    assert found.error_percent is found.low_percent is found.high_percent is None
    assert (found.rows, found.drawn, found.missing) == (3, 0, 1)
