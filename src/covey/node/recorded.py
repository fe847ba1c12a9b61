"""The state of a site with a store: statistics per source, and changes since the last commit.

Nothing here reads or writes. A site that is loaded from the commits continues as this one would.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from covey.bandit.learner import NO_ANSWER, UNKNOWN, Learner
from covey.bandit.links import PriceState
from covey.kernel import SERVE, code_of, row_of
from covey.kernel.rules import Cell
from covey.node.cells import ArmPlaces, StoredTables
from covey.node.earned import TrustState
from covey.node.requests import (
    CLIENT,
    DETACHED,
    OWN,
    RELAY,
    AnsweredRows,
    AskRow,
    Assistance,
    Commit,
    DayPayments,
    Delivery,
    Loaded,
    PeerAnswer,
    Request,
    RowGroup,
    ShadowRow,
    ShadowSpan,
    SourceState,
    alarm_id,
    holder,
    is_own,
)
from covey.node.state import Costs, SiteState, codes_of
from covey.node.status import Counters, ServedState
from covey.node.trust import (
    DirtyCells,
    PoolingLearner,
    SourceStatistics,
    Trust,
    new_beliefs,
    source_state,
)
from covey.types import Label

MOST_CELLS = 65_536  # that a peer may open
LINKS = f"{CLIENT}/links"  # the source under which costs of links are stored; no client is so named


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
        paid: Callable[[Request], list[DayPayments]] = lambda request: [],
    ) -> None:
        """`trust` says how labels of each peer count; those of others are isolated.

        `paid` counts what is paid for the answers of peers to a request.
        """
        self._arms = ArmPlaces(learner, loaded.arms)
        super().__init__(
            learner, SourceStatistics(learner, trust or {}, most_cells=most_cells, arms=self._arms)
        )
        self._count_payments = paid
        self.arm_ids = self._arms.renamed
        if self.sources.earned is not None:
            self.judge = PoolingLearner(learner, self.sources)
        self.counters = Counters(loaded.counters)
        self.lost_answers = 0  # of busy peers, when the site was last stopped
        self._commit = Commit()
        self._has_changed = False
        self._written_prices: SourceState | None = None
        self._by_id: dict[tuple[str, str], tuple[Request, int | None]] = {}
        self._held: Counter[str] = Counter()
        self._askers = {source for _, source, _ in loaded.counters} | set(loaded.sources)
        self._open: deque[Request] = deque()
        self._queues: dict[str, deque[Request]] = {OWN: self._open}
        self.pending_rows = 0
        self._done: deque[Request] = deque()  # closed requests that the store may not have yet
        self._next_number = loaded.latest_number + 1
        self._answered = {(one.cell, one.peer): one for one in loaded.answered}
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
            self._commit.joined.append(request)
            self._has_changed = True

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
        request.number = self._next_number
        self._next_number += 1
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
            last = request.last_slot
            self.learner.slot = max(self.learner.slot, last)
        self._commit.requests.append(request)
        self._has_changed = True
        self.counters.count_decisions(request)
        if request.peer_answers:
            self._commit.records += self._count_payments(request)
            self._count_answered(request, request.peer_answers, answers=1)
        if self.sources.is_pooled(source) and request.groups[0].phase != RELAY:
            self._note(request, range(len(request)))
        self.expire_all(source)

    def _note(self, request: Request, rows: Sequence[int]) -> None:
        """Mark the cells of rows as changed."""
        self._has_changed = True
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
            self._commit.records.append(self._answered[where])

    def retract(self, contexts: Any, slot: int, codes: Any, done: int) -> None:
        """Take back the own decisions of a request that failed."""
        super().retract(contexts, slot, codes, done)
        self._has_changed = True  # it may have opened a cell, even if nothing was decided
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
            self._has_changed = True

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
            k: PeerAnswer(one.function, id_)
            for k, (one, id_) in enumerate(zip(given, ids, strict=True))
        }
        labels, own_ids = [one.label for one in given], [row.id for row in rows]
        contexts, space = [()] * len(rows), cells[0].space
        return self._record(source, groups, space, slots, own_ids, labels, contexts, answers)

    def answered(self, row: int, peer: str) -> int:
        """Return how many arrivals a peer must have seen in an own cell, as it answered them."""
        cell = self.learner.name_at(self.learner.space, row)
        known = self._answered.get((cell, peer), AnsweredRows(cell, peer))
        return known.answers if self.learner.counts_at_once else known.labels

    def hear_alarm(self, source: str, space: str, slot: int) -> bool:
        """Take the alarm of a peer; return whether it is new."""
        self._has_changed = True
        return self.sources.hear_alarm(source, space, slot)

    def _touch(self, source: str, slot: int | None = None) -> None:
        super()._touch(source, slot)
        self._has_changed = True

    def retract_served(self, source: str, space: str, codes: Sequence[int]) -> None:
        super().retract_served(source, space, codes)
        self._has_changed = True
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
        if any(group.code == DETACHED for group in request.groups):
            kept = [k for k, row in enumerate(rows) if request.group(row).code != DETACHED]
            rows, labels = [rows[k] for k in kept], [labels[k] for k in kept]
            if not rows:
                return
        if self.sources.earned is not None:
            self.sources.compare(request, rows, labels)
        if self.sources.is_pooled(request.source):
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
        if is_own(request.source):
            self._note_latest(request, rows, labels)
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
            self._commit.deliveries += [Delivery(peer, id_, slot) for peer in peers]

    def _note_latest(self, request: Request, rows: list[int], labels: list[Label]) -> None:
        last = max(range(len(rows)), key=rows.__getitem__)
        slot = request.slot_of(rows[last])
        if self.latest_label is None or slot >= self.latest_label[0]:
            self.latest_label = (slot, labels[last])

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

    def add_payments(self, days: Sequence[DayPayments]) -> None:
        """Record what a peer pays for an answer that was recorded just now."""
        self._commit.records += days

    # -- the shadow -----------------------------------------------------------------------------

    def begin_span(self, share: float, seed: str, arms: Sequence[str]) -> ShadowSpan:
        """Record which rows are run in the shadow, from the next request on."""
        span = ShadowSpan(self._next_number, share, seed, list(arms))
        self._commit.records.append(span)
        self._has_changed = True
        return span

    def add_shadow(self, row: ShadowRow) -> None:
        """Record what functions answered in the shadow."""
        self._commit.records.append(row)
        self._has_changed = True

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
            mine = (one for one in queue if holder(one.source) == holder(source))
            oldest = next(mine, None)
            if oldest is None:
                return
            queue.remove(oldest)
            self._close(oldest)

    def _forget(self, request: Request, rows: Sequence[int]) -> None:
        rows = [row for row in rows if request.group(row).code != DETACHED]
        if self.sources.is_pooled(request.source):
            super()._forget(request, rows)
        else:
            self.sources.forget(request.source, request.space, request.codes_of(rows))

    def _closed(self, request: Request) -> None:
        self._commit.closed.append(request.number)
        self._held[holder(request.source)] -= len(request)
        self._done.append(request)
        self._has_changed = True

    def _drop(self) -> None:
        """Forget closed requests that the store has."""
        while self._done and self._done[0].is_stored:
            request = self._done.popleft()
            for key, _ in _keys(request):
                self._by_id.pop(key, None)

    # -- commits --------------------------------------------------------------------------------

    def open_requests(self) -> list[Request]:
        """Return the requests whose labels are accepted, in order."""
        found = [request for queue in self._queues.values() for request in queue]
        return sorted(found, key=lambda request: request.number)

    def take(self) -> Commit | None:
        """Return what has changed since it was last taken; None: nothing."""
        if not self._has_changed:
            return None
        self.expire_all(OWN)  # reports of pooled peers and failed requests move the slot, too
        commit, self._commit, self._has_changed = self._commit, Commit(), False
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
        return commit

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
            prices.restore(msgspec.convert(state.latest[1], PriceState), self.learner)
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
