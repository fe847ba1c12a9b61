"""Reports of a simulation: terminal table and page."""

import msgspec
import pytest

from covey.report import simulation as simulation_report
from covey.simulation.comparison import Comparison, compare
from support.compared import CHOSEN, printed, runs
from support.outcomes import drawings


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(CHOSEN, runs())


@pytest.fixture(scope="module")
def page(found: Comparison) -> str:
    return simulation_report.html(found)


def test_the_table_has_a_line_per_environment_and_policy(found: Comparison) -> None:
    lines = printed(found).splitlines()

    assert lines[0] == "simulation: 2 policies, 2 environments, 2 seeds, 10,000 slots each"
    assert [line.split()[:2] for line in lines[4:8]] == [
        ["one", "grid"], ["one", "zoom"], ["all", "grid"], ["all", "zoom"],
    ]  # fmt: skip
    assert len({len(line) for line in lines[2:8]}) == 1


def test_the_numbers_of_a_line_are_those_of_its_score(found: Comparison) -> None:
    line = printed(found).splitlines()[5]

    # 2 and 6 times 10,000 ** 0.75 over 10,000 slots: 400 per 1,000 on average.
    assert line.split()[2:4] == ["400.0", "±"]
    assert line.split()[5:8] == ["0.75", "±", "0.00"]
    assert line.split()[8:] == ["20", "(20–20)", "11.00", "0.1500", "50", "0.0", "10.0"]  # noqa: RUF001


def test_the_verdict_counts_only_significant_ratios(found: Comparison) -> None:
    assert "zoom had less regret than grid in 0 of 2 environments, more in 2." in printed(found)


def test_an_interval_around_1_is_undecided() -> None:
    grid = [run for run in runs() if run.policy == "grid"]
    zoom = [
        msgspec.structs.replace(run, policy="zoom", seed=1 - run.seed)
        if run.environment == "one"
        else msgspec.structs.replace(run, policy="zoom", regret={"exploration": [0.0] * 4})
        for run in grid
    ]

    text = printed(compare(CHOSEN, [*grid, *zoom]))

    assert "less regret than grid in 1 of 2 environments, more in 0; 1 undecided" in text


def test_without_regret_there_is_a_page_all_the_same() -> None:
    calm = [msgspec.structs.replace(run, regret={"exploration": [0.0] * 4}) for run in runs()]

    found = compare(CHOSEN, calm)

    assert "–" in printed(found).splitlines()[4]  # noqa: RUF001
    assert simulation_report.html(found).count("<svg") == 2


def test_the_page_has_growth_and_causes_of_each_environment(page: str) -> None:
    assert [drawn.get("aria-label") for drawn in drawings(page)] == [
        "regret in one over time, on logarithmic axes",
        "regret in all over time, on logarithmic axes",
    ]
    assert page.count('<table class="bars">') == 2
