"""The kernel decides slot by slot what the reference decides, and costs only what it uses."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.policies import DCZA, CoS, PolicyRecord
from covey.errors import LimitError
from covey.kernel import Clock, Table, table_of
from support.effort import effort
from support.networks import (
    Case,
    cases,
    crowded_case,
    extended_cases,
    free_cases,
    index_cases,
    kernel_rows,
    limited_cases,
    reading_cases,
    reference_rows,
)


def table(
    settings_: PolicyRecord, *, dimension: int = 1, functions: int = 2, peers: int = 0
) -> Table:
    policy = settings_.resolve(dimension=dimension, most_functions=functions)
    costs = (0.0,) * (functions + peers)
    rule = policy.rule(functions=functions, costs=costs, position=0)
    return table_of(Clock(*policy.curves()), rule)


DRAWN = {
    "plain": cases(),
    "every extension": extended_cases(),
    "other readings": reading_cases(),
    "index policies": index_cases(),
    "free functions": free_cases(),
    "limits of harm": limited_cases(),
}


@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN)
@settings(max_examples=effort(100, plain=60, long=300))
@given(data=st.data())
def test_every_decision_equals_that_of_the_reference(
    drawn: st.SearchStrategy[Case], data: st.DataObject
) -> None:
    case = data.draw(drawn)

    assert kernel_rows(case) == reference_rows(case)


@pytest.mark.parametrize("seed", range(12))
def test_the_kernel_keeps_to_the_reference_where_everybody_asks_everybody(seed: int) -> None:
    case = crowded_case(seed)

    assert kernel_rows(case) == reference_rows(case)


@given(
    scale=st.floats(0.0, 50.0),
    power=st.floats(0.0, 0.999),
    slots=st.lists(st.integers(1, 10**9), min_size=1, max_size=20),
)
def test_thresholds_are_the_floors_of_the_formula_in_any_order_of_slots(
    scale: float, power: float, slots: list[int]
) -> None:
    clock = Clock([scale, 1.0, 2.0], [power, 0.125, 0.5])

    assert [clock.at(slot)[0] for slot in slots] == [
        math.floor(scale * slot**power * math.log(slot)) for slot in slots
    ]


def test_a_huge_threshold_is_cut_and_does_not_overflow() -> None:
    assert Clock([1e300, 1.0, 1.0], [0.9, 0.0, 0.0]).at(10**9)[0] == 2**60


def test_a_grid_of_a_billion_cells_costs_nothing_until_contexts_arrive() -> None:
    fine = table(CoS(slices=1_000), dimension=3)
    before = fine.counters.nbytes()

    for slot in range(1, 101):
        fine.decide((slot / 100, 0.5, 0.5), slot)

    assert before < 1_000
    assert len(fine) == 100
    assert fine.counters.nbytes() < 100 * 300


def test_memory_per_used_cell_and_arm_is_below_100_bytes() -> None:
    used = table(CoS(slices=1_000), dimension=2, functions=2, peers=3)
    rng = np.random.default_rng(3)

    for slot, point in enumerate(rng.random((20_000, 2)).tolist(), start=1):
        used.decide(tuple(point), slot)

    assert used.counters.nbytes() / (len(used) * 5) < 100


@pytest.mark.parametrize("slices", [3, 1_000])
def test_small_and_large_grids_find_the_same_cells(slices: int) -> None:
    grid = table(CoS(slices=slices), dimension=2)
    contexts = np.random.default_rng(7).random((200, 2)).tolist()

    cells = [grid.cells.cell(grid.decide(tuple(c), 1) >> 20).coordinates for c in contexts]

    assert cells == [(math.floor(x * slices), math.floor(y * slices)) for x, y in contexts]


def test_a_batch_spreads_its_exploration_where_pending_labels_count() -> None:
    arms = table(CoS(slices=1, explore={"scale": 0, "power": 0}, pending=True), functions=4)
    decisions = np.zeros(4, np.int64)

    arms.decide_batch(np.zeros(4).data, 1, decisions.data)

    assert [decision >> 2 & 0x3FFFF for decision in decisions.tolist()] == [0, 1, 2, 3]


def test_the_cap_on_levels_is_an_error_that_names_the_setting() -> None:
    shallow = table(DCZA(split_power=0.0, max_level=2))

    for slot in range(1, 4):
        shallow.decide((0.3,), slot)

    with pytest.raises(LimitError, match="level 2 is due to be split.*raise max-level"):
        shallow.decide((0.3,), 4)
