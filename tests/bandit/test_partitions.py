"""Partitions: levels, names and the theorem's slices, computed by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey.bandit.partitions import Layered, Partition, Uniform, Zooming, checked_slices, slices_for
from covey.bandit.policies import CoS, resolve
from covey.errors import ConfigError, DataError, LimitError
from covey.kernel import Clock, table_of
from covey.kernel.rules import Cell, Level, Rule


@st.composite
def cells_of_a_grid(draw: st.DrawFn) -> tuple[Uniform, Cell]:
    slices = draw(st.integers(1, 2**31))
    places = draw(st.lists(st.integers(0, slices - 1), max_size=4))
    return Uniform(slices), Cell(0, tuple(places))


@st.composite
def dyadic_cells(draw: st.DrawFn) -> Cell:
    level = draw(st.integers(0, 40))
    return Cell(level, tuple(draw(st.lists(st.integers(0, 2**level - 1), max_size=4))))


def cell_of(partition: Partition, *context: float) -> str:
    """Return the name of the cell in which the kernel puts `context`."""
    rule = Rule(
        dimension=len(context),
        functions=1,
        costs=(0.0,),
        levels=partition.levels(len(context)),
        most_cells=1000,
        trains_first=False,
        explores_to_help=True,
        counted=0,
        is_pending=False,
        seed=None,
    )
    table = table_of(Clock([1.0] * 3, [0.5] * 3), rule)
    return partition.name(table.cell(table.decide(context, 1) >> 20))


@given(case=cells_of_a_grid())
def test_the_name_of_a_grid_cell_can_be_read_back(case: tuple[Uniform, Cell]) -> None:
    grid, cell = case

    assert grid.parse(grid.name(cell)) == cell


@given(cell=dyadic_cells())
def test_the_name_of_a_dyadic_cell_can_be_read_back(cell: Cell) -> None:
    assert Zooming().parse(Zooming().name(cell)) == cell


@given(name=st.from_regex(r"[gz][0-9:]{0,12}", fullmatch=True))
def test_cell_names_are_unique(name: str) -> None:
    partition = Uniform(12) if name.startswith("g") else Zooming()
    try:
        cell = partition.parse(name)
    except DataError:
        return

    assert partition.name(cell) == name


@pytest.mark.parametrize(
    ("partition", "cell", "name"),
    [
        (Uniform(12), Cell(0, (3, 7)), "g12:3:7"),
        (Uniform(12), Cell(0, ()), "g12"),
        (Uniform(1), Cell(0, (0,)), "g1:0"),
        (Zooming(), Cell(4, (3, 7)), "z4:3:7"),
        (Zooming(), Cell(0, ()), "z0"),
        (Layered(3, step=2), Cell(0, (1,)), "z1:1"),
        (Layered(3, step=2), Cell(1, (7,)), "z3:7"),
        (Layered(3, step=2), Cell(0, ()), "z0"),
    ],
)
def test_a_cell_is_named_by_its_grid_or_level_and_its_coordinates(
    partition: Partition, cell: Cell, name: str
) -> None:
    assert partition.name(cell) == name


NOT_A_NAME = "{!r} is not a cell name; expected a name like '{}4:3:7'"


@pytest.mark.parametrize(
    "name",
    [
        *("", "g", "G12:3", "z12:3", "12:3", "g012:3", "g12:", "g12:3:", "g12::3"),
        *("g12:03", "g12:-1", "g12:3.0", "g12:1e3", "g12: 3", "g12:3\n", "g12:\u0663"),
        "g12:99999999999999999999",
    ],
)
def test_an_invalid_grid_cell_name_is_rejected(name: str) -> None:
    with pytest.raises(DataError) as caught:
        Uniform(12).parse(name)

    assert str(caught.value) == NOT_A_NAME.format(name, "g")


@pytest.mark.parametrize("name", ["", "z", "g4:3", "z-1", "z04:3", "z4:003", "z4:3 "])
def test_an_invalid_dyadic_cell_name_is_rejected(name: str) -> None:
    with pytest.raises(DataError) as caught:
        Zooming().parse(name)

    assert str(caught.value) == NOT_A_NAME.format(name, "z")


@pytest.mark.parametrize(
    ("partition", "name", "sentence"),
    [
        (Uniform(12), "g11:3", "cell 'g11:3' is not in a grid of 12 slices"),
        (Uniform(12), "g12:3:12", "cell 'g12:3:12' has a coordinate above 11"),
        (Zooming(), "z2:4", "cell 'z2:4' has a coordinate above 3"),
        (Zooming(), "z0:1", "cell 'z0:1' has a coordinate above 0"),
        (Zooming(max_level=5), "z6:0", "cell 'z6:0' is finer than the finest level, 5"),
        (Zooming(), "z9999999999", "cell 'z9999999999' is finer than the finest level, 40"),
        (Layered(3), "z4:0", "cell 'z4:0' is finer than the finest level, 3"),
        (
            Layered(3, step=2),
            "z2:0",
            "cell 'z2:0' is between two levels; levels are 2 apart",
        ),
        (
            Layered(3, step=2),
            "z0:0",
            "cell 'z0:0' is between two levels; levels are 2 apart",
        ),
        (Layered(3, step=2), "z3:8", "cell 'z3:8' has a coordinate above 7"),
    ],
)
def test_a_cell_outside_the_partition_is_rejected(
    partition: Partition, name: str, sentence: str
) -> None:
    with pytest.raises(DataError) as caught:
        partition.parse(name)

    assert str(caught.value) == sentence


@pytest.mark.parametrize("dimension", [0, 1, 3])
def test_a_grid_has_one_level_that_never_splits(dimension: int) -> None:
    assert Uniform(12).levels(dimension) == (Level(12, math.inf),)


def test_a_dyadic_cell_is_split_at_the_scale_times_two_to_the_power_times_its_level() -> None:
    levels = Zooming(scale=3.0, power=2.0, max_level=3).levels(2)

    assert levels == (Level(1, 3.0), Level(2, 12.0), Level(4, 48.0), Level(8, 192.0))


def test_an_offset_of_one_splits_a_cell_as_late_as_the_next_finer_one() -> None:
    levels = Zooming(power=4.0, offset=1, max_level=2).levels(1)

    assert levels == (Level(1, 16.0), Level(2, 256.0), Level(4, 4096.0))


@pytest.mark.parametrize(
    ("layered", "sides"),
    [
        (Layered(2), [1, 2, 4]),
        (Layered(3, step=2), [2, 8]),
        (Layered(4, step=2), [1, 4, 16]),
        (Layered(1, step=2), [2]),
        (Layered(0, step=2), [1]),
    ],
)
def test_layers_are_step_levels_apart_from_the_finest_up(
    layered: Layered, sides: list[int]
) -> None:
    *coarse, finest = [Level(side, 0.0) for side in sides]

    assert layered.levels(2) == (*coarse, finest._replace(split_at=math.inf))
    assert layered.levels(0) == (Level(1, math.inf),)


def test_a_power_of_zero_splits_every_cell_at_the_scale() -> None:
    levels = Zooming(scale=5.0, power=0.0, max_level=2).levels(1)

    assert [level.split_at for level in levels] == [5.0, 5.0, 5.0]


def test_max_level_is_the_finest_level() -> None:
    assert [level.side for level in Zooming(max_level=0).levels(1)] == [1]


def test_the_default_is_forty_levels_below_the_whole_space() -> None:
    assert Zooming().levels(1)[40:] == (Level(2**40, 2.0**160),)


def test_a_level_that_no_count_can_reach_never_splits() -> None:
    levels = Zooming(scale=1e18, power=64.0, max_level=52).levels(1)

    assert (levels[15].split_at, levels[16].split_at) == (1e18 * 2.0**960, math.inf)


def test_dyadic_cubes_without_dimensions_are_one_cell_that_never_splits() -> None:
    assert Zooming().levels(0) == (Level(1, math.inf),)


@pytest.mark.parametrize(
    ("x", "name"),
    [
        (0.0, "g4:0"),
        (0.24999999999999997, "g4:0"),
        (0.25, "g4:1"),
        (0.5, "g4:2"),
        (0.75, "g4:3"),
        (0.9999999999999999, "g4:3"),
        (1.0, "g4:3"),
    ],
)
def test_a_boundary_belongs_to_the_cell_above_it_and_one_to_the_last(x: float, name: str) -> None:
    assert cell_of(Uniform(4), x) == name


def test_every_dimension_has_its_own_coordinate() -> None:
    assert cell_of(Uniform(10), 0.05, 1.0, 0.55) == "g10:0:9:5"


def test_a_context_without_coordinates_lies_in_the_only_cell() -> None:
    assert cell_of(Zooming()) == "z0"


@pytest.mark.parametrize(
    ("horizon", "alpha", "dimension", "slices"),
    [
        (20_000, 1.0, 1, 12),  # 11.89...
        (20_000, 1.0, 2, 8),  # 7.25...
        (20_000, 0.5, 1, 53),  # 52.5...
        (16, 1.0, 1, 2),
        (17, 1.0, 1, 3),
        (81, 1.0, 1, 3),
        (10_000, 1.0, 1, 10),
        (10_001, 1.0, 1, 11),
        (10**12, 1.0, 1, 1000),
        (10**15, 1.0, 2, 1000),
        (243, 1.0, 2, 3),
        (1, 1.0, 3, 1),
        (20_000, 1.0, 0, 1),
    ],
)
def test_slices_round_the_root_up_and_keep_integer_roots(
    horizon: int, alpha: float, dimension: int, slices: int
) -> None:
    assert slices_for(horizon, alpha=alpha, dimension=dimension) == slices


@given(root=st.integers(1, 3000), dimension=st.integers(1, 3))
def test_the_root_of_an_integer_power_is_exact(root: int, dimension: int) -> None:
    assert slices_for(root ** (3 + dimension), alpha=1.0, dimension=dimension) == root


@pytest.mark.parametrize("slices", [1, 12, 2**31])
def test_a_grid_can_have_one_to_two_billion_slices(slices: int) -> None:
    assert checked_slices(slices) == slices


@pytest.mark.parametrize("slices", [0, -3, 2**31 + 1])
def test_zero_or_too_many_slices_are_rejected(slices: int) -> None:
    with pytest.raises(ConfigError) as caught:
        checked_slices(slices)

    assert str(caught.value) == f"slices is {slices}; it must be a whole number from 1 to 2**31"


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({"slices": 9, "max-cells": 3}, "3 cells are in use, which is the cap; raise max-cells"),
        (
            {"preset": "dcza", "max-level": 1, "split-power": 0.0},
            "a cell of level 1 is due to be split, and no finer level is allowed; raise "
            "max-level, or split-power so that cells split later",
        ),
    ],
)
def test_a_reached_limit_is_named(policy: dict[str, Any], sentence: str) -> None:
    points = np.linspace(0, 1, 9)[:, np.newaxis]
    with pytest.raises(LimitError) as caught:
        covey.replay(
            {"policy": policy, "learner": [{"name": "north", "functions": ["nb", "tree"]}]},
            predictions=np.ones((2, 9)),
            labels=np.ones(9),
            contexts=points,
        )

    assert str(caught.value) == sentence


def test_a_large_grid_costs_nothing_until_contexts_arrive() -> None:
    policy = resolve(CoS(slices=1000), dimension=3, most_functions=2)
    rule = policy.rule(functions=2, costs=(0.0,) * 5, position=0)
    table = table_of(Clock(policy.scales(), policy.powers()), rule)
    empty_bytes = table.nbytes()
    rng = np.random.default_rng(3)
    for slot, context in enumerate(rng.random((2000, 3)).tolist(), start=1):
        table.decide(tuple(context), slot)

    assert (len(table), empty_bytes < 1000) == (2000, True)
    assert table.nbytes() / (len(table) * 5) < 100
