"""What a site pays its peers for answers: budgets per day, and statements of it to the peers.

An answer is paid for when it has arrived and its request is recorded, in the same commit. The payer
then states the payment to the peer, which records it if it gave that answer: so both ends have the
same lines, whatever was refused, came late or was lost in a crash.
"""

import asyncio
import logging
import math
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from covey.bandit.learner import Learner
from covey.errors import ConfigError, CoveyError, PeerError, StoreError, StoreFull
from covey.node.peers import DEADLINE_S, TAKEN, UNKNOWN_ID, LogThrottle
from covey.node.requests import AskRow, Assistance, Payment, Request
from covey.node.store import Store
from covey.types import MILLIONTHS

log = logging.getLogger(__name__)
DAY_S = 86_400
STATED_AT_ONCE = 64  # payments in one message
TIMEOUT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 600.0  # a peer of an earlier version takes no statements


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


class PaymentLedger:
    """What each peer costs and was paid today, so that no budget is exceeded.

    What is about to be asked counts from the moment of the call, and no longer if there is no
    answer.
    """

    def __init__(
        self,
        prices: Mapping[str, float],
        budgets: Budgets,
        clock: Callable[[], float],
        paid: Iterable[Payment] = (),
        relays: Mapping[str, str] | None = None,
    ) -> None:
        """`prices` are those of an answer of each peer; `paid` was paid in earlier starts.

        `clock` returns seconds since the epoch. `relays` are paid for answers of the peers that
        are asked through them; a budget is that of the site that is paid.
        """
        self._relays = dict(relays or {})
        self._learner: Learner | None = None  # whose prices are followed
        self._costs: Sequence[float] = ()  # of the learner, when prices were last read
        self._prices = _in_millionths(prices)
        self.budgets = budgets
        self._clock = clock
        self._paid: Counter[tuple[int, str]] = Counter()  # by day and peer
        self._running: Counter[str] = Counter()  # calls that have no answer yet
        # Rows whose request is not recorded yet -> the site that is paid, and how much.
        self._answered: dict[str, tuple[str, int]] = {}
        for one in paid:
            self._paid[one.at_ms // (1_000 * DAY_S), one.peer] += one.amount

    @classmethod
    def load(
        cls,
        store: Store,
        learner: Learner,
        budgets: Budgets,
        clock: Callable[[], float],
        relays: Mapping[str, str] | None = None,
    ) -> "PaymentLedger":
        """Return the ledger of a learner whose payments are in a store."""
        since_ms = int(1e3 * (clock() - 2 * DAY_S))  # the clock may have been set back since
        paid = store.payments(since_ms, is_ours=True)
        ledger = cls({}, budgets, clock, paid, relays)
        ledger._learner = learner
        return ledger

    @property
    def prices(self) -> dict[str, int]:
        """What an answer of each peer costs now, in millionths, without those that are free."""
        learner = self._learner
        if learner is not None and learner.costs is not self._costs:
            self._costs, self._prices = learner.costs, _in_millionths(prices_of(learner))
        return self._prices

    def payee(self, peer: str) -> str:
        """Return which site is paid for answers of a peer: that peer, or its relay."""
        return self._relays.get(peer, peer)

    def spent(self, peer: str) -> int:
        """Return what the payee of a peer was paid today, or will be, in millionths."""
        payee = self.payee(peer)
        answered = sum(price for one, price in self._answered.values() if one == payee)
        return self._paid[int(self._clock()) // DAY_S, payee] + self._running[payee] + answered

    def total(self) -> int:
        """Return what all peers were paid today."""
        today = int(self._clock()) // DAY_S
        paid = {peer for day, peer in self._paid if day == today}  # whatever they cost now
        return sum(map(self.spent, paid | {self.payee(peer) for peer in self.prices}))

    def is_over(self, peer: str, rows: int = 1) -> bool:
        """Return whether answers to so many rows would exceed a budget of today."""
        cost = rows * self.prices.get(peer, 0)
        if not cost:
            return False
        limit, total = self.budgets.peers.get(self.payee(peer)), self.budgets.total
        is_over = limit is not None and self.spent(peer) + cost > limit
        return is_over or (total is not None and self.total() + cost > total)

    async def ask(
        self, peer: str, rows: Sequence[AskRow], call: Callable[[], Awaitable[list[Assistance]]]
    ) -> list[Assistance]:
        """Return the answers of a call to a peer; raise `PeerError` if they would cost too much."""
        price = self.prices.get(peer, 0)
        if not price:
            return await call()
        if self.is_over(peer, len(rows)):
            raise PeerError(f"the budget for peer {peer!r} is spent until tomorrow (UTC)")
        payee = self.payee(peer)
        self._running[payee] += price * len(rows)
        try:
            answers = await call()
        finally:
            self._running[payee] -= price * len(rows)
        for row, answer in zip(rows, answers, strict=True):
            if answer.is_given:
                self._answered[row.id] = payee, price
        return answers

    def withdraw(self, id: str) -> None:
        """Forget an answer: its request failed, and it is not paid for."""
        self._answered.pop(id, None)

    def settle(self, request: Request) -> list[Payment]:
        """Return the payments of a request that is recorded now, one per payee."""
        return self.settle_rows(answer.id for answer in request.peer_answers.values())

    def settle_rows(self, ids: Iterable[str]) -> list[Payment]:
        """Return the payments of answers that are recorded now, by the ids of their rows."""
        if not self._answered:
            return []
        rows: dict[str, list[tuple[str, int]]] = {}
        for id_ in ids:
            owed = self._answered.pop(id_, None)
            if owed is not None:
                rows.setdefault(owed[0], []).append((id_, owed[1]))
        at_ms = int(1e3 * self._clock())
        paid = [
            Payment(payee, True, own[0][0], at_ms, len(own), sum(price for _, price in own))
            for payee, own in rows.items()
        ]
        for one in paid:
            self._paid[at_ms // (1_000 * DAY_S), one.peer] += one.amount
        return paid

    def today(self, peer: str) -> tuple[float, float | None]:
        """Return what the answers of a peer cost today, and its budget (None: no limit)."""
        return self.spent(peer) / MILLIONTHS, in_units(self.budgets.peers.get(self.payee(peer)))


def _in_millionths(prices: Mapping[str, float]) -> dict[str, int]:
    return {
        peer: round(price * MILLIONTHS) for peer, price in prices.items() if 0 < price < math.inf
    }


def in_units(amount: int | None) -> float | None:
    """Return an amount of millionths in units of reward."""
    return None if amount is None else amount / MILLIONTHS


def prices_of(learner: Learner) -> dict[str, float]:
    """Return what an answer of each peer costs."""
    behind = learner.behind()
    costs = learner.costs[len(learner.arms) - len(behind) :]
    return {peer: cost for (peer, _), cost in zip(behind, costs, strict=True)}


class Payee(Protocol):
    """A peer that is paid. Every failure is an `OSError` or a `CoveyError`."""

    async def state(self, payments: Sequence[Payment]) -> list[str]:
        """State payments; return `taken` or `unknown` for each."""


class PaymentDelivery:
    """States payments to peers, again and again until each has them."""

    def __init__(
        self,
        payees: Mapping[str, Payee],
        unstated: Iterable[Payment],
        rng: random.Random,
        mark_stated: Callable[[Sequence[Payment]], Awaitable[None]],
    ) -> None:
        """`mark_stated` records durably that payments need not be stated again."""
        self._payees = payees
        self._rng = rng
        self._mark_stated = mark_stated
        self._queues: dict[str, deque[Payment]] = {peer: deque() for peer in payees}
        self._arrived = {peer: asyncio.Event() for peer in payees}
        self._tasks: list[asyncio.Task[None]] = []
        self._refused = LogThrottle()
        self.add(unstated)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, payments: Iterable[Payment]) -> None:
        """Queue payments that the store already has."""
        for one in payments:
            if one.is_ours and one.peer in self._queues:
                self._queues[one.peer].append(one)
                self._arrived[one.peer].set()

    def start(self) -> None:
        """Begin to state payments, with one task per peer."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._state(peer)) for peer in self._payees]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _state(self, peer: str) -> None:
        queue, pause_s = self._queues[peer], FIRST_PAUSE_S
        while True:
            await self._arrived[peer].wait()
            try:
                await self._state_some(peer, list(islice(queue, STATED_AT_ONCE)))
                pause_s = FIRST_PAUSE_S
            except (PeerError, StoreFull, TimeoutError, ConnectionError) as error:
                log.debug("peer %r: %d payments are not stated yet (%s)", peer, len(queue), error)
                await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.0))
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            except StoreError:
                return  # the node has stopped; its store still has them
            except CoveyError as error:  # such as a host that is unknown now
                log.debug("peer %r: payments are not stated (%s)", peer, error)
                await asyncio.sleep(LONGEST_PAUSE_S)

    async def _state_some(self, peer: str, payments: Sequence[Payment]) -> None:
        deadline_s = asyncio.get_running_loop().time() + TIMEOUT_S
        token = DEADLINE_S.set(deadline_s)
        try:
            async with asyncio.timeout_at(deadline_s):
                words = await self._payees[peer].state(payments)
        finally:
            DEADLINE_S.reset(token)
        if len(words) != len(payments) or not set(words) <= {TAKEN, UNKNOWN_ID}:
            raise PeerError(f"peer {peer!r} gave {len(words)} words for {len(payments)} payments")
        unknown = words.count(UNKNOWN_ID)
        if unknown and self._refused.is_due():
            log.warning("peer %r does not know %d answers that it is paid for", peer, unknown)
        await self._mark_stated(payments)
        for _ in payments:
            self._queues[peer].popleft()
        if not self._queues[peer]:
            self._arrived[peer].clear()
