"""Partitions of a context space, the names of their cells, and thresholds within a cell."""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, Protocol, Self

import msgspec
from msgspec import Meta

from covey.errors import ConfigError, ContextError, DataError
from covey.kernel.rules import WIDE_LEVEL, Cell, Level


class Partition(Protocol):
    """Maps contexts to cells, as data for the kernel."""

    def levels(self, dimension: int) -> tuple[Level, ...]:
        """Return the levels, coarsest first; each one subdivides the previous one."""

    def name(self, cell: Cell) -> str:
        """Return the canonical name of `cell`, as used between learners: grid, coordinates."""

    def parse(self, name: str) -> Cell:
        """Return the cell of a canonical name; the inverse of `name`."""


class Threshold(msgspec.Struct, frozen=True):
    """D(t) = scale * t ** power * ln t: an arm with at most D(t) labels needs exploration."""

    scale: Annotated[float, Meta(ge=0, le=1e300)]
    power: Annotated[float, Meta(ge=0, lt=1)]

    def at(self, slot: float) -> float:
        return float(self.scale * slot**self.power * math.log(slot))

    def formula(self) -> str:
        growth = f" t^{self.power:.4g}" if self.power else ""
        return f"{self.scale:g}{growth} ln t"


Space = tuple[int, ...]  # indices of coordinates
FINEST = {0: 0, 1: 8, 2: 7, 3: 4}  # level of the smallest cubes, by dimension
BETWEEN = "|"  # the names of candidates, and those of their cells
MOST_DRAWN = 16  # dimensions of which regions are named and drawn; `auto` has one cell in more
MOST_EPOCHS = 44  # of 1024 slots and twice as many each: beyond any number of slots
NUMBERS = {str(number): number for number in range(MOST_EPOCHS)}  # as names of cells end
LEVELS = 64  # of one partition, at most
_FEW = 4  # names of coordinates in that of a space


def space_name(space: Space, names: Sequence[str]) -> str:
    """Return the name of a space: the names of its coordinates; a vector has one name.

    >>> space_name((0, 1, 2), ["hour", "embedding[0]", "embedding[1]"])
    'hour+embedding'
    """
    if len(space) > 1:
        named = [re.sub(r"\[\d+\]$", "", names[k]) for k in space]
        parts = [name for name, _ in itertools.groupby(named)]
    else:
        parts = [names[k] for k in space]
    more = len(parts) - _FEW
    return "+".join(parts[:_FEW] + [f"{more} more"] * (more > 0))


def space_names(spaces: Sequence[Space], names: Sequence[str]) -> list[str]:
    """Return a name for each space; those of other scales get a star."""
    taken: list[str] = []
    for space in spaces:
        name = space_name(space, names)
        while name in taken:
            name += "*"
        taken.append(name)
    return taken


def space_of(cell: str) -> str:
    return cell.rpartition("/")[0]


class Candidates(NamedTuple):
    """Several candidate spaces of a learner as one: their names, and where their coordinates are.

    A cell of it is a cell of each, and its level says which of them decides.
    """

    spaces: tuple[str, ...]
    columns: tuple[Space, ...]  # places of the coordinates of each in contexts
    partitions: "tuple[Partition, ...]"

    @classmethod
    def of(cls, listed: Sequence[tuple[str, Space, Partition]]) -> Self:
        """Return spaces as one; contexts have their coordinates in the order of first mention."""
        names, spaces, partitions = zip(*listed, strict=True)
        own = list(dict.fromkeys(itertools.chain(*spaces)))
        return cls(names, tuple(tuple(map(own.index, space)) for space in spaces), partitions)

    @property
    def dimension(self) -> int:
        return 1 + max((place for space in self.columns for place in space), default=-1)

    def points(self, context: Sequence[float]) -> list[tuple[float, ...]]:
        if len(context) != self.dimension:
            raise ContextError(
                f"the context has {len(context)} coordinates; this learner's have {self.dimension}"
            )
        return [tuple([context[place] for place in places]) for places in self.columns]

    def parts(self, cell: Cell) -> list[Cell]:
        parts, at = [], 0
        for space, columns in zip(self.spaces, self.columns, strict=True):
            end = at + 1 + len(columns)
            parts.append(Cell(cell.coordinates[at], cell.coordinates[at + 1 : end], space))
            at = end
        return parts

    def whole(self, number: int, parts: Sequence[Cell]) -> Cell:
        """Return the cells of all spaces as one; that of space `number` decides."""
        numbers = [number for part in parts for number in (part.level, *part.coordinates)]
        return Cell(number, tuple(numbers))

    def name(self, cell: Cell) -> str:
        pairs = zip(self.partitions, self.parts(cell), strict=True)
        names = [partition.name(part) for partition, part in pairs]
        return f"{BETWEEN.join(names)}@{cell.level}"

    def parse(self, name: str) -> Cell:
        """Return the cell of a name; the inverse of `name`."""
        names, _, number = name.rpartition("@")
        parts = names.split(BETWEEN)
        if len(parts) != len(self.spaces) or number not in map(str, range(len(parts))):
            raise DataError(f"{name!r} is not a cell of the candidates {' and '.join(self.spaces)}")
        cells = [grid.parse(part) for grid, part in zip(self.partitions, parts, strict=True)]
        for part, cell, columns in zip(parts, cells, self.columns, strict=True):
            if len(cell.coordinates) != len(columns):
                raise DataError(f"cell {part!r} needs {len(columns)} coordinates")
        return self.whole(int(number), cells)


class Uniform(NamedTuple):
    """A grid of `slices` equal slices per dimension; cells are never split.

    >>> Uniform(12).name(Cell(0, (3, 7)))
    'g12:3:7'
    """

    slices: int

    def levels(self, dimension: int) -> tuple[Level, ...]:
        return (Level(self.slices, math.inf),)

    def name(self, cell: Cell) -> str:
        return _join(f"g{self.slices}", cell)

    def parse(self, name: str) -> Cell:
        number, coordinates = _split("g", name)
        if number != self.slices:
            raise DataError(f"cell {name!r} is not in a grid of {self.slices} slices")
        return _within(name, Cell(0, coordinates), self.slices)


class Zooming(NamedTuple):
    """Dyadic cubes: one of level l is split at `scale * 2 ** (power * (l + offset))` own arrivals.

    >>> Zooming(power=4.0).levels(1)[:3]
    (Level(side=1, split_at=1.0), Level(side=2, split_at=16.0), Level(side=4, split_at=256.0))
    """

    scale: float = 1.0
    power: float = 4.0
    offset: int = 0
    max_level: int = 40

    def levels(self, dimension: int) -> tuple[Level, ...]:
        if dimension == 0:
            return (Level(1, math.inf),)
        return tuple(Level(2**level, self._limit(level)) for level in range(self.max_level + 1))

    def name(self, cell: Cell) -> str:
        return _join(f"z{cell.level}", cell)

    def parse(self, name: str) -> Cell:
        level, coordinates = _split("z", name)
        if level > self.max_level:
            raise DataError(f"cell {name!r} is finer than the finest level, {self.max_level}")
        return _within(name, Cell(level, coordinates), 2**level)

    def _limit(self, level: int) -> float:
        exponent = self.power * (level + self.offset)
        return self.scale * 2.0**exponent if exponent < 1000 else math.inf


class Dyadic(NamedTuple):
    """Dyadic cubes of all sizes at once, down to a level that depends on the dimension.

    In more than three dimensions there is one cell, and a learner is told contexts to 8 bits.

    >>> [len(Dyadic().levels(dimension)) for dimension in range(5)]
    [1, 9, 8, 5, 1]
    """

    def levels(self, dimension: int) -> tuple[Level, ...]:
        finest = FINEST.get(dimension, 0)
        coarse = (Level(2**level, 0.0) for level in range(finest))
        return (*coarse, Level(2**finest, math.inf))

    def name(self, cell: Cell) -> str:
        if cell.level == WIDE_LEVEL and len(cell.coordinates) > 3:
            return "x" + bytes(cell.coordinates).hex()
        return _join(f"z{cell.level}", cell)

    def parse(self, name: str) -> Cell:
        if not name.startswith("x"):
            return Zooming(max_level=max(FINEST.values())).parse(name)
        try:
            return Cell(WIDE_LEVEL, tuple(bytes.fromhex(name[1:])))
        except ValueError:
            raise DataError(
                f"{name!r} is not a cell; after x come two hexadecimal digits each"
            ) from None


def side(name: str) -> float:
    """Return the side length of the cell with this name.

    >>> side("g8:3:7"), side("z2:1")
    (0.125, 0.25)
    """
    if name.startswith(ALL):
        return 1.0
    number, _ = _split(name[:1], name)
    return 2.0**-number if name[0] == "z" else 1 / number


ALL = "all:"  # before the dimension, in the name of a cell that is a whole space of many


def places_of(name: str) -> tuple[int, ...]:
    """Return the coordinates of the cell with this name, of any partition.

    >>> places_of("g8:3:7"), places_of("all:20")[:3]
    ((3, 7), (0, 0, 0))
    """
    if name.startswith(ALL):
        return (0,) * int(name[len(ALL) :])
    return tuple(map(int, name.split(":")[1:]))


def slices_for(horizon: float, *, alpha: float, dimension: int) -> int:
    """Return the slices per dimension of the theorem: T ** (1 / (3 alpha + d)), rounded up.

    >>> slices_for(20_000, alpha=1.0, dimension=1)
    12
    """
    if dimension == 0:
        return 1
    root: float = horizon ** (1.0 / (3.0 * alpha + dimension))
    # Floating-point error must not round an integer root up to the next integer.
    return round(root) if math.isclose(root, round(root), rel_tol=1e-12) else math.ceil(root)


def checked_slices(slices: int) -> int:
    if not 1 <= slices <= 2**31:
        raise ConfigError(f"slices is {slices}; it must be a whole number from 1 to 2**31")
    return slices


def _join(head: str, cell: Cell) -> str:
    if head in _WHOLE and len(cell.coordinates) > MOST_DRAWN:
        return f"{ALL}{len(cell.coordinates)}"
    return ":".join([head, *map(str, cell.coordinates)])


_WHOLE = ("g1", "z0")


def _split(kind: str, name: str) -> tuple[int, tuple[int, ...]]:
    if re.fullmatch(ALL + r"[1-9]\d{1,3}", name, re.ASCII) and int(name[4:]) > MOST_DRAWN:
        return int(kind == "g"), places_of(name)
    # No leading zeros: names are unique.
    if not re.fullmatch(kind + r"(0|[1-9]\d{0,9})(:(0|[1-9]\d{0,18}))*", name, re.ASCII):
        raise DataError(f"{name!r} is not a cell name; expected a name like '{kind}4:3:7'")
    number, *coordinates = map(int, name[1:].split(":"))
    return number, tuple(coordinates)


def _within(name: str, cell: Cell, side: int) -> Cell:
    if any(coordinate >= side for coordinate in cell.coordinates):
        raise DataError(f"cell {name!r} has a coordinate above {side - 1}")
    return cell


def cos_power(alpha: float, dimension: int) -> float:
    return 2 * alpha / (3 * alpha + dimension)


def split_power(alpha: float, dimension: int) -> float:
    """Return p, the split exponent of DCZA for worst-case arrivals."""
    return (3 * alpha + math.sqrt(9 * alpha**2 + 8 * alpha * dimension)) / 2


class Doubling(NamedTuple):
    """An unknown horizon: epochs of doubling length, in each of which a policy begins anew.

    They are numbered from 0.
    """

    first_epoch: int  # slots
    alpha: float  # of the cells and thresholds of all epochs

    def number_at(self, slot: int) -> int:
        """Return the number of the epoch of a slot.

        >>> [Doubling(10, 1.0).number_at(slot) for slot in (1, 10, 11, 30, 31)]
        [0, 0, 1, 1, 2]
        """
        return max(0, ((slot - 1) // self.first_epoch + 1).bit_length() - 1)

    def slots(self, number: int) -> int:
        return self.first_epoch << number

    def before(self, number: int) -> int:
        return self.first_epoch * ((1 << number) - 1)

    def slot_in(self, number: int, slot: int) -> int:
        """Return a slot as the epoch counts it; at least 1, as another site may be elsewhere."""
        return slot if slot < 1 else max(1, slot - self.before(number))


class EpochCells(NamedTuple):
    """The cells of all epochs, each with its own partition; names end with the epoch.

    The level of a cell says the epoch, and the level in its partition.
    """

    policy_of: Callable[[int], Any]  # of an epoch
    doubling: Doubling

    def levels(self, dimension: int) -> tuple[Level, ...]:
        levels: tuple[Level, ...] = self.policy_of(0).partition.levels(dimension)
        return levels

    def side(self, cell: Cell) -> int:
        epoch, own = unpacked(cell)
        policy = self.policy_of(epoch)
        level: Level = policy.partition.levels(policy.dimension)[own.level]
        return level.side

    def name(self, cell: Cell) -> str:
        epoch, own = unpacked(cell)
        return f"{self.policy_of(epoch).partition.name(own)}@{epoch}"

    def parse(self, name: str) -> Cell:
        """Return the cell of a name; the inverse of `name`."""
        own, _, suffix = name.rpartition("@")
        epoch = NUMBERS.get(suffix)
        if epoch is None:
            raise DataError(
                f"cell {name!r} does not end with an epoch, such as '@3'; write the same horizon "
                "at all sites"
            )
        try:
            partition = self.policy_of(epoch).partition
        except ConfigError as error:  # more slices than can be numbered
            raise DataError(f"cell {name!r}: {error}") from None
        return packed(epoch, partition.parse(own))


def packed(epoch: int, cell: Cell) -> Cell:
    return Cell(epoch * LEVELS + cell.level, cell.coordinates)


def unpacked(cell: Cell) -> tuple[int, Cell]:
    epoch, level = divmod(cell.level, LEVELS)
    return epoch, Cell(level, cell.coordinates)
