# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Cells of a context space: rows of one integer array, made when a context first falls into them.

Memory depends on the used cells, not on the size of the grid. What else a row holds is up to the
classes that inherit.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:
    from types import SimpleNamespace

    cython = SimpleNamespace(compiled=False)

if cython.compiled:
    from cython.cimports.covey.kernel.memory import touch

from covey.errors import ContextError, LimitError
from covey.kernel.memory import block, doubles, halves, integers
from covey.kernel.rules import Cell, Rule

# Layout of a row, in integers of 64 bits; coordinates and the counters of the arms follow.
SINCE = 1  # slot in which the cell was created; -1 - slot for a foreign cell
NEXT_TEST = 3  # before this slot no arm needs exploration or training
ARRIVALS = 4  # reported to peers
OWN = 5  # own arrivals, which split the cell
COORDINATES = 6
# Integers 0 and 2 are pairs of 32 bits each, counted in such halves (`marks`).
LEVEL = 0
PARENT = 1  # row of the parent cell, when all levels are used at once; -1: none
BEST = 4  # arm with the largest estimate, -1 = recompute
BEST_OWN = 5  # most accurate own function, -1 = recompute

# Products stay below 63 bits: C and Python integers give the same results.
MASK = (1 << 40) - 1
FACTOR = 1000003
FEW_BITS = 12
FEW = 1 << FEW_BITS
FIRST_ROWS = 4  # for which there is room from the start


class Cells:
    """The known cells of one learner in one context space."""

    def __init__(self, rule: Rule, more: int = 0) -> None:
        """`more` integers of the block are for the arrays of the class that inherits."""
        self.dimension = rule.dimension
        self.inherits = rule.inherits
        # All levels are used at once: the coarser cells around a cell are its parents.
        self.is_layered = len(rule.levels) > 1 and (
            rule.tree is not None or (rule.index is not None and len(rule.index.bias) > 1)
        )
        self.levels = len(rule.levels)
        self.has_tree = rule.tree is not None
        # What is counted needs the coarser cells around an instance.
        self.follows = not self.has_tree or rule.remembers
        self.is_flat = self.levels == 1 and rule.levels[0].split_at == float("inf")
        self.deepest = 0  # level of the finest cell created by a peer
        self.most_cells = rule.most_cells
        self.foreign = 0  # rows of cells known only from isolated sources
        # Small grids are indexed directly; others use a hash table that grows with the used cells.
        firsts, places = [], 0
        for level in rule.levels:
            firsts.append(places)
            places = min(FEW + 1, places + level.side**rule.dimension)
        self.is_direct = places <= FEW
        self.places = places if self.is_direct else 16
        # Of a tree: the finest cell in use, by a grid of this level; -1: there is none.
        self.grid = (
            FEW_BITS // max(1, self.dimension) if self.is_layered and not self.follows else -1
        )
        self.shown: tuple[float, ...] = ()  # a context, as a tuple
        self.found = 0  # how many rows `path` has, coarsest first
        self.labels = COORDINATES + self.dimension
        self.used = 0
        self.stride = 0
        self.numbered = 0  # so many rows have a number
        self._divide_block(more)
        for k in range(self.levels):
            self.sides[k] = rule.levels[k].side
            self.limits[k] = rule.levels[k].split_at
            self.firsts[k] = firsts[k]

    def _divide_block(self, more: int) -> None:
        """Make the block of all small arrays; from its integer `spare` on there are `more`."""
        levels, width = self.levels, max(1, self.dimension)
        leaves = self._leaf_count()
        path = 3 * levels + 3 * width
        index = path + levels + 1
        numbers = index + (self.places + 1) // 2
        first_leaf = numbers + FIRST_ROWS // 2
        self.spare = first_leaf + (leaves + 1) // 2
        self.block = block(8 * (self.spare + more))
        self.sides = doubles(self.block, 0, levels)
        self.limits = doubles(self.block, levels, levels)
        self.firsts = integers(self.block, 2 * levels, levels)
        self.context = doubles(self.block, 3 * levels, width)
        self.point = integers(self.block, 3 * levels + width, width)
        self.fine = integers(self.block, 3 * levels + 2 * width, width)
        self.path = integers(self.block, path, levels + 1)  # known rows around the context
        self.index = halves(self.block, index, self.places)
        # In a replay: the number of each row's cell, the same for all learners.
        self.numerable = FIRST_ROWS
        self.numbers = halves(self.block, numbers, FIRST_ROWS)
        self.leaves = halves(self.block, first_leaf, leaves)

    def _leaf_count(self) -> int:
        """Return how many `leaves` there are."""
        return 1 << max(0, self.grid) * self.dimension

    def allocate(self, stride: int) -> None:
        """Make room for the first rows, of `stride` integers each."""
        self.stride = stride
        self._take_rows(block(8 * FIRST_ROWS * stride), FIRST_ROWS * stride)

    def _take_rows(self, memory: Any, capacity: int) -> int:
        """Keep the rows in a block of `capacity` integers."""
        self.row_block, self.capacity = memory, capacity
        self.rows, self.marks = integers(memory, 0, capacity), halves(memory, 0, 2 * capacity)
        return 0

    # -- what inherits -------------------------------------------------------------------------

    def _has_grown(self, rows: int) -> int:
        """Make room for as many rows, beside the array of counters."""
        return 0

    def _is_reset(self, row: int) -> int:
        """Forget what is kept of a row beside its counters."""
        return 0

    # -- cells and their rows ------------------------------------------------------------------

    def __len__(self) -> int:
        return self.used

    def nbytes(self) -> int:
        """Return the memory of the cells, including unused capacity."""
        return 8 * self.capacity + 4 * self.places

    def cell(self, row: int) -> Cell:
        """Return the cell of `row`."""
        base = row * self.stride
        first = base + COORDINATES
        coordinates = tuple([self.rows[first + k] for k in range(self.dimension)])
        return Cell(self.marks[2 * base + LEVEL], coordinates)

    def meet(self, cell: Cell, slot: int) -> int:
        """Return the row of a cell named by a peer; create it if needed."""
        self._point_at(cell)
        self.deepest = max(self.deepest, cell.level)
        if self.is_layered:
            return self._open_layers(cell.level, slot)
        return self._open(cell.level, slot)

    def open_foreign(self, cell: Cell, slot: int) -> int:
        """Return the row of a cell named by an isolated source; own labels count in it.

        No own decision depends on it, and it does not count towards the cell limit, until
        `decide` or `meet` reaches it: then it is reset and becomes an own cell.
        """
        return self.meet(cell, -1 - slot)

    def find(self, cell: Cell) -> int:
        """Return the row of a known cell; -1 if it is not known."""
        self._point_at(cell)
        return max(-1, self._find(cell.level))

    def is_foreign(self, row: int) -> bool:
        """Return whether the cell of `row` is known only from isolated sources."""
        return self.rows[row * self.stride + SINCE] < 0

    def foreign_cells(self) -> int:
        """Return how many rows are foreign."""
        return self.foreign

    def layers(self, row: int) -> list[int]:
        """Return `row` and, if all levels are used at once, the rows of its parent cells."""
        rows = []
        while row >= 0:
            rows.append(row)
            row = self.marks[2 * row * self.stride + PARENT]
        return rows

    def around(self, context: tuple[float, ...]) -> list[int]:
        """Return the rows of the known cells around a context."""
        self._read(context)
        self._follow()
        return [self.path[k] for k in range(self.found)]

    def around_batch(self, contexts: memoryview, count: int) -> set[int]:
        """Return the rows of the known cells around `count` contexts."""
        rows = set()
        for k in range(count):
            self._take_context(contexts, k)
            self._follow()
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

    def arrivals(self, row: int) -> int:
        """Return the arrivals in reports."""
        return self.rows[row * self.stride + ARRIVALS]

    def _take_context(self, contexts: memoryview, k: int) -> None:
        for n in range(self.dimension):
            self.context[n] = contexts[k * self.dimension + n]

    # -- context -> row ------------------------------------------------------------------------

    def _read(self, context: tuple[Any, ...]) -> int:
        if len(context) != self.dimension:
            raise ContextError(
                f"the context has {len(context)} coordinates; this learner's have {self.dimension}"
            )
        for k in range(self.dimension):
            value = float(context[k])
            if not 0.0 <= value <= 1.0:
                raise ContextError(f"context coordinate {k} is {value}; it must lie in [0, 1]")
            self.context[k] = value
        return 0

    def _point_at(self, cell: Cell) -> int:
        for k in range(self.dimension):
            self.point[k] = cell.coordinates[k]
        return 0

    def _since(self, base: int) -> int:
        """Return the slot in which a cell became known, foreign ones included."""
        since = self.rows[base + SINCE]
        return since if since >= 0 else -1 - since

    def _point_now(self) -> tuple[float, ...]:
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
        for k in range(self.dimension):
            slice_ = int(self.context[k] * side)
            self.point[k] = slice_ if slice_ < side else slice_ - 1

    def _locate(self, slot: int) -> int:
        """Return the row of the learner's own cell around the context; `path` leads to it."""
        if self.is_flat and self.is_direct and self.foreign == 0:  # the usual case
            side = int(self.sides[0])
            place = 0
            for k in range(self.dimension):
                slice_ = int(self.context[k] * side)
                place = place * side + (slice_ if slice_ < side else slice_ - 1)
            if self.index[place] > 0:
                self.path[0] = self.index[place] - 1
                self.found = 1
                return self.index[place] - 1
        leaf = -1
        if self.grid >= 0 and self.foreign == 0:
            leaf = self._leaf_place()
            row = self.leaves[leaf] - 1
            if row >= 0 and not self.is_split(row):
                self._stand_at(row)
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

    def _leaf_place(self) -> int:
        """Return where in `leaves` the context is."""
        side = 1 << self.grid
        place = 0
        for k in range(self.dimension):
            slice_ = int(self.context[k] * side)
            place = place * side + (slice_ if slice_ < side else slice_ - 1)
        return place

    def _forget_leaves(self) -> None:
        """Let the next search for a cell begin at the coarsest one: own arrivals went down."""
        for k in range(self._leaf_count()):
            self.leaves[k] = 0

    def _number_rows(self, space: int, known: dict[tuple[int, Cell], int]) -> int:
        """Set the `numbers` of new rows: those of their cells among the `known` of all learners."""
        if self.used > self.numerable:
            self.numerable = self.used + self.used // 8
            memory = block(4 * self.numerable)
            numbers = halves(memory, 0, self.numerable)
            for row in range(self.numbered):
                numbers[row] = self.numbers[row]
            self.number_block, self.numbers = memory, numbers
        for row in range(self.numbered, self.used):
            self.numbers[row] = known.setdefault((space, self.cell(row)), len(known))
        self.numbered = self.used
        return 0

    def _stand_at(self, row: int) -> None:
        """Take `row` as the only cell around the instance that is counted in."""
        self.path[0] = row
        self.found = 1

    def _is_like(self, other: Cells, first: int) -> bool:
        """Return whether both divide the space alike, and keep the same cells in the same rows.

        Rows before `first` are known to be the same.
        """
        if not (self.is_flat or self.grid >= 0) or self.grid != other.grid:
            return False
        if self.dimension != other.dimension or self.levels != other.levels:
            return False
        if self.used != other.used or self.foreign or other.foreign:
            return False
        differ = 0
        for k in range(self.levels):
            differ += self.sides[k] != other.sides[k] or self.limits[k] != other.limits[k]
        if self.grid >= 0:
            first = 0  # in a tree, own arrivals must be the same: then all split a cell at once
        for row in range(first, self.used):
            differ += self._is_other(row * self.stride, other, row * other.stride)
        return differ == 0

    def _is_other(self, base: int, other: Cells, there: int) -> bool:
        """Return whether a row of another table has another cell, or of a tree other arrivals."""
        differ = self.marks[2 * base + LEVEL] != other.marks[2 * there + LEVEL]
        if self.grid >= 0 and self.rows[base + OWN] != other.rows[there + OWN]:
            differ = True
        for k in range(COORDINATES, self.labels):
            if self.rows[base + k] != other.rows[there + k]:
                differ = True
        return differ

    def _look_ahead(
        self,
        contexts: Any,
        start: int,
        columns: Any,
        width: int,
        ahead: Any,
        at: int,
        count: int,
    ) -> None:
        """Set `ahead`, from `at` on, to the rows of `count` instances of a flat grid.

        -1: not known yet. The memory of all of them is requested before it is needed.
        """
        if cython.compiled and not self.is_direct:
            for k in range(count):
                self._aim_at(contexts, columns, start + k * width)
                ahead[at + k] = self._place(0)
                touch(cython.address(self.index[ahead[at + k]]))
            for k in range(count):
                if self.index[ahead[at + k]] > 0:
                    self._touch(self.index[ahead[at + k]] - 1)
        for k in range(count):
            self._aim_at(contexts, columns, start + k * width)
            ahead[at + k] = max(-1, self._find(0))

    def _aim_at(self, contexts: Any, columns: Any, start: int) -> None:
        """Set `point` to the cell of level 0 around coordinates that begin at `start`."""
        side = self.sides[0]
        for k in range(self.dimension):
            slice_ = int(contexts[start + columns[k]] * side)
            self.point[k] = slice_ if slice_ < side else slice_ - 1

    def _touch(self, row: int) -> None:
        """Request the memory of a row before it is needed."""
        if cython.compiled:
            # Two cache lines: what a decision reads, and the counters of the first arms.
            first = row * self.stride + BEST // 2
            touch(cython.address(self.rows[first]))
            touch(cython.address(self.rows[first + 8]))

    def _place(self, level: int) -> int:
        """Return where in the index the search for the cell at `point` begins."""
        value = 0
        if self.is_direct:
            side = int(self.sides[level])
            for k in range(self.dimension):
                value = value * side + self.point[k]
            return self.firsts[level] + value
        value = level + 1
        for k in range(self.dimension):
            value = (value * FACTOR + self.point[k]) & MASK
        value = value * FACTOR & MASK
        return (value ^ value >> 20) & (self.places - 1)

    def _find(self, level: int) -> int:
        """Return the row of the cell at `point`, or `-2 - place` where it would be indexed."""
        place = self._place(level)
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
        for k in range(self.dimension):
            if self.rows[base + COORDINATES + k] != self.point[k]:
                return False
        return True

    def _open(self, level: int, slot: int) -> int:
        """Return the row of the cell at `point`, creating it if needed.

        A foreign one becomes an own one; with a negative slot, the new row is foreign.
        """
        row = self._find(level)
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
        self._is_reset(row)
        self.foreign -= 1
        return 0

    def _check_room(self) -> int:
        own = self.used - self.foreign
        if own >= self.most_cells:
            raise LimitError(f"{own} cells are in use, which is the cap; raise max-cells")
        return 0

    def _open_for(self, other: Cells, row: int, slot: int) -> int:
        """Return the own row of the cell that `other` keeps in `row`."""
        base = row * other.stride
        if self.is_flat and self.is_direct:  # the usual case
            side = int(self.sides[0])
            place = 0
            for k in range(self.dimension):
                place = place * side + other.rows[base + COORDINATES + k]
            if self.index[place] > 0:
                return self.index[place] - 1
        level = other.marks[2 * base + LEVEL]
        for k in range(self.dimension):
            self.point[k] = other.rows[base + COORDINATES + k]
        found = self._find(level)
        if found >= 0:
            return found
        self.deepest = max(self.deepest, level)
        if self.is_layered:
            return self._open_layers(level, slot)
        return self._add(level, slot, -2 - found)

    def _open_layers(self, finest: int, slot: int) -> int:
        """Return the row of the cell of level `finest` at `point`; create its parents too."""
        for k in range(self.dimension):
            self.fine[k] = self.point[k]
        row = -1
        for level in range(finest + 1):
            scale = self.sides[level] / self.sides[finest]
            for k in range(self.dimension):
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
            self._grow(base + max(4, row // 8) * self.stride)
        self.marks[2 * base + LEVEL] = level
        self.rows[base + SINCE] = slot
        self.marks[2 * base + PARENT] = -1
        self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1
        for k in range(self.dimension):
            self.rows[base + COORDINATES + k] = self.point[k]
        self.used += 1
        self.foreign += slot < 0
        self.index[place] = row + 1
        if 2 * self.used > self.places and not self.is_direct:
            self._reindex()
        return row

    def _grow(self, length: int) -> int:
        memory = block(8 * length)
        memoryview(memory)[: 8 * self.capacity] = memoryview(self.row_block)
        self._take_rows(memory, length)
        self._has_grown(length // self.stride)
        return 0

    def _reindex(self) -> int:
        kept = [self.point[k] for k in range(self.dimension)]
        self.places = 2 * self.places
        self.index_block = block(4 * self.places)
        self.index = halves(self.index_block, 0, self.places)
        for row in range(self.used):
            base = row * self.stride
            for k in range(self.dimension):
                self.point[k] = self.rows[base + COORDINATES + k]
            self.index[-2 - self._find(self.marks[2 * base + LEVEL])] = row + 1
        for k in range(self.dimension):
            self.point[k] = kept[k]
        return 0

    def _follow(self) -> None:
        """Set `path` to the known cells around the context."""
        self.found = 0
        for level in range(self.levels):
            self._aim(level)
            row = self._find(level)
            if row >= 0:
                self.path[self.found] = row
                self.found += 1
            elif level >= self.deepest:
                break

    def _follow_on(self) -> None:
        """Add to the path of `_locate` the finer cells that peers created."""
        if not self.follows:
            return
        for level in range(self.found, self.deepest + 1):
            self._aim(level)
            row = self._find(level)
            if row >= 0:
                self.path[self.found] = row
                self.found += 1
