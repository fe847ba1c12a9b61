"""What every partition must keep: the kernel walks it, and learners speak of its cells."""

import itertools

import pytest

from covey.bandit import partitions
from covey.bandit.partitions import Partition
from covey.kernel.rules import Cell

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
