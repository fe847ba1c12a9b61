"""Calls that go to a thread together come back as if each had gone alone."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from covey import threads
from covey.classifiers import as_function
from covey.records import Batch
from covey.sources.constant import Constant
from covey.store import Store
from covey.threads import Lane, Threads


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as one:
        yield one


def test_calls_run_in_order_one_at_a_time_and_each_gets_its_own_answer(
    pool: ThreadPoolExecutor,
) -> None:
    seen: list[int] = []
    names = set()

    def note(number: int) -> int:
        seen.append(number)
        names.add(threading.current_thread().name)
        return 10 * number

    async def main() -> list[int]:
        lane = Lane(pool)
        return await asyncio.gather(*(lane(note, k) for k in range(200)))

    assert asyncio.run(main()) == [10 * k for k in range(200)]
    assert seen == list(range(200))
    assert len(names) == 1
    assert threading.current_thread().name not in names


def test_calls_that_take_longer_than_a_turn_do_not_hold_up_the_first(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "TURN_S", 0.0)
    is_told = threading.Event()

    async def main() -> None:
        lane = Lane(pool)

        async def first() -> None:
            await lane(int, 1)
            is_told.set()

        # The second call ends only when the answer to the first was handed over.
        _, is_seen = await asyncio.gather(first(), lane(is_told.wait, 30.0))
        assert is_seen

    asyncio.run(main())


def test_one_call_that_fails_is_the_failure_of_that_one_alone(pool: ThreadPoolExecutor) -> None:
    async def main() -> list[int | BaseException]:
        lane = Lane(pool)
        calls = (lane(int, text) for text in ("1", "x", "3"))
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second, third = asyncio.run(main())

    assert (first, third) == (1, 3)
    assert isinstance(second, ValueError)


def test_a_call_that_nobody_waits_for_any_more_is_left_out(pool: ThreadPoolExecutor) -> None:
    seen: list[int] = []
    may_go = threading.Event()

    async def main() -> None:
        lane = Lane(pool)
        pool.submit(may_go.wait, 30.0)
        given_up, kept = (asyncio.create_task(lane(seen.append, k)) for k in range(2))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        may_go.set()
        await kept

    asyncio.run(main())
    assert seen == [1]


def test_when_the_thread_is_gone_every_call_is_told_so(pool: ThreadPoolExecutor) -> None:
    async def main() -> None:
        lane = Lane(pool)
        pool.shutdown()
        for _ in range(2):
            told = await asyncio.gather(lane(int, 1), lane(int, 2), return_exceptions=True)
            assert [type(one) for one in told] == [RuntimeError] * 2

    asyncio.run(main())


class Watched(Store):
    """A store that notes which thread does what."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.seen: list[tuple[str, bool]] = []  # and whether that is the main thread

    def write(self, batch: Batch) -> None:
        """Note it."""
        self._note("write")
        super().write(batch)

    def sync(self, batch: Batch) -> None:
        """Note it."""
        self._note("sync")
        super().sync(batch)

    def size(self) -> dict[str, int]:
        """Note it."""
        self._note("size")
        return super().size()

    def _note(self, verb: str) -> None:
        self.seen.append((verb, threading.current_thread() is threading.main_thread()))


def test_a_commit_computes_here_and_waits_for_the_disk_elsewhere_and_nobody_reads_between() -> None:
    store = Watched()

    async def main() -> None:
        doors = Threads(store)
        commits = (doors(store.commit, Batch()) for _ in range(2))
        first, second = commits
        await asyncio.gather(first, doors(store.size), second)
        doors.close()

    asyncio.run(main())

    commit = [("write", True), ("sync", False)]
    assert store.seen == [*commit, ("size", False), *commit]


def test_a_function_that_looks_at_nothing_needs_no_thread() -> None:
    here = threading.current_thread()
    names: list[threading.Thread] = []

    def look(instance: object) -> int:
        names.append(threading.current_thread())
        return 1

    async def main() -> None:
        doors = Threads(Store.memory())
        plain = as_function(look, name="look", owner="north")
        constant = as_function(
            Constant(name="one", kind="constant", label=1), name="one", owner="north"
        )
        assert await doors(plain.answer, None) == await doors(constant.answer, None) == 1
        await doors(plain._replace(is_instant=True).answer, None)
        assert (plain.is_instant, constant.is_instant) == (False, True)
        doors.close()

    asyncio.run(main())
    assert [one is here for one in names] == [False, True]
