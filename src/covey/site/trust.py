"""Statistics per source: what an isolated peer is served from, and which cells have changed.

Labels of own clients and of peers with trust "full" are counted in the learner's own tables.
Each other peer has an overlay: tables of the same layout that hold only what that peer caused. It
is served from the sum of both. Overlays of peers with trust "earned" that are pooled now are added
wherever a function is chosen, for the site itself, too; nothing else of a peer reaches others.
"""

import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from covey.bandit.learner import NO_ANSWER, Learner, offset_of
from covey.errors import LimitError
from covey.kernel import LATEST_ALARMS, SERVE, UNPAID, Table, arm_of, code_of, phase_of, row_of
from covey.kernel.rules import Cell, Report
from covey.kernel.saved import renumbered
from covey.site.cells import NO_LIMIT, ArmPlaces, StoredTables, phase_number
from covey.site.earned import EarnedTrust, is_audit
from covey.site.requests import (
    DETACHED,
    OWN,
    RECALL,
    Belief,
    BeliefNotes,
    CellLine,
    CountedArm,
    Loaded,
    OwnLabel,
    RelationLine,
    Request,
    RowGroup,
    SourceState,
    is_own,
)
from covey.types import Context, Label

MOST_WRITTEN = 100_000  # cells of which is known what the store has
Record = CellLine | CountedArm | SourceState | Belief | BeliefNotes | RelationLine | OwnLabel
Trust = Literal["isolated", "earned", "full"]
T = TypeVar("T")

# -- the tables of a source -----------------------------------------------------------------------


class SourceTables:
    """The tables that labels of a source count in, and what of them the store does not have yet."""

    def __init__(
        self,
        learner: Learner,
        arms: ArmPlaces,
        source: str = OWN,
        tables: dict[str, Table] | None = None,
    ) -> None:
        """Without a source, the tables are the learner's own; those of others are empty.

        Nothing of `tables` that are given is in the store.
        """
        self.tables: dict[str, Table] = learner.tables if tables is None else tables
        if tables is None and source != OWN:
            self.tables = learner.empty_tables(most_cells=NO_LIMIT)
        self.source = source
        self.opened = 0  # cells that the site itself had not met
        self.site_forgotten = _forgotten(learner.tables)
        self._slot = 0  # the latest that the source named
        self._learner = learner
        self._arms = arms
        self._has_levels = {
            space: len(policy.partition.levels(policy.dimension)) > 1
            for space, policy in learner.policies.items()
        }
        self._names: dict[tuple[str, int], str] = {}
        self.alarms: Counter[str] = Counter()  # of the change detection, by context space
        self._state: SourceState | None = None  # as the store has it
        self._take_rows()
        if tables is not None:
            self._met = self._stored = dict.fromkeys(tables, 0)

    def clear(self, latest: tuple[int, Any] | None = None) -> None:
        """Take all for stored, with the slot and the label of the latest own instance."""
        self._take_rows()
        self._state = self.state(latest)

    def _take_rows(self) -> None:
        """Take all rows for stored."""
        self._rows: dict[tuple[str, int], None] = {}  # that may have changed
        # What the store has of rows, if that is known.
        self._written: dict[tuple[str, int], tuple[array[int], Any]] = {}
        self._met = {space: len(table) for space, table in self.tables.items()}
        self._stored = dict(self._met)  # rows before this one are in the store
        self._forgotten = _forgotten(self.tables)
        self._alarmed = {space: table.policy.alarm_count for space, table in self.tables.items()}
        self._foreign = {
            space: set(filter(table.cells.is_foreign, range(len(table))))
            for space, table in self.tables.items()
        }

    @property
    def slot(self) -> int:
        """The latest slot; the site's own, or that which another source named."""
        return self._learner.slot if self.source == OWN else self._slot

    def advance(self, slot: int) -> None:
        """Note a slot that the source names."""
        if self.source == OWN:
            self._learner.advance(slot)
        else:
            self._slot = max(self._slot, slot)

    def name(self, space: str, row: int) -> str:
        name = self._names.get((space, row))
        if name is None:
            cell = self.tables[space].cells.cell(row)._replace(space=space)
            name = self._names[space, row] = self._learner.names.of(cell)
        return name

    def note(self, space: str, code: int, context: Context = ()) -> None:
        """Note that a decision, or its label, changed its cell and those around its context."""
        row, table = row_of(code), self.tables[space]
        several = self._learner.candidates.get(space)
        if several is not None:
            candidates: Any = table
            counted = zip(several.spaces, candidates.inside(code, context), strict=True)
            for name, (_, own, point, _) in counted:
                self.note(name, own, point)
            return
        self._rows[space, row] = None
        if self._has_levels[space]:
            is_served = phase_of(code) == SERVE
            for layer in table.cells.layers(row) if is_served else table.cells.around(context):
                self._rows[space, layer] = None

    def note_rows(self, space: str, codes: np.ndarray, contexts: np.ndarray) -> None:
        """Note the same of many decisions, all of own rows or all of a peer's."""
        if not len(codes):
            return
        if space in self._learner.candidates:
            for code, context in zip(codes.tolist(), contexts.tolist(), strict=True):
                self.note(space, code, tuple(context))
            return
        table: Any = self.tables[space]
        rows = set(np.unique(row_of(codes)).tolist())
        if self._has_levels[space]:
            if phase_of(int(codes[0])) == SERVE:
                rows = {layer for row in rows for layer in table.cells.layers(row)}
            else:
                points = np.ascontiguousarray(contexts, np.float64)
                rows |= table.cells.around_batch(points.reshape(-1).data, len(codes))
        self._rows.update(dict.fromkeys((space, row) for row in rows))

    def state(self, latest: tuple[int, Any] | None = None) -> SourceState:
        """Return what is in no row of tables, with the label of the latest own instance."""
        changes = {space: table.policy.state() for space, table in self.tables.items()}
        return SourceState(self.source, self.slot, changes, latest, self._arms.ids)

    def take(self, latest: tuple[int, Any] | None = None) -> list[Record]:
        """Return what the store has otherwise, and take it for stored."""
        records = [*self.take_cells(), *self._beliefs()]
        state = self.state(latest)
        if state != self._state:
            self._state = state
            records.append(state)
        return records

    def take_cells(self) -> list[Record]:
        """Return the same of the cells alone."""
        for space, table in self.tables.items():
            self._look(space, table)
        rows, self._rows = sorted(self._rows), {}
        if len(self._written) > MOST_WRITTEN:
            self._written, self._stored = {}, dict(self._met)
        return [record for space, row in rows for record in self._changes(space, row)]

    def _changes(self, space: str, row: int) -> Iterator[Record]:
        saved, name, key = self.tables[space].saved, self.name(space, row), (space, row)
        seen = saved.known(row) if self._learner.remembers else []
        stored, written = (array("q", saved.stored(row)), seen), self._written.get(key)
        if stored == written:
            return
        self._written[key] = stored
        own, counters = saved.parts(stored[0])
        # A row that is not in the store has no counters there.
        before = [0] * len(stored[0]) if written is None else written[0]
        own_before, counters_before = saved.parts(before)
        if written is None or own != own_before or seen != written[1]:
            numbered = renumbered(own, self._arms.numbers)
            yield CellLine(self.source, space, row, name, numbered, seen)
        is_unknown = written is None and row < self._stored[space]
        for id_, each, old in zip(self._arms.ids, counters, counters_before, strict=False):
            if is_unknown or each != old:
                yield CountedArm(self.source, name, id_, each)

    def _beliefs(self) -> Iterator[Record]:
        """Yield beliefs that are to be stored now, and the labels since.

        A belief is large, so it is stored again after many labels only.
        """
        for space, table in self.tables.items():
            for seat, belief, notes in table.policy.news():
                arm = self._arms.of_seat(table, seat)
                if belief:
                    yield _belief(self.source, space, arm, belief)
                yield BeliefNotes(self.source, space, arm, notes)

    def _look(self, space: str, table: Table) -> None:
        """Note what no call notes: new cells, cells that are foreign no longer, and an alarm."""
        foreign, changed = self._foreign[space], set(range(self._met[space], len(table)))
        foreign.update(filter(table.cells.is_foreign, changed))
        self._met[space] = len(table)
        if len(foreign) != table.cells.foreign:
            adopted = {row for row in foreign if not table.cells.is_foreign(row)}
            foreign -= adopted
            changed |= adopted
        if table.policy.alarm_count != self._alarmed[space]:
            self.alarms[space] += table.policy.alarm_count - self._alarmed[space]
            self._alarmed[space] = table.policy.alarm_count
            del table.policy.alarms[:-LATEST_ALARMS]
        if table.policy.forgotten != self._forgotten[space]:
            self._forgotten[space] = table.policy.forgotten
            changed.update(range(len(table)))
        self._rows.update(dict.fromkeys((space, row) for row in changed))


def table_records(
    learner: Learner, state: SourceState, tables: dict[str, Table], arms: ArmPlaces
) -> list[Record]:
    """Return all that is stored of a source, with the slot and the label of a state."""
    source = SourceTables(learner, arms, state.source, tables)
    records = source.take_cells()
    for space, table in tables.items():
        for seat, belief in enumerate(table.policy.beliefs()):
            arm = arms.of_seat(table, seat)
            notes = BeliefNotes(state.source, space, arm, [0, 0])
            records += [_belief(state.source, space, arm, belief), notes]
    now = source.state(state.latest)
    return [*records, msgspec.structs.replace(now, slot=state.slot)]


def _belief(source: str, space: str, arm: str, belief: Sequence[int]) -> Belief:
    return Belief(source, space, arm, zlib.compress(array("q", belief[1:-1]).tobytes(), 1))


def _forgotten(tables: Mapping[str, Table]) -> dict[str, int]:
    """Return the slot at which each table last forgot its labels."""
    return {space: table.policy.forgotten for space, table in tables.items()}


class SourceStatistics:
    """The statistics that each peer is served from, and what its labels change.

    A code of an isolated source belongs to the table of its overlay; that of a pooled one to the
    learner's. Methods that take a source know which; own clients count as pooled.
    """

    def __init__(
        self,
        learner: Learner,
        trust: Mapping[str, Trust],
        *,
        default: Trust = "isolated",
        most_cells: int = NO_LIMIT,
        arms: ArmPlaces | None = None,
    ) -> None:
        """`default` is the trust in other sources; each may open `most_cells`."""
        self._learner = learner
        self._arms = ArmPlaces(learner) if arms is None else arms
        self.own = SourceTables(learner, self._arms)
        self._trust, self._default = dict(trust), default
        self.most_cells = most_cells  # a reload may change it
        self._overlays: dict[str, SourceTables] = {}
        self._used: dict[str, SourceTables] = {}  # since last taken
        self._forgotten: dict[str, int] = {}  # by the site, when last taken
        self._opened: Counter[str] = Counter()  # by pooled sources
        self._functions = self._arms.ids[: len(learner.arms) - len(learner.behind())]
        self._places = {id_: place for place, id_ in enumerate(self._functions)}
        self.earned: EarnedTrust | None = None
        earning = [source for source, how in trust.items() if how == "earned"]
        if earning:
            self.earned = EarnedTrust(earning, learner.policies, learner.candidates)

    def use_trust(self, trust: Mapping[str, Trust]) -> None:
        """Know other sources from now on; the trust in those that stay is the same."""
        self._trust = dict(trust)
        if self.earned is not None:
            self.earned.use_sources(source for source, how in trust.items() if how == "earned")

    def of(self, source: str) -> SourceTables:
        """Return the tables that labels of a source count in."""
        return self.own if self.is_pooled(source) else self._overlay(source)

    def is_pooled(self, source: str) -> bool:
        """Return whether labels of a source are counted in the learner's own tables."""
        return is_own(source) or self._trust.get(source, self._default) == "full"

    def teaches(self, source: str) -> bool:
        """Return whether labels of a source count for the site itself now."""
        is_earned = self.earned is not None and self.earned.is_pooled(source)
        return is_earned or self.is_pooled(source)

    def added(self, space: str, source: str = OWN) -> list[Table]:
        """Return what is added to the site's table of a space for a source: pooled overlays."""
        if self.earned is None:
            return []
        tables = []
        for name, overlay in self._overlays.items():
            if name != source and self.earned.is_pooled(name):
                self._follow(overlay, space)
                tables.append(overlay.tables[space])
        return tables

    @property
    def opened(self) -> int:
        """How many cells peers have opened that the site itself had not met."""
        return self._opened.total() + sum(overlay.opened for overlay in self._overlays.values())

    # -- answers --------------------------------------------------------------------------------

    def serve(self, source: str, cell: Cell, slot: int, function: int = -1) -> int:
        """Choose an own function for a row of a peer, and count it.

        `function` is the one that answers it, if that is decided. Raises `LimitError` if the
        source may open no more cells; then nothing is counted.
        """
        tables, row = self._meet(source, cell, slot)
        if tables is not self.own:
            tables.note(cell.space, code_of(row, 0, SERVE))
        pooled = [] if is_audit(slot) else self.added(cell.space, source)
        asker = offset_of(source)
        return self._combined(
            tables, cell.space, row, lambda table: table.serve(row, slot, function, asker), pooled
        )

    def report(self, source: str, cell: Cell, slot: int) -> Report:
        """Return what a peer may know of a cell, which is known from now on."""
        tables, row = self._meet(source, cell, slot)
        pooled, asker = self.added(cell.space, source), offset_of(source)
        arrivals, low, high, logs = self._combined(
            tables, cell.space, row, lambda table: table.report(row, slot, asker), pooled
        )
        # A decision from before the cell was foreign may have been taken back since.
        return max(0, arrivals), low, high, logs

    def estimate(
        self, source: str, cell: Cell, slot: int, *, is_by_context: bool
    ) -> tuple[float, int]:
        """Return the accuracy of answers to a peer in a cell, and the labels behind it."""
        tables, row = self._meet(source, cell, slot)
        pooled = self.added(cell.space, source)
        if is_by_context:
            _, count, labels = self._recall(tables, cell.space, row, pooled)
            return (count / labels if labels else 0.0), labels
        return self._combined(tables, cell.space, row, lambda table: table.estimate(row), pooled)

    def recall(self, source: str, cell: Cell, slot: int) -> tuple[Label, int]:
        """Return the label seen most in a cell (`NO_ANSWER`: none was), and a code for `settle`."""
        tables, row = self._meet(source, cell, slot)
        pooled = self.added(cell.space, source)
        label, _, labels = self._recall(tables, cell.space, row, pooled)
        return (label if labels else NO_ANSWER), code_of(row, 0, SERVE)

    def _recall(
        self, tables: SourceTables, space: str, row: int, pooled: Sequence[Table]
    ) -> tuple[Any, int, int]:
        """Return the answer by what the site, pooled ones and the source know: `Table.recall`."""
        site, table = self._learner.tables[space], tables.tables[space]
        others = [*pooled, *([] if tables is self.own else [table])]
        if not others:
            return site.cells.memory.recall(row)
        cell, theirs = table.cells.cell(row), Counter[Any]()
        for other in others:
            theirs.update(dict(other.saved.known(other.cells.find(cell))))
        return site.cells.memory.recall_sum(dict(site.saved.known(site.cells.find(cell))), theirs)

    def _combined(
        self,
        tables: SourceTables,
        space: str,
        row: int,
        call: Callable[[Table], T],
        pooled: Sequence[Table],
    ) -> T:
        """Call with a table of a source while the site's counters, and pooled ones, are added."""
        table = tables.tables[space]
        others = pooled if tables is self.own else (self._learner.tables[space], *pooled)
        return with_added(table, row, others, lambda: call(table))

    # -- labels ---------------------------------------------------------------------------------

    def retract(self, source: str, space: str, codes: Sequence[int]) -> None:
        """Take back the choices of `serve`."""
        tables = self.of(source)
        for code in reversed(codes):
            tables.tables[space].retract(code, (), 0)
            tables.note(space, code)

    def settle(self, request: Request, rows: Sequence[int], labels: Sequence[Label]) -> None:
        """Learn from labels of an isolated source, for this source only."""
        learner, space = self._learner, request.space
        overlay = self._overlay(request.source)
        self._follow(overlay, space)
        table = overlay.tables[space]
        for row, label in zip(rows, labels, strict=True):
            code = request.group(row).code
            take_label(learner, table, code, request, row, label, self._places)
            overlay.note(space, code)

    def compare(self, request: Request, rows: Sequence[int], labels: Sequence[Label]) -> None:
        """Compare labels with those of other sources, for trust that is earned."""
        earned, learner = self.earned, self._learner
        assert earned is not None
        for row, label in zip(rows, labels, strict=True):
            group = request.group(row)
            function = arm_of(group.code)
            if group.phase == RECALL or function >= len(self._functions):
                continue
            gain = learner.gain_of(request.predictions[row], label) / learner.unit
            name = self._functions[function]
            earned.follow(sum(_forgotten(learner.tables).values()))
            if is_own(request.source):
                context = request.context(row)
                is_change = earned.take_own(request.space, context, name, gain, learner.slot)
            else:
                cell = learner.names.parse(group.cell)
                source = OWN if self.is_pooled(request.source) else request.source
                is_change = earned.take(source, cell, name, gain, learner.slot)
            if is_change:
                for table in learner.tables.values():
                    table.raise_alarm(learner.slot)

    def forget(self, source: str, space: str, codes: Iterable[int]) -> None:
        """Wait no longer for labels of an isolated source."""
        table = self._overlay(source).tables[space]
        for code in codes:
            table.forget(code)

    def hear_alarm(self, source: str, space: str, slot: int) -> bool:
        """Forget what was learnt up to a slot, as a peer found a change; False: it was forgotten.

        What a peer says that is not pooled counts for what it caused only.
        """
        tables = self.own if self.teaches(source) else self._overlay(source)
        table = tables.tables[space]
        before = table.policy.forgotten
        if tables is self.own:
            self._learner.hear_alarm(space, slot)
        else:
            tables.advance(slot)
            table.hear_alarm(slot)
        return table.policy.forgotten != before

    # -- cells ----------------------------------------------------------------------------------

    def _overlay(self, source: str) -> SourceTables:
        overlay = self._overlays.get(source)
        if overlay is None:
            overlay = self._overlays[source] = SourceTables(self._learner, self._arms, source)
        self._used[source] = overlay
        return overlay

    def _meet(self, source: str, cell: Cell, slot: int) -> tuple[SourceTables, int]:
        """Return the tables that a peer is served from, and there the row of a cell it names."""
        tables = self.of(source)
        if tables is self.own:
            if self._is_foreign(cell):
                self._check_room(source, self._opened[source])
                self._opened[source] += 1
            return tables, self._learner.open(cell, slot)
        self._follow(tables, cell.space)
        row = tables.tables[cell.space].cells.find(cell)
        if row < 0:
            if self._is_foreign(cell):
                self._check_room(source, tables.opened)
            row = self._add(tables, cell)
        tables.advance(slot)
        return tables, row

    def _is_foreign(self, cell: Cell) -> bool:
        """Return whether the site itself has not met a cell, or one of those of candidates."""
        if cell.space in self._learner.candidates:
            return any(map(self._is_foreign, self._learner.candidates[cell.space].parts(cell)))
        table = self._learner.tables[cell.space]
        row = table.cells.find(cell)
        return row < 0 or table.cells.is_foreign(row)

    def _add(self, overlay: SourceTables, cell: Cell) -> int:
        """Open a cell for a source; own labels count in it from the site's next slot on."""
        learner, space = self._learner, cell.space
        if space in learner.candidates:
            for part in learner.candidates[space].parts(cell):
                self._add(overlay, part)
            return overlay.tables[space].cells.meet(cell, 0)
        table, site = overlay.tables[space], learner.tables[space]
        before = len(table)
        row = table.cells.meet(cell, 0)
        site.cells.meet(cell, -1 - (learner.slot + 1))
        overlay.opened += sum(
            site.cells.is_foreign(site.cells.find(table.cells.cell(new)))
            for new in range(before, len(table))
        )
        return row

    def _check_room(self, source: str, opened: int) -> None:
        if opened >= self.most_cells:
            raise LimitError(
                f"peer {source!r} has opened {opened} cells, which is the cap for one peer; "
                "coarser cells are fewer"
            )

    def _follow(self, overlay: SourceTables, space: str) -> None:
        """Forget what a source caused if the site has forgotten all since the last use."""
        slot = self._learner.tables[space].policy.forgotten
        if slot != overlay.site_forgotten[space]:
            overlay.site_forgotten[space] = slot
            # The source counts its own slots: all that it named so far are from before.
            overlay.tables[space].forget_labels(overlay.slot)

    # -- commits --------------------------------------------------------------------------------

    def take(self, latest: tuple[int, Any] | None = None) -> list[Record]:
        """Return what changed since last taken, with the label of the latest own instance."""
        records = self.own.take(latest)
        site = _forgotten(self._learner.tables)
        used = self._used if site == self._forgotten else self._overlays
        self._used, self._forgotten = {}, site
        for overlay in used.values():
            for space in overlay.tables:
                self._follow(overlay, space)
            records += overlay.take()
        return records + (list(self.earned.changes()) if self.earned is not None else [])

    def load(self, loaded: Loaded, stored: StoredTables) -> None:
        """Continue from a store, once the learner is restored and before it counts pending labels.

        Codes of requests are found on the way; pending labels of isolated sources are counted.
        """
        self.own.clear(loaded.sources[OWN].latest)  # cells of sources are opened, and to be written
        for source, state in loaded.sources.items():
            if not self.is_pooled(source):
                self._load(state, stored)
        if self.earned is not None:
            self.earned.load(loaded.of(RelationLine), loaded.of(OwnLabel))
        for request in loaded.requests:
            self._resolve(request)
            if self._learner.knows_ends and not (
                self.is_pooled(request.source) and self._learner.is_pending
            ):
                table = self.of(request.source).tables[request.space]
                for group in map(request.group, request.pending):
                    if group.phase != RECALL and group.code != DETACHED:
                        table.expect(group.code)

    def _load(self, state: SourceState, stored: StoredTables) -> None:
        overlay = self._overlay(state.source)
        overlay.advance(state.slot)
        for cell, _ in stored.cells(state.source):
            self._add(overlay, cell)
        stored.fill(state.source, overlay.tables)
        overlay.clear()

    def _resolve(self, request: Request) -> None:
        """Let the codes of a loaded request mean rows of the tables that its labels count in."""
        codes = [self._code(request, group) for group in request.groups]
        if None not in codes:
            groups = zip(request.groups, codes, strict=True)
            request.groups = [msgspec.structs.replace(group, code=code) for group, code in groups]
            return
        resolved, of_row = dict[RowGroup, int](), list[int]()
        for row, place in enumerate(request.group_of):
            code = codes[place]
            code = self._code_at(request, row) if code is None else code
            group = msgspec.structs.replace(request.groups[place], code=code)
            of_row.append(resolved.setdefault(group, len(resolved)))
        request.groups, request.group_of = list(resolved), of_row

    def _code(self, request: Request, group: RowGroup) -> int | None:
        """Return the code of a group; None: its cell is not known now, but the contexts are."""

        def find(cell: Cell) -> int:
            if is_own(request.source):
                return self._learner.tables[cell.space].cells.find(cell)
            if self.is_pooled(request.source):
                return self._learner.open(cell, self._learner.slot)
            return self._add(self._overlay(request.source), cell)

        code = self._arms.code_of(group, self._learner.names, find)
        return DETACHED if code is None and not is_own(request.source) else code

    def _code_at(self, request: Request, row: int) -> int:
        table, group = self._learner.tables[request.space], request.group(row)
        at = table.locate(request.context(row), request.slot_of(row))
        return int(code_of(at, self._arms.places[group.counted_as], phase_number(group)))


def take_label(
    learner: Learner,
    table: Table,
    code: int,
    request: Request,
    row: int,
    label: Label,
    places: Mapping[str, int],
    paid: int = UNPAID,
) -> None:
    """Learn in a table from the label of a row that has this code there.

    `places` has the own functions by what their labels count as, `paid` is as in `Table.settle`.
    """
    context, slot, answer = request.context(row), request.slot_of(row), request.predictions[row]
    group = request.group(row)
    if code != DETACHED and group.phase != RECALL:
        table.settle(code, learner.gain_of(answer, label), context, slot, paid)
        for id_, free in request.scored.get(row, {}).items() if request.scored else ():
            if id_ in places and id_ != group.counted_as:
                gain = learner.gain_of(free, label)
                table.score(code, places[id_], gain, context, slot)
    if learner.remembers:
        prediction = None if answer is NO_ANSWER else answer
        table.remember(code, label, context, slot, prediction)


def with_added(table: Table, row: int, others: Sequence[Table], call: Callable[[], T]) -> T:
    """Call while the counters of other tables are added to those of a row; then take them out."""
    for other in others:
        table.combine(row, other, 1)
    try:
        return call()
    finally:
        for other in others:
            table.combine(row, other, -1)


class PoolingLearner:
    """The decisions of a learner, with the statistics of pooled sources added for each of them.

    The learner's counters stay its own. Rows of a batch are decided one by one while a source is
    pooled; else the learner decides them all at once.
    """

    def __init__(self, learner: Learner, sources: SourceStatistics) -> None:
        self._learner = learner
        self.sources = sources

    def _added(self, slot: int) -> Sequence[Table]:
        if self._learner.is_supervised and is_audit(slot):
            return ()
        return self.sources.added(self._learner.space)

    def decide(self, context: Context, slot: int, closed: bytes | None = None) -> int:
        """Decide for an own row: see `Learner.decide`."""
        learner, others = self._learner, self._added(slot)
        if not others:
            return learner.decide(context, slot, closed)
        row = learner.table.locate(context, slot)
        return self._with(others, row, lambda: learner.decide(context, slot, closed))

    def decide_rows(
        self, contexts: np.ndarray, slot: int, codes: np.ndarray, closed: bytes | None = None
    ) -> int:
        """Decide for consecutive slots: see `Learner.decide_rows`."""
        if not self.sources.added(self._learner.space):
            return self._learner.decide_rows(contexts, slot, codes, closed)
        for k, context in enumerate(contexts.tolist()):
            codes[k] = self.decide(tuple(context), slot + k, closed)
            if codes[k] < 0:
                return k
        return len(codes)

    def peers_to_query(self, row: int, slot: int, closed: bytes | None = None) -> list[int]:
        """Return the peers whose report or estimate a row needs."""
        query = self._learner.peers_to_query
        return self._with(self._added(slot), row, lambda: query(row, slot, closed))

    def resume(self, row: int, context: Context, slot: int, closed: bytes | None = None) -> int:
        """Continue after the reports: see `Learner.resume`."""
        resume = self._learner.resume
        return self._with(self._added(slot), row, lambda: resume(row, context, slot, closed))

    def consult(self, row: int, context: Context, *reports: Any) -> int:
        """Decide without labels of own instances: see `Learner.consult`."""
        consult, added = self._learner.consult, self.sources.added(self._learner.space)
        return self._with(added, row, lambda: consult(row, context, *reports))

    def _with(self, others: Sequence[Table], row: int, call: Callable[[], T]) -> T:
        return with_added(self._learner.table, row, others, call)
