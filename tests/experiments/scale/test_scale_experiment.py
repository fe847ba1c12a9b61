"""A short form of the experiment on many sites: memory and set-up are linear in them."""

import math
from types import ModuleType

import pytest

from covey.kernel import is_compiled
from support.modules import module_at
from support.required import ROOT


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    return module_at(ROOT / "experiments" / "scale" / "run.py", "scale_experiment")


def test_memory_and_allocations_are_linear_in_the_sites(scale: ModuleType) -> None:
    scale.held(50)  # what is loaded once
    (small, few), (large, many) = scale.held(500), scale.held(2_000)

    assert large <= 2.5 * 1_024 or not is_compiled()  # the plain kernel keeps views of arrays
    assert large < 1.02 * small
    assert many < 4.1 * few


def test_a_site_errs_as_often_in_a_larger_network(scale: ModuleType) -> None:
    small, large = (scale.played("3 peers each", sites, slots=60) for sites in (100, 1_000))

    # the spread is that of a network of 100 sites over 10 seeds
    assert abs(large.error_percent - small.error_percent) < 2 * small.spread
    assert large.messages == pytest.approx(small.messages, abs=0.1)


def test_the_tables_name_every_network(scale: ModuleType) -> None:
    row = scale.Played("3 peers each", 100_000, 31.234, math.nan, 1.25, 70.0)
    cost = scale.Cost(100_000, 80.0, 200.0, 400.0, 150.0, 2_427.0, 4_500.0)
    text = scale.table([row], [cost])

    assert "| 3 peers each | 100,000 | 31.23 | 1.25 | 70 |" in text
    assert "| 1.33 M | 2.50 M | 2,427 | 4,500 |" in text
    assert scale.picture([row]).startswith("<svg")
