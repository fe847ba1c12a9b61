"""One site as an asynchronous service: the request handler with a store, peers and deadlines.

A node does all I/O through `NodeDependencies`, and the event loop is its clock, so a whole
network can run in one process under a virtual one.
"""

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import msgspec

from covey.bandit.learner import Learner, Settlement
from covey.config import LearnerSpec
from covey.data.inputs import ANY, LabelSet, costs_of, plain_label, points_of, rows_of
from covey.errors import (
    ConfigError,
    ConflictingLabel,
    CoveyError,
    DataError,
    LimitError,
    PeerDeclined,
    StoreError,
    UnknownTicket,
)
from covey.functions.function import Function, Late
from covey.kernel.rules import Cell, Report
from covey.node.functions import (
    PEER_TICKETS,
    Found,
    Journal,
    Limits,
    NodeEffects,
    Workers,
)
from covey.node.peers import (
    MOST_HOPS,
    OUTCOME_OF,
    REPEATED,
    TAKEN,
    Budgets,
    CircuitBreaker,
    LabelDelivery,
    LateAnswers,
    LogThrottle,
    PaymentCounters,
    Peer,
    PeerTimeouts,
    RelayRoute,
    along,
    checked_slot,
    guarded,
    in_units,
    peer_states,
    peers_of,
)
from covey.node.shadow import Shadow
from covey.site.cells import kinds_of
from covey.site.earned import TrustState
from covey.site.ensemble import SiteEnsemble
from covey.site.handler import Handler
from covey.site.requests import (
    ALARM,
    NO_INSTANCE,
    OWN,
    ROW_ID,
    Arm,
    ArmKind,
    AskRow,
    Assistance,
    Commit,
    DayPayments,
    Delivery,
    Loaded,
    Prediction,
    QueryKind,
    Question,
    Request,
    alarm_of,
    checked_row,
    holder,
    is_own,
    other_request,
    prediction_of,
    truths_of,
)
from covey.site.state import Costs, OpenRequests, Settlements, StoredState, Truths, loaded_state
from covey.site.status import ServedState, State, arms_of
from covey.site.trust import Trust
from covey.store import change
from covey.store.fingerprint import after_horizon, schema_fingerprint
from covey.store.store import Store
from covey.types import MILLIONTHS, Context, Cost, Label

log = logging.getLogger(__name__)


class NodeDependencies(msgspec.Struct, frozen=True):
    """The store, peers, random source and workers of a node."""

    store: Store
    peers: Mapping[str, Peer]
    rng: random.Random  # for ids and jitter
    workers: Workers
    clock: Callable[[], float] = time.time  # seconds since the epoch
    # A paused node of the same store, which is stopped when the new one starts.
    before: "Node | None" = None
    ensemble: SiteEnsemble | None = None  # whose vote answers clients
    shadow: float = 0.0  # share of the rows of own clients
    relays: Mapping[str, str] = {}  # peer -> the site through which it is asked, and which is paid
    is_relay: bool = False  # it forwards requests of peers to peers that it may ask itself


class Sections:
    """Runs coroutines to their end one after the other per key, also if the caller is cancelled."""

    def __init__(self) -> None:
        self._running: dict[Any, asyncio.Future[object]] = {}

    async def free(self, key: Any) -> None:
        """Return when nothing runs for a key."""
        while key in self._running:
            await asyncio.wait([self._running[key]])

    async def run(self, key: Any, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine to its end."""
        task = self._running[key] = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: self._end(key, done))
        await asyncio.shield(task)

    def _end(self, key: Any, task: "asyncio.Future[object]") -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # without a caller, the next one that sends the label gets it


class KnownRequests:
    """Requests by the ids of their rows: in memory, in progress, and in the store."""

    def __init__(
        self, open_: OpenRequests, journal: Journal, workers: Workers, limits: Limits, of_peer: int
    ) -> None:
        """`of_peer` is how many rows of each peer may be in memory."""
        self.open = open_
        self._journal = journal
        self._workers = workers
        self.training = Sections()  # functions with the labels of a request
        self.use(limits, of_peer)
        self._in_progress: dict[tuple[str, str], asyncio.Event] = {}
        self._reserved: Counter[str] = Counter()  # their rows, by holder

    def use(self, limits: Limits, of_peer: int) -> None:
        """Hold as many rows from now on."""
        self._most, self._most_of_peer = limits.tickets, of_peer

    async def once(
        self,
        asked: Question,
        answer: Callable[[], Awaitable[Request]],
        *,
        is_new: bool,
        rows: int,
        more_ids: Sequence[str] = (),
    ) -> Request:
        """Answer a request that is new; else return the earlier one.

        `more_ids` are those of its other rows; all of them must be new then, too.
        """
        key = (asked.source, asked.id)
        keys = [key, *((asked.source, id_) for id_ in more_ids)]
        while running := next(filter(None, map(self._in_progress.get, keys)), None):
            await running.wait()
        pair = None if is_new else self.open.find(*key)
        request = None if pair is None else pair[0]
        if request is None:
            self._check_alive()
            self._check_room(asked.source, rows)
            with self._noted(keys, rows):
                if not is_new:
                    stored = await self._stored(asked.source, [asked.id])
                    request = stored[asked.id][0] if stored else None
                if request is None:
                    await self._check_unused(keys[1:])
                    request = await answer()
        if request.digest != asked.digest or len(request) != rows:
            raise other_request(asked)
        await self._journal.flush()
        return request

    async def _check_unused(self, keys: Sequence[tuple[str, str]]) -> None:
        """Raise `ConflictingLabel` if an id, all of one source, is that of an earlier request."""
        for key in keys:
            if self.open.find(*key) is not None:
                raise other_request(Question(*key))
        ids = [id_ for _, id_ in keys]
        for id_ in await self._stored(keys[0][0], ids) if keys else ():
            raise other_request(Question(keys[0][0], id_))

    async def _stored(self, source: str, ids: Sequence[str]) -> dict[str, Found]:
        """Return what the store has for ids; one that cannot be read has failed."""
        try:
            return await self._workers.find(source, ids)
        except StoreError as error:
            self._journal.fail(error)
            raise

    def _check_room(self, source: str, rows: int) -> None:
        """Raise `LimitError` if there is none; peers cannot use up that of own clients."""
        most = self._most if is_own(source) else self._most_of_peer
        rows += self._reserved[holder(source)]
        self.open.make_room(source, most - rows)
        held = self.open.held(source)
        if held + rows > most:
            raise LimitError(f"{held} rows are in memory or in progress; try again later")

    @contextmanager
    def _noted(self, keys: Sequence[tuple[str, str]], rows: int) -> Iterator[None]:
        """Note a request while it is in progress."""
        source, done = keys[0][0], asyncio.Event()
        self._in_progress.update(dict.fromkeys(keys, done))
        self._reserved[holder(source)] += rows
        try:
            yield
        finally:
            self._reserved[holder(source)] -= rows
            for key in keys:
                del self._in_progress[key]
            done.set()

    async def locate(
        self, source: str, id: str, *, may_be_row: bool = True
    ) -> tuple[Request, int | None]:
        """Return the request of an id, and the row if the id is that of a row."""
        pair = (await self.find(source, [id])).get(id)
        if pair is not None:
            await self.training.free((source, pair[0].id))
            return pair
        row = ROW_ID.fullmatch(id) if may_be_row and is_own(source) else None
        if row is None:
            raise UnknownTicket(f"unknown id {id!r}")
        request, _ = await self.locate(source, row[1], may_be_row=False)
        return request, checked_row(request, int(row[2]))

    async def find(self, source: str, ids: Sequence[str]) -> dict[str, Found]:
        """Return the requests of ids, and the row if the id is that of a row; unknown: left out."""
        self._check_alive()
        away = [id_ for id_ in ids if not self.open.find(source, id_)]
        stored: Mapping[str, Found] = {}
        if away:
            await self._journal.flush()  # their labels may be on their way to the store
            stored = await self._stored(source, away)
        # They may have been answered meanwhile, and labels belong to the request in memory.
        pairs = {id_: self.open.find(source, id_) or stored.get(id_) for id_ in ids}
        return {id_: pair for id_, pair in pairs.items() if pair is not None}

    def _check_alive(self) -> None:
        if self._journal.failure is not None:
            raise self._journal.failure


class Labels(msgspec.Struct, frozen=True, eq=False):
    """Trains functions with labels, and settles them."""

    state: StoredState
    handler: Handler
    training: Sections
    shadow: Shadow
    valid: LabelSet
    late: LateAnswers

    def check(self, labels: Sequence[Label], source: str) -> None:
        (self.valid.check_own if is_own(source) else self.valid.check)(labels)

    async def take(self, request: Request, truths: Truths, costs: Costs = None) -> Settlements:
        """Train and settle; that is not durable yet."""
        key = (request.source, request.id)
        if self.late.joins:
            await self.late.settled(request)
        await self.training.free(key)
        if request.training:
            await self.training.run(key, self.handler.prepare(request, truths))
        self.state.check(request, truths)  # label-wait may have expired in training
        settled = self.state.settle(request, truths, costs)
        self.shadow.settled(request, truths)
        return settled


class PeerRequests(msgspec.Struct, frozen=True, eq=False):
    """What peers ask of a site, and the labels that they deliver."""

    name: str
    state: StoredState
    handler: Handler
    effects: NodeEffects
    known: KnownRequests
    labels: Labels
    payments: PaymentCounters
    journal: Journal
    # That lead to the peers to which the site forwards requests; None: it forwards none.
    ways: Mapping[str, CircuitBreaker] | None

    def has_asked(self, source: str) -> bool:
        """Return whether a peer has ever asked this site."""
        return self.known.open.has_asked(source)

    async def assist(
        self, rows: Sequence[AskRow], *, source: str, route: RelayRoute | None = None
    ) -> list[Assistance]:
        """Answer rows of a peer by own functions, or from labels seen; or forward them.

        With a route they are another site's to answer. Raises `DataError` for one that leads in a
        circle or is too long, `PeerDeclined` for a site that this one does not ask, and
        `PeerError` if there is no answer.
        """
        if route is not None:
            self.next_hop(route, source)
        names = self.state.learner.names
        cells = [names.parse_place(str(row.cell)) for row in rows]
        slots = [checked_slot(row.slot) for row in rows]
        if any(cell.space != cells[0].space for cell in cells):
            raise DataError("the cells of one request must lie in one context space")
        instances = None if rows[0].instance is NO_INSTANCE else [row.instance for row in rows]
        ids = [row.id for row in rows]
        if len(set(ids)) < len(ids):
            raise DataError("the ids of rows must differ")

        async def answer() -> Request:
            self.effects.begin(source)
            if route is not None:
                request = await self._forward(rows, cells, route, source)
            else:
                request = await self.handler.assist(instances, cells, slots, source=source, ids=ids)
            # Nothing runs between the record of the request and this, so one commit has both.
            request.price = rows[0].price
            self.state.changes.commit.records += self.payments.earned(request)
            return request

        asked = Question(source, ids[0])
        request = await self.known.once(
            asked, answer, is_new=False, rows=len(rows), more_ids=ids[1:]
        )
        if (request.row_ids or [request.id]) != ids:
            raise other_request(asked)
        return [Assistance(request.answers[row], request.function(row)) for row in range(len(rows))]

    async def _forward(
        self, rows: Sequence[AskRow], cells: Sequence[Cell], route: RelayRoute, source: str
    ) -> Request:
        """Record rows of a peer with the answers of another site, to which their labels go on.

        So the same question gets the same answer, a label is durable here before it goes on, and
        every site pays the next one.
        """
        first = self.effects.new_id()
        ids = [f"{first}:{k}" if len(rows) > 1 else first for k in range(len(rows))]
        sent = [
            msgspec.structs.replace(row, id=id_, price=0)
            for row, id_ in zip(rows, ids, strict=True)
        ]
        with along(route), self.payments.forwarding(route.to, rows, source):
            answers = await self.effects.ask(route.to, sent)
        return self.state.relay(rows, cells, answers, source=source, peer=route.to, ids=ids)

    async def report(
        self,
        cell: str,
        slot: int,
        what: QueryKind = "arrivals",
        *,
        source: str,
        route: RelayRoute | None = None,
    ) -> Report:
        """Return what a peer asks to know of a cell, which is known from now on; or forward it."""
        at = checked_slot(slot)
        if route is None:
            return self.state.query(source, self.state.learner.names.parse_place(cell), at, what)
        peer = self.next_hop(route, source)
        self.effects.begin(source)
        with along(route):
            return await peer.report(cell, at, what)

    def next_hop(self, route: RelayRoute, source: str) -> CircuitBreaker:
        """Return the way to the site that a route leads to; raise as `assist` does."""
        if self.ways is None:
            raise PeerDeclined(f"{self.name!r} forwards nothing: it has no relay = true")
        if not route.via or route.via[-1] != source:
            raise DataError(f"the route does not end with {source!r}, which sends the request")
        if self.name in route.via or route.to in route.via:
            raise DataError("the route leads in a circle; the request is not forwarded")
        if len(route.via) > MOST_HOPS:
            raise DataError(f"the route has passed {len(route.via)} sites; at most {MOST_HOPS} may")
        peer = self.ways.get(route.to)
        if peer is None:
            raise PeerDeclined(f"{self.name!r} does not ask {route.to!r}, and cannot forward to it")
        return peer

    async def take_labels(self, labels: Sequence[tuple[str, Label]], *, source: str) -> list[str]:
        """Take labels that a peer delivers; return the outcome of each when they are durable.

        Among them are alarms: labels of decisions after one come after it.
        """
        outcomes: list[str] = []
        for is_alarm, part in groupby(labels, key=lambda label: label[0].startswith(ALARM)):
            if is_alarm:
                outcomes += [self._take_alarm(id_, source) for id_, _ in part]
            else:
                outcomes += await self._take_labels(list(part), source)
        await self.journal.flush()  # what a refusal is based on must not be lost either
        return outcomes

    def _take_alarm(self, id: str, source: str) -> str:
        slot, cell = alarm_of(id)
        space = self.state.learner.names.parse(cell).space
        is_new = self.state.sources.hear_alarm(source, space, checked_slot(slot))
        return TAKEN if is_new else REPEATED

    async def _take_labels(self, labels: Sequence[tuple[str, Label]], source: str) -> list[str]:
        outcomes: list[str] = [""] * len(labels)
        parts: dict[int, tuple[Request, dict[int, Any], list[tuple[int, int]]]] = {}
        known = await self.known.find(source, [id_ for id_, _ in labels])
        for k, (id_, label) in enumerate(labels):
            try:
                plain = plain_label(label)
                self.labels.check([plain], source)
                if id_ not in known:
                    raise UnknownTicket(f"unknown id {id_!r}")
                request, row = known[id_]
                row = 0 if row is None else row
                self.state.check(request, {row: plain})
                part = parts.setdefault(id(request), (request, {}, []))
                if part[1].setdefault(row, plain) != plain:
                    raise ConflictingLabel(f"{id_!r} is given two labels")
                part[2].append((k, row))
            except tuple(OUTCOME_OF) as error:
                outcomes[k] = OUTCOME_OF[type(error)]
        for request, truths, places in parts.values():
            try:
                settled = await self.labels.take(request, truths)
            except tuple(OUTCOME_OF):  # since the check a label has come, or label-wait has expired
                again = await self._take_labels([labels[k] for k, _ in places], source)
                for (k, _), outcome in zip(places, again, strict=True):
                    outcomes[k] = outcome
                continue
            is_new = dict(zip(truths, settled.is_new, strict=True))
            for k, row in places:
                outcomes[k] = TAKEN if is_new.pop(row, False) else REPEATED
        return outcomes


class Node:
    """A running site. `start` begins deliveries; `stop` leaves it as a crash would."""

    def __init__(
        self,
        site: LearnerSpec,
        learner: Learner,
        functions: Sequence[Function],
        dependencies: NodeDependencies,
        *,
        trust: Mapping[str, Trust] | None = None,
        timeouts: PeerTimeouts | None = None,
        limits: Limits | None = None,
        peer_tickets: int = PEER_TICKETS,
        labels: LabelSet = ANY,
        fingerprint: str | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        """`trust` says how the labels of each peer count; the default is `isolated`.

        `fingerprint` says what its counters mean, if that is more than the learner shows. What the
        store has learnt with other arms, cells or another preset is changed first, as `plan` says.
        Raises `StoreError` if the store cannot be used; then the node before this one can be
        started again.
        """
        if learner.waits_by_time:
            raise ConfigError(
                "[policy] label-wait is a duration, and a node counts slots; give these"
            )
        self.name = site.name
        self.learner = learner
        self._horizon = learner.policies[learner.own_spaces[0]].settings.slots
        self._after_horizon = LogThrottle(math.inf)  # once
        self._started_s: float | None = None
        self._dependencies = dependencies
        self._limits = Limits() if limits is None else limits
        if fingerprint is None:
            parts = learner.arms, learner.policies, (), learner.counted_parts
            fingerprint = schema_fingerprint(*parts)
        self._ensemble = dependencies.ensemble
        voters = () if self._ensemble is None else self._ensemble.voters
        asked = peers_of(learner, dependencies.peers, voters)
        timeouts = PeerTimeouts() if timeouts is None else timeouts
        self._breakers = guarded(asked, timeouts, dependencies.rng, labels)
        store, before = dependencies.store, dependencies.before
        loaded = store.load(site.name, fingerprint) if before is None else before.handed_over()
        is_first = not loaded.of(Arm)
        self.plan, loaded = change.adopt(
            store, loaded, learner, change.wanted_arms(learner, functions), fingerprint, trust or {}
        )
        for line in () if is_first else self.plan.lines():
            log.info("store: %s", line)
        self.starts = loaded.starts  # this one included
        self.arms = loaded.of(Arm)  # retired ones, too
        self._payments = PaymentCounters(
            learner,
            budgets or Budgets(),
            dependencies.clock,
            store.all(DayPayments),
            dependencies.relays,
            site.serving_cost,
        )
        self._state = loaded_state(
            learner,
            loaded,
            trust,
            most_cells=self._limits.cells,
            count=self._payments.count,
            ensemble=self._ensemble,
        )
        self.counters = self._state.changes.counters  # what was decided and labelled so far
        self._effects = NodeEffects(
            self._state,
            functions,
            dependencies.workers,
            self._breakers,
            self.new_id,
            self._payments,
            labels,
        )
        self.failures = self._effects.failures  # calls of each own function, since the start
        self._handler = Handler(self._state, site.views, self._effects)
        self._journal = Journal(self._state, self._commit)
        self._known = KnownRequests(
            self._state.open, self._journal, dependencies.workers, self._limits, peer_tickets
        )
        self._shadow = Shadow(
            dependencies.shadow, self._state, self._handler, self._effects, self._journal
        )
        self._shadow.continue_from(store, dependencies.rng)
        self._labels = Labels(
            self._state,
            self._handler,
            self._known.training,
            self._shadow,
            labels,
            LateAnswers(self._state),
        )
        self.for_peers = PeerRequests(
            site.name,
            self._state,
            self._handler,
            self._effects,
            self._known,
            self._labels,
            self._payments,
            self._journal,
            self._breakers if dependencies.is_relay else None,
        )
        # Labels of earlier answers are delivered to peers that are asked no longer, too.
        others = {name: peer for name, peer in dependencies.peers.items() if name not in asked}
        self._recipients = guarded(others, timeouts, dependencies.rng) | self._breakers
        self._delivery = LabelDelivery(
            self._recipients, loaded.of(Delivery), dependencies.rng, self._mark_delivered
        )
        self._others = [peer for peer in trust or {} if peer not in self._breakers]
        self._before = before

    # -- status ---------------------------------------------------------------------------------

    @property
    def unfit_answers(self) -> dict[str, int]:
        """How many answers of each peer were not among the classes, since the start."""
        return {peer: breaker.unfit for peer, breaker in self._breakers.items()}

    @property
    def is_ready(self) -> bool:
        """Whether it can answer and record."""
        return self._journal.failure is None

    @property
    def is_broken(self) -> bool:
        """Whether it must be restarted, as a commit failed."""
        return self._journal.is_broken.is_set()

    @property
    def arm_kinds(self) -> dict[str, ArmKind]:
        """The kinds of all arms by their names, retired ones included."""
        retired = {arm.name: arm.kind for arm in self.arms}
        return {**retired, **kinds_of(self.learner)}

    @property
    def undelivered(self) -> int:
        """How many labels peers have yet to receive."""
        return len(self._delivery)

    @property
    def previous_label(self) -> Label | None:
        """The label of the latest own instance that has one; None: none has."""
        latest = self._state.latest_label
        return None if latest is None else latest[1]

    def state(self) -> State:
        """Return the status of a started node."""
        payments = self._payments
        learner, sources, open_ = self.learner, self._state.sources, self._state.open
        of_peers = open_.pending_of_peers()
        tables = [learner.tables[space] for space in learner.policies]
        return State(
            name=self.name,
            is_ready=self.is_ready,
            starts=self.starts,
            uptime_s=asyncio.get_running_loop().time() - (self._started_s or 0.0),
            slot=self.learner.slot,
            alarms=self.counters.alarms.total(),
            alarm_slot=max(learner.alarms, default=0),
            alarms_total=self.learner.alarm_count,
            alarm_slots=self.learner.alarms,
            phases=self.counters.phases(),
            arms=arms_of(self.learner, self.counters, self.arms),
            peers=peer_states(
                self._breakers, self._others, payments, self._delivery, self.counters
            ),
            open_tickets=open_.pending_rows - of_peers,
            cells=sum(len(table) - table.cells.foreign for table in tables),
            owed=self.undelivered,
            for_peers=ServedState(of_peers, self.counters.peer_labels, sources.opened),
            spent_today=payments.total() / MILLIONTHS,
            budget=in_units(payments.budgets.total),
            account=payments.account(),
            horizon=self._horizon,
            trust=[] if sources.earned is None else sources.earned.states(),
            ensemble=None if self._ensemble is None else self._ensemble.weights(),
            shadow=self._shadow.state(),
            why="" if self._journal.failure is None else str(self._journal.failure),
            labels=self.counters.labels.total(),
            right=self.counters.right.total(),
            failures=dict(self.failures),
            gain=self._shadow.gain(),
        )

    def start(self) -> None:
        """Begin to deliver labels to peers, also after `pause`; the node before is stopped."""
        if self._before is not None:
            self._continue(self._before)
            self._before = None
        if self._started_s is None:
            self._started_s = asyncio.get_running_loop().time()
        self._delivery.start()
        self._shadow.start()

    def use(
        self,
        costs: Sequence[float],
        trust: Mapping[str, Trust],
        *,
        limits: Limits,
        peer_tickets: int,
        timeouts: PeerTimeouts,
        budgets: Budgets,
    ) -> None:
        """Use other prices and limits from now on, also where requests are in progress.

        `costs` are those of the same arms. `trust` may have other peers that only ask.
        """
        self.learner.use_costs(costs)
        self._state.groups.clear()
        self._state.sources.use_trust(trust)
        self._state.sources.most_cells = limits.cells
        self._known.use(limits, peer_tickets)
        self._payments.budgets = budgets
        for peer in self._recipients.values():
            peer.timeouts = timeouts
        self._others = [peer for peer in trust if peer not in self._breakers]

    def _continue(self, before: "Node") -> None:
        before.stop()
        self.counters.take_over(before.counters)
        self._shadow.take_over(before._shadow)
        self._payments.forwarded = before._payments.forwarded
        self._started_s = before._started_s
        for name in self.failures.keys() & before.failures.keys():
            self.failures[name] = before.failures[name]

    def handed_over(self) -> Loaded:
        """Return all that another node continues from, once this one is paused."""
        return self._dependencies.store.load_again(self._state.open.all())

    async def pause(self) -> None:
        """Stop to deliver, and return when the store has everything; nothing may be in progress."""
        self._delivery.stop()
        await self._shadow.finish()
        await self._journal.flush()

    async def drained(self) -> None:
        """Return when every label is delivered."""
        await self._delivery.drained()

    async def failed(self) -> StoreError:
        """Return why, when a commit could not be written; a full disk is no such failure."""
        await self._journal.is_broken.wait()
        assert self._journal.failure is not None
        return self._journal.failure

    def stop(self) -> None:
        """Stop immediately. Uncommitted work is dropped; it was never acknowledged."""
        self._labels.late.stop()
        self._delivery.stop()
        self._shadow.stop()
        self._journal.stop()

    # -- own clients ----------------------------------------------------------------------------

    async def predict(
        self,
        instance: Any,
        context: Context = (),
        *,
        question: Question | None = None,
        slot: int | None = None,
    ) -> Prediction:
        """Answer one row; see `answer`."""
        request = await self.answer([instance], [tuple(context)], question=question, slot=slot)
        return prediction_of(request, 0, request.id)

    async def answer(
        self,
        instances: Any,
        contexts: Any = None,
        *,
        question: Question | None = None,
        slot: int | None = None,
    ) -> Request:
        """Answer the rows of a request under one id, in consecutive slots.

        `contexts` has a context for each row, or is a function of the first slot that returns
        them. The same question again gets the same answer; another one under its id raises
        `ConflictingLabel`. Raises `ContextError`, `DataError`, `FunctionError`, `LimitError` or
        `StoreError`; then nothing was recorded.
        """
        rows = rows_of(instances)
        if not len(rows):
            raise DataError("the batch has no rows")
        asked = Question(OWN, self.new_id()) if question is None else question

        def points(first: int) -> Any:
            values = contexts(first) if callable(contexts) else contexts
            if len(rows) == 1 and isinstance(values, list) and len(values) == 1:
                return values
            return points_of(values, rows, dimension=self.learner.dimension)

        async def answer() -> Request:
            request = await self._decide(asked, rows, points, slot=slot)
            answered.append(request)
            return request

        answered: list[Request] = []
        request = await self._known.once(asked, answer, is_new=question is None, rows=len(rows))
        if self._dependencies.shadow:
            self._shadow.offer(answered, rows)
        return request

    async def _decide(self, asked: Question, rows: Any, contexts: Any, **how: Any) -> Request:
        """Let the handler answer rows; an answer that is to come later is waited for."""
        self._effects.begin()
        request = await self._handler.answer(
            rows, contexts, source=asked.source, id=asked.id, digest=asked.digest, **how
        )
        if type(request.predictions[0]) is Late:
            self._labels.late.watch(request)
        return request

    async def learn(
        self, id: str, label: Label, *, source: str = OWN, cost: Cost = None
    ) -> Settlement:
        """Take the true label of a request of one row, or of a row by its own id (`id:row`).

        Returns when it is durable. The function that answered is trained first, if it can be.
        `cost` is as for `Network`. Raises `UnknownTicket`, `LateLabel`,
        `ConflictingLabel`, `UnfitLabel`, or `FunctionError` if the function cannot learn from it;
        then no counter has changed, and the label can be sent again.
        """
        label = plain_label(label)
        self._labels.check([label], source)
        request, row = await self._known.locate(source, id)
        if row is None:
            if len(request) > 1:
                raise DataError(
                    f"{id!r} has {len(request)} rows; say of which row this is the label"
                )
            row = 0
        settled = await self._settle(request, {row: label}, {row: cost})
        return Settlement(settled.is_new[0], settled.is_right[0])

    async def learn_rows(
        self,
        id: str,
        rows: Sequence[int],
        labels: Any,
        *,
        source: str = OWN,
        costs: Sequence[Cost] | None = None,
    ) -> Settlements:
        """Take true labels of rows of a request, all or none; return when they are durable.

        Raises as `learn` does, and `UnknownRow` for a row that the request does not have.
        """
        request, _ = await self._known.locate(source, id, may_be_row=False)
        truths = truths_of(request, rows, labels)
        self._labels.check(list(truths.values()), source)
        return await self._settle(request, truths, costs_of(rows, costs))

    async def _settle(self, request: Request, truths: Truths, costs: Costs) -> Settlements:
        """Train and settle; return when that is durable."""
        self.learner.check_costs((costs or {}).values())
        if not self.learner.is_supervised and is_own(request.source):
            raise DataError(f"learner {self.name!r} has supervised = false, and takes no labels")
        try:
            settled = await self._labels.take(request, truths, costs)
        except CoveyError:
            await self._journal.flush()  # what a refusal is based on must not be lost
            raise
        await self._journal.flush()
        return settled

    def new_id(self) -> str:
        """Return an id that no request has."""
        return f"{self._dependencies.rng.getrandbits(128):032x}"

    async def _commit(self, commit: Commit) -> None:
        await self._dependencies.workers.commit(commit)
        if self.counters.is_alarmed():
            log.warning("change detected at slot %d: arms are reset", self.learner.alarms[-1])
        slot, horizon = self.learner.slot, self._horizon
        if horizon is not None and slot > horizon and self._after_horizon.is_due():
            log.warning("slot %d: %s", slot, after_horizon(horizon))
        earned = self._state.sources.earned
        turned: list[TrustState] = []
        if earned is not None:
            turned, earned.turned = earned.turned, turned
        for state in turned:
            log.warning("labels of peer %s", state)
        # Not where the label arrived: its sender may have disconnected since.
        for delivery in commit.deliveries:
            if delivery.peer in self._recipients:  # else it stays in the store, should it come back
                self._delivery.add(delivery)

    async def _mark_delivered(self, deliveries: Sequence[Delivery]) -> None:
        self._state.changes.commit.delivered += deliveries
        await self._journal.flush()
