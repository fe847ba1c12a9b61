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
    ],
)
def test_a_cell_is_named_by_its_grid_or_level_and_its_coordinates(
    partition: Partition, cell: Cell, name: str
) -> None:
    assert partition.name(cell) == name


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


def test_a_dyadic_cell_is_split_at_the_scale_times_two_to_the_power_times_its_level() -> None:
    levels = Zooming(scale=3.0, power=2.0, max_level=3).levels(2)

    assert levels == (Level(1, 3.0), Level(2, 12.0), Level(4, 48.0), Level(8, 192.0))


def test_an_offset_of_one_splits_a_cell_as_late_as_the_next_finer_one() -> None:
    levels = Zooming(power=4.0, offset=1, max_level=2).levels(1)

    assert levels == (Level(1, 16.0), Level(2, 256.0), Level(4, 4096.0))


def test_a_level_that_no_count_can_reach_never_splits() -> None:
    levels = Zooming(scale=1e18, power=64.0, max_level=52).levels(1)

    assert (levels[15].split_at, levels[16].split_at) == (1e18 * 2.0**960, math.inf)


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
def test_a_name_is_read_back_as_the_cell_it_was_given_to(
    partition: Partition, dimension: int
) -> None:
    cells = cells_of(partition, dimension)

    assert [partition.parse(partition.name(cell)) for cell in cells] == cells


@every_dimension
@every_partition
def test_no_two_cells_have_the_same_name(partition: Partition, dimension: int) -> None:
    cells = cells_of(partition, dimension)

    assert len({partition.name(cell) for cell in cells}) == len(cells)


@every_dimension
@every_partition
def test_every_side_divides_that_of_the_next_finer_level(
    partition: Partition, dimension: int
) -> None:
    sides = [level.side for level in partition.levels(dimension)]

    assert [finer % coarser for coarser, finer in itertools.pairwise(sides)] == [0] * (
        len(sides) - 1
    )


@every_dimension
@every_partition
def test_a_finer_level_is_not_split_earlier(partition: Partition, dimension: int) -> None:
    limits = [level.split_at for level in partition.levels(dimension)]

    assert limits == sorted(limits)
    assert limits[0] >= 0


@every_partition
def test_a_space_without_dimensions_is_one_cell_that_never_splits(partition: Partition) -> None:
    (level,) = partition.levels(0)

    assert level.split_at == float("inf")
