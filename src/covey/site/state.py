"""The state of a site: its learner, the requests whose labels it accepts, and what has changed.

Nothing here reads or writes. A site that is loaded from its commits continues as this one would.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
import numpy as np

from covey.bandit.learner import NO_ANSWER, UNKNOWN, Learner
from covey.bandit.links import PriceState, SitePrices
from covey.data.inputs import check_kind
from covey.errors import ConflictingLabel, LateLabel
from covey.kernel import SERVE, UNPAID, arm_of, code_of, row_of
from covey.kernel.rules import Cell, Report
from covey.site.cells import ArmPlaces, StoredTables
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
from covey.site.status import Counters
from covey.site.trust import (
    PoolingLearner,
    SourceStatistics,
    Trust,
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

    is_new: list[bool]  # False: the same label had been settled before
    is_right: list[bool]


# -- the parts of a state -------------------------------------------------------------------------


class RowGroups:
    """What rows with the same decision have in common."""

    def __init__(
        self, learner: Learner, sources: SourceStatistics, arm_ids: Mapping[str, str]
    ) -> None:
        """`arm_ids` has the arms whose labels are not counted under their name."""
        self._learner = learner
        self._sources = sources
        self._arm_ids = arm_ids
        self._groups: dict[tuple[str, int], RowGroup] = {}

    def of(self, source: str, space: str, code: int) -> RowGroup:
        """Return the group of a decision on a row of a source."""
        if not self._sources.is_pooled(source):
            return self._new(code, self._sources.of(source).name(space, row_of(code)))
        group = self._groups.get((space, code))
        if group is None:
            if len(self._groups) >= MOST_GROUPS:
                self._groups.clear()
            cell = self._learner.name_at(space, row_of(code))
            group = self._groups[space, code] = self._new(code, cell)
        return group

    def _new(self, code: int, cell: str) -> RowGroup:
        choice = self._learner.choice(code)
        id_ = self._arm_ids.get(choice.arm, "")
        return RowGroup(cell, choice.phase, choice.arm, choice.price, choice.peer, id_, code)

    def clear(self) -> None:
        """Read the prices of arms again."""
        self._groups.clear()


class Changes:
    """What has changed since the last commit, and what is counted for the status of the site."""

    def __init__(
        self,
        learner: Learner,
        sources: SourceStatistics,
        loaded: Loaded,
        count_payments: Callable[..., list[DayPayments]],
    ) -> None:
        """Begin when the tables of the learner are loaded; those of sources are loaded after it.

        `count_payments` counts what is paid for answers to a request, and what labels of rows are
        worth.
        """
        self._learner = learner
        self._sources = sources
        self._count_payments = count_payments
        self.commit = Commit()
        self.counters = Counters(loaded.counters)
        sources.own.alarms = self.counters.alarms
        self.answers = {(rows.cell, rows.peer): rows for rows in loaded.of(AnsweredRows)}
        self._written_prices = self._price_state()

    def note(self, request: Request, rows: Sequence[int]) -> None:
        """Mark the cells of rows as changed."""
        if len(rows) == 1:
            (row,) = rows
            self._sources.own.note(request.space, request.group(row).code, request.context(row))
        else:
            codes = request.codes
            contexts = np.asarray(request.contexts, np.float64).reshape(len(request), -1)
            if len(rows) < len(request):
                codes, contexts = codes[list(rows)], contexts[list(rows)]
            self._sources.own.note_rows(request.space, codes, contexts)

    def note_retracted(self, contexts: Any, codes: Any, done: int) -> None:
        """Mark the cells of the first `done` rows of a request that failed."""
        if done:
            points = np.asarray(contexts, np.float64).reshape(len(codes), -1)[:done]
            decided = np.asarray(codes[:done], np.int64)
            is_decided = decided >= 0
            self._sources.own.note_rows(
                self._learner.space, decided[is_decided], points[is_decided]
            )

    def recorded(self, request: Request) -> None:
        """Count a request that was answered now."""
        self.commit.requests.append(request)
        self.counters.count_decisions(request)
        self.commit.records += self._count_payments(request)
        if request.peer_answers:
            self._count_answers(request, request.peer_answers, answers=1)
        if self._sources.is_pooled(request.source) and request.groups[0].phase != RELAY:
            self.note(request, range(len(request)))

    def closed(self, number: int) -> None:
        """Note a request that accepts labels no longer."""
        self.commit.closed.append(number)

    def settled(self, request: Request, rows: list[int], right: list[bool]) -> None:
        """Count labels that were learnt; the peers that answered these rows get them, too."""
        counted = self.commit.add_labels(request, rows, right)
        self.counters.count_labels(request, rows, counted, self._sources.of(request.source).slot)
        self.commit.records += self._count_payments(request, rows)
        if request.peer_answers:
            asked = [row for row in rows if row in request.peer_answers]
            self._deliver(request, asked)
            self._count_answers(request, asked, labels=1)
        learner = self._learner
        slot = learner.take_alarm() if is_own(request.source) else 0
        if slot:  # the peers that may be asked know of an alarm after their labels
            id_ = alarm_id(slot, learner.name_at(learner.space, 0))
            peers = dict.fromkeys(peer for peer, _ in learner.behind())
            self.commit.deliveries += [Delivery(peer, id_, slot) for peer in peers]

    def _deliver(self, request: Request, rows: Sequence[int]) -> None:
        self.commit.deliveries += [
            Delivery(request.group(row).peer, request.peer_answers[row].id, request.truths[row])
            for row in rows
            if request.peer_answers[row].id
        ]

    def _count_answers(
        self, request: Request, rows: Iterable[int], *, answers: int = 0, labels: int = 0
    ) -> None:
        groups = [request.group(row) for row in rows if request.peer_answers[row].id]
        for where, count in Counter((group.cell, group.peer) for group in groups).items():
            answered = self.answers.get(where, AnsweredRows(*where))
            self.answers[where] = AnsweredRows(
                *where, answered.answers + count * answers, answered.labels + count * labels
            )
            self.commit.records.append(self.answers[where])

    def answered(self, cell: str, peer: str) -> int:
        """Return how many arrivals a peer must have seen in a cell, as it answered them."""
        answered = self.answers.get((cell, peer), AnsweredRows(cell, peer))
        return answered.answers if self._learner.counts_at_once else answered.labels

    def take(self, latest: tuple[int, Any] | None) -> Commit | None:
        """Return what has changed since it was last taken; None: nothing."""
        commit, self.commit = self.commit, Commit()
        commit.records += self._sources.take(latest)
        prices = self._price_state()
        if prices != self._written_prices:
            commit.records += [] if prices is None else [prices]
            self._written_prices = prices
        return None if commit == Commit() else commit

    def _price_state(self) -> SourceState | None:
        """Return what is known of the costs of links, as it is stored; None: nothing is learnt."""
        prices = self._learner.prices
        if prices is None:
            return None
        return SourceState(LINKS, 0, latest=(0, msgspec.to_builtins(prices.state())))


class Learning:
    """What labels change: the counters of the learner, or those of an isolated source."""

    def __init__(
        self,
        learner: Learner,
        sources: SourceStatistics,
        arm_ids: dict[str, str],
        changes: Changes | None,
    ) -> None:
        """`arm_ids` has the arms whose labels are not counted under their name."""
        self.learner = learner
        self.sources = sources
        self.arm_ids = arm_ids
        self.changes = changes

    def id_of(self, arm: str) -> str:
        """Return what labels of an arm count as."""
        return self.arm_ids.get(arm, arm)

    @property
    def places(self) -> dict[str, int]:
        """The own functions, by what their labels count as."""
        own = self.learner.arms[: len(self.learner.arms) - len(self.learner.behind())]
        return {self.id_of(arm): place for place, arm in enumerate(own)}

    def learn(
        self, request: Request, rows: Sequence[int], labels: Sequence[Label], costs: Costs
    ) -> None:
        """Learn from labels of rows that were open."""
        if self.sources.earned is not None:
            self.sources.compare(request, rows, labels)
        if not self.sources.is_pooled(request.source):
            self.sources.settle(request, rows, labels)
            return
        # Row by row where free functions are scored: a label counts before that of the next row.
        if len(rows) > FEW_LABELS and request.groups[0].phase != RECALL and not request.scored:
            self._learn_rows(request, rows, labels, costs)
        else:
            table, places = self.learner.tables[request.space], self.places
            for row, label in zip(rows, labels, strict=True):
                code = request.groups[request.group_of[row]].code
                paid = self._paid(request, row, costs) if costs else UNPAID
                take_label(self.learner, table, code, request, row, label, places, paid)
        if self.changes is not None:
            self.changes.note(request, rows)

    def _learn_rows(
        self, request: Request, rows: Sequence[int], labels: Sequence[Label], costs: Costs
    ) -> None:
        learner, places = self.learner, np.array(rows, np.int64)
        codes = request.codes[places]
        contexts = np.asarray(request.contexts, np.float64).reshape(len(request), -1)[places]
        slots = request.slots_of(rows)
        gains = learner.gains_of([request.predictions[row] for row in rows], labels)
        paid = None
        if costs:
            paid = np.array([self._paid(request, row, costs) for row in rows], np.int64)
        learner.settle_rows(contexts, slots, codes, gains, paid, request.space)
        if learner.remembers:
            points = map(tuple, contexts.tolist())
            answers = [request.predictions[row] for row in rows]
            for code, label, point, slot, answer in zip(
                codes.tolist(), labels, points, slots.tolist(), answers, strict=True
            ):
                learner.remember(code, label, point, slot, request.space, answer)

    def _paid(self, request: Request, row: int, costs: Mapping[int, Cost]) -> int:
        """Return what the arm cost beyond its price, in millionths."""
        cost = costs.get(row)
        if isinstance(cost, Mapping):
            cost = cost.get(self.learner.cost_columns.get(request.group(row).arm, ""))
        return UNPAID if cost is None else round(cost * MILLIONTHS)

    def observe(
        self, request: Request, rows: Sequence[int], costs: Mapping[int, Cost], prices: SitePrices
    ) -> None:
        """Learn what the links to the peers that were asked have cost."""
        for row in rows:
            cost, group = costs.get(row), request.group(row)
            if isinstance(cost, Mapping) and group.peer == group.arm:
                prices.observe(group.peer, request.slot_of(row), cost)

    def forget(self, request: Request, rows: Sequence[int]) -> None:
        """Wait for the labels of rows no longer."""
        if self.sources.is_pooled(request.source):
            self.learner.forget_rows(request.codes_of(rows), request.space)
        else:
            self.sources.forget(request.source, request.space, request.codes_of(rows))

    def close(self, request: Request) -> int:
        """Accept labels of a request no longer; return how many had not come."""
        request.is_open = False
        request.training = NONE
        if UNKNOWN not in request.truths:
            return 0
        pending = request.pending
        if request.groups[0].phase != RECALL:
            self.forget(request, attached(request, pending))
        return len(pending)


class Voting(Protocol):
    """An ensemble, whose vote answers the clients of a site."""

    def vote(self, draft: Any, own: Any, effects: Any, learner: Learner) -> Any:
        """Ask all voters while the site answers rows itself; return the labels that win."""

    def learn(self, request: Request, rows: Sequence[int]) -> list[Delivery]:
        """Change weights by the labels of rows; return what the voters are told of them."""

    def changes(self) -> list[SourceState]:
        """Return what is to be written."""

    def restore(self, sources: Mapping[str, SourceState]) -> None:
        """Continue from what was stored."""


class Open(Protocol):
    """The requests whose labels a site accepts."""

    pending_rows: int  # whose label has not arrived

    def add(self, request: Request) -> None:
        """Give a request its number, and accept its labels."""

    def expire(self, slot: int) -> None:
        """Forget rows whose labels are no longer waited for in `slot`, before it is decided."""

    def name(self, request: Request, row: int) -> str:
        """Return what an error calls a row."""


class OpenRequests:
    """The open requests of a site with a store, by source and id.

    The number of a request is its place in the store.
    """

    def __init__(self, learning: Learning, loaded: Loaded, closed: Callable[[int], None]) -> None:
        """Let `closed` know the numbers of requests that accept labels no longer."""
        self.learner = learning.learner
        self._sources = learning.sources
        self._close_rows = learning.close
        self._note_closed = closed
        self.next_number = loaded.latest_number + 1
        self.by_id: dict[tuple[str, str], tuple[Request, int | None]] = {}
        self._held: Counter[str] = Counter()
        self._askers = {source for _, source, _ in loaded.counters} | set(loaded.sources)
        self.queues: dict[str, deque[Request]] = {OWN: deque()}
        self._done: deque[Request] = deque()  # closed requests that the store may not have yet
        self.pending_rows = 0
        for request in loaded.requests:
            self._keep(request)

    def add(self, request: Request) -> None:
        request.number = self.next_number
        self.next_number += 1
        self._keep(request)
        self.expire_of(request.source)

    def _keep(self, request: Request) -> None:
        self.pending_rows += len(request.pending)
        self._queue(request.source).append(request)
        self._held[holder(request.source)] += len(request)
        for key, row in _keys(request):
            self.by_id[key] = request, row

    def _queue(self, source: str) -> "deque[Request]":
        pool = OWN if self._sources.is_pooled(source) else source
        return self.queues.setdefault(pool, deque())

    def find(self, source: str, id: str) -> tuple[Request, int | None] | None:
        """Return the request of an id, or the request and the row of a row's id."""
        return self.by_id.get((source, id))

    def held(self, source: str) -> int:
        """Return how many rows of a source are in memory; own clients count as one source."""
        return self._held[holder(source)]

    def has_asked(self, source: str) -> bool:
        """Return whether there was ever a request of a source."""
        return source in self._askers or holder(source) in self._held

    def name(self, request: Request, row: int) -> str:
        if request.row_ids is not None:
            return repr(request.row_ids[row])
        return repr(request.id) if len(request) == 1 else f"row {row} of {request.id!r}"

    def expire(self, slot: int) -> None:
        self._expire(self.queues[OWN], slot)

    def expire_of(self, source: str) -> None:
        """Forget rows of a source by its own slot."""
        self._expire(self._queue(source), self._sources.of(source).slot)

    def _expire(self, queue: "deque[Request]", slot: int) -> None:
        """Close requests whose last row is older than label-wait, oldest first."""
        wait = self.learner.label_wait
        while queue and slot > queue[0].last_slot + wait:
            self._close(queue.popleft())

    def make_room(self, source: str, most: int) -> None:
        """Close the oldest requests of a source until at most so many of its rows are held.

        Only where the rows of a request share a slot: else enough slots pass before there are more.
        """
        queue = self._queue(source)
        while self.learner.shares_slots and self.held(source) > most:
            requests = (request for request in queue if holder(request.source) == holder(source))
            oldest = next(requests, None)
            if oldest is None:
                return
            queue.remove(oldest)
            self._close(oldest)

    def _close(self, request: Request) -> None:
        self.pending_rows -= self._close_rows(request)
        self._note_closed(request.number)
        self._held[holder(request.source)] -= len(request)
        self._done.append(request)

    def drop_stored(self) -> None:
        """Forget closed requests that the store has."""
        while self._done and self._done[0].is_stored:
            for key, _ in _keys(self._done.popleft()):
                self.by_id.pop(key, None)

    def all(self) -> list[Request]:
        """Return the requests whose labels are accepted, in order."""
        requests = [request for queue in self.queues.values() for request in queue]
        return sorted(requests, key=lambda request: request.number)

    def pending_of_peers(self) -> int:
        """Return how many rows of isolated peers have no label yet."""
        queues = [queue for source, queue in self.queues.items() if source != OWN]
        return sum(len(request.pending) for queue in queues for request in queue)


# -- the state ------------------------------------------------------------------------------------

Holder = TypeVar("Holder", bound=Open)
Changed = TypeVar("Changed", bound=Changes | None)


class SiteState(Generic[Holder, Changed]):
    """The learner of a site, the requests whose labels it accepts, and what is to be written.

    A site in one process keeps its open rows by ticket, and writes nothing.
    """

    lost_answers = 0  # of busy peers, when the site was last stopped

    def __init__(
        self,
        groups: RowGroups,
        learning: Learning,
        open_: Holder,
        changes: Changed,
        ensemble: Voting | None = None,
    ) -> None:
        self.learner, self.sources = learning.learner, learning.sources
        self.groups = groups
        self.learning = learning
        self.open = open_
        self.changes = changes
        self.ensemble = ensemble  # whose vote answers own clients
        self.judge: Learner | PoolingLearner = self.learner  # decides own rows
        if self.sources.earned is not None:
            self.judge = PoolingLearner(self.learner, self.sources)
        self.latest_slot = self.learner.slot  # that was given to a request
        # The slot and the label of the latest own instance in a request that has a label.
        self.latest_label: tuple[int, Any] | None = None

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
        self.open.expire(first)
        # The rows of a request have the prices of its first slot.
        prices = self.learner.prices
        if prices is not None and prices.apply(self.learner.reprice, first):
            self.groups.clear()
        return first

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
            request.groups = (self.groups.of(source, space, codes[0]),)
        else:
            unique, group_of = np.unique(np.asarray(codes), return_inverse=True)
            request.groups = [self.groups.of(source, space, code) for code in unique.tolist()]
            request.group_of = group_of.tolist() if count <= FEW else group_of.astype(np.uint32)
        return self._record(request)

    def _record(self, request: Request) -> Request:
        if is_own(request.source):
            self.learner.advance(request.last_slot)
        self.open.add(request)
        if self.changes is not None:
            self.changes.recorded(request)
        return request

    def retract(self, contexts: Any, slot: int, codes: Any, done: int) -> None:
        """Take back the own decisions of a request that failed: its first `done` rows."""
        for place in range(done):
            if codes[place] >= 0:
                self.learner.retract(int(codes[place]), tuple(contexts[place]), slot + place)
        if self.changes is not None:
            self.changes.note_retracted(contexts, codes, done)

    def undo_reports(self, undo: Sequence[tuple[int, int, int]]) -> None:
        """Undo reports of peers in own cells: row, peer, and its training counter before.

        Bounds that they reported stay, and are to be written.
        """
        for report in reversed(undo):
            self.learner.table.unrefresh(*report)
            if self.changes is not None:
                self.sources.own.note(self.learner.space, code_of(report[0], 0, SERVE))

    def answered(self, row: int, peer: str) -> int:
        """Return how many arrivals a peer must have seen in an own cell, as it answered them."""
        if self.changes is None:
            return 0
        return self.changes.answered(self.learner.name_at(self.learner.space, row), peer)

    # -- rows of peers --------------------------------------------------------------------------

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
        self._expire(source, slot)
        return self.sources.serve(source, cell, slot, function)

    def _expire(self, source: str, slot: int) -> None:
        """Forget rows by the slot that a peer names, where it is one of the site itself."""
        if self.sources.is_pooled(source):
            self.open.expire(slot)

    def retract_served(self, source: str, space: str, codes: Sequence[int]) -> None:
        """Take back the choices of `serve`."""
        self.sources.retract(source, space, codes)

    def recall(
        self, source: str, cells: Sequence[Cell], slots: Sequence[int], ids: Sequence[str] = ("",)
    ) -> Request:
        """Answer a peer that shows only cells: with the label seen most often in each."""
        labels, groups = [], []
        for cell, slot in zip(cells, slots, strict=True):
            label, code = self.sources.recall(source, cell, slot)
            labels.append(label)
            groups.append(RowGroup(self.learner.names.of(cell), RECALL, "", 0.0, code=code))
        contexts = [self.learner.middle(cell) for cell in cells]
        return self._record(_for_peer(source, ids, cells, slots, contexts, labels, groups))

    def relay(
        self,
        rows: Sequence[AskRow],
        cells: Sequence[Cell],
        assistances: Sequence[Assistance],
        *,
        source: str,
        peer: str,
        ids: Sequence[str],
    ) -> Request:
        """Record rows that `peer` answered for `source`; their labels go to the peer, by `ids`."""
        slots = [row.slot for row in rows]
        self.sources.of(source).advance(max(slots))
        names = self.learner.names
        groups = [RowGroup(names.of(cell), RELAY, "", 0.0, peer) for cell in cells]
        labels, own_ids = [answer.label for answer in assistances], [row.id for row in rows]
        contexts: list[tuple[float, ...]] = [()] * len(rows)
        request = _for_peer(source, own_ids, cells, slots, contexts, labels, groups)
        request.peer_answers = {
            k: PeerAnswer(answer.function, id_)
            for k, (answer, id_) in enumerate(zip(assistances, ids, strict=True))
        }
        return self._record(request)

    def query(self, source: str, cell: Cell, slot: int, what: QueryKind) -> Report:
        """Return what a peer asks to know of a cell, which is known from now on.

        See `Effects.query`.
        """
        if what == "arrivals":
            self._expire(source, slot)
            return self.sources.report(source, cell, slot)
        accuracy, labels = self.sources.estimate(source, cell, slot, is_by_context=what == "seen")
        return labels, accuracy, accuracy, ()

    # -- labels ---------------------------------------------------------------------------------

    def check(self, request: Request, truths: Mapping[int, Any]) -> None:
        """Raise `ConflictingLabel` or `LateLabel` if a request cannot take these labels.

        And `UnfitLabel` for text if the answer is a number, or the reverse.
        """
        known, name = request.truths, self.open.name
        for row, label in truths.items():
            check_kind(label, request.predictions[row], name(request, row))
        if request.is_open and known.count(UNKNOWN) == len(known):
            return
        for row, label in truths.items():
            if known[row] is UNKNOWN:
                if not request.is_open:
                    raise LateLabel(
                        f"label for {name(request, row)} rejected: label-wait has expired"
                    )
            elif known[row] != label:
                raise ConflictingLabel(
                    f"{name(request, row)} has the label {known[row]!r}; the conflicting "
                    f"label {label!r} was rejected"
                )

    def settle(
        self, request: Request, truths: Mapping[int, Any], costs: Costs = None
    ) -> Settlements:
        """Learn from labels that were checked; the same label again has no effect."""
        known, predictions = request.truths, request.predictions
        is_new = {row: known[row] is UNKNOWN for row in truths}
        rows = [row for row in truths if is_new[row]]
        is_right = {row: bool(predictions[row] == label) for row, label in truths.items()}
        if rows:
            counted = attached(request, rows)
            if counted:
                self.learning.learn(request, counted, [truths[row] for row in counted], costs)
            if costs and self.learner.prices is not None:
                self.learning.observe(request, rows, costs, self.learner.prices)
            for row in rows:
                known[row] = truths[row]
            self.open.pending_rows -= len(rows)
            self._settled(request, rows, [is_right[row] for row in rows])
        if self.ensemble is not None and is_own(request.source):  # the vote is what was answered
            is_right = {row: bool(request.answers[row] == label) for row, label in truths.items()}
        return Settlements([*is_new.values()], [*is_right.values()])

    def _settled(self, request: Request, rows: list[int], right: list[bool]) -> None:
        """Follow up on labels that were learnt."""
        last = max(rows)
        slot = request.slot_of(last)
        if is_own(request.source) and (self.latest_label is None or slot >= self.latest_label[0]):
            self.latest_label = (slot, request.truths[last])
        if self.changes is not None:
            self.changes.settled(request, rows, right)
            if self.ensemble is not None:
                self.changes.commit.deliveries += self.ensemble.learn(request, rows)

    # -- commits --------------------------------------------------------------------------------

    def take(self: "StoredState") -> Commit | None:
        """Return what has changed since it was last taken; None: nothing."""
        self.open.expire_of(OWN)  # reports of pooled peers and failed requests move the slot, too
        commit = self.changes.take(self.latest_label)
        if commit is not None and self.ensemble is not None:
            commit.records += self.ensemble.changes()
        return commit

    def is_written(self: "StoredState", commit: Commit) -> None:
        """Note that a commit is in the store."""
        for request in commit.requests:
            request.is_stored = True
        self.open.drop_stored()

    # -- late answers ---------------------------------------------------------------------------

    def join_answer(self: "StoredState", request: Request, label: Label) -> None:
        """Record the late answer of a peer: the label of the row is compared with it."""
        if request.is_open:
            cast("list[Any]", request.predictions)[0] = label
            request.peer_answers = {0: request.peer_answers[0]._replace(is_awaited=False)}
            self.changes.commit.joined.append(request)

    def drop_answer(self, request: Request) -> None:
        """Note that a late answer never comes: the label of the row changes no counter."""
        if request.is_open and is_awaited(request):
            self.learning.forget(request, [0])
            detach(request)


StoredState = SiteState[OpenRequests, Changes]


def loaded_state(
    learner: Learner,
    loaded: Loaded,
    trust: Mapping[str, Trust] | None = None,
    *,
    most_cells: int = MOST_CELLS,
    count: Callable[..., list[DayPayments]] = lambda request, rows=None: [],
    ensemble: Voting | None = None,
) -> StoredState:
    """Return the state of a site with a store, which continues from what was loaded.

    `trust` says how labels of each peer count; those of others are isolated. `count` counts what is
    paid for answers to a request, and what labels of rows are worth.
    """
    arms, own = ArmPlaces(learner, loaded.of(Arm)), loaded.sources[OWN]
    sources = SourceStatistics(learner, trust or {}, most_cells=most_cells, arms=arms)
    learner.slot = own.slot
    stored = StoredTables(learner, loaded, arms)
    stored.fill(OWN, learner.tables)
    prices = loaded.sources.get(LINKS)
    if learner.prices is not None and prices is not None and prices.latest is not None:
        learner.prices.restore(msgspec.convert(prices.latest[1], PriceState), learner.reprice)
    # Before cells of sources are opened, which are to be written.
    changes = Changes(learner, sources, loaded, count)
    sources.load(loaded, stored)
    lost = [request for request in loaded.requests if is_awaited(request)]
    for request in lost:
        detach(request)
    if learner.is_pending:
        pooled = (each for each in loaded.requests if sources.is_pooled(each.source))
        learner.count_pending(
            codes_of((request, row) for request in pooled for row in request.pending)
        )
    if ensemble is not None:
        ensemble.restore(loaded.sources)
    learning = Learning(learner, sources, arms.renamed, changes)
    open_ = OpenRequests(learning, loaded, changes.closed)
    groups = RowGroups(learner, sources, arms.renamed)
    state = SiteState(groups, learning, open_, changes, ensemble)
    state.latest_label, state.lost_answers = own.latest, len(lost)
    return state


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


def is_awaited(request: Request) -> bool:
    """Return whether a request of one row has no label, and awaits the answer of a peer."""
    answer = request.peer_answers.get(0) if len(request) == 1 else None
    return (
        answer is not None
        and answer.is_awaited
        and request.truths[0] is UNKNOWN
        and request.groups[0].code != DETACHED
    )


def detach(request: Request) -> None:
    """Let the label of a request whose awaited answer never comes change no counter."""
    cast("list[Any]", request.predictions)[0] = NO_ANSWER
    request.groups = [msgspec.structs.replace(request.groups[0], code=DETACHED)]


def _for_peer(
    source: str,
    ids: Sequence[str],
    cells: Sequence[Cell],
    slots: Sequence[int],
    contexts: list[Any],
    labels: list[Any],
    groups: list[RowGroup],
) -> Request:
    """Return rows of a peer, each with a group of its own, which no own function answered."""
    return Request(
        slot=slots[0],
        slots=list(slots),
        space=cells[0].space,
        source=source,
        id=ids[0],
        row_ids=ids if len(ids) > 1 else None,
        groups=groups,
        group_of=range(len(groups)),
        contexts=contexts,
        predictions=labels,
        answers=labels,
        truths=[UNKNOWN] * len(groups),
    )


def _keys(request: Request) -> list[tuple[tuple[str, str], int | None]]:
    if request.row_ids is None:
        return [((request.source, request.id), None)]
    return [((request.source, id_), row) for row, id_ in enumerate(request.row_ids)]
