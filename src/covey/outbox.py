"""Labels on their way to the peers that were asked: tried again until they are taken."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice

from covey.errors import CoveyError, PeerBusy, PeerError, StoreError, StoreFull
from covey.peers import REPEATED, TAKEN, Guard
from covey.records import Owed

log = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
AT_ONCE = 256  # labels in one request
LONG_S, LONGER_S = 60.0, 600.0  # after which it is said that labels wait, and then again


class Outbox:
    """One queue per peer, in memory; the store has the same labels until they are told."""

    def __init__(
        self,
        guards: Mapping[str, Guard],
        owed: Sequence[Owed],
        chance: random.Random,
        tell: Callable[[Sequence[Owed]], Awaitable[None]],
    ) -> None:
        """`tell` notes for good that labels are owed no longer."""
        self._guards = guards
        self._chance = chance
        self._tell = tell
        self._queues: dict[str, deque[Owed]] = {peer: deque() for peer in guards}
        self._news = {peer: asyncio.Event() for peer in guards}
        self._empty = asyncio.Event()
        self._empty.set()
        self._tasks: list[asyncio.Task[None]] = []
        self.refused = 0  # labels that a peer did not wait for any longer, or had otherwise
        for one in owed:
            if one.peer in guards:  # else it stays in the store, should the peer come back
                self.add(one)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def owed(self, peer: str) -> int:
        """Return how many labels a peer is still to be told."""
        return len(self._queues[peer])

    def start(self) -> None:
        """Begin to deliver, to every peer on its own."""
        self._tasks = [
            asyncio.get_running_loop().create_task(self._deliver(peer)) for peer in self._guards
        ]

    def stop(self) -> None:
        """Deliver no more."""
        for task in self._tasks:
            task.cancel()

    def add(self, owed: Owed) -> None:
        """Take a label that the store has already."""
        self._queues[owed.peer].append(owed)
        self._news[owed.peer].set()
        self._empty.clear()

    async def drained(self) -> None:
        """Return when nothing is owed."""
        await self._empty.wait()

    async def _deliver(self, peer: str) -> None:
        pause_s = FIRST_PAUSE_S
        queue, delay = self._queues[peer], _Delay()
        while True:
            await self._news[peer].wait()
            try:
                await self._deliver_some(peer, list(islice(queue, AT_ONCE)))
                pause_s, delay = FIRST_PAUSE_S, _Delay()
            except PeerBusy as busy:
                delay.note(len(queue), busy)
                await asyncio.sleep(busy.wait_s)
            except (PeerError, StoreFull) as error:
                delay.note(len(queue), error)
                await asyncio.sleep(pause_s * self._chance.uniform(0.5, 1.0))
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            except StoreError:
                return  # the node has stopped; the labels are still in its store

    async def _deliver_some(self, peer: str, owed: Sequence[Owed]) -> None:
        said = await self._guards[peer].deliver([(one.id, one.label) for one in owed])
        self.refused += sum(word not in (TAKEN, REPEATED) for word in said)
        await self._tell(owed)
        for _ in owed:
            self._queues[peer].popleft()
        if not self._queues[peer]:
            self._news[peer].clear()
        if not len(self):
            self._empty.set()


class _Delay:
    """Since when labels cannot be delivered; says so when that is long, and then now and then."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._next_s = LONG_S

    def note(self, owed: int, why: CoveyError) -> None:
        """Note that labels could not be delivered."""
        now_s = asyncio.get_running_loop().time()
        if self._since_s is None:
            self._since_s = now_s
        waited_s = now_s - self._since_s
        if waited_s >= self._next_s:
            self._next_s = waited_s + LONGER_S
            log.warning("%d labels could not be delivered for %.0f s: %s", owed, waited_s, why)
