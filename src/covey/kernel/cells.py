# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Cells of a context space: rows of one integer array, made when a context first falls into them.

Memory depends on the used cells, not on the size of the grid. What else a row holds is up to the
`Layout`. An object that has many arrays keeps them in one block of memory. C reaches each by its
address, so it takes 8 bytes there; plain Python uses views.
"""

from __future__ import annotations

import mmap
from typing import Any

import cython

from covey.errors import ContextError, LimitError
from covey.kernel.history import NO_HISTORY, History
from covey.kernel.layout import Layout, is_flat
from covey.kernel.rules import WIDE_LEVEL, Cell, Rule

if cython.compiled:
    from cython.cimports.covey.kernel.cells import start_of
else:
    # Layout of a row, in integers of 64 bits; coordinates and the counters of the arms follow.
    SINCE = 1  # slot in which the cell was created; -1 - slot for a foreign cell
    NEXT_TEST = 3  # before this slot no arm needs exploration or training
    ARRIVALS = 4  # reported to peers
    OWN = 5  # own arrivals, which split the cell
    COORDINATES = 6
    # Integers 0 and 2 are pairs of 32 bits each, counted in such halves (`marks`).
    LEVEL = 0
    PARENT = 1  # row of the parent cell in a tree; -1: none
    BEST = 4  # arm with the largest estimate, -1 = recompute
    BEST_OWN = 5  # most accurate own function, -1 = recompute
    LEAF_BITS = 14
    FEW = 4096  # places of a grid that is indexed directly
    FACTOR = 1000003
    WIDE_SIDE = 256

MASK = (1 << 40) - 1  # products stay below 63 bits: C and Python integers give the same results
FIRST_ROWS = 4  # for which there is room from the start
MANY = 1 << 21  # bytes of a huge page


def block(size: int) -> Any:
    """Return `size` bytes of 0; if they are many, in huge pages where the system has them."""
    if size < 2 * MANY or not hasattr(mmap, "MADV_HUGEPAGE"):
        return bytearray(size)
    private = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    private.madvise(mmap.MADV_HUGEPAGE)
    return private


def octets(memory: Any, first: int, count: int) -> memoryview[int]:
    """Return `count` bytes of a block as small integers, from its integer `first` on; -1: all."""
    if cython.compiled:
        return cython.cast(cython.p_schar, start_of(memory)) + 8 * first  # type: ignore[no-any-return]
    view = memoryview(memory)
    if view.nbytes == 0:
        return view
    return view.cast("B")[8 * first : None if count < 0 else 8 * first + count].cast("b")


def doubles(memory: Any, first: int, count: int) -> memoryview[float]:
    """Return an array of `count` floats in a block, from its integer `first` on; -1: all."""
    if cython.compiled:
        return cython.cast(cython.p_double, start_of(memory)) + first  # type: ignore[no-any-return]
    return octets(memory, first, 8 * count).cast("B").cast("d")


def integers(memory: Any, first: int, count: int) -> memoryview[int]:
    """Return an array of `count` integers of 64 bits in a block, in the same way."""
    if cython.compiled:
        return cython.cast(cython.p_longlong, start_of(memory)) + first  # type: ignore[no-any-return]
    return octets(memory, first, 8 * count).cast("B").cast("q")


def halves(memory: Any, first: int, count: int) -> memoryview[int]:
    """Return an array of `count` integers of 32 bits in a block, in the same way."""
    if cython.compiled:
        start = cython.cast(cython.p_longlong, start_of(memory)) + first
        return cython.cast(cython.p_int, start)  # type: ignore[no-any-return]
    return octets(memory, first, 4 * count).cast("B").cast("i")


def shorts(memory: Any, first: int, count: int) -> memoryview[int]:
    """Return an array of `count` integers of 16 bits in a block, in the same way."""
    if cython.compiled:
        start = cython.cast(cython.p_longlong, start_of(memory)) + first
        return cython.cast(cython.p_short, start)  # type: ignore[no-any-return]
    return octets(memory, first, 2 * count).cast("B").cast("h")


class Cells:
    """The known cells of one learner in one context space."""

    def __init__(self, rule: Rule, layout: Layout) -> None:
        self.dimension = rule.dimension
        # In many dimensions there is one cell, and a place is a context to 8 bits.
        self.is_wide, self.axes = rule.is_wide, 0 if rule.is_wide else rule.dimension
        self.inherits = rule.inherits
        self.levels = len(rule.levels)
        self.has_tree = rule.tree is not None
        # All levels are used at once: the coarser cells around a cell are its parents.
        self.is_layered = self.has_tree and self.levels > 1
        # What is counted needs the coarser cells around an instance.
        self.follows = not self.has_tree or rule.remembers
        self.is_flat = is_flat(rule)
        self.deepest = 0  # level of the finest cell created by a peer
        self.most_cells = rule.most_cells
        self.foreign = 0  # rows of cells known only from isolated sources
        # Labels seen, for peers that show only the cell.
        self.memory: History = rule.history() if rule.remembers else NO_HISTORY
        # Small grids are indexed directly; others use a hash table that grows with the used cells.
        firsts, places = [], 0
        for level in rule.levels:
            firsts.append(places)
            places = min(FEW + 1, places + level.side**self.axes)
        self.is_direct = places <= FEW
        self.places = places if self.is_direct else 16
        # Of a tree: the finest cell in use, by a grid of this level; -1: there is none.
        has_leaves = self.is_layered and not self.follows
        self.grid = min(self.levels - 1, LEAF_BITS // max(1, self.axes)) if has_leaves else -1
        self.shown: tuple[float, ...] = ()  # a context, as a tuple
        self.found = 0  # how many rows `path` has, coarsest first
        self.labels, self.stride = layout.labels, layout.stride
        self.used = 0
        self._divide_block()
        for k in range(self.levels):
            self.sides[k] = rule.levels[k].side
            self.limits[k] = rule.levels[k].split_at
            self.firsts[k] = firsts[k]
        self._take_rows(block(8 * FIRST_ROWS * self.stride), FIRST_ROWS * self.stride)

    def _divide_block(self) -> None:
        """Make the block of all small arrays."""
        levels, width = self.levels, max(1, self.dimension)
        path = 3 * levels + 3 * width
        index = path + levels + 1
        first_leaf = index + (self.places + 1) // 2
        leaves = 1 << max(0, self.grid) * self.axes
        self.block = block(8 * (first_leaf + (leaves + 1) // 2))
        self.sides = doubles(self.block, 0, levels)
        self.limits = doubles(self.block, levels, levels)
        self.firsts = integers(self.block, 2 * levels, levels)
        self.context = doubles(self.block, 3 * levels, width)
        self.point = integers(self.block, 3 * levels + width, width)
        self.fine = integers(self.block, 3 * levels + 2 * width, width)
        self.path = integers(self.block, path, levels + 1)  # known rows around the context
        self.index = halves(self.block, index, self.places)
        self.leaves = halves(self.block, first_leaf, leaves)

    def _take_rows(self, memory: Any, capacity: int) -> int:
        """Keep the rows in a block of `capacity` integers."""
        self.row_block, self.capacity = memory, capacity
        self.rows, self.marks = integers(memory, 0, capacity), halves(memory, 0, 2 * capacity)
        self.reals = doubles(memory, 0, capacity)
        return 0

    # -- cells and their rows ------------------------------------------------------------------

    def cell(self, row: int) -> Cell:
        """Return the cell of `row`."""
        base = row * self.stride
        first = base + COORDINATES
        coordinates = tuple([self.rows[first + k] for k in range(self.axes)])
        return Cell(self.marks[2 * base + LEVEL], coordinates)

    def meet(self, cell: Cell, slot: int) -> int:
        """Return the row of a cell named by a peer; create it if needed.

        Of a place in many dimensions, the context becomes the current one.
        """
        self._point_at(cell)
        if self.is_wide:
            return self._open(0, slot)
        self.deepest = max(self.deepest, cell.level)
        if self.is_layered:
            return self._open_layers(cell.level, slot)
        return self._open(cell.level, slot)

    def find(self, cell: Cell) -> int:
        """Return the row of a known cell; -1 if it is not known."""
        self._point_at(cell)
        return max(-1, self.seek(0 if self.is_wide else cell.level))

    def is_foreign(self, row: int) -> bool:
        """Return whether the cell of `row` is known only from isolated sources."""
        return self.rows[row * self.stride + SINCE] < 0

    def layers(self, row: int) -> list[int]:
        """Return `row` and, in a tree, the rows of its parent cells."""
        rows = []
        while row >= 0:
            rows.append(row)
            row = self.marks[2 * row * self.stride + PARENT]
        return rows

    def around(self, context: tuple[float, ...]) -> list[int]:
        """Return the rows of the known cells around a context."""
        self.read(context)
        self.follow()
        return [self.path[k] for k in range(self.found)]

    def around_batch(self, contexts: Any, count: int) -> set[int]:
        """Return the rows of the known cells around `count` contexts."""
        rows = set()
        coordinates = doubles(contexts, 0, -1)
        for k in range(count):
            self.take_context(coordinates, k)
            self.follow()
            for n in range(self.found):
                rows.add(self.path[n])
        return rows

    def is_split(self, row: int) -> bool:
        """Return whether the learner uses finer cells here."""
        base = row * self.stride
        return self.rows[base + OWN] >= self.limits[self.marks[2 * base + LEVEL]]

    def own(self, row: int) -> int:
        """Return the learner's own arrivals in `row` while it was its finest cell there."""
        return self.rows[row * self.stride + OWN]

    def restore_row(self, cell: Cell, since: int) -> int:
        """Return the row of a cell that became known at slot `since`; below 0: a foreign one."""
        row = self.meet(cell, min(0, since))
        self.forget_leaves()
        base = row * self.stride
        self.foreign += (since < 0) - (self.rows[base + SINCE] < 0)
        self.rows[base + SINCE] = since
        return row

    def arrivals(self, row: int) -> int:
        """Return the arrivals in reports."""
        return self.rows[row * self.stride + ARRIVALS]

    def numbers(self, row: int, first: int, end: int) -> list[int]:
        """Return the integers of a row from place `first` to before `end`."""
        base = row * self.stride
        return [self.rows[base + k] for k in range(first, end)]

    def put(self, row: int, first: int, numbers: list[int]) -> None:
        """Set the integers of a row from place `first` on."""
        base = row * self.stride + first
        for k in range(len(numbers)):
            self.rows[base + k] = numbers[k]

    def take_context(self, contexts: memoryview[float], k: int) -> None:
        """Take coordinates of many instances as the current context: those of number `k`."""
        for n in range(self.dimension):
            self.context[n] = contexts[k * self.dimension + n]
        if self.is_wide:
            self.round_context()

    # -- context -> row ------------------------------------------------------------------------

    def read(self, context: tuple[Any, ...]) -> int:
        """Take a context as the current one."""
        if len(context) != self.dimension:
            raise ContextError(
                f"the context has {len(context)} coordinates; this learner's have {self.dimension}"
            )
        for k in range(self.dimension):
            value = float(context[k])
            if not 0.0 <= value <= 1.0:
                raise ContextError(f"context coordinate {k} is {value}; it must lie in [0, 1]")
            self.context[k] = value
        if self.is_wide:
            self.round_context()
        return 0

    def _point_at(self, cell: Cell) -> int:
        for k in range(self.axes):
            self.point[k] = cell.coordinates[k]
        for k in range(len(cell.coordinates) if self.is_wide else 0):
            self.context[k] = (cell.coordinates[k] + 0.5) / WIDE_SIDE
        return 0

    def take_place(self, other: Cells) -> None:
        """Take the context of another learner as the current one, where it is needed."""
        for k in range(self.dimension if self.is_wide else 0):
            self.context[k] = other.context[k]

    def round_context(self) -> None:
        """Round the context to the middle of a place, which is what peers know of it."""
        for k in range(self.dimension):
            slice_ = int(self.context[k] * WIDE_SIDE)
            self.context[k] = (min(slice_, WIDE_SIDE - 1) + 0.5) / WIDE_SIDE

    def place_of(self, row: int, context: tuple[Any, ...]) -> Cell:
        """Return what a peer is told of a context in a row: the cell, or the place."""
        if not self.is_wide:
            return self.cell(row)
        self.read(context)
        return Cell(
            WIDE_LEVEL, tuple([int(self.context[k] * WIDE_SIDE) for k in range(self.dimension)])
        )

    def since(self, base: int) -> int:
        """Return the slot in which a cell became known, foreign ones included."""
        since = self.rows[base + SINCE]
        return since if since >= 0 else -1 - since

    def point_now(self) -> tuple[float, ...]:
        """Return the context: the same object while it is the same."""
        is_same = len(self.shown) == self.dimension
        for k in range(self.dimension if is_same else 0):
            is_same = is_same and self.shown[k] == self.context[k]
        if not is_same:
            self.shown = tuple([self.context[k] for k in range(self.dimension)])
        return self.shown

    def _aim(self, level: int) -> None:
        """Set `point` to the coordinates of the cell of `level` around the context."""
        side = self.sides[level]
        for k in range(self.axes):
            slice_ = int(self.context[k] * side)
            self.point[k] = slice_ if slice_ < side else slice_ - 1

    def locate(self, slot: int) -> int:
        """Return the row of the learner's own cell around the context; `path` leads to it."""
        if self.is_flat and self.is_direct and self.foreign == 0:  # the usual case
            if self.is_wide:
                self.round_context()
            side = int(self.sides[0])
            place = 0
            for k in range(self.axes):
                slice_ = int(self.context[k] * side)
                place = place * side + (slice_ if slice_ < side else slice_ - 1)
            if self.index[place] > 0:
                self.path[0] = self.index[place] - 1
                self.found = 1
                return self.index[place] - 1
        leaf = -1
        if self.grid >= 0 and self.foreign == 0:
            leaf, side = 0, 1 << self.grid
            for k in range(self.axes):
                slice_ = int(self.context[k] * side)
                leaf = leaf * side + (slice_ if slice_ < side else slice_ - 1)
            row = self.leaves[leaf] - 1
            if row >= 0 and not self.is_split(row):
                self.path[0] = row  # the only one that is counted in
                self.found = 1
                return row
        return self._descend(slot, leaf)

    def _descend(self, slot: int, leaf: int) -> int:
        """Find the own cell from the coarsest one on; note it in `leaves` at `leaf`, if not -1."""
        level = 0
        while True:
            self._aim(level)
            row = self._open(level, slot)
            self.path[level] = row
            if self.is_layered:
                self.marks[2 * row * self.stride + PARENT] = self.path[level - 1] if level else -1
            self.found = level + 1
            if self.is_flat or self.rows[row * self.stride + OWN] < self.limits[level]:
                if self.inherits and level + 1 < self.levels:
                    self._aim(level + 1)
                    self.path[level + 1] = self._open(level + 1, slot)
                    self.found = level + 2
                if leaf >= 0 and level <= self.grid:
                    self.leaves[leaf] = row + 1
                return row
            level += 1
            if level == self.levels:
                raise LimitError(
                    f"a cell of level {level - 1} is due to be split, and no finer level is "
                    "allowed; raise max-level, or split-power so that cells split later"
                )

    def forget_leaves(self) -> None:
        """Let the next search for a cell begin at the coarsest one: own arrivals went down."""
        for k in range(1 << max(0, self.grid) * self.axes):
            self.leaves[k] = 0

    def place(self, level: int) -> int:
        """Return where in the index the search for the cell at `point` begins."""
        value = 0
        if self.is_direct:
            side = int(self.sides[level])
            for k in range(self.axes):
                value = value * side + self.point[k]
            return self.firsts[level] + value
        value = level + 1
        for k in range(self.axes):
            value = (value * FACTOR + self.point[k]) & MASK
        value = value * FACTOR & MASK
        return (value ^ value >> 20) & (self.places - 1)

    def seek(self, level: int) -> int:
        """Return the row of the cell at `point`, or `-2 - place` where it would be indexed."""
        place = self.place(level)
        while True:
            entry = self.index[place]
            if entry == 0:
                return -2 - place
            if self.is_direct or self._is_at(entry - 1, level):
                return entry - 1
            place = place + 1 & self.places - 1

    def _is_at(self, row: int, level: int) -> bool:
        base = row * self.stride
        if self.marks[2 * base + LEVEL] != level:
            return False
        is_same = True
        for k in range(self.axes):
            is_same = is_same and self.rows[base + COORDINATES + k] == self.point[k]
        return is_same

    def _open(self, level: int, slot: int) -> int:
        """Return the row of the cell at `point`, creating it if needed.

        A foreign one becomes an own one; with a negative slot, the new row is foreign.
        """
        row = self.seek(level)
        if row < 0:
            return self._add(level, slot, -2 - row)
        if self.foreign > 0 and slot >= 0 and self.rows[row * self.stride + SINCE] < 0:
            self._adopt(row, slot)
        return row

    def _adopt(self, row: int, slot: int) -> int:
        """Reset a foreign row to a new own one."""
        self._check_room()
        base = row * self.stride
        for k in range(self.labels, self.stride):
            self.rows[base + k] = 0
        self.rows[base + ARRIVALS] = self.rows[base + OWN] = self.rows[base + NEXT_TEST] = 0
        self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1
        self.rows[base + SINCE] = slot
        self.memory.forget(row)
        self.foreign -= 1
        return 0

    def _check_room(self) -> int:
        own = self.used - self.foreign
        if own >= self.most_cells:
            raise LimitError(f"{own} cells are in use, which is the cap; raise max-cells")
        return 0

    def open_for(self, other: Cells, row: int, slot: int) -> int:
        """Return the own row of the cell that `other` keeps in `row`, or of its context."""
        base = row * other.stride
        self.take_place(other)
        if self.is_flat and self.is_direct:  # the usual case
            side = int(self.sides[0])
            place = 0
            for k in range(self.axes):
                place = place * side + other.rows[base + COORDINATES + k]
            if self.index[place] > 0:
                return self.index[place] - 1
        level = other.marks[2 * base + LEVEL]
        for k in range(self.axes):
            self.point[k] = other.rows[base + COORDINATES + k]
        found = self.seek(level)
        if found >= 0:
            return found
        self.deepest = max(self.deepest, level)
        if self.is_layered:
            return self._open_layers(level, slot)
        return self._add(level, slot, -2 - found)

    def _open_layers(self, finest: int, slot: int) -> int:
        """Return the row of the cell of level `finest` at `point`; create its parents too."""
        for k in range(self.axes):
            self.fine[k] = self.point[k]
        row = -1
        for level in range(finest + 1):
            scale = self.sides[level] / self.sides[finest]
            for k in range(self.axes):
                self.point[k] = int(self.fine[k] * scale)
            parent = row
            row = self._open(level, slot)
            self.marks[2 * row * self.stride + PARENT] = parent
        return row

    def _add(self, level: int, slot: int, place: int) -> int:
        row = self.used
        base = row * self.stride
        if slot >= 0:
            self._check_room()
        if base + self.stride > self.capacity:
            # Copies cost more than room while rows are few and long.
            more = row if self.has_tree and row < FEW else row // 2
            length = base + max(4, more) * self.stride
            memory = block(8 * length)
            memoryview(memory)[: 8 * self.capacity] = memoryview(self.row_block)
            self._take_rows(memory, length)
        self.marks[2 * base + LEVEL] = level
        self.rows[base + SINCE] = slot
        self.marks[2 * base + PARENT] = -1
        self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1
        for k in range(self.axes):
            self.rows[base + COORDINATES + k] = self.point[k]
        self.used += 1
        self.foreign += slot < 0
        self.index[place] = row + 1
        if 2 * self.used > self.places and not self.is_direct:
            self._reindex()
        return row

    def _reindex(self) -> int:
        kept = [self.point[k] for k in range(self.axes)]
        self.places = 2 * self.places
        self.index_block = block(4 * self.places)
        self.index = halves(self.index_block, 0, self.places)
        for row in range(self.used):
            base = row * self.stride
            for k in range(self.axes):
                self.point[k] = self.rows[base + COORDINATES + k]
            self.index[-2 - self.seek(self.marks[2 * base + LEVEL])] = row + 1
        for k in range(self.axes):
            self.point[k] = kept[k]
        return 0

    def follow(self) -> None:
        """Set `path` to the known cells around the context."""
        self.found = 0
        for level in range(self.levels):
            self._aim(level)
            row = self.seek(level)
            if row >= 0:
                self.path[self.found] = row
                self.found += 1
            elif level >= self.deepest:
                break

    def follow_on(self) -> None:
        """Add to the path of `locate` the finer cells that peers created."""
        if not self.follows:
            return
        for level in range(self.found, self.deepest + 1):
            self._aim(level)
            row = self.seek(level)
            if row >= 0:
                self.path[self.found] = row
                self.found += 1
