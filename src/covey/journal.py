"""Group commit: all that happened while one batch was written goes into the next."""

import asyncio
from collections.abc import Awaitable, Callable

from covey.books import Book
from covey.errors import StoreError, StoreFull
from covey.store import Batch


class Journal:
    """Writes what a book hands over, one batch at a time, and stops for good if that fails."""

    def __init__(self, book: Book, commit: Callable[[Batch], Awaitable[None]]) -> None:
        self._book = book
        self._commit = commit
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: StoreError | None = None
        self.is_broken = asyncio.Event()  # set by a failure other than a full disk

    async def flush(self) -> None:
        """Return when all that has happened so far is on the disk.

        Raises `StoreError` if it may not be, and from then on always.
        """
        if self.failure is not None:
            raise self.failure
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._write())
            self._tasks.add(self._next)
            self._next.add_done_callback(self._forget)
        # Whoever waits may be cancelled; the batch is written for the others all the same.
        await asyncio.shield(self._next)

    def stop(self) -> None:
        """Write no more, not even what is under way."""
        self.failure = StoreError("the node is stopped")
        for task in self._tasks:
            task.cancel()

    async def _write(self) -> None:
        async with self._lock:
            self._next = None
            if self.failure is not None:
                raise self.failure
            batch = self._book.take()
            if batch is None:
                return
            try:
                await self._commit(batch)
            except StoreError as error:
                self._fail(error)
                raise
            except Exception as error:  # nobody knows what is on the disk then, either
                self._fail(failure := StoreError(f"a batch cannot be written: {error!r}"))
                raise failure from error
            self._book.is_written(batch)

    def _fail(self, failure: StoreError) -> None:
        self.failure = failure
        if not isinstance(failure, StoreFull):
            self.is_broken.set()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is kept in `failure`; nobody may be waiting any more
