# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Cells of a context space: rows of one integer array, made when a context first falls into them.

Memory depends on the used cells, not on the size of the grid. What else a row holds is up to the
classes that inherit.
"""

from __future__ import annotations

from array import array
from typing import Any

from covey.errors import ContextError, LimitError
from covey.kernel.rules import Cell, Rule

# Layout of a row; the cell's coordinates and the counters of its arms follow.
LEVEL = 0
SINCE = 1  # slot in which the cell was created; -1 - slot for a foreign cell
ARRIVALS = 2  # reported to peers
OWN = 3  # own arrivals, which split the cell
BEST = 4  # arm with the largest estimate, -1 = recompute
BEST_OWN = 5  # most accurate own function, -1 = recompute
CALM = 6  # before this slot no arm needs exploration or training
PARENT = 7  # row of the parent cell, when all levels are used at once; -1: none
COORDINATES = 8

# Products stay below 63 bits: C and Python integers give the same results.
MASK = (1 << 40) - 1
FACTOR = 1000003
FEW = 4096


class Cells:
    """The known cells of one learner in one context space."""

    def __init__(self, rule: Rule) -> None:
        self.dimension = rule.dimension
        self.inherits = rule.inherits
        # All levels are used at once: the coarser cells around a cell are its parents.
        self.is_layered = rule.index is not None and len(rule.index.bias) > 1
        self.sides = array("d", [level.side for level in rule.levels])
        self.limits = array("d", [level.split_at for level in rule.levels])
        self.levels = len(rule.levels)
        self.is_flat = self.levels == 1 and rule.levels[0].split_at == float("inf")
        self.deepest = 0  # level of the finest cell created by a peer
        self.most_cells = rule.most_cells
        self.foreign = 0  # rows of cells known only from isolated sources
        # Small grids are indexed directly; others use a hash table that grows with the used cells.
        self.firsts = array("q", bytes(8 * self.levels))
        places = 0
        for k in range(self.levels):
            self.firsts[k] = places
            places = min(FEW + 1, places + rule.levels[k].side ** rule.dimension)
        self.is_direct = places <= FEW
        self.index = array("i", bytes(4 * (places if self.is_direct else 16)))
        self.context = array("d", bytes(8 * max(1, self.dimension)))
        self.point = array("q", bytes(8 * max(1, self.dimension)))
        self.fine = array("q", bytes(8 * max(1, self.dimension)))
        self.path = array("q", bytes(8 * (self.levels + 1)))  # known rows around the context
        self.found = 0  # how many they are, coarsest first
        self.labels = COORDINATES + self.dimension
        self.used = 0
        self.stride = 0

    def allocate(self, stride: int) -> None:
        """Make room for the first rows, of `stride` integers each."""
        self.stride = stride
        self.rows = array("q", bytes(8 * 4 * stride))

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
        return 8 * len(self.rows) + 4 * len(self.index)

    def cell(self, row: int) -> Cell:
        """Return the cell of `row`."""
        base = row * self.stride
        first = base + COORDINATES
        coordinates = tuple([self.rows[first + k] for k in range(self.dimension)])
        return Cell(self.rows[base + LEVEL], coordinates)

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
            row = self.rows[row * self.stride + PARENT]
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
        return self.rows[base + OWN] >= self.limits[self.rows[base + LEVEL]]

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
        return tuple([self.context[k] for k in range(self.dimension)])

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
        level = 0
        while True:
            self._aim(level)
            row = self._open(level, slot)
            self.path[level] = row
            if self.is_layered:
                self.rows[row * self.stride + PARENT] = self.path[level - 1] if level else -1
            self.found = level + 1
            if self.is_flat or self.rows[row * self.stride + OWN] < self.limits[level]:
                if self.inherits and level + 1 < self.levels:
                    self._aim(level + 1)
                    self.path[level + 1] = self._open(level + 1, slot)
                    self.found = level + 2
                return row
            level += 1
            if level == self.levels:
                raise LimitError(
                    f"a cell of level {level - 1} is due to be split, and no finer level is "
                    "allowed; raise max-level, or split-power so that cells split later"
                )

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
        return (value ^ value >> 20) & (len(self.index) - 1)

    def _find(self, level: int) -> int:
        """Return the row of the cell at `point`, or `-2 - place` where it would be indexed."""
        place = self._place(level)
        while True:
            entry = self.index[place]
            if entry == 0:
                return -2 - place
            if self.is_direct or self._is_at(entry - 1, level):
                return entry - 1
            place = place + 1 & len(self.index) - 1

    def _is_at(self, row: int, level: int) -> bool:
        base = row * self.stride
        if self.rows[base + LEVEL] != level:
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
        self.rows[base + ARRIVALS] = self.rows[base + OWN] = self.rows[base + CALM] = 0
        self.rows[base + BEST] = self.rows[base + BEST_OWN] = -1
        self.rows[base + SINCE] = slot
        self._is_reset(row)
        self.foreign -= 1
        return 0

    def _check_room(self) -> int:
        own = self.used - self.foreign
        if own >= self.most_cells:
            raise LimitError(f"{own} cells are in use, which is the cap; raise max-cells")
        return 0

    def _meet(self, other: Cells, row: int, slot: int) -> int:
        """Return the own row of the cell that `other` keeps in `row`."""
        base = row * other.stride
        if self.is_flat and self.is_direct:  # the usual case
            side = int(self.sides[0])
            place = 0
            for k in range(self.dimension):
                place = place * side + other.rows[base + COORDINATES + k]
            if self.index[place] > 0:
                return self.index[place] - 1
        level = other.rows[base + LEVEL]
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
            self.rows[row * self.stride + PARENT] = parent
        return row

    def _add(self, level: int, slot: int, place: int) -> int:
        row = self.used
        base = row * self.stride
        if slot >= 0:
            self._check_room()
        if base + self.stride > len(self.rows):
            self._grow(base + max(4, row // 2) * self.stride)
        self.rows[base + LEVEL] = level
        self.rows[base + SINCE] = slot
        self.rows[base + BEST] = self.rows[base + BEST_OWN] = self.rows[base + PARENT] = -1
        for k in range(self.dimension):
            self.rows[base + COORDINATES + k] = self.point[k]
        self.used += 1
        self.foreign += slot < 0
        self.index[place] = row + 1
        if 2 * self.used > len(self.index) and not self.is_direct:
            self._reindex()
        return row

    def _grow(self, length: int) -> int:
        old = self.rows
        self.rows = array("q", bytes(8 * length))
        for k in range(len(old)):
            self.rows[k] = old[k]
        self._has_grown(length // self.stride)
        return 0

    def _reindex(self) -> int:
        kept = self.point
        self.index = array("i", bytes(8 * len(self.index)))
        self.point = array("q", bytes(8 * len(kept)))
        for row in range(self.used):
            base = row * self.stride
            for k in range(self.dimension):
                self.point[k] = self.rows[base + COORDINATES + k]
            self.index[-2 - self._find(self.rows[base + LEVEL])] = row + 1
        self.point = kept
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
        for level in range(self.found, self.deepest + 1):
            self._aim(level)
            row = self._find(level)
            if row >= 0:
                self.path[self.found] = row
                self.found += 1
