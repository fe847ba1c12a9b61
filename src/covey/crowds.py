"""How many may come, and how many are served at once."""

import asyncio
from collections import Counter
from types import TracebackType

from covey.calls import Problem


class Crowd:
    """Counts who is there, in all and by address."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most = most
        self._most_each = most_each
        self._here: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._here.total()

    def enter(self, address: str) -> bool:
        """Let one more in, if there is room."""
        if len(self) >= self._most or self._here[address] >= self._most_each:
            return False
        self._here[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Note that one has gone."""
        self._here[address] -= 1
        if not self._here[address]:
            del self._here[address]


class Turns:
    """Lets so many be served at once and so many wait, in order; whoever else comes is told."""

    def __init__(self, most: int, queue: int) -> None:
        self._most = most
        self._queue = queue
        self._free = asyncio.Semaphore(most)
        self._waiting = 0

    async def __aenter__(self) -> None:
        if self._free.locked() and self._waiting >= self._queue:
            raise Problem(503, "busy", f"{self._most} requests are under way; try again later")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._free.release()
