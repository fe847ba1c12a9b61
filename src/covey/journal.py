"""Group commit: all that happened while one batch was written goes into the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from covey.books import Book
from covey.errors import StoreError, StoreFull
from covey.records import Batch

MOST_ROUNDS = 16  # of the event loop, for which a batch is held back while more is added to it
AGAIN_S = 1.0  # after which what found no room on the disk is written again
Waiting = asyncio.Future[None]


class Journal:
    """Writes what a book hands over, one batch at a time.

    While the disk is full it takes nothing, and tries again; any other failure is for good.
    """

    def __init__(self, book: Book, commit: Callable[[Batch], Awaitable[None]]) -> None:
        self._book = book
        self._commit = commit
        self._waiting: list[Waiting] = []  # for the batch after the one that is being written
        self._writing: asyncio.Task[None] | None = None
        self.failure: StoreError | None = None
        self.is_broken = asyncio.Event()  # set by a failure other than a full disk

    async def flush(self) -> None:
        """Return when all that has happened so far is on the disk.

        Raises `StoreError` if it may not be, and from then on always, but for `StoreFull`, which
        is raised for as long as the disk is full.
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
                batch = self._book.take()
                if batch is not None:
                    await self._write_one(batch, waiting)
                _end(waiting)
        except asyncio.CancelledError:
            _end((*waiting, *self._waiting), asyncio.CancelledError())
        except StoreError as error:
            self._fail(error, waiting)
        except Exception as error:  # nobody knows what is on the disk then, either
            self._fail(StoreError(f"a batch cannot be written: {error!r}"), waiting)
        finally:
            self._writing = None

    async def _write_one(self, batch: Batch, waiting: Sequence[Waiting]) -> None:
        """Write a batch, once there is room for it; who waits is told that there is none."""
        while True:
            try:
                await self._commit(batch)
                break
            except StoreFull as full:
                self._fail(full, waiting)
            await asyncio.sleep(AGAIN_S)
        self._book.is_written(batch)
        if isinstance(self.failure, StoreFull):
            self.failure = None

    def _fail(self, failure: StoreError, waiting: Sequence[Waiting]) -> None:
        self.failure = failure
        if not isinstance(failure, StoreFull):
            self.is_broken.set()
        _end((*waiting, *self._waiting), failure)

    async def _wait_for_more(self) -> None:
        """Let those come along who are about to: a commit costs the same for one as for many."""
        known = 0
        for _ in range(MOST_ROUNDS):
            if len(self._waiting) == known:
                break
            known = len(self._waiting)
            await asyncio.sleep(0)


def _end(waiting: Sequence[Waiting], error: BaseException | None = None) -> None:
    """Let nobody wait any longer."""
    for one in waiting:
        if one.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            one.cancel()
        elif error is not None:
            one.set_exception(error)
        else:
            one.set_result(None)
