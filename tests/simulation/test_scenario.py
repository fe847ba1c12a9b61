"""A scenario is checked as a whole, and refused with a message."""

import copy
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.simulation import scenario
from support.required import ROOT

TABLES: dict[str, Any] = {
    "scenario": {"horizon-slots": 1000, "seeds": 2, "checkpoints": 4, "workers": 2},
    "policy": [{"name": "grid", "preset": "cos", "slices": 4}, {"name": "zoom", "preset": "dcza"}],
    "environment": [{"name": "one", "case": "C1"}, {"name": "all", "case": "C2", "dimension": 2}],
}


def test_the_embedded_scenario_is_the_four_cases_for_both_policies() -> None:
    found = scenario.load()

    assert (found.horizon, found.seeds) == (20_000, (0, 1, 2, 3, 4))
    assert list(found.policies) == ["CoS", "DCZA"]
    assert {
        (each.case, len(each.names), each.counts, each.lipschitz, each.shape)
        for each in found.environments.values()
    } == {(case, 4, (2, 2, 2, 2), 1.2, "bumps") for case in ("C1", "C2", "C3", "C4")}


def test_listed_checkpoints_are_sorted_and_end_at_the_horizon() -> None:
    tables = changed("scenario", "checkpoints", [500, 20, 500])

    assert scenario.load(tables).checkpoints == (20, 500, 1000)


@given(horizon=st.integers(1, 2**53), count=st.integers(1, 200))
def test_counted_checkpoints_lie_evenly_on_a_logarithmic_scale(horizon: int, count: int) -> None:
    tables = changed("scenario", "checkpoints", count)

    found = scenario.load(tables, horizon_slots=horizon).checkpoints

    assert list(found) == sorted(set(found))
    assert (found[-1], len(found) <= count) == (horizon, True)
    first, last = math.log(min(10, horizon)), math.log(horizon)
    for place, slot in enumerate(found) if len(found) == count > 1 else ():
        exact = first + (last - first) * place / (count - 1)
        assert slot == pytest.approx(math.exp(exact), abs=0.51, rel=1e-12)


def test_every_policy_and_environment_has_a_one_line_description() -> None:
    found = scenario.load(TABLES)

    assert found.titles()["grid"].startswith("CoS (spec): 4 slices per dimension")
    assert found.descriptions() == {
        "one": "worst arrivals, worst correlation",
        "all": "worst arrivals, best correlation, dimension 2",
    }


def test_every_key_of_a_scenario_is_documented() -> None:
    page = (ROOT / "docs" / "research" / "simulation.md").read_text()

    keys = [field.encode_name for field in msgspec.structs.fields(scenario.ScenarioTable)]
    assert [key for key in keys if f"| `{key}` |" not in page] == []


def changed(table: str, key: str | int, value: object) -> dict[str, Any]:
    tables = copy.deepcopy(TABLES)
    tables[table][key] = value
    return tables
