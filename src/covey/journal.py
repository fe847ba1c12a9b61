"""Group commit: all that happened while one batch was written goes into the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from covey.books import Book
from covey.errors import StoreError
from covey.records import Batch

MOST_ROUNDS = 16  # of the event loop, for which a batch is held back while more is added to it
Waiting = asyncio.Future[None]


class Journal:
    """Writes what a book hands over, one batch at a time, and stops for good if that fails."""

    def __init__(self, book: Book, commit: Callable[[Batch], Awaitable[None]]) -> None:
        self._book = book
        self._commit = commit
        self._waiting: list[Waiting] = []  # for the batch after the one that is being written
        self._writing: asyncio.Task[None] | None = None
        self.failure: StoreError | None = None

    async def flush(self) -> None:
        """Return when all that has happened so far is on the disk.

        Raises `StoreError` if it may not be, and from then on always.
        """
        if self.failure is not None:
            raise self.failure
        loop = asyncio.get_running_loop()
        # Of one's own: whoever waits may be cancelled, and the batch is written for the others.
        written: Waiting = loop.create_future()
        self._waiting.append(written)
        if self._writing is None:
            self._writing = loop.create_task(self._write())
        await written

    def stop(self) -> None:
        """Write no more, not even what is under way."""
        self.failure = StoreError("the node is stopped")
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        """Write batches until nobody waits."""
        waiting: list[Waiting] = []
        try:
            while self._waiting:
                await self._wait_for_more()
                waiting, self._waiting = self._waiting, []
                await self._write_one()
                for one in waiting:
                    if not one.done():
                        one.set_result(None)
        except asyncio.CancelledError:
            for one in (*waiting, *self._waiting):
                one.cancel()
        except StoreError as error:
            self._fail(error, (*waiting, *self._waiting))
        except Exception as error:  # nobody knows what is on the disk then, either
            failure = StoreError(f"a batch cannot be written: {error!r}")
            self._fail(failure, (*waiting, *self._waiting))
        finally:
            self._writing = None

    def _fail(self, failure: StoreError, waiting: Sequence[Waiting]) -> None:
        self.failure = failure
        for one in waiting:
            if not one.done():
                one.set_exception(failure)

    async def _wait_for_more(self) -> None:
        """Let those come along who are about to: a commit costs the same for one as for many."""
        known = 0
        for _ in range(MOST_ROUNDS):
            if len(self._waiting) == known:
                break
            known = len(self._waiting)
            await asyncio.sleep(0)

    async def _write_one(self) -> None:
        batch = self._book.take()
        if batch is not None:
            await self._commit(batch)
            self._book.is_written(batch)
