"""Peers of a site: the seam, circuit breakers, delivery of labels, late answers and payments."""

import asyncio
import logging
import math
import random
import reprlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from covey.bandit.learner import NO_ANSWER, Learner
from covey.data.inputs import ANY, MOST_WHOLE, LabelSet, plain_label
from covey.errors import (
    ConfigError,
    ConflictingLabel,
    CoveyError,
    DataError,
    LateLabel,
    PeerBusy,
    PeerDeclined,
    PeerError,
    StoreError,
    StoreFull,
    UnfitLabel,
    UnknownRow,
    UnknownTicket,
)
from covey.functions.function import Function, Late
from covey.kernel.rules import Report
from covey.replay.outcome import Account, account_of
from covey.site.requests import (
    ALARM,
    FUNCTIONS,
    LABELS,
    NO_INSTANCE,
    NO_PEERS,
    SERVING,
    AskRow,
    Assistance,
    DayPayments,
    Delivery,
    QueryKind,
    Request,
    is_own,
)
from covey.site.state import StoredState
from covey.site.status import Counters, PeerState
from covey.types import MILLIONTHS, Label

log = logging.getLogger(__name__)
Given = TypeVar("Given")
# The outcome of a delivered label; with the first two the peer has it.
TAKEN, REPEATED, LATE, UNKNOWN_ID = "taken", "repeated", "late", "unknown"
CONFLICT, UNFIT = "conflict", "unfit"
OUTCOMES = (TAKEN, REPEATED, LATE, UNKNOWN_ID, CONFLICT, UNFIT)
OUTCOME_OF: dict[type[CoveyError], str] = {  # of a label that could not be settled
    LateLabel: LATE,
    UnknownTicket: UNKNOWN_ID,
    UnknownRow: UNKNOWN_ID,
    ConflictingLabel: CONFLICT,
    UnfitLabel: UNFIT,
}
# The deadline that all calls of a request share, by the loop's clock; a transport may pass it on.
DEADLINE_S: ContextVar[float] = ContextVar("DEADLINE_S", default=math.inf)
# The sites that a forwarded request has passed, the asker first; a transport passes them on.
VIA: ContextVar[tuple[str, ...]] = ContextVar("VIA", default=())
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0  # between attempts to deliver
MOST_SLOTS = 2**53
MOST_HOPS = 8  # sites that a request may have passed
MOST_ACCURACY = 1.05  # an upper bound that is worked out fast may be above 1 by 3 %
MOST_TOLD = 16  # numbers that a report has besides
DELIVERY_ROWS = 256  # labels in one message
FIRST_WARNING_S, NEXT_WARNING_S = 60.0, 600.0  # for labels that cannot be delivered


class Peer(Protocol):
    """Another site. Every failure is an `OSError` or a `PeerError`."""

    async def ask(self, rows: Sequence[AskRow]) -> list[Assistance]:
        """Return a label for each row."""

    async def report(self, cell: str, slot: int, what: QueryKind = "arrivals") -> Report:
        """Return the arrivals in a cell, and bounds of the best accuracy; see `Driver.report`."""

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        """Deliver true labels by row id; return one of `OUTCOMES` for each."""


class RelayRoute(msgspec.Struct, frozen=True):
    """Where a forwarded request goes: to which site, past which ones, and in what time."""

    to: str
    via: tuple[str, ...]  # the asker first, the sender last
    left_s: float = math.inf


@contextmanager
def along(route: RelayRoute) -> Iterator[None]:
    """Let calls to peers know what the request has passed, and when it must be answered."""
    until_s = asyncio.get_running_loop().time() + route.left_s
    deadline, via = DEADLINE_S.set(min(until_s, DEADLINE_S.get())), VIA.set(route.via)
    try:
        yield
    finally:
        DEADLINE_S.reset(deadline)
        VIA.reset(via)


class LogThrottle:
    """Lets a log line through once in `every_s` seconds."""

    def __init__(self, every_s: float = 60.0, first_s: float = -math.inf) -> None:
        """`first_s` is the time of the first line at the earliest, by the loop's clock."""
        self._every_s = every_s
        self._next_s = first_s

    def is_due(self) -> bool:
        """Return whether to log now; the next time is then `every_s` later."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True


class PeerTimeouts(msgspec.Struct, frozen=True):
    """How long a node waits for a peer, and for how long it stops asking after failures."""

    timeout_s: float = 1.0
    failures: int = 3  # in a row, after which the circuit opens
    open_s: float = 1.0  # the first time; doubled each time after that
    most_open_s: float = 60.0
    late_s: float = 0.0  # after the timeout, for which an answer may still come and be learnt from


class CircuitBreaker:
    """A peer with deadlines and a circuit breaker; every failure is a `PeerError`."""

    def __init__(
        self,
        name: str,
        peer: Peer,
        timeouts: PeerTimeouts,
        rng: random.Random,
        labels: LabelSet = ANY,
    ) -> None:
        """Take an answer that is not among `labels` as none."""
        self.name = name
        self._peer = peer
        self.timeouts = timeouts  # a reload may change them
        self._rng = rng
        self._labels = labels
        self.unfit = 0  # answers
        self._failures = 0
        self._openings = 0
        self._until_s = self._busy_until_s = -math.inf
        self._is_logged_open = False
        self._opened, self._declined, self._unfit = LogThrottle(), LogThrottle(), LogThrottle()

    @property
    def is_open(self) -> bool:
        """Whether the peer failed too often or is overloaded, and is not asked for now."""
        return asyncio.get_running_loop().time() < max(self._until_s, self._busy_until_s)

    async def ask(self, rows: Sequence[AskRow], *, may_be_late: bool = False) -> list[Assistance]:
        """Ask for labels; if they may be late, those that do not come in time are `Late`."""
        if not (may_be_late and self.timeouts.late_s > 0):
            return self._answers(rows, await self._call(lambda: self._peer.ask(rows)))
        deadline_s = self._begin()
        until_s = deadline_s + self.timeouts.late_s
        task = asyncio.get_running_loop().create_task(self._ask_until(rows, until_s))
        try:
            return await self._try(lambda: asyncio.shield(task), deadline_s)
        except PeerError:
            if task.done():
                raise
            function = Function(self.name, "this site", lambda _: None, None, None, None)
            late = Late(function, asyncio.get_running_loop().create_task(late_label(task)))
            return [Assistance(late, "", is_awaited=True) for _ in rows]
        except BaseException:
            task.cancel()
            raise

    async def _ask_until(self, rows: Sequence[AskRow], until_s: float) -> list[Assistance]:
        DEADLINE_S.set(until_s)
        async with asyncio.timeout_at(until_s):
            return self._answers(rows, await self._peer.ask(rows))

    def _answers(self, rows: Sequence[AskRow], answers: Sequence[Assistance]) -> list[Assistance]:
        if len(answers) != len(rows):
            raise self._failed(f"{len(answers)} answers to {len(rows)} rows")
        return [self._checked(answer) for answer in answers]

    async def report(self, cell: str, slot: int, what: QueryKind = "arrivals") -> Report:
        arrivals, low, high, logs = await self._call(lambda: self._peer.report(cell, slot, what))
        if type(arrivals) is not int or not 0 <= arrivals < MOST_WHOLE:
            raise self._failed(f"{arrivals!r} arrivals")
        if not (-1.0 if what == "arrivals" else 0.0) <= low <= high <= MOST_ACCURACY:
            raise self._failed(f"an accuracy between {low!r} and {high!r}")
        if len(logs) > MOST_TOLD or not all(abs(number) < MOST_WHOLE for number in logs):
            raise self._failed(f"{reprlib.repr(logs)} besides its accuracy")
        return arrivals, low, high, tuple(logs)

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        """Deliver true labels; an open circuit does not stop that, as the labels wait."""
        words = await self._try(lambda: self._peer.deliver(labels), self.deadline_s())
        if len(words) != len(labels) or not set(words) <= set(OUTCOMES):
            raise self._failed(f"{reprlib.repr(words)} for {len(labels)} labels")
        return words

    def deadline_s(self) -> float:
        """Return the deadline of a call that begins now, by the loop's clock."""
        return asyncio.get_running_loop().time() + self.timeouts.timeout_s

    async def _call(self, call: Callable[[], Awaitable[Given]]) -> Given:
        return await self._try(call, self._begin())

    def _begin(self) -> float:
        """Return the deadline of a call; raise `PeerError` if there is none to be made now."""
        if self.is_open:
            raise PeerError(f"peer {self.name!r} failed or was busy; its circuit is open")
        if asyncio.get_running_loop().time() >= DEADLINE_S.get():
            # Other peers took the time of the request: this one has not failed.
            raise PeerError(f"no time is left to ask peer {self.name!r}")
        return min(DEADLINE_S.get(), self.deadline_s())

    async def _try(self, call: Callable[[], Awaitable[Given]], deadline_s: float) -> Given:
        token = DEADLINE_S.set(deadline_s)
        try:
            async with asyncio.timeout_at(deadline_s):
                result = await call()
        except TimeoutError:
            raise self._failed("no answer in time") from None
        except PeerBusy as error:
            raise self._busy(error) from error
        except PeerDeclined as error:
            if self._declined.is_due():
                log.warning("peer %r declines messages of this site (%s)", self.name, error)
            raise self._failed(str(error)) from error
        except (CoveyError, OSError) as error:
            raise self._failed(str(error)) from error
        finally:
            DEADLINE_S.reset(token)
        self._succeed()
        return result

    def _checked(self, answer: Assistance) -> Assistance:
        """Return an answer; one that is not among the classes counts as none."""
        if answer.label is NO_ANSWER:
            return answer
        try:
            label = plain_label(answer.label)
        except DataError as error:
            raise self._failed(f"an invalid answer: {error}") from None
        if self._labels.has(label):
            return answer
        self.unfit += 1
        if self._unfit.is_due():
            log.warning(
                "peer %r answers with labels that are not %s; %d answers since the start",
                self.name,
                self._labels.wanted,
                self.unfit,
            )
        return msgspec.structs.replace(answer, label=NO_ANSWER)

    def _succeed(self) -> None:
        self._failures = self._openings = 0
        self._until_s = -math.inf
        if self._is_logged_open:
            log.info("peer %r: circuit closed", self.name)
            self._is_logged_open = False

    def _failed(self, reason: str) -> PeerError:
        self._failures += 1
        if self._failures >= self.timeouts.failures or self._openings:
            open_s = min(self.timeouts.most_open_s, self.timeouts.open_s * 2**self._openings)
            self._openings = min(self._openings + 1, 32)
            # Jitter keeps sites that lost the same peer from coming back all at once.
            pause_s = open_s * self._rng.uniform(0.5, 1.0)
            self._until_s = asyncio.get_running_loop().time() + pause_s
            self._log_open(reason)
        return PeerError(f"peer {self.name!r} gave {reason}")

    def _busy(self, error: PeerBusy) -> PeerBusy:
        """Open the circuit for as long as an overloaded peer asks for, within limits."""
        wait_s = min(max(error.wait_s, self.timeouts.open_s), self.timeouts.most_open_s)
        until_s = asyncio.get_running_loop().time() + wait_s
        self._busy_until_s = max(self._busy_until_s, until_s)
        self._log_open(error)
        return PeerBusy(f"peer {self.name!r} gave {error}", wait_s=wait_s)

    def _log_open(self, reason: object) -> None:
        if not self._is_logged_open and self._opened.is_due():
            log.warning("peer %r: circuit open (%s)", self.name, reason)
            self._is_logged_open = True


def guarded(
    peers: Mapping[str, Peer], timeouts: PeerTimeouts, rng: random.Random, labels: LabelSet = ANY
) -> dict[str, CircuitBreaker]:
    return {name: CircuitBreaker(name, peer, timeouts, rng, labels) for name, peer in peers.items()}


def peers_of(
    learner: Learner, peers: Mapping[str, Peer], voters: Sequence[str] = ()
) -> dict[str, Peer]:
    """Return the peers that a learner may ask, and those that vote with it."""
    asked: dict[str, Peer] = {}
    for peer in [*(peer for peer, _ in learner.behind()), *voters]:
        if peer not in peers:
            raise ConfigError(
                f"learner {learner.name!r} may ask {peer!r}, but there is no address for it"
            )
        asked[peer] = peers[peer]
    return asked


def checked_slot(slot: int) -> int:
    """Return a slot that a peer names; raise `DataError` if it is none."""
    if not 1 <= slot <= MOST_SLOTS:
        raise DataError(f"the slot is {slot}; it must lie from 1 to 2**53")
    return slot


class LabelDelivery:
    """Delivers labels to peers, one queue per peer; the store has them until they are delivered."""

    def __init__(
        self,
        peers: Mapping[str, CircuitBreaker],
        deliveries: Sequence[Delivery],
        rng: random.Random,
        mark_delivered: Callable[[Sequence[Delivery]], Awaitable[None]],
    ) -> None:
        """`mark_delivered` records durably that labels need no further delivery."""
        self._peers = peers
        self._rng = rng
        self._mark_delivered = mark_delivered
        self._queues: dict[str, deque[Delivery]] = {peer: deque() for peer in peers}
        self._arrived = {peer: asyncio.Event() for peer in peers}
        self._empty = asyncio.Event()
        self._empty.set()
        self._tasks: list[asyncio.Task[None]] = []
        self.refused = 0  # labels that a peer no longer waits for, or has otherwise
        # Alarms first: labels of earlier decisions change nothing after these.
        for delivery in sorted(deliveries, key=lambda each: not each.id.startswith(ALARM)):
            if delivery.peer in peers:  # else it stays in the store, should the peer come back
                self.add(delivery)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def undelivered(self, peer: str) -> int:
        """Return how many labels wait for a peer."""
        return len(self._queues.get(peer, ()))

    def start(self) -> None:
        """Begin to deliver, with one task per peer."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._deliver(peer)) for peer in self._peers]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def add(self, delivery: Delivery) -> None:
        """Queue a label that the store already has."""
        self._queues[delivery.peer].append(delivery)
        self._arrived[delivery.peer].set()
        self._empty.clear()

    async def drained(self) -> None:
        """Return when every label is delivered."""
        await self._empty.wait()

    async def _deliver(self, peer: str) -> None:
        loop, queue = asyncio.get_running_loop(), self._queues[peer]
        pause_s, since_s = FIRST_PAUSE_S, math.inf
        while True:
            await self._arrived[peer].wait()
            try:
                await self._deliver_some(peer, list(islice(queue, DELIVERY_ROWS)))
                pause_s, since_s = FIRST_PAUSE_S, math.inf
            except (PeerError, StoreFull) as error:
                if since_s == math.inf:
                    since_s = loop.time()
                    throttle = LogThrottle(NEXT_WARNING_S, since_s + FIRST_WARNING_S)
                if throttle.is_due():
                    line = "peer %r: %d labels undelivered for %.0f s (%s)"
                    log.warning(line, peer, len(queue), loop.time() - since_s, error)
                if isinstance(error, PeerBusy):
                    await asyncio.sleep(error.wait_s)
                else:
                    await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.0))
                    pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            except StoreError:
                return  # the node has stopped; its store still has the labels

    async def _deliver_some(self, peer: str, deliveries: Sequence[Delivery]) -> None:
        words = await self._peers[peer].deliver(
            [(delivery.id, delivery.label) for delivery in deliveries]
        )
        self.refused += sum(word not in (TAKEN, REPEATED) for word in words)
        await self._mark_delivered(deliveries)
        for _ in deliveries:
            self._queues[peer].popleft()
        if not self._queues[peer]:
            self._arrived[peer].clear()
        if not len(self):
            self._empty.set()


# -- late answers: they join the request that fell back to an own function ------------------------


async def late_label(answers: "asyncio.Task[list[Assistance]]") -> Label:
    """Return the label of a peer for one row, which is still on its way."""
    (answer,) = await answers
    if not answer.is_given:
        raise PeerError("the peer gave no label")
    return answer.label


class LateAnswers:
    """Waits for late answers, and joins them with their requests."""

    def __init__(self, state: StoredState) -> None:
        self._state = state
        self.joins: dict[int, asyncio.Task[None]] = {}  # by the number of the request
        self._throttle = LogThrottle()
        if state.lost_answers:
            log.warning(
                "%d late answers of peers were lost with the last stop; their labels change no "
                "counter of this site",
                state.lost_answers,
            )

    def watch(self, request: Request) -> None:
        """Join the answer of a busy peer with its request when it comes."""
        late = request.predictions[0]
        task = asyncio.get_running_loop().create_task(self._join(request, late))
        self.joins[request.number] = task

    async def settled(self, request: Request) -> None:
        """Return when no answer to a request is awaited: its label comes after that."""
        task = self.joins.get(request.number)
        if task is not None:
            await asyncio.shield(task)

    def stop(self) -> None:
        """Wait no longer; what has not come is lost."""
        for task in self.joins.values():
            task.cancel()

    async def _join(self, request: Request, late: Any) -> None:
        try:
            await asyncio.wait([late.handle])
            label = late.label()
            self._state.join_answer(request, label)
        except (CoveyError, OSError, TimeoutError, asyncio.CancelledError) as error:
            self._state.drop_answer(request)
            if isinstance(error, asyncio.CancelledError):
                raise
            if self._throttle.is_due():
                log.warning("a late answer never came (%s); its label is not counted", error)
        finally:
            late.handle.cancel()
            self.joins.pop(request.number, None)


# -- payments -------------------------------------------------------------------------------------
#
# With every question the asker says what it pays for each answered row, and the asked site stores
# that with its answer. A site counts by its own clock: an answer that it got when the request is
# recorded, and one that it gave likewise, in the same commit. So nothing is sent later, and no peer
# can change what another one counts.

DAY_S = 86_400
MOST_PRICE = 1_000 * MILLIONTHS  # of an answer, in millionths


class BudgetTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """`budget = { per-day = 5.0 }`: what the site may pay for answers in a day (UTC)."""

    per_day: float

    def millionths(self, where: str) -> int:
        """Return it in millionths; raise `ConfigError` if it is no amount."""
        if not 1 / MILLIONTHS <= self.per_day <= 1e9:
            raise ConfigError(
                f"{where} budget per-day is {self.per_day:g}; it must be above 0, at most 1e9"
            )
        return round(self.per_day * MILLIONTHS)


class Budgets(msgspec.Struct, frozen=True):
    """What a site may pay in a day (UTC), in millionths; without a limit it may pay anything."""

    peers: Mapping[str, int] = {}
    total: int | None = None
    askers: int = 1  # peers for which a relay pays: each has a part of half of a budget

    def limit(self, payee: str) -> float:
        """Return what may be paid to a site."""
        return min(self.peers.get(payee, math.inf), math.inf if self.total is None else self.total)


class PaymentCounters:
    """What each peer costs, was paid and paid by day, so that no budget is exceeded.

    What is about to be asked counts from the moment of the call, and no longer if there is no
    answer.
    """

    def __init__(
        self,
        learner: Learner,
        budgets: Budgets,
        clock: Callable[[], float],
        days: Iterable[DayPayments] = (),
        relays: Mapping[str, str] | None = None,
        serving_cost: float = 0.0,
    ) -> None:
        """`days` were counted in earlier starts; `clock` returns seconds since the epoch.

        `relays` are paid for answers of the peers that are asked through them; a budget is that of
        the site that is paid.
        """
        self._relays = dict(relays or {})
        self._serving_cost = round(serving_cost * MILLIONTHS)
        self._learner = learner
        self._costs: Sequence[float] = ()  # of the learner, when prices were last read
        self._prices: dict[tuple[str, bool], int] = {}
        self._least: dict[str, int] = {}
        self.budgets = budgets
        self._clock = clock
        self._days = {(day.is_ours, day.day, day.peer): day for day in days}
        self._running: Counter[str] = Counter()  # calls that have no answer yet
        # What was paid, or is to be, for a peer whose questions are forwarded; since the start.
        self.forwarded: Counter[tuple[int, str]] = Counter()  # by day and peer
        # Rows whose request is not recorded yet -> the site that is paid, and how much.
        self._answered: dict[str, tuple[str, int]] = {}

    @property
    def prices(self) -> dict[tuple[str, bool], int]:
        """What an answer of each peer costs now, in millionths: to data, or to its cell only."""
        if self._learner.costs is not self._costs:
            self._costs, self._prices = self._learner.costs, _in_millionths(self._learner)
            self._least = {}
            for (peer, _), price in self._prices.items():
                self._least[peer] = min(price, self._least.get(peer, price))
        return self._prices

    @property
    def _today(self) -> int:
        return int(self._clock()) // DAY_S

    def payee(self, peer: str) -> str:
        """Return which site is paid for answers of a peer: that peer, or its relay."""
        return self._relays.get(peer, peer)

    def spent(self, peer: str) -> int:
        """Return what the payee of a peer was paid today, or will be, in millionths."""
        payee = self.payee(peer)
        answered = sum(price for site, price in self._answered.values() if site == payee)
        today = self._days.get((True, self._today, payee))
        return (today.amount if today else 0) + self._running[payee] + answered

    def total(self) -> int:
        """Return what all peers were paid today, whatever they cost now."""
        today = self._today
        days = (day for is_ours, at, day in self._days if is_ours and at == today)
        paid = {peer for peer in days if peer not in NO_PEERS}
        return sum(map(self.spent, paid | {self.payee(peer) for peer, _ in self.prices}))

    def is_over(self, peer: str, cost: int | None = None) -> bool:
        """Return whether this cost would exceed a budget of today; None: that of a cheap answer."""
        if cost is None:
            cost = self._least.get(peer, 0) if self.prices else 0
        if not cost:
            return False
        limit, total = self.budgets.peers.get(self.payee(peer)), self.budgets.total
        is_over = limit is not None and self.spent(peer) + cost > limit
        return is_over or (total is not None and self.total() + cost > total)

    async def ask(
        self,
        peer: str,
        rows: Sequence[AskRow],
        call: Callable[[Sequence[AskRow]], Awaitable[list[Assistance]]],
    ) -> list[Assistance]:
        """Return the answers of a call to a peer; raise `PeerError` if they would cost too much."""
        price = self.prices.get((peer, rows[0].instance is NO_INSTANCE), 0)
        if price and self.is_over(peer, price * len(rows)):
            raise PeerError(f"the budget for peer {peer!r} is spent until tomorrow (UTC)")
        payee = self.payee(peer)
        self._running[payee] += price * len(rows)
        try:
            asked = [msgspec.structs.replace(row, price=price) for row in rows] if price else rows
            answers = await call(asked)
        finally:
            self._running[payee] -= price * len(rows)
        for row, answer in zip(rows, answers, strict=True):
            if answer.is_given:
                self._answered[row.id] = payee, price
        return answers

    @contextmanager
    def forwarding(self, peer: str, rows: Sequence[AskRow], asker: str) -> Iterator[None]:
        """Count what is paid for a question of another site, if its answers are to be paid for.

        Raises `PeerDeclined` if that site pays less than this one, and `PeerError` once its part
        of the budget is spent: what own clients need is not for others.
        """
        price = self.prices.get((peer, False), 0)
        if rows[0].price < price:
            raise PeerDeclined(
                f"{self._learner.name!r} pays {in_units(price):g} for an answer of {peer!r}, and "
                f"{asker!r} states {in_units(rows[0].price):g}; correct its price"
            )
        key, amount = (self._today, asker), price * len(rows)
        most = self.budgets.limit(self.payee(peer)) / 2 / self.budgets.askers
        if self.forwarded[key] + amount > most:
            raise PeerError(f"the part of {asker!r} of the budget is spent until tomorrow (UTC)")
        self.forwarded[key] += amount
        try:
            yield
        except BaseException:
            self.forwarded[key] -= amount
            raise

    def withdraw(self, id: str) -> None:
        """Forget an answer: its request failed, and it is not paid for."""
        self._answered.pop(id, None)

    def count(self, request: Request, rows: Sequence[int] | None = None) -> list[DayPayments]:
        """Count what answers to a request cost that is recorded now, or labels of its rows."""
        return self._paid(request) if rows is None else self._gained(request, rows)

    def _paid(self, request: Request) -> list[DayPayments]:
        prices: dict[str, list[int]] = {}
        for answer in request.peer_answers.values() if self._answered else ():
            if answer.id in self._answered:
                payee, price = self._answered.pop(answer.id)
                prices.setdefault(payee, []).append(price)
        if is_own(request.source) and any(group.price for group in request.groups):
            for row in range(len(request)):
                group = request.group(row)
                if group.price and not group.peer:
                    prices.setdefault(FUNCTIONS, []).append(round(group.price * MILLIONTHS))
        return [self._count(True, payee, len(each), sum(each)) for payee, each in prices.items()]

    def earned(self, request: Request) -> list[DayPayments]:
        """Count the answers to a request of a peer that is recorded now, and what they cost."""
        rows = sum(answer is not NO_ANSWER for answer in request.answers)
        if not rows:
            return []
        days = [self._count(False, request.source, rows, rows * request.price)]
        if self._serving_cost and request.groups[0].phase == "serve":
            days.append(self._count(True, SERVING, rows, rows * self._serving_cost))
        return days

    def _gained(self, request: Request, rows: Sequence[int]) -> list[DayPayments]:
        if not is_own(request.source):
            return []
        gain_of, unit = self._learner.gain_of, self._learner.unit
        gained = sum(gain_of(request.answers[row], request.truths[row]) for row in rows)
        return [self._count(False, LABELS, len(rows), gained * MILLIONTHS // unit)]

    def account(self) -> Account:
        """Return the account of all days."""
        rows: Counter[bool] = Counter()
        sums = dict.fromkeys(("paid", "earned", *NO_PEERS.values()), 0)
        for day in self._days.values():
            rows[day.is_ours] += day.rows * (day.peer not in NO_PEERS)
            sums[NO_PEERS.get(day.peer, "paid" if day.is_ours else "earned")] += day.amount
        units = {name: amount / MILLIONTHS for name, amount in sums.items()}
        return account_of(bought=rows[True], sold=rows[False], **units)

    def _count(self, is_ours: bool, peer: str, rows: int, amount: int) -> DayPayments:
        key = (is_ours, self._today, peer)
        before = self._days.get(key, DayPayments(*key))
        self._days[key] = DayPayments(
            *key, before.requests + 1, before.rows + rows, before.amount + amount
        )
        return self._days[key]

    def today(self, peer: str) -> tuple[float, float | None]:
        """Return what the answers of a peer cost today, and its budget (None: no limit)."""
        return self.spent(peer) / MILLIONTHS, in_units(self.budgets.peers.get(self.payee(peer)))


def _in_millionths(learner: Learner) -> dict[tuple[str, bool], int]:
    prices = _prices(learner).items()
    return {arm: round(price * MILLIONTHS) if price < math.inf else 0 for arm, price in prices}


def in_units(amount: int | None) -> float | None:
    """Return an amount of millionths in units of reward."""
    return None if amount is None else amount / MILLIONTHS


def prices_of(learner: Learner) -> dict[str, float]:
    """Return what an answer of each peer costs at most."""
    prices: dict[str, float] = {}
    for (peer, _), price in _prices(learner).items():
        prices[peer] = max(price, prices.get(peer, price))
    return prices


def _prices(learner: Learner) -> dict[tuple[str, bool], float]:
    behind = learner.behind()
    return dict(zip(behind, learner.costs[len(learner.arms) - len(behind) :], strict=True))


# -- status ---------------------------------------------------------------------------------------


def peer_states(
    breakers: Mapping[str, CircuitBreaker],
    others: Sequence[str],
    payments: PaymentCounters,
    deliveries: LabelDelivery,
    counters: Counters,
) -> list[PeerState]:
    """Return the state of the peers that are asked, and of others that may ask."""
    states = []
    for peer, breaker in breakers.items():
        state: Literal["open", "resting", "over_budget"] = "resting" if breaker.is_open else "open"
        if payments.is_over(peer):
            state = "over_budget"
        spent, budget = payments.today(peer)
        asked = counters.asked[peer]
        states.append(PeerState(peer, state, deliveries.undelivered(peer), asked, spent, budget))
    return states + [
        PeerState(peer, "not asked", deliveries.undelivered(peer), counters.asked[peer])
        for peer in others
    ]
