"""Exponents, intervals and ratios of known distributions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from covey.simulation.comparison import band, exponent, growth_of, mean_of, ratio, student

SLOTS = [10, 30, 100, 300, 1000, 3000, 10_000, 30_000]


@given(
    power=st.floats(0, 1.5), scale=st.floats(1e-3, 1e6), count=st.integers(4, 40), data=st.data()
)
def test_the_exponent_of_a_power_law_is_its_power(
    power: float, scale: float, count: int, data: st.DataObject
) -> None:
    chosen = st.lists(st.integers(1, 10**9), min_size=count, max_size=count, unique=True)
    slots = sorted(data.draw(chosen))
    later = slots[len(slots) // 2 :]

    found = exponent(slots, [scale * slot**power for slot in slots])

    # Neighbouring slots leave little room on the log axis, so rounding weighs more there.
    room = math.log(later[-1] / later[0])
    assert found == pytest.approx(power, abs=1e-13 / room + 1e-12)


def test_the_earlier_half_of_a_curve_does_not_matter() -> None:
    law = [slot**0.75 for slot in SLOTS]
    late = [1e6, 3.0, 2e5, 0.0, *law[4:]]

    assert exponent(SLOTS, late) == pytest.approx(0.75, abs=1e-12)


@pytest.mark.parametrize(
    "curve", [[0.0] * 8, [1.0] * 4 + [0.0] * 3 + [5.0]], ids=["none", "one point"]
)
def test_without_two_points_there_is_no_exponent(curve: list[float]) -> None:
    assert exponent(SLOTS, curve) is None
    assert growth_of(SLOTS, [curve]) is None


def test_growth_is_the_estimate_of_the_seeds_that_have_an_exponent() -> None:
    curves = [[slot**power for slot in SLOTS] for power in (0.5, 0.7)]

    found = growth_of(SLOTS, [*curves, [0.0] * 8])

    assert found is not None
    assert found.mean == pytest.approx(0.6)
    assert found.low == pytest.approx(0.6 - 12.7062 * 0.1, abs=1e-4)


@given(st.integers(1, 3000), st.sampled_from([0.5, 0.95, 0.99]))
def test_students_reach_is_that_of_the_t_distribution(freedom: int, certainty: float) -> None:
    expected = stats.t.ppf((1 + certainty) / 2, freedom)

    assert student(freedom, certainty) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12))
def test_the_interval_is_students(values: list[float]) -> None:
    mean, sem = np.mean(values), stats.sem(values)
    reach = stats.t.ppf(0.975, len(values) - 1) * sem

    found = mean_of(values)

    assert found.low is not None
    assert found.high is not None
    assert found.mean == pytest.approx(mean, abs=1e-6)
    assert found.low == pytest.approx(mean - reach, abs=1e-4)
    assert found.high == pytest.approx(mean + reach, abs=1e-4)


def test_a_band_is_an_estimate_at_every_point() -> None:
    found = band([[1.0, 5.0], [3.0, 5.0]])

    assert found.mean == [2.0, 5.0]
    assert found.low == pytest.approx([2.0 - 12.7062, 5.0], abs=1e-4)
    assert found.high == pytest.approx([2.0 + 12.7062, 5.0], abs=1e-4)


def test_a_constant_ratio_is_certain() -> None:
    found = ratio([2.0, 4.0, 8.0], [1.0, 2.0, 4.0])

    assert found is not None
    assert (found.mean, found.low, found.high) == (2.0, 2.0, 2.0)


def test_pairing_matters() -> None:
    """The worlds differ much, the policies in each world little: pairs see that, others do not."""
    values, others = [11.0, 110.0, 1100.0], [10.0, 100.0, 1000.0]

    paired, crossed = ratio(values, others), ratio(values, others[::-1])

    assert paired is not None
    assert crossed is not None
    assert (paired.low, paired.high) == pytest.approx((1.1, 1.1))
    assert crossed.high > 10 * crossed.low  # type: ignore[operator]


def test_the_interval_of_a_ratio_has_the_width_of_95_percent() -> None:
    """Of a mean of many values it is that of the normal distribution; 90 % would be 0.84 of it."""
    values = np.random.default_rng(1).random(400)
    reach = 1.96 * values.std() / 20

    found = ratio(values.tolist(), [1.0] * 400)

    assert found is not None
    assert (found.low, found.high) == pytest.approx(
        (found.mean - reach, found.mean + reach), abs=0.06 * reach
    )


def test_pairs_without_regret_of_the_other_bound_no_ratio() -> None:
    """Of pairs drawn again, both can be the first one: these have no ratio."""
    found = ratio([1.0, 1.0], [0.0, 1.0])

    assert found is not None
    assert (found.mean, found.low, found.high) == (2.0, 1.0, 2.0)
    assert ratio([1.0, 2.0], [0.0, 0.0]) is None
