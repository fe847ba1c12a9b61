"""The client of a peer: messages out, responses in, over any transport."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from covey import letters
from covey.calls import Reply, read_refusal
from covey.errors import PeerBusy, PeerDeclined, PeerError
from covey.letters import MOST_DEADLINE_MS, MOST_ROWS, VERSION, AnyAnswer, Letter
from covey.neighbours import Neighbour
from covey.node.peers import DEADLINE_S
from covey.node.requests import AskRow, Assistance
from covey.types import Label, Report

# Posts the bytes of a message to a path and returns the response. Failures are `CoveyError`s.
Post = Callable[[str, bytes], Awaitable[Reply]]
BUSY = ("too_often", "busy")  # codes of a peer that is overloaded
LATE = ("deadline_over", "too_slow")  # codes of a peer that got the message too late
USUAL_WAIT_S = 1.0  # if Retry-After is missing or cannot be read


class Correspondent:
    """A neighbour as a `Peer`: it is sent no more than it may see."""

    def __init__(self, neighbour: Neighbour, post: Post, chance: random.Random) -> None:
        self._neighbour = neighbour
        self._post = post
        self._chance = chance

    async def ask(self, requests: Sequence[AskRow]) -> list[Assistance]:
        """Return a label for each instance, or for a cell alone."""
        given: list[Assistance] = []
        for start in range(0, len(requests), MOST_ROWS):
            shown = self._neighbour.shows(requests[start : start + MOST_ROWS])
            letter = letters.ask(shown, request=self._new_id(), deadline_ms=_left_ms())
            given += letters.helps_of(await self._send("ask", letter, letters.Helped))
        return given

    async def report(self, cell: str, slot: int) -> Report:
        """Return the arrivals in a cell, and between which bounds the best accuracy lies."""
        letter = letters.Report(
            version=VERSION,
            request=self._new_id(),
            deadline_ms=_left_ms(),
            cell=cell,
            slot=slot,
        )
        told = await self._send("report", letter, letters.Reported)
        return told.arrivals, told.low, told.high

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        """Return how accurate answers in a cell would be, and by how many labels."""
        letter = letters.Estimate(
            version=VERSION,
            request=self._new_id(),
            deadline_ms=_left_ms(),
            cell=cell,
            slot=slot,
            is_by_context=is_by_context,
        )
        told = await self._send("estimate", letter, letters.Estimated)
        return told.accuracy, told.labels

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        """Say true labels; return what became of each."""
        letter = letters.told(labels, request=self._new_id(), deadline_ms=_left_ms())
        return letters.words_of(await self._send("labels", letter, letters.Outcomes))

    async def hello(self) -> letters.Greeting:
        """Return who is there; raise `PeerError` if it is somebody else."""
        letter = letters.Hello(version=VERSION, request=self._new_id(), deadline_ms=_left_ms())
        greeting = await self._send("hello", letter, letters.Greeting)
        if greeting.name != self._neighbour.name:
            raise PeerError(f"the greeting of {greeting.name!r}")
        return greeting

    async def _send(self, call: str, letter: Letter, kind: type[AnyAnswer]) -> AnyAnswer:
        reply = await self._post(f"{letters.ROOT}/{call}", letters.write(letter))
        if reply.status != 200:
            raise _refused(reply, *read_refusal(reply.body))
        return letters.read_answer(reply.body, kind, letter)

    def _new_id(self) -> str:
        return f"{self._chance.getrandbits(64):016x}"


def _left_ms() -> int:
    """Return for how long whoever asks will still wait."""
    left_s = DEADLINE_S.get() - asyncio.get_running_loop().time()
    if left_s <= 0:
        raise PeerError("no time to answer")
    return (
        MOST_DEADLINE_MS if math.isinf(left_s) else min(MOST_DEADLINE_MS, math.ceil(1e3 * left_s))
    )


def _refused(reply: Reply, code: str, detail: str) -> PeerError:
    said = f"status {reply.status} ({code})" if code else f"status {reply.status}"
    if code in BUSY:
        return PeerBusy(said, wait_s=_wait_s(reply.headers))
    if 400 <= reply.status < 500 and code not in LATE:
        return PeerDeclined(f"{said}: {detail}" if code and detail else said)
    return PeerError(said)


def _wait_s(headers: Mapping[str, str]) -> float:
    """Return after how many seconds a peer asks to retry."""
    said = headers.get("Retry-After", "")
    return float(said) if said.isascii() and said.isdecimal() else USUAL_WAIT_S
