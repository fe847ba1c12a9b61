"""Which rows of a learner's tables have moved since they were last written."""

import numpy as np

from covey.decisions import Decision
from covey.learner import Learner
from covey.records import Line
from covey.types import Cell, Context, Level


class Footprints:
    """The cells that events have moved: those of a decision, and those around it."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._levels = {
            space: policy.partition.levels(policy.dimension)
            for space, policy in learner.policies.items()
        }
        self._places: dict[Cell, int] = {}
        self._known = dict.fromkeys(self._levels, 0)
        self._deepest = dict.fromkeys(self._levels, 0)  # level of a known cell
        self._moved: dict[tuple[str, int], None] = {}
        self._forgotten = dict.fromkeys(self._levels, 0)

    def note(self, decision: Decision) -> None:
        """Note that an event of `decision` may have moved its cell and those around it."""
        space = decision.space
        self._moved[space, decision.code >> 20] = None
        levels = self._levels[space]
        if len(levels) == 1:
            return
        self._look(space)
        cell = self._learner.cell(decision)
        around = _around(decision.context, levels) if decision.context else _above(cell, levels)
        for one in around:
            row = self._places.get(one._replace(space=space))
            if row is not None:
                self._moved[space, row] = None

    def note_many(self, space: str, codes: np.ndarray, contexts: np.ndarray) -> None:
        """Note the same of many own decisions."""
        for row in np.unique(codes >> 20).tolist():
            self._moved[space, row] = None
        levels = self._levels[space]
        if len(levels) == 1:
            return
        self._look(space)
        for k, (side, _) in enumerate(levels[: self._deepest[space] + 1]):
            slices = np.minimum((contexts * float(side)).astype(np.int64), side - 1)
            for coordinates in set(map(tuple, slices.tolist())):
                row = self._places.get(Cell(k, coordinates, space))
                if row is not None:
                    self._moved[space, row] = None

    def row(self, cell: Cell) -> int | None:
        """Return the row of a known cell; None if it is not known."""
        row = self._places.get(cell)
        if row is None:
            self._look(cell.space)
            row = self._places.get(cell)
        return row

    def take(self, desk: str = "") -> list[Line]:
        """Return the cells that moved or became known, as lines of a desk, and begin anew."""
        for space in self._levels:
            self._look(space)
            self._look_back(space)
        moved, self._moved = sorted(self._moved), {}
        line = self._learner.line
        return [Line(space, row, *line(space, row), desk) for space, row in moved]

    def _look(self, space: str) -> None:
        """Take note of the cells that have become known."""
        known, count = self._known[space], len(self._learner.tables[space])
        for row in range(known, count):
            cell = self._learner.known_cell(space, row)
            self._places[cell] = row
            self._deepest[space] = max(self._deepest[space], cell.level)
            self._moved[space, row] = None
        self._known[space] = count

    def _look_back(self, space: str) -> None:
        """Take note of an alarm, which moves every cell."""
        *_, forgotten = self._learner.tables[space].doubts()
        if forgotten != self._forgotten[space]:
            self._moved |= dict.fromkeys((space, row) for row in range(self._known[space]))
            self._forgotten[space] = forgotten


def _around(context: Context, levels: tuple[Level, ...]) -> list[Cell]:
    """Return the cell of every level that a context lies in; the last slice is closed."""
    return [
        Cell(k, tuple([min(int(x * float(side)), side - 1) for x in context]))
        for k, (side, _) in enumerate(levels)
    ]


def _above(cell: Cell, levels: tuple[Level, ...]) -> list[Cell]:
    """Return a cell and the coarser ones that it lies in."""
    side = levels[cell.level].side
    return [
        Cell(k, tuple([c * levels[k].side // side for c in cell.coordinates]))
        for k in range(cell.level + 1)
    ]
