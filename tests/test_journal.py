"""Whoever waits for a batch is told once it is written, or that it may not be."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import virtual
from covey import journal as journals
from covey.errors import StoreError, StoreFull
from covey.journal import Journal


class Pages:
    """A book in which numbers are written; a batch is all that came since the last."""

    def __init__(self) -> None:
        self.new: list[int] = []
        self.written: list[list[int]] = []

    def take(self) -> list[int] | None:
        """Hand over what is new."""
        batch, self.new = self.new, []
        return batch or None

    def is_written(self, batch: list[int]) -> None:
        """Note what came to the disk."""
        self.written.append(batch)


def journal_of(pages: Pages, commit: Callable[[list[int]], Awaitable[None]]) -> Journal:
    return Journal(pages, commit)  # type: ignore[arg-type] # all that it needs of a book


def test_what_comes_while_one_batch_is_written_goes_into_the_next_together() -> None:
    pages, is_begun, may_end = Pages(), asyncio.Event(), asyncio.Event()

    async def commit(batch: list[int]) -> None:
        is_begun.set()
        await may_end.wait()

    async def say(journal: Journal, number: int) -> int:
        pages.new.append(number)
        await journal.flush()
        assert any(number in batch for batch in pages.written)
        return number

    async def main() -> None:
        journal = journal_of(pages, commit)
        first = asyncio.create_task(say(journal, 0))
        await is_begun.wait()
        others = [asyncio.create_task(say(journal, number)) for number in range(1, 20)]
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.gather(first, *others)

    asyncio.run(main())
    assert pages.written == [[0], list(range(1, 20))]


def test_who_gives_up_waiting_takes_nobody_along() -> None:
    pages, is_begun, may_end = Pages(), asyncio.Event(), asyncio.Event()

    async def commit(batch: list[int]) -> None:
        is_begun.set()
        await may_end.wait()

    async def main() -> None:
        journal = journal_of(pages, commit)
        pages.new.append(1)
        impatient, patient = (asyncio.create_task(journal.flush()) for _ in range(2))
        await is_begun.wait()
        impatient.cancel()
        may_end.set()
        await patient
        assert impatient.cancelled()

    asyncio.run(main())
    assert pages.written == [[1]]


@pytest.mark.parametrize("error", [StoreError("the disk is gone"), RuntimeError("no thread")])
def test_a_failure_is_told_to_all_who_wait_and_to_all_who_come_later(error: Exception) -> None:
    pages, is_begun, may_end = Pages(), asyncio.Event(), asyncio.Event()

    async def commit(batch: list[int]) -> None:
        is_begun.set()
        await may_end.wait()
        raise error

    async def main() -> None:
        journal = journal_of(pages, commit)
        pages.new.append(1)
        first = asyncio.create_task(journal.flush())
        await is_begun.wait()
        pages.new.append(2)
        second = asyncio.create_task(journal.flush())
        await asyncio.sleep(0)
        may_end.set()
        told = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(one) for one in told] == [StoreError] * 2
        assert journal.is_broken.is_set()
        for _ in range(2):
            with pytest.raises(StoreError):
                await journal.flush()

    asyncio.run(main())
    assert pages.written == []


def test_a_full_disk_takes_nothing_and_when_there_is_room_nothing_is_missing() -> None:
    pages, tried, room = Pages(), list[list[int]](), [False]

    async def commit(batch: list[int]) -> None:
        tried.append(batch)
        if not room[0]:
            raise StoreFull("the disk is full")

    async def say(journal: Journal, number: int) -> None:
        pages.new.append(number)
        await journal.flush()

    async def main() -> None:
        loop, journal = asyncio.get_running_loop(), journal_of(pages, commit)
        told = await asyncio.gather(*(say(journal, k) for k in (1, 2)), return_exceptions=True)
        assert [type(one) for one in told] == [StoreFull] * 2
        with pytest.raises(StoreFull):
            await say(journal, 3)  # by one who had asked before
        begun_s = loop.time()
        while len(tried) < 4:
            await asyncio.sleep(0.3)
        assert loop.time() - begun_s >= 2 * journals.AGAIN_S
        room[0] = True
        while journal.failure is not None:
            await asyncio.sleep(0.3)
        await say(journal, 4)
        assert not journal.is_broken.is_set()

    virtual.run(main())
    assert tried == [[1, 2]] * 5 + [[3, 4]]
    assert pages.written == [[1, 2], [3, 4]]


def test_a_disk_that_was_full_and_then_fails_is_given_up() -> None:
    pages, errors = Pages(), [StoreFull("full"), StoreError("gone"), StoreError("never tried")]

    async def commit(batch: list[int]) -> None:
        raise errors.pop(0)

    async def main() -> None:
        journal = journal_of(pages, commit)
        pages.new.append(1)
        with pytest.raises(StoreFull):
            await journal.flush()
        await journal.is_broken.wait()
        with pytest.raises(StoreError, match="gone"):
            await journal.flush()

    virtual.run(main())
    assert len(errors) == 1


def test_one_that_is_stopped_writes_no_more_and_lets_nobody_wait() -> None:
    pages, is_begun = Pages(), asyncio.Event()

    async def commit(batch: list[int]) -> None:
        is_begun.set()
        await asyncio.Event().wait()

    async def main() -> None:
        journal = journal_of(pages, commit)
        pages.new.append(1)
        first = asyncio.create_task(journal.flush())
        await is_begun.wait()
        second = asyncio.create_task(journal.flush())
        await asyncio.sleep(0)
        journal.stop()
        await asyncio.wait([first, second])
        assert (first.cancelled(), second.cancelled()) == (True, True)
        with pytest.raises(StoreError, match="stopped"):
            await journal.flush()

    asyncio.run(main())
    assert pages.written == []
