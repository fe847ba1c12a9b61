"""The state of a site: its learner, and the requests whose labels it accepts.

Nothing here reads or writes. A site that is loaded from its commits continues as this one would.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from covey.bandit.learner import NO_ANSWER, UNKNOWN, Learner
from covey.bandit.links import PriceState, SitePrices
from covey.data.inputs import check_kind
from covey.errors import ConflictingLabel, LateLabel
from covey.kernel import SERVE, UNPAID, arm_of, code_of, row_of
from covey.kernel.rules import Cell, Report
from covey.site.cells import ArmPlaces, StoredTables
from covey.site.earned import TrustState
from covey.site.requests import (
    CLIENT,
    DETACHED,
    FEW,
    NONE,
    OWN,
    RECALL,
    RELAY,
    AnsweredRows,
    Arm,
    AskRow,
    Assistance,
    Commit,
    DayPayments,
    Delivery,
    Loaded,
    PeerAnswer,
    QueryKind,
    Request,
    RowGroup,
    SourceState,
    alarm_id,
    holder,
    is_own,
)
from covey.site.status import Counters, ServedState
from covey.site.trust import (
    DirtyCells,
    PoolingLearner,
    SourceStatistics,
    Trust,
    new_beliefs,
    source_state,
    take_label,
)
from covey.types import MILLIONTHS, Cost, Label

MOST_GROUPS = 100_000  # that are cached
FEW_LABELS = 4  # that are settled one by one
Truths = Mapping[int, Any]  # by row
Costs = Mapping[int, Cost] | None  # by row
MOST_CELLS = 65_536  # that a peer may open
LINKS = f"{CLIENT}/links"  # the source under which costs of links are stored; no client is so named


class Settlements(msgspec.Struct, frozen=True, gc=False):
    """The effect of labels, one by one."""

    is_new: list[bool]  # False: the same label had been settled before, or is kept
    is_right: list[bool]
    kept: Collection[int] = ()  # rows whose label waits for the answer of a busy peer


class SiteState:
    """The learner of a site and the requests whose labels it accepts.

    Where these are, and what their numbers mean, is up to the classes that inherit.
    """

    pending_rows: int  # whose label has not arrived

    def __init__(self, learner: Learner, sources: SourceStatistics) -> None:
        self.learner = learner
        self.sources = sources  # what each peer is served from
        self.judge: Learner | PoolingLearner = learner  # decides own rows
        self.arm_ids: dict[str, str] = {}  # of arms whose labels are not counted under their name
        self.latest_slot = learner.slot  # that was given to a request
        # The slot and the label of the latest own instance in a request that has a label.
        self.latest_label: tuple[int, Any] | None = None
        self._groups: dict[Any, RowGroup] = {}

    @property
    def places(self) -> dict[str, int]:
        """The own functions, by what their labels count as."""
        own = self.learner.arms[: len(self.learner.arms) - len(self.learner.behind())]
        return {self.id_of(arm): place for place, arm in enumerate(own)}

    def id_of(self, arm: str) -> str:
        """Return what labels of an arm count as."""
        return self.arm_ids.get(arm, arm)

    # -- slots ----------------------------------------------------------------------------------

    def next_slot(self, slot: int | None) -> int:
        """Return the slot that `take_slots` would return."""
        latest = max(self.latest_slot, self.learner.slot)
        return latest + 1 if slot is None else max(slot, latest)

    def take_slots(self, slot: int | None, rows: int) -> int:
        """Return the first slot of a request: the next one, or `slot` unless it has passed."""
        latest, now = self.latest_slot, self.learner.slot  # as `next_slot`, without a call
        if now > latest:  # noqa: PLR1730 - max() costs twice as much
            latest = now
        first = latest + 1 if slot is None else max(slot, latest)
        self.latest_slot = first + rows - 1
        self.expire(first)
        # The rows of a request have the prices of its first slot.
        prices = self.learner.prices
        if prices is not None and prices.apply(self.learner.reprice, first):
            self.prices_changed()
        return first

    def expire(self, slot: int) -> None:
        """Forget rows whose labels are no longer waited for in `slot`, before it is decided."""
        raise NotImplementedError

    def return_slots(self, first: int, rows: int) -> None:
        """Give back the slots of a request that failed, unless later ones are in use."""
        if self.latest_slot == first + rows - 1:
            self.latest_slot = first - 1

    # -- requests -------------------------------------------------------------------------------

    def accept(self, request: Request, codes: Sequence[int]) -> Request:
        """Record answered rows with these decisions; their labels are accepted from now on."""
        count, source, space = len(codes), request.source, request.space
        request.truths = [UNKNOWN] * count
        if count == 1:
            request.groups = (self._group(source, space, codes[0]),)
        else:
            unique, group_of = np.unique(np.asarray(codes), return_inverse=True)
            request.groups = [self._group(source, space, code) for code in unique.tolist()]
            request.group_of = group_of.tolist() if count <= FEW else group_of.astype(np.uint32)
        self._hold(request)
        return request

    def recall(
        self, source: str, cells: Sequence[Cell], slots: Sequence[int], ids: Sequence[str] = ("",)
    ) -> Request:
        """Answer a peer that shows only cells: with the label seen most often in each."""
        labels, groups = [], []
        for cell, slot in zip(cells, slots, strict=True):
            self._touch(source)
            label, code = self.sources.recall(source, cell, slot)
            labels.append(label)
            groups.append(RowGroup(self.learner.names.of(cell), RECALL, "", 0.0, code=code))
        request = Request(
            slot=slots[0],
            slots=list(slots),
            space=cells[0].space,
            source=source,
            id=ids[0],
            row_ids=ids if len(ids) > 1 else None,
            groups=groups,
            contexts=[self.learner.middle(cell) for cell in cells],
            predictions=labels,
            answers=labels,
        )
        return self._record(request)

    def _record(self, request: Request) -> Request:
        """Record rows of a peer, each with a group of its own, which no own function answered."""
        count = len(request.groups)
        request.group_of, request.truths = range(count), [UNKNOWN] * count
        self._hold(request)
        return request

    def _hold(self, request: Request) -> None:
        """Give a request its number, and accept its labels."""
        raise NotImplementedError

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
            self.prices_changed()
        choice = self.learner.choice(code)
        id_ = self.arm_ids.get(choice.arm, "")
        return RowGroup(cell, choice.phase, choice.arm, choice.price, choice.peer, id_, code)

    def prices_changed(self) -> None:
        """Read the prices of arms again."""
        self._groups.clear()

    def retract(self, contexts: Any, slot: int, codes: Any, done: int) -> None:
        """Take back the own decisions of a request that failed: its first `done` rows."""
        for place in range(done):
            if codes[place] >= 0:
                self.learner.retract(int(codes[place]), tuple(contexts[place]), slot + place)

    def undo_reports(self, undo: Sequence[tuple[int, int, int]]) -> None:
        """Undo reports of peers in own cells: row, peer, and its training counter before."""
        for report in reversed(undo):
            self.learner.table.unrefresh(*report)

    # -- rows of peers --------------------------------------------------------------------------

    def teaches(self, source: str) -> bool:
        """Return whether labels of a source count for the site itself now."""
        return self.sources.teaches(source)

    def _touch(self, source: str, slot: int | None = None) -> None:
        """Note that a peer asks, at a slot where that is one of the site itself."""
        if slot is not None and self.sources.is_pooled(source):
            self.expire(slot)

    def answered(self, row: int, peer: str) -> int:
        """Return how many arrivals a peer must have seen in an own cell, as it answered them."""
        return 0

    def serve(self, source: str, cells: Sequence[Cell], slots: Sequence[int]) -> list[int]:
        """Choose own functions for rows of a peer, and count them; if that fails, count nothing."""
        codes: list[int] = []
        functions = [-1] * len(cells)
        if self.learner.shares_slots and len(cells) > 1:
            functions = self._chosen(source, cells, slots)
        try:
            for cell, slot, function in zip(cells, slots, functions, strict=True):
                codes.append(self._serve(source, cell, slot, function))
        except BaseException:
            self.retract_served(source, cells[0].space, codes)
            raise
        return codes

    def _chosen(self, source: str, cells: Sequence[Cell], slots: Sequence[int]) -> list[int]:
        """Choose functions for rows that share a slot: none of them counts for another."""
        functions = []
        for cell, slot in zip(cells, slots, strict=True):
            code = self._serve(source, cell, slot)
            self.retract_served(source, cell.space, [code])
            functions.append(arm_of(code))
        return functions

    def _serve(self, source: str, cell: Cell, slot: int, function: int = -1) -> int:
        """Count a row of a peer; -1: the learner chooses the function."""
        self._touch(source, slot)
        return self.sources.serve(source, cell, slot, function)

    def retract_served(self, source: str, space: str, codes: Sequence[int]) -> None:
        """Take back the choices of `serve`."""
        self.sources.retract(source, space, codes)

    def report(self, source: str, cell: Cell, slot: int) -> Report:
        """Return what a peer may know of a cell, which is known from now on."""
        self._touch(source, slot)
        return self.sources.report(source, cell, slot)

    def query(self, source: str, cell: Cell, slot: int, what: QueryKind) -> Report:
        """Return what a peer asks to know of a cell: see `Driver.report`."""
        if what == "arrivals":
            return self.report(source, cell, slot)
        accuracy, labels = self.estimate(source, cell, slot, is_by_context=what == "seen")
        return labels, accuracy, accuracy, ()

    def estimate(
        self, source: str, cell: Cell, slot: int, *, is_by_context: bool
    ) -> tuple[float, int]:
        """Return the accuracy of answers to a peer in a cell, and the labels behind it."""
        self._touch(source)
        return self.sources.estimate(source, cell, slot, is_by_context=is_by_context)

    # -- labels ---------------------------------------------------------------------------------

    def check(self, request: Request, truths: Mapping[int, Any]) -> None:
        """Raise `ConflictingLabel` or `LateLabel` if a request cannot take these labels.

        And `UnfitLabel` for text if the answer is a number, or the reverse.
        """
        known = request.truths
        for row, label in truths.items():
            check_kind(label, request.predictions[row], self._name(request, row))
        if request.is_open and known.count(UNKNOWN) == len(known):
            return
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
            right = [was_right for was_right, new in zip(is_right, is_new, strict=True) if new]
        if rows:
            counted = attached(request, rows)
            if counted:
                self._learn(request, counted, [truths[row] for row in counted], costs)
            if costs and self.learner.prices is not None:
                self._observe(request, rows, costs, self.learner.prices)
            for row in rows:
                known[row] = truths[row]
            self.pending_rows -= len(rows)
            self._settled(request, rows, right)
        return Settlements(is_new, is_right, kept)

    def _observe(
        self, request: Request, rows: Sequence[int], costs: Mapping[int, Cost], prices: SitePrices
    ) -> None:
        """Learn what the links to the peers that were asked have cost."""
        for row in rows:
            cost, group = costs.get(row), request.group(row)
            if isinstance(cost, Mapping) and group.peer == group.arm:
                prices.observe(group.peer, request.slot_of(row), cost)

    def _paid(self, request: Request, row: int, costs: Costs) -> int:
        """Return what the arm cost beyond its price, in millionths."""
        cost = None if costs is None else costs.get(row)
        if isinstance(cost, Mapping):
            cost = cost.get(self.learner.cost_columns.get(request.group(row).arm, ""))
        return UNPAID if cost is None else round(cost * MILLIONTHS)

    def _learn(
        self, request: Request, rows: Sequence[int], labels: Sequence[Label], costs: Costs
    ) -> None:
        """Let the learner learn from labels of own rows, or of rows of pooled peers."""
        # Row by row where free functions are scored: a label counts before that of the next row.
        if len(rows) > FEW_LABELS and request.groups[0].phase != RECALL and not request.scored:
            self._learn_rows(request, rows, labels, costs)
        else:
            for row, label in zip(rows, labels, strict=True):
                self._learn_row(request, row, label, costs)

    def _learn_row(self, request: Request, row: int, label: Label, costs: Costs) -> None:
        paid = UNPAID
        if costs is not None or request.peer_answers:
            paid = self._paid(request, row, costs)
        learner, code = self.learner, request.groups[request.group_of[row]].code
        table = learner.tables[request.space]
        take_label(learner, table, code, request, row, label, self.places, paid)

    def _learn_rows(
        self, request: Request, rows: Sequence[int], labels: Sequence[Label], costs: Costs
    ) -> None:
        learner, places = self.learner, np.array(rows, np.int64)
        codes = request.codes[places]
        contexts = np.asarray(request.contexts, np.float64).reshape(len(request), -1)[places]
        slots = request.slots_of(rows)
        gains = learner.gains_of([request.predictions[row] for row in rows], labels)
        paid = None
        if costs is not None or request.peer_answers:
            paid = np.array([self._paid(request, row, costs) for row in rows], np.int64)
        learner.settle_rows(contexts, slots, codes, gains, paid, request.space)
        if learner.remembers:
            points = map(tuple, contexts.tolist())
            answers = [request.predictions[row] for row in rows]
            for code, label, point, slot, answer in zip(
                codes.tolist(), labels, points, slots.tolist(), answers, strict=True
            ):
                learner.remember(code, label, point, slot, request.space, answer)

    def _settled(self, request: Request, rows: list[int], right: list[bool]) -> None:
        """Follow up on labels that were learnt."""
        last = max(rows)
        slot = request.slot_of(last)
        if is_own(request.source) and (self.latest_label is None or slot >= self.latest_label[0]):
            self.latest_label = (slot, request.truths[last])

    # -- expiry ---------------------------------------------------------------------------------

    def _close(self, request: Request) -> None:
        request.is_open = False
        request.training = NONE
        if UNKNOWN in request.truths:
            pending = request.pending
            self.pending_rows -= len(pending)
            if request.groups[0].phase != RECALL:
                self._forget(request, attached(request, pending))

    def _forget(self, request: Request, rows: Sequence[int]) -> None:
        self.learner.forget_rows(request.codes_of(rows), request.space)


def attached(request: Request, rows: Sequence[int]) -> Sequence[int]:
    """Return the rows of a request whose labels change tables: those that are not `DETACHED`."""
    if any(group.code == DETACHED for group in request.groups):
        return [row for row in rows if request.group(row).code != DETACHED]
    return rows


def codes_of(pending: Iterable[tuple[Request, int]]) -> dict[str, list[int]]:
    codes: dict[str, list[int]] = {}
    for request, row in pending:
        group = request.group(row)
        if group.phase != RECALL and group.code != DETACHED:
            codes.setdefault(request.space, []).append(group.code)
    return codes


# -- with a store ---------------------------------------------------------------------------------


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
        count: Callable[..., list[DayPayments]] = lambda request, rows=None: [],
    ) -> None:
        """`trust` says how labels of each peer count; those of others are isolated.

        `count` counts what is paid for answers to a request, and what labels of rows are worth.
        """
        self._arms = ArmPlaces(learner, loaded.of(Arm))
        super().__init__(
            learner, SourceStatistics(learner, trust or {}, most_cells=most_cells, arms=self._arms)
        )
        self._count_payments = count
        self.arm_ids = self._arms.renamed
        if self.sources.earned is not None:
            self.judge = PoolingLearner(learner, self.sources)
        self.counters = Counters(loaded.counters)
        self.lost_answers = 0  # of busy peers, when the site was last stopped
        self.commit = Commit()  # what has changed since the last one
        self._written_prices: SourceState | None = None
        self._by_id: dict[tuple[str, str], tuple[Request, int | None]] = {}
        self._held: Counter[str] = Counter()
        self._askers = {source for _, source, _ in loaded.counters} | set(loaded.sources)
        self._open: deque[Request] = deque()
        self._queues: dict[str, deque[Request]] = {OWN: self._open}
        self.pending_rows = 0
        self._done: deque[Request] = deque()  # closed requests that the store may not have yet
        self.next_number = loaded.latest_number + 1  # of a request
        self._answered = {(rows.cell, rows.peer): rows for rows in loaded.of(AnsweredRows)}
        self._dirty = DirtyCells(learner, self._arms, alarms=self.counters.alarms)
        self._load(loaded)
        self.latest_slot = learner.slot

    def _load(self, loaded: Loaded) -> None:
        learner, own = self.learner, loaded.sources[OWN]
        learner.slot, self.latest_label = own.slot, own.latest
        stored = StoredTables(learner, loaded, self._arms)
        stored.fill(OWN, learner.tables)
        self._restore_prices(loaded.sources.get(LINKS))
        self._dirty.clear()  # before cells of sources are opened, which are to be written
        self.sources.load(loaded, stored)
        for request in loaded.requests:
            self.lost_answers += self._detach_awaited(request)
        if learner.is_pending:
            learner.count_pending(
                codes_of(
                    (request, row)
                    for request in loaded.requests
                    if self.sources.is_pooled(request.source)
                    for row in request.pending
                )
            )
        self._own_state = self._source_state()
        for request in loaded.requests:
            self.pending_rows += len(request.pending)
            self._keep(request)

    # -- late answers ---------------------------------------------------------------------------

    def join_answer(self, request: Request, label: Label) -> None:
        """Record the late answer of a peer: the label of the row is compared with it."""
        if request.is_open:
            cast("list[Any]", request.predictions)[0] = label
            request.peer_answers = {0: request.peer_answers[0]._replace(is_awaited=False)}
            self.commit.joined.append(request)

    def drop_answer(self, request: Request) -> None:
        """Note that a late answer never comes: the label of the row changes no counter."""
        if request.is_open and _awaits(request):
            self._forget(request, [0])
            self._detach_awaited(request)

    def _detach_awaited(self, request: Request) -> bool:
        """Detach a request of one row that awaits an answer; return whether it is one."""
        if not _awaits(request):
            return False
        cast("list[Any]", request.predictions)[0] = NO_ANSWER
        request.groups = [msgspec.structs.replace(request.groups[0], code=DETACHED)]
        return True

    # -- requests -------------------------------------------------------------------------------

    def find(self, source: str, id: str) -> tuple[Request, int | None] | None:
        """Return the request of an id, or the request and the row of a row's id."""
        return self._by_id.get((source, id))

    def held(self, source: str) -> int:
        """Return how many rows of a source are in memory; own clients count as one source."""
        return self._held[holder(source)]

    def has_asked(self, source: str) -> bool:
        """Return whether there was ever a request of a source."""
        return source in self._askers or holder(source) in self._held

    def _hold(self, request: Request) -> None:
        request.number = self.next_number
        self.next_number += 1
        self.pending_rows += len(request)
        self._keep(request)
        self._accepted(request)

    def _keep(self, request: Request) -> None:
        pool = OWN if self.sources.is_pooled(request.source) else request.source
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
            self.learner.advance(request.last_slot)
        self.commit.requests.append(request)
        self.counters.count_decisions(request)
        self.commit.records += self._count_payments(request)
        if request.peer_answers:
            self._count_answered(request, request.peer_answers, answers=1)
        if self.sources.is_pooled(source) and request.groups[0].phase != RELAY:
            self._note(request, range(len(request)))
        self.expire_all(source)

    def _note(self, request: Request, rows: Sequence[int]) -> None:
        """Mark the cells of rows as changed."""
        if len(rows) == 1:
            (row,) = rows
            self._dirty.note(request.space, request.group(row).code, request.context(row))
        else:
            codes = request.codes
            contexts = np.asarray(request.contexts, np.float64).reshape(len(request), -1)
            if len(rows) < len(request):
                codes, contexts = codes[list(rows)], contexts[list(rows)]
            self._dirty.note_rows(request.space, codes, contexts)

    def _group(self, source: str, space: str, code: int) -> RowGroup:
        if self.sources.is_pooled(source):
            return super()._group(source, space, code)
        return self._new_group(code, self.sources.cell_name(source, space, row_of(code)))

    def _count_answered(
        self, request: Request, rows: Iterable[int], *, answers: int = 0, labels: int = 0
    ) -> None:
        groups = [request.group(row) for row in rows if request.peer_answers[row].id]
        for where, count in Counter((group.cell, group.peer) for group in groups).items():
            known = self._answered.get(where, AnsweredRows(*where))
            self._answered[where] = AnsweredRows(
                *where, known.answers + count * answers, known.labels + count * labels
            )
            self.commit.records.append(self._answered[where])

    def retract(self, contexts: Any, slot: int, codes: Any, done: int) -> None:
        """Take back the own decisions of a request that failed."""
        super().retract(contexts, slot, codes, done)
        if done:
            points = np.asarray(contexts, np.float64).reshape(len(codes), -1)[:done]
            decided = np.asarray(codes[:done], np.int64)
            is_decided = decided >= 0
            self._dirty.note_rows(self.learner.space, decided[is_decided], points[is_decided])

    def undo_reports(self, undo: Sequence[tuple[int, int, int]]) -> None:
        """Undo reports of peers; bounds that they reported stay, and are to be written."""
        super().undo_reports(undo)
        for row, _, _ in undo:
            self._dirty.note(self.learner.space, code_of(row, 0, SERVE))

    # -- rows of peers --------------------------------------------------------------------------

    def relay(
        self,
        rows: Sequence[AskRow],
        cells: Sequence[Cell],
        given: Sequence[Assistance],
        *,
        source: str,
        peer: str,
        ids: Sequence[str],
    ) -> Request:
        """Record rows that `peer` answered for `source`; their labels go to the peer, by `ids`."""
        slots = [row.slot for row in rows]
        self.sources.advance(source, max(slots))
        names = self.learner.names
        groups = [RowGroup(names.of(cell), RELAY, "", 0.0, peer) for cell in cells]
        answers = {
            k: PeerAnswer(answer.function, id_)
            for k, (answer, id_) in enumerate(zip(given, ids, strict=True))
        }
        labels, own_ids = [answer.label for answer in given], [row.id for row in rows]
        request = Request(
            slot=slots[0],
            slots=slots,
            space=cells[0].space,
            source=source,
            id=own_ids[0],
            row_ids=own_ids if len(rows) > 1 else None,
            groups=groups,
            contexts=[()] * len(rows),
            predictions=labels,
            answers=labels,
            peer_answers=answers,
        )
        return self._record(request)

    def answered(self, row: int, peer: str) -> int:
        """Return how many arrivals a peer must have seen in an own cell, as it answered them."""
        cell = self.learner.name_at(self.learner.space, row)
        known = self._answered.get((cell, peer), AnsweredRows(cell, peer))
        return known.answers if self.learner.counts_at_once else known.labels

    def retract_served(self, source: str, space: str, codes: Sequence[int]) -> None:
        super().retract_served(source, space, codes)
        if self.sources.is_pooled(source):
            for code in codes:
                self._dirty.note(space, code)

    @property
    def cells(self) -> int:
        """How many cells the site itself knows."""
        tables = [self.learner.tables[space] for space in self.learner.policies]
        return sum(len(table) - table.cells.foreign for table in tables)

    @property
    def alarm_slot(self) -> int:
        """The slot of the latest alarm of the change detection; 0: there was none."""
        return self.learner.alarms[-1] if self.learner.alarms else 0

    def trust_states(self) -> list[TrustState]:
        """Return which peers with earned trust are pooled, and why."""
        return [] if self.sources.earned is None else self.sources.earned.states()

    def turned(self) -> list[TrustState]:
        """Return the peers that were parted or pooled again since this was last asked."""
        if self.sources.earned is None:
            return []
        turned, self.sources.earned.turned = self.sources.earned.turned, []
        return turned

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

    def _name(self, request: Request, row: int) -> str:
        if request.row_ids is not None:
            return repr(request.row_ids[row])
        return repr(request.id) if len(request) == 1 else f"row {row} of {request.id!r}"

    def _learn(
        self, request: Request, rows: Sequence[int], labels: Sequence[Label], costs: Costs
    ) -> None:
        if self.sources.earned is not None:
            self.sources.compare(request, rows, labels)
        if self.sources.is_pooled(request.source):
            super()._learn(request, rows, labels, costs)
            self._note(request, rows)
        else:
            self.sources.settle(request, rows, labels)

    def _settled(self, request: Request, rows: list[int], right: list[bool]) -> None:
        super()._settled(request, rows, right)
        counted = self.commit.add_labels(request, rows, right)
        slot = self.sources.slot(request.source)
        self.counters.count_labels(request, rows, counted, slot)
        self.commit.records += self._count_payments(request, rows)
        if request.peer_answers:
            asked = [row for row in rows if row in request.peer_answers]
            self._deliver(request, asked)
            self._count_answered(request, asked, labels=1)
        if is_own(request.source):
            self._deliver_alarm()

    def _deliver_alarm(self) -> None:
        """Let the peers that may be asked know of an alarm, after their labels."""
        learner = self.learner
        slot = learner.take_alarm()
        if slot:
            id_ = alarm_id(slot, learner.name_at(learner.space, 0))
            peers = dict.fromkeys(peer for peer, _ in learner.behind())
            self.commit.deliveries += [Delivery(peer, id_, slot) for peer in peers]

    def _deliver(self, request: Request, rows: Sequence[int]) -> None:
        self.commit.deliveries += [
            Delivery(request.group(row).peer, request.peer_answers[row].id, request.truths[row])
            for row in rows
            if request.peer_answers[row].id
        ]

    # -- expiry ---------------------------------------------------------------------------------

    def expire(self, slot: int) -> None:
        self._expire(self._open, slot)

    def expire_all(self, source: str) -> None:
        pool = OWN if self.sources.is_pooled(source) else source
        queue = self._queues.get(pool)
        if queue:
            self._expire(queue, self.sources.slot(source))

    def _expire(self, queue: "deque[Request]", slot: int) -> None:
        """Close requests whose last row is older than label-wait, oldest first."""
        wait = self.learner.label_wait
        while queue and slot > queue[0].last_slot + wait:
            self._close(queue.popleft())

    def make_room(self, source: str, most: int) -> None:
        """Close the oldest requests of a source until at most so many of its rows are held.

        Only where the rows of a request share a slot: else enough slots pass before there are more.
        """
        queue = self._queues.get(OWN if self.sources.is_pooled(source) else source, deque())
        while self.learner.shares_slots and self.held(source) > most:
            requests = (request for request in queue if holder(request.source) == holder(source))
            oldest = next(requests, None)
            if oldest is None:
                return
            queue.remove(oldest)
            self._close(oldest)

    def _forget(self, request: Request, rows: Sequence[int]) -> None:
        if self.sources.is_pooled(request.source):
            super()._forget(request, rows)
        else:
            self.sources.forget(request.source, request.space, request.codes_of(rows))

    def _close(self, request: Request) -> None:
        super()._close(request)
        self.commit.closed.append(request.number)
        self._held[holder(request.source)] -= len(request)
        self._done.append(request)

    def _drop(self) -> None:
        """Forget closed requests that the store has."""
        while self._done and self._done[0].is_stored:
            request = self._done.popleft()
            for key, _ in _keys(request):
                self._by_id.pop(key, None)

    # -- commits --------------------------------------------------------------------------------

    def open_requests(self) -> list[Request]:
        """Return the requests whose labels are accepted, in order."""
        requests = [request for queue in self._queues.values() for request in queue]
        return sorted(requests, key=lambda request: request.number)

    def take(self) -> Commit | None:
        """Return what has changed since it was last taken; None: nothing."""
        self.expire_all(OWN)  # reports of pooled peers and failed requests move the slot, too
        commit, self.commit = self.commit, Commit()
        commit.records += self._dirty.take()
        commit.records += new_beliefs(OWN, self.learner.tables, self._arms)
        state = self._source_state()
        if state != self._own_state:
            commit.records.append(state)
            self._own_state = state
        commit.records += self.sources.take()
        prices = self._price_state()
        if prices != self._written_prices:
            commit.records += [] if prices is None else [prices]
            self._written_prices = prices
        if self.sources.earned is not None:
            commit.records += self.sources.earned.changes()
        return None if commit == Commit() else commit

    def is_written(self, commit: Commit) -> None:
        """Note that a commit is in the store."""
        for request in commit.requests:
            request.is_stored = True
        self._drop()

    def _price_state(self) -> SourceState | None:
        """Return what is known of the costs of links, as it is stored; None: nothing is learnt."""
        prices = self.learner.prices
        if prices is None:
            return None
        return SourceState(LINKS, 0, latest=(0, msgspec.to_builtins(prices.state())))

    def _restore_prices(self, state: SourceState | None) -> None:
        prices = self.learner.prices
        if prices is not None and state is not None and state.latest is not None:
            prices.restore(msgspec.convert(state.latest[1], PriceState), self.learner.reprice)
        self._written_prices = self._price_state()

    def _source_state(self) -> SourceState:
        own = SourceState(OWN, self.learner.slot, latest=self.latest_label)
        return source_state(own, self.learner.tables, self._arms)


def _awaits(request: Request) -> bool:
    """Return whether a request of one row has no label, and awaits the answer of a peer."""
    answer = request.peer_answers.get(0) if len(request) == 1 else None
    return (
        answer is not None
        and answer.is_awaited
        and request.truths[0] is UNKNOWN
        and request.groups[0].code != DETACHED
    )


def _keys(request: Request) -> list[tuple[tuple[str, str], int | None]]:
    if request.row_ids is None:
        return [((request.source, request.id), None)]
    return [((request.source, id_), row) for row, id_ in enumerate(request.row_ids)]
