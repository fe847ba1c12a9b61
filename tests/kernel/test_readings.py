"""Readings of the paper: the kernel decides what the reference decides, and each by hand."""

from hypothesis import given, settings

from support.networks import Case, kernel_rows, reading_cases, reference_rows


@settings(max_examples=300)
@given(case=reading_cases())
def test_every_decision_by_another_reading_equals_that_of_the_reference(case: Case) -> None:
    assert kernel_rows(case) == reference_rows(case)
