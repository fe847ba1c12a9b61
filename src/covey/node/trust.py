"""Statistics per source: what an isolated peer is served from, and which cells have changed.

Labels of own clients and of pooled peers (trust "full") are counted in the learner's own tables.
Each other peer has an overlay: tables of the same layout that hold only what that peer caused. It
is served from the sum of both, and nothing it says changes what others receive.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from covey.bandit.learner import NO_ANSWER, Learner
from covey.errors import LimitError
from covey.kernel import HEAD, SERVE, Table, arm_of, code_of, doubts_of, phase_of, row_of
from covey.kernel.rules import Cell, Report
from covey.node.requests import (
    OWN,
    CellLine,
    Counts,
    Loaded,
    MigratedCell,
    Request,
    RowGroup,
    SourceState,
    holder,
    is_own,
)
from covey.types import Context, Label

Trust = Literal["isolated", "robust", "full"]
T = TypeVar("T")
FEWEST_SOURCES = 3
FEWEST_LABELS = 20  # of every function, for a source to count in medians
NO_LIMIT = 1 << 60  # cells of an overlay: the cap per source is checked before they are opened
RECALL = "recall"


class DirtyCells:
    """Which cells of a source's tables have changed since the last commit."""

    def __init__(self, learner: Learner, source: str = OWN) -> None:
        """Without a source, the tables are the learner's own."""
        self.tables: dict[str, Table] = learner.tables
        if source != OWN:
            self.tables = {space: _overlay_table(learner, space) for space in learner.spaces}
        self._learner = learner
        self._source = source
        self._has_levels = {
            space: len(policy.partition.levels(policy.dimension)) > 1
            for space, policy in learner.policies.items()
        }
        self._names: dict[tuple[str, int], str] = {}
        self.clear()

    def clear(self) -> None:
        """Take all cells for unchanged."""
        self._rows: dict[tuple[str, int], None] = {}
        self._known = {space: len(table) for space, table in self.tables.items()}
        self._forgotten = {space: forgotten(table) for space, table in self.tables.items()}
        self._foreign = {
            space: {row for row in range(len(table)) if table.is_foreign(row)}
            if table.foreign_cells()
            else set[int]()
            for space, table in self.tables.items()
        }

    def name(self, space: str, row: int) -> str:
        """Return the name of the cell of a row."""
        name = self._names.get((space, row))
        if name is None:
            cell = self.tables[space].cell(row)._replace(space=space)
            name = self._names[space, row] = self._learner.names.of(cell)
        return name

    def note(self, space: str, code: int, context: Context = ()) -> None:
        """Note that a decision, or its label, changed its cell and those around its context."""
        row = row_of(code)
        self._rows[space, row] = None
        if self._has_levels[space]:
            table = self.tables[space]
            is_served = phase_of(code) == SERVE
            for one in table.layers(row) if is_served else table.around(context):
                self._rows[space, one] = None

    def note_rows(self, space: str, codes: np.ndarray, contexts: np.ndarray) -> None:
        """Note the same of many decisions, all of own rows or all of a peer's."""
        if not len(codes):
            return
        table: Any = self.tables[space]
        rows = set(np.unique(row_of(codes)).tolist())
        if self._has_levels[space]:
            if phase_of(int(codes[0])) == SERVE:
                rows = {one for row in rows for one in table.layers(row)}
            else:
                points = np.ascontiguousarray(contexts, np.float64)
                rows |= table.around_batch(points.reshape(-1).data, len(codes))
        self._rows.update(dict.fromkeys((space, row) for row in rows))

    def take(self) -> list[CellLine]:
        """Return the lines of the cells that changed or became known, and begin anew."""
        for space, table in self.tables.items():
            self._look(space, table)
        rows, self._rows = sorted(self._rows), {}
        return [self._line(space, row) for space, row in rows]

    def _look(self, space: str, table: Table) -> None:
        """Note what nobody notes: new cells, cells that are foreign no longer, and an alarm."""
        known, count = self._known[space], len(table)
        foreign = self._foreign[space]
        for row in range(known, count):
            self._rows[space, row] = None
            if table.is_foreign(row):
                foreign.add(row)
        self._known[space] = count
        if len(foreign) != table.foreign_cells():
            adopted = {row for row in foreign if not table.is_foreign(row)}
            foreign -= adopted
            self._rows.update(dict.fromkeys((space, row) for row in adopted))
        if forgotten(table) != self._forgotten[space]:
            self._forgotten[space] = forgotten(table)
            self._rows.update(dict.fromkeys((space, row) for row in range(count)))

    def _line(self, space: str, row: int) -> CellLine:
        table = self.tables[space]
        counters = self._learner.stored(table, row)
        return CellLine(self._source, space, row, self.name(space, row), counters, table.known(row))


def forgotten(table: Table) -> int:
    """Return the slot up to which decisions of a table teach nothing, by its change detection."""
    return table.doubts()[3]


def _overlay_table(learner: Learner, space: str) -> Table:
    # Which labels an overlay keeps depends on the site's labels too, so it is decided here.
    return learner.empty_table(space, most_cells=NO_LIMIT, asked_only=False)


class _Overlay:
    """What one isolated source caused."""

    def __init__(self, learner: Learner, source: str) -> None:
        self.slot = 0  # the latest that the source named
        self.opened = 0  # cells that the site itself had not met
        self.cells = DirtyCells(learner, source)
        self.tables = self.cells.tables
        self.site_forgotten = {space: forgotten(table) for space, table in learner.tables.items()}
        self.written: SourceState | None = None

    def state(self, source: str) -> SourceState:
        return SourceState(source, self.slot, doubts_of(self.tables))


class SourceStatistics:
    """The statistics that each peer is served from, and what its labels change.

    A code of an isolated source belongs to the table of its overlay; that of a pooled one to the
    learner's. Methods that take a source know which; own clients count as pooled.
    """

    def __init__(
        self, learner: Learner, trust: Mapping[str, Trust], *, most_cells: int = NO_LIMIT
    ) -> None:
        """`trust` has no entry for isolated sources; `most_cells` may be opened by each source."""
        self._learner = learner
        self._trust = dict(trust)
        self._most_cells = most_cells
        self._overlays: dict[str, _Overlay] = {}
        self._used: dict[str, _Overlay] = {}  # since last taken
        self._forgotten: dict[str, int] = {}  # by the site, when last taken
        self._opened: Counter[str] = Counter()  # by pooled sources
        functions = learner.arms[: len(learner.arms) - len(learner.behind())]
        self._functions = functions
        self._medians = RobustMedians(functions) if "robust" in self._trust.values() else None

    def is_pooled(self, source: str) -> bool:
        """Return whether labels of a source count for the site itself."""
        return self._trust.get(source) == "full" or is_own(source)

    def slot(self, source: str) -> int:
        """Return the latest slot of a source; pooled ones share the learner's."""
        if self.is_pooled(source):
            return self._learner.slot
        overlay = self._overlays.get(source)
        return 0 if overlay is None else overlay.slot

    @property
    def opened(self) -> int:
        """How many cells peers have opened that the site itself had not met."""
        return self._opened.total() + sum(one.opened for one in self._overlays.values())

    def cell_name(self, source: str, space: str, row: int) -> str:
        """Return the name of the cell of a row of a source's table."""
        if self.is_pooled(source):
            return self._learner.name_at(space, row)
        return self._overlay(source).cells.name(space, row)

    # -- answers --------------------------------------------------------------------------------

    def serve(self, source: str, cells: Sequence[Cell], slots: Sequence[int]) -> list[int]:
        """Choose own functions for rows of a peer, all of one space, and count them.

        Raises `LimitError` if the source may open no more cells; then nothing is counted.
        """
        codes: list[int] = []
        try:
            for cell, slot in zip(cells, slots, strict=True):
                codes.append(self._serve(source, cell, slot))
        except BaseException:
            self.retract(source, cells[0].space, codes)
            raise
        return codes

    def _serve(self, source: str, cell: Cell, slot: int) -> int:
        function = self._robust_choice(source, cell)
        if self.is_pooled(source):
            return self._learner.serve(self._open(source, cell, slot), slot, cell.space, function)
        overlay, row = self._meet(source, cell, slot)
        table = overlay.tables[cell.space]
        overlay.cells.note(cell.space, code_of(row, 0, SERVE))
        choice = -1 if function is None else function
        return self._combined(overlay, cell.space, row, lambda: table.serve(row, slot, choice))

    def _robust_choice(self, source: str, cell: Cell) -> int | None:
        if self._medians is None or self._trust.get(source) != "robust":
            return None
        return self._medians.best(self._learner.names.of(cell))

    def width(self, source: str, space: str, code: int) -> int:
        """Return how far a function just served may be from its best, in millionths."""
        if self.is_pooled(source) or not self._learner.keeps_widths:
            return self._learner.width(code, space)
        overlay = self._overlay(source)
        table = overlay.tables[space]
        return self._combined(overlay, space, row_of(code), lambda: table.width(code))

    def report(self, source: str, cell: Cell, slot: int) -> Report:
        """Return what a peer may know of a cell, which is known from now on."""
        if self.is_pooled(source):
            row = self._open(source, cell, slot)
            return self._learner.tables[cell.space].report(row, slot)
        overlay, row = self._meet(source, cell, slot)
        table = overlay.tables[cell.space]
        arrivals, low, high = self._combined(
            overlay, cell.space, row, lambda: table.report(row, slot)
        )
        # A decision from before the cell was foreign may have been taken back since.
        return max(0, arrivals), low, high

    def estimate(
        self, source: str, cell: Cell, slot: int, *, is_by_context: bool
    ) -> tuple[float, int]:
        """Return the accuracy of answers to a peer in a cell, and the labels behind it."""
        if self.is_pooled(source):
            self._open(source, cell, slot)
            return self._learner.estimate(cell, slot, is_by_context=is_by_context)
        overlay, row = self._meet(source, cell, slot)
        if is_by_context:
            _, count, labels = self._recall(overlay, cell.space, row)
            return (count / labels if labels else 0.0), labels
        table = overlay.tables[cell.space]
        return self._combined(overlay, cell.space, row, lambda: table.estimate(row))

    def recall(self, source: str, cell: Cell, slot: int) -> tuple[Label, int]:
        """Return the label seen most in a cell (`NO_ANSWER`: none was), and a code for `settle`."""
        if self.is_pooled(source):
            self._open(source, cell, slot)
            return self._learner.recall(cell, slot)
        overlay, row = self._meet(source, cell, slot)
        label, _, labels = self._recall(overlay, cell.space, row)
        return (label if labels else NO_ANSWER), code_of(row, 0, SERVE)

    def _recall(self, overlay: _Overlay, space: str, row: int) -> tuple[Any, int, int]:
        """Return the leading label of own and the source's, its count, and that of all.

        Ties go to the own leader, then to the source's, then to the label with more own counts.
        """
        table, site = overlay.tables[space], self._learner.tables[space]
        there = site.find(table.cell(row))
        own, theirs = dict(site.known(there)), dict(table.known(row))
        counts = {label: own.get(label, 0) + theirs.get(label, 0) for label in {**own, **theirs}}
        if not counts:
            return None, 0, 0
        leaders = [next(iter(known), None) for known in (own, theirs)]
        leader = min(
            counts,
            key=lambda label: (
                -counts[label],
                label != leaders[0],
                label != leaders[1],
                -own.get(label, 0),
                repr(label),
            ),
        )
        return leader, counts[leader], sum(counts.values())

    def _combined(self, overlay: _Overlay, space: str, row: int, call: Callable[[], T]) -> T:
        """Call a method of the overlay's table while the site's counters are added to the row."""
        table, site = overlay.tables[space], self._learner.tables[space]
        table.combine(row, site, 1)
        try:
            return call()
        finally:
            table.combine(row, site, -1)

    # -- labels ---------------------------------------------------------------------------------

    def retract(self, source: str, space: str, codes: Sequence[int]) -> None:
        """Take back the choices of `serve`."""
        is_pooled = self.is_pooled(source)
        for code in reversed(codes):
            if is_pooled:
                self._learner.retract(code, (), 0, space)
            else:
                overlay = self._overlay(source)
                overlay.tables[space].retract(code, (), 0)
                overlay.cells.note(space, code)

    def settle(self, request: Request, rows: Sequence[int], labels: Sequence[Label]) -> None:
        """Learn from labels of an isolated source, which nobody else learns from."""
        learner, space = self._learner, request.space
        overlay = self._overlay(request.source)
        self._follow(overlay, space)
        table = overlay.tables[space]
        for row, label in zip(rows, labels, strict=True):
            group, slot = request.group(row), request.slot_of(row)
            if group.phase != RECALL:
                gain = learner.gain_of(request.predictions[row], label)
                table.settle(group.code, gain, (), slot)
            if learner.remembers and self._is_kept(overlay, space, row_of(group.code), label):
                table.remember(group.code, label, (), slot)
            overlay.cells.note(space, group.code)

    def _is_kept(self, overlay: _Overlay, space: str, row: int, label: Label) -> bool:
        if not self._learner.rule.asked_only:
            return True
        leader, _, _ = self._recall(overlay, space, row)
        return bool(label == (leader or 0))

    def forget(self, source: str, space: str, codes: Iterable[int]) -> None:
        """Wait no longer for labels of an isolated source."""
        table = self._overlay(source).tables[space]
        for code in codes:
            table.forget(code)

    def count(self, source: str, counted: Counts) -> None:
        """Count labels of any source for the medians of peers with robust trust."""
        if self._medians is not None:
            for (cell, _, arm), pair in counted.items():
                self._medians.add(cell, holder(source), arm, pair)

    # -- cells ----------------------------------------------------------------------------------

    def _overlay(self, source: str) -> _Overlay:
        overlay = self._overlays.get(source)
        if overlay is None:
            overlay = self._overlays[source] = _Overlay(self._learner, source)
        self._used[source] = overlay
        return overlay

    def _open(self, source: str, cell: Cell, slot: int) -> int:
        """Return the row of a cell that a pooled peer speaks of."""
        table = self._learner.tables[cell.space]
        there = table.find(cell)
        if there < 0 or table.is_foreign(there):
            self._check_room(source, self._opened[source])
            self._opened[source] += 1
        return self._learner.open(cell, slot)

    def _meet(self, source: str, cell: Cell, slot: int) -> tuple[_Overlay, int]:
        """Return the overlay of an isolated peer, and the row of a cell that it speaks of."""
        overlay, space = self._overlay(source), cell.space
        self._follow(overlay, space)
        row = overlay.tables[space].find(cell)
        if row < 0:
            site = self._learner.tables[space]
            there = site.find(cell)
            if there < 0 or site.is_foreign(there):
                self._check_room(source, overlay.opened)
            row = self._add(overlay, cell)
        overlay.slot = max(overlay.slot, slot)
        return overlay, row

    def _add(self, overlay: _Overlay, cell: Cell) -> int:
        """Open a cell for a source; own labels count in it from the site's next slot on."""
        learner, space = self._learner, cell.space
        table, site = overlay.tables[space], learner.tables[space]
        known = len(table)
        row = table.meet(cell, 0)
        site.open_foreign(cell, learner.slot + 1)
        overlay.opened += sum(
            site.is_foreign(site.find(table.cell(new))) for new in range(known, len(table))
        )
        return row

    def _check_room(self, source: str, opened: int) -> None:
        if opened >= self._most_cells:
            raise LimitError(
                f"peer {source!r} has opened {opened} cells, which is the cap for one peer; "
                "coarser cells are fewer"
            )

    def _follow(self, overlay: _Overlay, space: str) -> None:
        """Forget what a source caused if the site has forgotten all since the last use."""
        slot = forgotten(self._learner.tables[space])
        if slot != overlay.site_forgotten[space]:
            overlay.site_forgotten[space] = slot
            # The source counts its own slots: all that it named so far are from before.
            overlay.tables[space].forget_labels(overlay.slot)

    # -- commits --------------------------------------------------------------------------------

    def take(self) -> tuple[list[SourceState], list[CellLine]]:
        """Return the states and the cells of isolated sources that changed since last taken."""
        states: list[SourceState] = []
        lines: list[CellLine] = []
        site = {space: forgotten(table) for space, table in self._learner.tables.items()}
        used = self._used if site == self._forgotten else self._overlays
        self._used, self._forgotten = {}, site
        for source, overlay in used.items():
            for space in overlay.tables:
                self._follow(overlay, space)
            state = overlay.state(source)
            if state != overlay.written:
                overlay.written = state
                states.append(state)
            lines += overlay.cells.take()
        return states, lines

    def load(self, loaded: Loaded) -> None:
        """Continue from a store, once the learner is restored and before it counts pending labels.

        Codes of requests are resolved on the way; pending labels of isolated sources are counted.
        """
        for source, state in loaded.sources.items():
            if not self.is_pooled(source):
                self._load(source, state, loaded.cells.get(source, []))
        if self._medians is not None:
            for (cell, source, arm), pair in loaded.counters.items():
                self._medians.add(cell, holder(source), arm, pair)
        for request in loaded.requests:
            self.resolve(request)
            if self._learner.is_pending and not self.is_pooled(request.source):
                self._expect(request)

    def _load(self, source: str, state: SourceState, lines: Sequence[CellLine]) -> None:
        learner, overlay = self._learner, self._overlay(source)
        overlay.slot = state.slot
        for line in lines:
            cell = learner.names.parse(line.name)
            self._add(overlay, cell)
            learner.load(overlay.tables[cell.space], cell, line.counters, line.seen)
        for space, doubts in state.changes.items():
            overlay.tables[space].take_doubts(doubts)
        overlay.cells.clear()
        if state.migrated is None:
            overlay.written = overlay.state(source)
        else:
            self._load_migrated(overlay, state.migrated)

    def _load_migrated(self, overlay: _Overlay, cells: Mapping[str, MigratedCell]) -> None:
        """Turn the sums of a store of version 1 into rows; recent labels alone are not known."""
        learner, arms = self._learner, len(self._learner.arms)
        for name, migrated in cells.items():
            cell = learner.names.parse(name)
            table = overlay.tables[cell.space]
            row = self._add(overlay, cell)
            labels = [migrated.labels.get(arm, (0, 0)) for arm in self._functions]
            for layer in table.layers(row):
                counters = table.counters(layer)
                counters[1] += migrated.arrivals if layer == row else 0
                for function, (count, right) in enumerate(labels):
                    counters[HEAD + function] += count
                    counters[HEAD + arms + function] += right
                table.load(table.cell(layer), counters)
                overlay.cells.note(cell.space, code_of(layer, 0, SERVE))
            table.know(row, [(label, count) for label, count in migrated.seen])

    def resolve(self, request: Request) -> None:
        """Let the codes of a loaded request of a peer mean rows of the table it is served from.

        They do not after a migration, nor if the trust in the peer was changed.
        """
        if not is_own(request.source):
            groups = [self._resolved(request.source, group) for group in request.groups]
            if any(one is not old for one, old in zip(groups, request.groups, strict=True)):
                request.groups = groups

    def _resolved(self, source: str, group: RowGroup) -> RowGroup:
        cell = self._learner.names.parse(group.cell)
        if self.is_pooled(source):
            row = self._learner.open(cell, self._learner.slot)
        else:
            row = self._add(self._overlay(source), cell)
        code = group.code if group.code >= 0 else -1 - group.code
        code = code_of(row, arm_of(code), SERVE)
        return group if code == group.code else msgspec.structs.replace(group, code=code)

    def _expect(self, request: Request) -> None:
        tables = self._overlay(request.source).tables
        for row in request.pending:
            group = request.group(row)
            if group.phase != RECALL:
                tables[request.space].expect(group.code)


class RobustMedians:
    """Labels per cell, source and own function, so that a few sources that lie are outvoted.

    Own clients are one source together.
    """

    def __init__(self, functions: Sequence[str]) -> None:
        self._places = {function: place for place, function in enumerate(functions)}
        self._cells: dict[str, dict[str, list[tuple[int, int]]]] = {}

    def add(self, cell: str, source: str, arm: str, counted: tuple[int, int]) -> None:
        """Count labels of an arm, and how many were right; only own functions matter."""
        place = self._places.get(arm)
        if place is None:
            return
        sources = self._cells.setdefault(cell, {})
        records = sources.setdefault(source, [(0, 0)] * len(self._places))
        labels, right = records[place]
        records[place] = labels + counted[0], right + counted[1]

    def best(self, cell: str) -> int | None:
        """Return the function with the largest median of accuracies; None: too few sources."""
        heard = [
            records
            for records in self._cells.get(cell, {}).values()
            if all(labels >= FEWEST_LABELS for labels, _ in records)
        ]
        if len(heard) < FEWEST_SOURCES:
            return None
        medians = [
            statistics.median(records[place][1] / records[place][0] for records in heard)
            for place in range(len(self._places))
        ]
        return medians.index(max(medians))
