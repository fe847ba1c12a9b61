"""The index of the default policy against the bound by bisection."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from reference.average import upper


def divergence(mean: float, q: float) -> float:
    terms = ((mean, q), (1 - mean, 1 - q))
    return sum(p * math.log(p / other) for p, other in terms if p > 0)


@settings(max_examples=500)
@given(mean=st.floats(0, 1), bound=st.floats(-9, 1).map(lambda power: 10.0**power))
def test_the_index_is_never_below_the_bound_by_kl_and_hardly_above(
    mean: float, bound: float
) -> None:
    """Steps of Newton's method with logarithms may be farther above it, near 0 and 1."""
    low, high = mean, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        fits = middle < 1.0 and divergence(mean, middle) <= bound
        low, high = (middle, high) if fits else (low, middle)
    is_usual = mean >= 0.1 and bound * (1 + mean) <= 2 * (1 - mean)

    assert upper(mean, bound) >= low - 1e-9
    assert upper(mean, bound) <= low + (0.03 * (low - mean) + 1e-9 if is_usual else 0.01)
