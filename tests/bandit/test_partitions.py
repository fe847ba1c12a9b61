"""Partitions: levels, names, the theorem's slices by hand, and what each of them must keep."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bandit import partitions
from covey.bandit.partitions import Partition, Uniform, Zooming, slices_for
from covey.errors import DataError
from covey.kernel import Clock, table_of
from covey.kernel.rules import Cell, Level, Rule


def cell_of(partition: Partition, *context: float) -> str:
    """Return the name of the cell in which the kernel puts `context`."""
    rule = Rule(
        dimension=len(context),
        functions=1,
        costs=(0.0,),
        levels=partition.levels(len(context)),
        most_cells=1000,
        is_pending=False,
    )
    table = table_of(Clock([1.0] * 3, [0.5] * 3), rule)
    return partition.name(table.cells.cell(table.decide(context, 1) >> 20))


@pytest.mark.parametrize(
    ("partition", "cell", "name"),
    [
        (Uniform(12), Cell(0, (3, 7)), "g12:3:7"),
        (Uniform(12), Cell(0, ()), "g12"),
        (Uniform(1), Cell(0, (0,)), "g1:0"),
        (Zooming(), Cell(4, (3, 7)), "z4:3:7"),
        (Zooming(), Cell(0, ()), "z0"),
        (partitions.Dyadic(), Cell(8, (3, 7, 1)), "z8:3:7:1"),
        (partitions.Dyadic(), Cell(8, (3, 7, 1, 255)), "x030701ff"),  # a place, not a cell
        (partitions.Dyadic(), Cell(0, (0, 0, 0, 0)), "z0:0:0:0:0"),
        (partitions.Dyadic(), Cell(0, (0,) * 17), "all:17"),
    ],
)
def test_a_cell_is_named_by_its_grid_or_level_and_its_coordinates(
    partition: Partition, cell: Cell, name: str
) -> None:
    assert partition.name(cell) == name
    assert partition.parse(name) == cell


@pytest.mark.parametrize(
    ("partition", "names"),
    [
        (Uniform(12), ["", "g", "G12:3", "z12:3", "12:3", "g012:3", "g12:", "g12::3", "g12:3\n"]),
        (Uniform(12), ["g12:03", "g12:-1", "g12:3.0", "g12:1e3", "g12:\u0663", "g12:" + "9" * 20]),
        (Uniform(12), ["g11:3", "g12:3:12"]),
        (Zooming(), ["", "z", "g4:3", "z-1", "z04:3", "z4:003", "z4:3 ", "z2:4", "z0:1"]),
        (Zooming(max_level=5), ["z6:0", "z9999999999"]),
    ],
)
def test_a_name_of_no_cell_is_refused(partition: Partition, names: list[str]) -> None:
    for name in names:
        with pytest.raises(DataError, match=f"{name.strip()}.* cell|cell .*{name.strip()}"):
            partition.parse(name)


@pytest.mark.parametrize(
    ("partition", "limits"),
    [
        (Zooming(scale=3.0, power=2.0, max_level=3), [3.0, 12.0, 48.0, 192.0]),
        (Zooming(power=4.0, offset=1, max_level=2), [16.0, 256.0, 4096.0]),
        # No count can reach the second one.
        (Zooming(scale=2.0**60, power=64.0, max_level=52), [2.0**60, 2.0**124, 2.0**188]),
    ],
)
def test_a_dyadic_cell_is_split_at_the_scale_times_two_to_the_power_times_its_level(
    partition: Zooming, limits: list[float]
) -> None:
    levels = partition.levels(2)

    assert levels[:3] == tuple(Level(2**k, limit) for k, limit in enumerate(limits[:3]))
    assert levels[-1].split_at == (math.inf if len(levels) > 17 else limits[-1])


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


def test_a_space_is_named_by_its_coordinates_and_no_two_spaces_alike() -> None:
    names = ["x", "x", "e[0]", "e[1]", "hour", "day", "load"]
    spaces = [(0,), (1,), (2, 3), (0, 2, 3, 4, 5), tuple(range(7)), (4, 5)]

    assert partitions.space_names(spaces, names) == [
        *("x", "x*", "e", "x+e+hour+day", "x+e+hour+day+1 more", "hour+day"),
    ]


def test_every_dimension_has_its_own_coordinate_also_if_there_is_none() -> None:
    assert cell_of(Uniform(10), 0.05, 1.0, 0.55) == "g10:0:9:5"
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


PARTITIONS = {
    "Dyadic": partitions.Dyadic(),
    "Uniform": partitions.Uniform(6),
    "Zooming": partitions.Zooming(scale=2.0, power=1.5, max_level=3),
}
every_partition = pytest.mark.parametrize("partition", PARTITIONS.values(), ids=PARTITIONS)
every_dimension = pytest.mark.parametrize("dimension", [0, 1, 2])


def cells_of(partition: Partition, dimension: int) -> list[Cell]:
    return [
        Cell(number, place)
        for number, level in enumerate(partition.levels(dimension))
        for place in itertools.product(range(level.side), repeat=dimension)
    ]


@every_dimension
@every_partition
def test_every_cell_has_a_name_of_its_own_which_is_read_back(
    partition: Partition, dimension: int
) -> None:
    cells = cells_of(partition, dimension)
    names = [partition.name(cell) for cell in cells]

    assert len(set(names)) == len(cells)
    assert [partition.parse(name) for name in names] == cells


@every_dimension
@every_partition
def test_a_finer_level_divides_the_sides_and_is_not_split_earlier(
    partition: Partition, dimension: int
) -> None:
    levels = partition.levels(dimension)

    assert [finer.side % level.side for level, finer in itertools.pairwise(levels)] == (
        [0] * (len(levels) - 1)
    )
    assert levels[0].split_at >= 0
    assert [level.split_at for level in levels] == sorted(level.split_at for level in levels)


@every_partition
def test_a_space_without_dimensions_is_one_cell_that_never_splits(partition: Partition) -> None:
    (level,) = partition.levels(0)

    assert level.split_at == float("inf")
