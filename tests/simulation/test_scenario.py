"""A scenario is checked as a whole, and refused with a message."""

import copy
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bandit.policies import DCZA, CoS, resolve
from covey.errors import ConfigError
from covey.simulation import scenario
from covey.simulation.scenario import most_cells
from support.required import ROOT

pytestmark = pytest.mark.beside_the_kernel

TABLES: dict[str, Any] = {
    "scenario": {"horizon-slots": 1000, "seeds": 2, "checkpoints": 4, "workers": 2},
    "policy": [{"name": "grid", "preset": "cos", "slices": 4}, {"name": "zoom", "preset": "dcza"}],
    "environment": [{"name": "one", "case": "C1"}, {"name": "all", "case": "C2", "dimension": 2}],
}


def test_a_scenario_holds_the_configured_values() -> None:
    found = scenario.load(TABLES)

    assert (found.name, found.horizon, found.seeds, found.workers) == (
        "simulation",
        1000,
        (0, 1),
        2,
    )
    assert found.policies == {"grid": CoS(slices=4), "zoom": DCZA()}
    assert [each.dimension for each in found.environments.values()] == [1, 2]


def test_the_embedded_scenario_is_the_four_cases_for_both_policies() -> None:
    found = scenario.load()

    assert (found.horizon, found.seeds) == (20_000, (0, 1, 2, 3, 4))
    assert list(found.policies) == ["CoS", "DCZA"]
    assert {
        (each.case, len(each.names), each.counts, each.lipschitz, each.shape)
        for each in found.environments.values()
    } == {(case, 4, (2, 2, 2, 2), 1.2, "bumps") for case in ("C1", "C2", "C3", "C4")}


def test_changes_override_the_file() -> None:
    found = scenario.load(TABLES, seeds=3, horizon_slots=50, workers=None)

    assert (found.seeds, found.horizon, found.workers) == ((0, 1, 2), 50, 2)
    assert found.checkpoints[-1] == 50


def test_seeds_may_be_listed() -> None:
    tables = changed("scenario", "seeds", [7, 3])

    assert scenario.load(tables).seeds == (7, 3)


def test_listed_checkpoints_are_sorted_and_end_at_the_horizon() -> None:
    tables = changed("scenario", "checkpoints", [500, 20, 500])

    assert scenario.load(tables).checkpoints == (20, 500, 1000)


@given(horizon=st.integers(1, 2**53), count=st.integers(1, 200))
def test_counted_checkpoints_lie_evenly_on_a_logarithmic_scale(horizon: int, count: int) -> None:
    tables = changed("scenario", "checkpoints", count)

    found = scenario.load(tables, horizon_slots=horizon, memory_limit_mb=10**6).checkpoints

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


def test_a_policy_that_differs_by_dimension_is_described_for_each() -> None:
    tables = changed("policy", 0, {"name": "grid", "horizon": 1000})

    assert "6 slices" in scenario.load(tables).titles()["grid"]
    assert "4 slices" in scenario.load(tables).titles()["grid"]


@pytest.mark.parametrize(
    ("table", "key", "value", "sentence"),
    [
        ("scenario", "horizon-slots", 0, "[scenario] horizon-slots is 0; it must lie from 1"),
        ("scenario", "horizon-slots", 2**53 + 1, "horizon-slots is 9007199254740993; it must"),
        ("scenario", "horizon", 5, "unknown key 'horizon' in [scenario]; did you mean 'horizon-sl"),
        ("scenario", "seeds", 0, "[scenario] seeds is 0"),
        ("scenario", "seeds", [], "their number is 0"),
        ("scenario", "seeds", [1, -1], "seeds holds -1"),
        ("scenario", "seeds", [1, 2, 1], "duplicate seed 1;"),
        ("scenario", "checkpoints", [5, 1001], "checkpoints holds 1001"),
        ("scenario", "checkpoints", 10**6, "checkpoints is 1000000; it must lie from 1 to 1000"),
        ("scenario", "workers", 0, "[scenario] workers is 0"),
        ("policy", 0, {"slices": 4}, "[[policy]] 1 name is None"),
        ("policy", 0, {"name": "../up"}, "[[policy]] 1 name is '../up'; it must begin with"),
        ("policy", 0, {"name": "Zoom"}, "duplicate [[policy]] name 'zoom'"),
        ("policy", 0, {"name": "grid", "slice": 4}, "unknown key 'slice' in [[policy]] 'grid'"),
        ("policy", 0, {"name": "grid", "preset": "csa"}, "unknown preset 'csa'"),
        ("policy", 0, {"name": "grid", "parameters": "theorem"}, "needs a horizon"),
        ("environment", 0, {"name": "one", "alpha": 0}, "environment 'one': alpha is 0"),
        ("environment", 0, {"name": "one", "lipschitz": -1}, "lipschitz is -1.0"),
        ("environment", 0, {"name": "one", "high": 1.5}, "high is 1.5"),
        ("environment", 0, {"name": "one", "dimension": 9}, "dimension is 9; it must"),
        ("environment", 0, {"name": "one", "kase": "C1"}, "unknown key 'kase' in [[environment]]"),
        ("environment", 0, "C1", "[[environment]] 1 name is None"),
        ("environment", 0, {"name": "one", "liars": {"learner-2": "false-lables"}}, "false-labels"),
        ("policy", 0, {"name": "grid", "horizon": 999}, "horizon is 999 slots, but the run has 1"),
    ],
)  # fmt: skip
def test_an_invalid_scenario_is_refused_with_a_message(
    table: str, key: str | int, value: object, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario.load(changed(table, key, value))

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["policy", "environment"])
def test_a_scenario_needs_policies_and_environments(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"no {kind}; add a"):
        scenario.load({**TABLES, kind: []})


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown table .policies.; did you mean 'policy'"):
        scenario.load({**TABLES, "policies": []})


def test_more_memory_than_the_limit_is_refused_with_the_number() -> None:
    tables = changed("policy", 0, {"name": "grid", "slices": 200})
    tables["scenario"] |= {"horizon-slots": 10**7, "memory-limit-mb": 300}

    with pytest.raises(ConfigError) as caught:
        scenario.load(tables)

    # 40,000 cells for each of 4 learners with 5 arms at 49 bytes, in each of 2 workers, and more.
    told = int(str(caught.value).split("may need ")[1].split(" MB")[0])
    assert told > 2 * 4 * 40_000 * 5 * 49 / 1e6
    assert "policy 'grid' in environment 'all'" in str(caught.value)
    assert "memory-limit-mb, 300" in str(caught.value)


@given(st.integers(1, 10**12))
def test_a_grid_opens_at_most_its_cells_and_at_most_one_per_arrival(arrivals: int) -> None:
    policy = resolve(CoS(slices=10), dimension=3, most_functions=2)

    assert most_cells(policy, arrivals) == min(1000, arrivals)


def test_the_number_of_zooming_cells_is_bounded_by_the_split_thresholds() -> None:
    """A cell of level l splits after 2 ** l arrivals, so that 1,000 open at most 4000 / 2 ** l."""
    policy = resolve(DCZA(split_power=1.0, max_level=8), dimension=1, most_functions=2)

    whole_levels = 1 + 2 + 4 + 8 + 16 + 32
    assert most_cells(policy, 1000) == whole_levels + 4000 / 64 + 4000 / 128 + 4000 / 256


def test_every_key_of_a_scenario_is_documented() -> None:
    page = (ROOT / "docs" / "research" / "simulation.md").read_text()

    keys = [field.encode_name for field in msgspec.structs.fields(scenario.ScenarioTable)]
    assert [key for key in keys if f"| `{key}` |" not in page] == []


def changed(table: str, key: str | int, value: object) -> dict[str, Any]:
    tables = copy.deepcopy(TABLES)
    tables[table][key] = value
    return tables
