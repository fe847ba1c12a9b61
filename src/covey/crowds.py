"""Limits on connections and on concurrent requests."""

import asyncio
from collections import Counter
from types import TracebackType

from covey.calls import Problem


class Crowd:
    """Counts open connections, in all and by address."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most = most
        self._most_each = most_each
        self._here: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._here.total()

    def enter(self, address: str) -> bool:
        """Count one more connection; return False if a limit is reached."""
        if len(self) >= self._most or self._here[address] >= self._most_each:
            return False
        self._here[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Count a connection that was closed."""
        self._here[address] -= 1
        if not self._here[address]:
            del self._here[address]


class Turns:
    """Serves up to `most` requests at once and queues up to `queue`; refuses the rest."""

    def __init__(self, most: int, queue: int) -> None:
        self._most = most
        self._queue = queue
        self._free = asyncio.Semaphore(most)
        self._waiting = 0

    async def __aenter__(self) -> None:
        if self._free.locked() and self._waiting >= self._queue:
            raise Problem(503, "busy", f"{self._most} requests are in progress; retry later")
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
