"""The kernel decides slot by slot what the reference decides."""

from hypothesis import given, settings
from networks import Case, cases, kernel_rows, reference_rows


@settings(max_examples=300, deadline=None)
@given(case=cases())
def test_every_decision_equals_that_of_the_reference(case: Case) -> None:
    assert kernel_rows(case) == reference_rows(case)
