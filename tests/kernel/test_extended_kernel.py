"""The kernel decides what the reference decides with every extension on."""

import pytest
from hypothesis import given, settings

from support.effort import effort
from support.networks import Case, crowded_case, extended_cases, kernel_rows, reference_rows


@settings(max_examples=effort(100, plain=60, long=300))
@given(case=extended_cases())
def test_every_extended_decision_equals_that_of_the_reference(case: Case) -> None:
    assert kernel_rows(case) == reference_rows(case)


@pytest.mark.parametrize("seed", range(12))
def test_the_kernel_keeps_to_the_reference_where_everybody_asks_everybody(seed: int) -> None:
    case = crowded_case(seed)

    assert kernel_rows(case) == reference_rows(case)
