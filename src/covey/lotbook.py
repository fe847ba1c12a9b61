"""The lots of a site: decided, accepted and labelled as so many tickets would be, column by column.

As in `books`, nothing here reads or writes; `take` hands over what is to be stored.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey import lots
from covey.decisions import UNKNOWN, Decision
from covey.desks import Desk, DeskApart, Key
from covey.errors import ConflictingLabel, LateLabel
from covey.lots import Helped, Kind, Lot, LotBatch, Told
from covey.medians import Medians
from covey.records import Loaded, Owed
from covey.states import Ledger
from covey.types import Label

OWN = ""  # the source of all own clients together
NOT_DECIDED = -(1 << 62)
UNPAID = -(1 << 60)  # as the kernel has it


class Draft(msgspec.Struct, eq=False):
    """A lot that is being decided."""

    slot: int
    contexts: np.ndarray
    codes: np.ndarray
    done: int = 0  # rows before this one are decided
    refreshed: list[Decision] = []  # those for which peers were asked

    def __len__(self) -> int:
        return len(self.codes)


class Said(NamedTuple):
    """What the arms said to the rows of a lot, and what the asker is told."""

    predictions: list[Label]
    answers: list[Label]
    helped: dict[int, Helped]
    lessons: dict[int, tuple[int, Any]]


class Settlements(msgspec.Struct, frozen=True):
    """What labels of a lot did, one by one."""

    is_new: list[bool]
    is_right: list[bool]


class LotBook:
    """The lots whose labels are waited for, and what has happened to them since the last commit."""

    def __init__(
        self,
        site: Desk,
        apart: Mapping[str, DeskApart],
        asked: dict[tuple[str, str], int],
        medians: Medians | None,
        ledger: Ledger,
        loaded: Loaded,
    ) -> None:
        self._site = site
        self._apart = apart
        self._asked = asked
        self._medians = medians
        self._ledger = ledger
        self._latest = loaded.latest_lot
        self._lots: dict[Key, Lot] = {}
        self._open: deque[Lot] = deque()
        self._closed: deque[Lot] = deque()
        self._batch, self._owed = LotBatch(), list[Owed]()
        self.has_moved = False
        self.held = self.waiting = 0  # rows in memory, and those whose label is waited for
        for lot in loaded.lots:
            self._hold(lot)

    def find(self, source: str, id: str) -> Lot | None:  # noqa: A002 - the problem's word
        """Return the lot that `source` knows as `id`, if it is still in memory."""
        return self._lots.get((source, id))

    # -- decisions ------------------------------------------------------------------------------

    def draft(self, contexts: np.ndarray, slot: int) -> Draft:
        """Begin to decide for rows with these contexts, in the slots from `slot` on."""
        return Draft(slot, contexts, np.full(len(contexts), NOT_DECIDED, np.int64))

    def decide(self, draft: Draft) -> Decision | None:
        """Decide up to a row for which peers must be asked, and return that; None: all are."""
        while True:
            self._decide_on(draft)
            if draft.done == len(draft):
                return None
            row = draft.done
            point = tuple(draft.contexts[row].tolist())
            decision = self._site.learner.undecided(
                -1 - int(draft.codes[row]), point, draft.slot + row
            )
            if decision.asks:
                return decision
            for desk in self._apart.values():  # everybody is left alone
                desk.watch(decision)
            self.go_on(draft, decision)

    def _decide_on(self, draft: Draft) -> None:
        begin = draft.done
        codes, points = draft.codes[begin:], draft.contexts[begin:].reshape(-1)
        learner = self._site.learner
        table = learner.tables[learner.space]
        try:
            draft.done += table.decide_batch(points.data, draft.slot + begin, codes.data)
        except BaseException:
            draft.done += int(np.argmax(codes == NOT_DECIDED))
            raise
        finally:
            self._watch(draft, begin)

    def decide_again(self, draft: Draft, rows: Sequence[int]) -> list[Draft]:
        """Take some rows back, and return a draft of each that is to be decided anew."""
        again = []
        for row in rows:
            codes, points = draft.codes[row : row + 1], draft.contexts[row : row + 1]
            for desk in self._desks():
                desk.count_rows(self._site.learner.space, points, draft.slot + row, codes, -1)
            codes[0] = NOT_DECIDED
            again.append(Draft(draft.slot + row, points, codes))
        return again

    def go_on(self, draft: Draft, decision: Decision) -> None:
        """Take the decision of the row at which `decide` stopped."""
        draft.codes[draft.done] = decision.code
        if decision.refreshed:
            draft.refreshed.append(decision)
        draft.done += 1

    def abandon(self, draft: Draft) -> None:
        """Take back all that was decided."""
        space = self._site.learner.space
        for rows in _runs(draft.codes[: draft.done] >= 0):
            codes, contexts = draft.codes[rows], draft.contexts[rows]
            for desk in self._desks():
                desk.count_rows(space, contexts, draft.slot + rows.start, codes, -1)
        table = self._site.learner.tables[space]
        for decision in reversed(draft.refreshed):
            for peer, old in decision.refreshed:
                table.unrefresh(decision.code >> 20, peer, old)
        self.has_moved = True

    def accept(
        self, draft: Draft, question: tuple[str, str, str], said: Said, prices: Mapping[str, float]
    ) -> Lot:
        """Give out the rows under one id: source, id and digest are in `question`."""
        learner = self._site.learner
        codes, which = np.unique(draft.codes, return_inverse=True)
        self._latest += 1
        source, id_, digest = question
        lot = Lot(
            number=self._latest,
            source=source,
            id=id_,
            digest=digest,
            slot=draft.slot,
            space=learner.space,
            kinds=[self._kind(code, prices) for code in codes.tolist()],
            which=which.astype(np.uint32),
            contexts=draft.contexts,
            predictions=said.predictions,
            answers=said.answers,
            helped=said.helped,
            truths=[UNKNOWN] * len(draft),
            lessons=said.lessons,
        )
        learner.advance(lot.last_slot)
        self._hold(lot)
        self._batch.lots.append(lot)
        self._ledger.decide_lot(lot)
        if learner.tells_at_once:
            self._count_asked(lot, lot.helped)
        self._site.footprints.note_many(lot.space, codes, lot.contexts)
        self.has_moved = True
        return lot

    # -- labels ---------------------------------------------------------------------------------

    def settle(self, lot: Lot, truths: Mapping[int, Label]) -> Settlements:
        """Take labels by row, all or none; raise `ConflictingLabel` or `LateLabel`."""
        check(lot, truths)
        said, known = lot.predictions, lot.truths
        right = [said[row] == truth for row, truth in truths.items()]
        is_new = [known[row] is UNKNOWN for row in truths] if lot.parts else [True] * len(truths)
        if any(is_new):
            rows, labels = compress(truths, is_new), compress(truths.values(), is_new)
            self._learn(lot, list(rows), list(labels), list(compress(right, is_new)))
        return Settlements(is_new, right)

    def _learn(self, lot: Lot, rows: list[int], labels: list[Label], right: list[bool]) -> None:
        places, gains = np.array(rows, np.int64), np.array(right, np.int64)
        unpaid = np.full(len(rows), UNPAID, np.int64)
        self._site.learn_rows(lot, places, labels, (gains, self._paid(lot, rows, unpaid)))
        for desk in self._apart.values():
            desk.learn_rows(lot, places, labels, (gains, unpaid))
        for row, label in zip(rows, labels, strict=True):
            lot.truths[row] = label
        last = max(range(len(rows)), key=rows.__getitem__)
        self._site.note_label(lot.slot + rows[last], labels[last])
        self._write_labels(lot, rows, labels, right)
        counted = lots.counts(lot.source, lot.kinds, lot.which[places], gains)
        lots.add(self._batch.counts, counted)
        self._ledger.settle_lot(lot.slot + places, counted, self._site.learner.slot)
        self.waiting -= len(rows)
        if self._medians is not None:
            for (cell, _, arm), one in counted.items():
                self._medians.add(cell, OWN, arm, one)
        if lot.helped:
            self._pass_on(lot, rows)
        self.has_moved = True

    def _paid(self, lot: Lot, rows: list[int], unpaid: np.ndarray) -> np.ndarray:
        """Return what was paid by row: where helpers say so, their widths."""
        if not lot.helped or not self._site.learner.policies[lot.space].keeps_widths:
            return unpaid
        widths = [lot.helped[row].width if row in lot.helped else UNPAID for row in rows]
        return np.array(widths, np.int64)

    def _write_labels(
        self, lot: Lot, rows: list[int], labels: list[Label], right: list[bool]
    ) -> None:
        told = self._batch.told.get(lot.number)
        if told is None:
            told = self._batch.told[lot.number] = Told(lot.number, lot.parts)
            lot.parts += 1
        told.rows += rows
        told.truths += labels
        told.right += right

    def _pass_on(self, lot: Lot, rows: Sequence[int]) -> None:
        asked = [row for row in rows if row in lot.helped]
        self._owed += [
            Owed(lot.kind(row).peer, lot.helped[row].peer_ticket, lot.truths[row]) for row in asked
        ]
        if not self._site.learner.tells_at_once:
            self._count_asked(lot, asked)

    # -- the end of a lot -----------------------------------------------------------------------

    def expire(self) -> None:
        """Wait no longer for labels older than the wait; a lot ends as a whole, with its last row.

        It is forgotten when the store has it.
        """
        learner = self._site.learner
        while self._open and self._open[0].last_slot + learner.label_wait < learner.slot:
            self._closed.append(lot := self._open.popleft())
            self._close(lot)
        while self._closed and self._closed[0].is_stored:
            lot = self._closed.popleft()
            self.held -= len(lot)
            del self._lots[lot.source, lot.id]

    def _close(self, lot: Lot) -> None:
        lot.is_open = False
        lot.lessons = {}
        waiting = np.array(lot.waiting, np.int64)
        self.waiting -= len(waiting)
        for desk in self._desks() if len(waiting) else ():
            desk.forget_rows(lot, waiting)
        self._batch.closed.append(lot.number)
        self.has_moved = True

    def take(self) -> tuple[LotBatch, list[Owed]]:
        """Return what has happened since it was last taken."""
        taken = self._batch, self._owed
        self._batch, self._owed, self.has_moved = LotBatch(), [], False
        return taken

    def is_written(self, batch: LotBatch) -> None:
        """Note that the store has what was taken."""
        for lot in batch.lots:
            lot.is_stored = True

    # -- parts ----------------------------------------------------------------------------------

    def _desks(self) -> list[Desk]:
        return [self._site, *self._apart.values()]

    def _watch(self, draft: Draft, begin: int) -> None:
        """Let the desks apart count the rows from `begin` on that are decided now."""
        rows = slice(begin, draft.done)
        for desk in self._apart.values() if begin < draft.done else ():
            space, slot = self._site.learner.space, draft.slot + begin
            desk.count_rows(space, draft.contexts[rows], slot, draft.codes[rows], 1)

    def _kind(self, code: int, prices: Mapping[str, float]) -> Kind:
        learner = self._site.learner
        choice = learner.choice(code)
        cell = learner.name_at(learner.space, code >> 20)
        price = prices.get(choice.peer, choice.price)
        return Kind(code, cell, choice.phase, choice.arm, price, choice.peer)

    def _hold(self, lot: Lot) -> None:
        self._lots[lot.source, lot.id] = lot
        self._open.append(lot)
        self.held += len(lot)
        self.waiting += len(lot.waiting)

    def _count_asked(self, lot: Lot, rows: Sequence[int] | Mapping[int, Helped]) -> None:
        for row in rows:
            kind = lot.kind(row)
            where = (kind.cell, kind.peer)
            self._asked[where] = self._asked.get(where, 0) + 1


def _runs(is_decided: np.ndarray) -> Iterator[slice]:
    """Yield the stretches of rows that are decided."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], is_decided, [0])))).tolist()
    yield from map(slice, edges[::2], edges[1::2])


def check(lot: Lot, truths: Mapping[int, Label]) -> None:
    """Raise `ConflictingLabel` or `LateLabel` if a lot cannot take these labels."""
    if lot.is_open and not lot.parts:  # there are none yet
        return
    for row, truth in truths.items():
        known = lot.truths[row]
        if known is UNKNOWN:
            if not lot.is_open:
                raise LateLabel(
                    f"the label of row {row} of {lot.id!r} was waited for too long; none was taken"
                )
        elif known != truth:
            raise ConflictingLabel(
                f"row {row} of {lot.id!r} was settled with {known!r}; {truth!r} contradicts it, "
                "and none was taken"
            )


def waiting(opened: Sequence[Lot], desk: Desk) -> Iterator[Decision]:
    """Yield the decisions of lots whose label has not come, as far as they are counted."""
    for lot in opened:
        codes = lot.codes
        for row in lot.waiting:
            code = int(codes[row])
            yield Decision(code, (), lot.slot + row, desk.learner.choice(code), space=lot.space)
