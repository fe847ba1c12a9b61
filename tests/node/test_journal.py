"""Callers of the journal return once their commit is written, or learn that it may not be."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from covey.errors import StoreError, StoreFull
from covey.node.functions import RETRY_S, Journal
from support import virtual
from support.coroutines import looped


class Numbers:
    """A state whose changes are numbers; a commit has all since the last one."""

    def __init__(self) -> None:
        self.new: list[int] = []
        self.written: list[list[int]] = []

    def take(self) -> list[int] | None:
        """Return what is new."""
        batch, self.new = self.new, []
        return batch or None

    def is_written(self, batch: list[int]) -> None:
        """Note a commit that is in the store."""
        self.written.append(batch)


def journal_of(numbers: Numbers, commit: Callable[[list[int]], Awaitable[None]]) -> Journal:
    return Journal(numbers, commit)  # type: ignore[arg-type] # all that it needs of a state


@looped
async def test_changes_during_a_commit_go_into_the_next_one_together() -> None:
    numbers, is_begun, may_end = Numbers(), asyncio.Event(), asyncio.Event()

    async def commit(batch: list[int]) -> None:
        is_begun.set()
        await may_end.wait()

    async def add(journal: Journal, number: int) -> int:
        numbers.new.append(number)
        await journal.flush()
        assert any(number in batch for batch in numbers.written)
        return number

    journal = journal_of(numbers, commit)
    first = asyncio.create_task(add(journal, 0))
    await is_begun.wait()
    others = [asyncio.create_task(add(journal, number)) for number in range(1, 20)]
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(first, *others)
    assert numbers.written == [[0], list(range(1, 20))]


@looped
async def test_a_cancelled_caller_does_not_cancel_the_others() -> None:
    numbers, is_begun, may_end = Numbers(), asyncio.Event(), asyncio.Event()

    async def commit(batch: list[int]) -> None:
        is_begun.set()
        await may_end.wait()

    journal = journal_of(numbers, commit)
    numbers.new.append(1)
    first, second = (asyncio.create_task(journal.flush()) for _ in range(2))
    await is_begun.wait()
    first.cancel()
    may_end.set()
    await second
    assert first.cancelled()
    assert numbers.written == [[1]]


@pytest.mark.parametrize("error", [StoreError("the disk is gone"), RuntimeError("no thread")])
@looped
async def test_a_failed_commit_fails_all_waiting_and_all_later_callers(error: Exception) -> None:
    numbers, is_begun, may_end = Numbers(), asyncio.Event(), asyncio.Event()

    async def commit(batch: list[int]) -> None:
        is_begun.set()
        await may_end.wait()
        raise error

    journal = journal_of(numbers, commit)
    numbers.new.append(1)
    first = asyncio.create_task(journal.flush())
    await is_begun.wait()
    numbers.new.append(2)
    second = asyncio.create_task(journal.flush())
    await asyncio.sleep(0)
    may_end.set()
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(result) for result in results] == [StoreError] * 2
    assert journal.is_broken.is_set()
    for _ in range(2):
        with pytest.raises(StoreError):
            await journal.flush()
    assert numbers.written == []


def test_a_full_disk_accepts_nothing_and_later_nothing_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    numbers, tried, room = Numbers(), list[list[int]](), [False]

    async def commit(batch: list[int]) -> None:
        tried.append(batch)
        if not room[0]:
            raise StoreFull("the disk is full")

    async def add(journal: Journal, number: int) -> None:
        numbers.new.append(number)
        await journal.flush()

    async def main() -> None:
        loop, journal = asyncio.get_running_loop(), journal_of(numbers, commit)
        results = await asyncio.gather(*(add(journal, k) for k in (1, 2)), return_exceptions=True)
        assert [type(result) for result in results] == [StoreFull] * 2
        with pytest.raises(StoreFull):
            await add(journal, 3)
        begun_s = loop.time()
        while len(tried) < 4:
            await asyncio.sleep(0.3)
        assert loop.time() - begun_s >= 2 * RETRY_S
        room[0] = True
        while journal.failure is not None:
            await asyncio.sleep(0.3)
        await add(journal, 4)
        assert not journal.is_broken.is_set()

    with caplog.at_level(logging.INFO):
        virtual.run(main())
    assert tried == [[1, 2]] * 5 + [[3, 4]]
    lines = [(record.levelname, record.message) for record in caplog.records]
    assert [level for level, _ in lines] == ["ERROR", "INFO"]  # at the begin and at the end
    assert "full" in lines[0][1]
    assert "room" in lines[1][1]
    assert numbers.written == [[1, 2], [3, 4]]


@virtual.timed
async def test_a_full_disk_that_then_fails_is_a_permanent_failure() -> None:
    numbers, errors = Numbers(), [StoreFull("full"), StoreError("gone"), StoreError("never tried")]

    async def commit(batch: list[int]) -> None:
        raise errors.pop(0)

    journal = journal_of(numbers, commit)
    numbers.new.append(1)
    with pytest.raises(StoreFull):
        await journal.flush()
    await journal.is_broken.wait()
    with pytest.raises(StoreError, match="gone"):
        await journal.flush()
    assert len(errors) == 1


@looped
async def test_a_stopped_journal_writes_no_more_and_releases_all_callers() -> None:
    numbers, is_begun = Numbers(), asyncio.Event()

    async def commit(batch: list[int]) -> None:
        is_begun.set()
        await asyncio.Event().wait()

    journal = journal_of(numbers, commit)
    numbers.new.append(1)
    first = asyncio.create_task(journal.flush())
    await is_begun.wait()
    second = asyncio.create_task(journal.flush())
    await asyncio.sleep(0)
    journal.stop()
    await asyncio.wait([first, second])
    assert (first.cancelled(), second.cancelled()) == (True, True)
    with pytest.raises(StoreError, match="stopped"):
        await journal.flush()
    assert numbers.written == []
