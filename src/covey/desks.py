"""Who is served from which labels: the site's own desk, and one for each source kept apart.

The site's desk has the labels of its clients and of peers with full trust. A desk apart learns all
of that too, and besides what its one source says; nobody else learns from that.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from covey.decisions import RECALL, Decision
from covey.engine import Table, doubts_of
from covey.footprints import Footprints
from covey.learner import Learner
from covey.lots import Lot
from covey.records import Line, Saved, Standing
from covey.types import Cell, Label

Trust = Literal["isolated", "robust", "full"]
Key = tuple[str, str]  # who asked, and under which id
SITE = ""  # the name of the site's own desk


class Desk:
    """A learner, the tickets that it gave out, and which of its cells have moved."""

    def __init__(self, name: str, learner: Learner) -> None:
        self.name = name
        self.learner = learner
        self.keys: dict[int, Key] = {}
        self.footprints = Footprints(learner)
        self._oldest = 1
        self._written = 1  # tickets before this one are in the store
        self._stood: Standing | None = None
        self.latest: tuple[int, Label] | None = None  # own label of the latest slot, with that

    def note_label(self, slot: int, label: Label) -> None:
        """Note a label of the site's own clients; an older one than the latest is none."""
        if self.latest is None or slot >= self.latest[0]:
            self.latest = (slot, label)

    def load(self, saved: Saved, others: Sequence[Decision] = ()) -> None:
        """Go on from what a store has; the labels of `others` are waited for too."""
        self.learner.restore(saved.snapshot)
        self._reopen(saved, others)

    @property
    def cells(self) -> int:
        """How many cells are known here."""
        return sum(map(len, self.learner.tables.values()))

    def knows(self, cell: Cell) -> bool:
        """Say whether a cell is known here."""
        return self.footprints.row(cell) is not None

    def meet(self, cell: Cell, slot: int) -> int:
        """Know a cell that a peer speaks of at its `slot`; return how many are new by that."""
        known = self.cells
        self.learner.tables[cell.space].meet(cell, slot)
        return self.cells - known

    def take(self) -> tuple[list[Standing], list[Line]]:
        """Return where it stands and its lines, each if it has moved since they were last taken."""
        standing = self._standing()
        moved = [] if standing == self._stood else [standing]
        self._stood = standing
        return moved, self.footprints.take(self.name)

    def is_written(self, standing: Standing) -> None:
        """Note how far the store has its tickets."""
        self._written = standing.kept.stop

    def expired(self) -> list[Key]:
        """Return and forget the keys of tickets that the store knows and the learner no longer."""
        oldest = min(self.learner.kept_tickets.start, self._written)
        keys = [self.keys.pop(ticket) for ticket in range(self._oldest, oldest)]
        self._oldest = max(self._oldest, oldest)
        return keys

    # -- rows of a lot --------------------------------------------------------------------------

    def count_rows(
        self, space: str, contexts: np.ndarray, slot: int, codes: np.ndarray, by: int
    ) -> None:
        """Count own decisions of consecutive slots, by 1, or take them back, by -1."""
        ours = self._here_all(space, codes)
        self.learner.tables[space].count_batch(contexts.reshape(-1).data, slot, ours.data, by)
        self.footprints.note_many(space, ours, contexts)

    def learn_rows(
        self, lot: Lot, rows: np.ndarray, labels: Sequence[Label], numbers: Sequence[np.ndarray]
    ) -> None:
        """Learn from labels of a lot; `numbers` are what was gained and what was paid, by row."""
        codes, contexts = self._here_all(lot.space, lot.codes[rows]), lot.contexts[rows]
        slots = lot.slot + rows
        table: Any = self.learner.tables[lot.space]
        table.settle_batch(
            contexts.reshape(-1).data, slots.data, codes.data, *(one.data for one in numbers)
        )
        if self.learner.remembers:
            points = map(tuple, contexts.tolist())
            for one in zip(codes.tolist(), labels, points, slots.tolist(), strict=True):
                table.remember(*one)
        self.footprints.note_many(lot.space, codes, contexts)

    def forget_rows(self, lot: Lot, rows: np.ndarray) -> None:
        """Wait no longer for the labels of some rows."""
        codes = self._here_all(lot.space, lot.codes[rows])
        self.learner.tables[lot.space].forget_batch(codes.data)

    def _here_all(self, space: str, codes: np.ndarray) -> np.ndarray:
        """Return decisions of the site as if they had been made here."""
        return codes

    def _reopen(self, saved: Saved, others: Sequence[Decision]) -> None:
        decisions = [ticket.decision() for ticket in saved.tickets]
        self.learner.reopen(decisions, saved.kept, others)
        self.footprints.take(self.name)  # all of it is in the store already
        self.keys = {ticket.ticket: (ticket.source, ticket.id) for ticket in saved.tickets}
        self._oldest, self._written = saved.kept.start, saved.kept.stop
        self.latest = saved.latest
        self._stood = self._standing()

    def _standing(self) -> Standing:
        learner = self.learner
        doubts = doubts_of(learner.tables)
        return Standing(self.name, learner.slot, learner.kept_tickets, doubts, self.latest)


class DeskApart(Desk):
    """The desk of one source, which follows all that happens at the site's."""

    def __init__(self, name: str, site: Learner, *, most_cells: int) -> None:
        """`most_cells` are those that the source may make known, beyond the site's."""
        super().__init__(name, site.twin(spare_cells=most_cells))
        self._site = site
        # Where the cells of the site are known here, by their rows there.
        self._rows: dict[str, list[int]] = {space: [] for space in site.tables}

    def copy(self) -> None:
        """Begin with all that the site has learnt, labels under way included."""
        for space, table in self._site.tables.items():
            ours = self.learner.tables[space]
            for row in range(len(table)):
                ours.load(table.cell(row), table.counters(row))
                ours.know(row, table.known(row))
            ours.take_doubts(table.doubts())

    def load(self, saved: Saved, others: Sequence[Decision] = ()) -> None:
        """Go on from what a store has; the site's desk has done so already."""
        waiting = [*self._site.waiting(), *others]
        self.learner.restore(saved.snapshot)
        self._reopen(saved, [self._here(decision) for decision in waiting])

    def knows(self, cell: Cell) -> bool:
        """Say whether a cell is known here; all those of the site are."""
        self._keep_up()
        return super().knows(cell)

    def meet(self, cell: Cell, slot: int) -> int:
        """Know a cell from the site's next slot on: the source may say any."""
        return super().meet(cell, self._site.slot + 1)

    def take(self) -> tuple[list[Standing], list[Line]]:
        """Return what has moved, with all cells that the site knows."""
        self._keep_up()
        return super().take()

    def watch(self, decision: Decision) -> None:
        """Count what the site has decided."""
        ours = self._here(decision)
        if decision.choice is not RECALL:
            self._table(ours).repeat(ours.code, ours.context)
        self.footprints.note(ours)

    def unwatch(self, decision: Decision) -> None:
        """Take back what the site takes back."""
        ours = self._here(decision)
        if decision.choice is not RECALL:
            self._table(ours).retract(ours.code, ours.context)
        self.footprints.note(ours)

    def forget(self, decision: Decision) -> None:
        """Wait no longer for a label of the site."""
        if decision.choice is not RECALL:
            ours = self._here(decision)
            self._table(ours).forget(ours.code)

    def learn(self, decision: Decision, label: Label, *, is_right: bool) -> None:
        """Learn from a label of the site."""
        ours = self._here(decision)
        table = self._table(ours)
        if decision.choice is not RECALL:
            table.settle(ours.code, is_right, ours.context, ours.slot)
        if self.learner.remembers:
            table.remember(ours.code, label, ours.context, ours.slot)
        self.footprints.note(ours)

    def _here(self, decision: Decision) -> Decision:
        """Return a decision of the site as if it had been made here."""
        self._keep_up()
        row = self._rows[decision.space][decision.code >> 20]
        code = row << 20 | decision.code & 0xFFFFF
        return Decision(
            code, decision.context, decision.slot, decision.choice, space=decision.space
        )

    def _here_all(self, space: str, codes: np.ndarray) -> np.ndarray:
        self._keep_up()
        rows = np.array(self._rows[space], np.int64)[codes >> 20]
        ours: np.ndarray = rows << 20 | codes & 0xFFFFF
        return ours

    def _table(self, decision: Decision) -> Table:
        return self.learner.tables[decision.space]

    def _keep_up(self) -> None:
        """Know every cell that the site knows, since when it does."""
        for space, table in self._site.tables.items():
            ours, rows = self.learner.tables[space], self._rows[space]
            for row in range(len(rows), len(table)):
                rows.append(ours.meet(table.cell(row), table.counters(row)[0]))
