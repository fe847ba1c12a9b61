"""Whom a node may ask: the seam behind which another site stands, and what guards it."""

import asyncio
import logging
import math
import random
import reprlib
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

import msgspec

from covey.batches import MOST_WHOLE, plain_label
from covey.decisions import NO_ANSWER, Settlement
from covey.errors import (
    ConflictingLabel,
    CoveyError,
    DataError,
    LateLabel,
    PeerBusy,
    PeerDeclined,
    PeerError,
    UnfitLabel,
    UnknownTicket,
)
from covey.rates import Seldom
from covey.types import Label, Report

log = logging.getLogger(__name__)
Given = TypeVar("Given")
NO_INSTANCE = msgspec.UNSET
MOST_ARRIVALS = MOST_WHOLE
# What becomes of a label that a peer is told; the first two say that it has it.
TAKEN, REPEATED, LATE, UNKNOWN, CONFLICT = "taken", "repeated", "late", "unknown", "conflict"
UNFIT = "unfit"
OUTCOMES = (TAKEN, REPEATED, LATE, UNKNOWN, CONFLICT, UNFIT)
# What the log says of a peer, each at most once a minute.
ALONE = "peer %r is left alone for a while: it gave %s"
DECLINED = "peer %r will not take letters of this site: it gave %s"
# Until when whoever asks waits, by the loop's clock: a way to a peer may let it know.
DEADLINE_S: ContextVar[float] = ContextVar("DEADLINE_S", default=math.inf)


class Request(msgspec.Struct, frozen=True):
    """A question to a peer; the id makes asking twice the same as asking once."""

    id: str
    cell: str
    slot: int
    instance: Any = NO_INSTANCE  # left out: the peer is shown the cell and never the instance


class Help(msgspec.Struct, frozen=True):
    """What a peer answers; the true label is delivered under the id of the request."""

    label: Label
    function: str
    width: int = 0  # where helpers say so: how far it may be from their best, in millionths


class Peer(Protocol):
    """Another site. Whatever goes wrong on the way is an `OSError` or a `PeerError`."""

    async def ask(self, requests: Sequence[Request]) -> list[Help]:
        """Return a label for each instance, or for a cell alone; a batch is one request."""

    async def report(self, cell: str, slot: int) -> Report:
        """Return the arrivals in a cell, and between which bounds the best accuracy lies."""

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        """Return how accurate answers in a cell would be, and by how many labels."""

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        """Say the true labels of requests by their ids; return which of `OUTCOMES` each had."""


async def outcome(settling: Awaitable[Settlement]) -> str:
    """Return what became of a label that somebody else said."""
    try:
        settlement = await settling
    except LateLabel:
        return LATE
    except UnknownTicket:
        return UNKNOWN
    except ConflictingLabel:
        return CONFLICT
    except UnfitLabel:
        return UNFIT
    return TAKEN if settlement.is_new else REPEATED


class Patience(msgspec.Struct, frozen=True):
    """How long a node waits for a peer, and when it stops asking for a while."""

    timeout_s: float = 1.0
    failures: int = 3  # in a row, after which the peer is left alone
    rest_s: float = 1.0  # the first time; then twice as long, and so on
    most_rest_s: float = 60.0


class Guard:
    """A peer behind a deadline and a breaker; whatever goes wrong is a `PeerError`."""

    def __init__(self, name: str, peer: Peer, patience: Patience, chance: random.Random) -> None:
        self.name = name
        self._peer = peer
        self._patience = patience
        self._chance = chance
        self._failures = 0
        self._rests = 0
        self._until_s = self._busy_until_s = -math.inf
        self._is_said_alone = False
        self._lines = {line: Seldom() for line in (ALONE, DECLINED)}

    @property
    def is_resting(self) -> bool:
        """Whether the peer failed too often, or is too busy, and is left alone for now."""
        return asyncio.get_running_loop().time() < max(self._until_s, self._busy_until_s)

    async def ask(self, requests: Sequence[Request], deadline_s: float) -> list[Help]:
        """Ask for labels."""
        given = await self._call(lambda: self._peer.ask(requests), deadline_s)
        if len(given) != len(requests):
            raise self._failed(f"{len(given)} answers to {len(requests)} questions")
        for helped in given:
            self._check_help(helped)
        return given

    async def report(self, cell: str, slot: int, deadline_s: float) -> Report:
        """Ask for the arrivals in a cell."""
        arrivals, low, high = await self._call(lambda: self._peer.report(cell, slot), deadline_s)
        if type(arrivals) is not int or not 0 <= arrivals < MOST_ARRIVALS:
            raise self._failed(f"{arrivals!r} arrivals")
        if not low <= high:  # bounds may lie beyond 0 and 1, but must be numbers
            raise self._failed(f"an accuracy between {low!r} and {high!r}")
        return arrivals, low, high

    async def estimate(
        self, cell: str, slot: int, deadline_s: float, *, is_by_context: bool
    ) -> tuple[float, int]:
        """Ask how accurate answers would be."""
        accuracy, labels = await self._call(
            lambda: self._peer.estimate(cell, slot, is_by_context=is_by_context), deadline_s
        )
        if not 0.0 <= accuracy <= 1.0 or not 0 <= labels < MOST_ARRIVALS:
            raise self._failed(f"an accuracy of {accuracy!r} by {labels!r} labels")
        return accuracy, labels

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        """Say true labels; a peer that rests is tried all the same, as its labels wait."""
        said = await self._try(lambda: self._peer.deliver(labels), self.deadline_s())
        if len(said) != len(labels) or not set(said) <= set(OUTCOMES):
            raise self._failed(f"{reprlib.repr(said)} for {len(labels)} labels")
        return said

    def deadline_s(self) -> float:
        """Return until when a peer that is asked now is waited for, by the loop's clock."""
        return asyncio.get_running_loop().time() + self._patience.timeout_s

    async def _call(self, call: Callable[[], Awaitable[Given]], deadline_s: float) -> Given:
        if self.is_resting:
            raise PeerError(f"peer {self.name!r} failed or was busy, and is left alone for now")
        return await self._try(call, deadline_s)

    async def _try(self, call: Callable[[], Awaitable[Given]], deadline_s: float) -> Given:
        waits = DEADLINE_S.set(deadline_s)
        try:
            async with asyncio.timeout_at(deadline_s):
                given = await call()
        except TimeoutError:
            raise self._failed("nothing in time") from None
        except PeerBusy as error:
            raise self._busy(error) from error
        except PeerDeclined as error:
            self._say(DECLINED, str(error))
            raise self._failed(str(error)) from error
        except (CoveyError, OSError) as error:
            raise self._failed(str(error)) from error
        finally:
            DEADLINE_S.reset(waits)
        self._succeed()
        return given

    def _check_help(self, helped: Help) -> None:
        if helped.label is not NO_ANSWER:
            try:
                plain_label(helped.label)
            except DataError as error:
                raise self._failed(f"something else: {error}") from None
        if not isinstance(helped.width, int) or not 0 <= helped.width <= 1_000_000:
            raise self._failed(f"a width of {helped.width!r}")

    def _succeed(self) -> None:
        self._failures = self._rests = 0
        self._until_s = -math.inf
        if self._is_said_alone:
            log.info("peer %r is back", self.name)
            self._is_said_alone = False

    def _failed(self, said: str) -> PeerError:
        self._failures += 1
        if self._failures >= self._patience.failures or self._rests:
            rest_s = min(self._patience.most_rest_s, self._patience.rest_s * 2**self._rests)
            self._rests = min(self._rests + 1, 32)
            # Jitter keeps nodes that lost the same peer from coming back all at once.
            pause_s = rest_s * self._chance.uniform(0.5, 1.0)
            self._until_s = asyncio.get_running_loop().time() + pause_s
            self._leave_alone(said)
        return PeerError(f"peer {self.name!r} gave {said}")

    def _busy(self, error: PeerBusy) -> PeerBusy:
        """Leave a peer alone that has not failed, for as long as it says, within reason."""
        low_s, high_s = self._patience.rest_s, self._patience.most_rest_s
        wait_s = min(max(error.wait_s, low_s), high_s)
        until_s = asyncio.get_running_loop().time() + wait_s
        self._busy_until_s = max(self._busy_until_s, until_s)
        self._leave_alone(str(error))
        return PeerBusy(f"peer {self.name!r} gave {error}", wait_s=wait_s)

    def _leave_alone(self, said: str) -> None:
        if not self._is_said_alone:
            self._is_said_alone = self._say(ALONE, said)

    def _say(self, line: str, said: str) -> bool:
        """Write a line to the log, unless it was not long ago; return whether it was written."""
        is_due = self._lines[line].is_due(asyncio.get_running_loop().time())
        if is_due:
            log.warning(line, self.name, said)
        return is_due
