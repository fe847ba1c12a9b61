"""The arms and cells of a site as a store names them, and tables that are filled from it."""

import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping

from covey.bandit.harm import KEPT
from covey.bandit.learner import CellNames, Learner
from covey.errors import DataError
from covey.kernel import SERVE, Table, code_of
from covey.kernel.rules import Cell
from covey.kernel.saved import renumbered
from covey.site.requests import (
    DETACHED,
    RECALL,
    RELAY,
    Arm,
    ArmKind,
    Belief,
    BeliefNotes,
    CellLine,
    CountedArm,
    Loaded,
    RowGroup,
)
from covey.types import KEPT_ROW, PHASES

NO_LIMIT = 1 << 60  # cells of an overlay: the cap per source is checked before they are opened


def kinds_of(learner: Learner) -> dict[str, ArmKind]:
    """Return the kinds of the arms by their names."""
    behind = learner.behind()
    own: list[ArmKind] = ["own"] * (len(learner.arms) - len(behind))
    others: list[ArmKind] = ["context_only" if is_blind else "peer" for _, is_blind in behind]
    return dict(zip(learner.arms, own + others, strict=True))


class ArmPlaces:
    """Which place each arm of a site has in its tables; a store knows arms by their ids."""

    def __init__(self, learner: Learner, arms: Iterable[Arm] = ()) -> None:
        """`arms` are those that the site has or had; without any, it has those of the learner."""
        self.all = list(arms) or [
            Arm(name, name, kind, "", place, number=place)
            for place, (name, kind) in enumerate(kinds_of(learner).items())
        ]
        by_name = {arm.name: arm for arm in self.all if arm.place >= 0}
        present = [by_name[name] for name in learner.arms]
        self.ids = [arm.id for arm in present]
        self.places = {id_: place for place, id_ in enumerate(self.ids)}
        self.renamed = {arm.name: arm.id for arm in present if arm.id != arm.name}
        self.numbers = {place: arm.number for place, arm in enumerate(present)}
        self.by_number = {number: place for place, number in self.numbers.items()}

    def of_seat(self, table: Table, seat: int) -> str:
        """Return the id of an arm by its place among those of which there are beliefs."""
        return next(id_ for id_, k in self.places.items() if table.layout.seat(k) == seat)

    def code_of(self, group: RowGroup, names: CellNames, find: Callable[[Cell], int]) -> int | None:
        """Return the code of a group of a loaded request, for the row of a cell that `find` finds.

        It is `DETACHED` if the arm is retired; None: there is no such cell.
        """
        place = 0 if group.phase == RECALL else self.places.get(group.counted_as, -1)
        if place < 0 or group.phase == RELAY:
            return DETACHED
        try:
            row = find(names.parse(group.cell))
        except (DataError, KeyError):
            return None
        return int(code_of(row, place, phase_number(group))) if row >= 0 else None


def phase_number(group: RowGroup) -> int:
    """Return the phase of a group as the kernel has it."""
    if group.phase == KEPT_ROW:
        return KEPT
    return PHASES.index(group.phase) if group.phase in PHASES else SERVE


# -- what a store has -----------------------------------------------------------------------------


class StoredTables:
    """Fills empty tables with what a store has of them; arms that it does not name have nothing."""

    def __init__(self, learner: Learner, loaded: Loaded, arms: ArmPlaces) -> None:
        self._learner = learner
        self._loaded = loaded
        self._arms = arms
        self._counters: dict[tuple[str, str], dict[int, list[int]]] = {}
        self._lines: dict[str, list[CellLine]] = {}
        for line in loaded.of(CellLine):
            self._lines.setdefault(line.source, []).append(line)
        for counted in loaded.of(CountedArm):
            if counted.arm in arms.places:
                by_place = self._counters.setdefault((counted.source, counted.cell), {})
                by_place[arms.places[counted.arm]] = counted.counters

    def cells(self, source: str) -> Iterator[tuple[Cell, CellLine]]:
        """Yield the cells of a source in the order of their rows."""
        for line in self._lines.get(source, ()):
            yield self._learner.names.parse(line.name), line

    def fill(self, source: str, tables: Mapping[str, Table]) -> None:
        """Fill the tables of a source."""
        for cell, line in self.cells(source):
            own = renumbered(line.counters, self._arms.by_number)
            counters = self._counters.get((source, line.name), {})
            tables[cell.space].saved.load_parts(cell, own, counters, line.seen)
        state = self._loaded.sources.get(source)
        for space, numbers in state.changes.items() if state is not None else ():
            self._restore(tables[space], space, numbers, state.arms if state else [])
        for belief in self._loaded.of(Belief):
            if belief.source == source and belief.arm in self._arms.places:
                self._believe(tables[belief.space], belief)

    def _restore(self, table: Table, space: str, numbers: list[int], arms: list[str]) -> None:
        """Restore what is in no row, which may have been counted for other arms."""
        if arms == self._arms.ids or not arms or self._learner.rule.custom is not None:
            table.policy.restore(numbers)
            return
        kinds = [arm.kind for id_ in arms for arm in self._arms.all if arm.id == id_]
        old = empty_table(
            self._learner,
            space,
            costs=(0.0,) * len(arms),
            functions=kinds.count("own"),
            context_peers=kinds.count("context_only"),
            rewards=(),
        )
        old.policy.restore(numbers)
        there = [arms.index(id_) if id_ in arms else -1 for id_ in self._arms.ids]
        table.policy.adopt(old.policy, there)

    def _believe(self, table: Table, belief: Belief) -> None:
        notes = next(
            since.notes
            for since in self._loaded.of(BeliefNotes)
            if (since.source, since.space, since.arm) == (belief.source, belief.space, belief.arm)
        )
        stored = array("q", zlib.decompress(belief.numbers)).tolist()
        seat = table.layout.seat(self._arms.places[belief.arm])
        table.policy.take_belief(seat, [len(stored), *stored, *notes[1:]])


def empty_table(learner: Learner, space: str, **other: object) -> Table:
    """Return a table that counts as a learner's; pending labels are not counted in a store."""
    return learner.empty_table(space, is_pending=False, custom=None, most_cells=NO_LIMIT, **other)
