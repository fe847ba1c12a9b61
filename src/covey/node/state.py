"""The state of a site: its learner, its open requests, and what is to be committed.

Nothing here reads or writes. `SiteState` is the state in memory; `RecordedState` also collects the
changes since the last commit. A site that is loaded from these continues as this one would.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from covey.decisions import UNKNOWN, Snapshot
from covey.engine import UNPAID, doubts_of, row_of
from covey.errors import ConflictingLabel, LateLabel, UnknownTicket
from covey.learner import Learner
from covey.node.requests import (
    FEW,
    NONE,
    OWN,
    Commit,
    Delivery,
    Loaded,
    PeerAnswer,
    Request,
    RowGroup,
    SourceState,
    holder,
    is_own,
)
from covey.node.status import Counters, ServedState
from covey.node.trust import DirtyCells, SourceStatistics, Trust
from covey.types import MILLIONTHS, Cell, Label, Report

MOST_CELLS = 65_536  # that a peer may open
MOST_GROUPS = 100_000  # that are cached
ONE_GROUP = (0,)
FEW_LABELS = 4  # that are settled one by one
Costs = Mapping[int, float | None] | None  # by row, what an arm cost beyond its price
RECALL = "recall"


class Settlements(msgspec.Struct, frozen=True, gc=False):
    """The effect of labels, one by one."""

    is_new: list[bool]  # False: the same label had been settled before, or is kept
    is_right: list[bool]
    kept: Collection[int] = ()  # rows whose label waits for the answer of a busy peer


class SiteState:
    """The learner of a site and the requests whose labels it accepts, in memory.

    The number of a request is the ticket of its first row; further rows have the next numbers.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.pending_rows = 0  # whose label has not arrived
        self._next_number = 1
        self._latest_slot = learner.slot  # that was given to a request
        self._groups: dict[Any, RowGroup] = {}
        self._open: deque[Request] = deque()
        self._by_ticket: dict[int, Request] = {}
        self._next_expiry = 0  # no request expires before this slot has passed

    # -- slots ----------------------------------------------------------------------------------

    def take_slots(self, slot: int | None, rows: int) -> int:
        """Return the first slot of a request: the next one, or `slot` unless it has passed."""
        latest = self._latest_slot
        latest = max(latest, self.learner.slot)
        first = latest + 1 if slot is None else max(slot, latest)
        self._latest_slot = first + rows - 1
        return first

    def return_slots(self, first: int, rows: int) -> None:
        """Give back the slots of a request that failed, unless later ones are in use."""
        if self._latest_slot == first + rows - 1:
            self._latest_slot = first - 1

    # -- requests -------------------------------------------------------------------------------

    def accept(
        self,
        codes: Sequence[int],
        *,
        space: str,
        slot: int,
        contexts: Any,
        predictions: list[Any],
        answers: list[Any],
        source: str = OWN,
        id: str = "",  # noqa: A002 - the field of the protocol
        digest: str = "",
        slots: Sequence[int] | None = None,
        peer_answers: Mapping[int, PeerAnswer] = NONE,
        row_ids: Sequence[str] | None = None,
        training: Mapping[int, tuple[int, Any]] = NONE,
    ) -> Request:
        """Record answered rows as a request whose labels are accepted from now on."""
        count = len(codes)
        if count == 1:
            groups: Sequence[RowGroup] = (self._group(source, space, codes[0]),)
            group_of: Any = ONE_GROUP
            truths = [UNKNOWN]
        else:
            unique, group_of = np.unique(np.asarray(codes), return_inverse=True)
            groups = [self._group(source, space, code) for code in unique.tolist()]
            group_of = group_of.tolist() if count <= FEW else group_of.astype(np.uint32)
            truths = [UNKNOWN] * count
        request = Request(  # by position, which takes a third of the time
            self._next_number,
            source,
            id,
            slot,
            groups,
            contexts,
            predictions,
            answers,
            truths,
            space,
            group_of,
            digest,
            slots,
            peer_answers,
            row_ids,
            training,
        )
        self._hold(request)
        return request

    def recall(
        self, source: str, cells: Sequence[Cell], slots: Sequence[int], ids: Sequence[str] = ("",)
    ) -> Request:
        """Answer a peer that shows only cells: with the label seen most often in each."""
        labels, groups = [], []
        for cell, slot in zip(cells, slots, strict=True):
            label, code = self._recalled(source, cell, slot)
            labels.append(label)
            groups.append(RowGroup(code, self.learner.names.of(cell), RECALL, "", 0.0))
        request = Request(
            number=self._next_number,
            source=source,
            id=ids[0],
            slot=slots[0],
            slots=list(slots),
            space=cells[0].space,
            groups=groups,
            group_of=range(len(groups)),
            contexts=[()] * len(labels),
            predictions=labels,
            answers=labels,
            row_ids=ids if len(ids) > 1 else None,
            truths=[UNKNOWN] * len(labels),
        )
        self._hold(request)
        return request

    def _hold(self, request: Request) -> None:
        number, count, learner = request.number, len(request.truths), self.learner
        self._open.append(request)
        self.pending_rows += count
        self._next_number = number + count
        last = request.slot
        if count == 1:
            self._by_ticket[number] = request
        else:
            self._by_ticket.update(dict.fromkeys(range(number, number + count), request))
            last = request.last_slot
        if last > learner.slot:
            learner.slot = last
        if last > self._next_expiry:
            self._expire(self._open, learner.slot)

    def find_ticket(self, ticket: int) -> tuple[Request, int]:
        """Return the request and the row of a ticket; raise `UnknownTicket`."""
        request = self._by_ticket.get(ticket)
        if request is None:
            was_issued = isinstance(ticket, int) and 0 < ticket < self._next_number
            wait = self.learner.label_wait
            why = f"label-wait is {wait} slots" if was_issued else "it was never issued"
            raise UnknownTicket(f"learner {self.learner.name!r}: unknown ticket {ticket!r}; {why}")
        return request, ticket - request.number

    def _group(self, source: str, space: str, code: int) -> RowGroup:
        """Return what rows with this decision have in common."""
        group = self._groups.get((space, code))
        if group is None:
            learner = self.learner
            cell = learner.name_at(space, row_of(code))
            group = self._groups[space, code] = self._new_group(code, cell)
        return group

    def _new_group(self, code: int, cell: str) -> RowGroup:
        if len(self._groups) >= MOST_GROUPS:
            self._groups.clear()
        choice = self.learner.choice(code)
        return RowGroup(code, cell, choice.phase, choice.arm, choice.price, choice.peer)

    def prices_changed(self) -> None:
        """Read the prices of arms again."""
        self._groups.clear()

    def retract(self, contexts: Any, slot: int, codes: Any, done: int) -> None:
        """Take back the own decisions of a request that failed: its first `done` rows."""
        if len(codes) == 1:
            if done:
                self.learner.retract(codes[0], tuple(contexts[0]), slot)
        elif done:
            self.learner.retract_rows(np.ascontiguousarray(contexts[:done]), slot, codes[:done])

    def knows(self, ticket: int) -> bool:
        """Return whether the label of a ticket can still be settled or compared."""
        return ticket in self._by_ticket

    def pending(self) -> list[tuple[Request, int]]:
        """Return the rows whose label has not arrived."""
        return [(request, row) for request in self._open for row in request.pending]

    def pending_codes(self) -> dict[str, list[int]]:
        """Return their decisions by context space, for a learner that counts these."""
        return _codes(self.pending())

    def withdraw(self, ticket: int) -> None:
        """Take back the latest request, which has this ticket; nothing if it is gone already."""
        request = self._by_ticket.get(ticket)
        if request is None:
            return
        self._open.remove(request)
        for number in range(request.number, request.number + len(request)):
            del self._by_ticket[number]
        self._next_number = request.number
        self.pending_rows -= len(request)
        if request.groups[0].phase != RECALL:
            codes = [request.group(row).code for row in range(len(request))]
            self.retract_served(request.source, request.space, codes)

    # -- rows of peers --------------------------------------------------------------------------

    def is_pooled(self, source: str) -> bool:
        """Return whether labels of a source count for the site itself."""
        return True

    def answered(self, cell: Any, peer: str) -> int:
        """Return how many arrivals a peer must have seen in a cell, as it answered them."""
        return 0

    def serve(self, source: str, cells: Sequence[Cell], slots: Sequence[int]) -> list[int]:
        """Choose own functions for rows of a peer, and count them."""
        learner, codes = self.learner, list[int]()
        for cell, slot in zip(cells, slots, strict=True):
            codes.append(learner.serve(learner.open(cell, slot), slot, cell.space))
        return codes

    def widths(self, source: str, space: str, codes: Sequence[int]) -> Mapping[int, PeerAnswer]:
        """Return how far served functions may be from the best one, where askers want that."""
        if not self.learner.keeps_widths:
            return NONE
        return {
            row: PeerAnswer(self.learner.choice(code).arm, "", self._width(source, space, code))
            for row, code in enumerate(codes)
        }

    def _width(self, source: str, space: str, code: int) -> int:
        return self.learner.width(code, space)

    def retract_served(self, source: str, space: str, codes: Sequence[int]) -> None:
        """Take back the choices of `serve`."""
        for code in reversed(codes):
            self.learner.retract(code, (), 0, space)

    def report(self, source: str, cell: Cell, slot: int) -> Report:
        """Return what a peer may know of a cell."""
        return self.learner.report(cell, slot)

    def estimate(
        self, source: str, cell: Cell, slot: int, *, is_by_context: bool
    ) -> tuple[float, int]:
        """Return the accuracy of answers to a peer in a cell, and the labels behind it."""
        return self.learner.estimate(cell, slot, is_by_context=is_by_context)

    def _recalled(self, source: str, cell: Cell, slot: int) -> tuple[Label, int]:
        return self.learner.recall(cell, slot)

    # -- labels ---------------------------------------------------------------------------------

    def check(self, request: Request, truths: Mapping[int, Any]) -> None:
        """Raise `ConflictingLabel` or `LateLabel` if a request cannot take these labels."""
        known = request.truths
        for row, label in truths.items():
            if known[row] is UNKNOWN:
                if not request.is_open:
                    raise LateLabel(
                        f"label for {self._name(request, row)} rejected: label-wait has expired"
                    )
            elif known[row] != label:
                raise ConflictingLabel(
                    f"{self._name(request, row)} has the label {known[row]!r}; the conflicting "
                    f"label {label!r} was rejected"
                )

    def _name(self, request: Request, row: int) -> str:
        return f"ticket {request.number + row} of learner {self.learner.name!r}"

    def settle(
        self,
        request: Request,
        truths: Mapping[int, Any],
        costs: Costs = None,
        kept: Collection[int] = (),
    ) -> Settlements:
        """Learn from labels that were checked; the same label again has no effect."""
        known, predictions = request.truths, request.predictions
        rows = [row for row in truths if known[row] is UNKNOWN]
        is_right = [bool(predictions[row] == label) for row, label in truths.items()]
        if len(rows) == len(truths):
            is_new, right = [True] * len(rows), is_right
        else:
            is_new = [known[row] is UNKNOWN for row in truths]
            right = [one for one, new in zip(is_right, is_new, strict=True) if new]
        if rows:
            labels = [truths[row] for row in rows]
            self._learn(request, rows, labels, costs)
            for row, label in zip(rows, labels, strict=True):
                known[row] = label
            self.pending_rows -= len(rows)
            self._settled(request, rows, labels, right)
        return Settlements(is_new, is_right, kept)

    def _paid(self, request: Request, row: int, costs: Costs) -> int:
        """Return what the arm cost beyond its price, in millionths; with widths, the width."""
        cost = None if costs is None else costs.get(row)
        if cost is not None:
            return round(cost * MILLIONTHS)
        answer = request.peer_answers.get(row)
        if answer is not None and answer.id and self.learner.keeps_widths:
            return answer.width
        return UNPAID

    def _learn(
        self, request: Request, rows: Sequence[int], labels: Sequence[Label], costs: Costs
    ) -> None:
        """Let the learner learn from labels of own rows, or of rows of pooled peers."""
        learner, space = self.learner, request.space
        if request.groups[0].phase == RECALL:
            for row, label in zip(rows, labels, strict=True):
                learner.remember(request.group(row).code, label, (), 0, space)
        elif len(rows) <= FEW_LABELS:
            remembers = learner.remembers
            for row, label in zip(rows, labels, strict=True):
                code, context, slot = request.group(row).code, request.context(row), request.slot
                if row:
                    slot = request.slot_of(row)
                gain = learner.gain_of(request.predictions[row], label)
                paid = UNPAID
                if costs is not None or request.peer_answers:
                    paid = self._paid(request, row, costs)
                learner.settle(code, gain, context, slot, paid, space)
                if remembers:
                    learner.remember(code, label, context, slot, space)
        else:
            self._learn_rows(request, rows, labels, costs)

    def _learn_rows(
        self, request: Request, rows: Sequence[int], labels: Sequence[Label], costs: Costs
    ) -> None:
        learner, places = self.learner, np.array(rows, np.int64)
        codes = request.codes[places]
        contexts = np.asarray(request.contexts, np.float64).reshape(len(request), -1)[places]
        slots = request.slot + places
        if request.slots is not None:
            slots = np.asarray(request.slots, np.int64)[places]
        predictions = request.predictions
        gains = [
            learner.gain_of(predictions[row], label)
            for row, label in zip(rows, labels, strict=True)
        ]
        paid = None
        if costs is not None or request.peer_answers:
            paid = np.array([self._paid(request, row, costs) for row in rows], np.int64)
        learner.settle_rows(contexts, slots, codes, np.array(gains), paid, request.space)
        if learner.remembers:
            points = map(tuple, contexts.tolist())
            for code, label, point, slot in zip(
                codes.tolist(), labels, points, slots.tolist(), strict=True
            ):
                learner.remember(code, label, point, slot, request.space)

    def _settled(
        self, request: Request, rows: list[int], labels: list[Label], right: list[bool]
    ) -> None:
        """Follow up on labels that were learnt."""

    # -- expiry ---------------------------------------------------------------------------------

    def _expire(self, queue: "deque[Request]", slot: int) -> None:
        """Close requests whose last row is older than label-wait, oldest first."""
        wait = self.learner.label_wait
        while queue:
            due = queue[0].last_slot + wait
            if slot <= due:
                self._next_expiry = due
                return
            self._close(queue.popleft())
        self._next_expiry = slot + wait

    def _close(self, request: Request) -> None:
        request.is_open = False
        request.training = NONE
        pending = request.pending
        self.pending_rows -= len(pending)
        if pending and request.groups[0].phase != RECALL:
            self._forget(request, pending)
        self._closed(request)

    def _forget(self, request: Request, rows: Sequence[int]) -> None:
        codes = [request.group(row).code for row in rows]
        self.learner.forget_rows(codes, request.space)

    def _closed(self, request: Request) -> None:
        for ticket in range(request.number, request.number + len(request)):
            del self._by_ticket[ticket]


class RecordedState(SiteState):
    """The state of a site with a store: statistics per source, and changes since the last commit.

    The number of a request is its place in the store; its source and id find it.
    """

    def __init__(
        self,
        learner: Learner,
        loaded: Loaded,
        trust: Mapping[str, Trust] | None = None,
        *,
        most_cells: int = MOST_CELLS,
    ) -> None:
        """`trust` says how labels of each peer count; those of others are isolated."""
        super().__init__(learner)
        self.sources = SourceStatistics(learner, trust or {}, most_cells=most_cells)
        self.counters = Counters(loaded.counters)
        self._commit = Commit()
        self._has_changed = False
        self._by_id: dict[tuple[str, str], tuple[Request, int | None]] = {}
        self._held: Counter[str] = Counter()
        self._queues: dict[str, deque[Request]] = {OWN: self._open}
        self._done: deque[Request] = deque()  # closed requests that the store may not have yet
        self._next_number = loaded.latest_number + 1
        self._answered = {
            where: count if learner.counts_at_once else labelled
            for where, (count, labelled) in loaded.asked.items()
        }
        self._dirty = DirtyCells(learner)
        self._load(loaded)
        self._latest_slot = learner.slot

    def _load(self, loaded: Loaded) -> None:
        learner = self.learner
        own = loaded.sources[OWN]
        lines = loaded.cells.get(OWN, [])
        learner.restore(
            Snapshot(
                own.slot,
                [(line.name, line.counters) for line in lines],
                [(line.name, line.seen) for line in lines if line.seen],
                own.changes,
            )
        )
        self._latest_label = own.latest
        self.sources.load(loaded)
        if learner.is_pending:
            learner.count_pending(
                _codes(
                    (request, row)
                    for request in loaded.requests
                    if self.is_pooled(request.source)
                    for row in request.pending
                )
            )
        self._dirty.clear()
        self._own_state = self._source_state()
        for request in loaded.requests:
            self.pending_rows += len(request.pending)
            self._keep(request)

    # -- requests -------------------------------------------------------------------------------

    def find(self, source: str, id: str) -> tuple[Request, int | None] | None:  # noqa: A002
        """Return the request of an id, or the request and the row of a row's id."""
        return self._by_id.get((source, id))

    def held(self, source: str) -> int:
        """Return how many rows of a source are in memory; own clients count as one source."""
        return self._held[holder(source)]

    def _hold(self, request: Request) -> None:
        self._next_number += 1
        self.pending_rows += len(request)
        self._keep(request)
        self._accepted(request)

    def _keep(self, request: Request) -> None:
        pool = OWN if self.is_pooled(request.source) else request.source
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = deque()
        queue.append(request)
        self._held[holder(request.source)] += len(request)
        for key, row in _keys(request):
            self._by_id[key] = request, row

    def _accepted(self, request: Request) -> None:
        source = request.source
        if is_own(source):
            last = request.last_slot
            self.learner.slot = max(self.learner.slot, last)
        self._commit.requests.append(request)
        self._has_changed = True
        self.counters.count_decisions(request)
        if request.peer_answers and self.learner.counts_at_once:
            self._count_answered(request, request.peer_answers)
        if self.is_pooled(source):
            self._note(request, range(len(request)))
        self._expire_all(source)

    def _note(self, request: Request, rows: Sequence[int]) -> None:
        """Mark the cells of rows as changed."""
        self._has_changed = True
        if len(rows) == 1:
            (row,) = rows
            self._dirty.note(request.space, request.group(row).code, request.context(row))
        else:
            places = np.asarray(rows)
            contexts = np.asarray(request.contexts, np.float64).reshape(len(request), -1)
            self._dirty.note_rows(request.space, request.codes[places], contexts[places])

    def _group(self, source: str, space: str, code: int) -> RowGroup:
        if self.is_pooled(source):
            return super()._group(source, space, code)
        return self._new_group(code, self.sources.cell_name(source, space, row_of(code)))

    def _count_answered(self, request: Request, rows: Sequence[int] | Mapping[int, Any]) -> None:
        for row in rows:
            if request.peer_answers[row].id:
                group = request.group(row)
                where = (group.cell, group.peer)
                self._answered[where] = self._answered.get(where, 0) + 1

    def retract(self, contexts: Any, slot: int, codes: Any, done: int) -> None:
        """Take back the own decisions of a request that failed."""
        super().retract(contexts, slot, codes, done)
        self._has_changed = True  # it may have opened a cell, even if nothing was decided
        if done:
            points = np.asarray(contexts, np.float64).reshape(len(codes), -1)[:done]
            space = self.learner.space
            self._dirty.note_rows(space, np.asarray(codes[:done], np.int64), points)

    # -- rows of peers --------------------------------------------------------------------------

    def is_pooled(self, source: str) -> bool:
        """Return whether labels of a source count for the site itself."""
        return is_own(source) or self.sources.is_pooled(source)

    def answered(self, cell: Any, peer: str) -> int:
        """Return how many arrivals a peer must have seen in a cell, as it answered them."""
        return self._answered.get((cell, peer), 0)

    def serve(self, source: str, cells: Sequence[Cell], slots: Sequence[int]) -> list[int]:
        """Choose own functions for rows of a peer, from the labels that count for it."""
        self._has_changed = True
        return self.sources.serve(source, cells, slots)

    def _width(self, source: str, space: str, code: int) -> int:
        return self.sources.width(source, space, code)

    def retract_served(self, source: str, space: str, codes: Sequence[int]) -> None:
        """Take back the choices of `serve`."""
        self.sources.retract(source, space, codes)
        self._has_changed = True
        if self.is_pooled(source):
            for code in codes:
                self._dirty.note(space, code)

    def report(self, source: str, cell: Cell, slot: int) -> Report:
        """Return what a peer may know of a cell, which is known from now on."""
        self._has_changed = True
        return self.sources.report(source, cell, slot)

    def estimate(
        self, source: str, cell: Cell, slot: int, *, is_by_context: bool
    ) -> tuple[float, int]:
        """Return the accuracy of answers to a peer in a cell, and the labels behind it."""
        self._has_changed = True
        return self.sources.estimate(source, cell, slot, is_by_context=is_by_context)

    def _recalled(self, source: str, cell: Cell, slot: int) -> tuple[Label, int]:
        self._has_changed = True
        return self.sources.recall(source, cell, slot)

    @property
    def cells(self) -> int:
        """How many cells the site itself knows."""
        return sum(len(one) - one.foreign_cells() for one in self.learner.tables.values())

    def served_state(self) -> ServedState:
        """Return what there is of peers that ask this site."""
        pending = sum(
            len(request.pending)
            for source, queue in self._queues.items()
            if source != OWN
            for request in queue
        )
        return ServedState(pending, self.counters.peer_labels, self.sources.opened)

    # -- labels ---------------------------------------------------------------------------------

    @property
    def previous_label(self) -> Label | None:
        """The label of the latest own instance that has one; None: none has."""
        return None if self._latest_label is None else self._latest_label[1]

    def _name(self, request: Request, row: int) -> str:
        if request.row_ids is not None:
            return f"{request.row_ids[row]!r}"
        return f"{request.id!r}" if len(request) == 1 else f"row {row} of {request.id!r}"

    def _learn(
        self, request: Request, rows: Sequence[int], labels: Sequence[Label], costs: Costs
    ) -> None:
        if self.is_pooled(request.source):
            super()._learn(request, rows, labels, costs)
            self._note(request, rows)
        else:
            self.sources.settle(request, rows, labels)

    def _settled(
        self, request: Request, rows: list[int], labels: list[Label], right: list[bool]
    ) -> None:
        self._has_changed = True
        counted = self._commit.add_labels(request, rows, labels, right)
        slot = self.sources.slot(request.source)
        self.counters.count_labels(request, rows, counted, slot)
        self.sources.count(request.source, counted)
        if is_own(request.source):
            self._note_latest(request, rows, labels)
        if request.peer_answers:
            asked = [row for row in rows if row in request.peer_answers]
            self._deliver(request, asked)
            if not self.learner.counts_at_once:
                self._count_answered(request, asked)

    def _note_latest(self, request: Request, rows: list[int], labels: list[Label]) -> None:
        last = max(range(len(rows)), key=rows.__getitem__)
        slot = request.slot_of(rows[last])
        if self._latest_label is None or slot >= self._latest_label[0]:
            self._latest_label = (slot, labels[last])

    def _deliver(self, request: Request, rows: Sequence[int]) -> None:
        self._commit.deliveries += [
            Delivery(request.group(row).peer, request.peer_answers[row].id, request.truths[row])
            for row in rows
            if request.peer_answers[row].id
        ]

    def mark_delivered(self, delivery: Delivery) -> None:
        """Record that a peer has a label, or no longer waits for it."""
        self._commit.delivered.append(delivery)
        self._has_changed = True

    # -- expiry ---------------------------------------------------------------------------------

    def _expire_all(self, source: str) -> None:
        pool = OWN if self.is_pooled(source) else source
        queue = self._queues.get(pool)
        if queue:
            self._expire(queue, self.sources.slot(source))

    def _forget(self, request: Request, rows: Sequence[int]) -> None:
        if self.is_pooled(request.source):
            super()._forget(request, rows)
        else:
            codes = [request.group(row).code for row in rows]
            self.sources.forget(request.source, request.space, codes)

    def _closed(self, request: Request) -> None:
        self._commit.closed.append(request.number)
        self._done.append(request)
        self._has_changed = True

    def _drop(self) -> None:
        """Forget closed requests that the store has."""
        while self._done and self._done[0].is_stored:
            request = self._done.popleft()
            self._held[holder(request.source)] -= len(request)
            for key, _ in _keys(request):
                self._by_id.pop(key, None)

    # -- commits --------------------------------------------------------------------------------

    def take(self) -> Commit | None:
        """Return what has changed since it was last taken; None: nothing."""
        if not self._has_changed:
            return None
        commit, self._commit, self._has_changed = self._commit, Commit(), False
        commit.cells = self._dirty.take()
        state = self._source_state()
        if state != self._own_state:
            commit.sources.append(state)
            self._own_state = state
        sources, cells = self.sources.take()
        commit.sources += sources
        commit.cells += cells
        return commit

    def is_written(self, commit: Commit) -> None:
        """Note that a commit is in the store."""
        for request in commit.requests:
            request.is_stored = True
        self._expire_all(OWN)
        self._drop()

    def _source_state(self) -> SourceState:
        learner = self.learner
        return SourceState(OWN, learner.slot, doubts_of(learner.tables), self._latest_label)


def _codes(pending: Iterable[tuple[Request, int]]) -> dict[str, list[int]]:
    codes: dict[str, list[int]] = {}
    for request, row in pending:
        group = request.group(row)
        if group.phase != RECALL:
            codes.setdefault(request.space, []).append(group.code)
    return codes


def _keys(request: Request) -> list[tuple[tuple[str, str], int | None]]:
    if request.row_ids is None:
        return [((request.source, request.id), None)]
    return [((request.source, id_), row) for row, id_ in enumerate(request.row_ids)]
