"""Peers of a site: the seam to another site, its circuit breaker, and the delivery of labels."""

import asyncio
import logging
import math
import random
import reprlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import Protocol, TypeVar

import msgspec

from covey.bandit.learner import NO_ANSWER, Learner
from covey.data.inputs import MOST_WHOLE, plain_label
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
from covey.kernel.rules import Report
from covey.node.requests import AskRow, Assistance, Delivery
from covey.types import Label

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
DELIVERY_ROWS = 256  # labels in one message
FIRST_WARNING_S, NEXT_WARNING_S = 60.0, 600.0  # for labels that cannot be delivered


class Peer(Protocol):
    """Another site. Every failure is an `OSError` or a `PeerError`."""

    async def ask(self, rows: Sequence[AskRow]) -> list[Assistance]:
        """Return a label for each row."""

    async def report(self, cell: str, slot: int) -> Report:
        """Return the arrivals in a cell, and bounds of the best accuracy."""

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        """Return the accuracy of answers in a cell, and the number of labels behind it."""

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        """Deliver true labels by row id; return one of `OUTCOMES` for each."""


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

    def __init__(self, name: str, peer: Peer, timeouts: PeerTimeouts, rng: random.Random) -> None:
        self.name = name
        self._peer = peer
        self._timeouts = timeouts
        self._rng = rng
        self._failures = 0
        self._openings = 0
        self._until_s = self._busy_until_s = -math.inf
        self._is_logged_open = False
        self._opened, self._declined = LogThrottle(), LogThrottle()

    @property
    def is_open(self) -> bool:
        """Whether the peer failed too often or is overloaded, and is not asked for now."""
        return asyncio.get_running_loop().time() < max(self._until_s, self._busy_until_s)

    async def ask(self, rows: Sequence[AskRow]) -> list[Assistance]:
        answers = await self._call(lambda: self._peer.ask(rows))
        if len(answers) != len(rows):
            raise self._failed(f"{len(answers)} answers to {len(rows)} rows")
        for one in answers:
            self._check_answer(one)
        return answers

    async def ask_patiently(
        self, rows: Sequence[AskRow]
    ) -> "list[Assistance] | asyncio.Task[list[Assistance]]":
        """Ask; if there is no answer in time, return the task that waits on for it."""
        if self.is_open:
            raise PeerError(f"peer {self.name!r} failed or was busy; its circuit is open")
        deadline_s = min(DEADLINE_S.get(), self.deadline_s())
        until_s = deadline_s + self._timeouts.late_s
        task = asyncio.get_running_loop().create_task(self._ask_until(rows, until_s))
        try:
            return await self._try(lambda: asyncio.shield(task), deadline_s)
        except PeerError:
            if task.done():
                raise
            return task
        except BaseException:
            task.cancel()
            raise

    async def _ask_until(self, rows: Sequence[AskRow], until_s: float) -> list[Assistance]:
        DEADLINE_S.set(until_s)
        async with asyncio.timeout_at(until_s):
            answers = await self._peer.ask(rows)
        if len(answers) != len(rows):
            raise PeerError(f"peer {self.name!r} gave {len(answers)} answers to {len(rows)} rows")
        for one in answers:
            self._check_answer(one)
        return answers

    @property
    def is_patient(self) -> bool:
        """Whether answers may come after the timeout."""
        return self._timeouts.late_s > 0

    async def report(self, cell: str, slot: int) -> Report:
        arrivals, low, high = await self._call(lambda: self._peer.report(cell, slot))
        if type(arrivals) is not int or not 0 <= arrivals < MOST_WHOLE:
            raise self._failed(f"{arrivals!r} arrivals")
        # Without labels they are infinite; but none is above all accuracies, or below them.
        if not (low <= high and low <= 1.0 and high >= 0.0):
            raise self._failed(f"an accuracy between {low!r} and {high!r}")
        return arrivals, low, high

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        accuracy, labels = await self._call(
            lambda: self._peer.estimate(cell, slot, is_by_context=is_by_context)
        )
        if not 0.0 <= accuracy <= 1.0 or not 0 <= labels < MOST_WHOLE:
            raise self._failed(f"an accuracy of {accuracy!r} by {labels!r} labels")
        return accuracy, labels

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        """Deliver true labels; an open circuit does not stop that, as the labels wait."""
        words = await self._try(lambda: self._peer.deliver(labels), self.deadline_s())
        if len(words) != len(labels) or not set(words) <= set(OUTCOMES):
            raise self._failed(f"{reprlib.repr(words)} for {len(labels)} labels")
        return words

    def deadline_s(self) -> float:
        """Return the deadline of a call that begins now, by the loop's clock."""
        return asyncio.get_running_loop().time() + self._timeouts.timeout_s

    async def _call(self, call: Callable[[], Awaitable[Given]]) -> Given:
        if self.is_open:
            raise PeerError(f"peer {self.name!r} failed or was busy; its circuit is open")
        return await self._try(call, min(DEADLINE_S.get(), self.deadline_s()))

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

    def _check_answer(self, answer: Assistance) -> None:
        if answer.label is not NO_ANSWER:
            try:
                plain_label(answer.label)
            except DataError as error:
                raise self._failed(f"an invalid answer: {error}") from None
        if not isinstance(answer.width, int) or not 0 <= answer.width <= 1_000_000:
            raise self._failed(f"a width of {answer.width!r}")

    def _succeed(self) -> None:
        self._failures = self._openings = 0
        self._until_s = -math.inf
        if self._is_logged_open:
            log.info("peer %r: circuit closed", self.name)
            self._is_logged_open = False

    def _failed(self, reason: str) -> PeerError:
        self._failures += 1
        if self._failures >= self._timeouts.failures or self._openings:
            open_s = min(self._timeouts.most_open_s, self._timeouts.open_s * 2**self._openings)
            self._openings = min(self._openings + 1, 32)
            # Jitter keeps sites that lost the same peer from coming back all at once.
            pause_s = open_s * self._rng.uniform(0.5, 1.0)
            self._until_s = asyncio.get_running_loop().time() + pause_s
            self._log_open(reason)
        return PeerError(f"peer {self.name!r} gave {reason}")

    def _busy(self, error: PeerBusy) -> PeerBusy:
        """Open the circuit for as long as an overloaded peer asks for, within limits."""
        wait_s = min(max(error.wait_s, self._timeouts.open_s), self._timeouts.most_open_s)
        until_s = asyncio.get_running_loop().time() + wait_s
        self._busy_until_s = max(self._busy_until_s, until_s)
        self._log_open(error)
        return PeerBusy(f"peer {self.name!r} gave {error}", wait_s=wait_s)

    def _log_open(self, reason: object) -> None:
        if not self._is_logged_open and self._opened.is_due():
            log.warning("peer %r: circuit open (%s)", self.name, reason)
            self._is_logged_open = True


def guarded(
    peers: Mapping[str, Peer], timeouts: PeerTimeouts, rng: random.Random
) -> dict[str, CircuitBreaker]:
    """Return peers, each with a circuit breaker."""
    return {name: CircuitBreaker(name, one, timeouts, rng) for name, one in peers.items()}


def peers_of(
    learner: Learner, peers: Mapping[str, Peer], voters: Sequence[str] = ()
) -> dict[str, Peer]:
    """Return the peers that a learner may ask, and those that vote with it."""
    found: dict[str, Peer] = {}
    for peer in [*(peer for peer, _ in learner.behind()), *voters]:
        if peer in found:
            raise ConfigError(
                f"learner {learner.name!r} has {peer!r} in peers and in context-peers; a node "
                "takes one of them"
            )
        if peer not in peers:
            raise ConfigError(
                f"learner {learner.name!r} may ask {peer!r}, but there is no address for it"
            )
        found[peer] = peers[peer]
    return found


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
        for one in deliveries:
            if one.peer in peers:  # else it stays in the store, should the peer come back
                self.add(one)

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
        pause_s, delay, queue = FIRST_PAUSE_S, None, self._queues[peer]
        while True:
            await self._arrived[peer].wait()
            try:
                await self._deliver_some(peer, list(islice(queue, DELIVERY_ROWS)))
                pause_s, delay = FIRST_PAUSE_S, None
            except (PeerError, StoreFull) as error:
                delay = _Delay(peer) if delay is None else delay
                delay.warn(len(queue), error)
                if isinstance(error, PeerBusy):
                    await asyncio.sleep(error.wait_s)
                else:
                    await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.0))
                    pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            except StoreError:
                return  # the node has stopped; its store still has the labels

    async def _deliver_some(self, peer: str, deliveries: Sequence[Delivery]) -> None:
        words = await self._peers[peer].deliver([(one.id, one.label) for one in deliveries])
        self.refused += sum(word not in (TAKEN, REPEATED) for word in words)
        await self._mark_delivered(deliveries)
        for _ in deliveries:
            self._queues[peer].popleft()
        if not self._queues[peer]:
            self._arrived[peer].clear()
        if not len(self):
            self._empty.set()


class _Delay:
    """Logs labels that cannot be delivered for long: after a minute, then every ten."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._since_s = asyncio.get_running_loop().time()
        self._throttle = LogThrottle(NEXT_WARNING_S, self._since_s + FIRST_WARNING_S)

    def warn(self, labels: int, error: CoveyError) -> None:
        if self._throttle.is_due():
            waited_s = asyncio.get_running_loop().time() - self._since_s
            line = "peer %r: %d labels undelivered for %.0f s (%s)"
            log.warning(line, self._peer, labels, waited_s, error)
