"""Calls that run together in a thread return as if each had run alone."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from covey.functions.function import as_function
from covey.functions.registry import Constant
from covey.node import workers
from covey.node.requests import Commit
from covey.node.store import Store
from covey.node.workers import FunctionThread, ThreadWorkers


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as one:
        yield one


def test_calls_run_in_order_one_at_a_time_and_each_returns_its_result(
    pool: ThreadPoolExecutor,
) -> None:
    seen: list[int] = []
    names = set()

    def note(number: int) -> int:
        seen.append(number)
        names.add(threading.current_thread().name)
        return 10 * number

    async def main() -> list[int]:
        thread = FunctionThread(pool)
        return await asyncio.gather(*(thread.run(note, k) for k in range(200)))

    assert asyncio.run(main()) == [10 * k for k in range(200)]
    assert seen == list(range(200))
    assert len(names) == 1
    assert threading.current_thread().name not in names


def test_calls_longer_than_a_turn_do_not_delay_the_result_of_the_first(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "TURN_S", 0.0)
    has_result = threading.Event()

    async def main() -> None:
        thread = FunctionThread(pool)

        async def first() -> None:
            await thread.run(int, 1)
            has_result.set()

        # The second call ends only when the answer to the first was handed over.
        _, is_seen = await asyncio.gather(first(), thread.run(has_result.wait, 30.0))
        assert is_seen

    asyncio.run(main())


def test_a_call_that_fails_does_not_fail_the_others(pool: ThreadPoolExecutor) -> None:
    async def main() -> list[int | BaseException]:
        thread = FunctionThread(pool)
        calls = (thread.run(int, text) for text in ("1", "x", "3"))
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second, third = asyncio.run(main())

    assert (first, third) == (1, 3)
    assert isinstance(second, ValueError)


def test_a_cancelled_call_is_not_run(pool: ThreadPoolExecutor) -> None:
    seen: list[int] = []
    may_go = threading.Event()

    async def main() -> None:
        thread = FunctionThread(pool)
        pool.submit(may_go.wait, 30.0)
        given_up, kept = (asyncio.create_task(thread.run(seen.append, k)) for k in range(2))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        may_go.set()
        await kept

    asyncio.run(main())
    assert seen == [1]


def test_calls_after_the_shutdown_of_the_pool_fail(pool: ThreadPoolExecutor) -> None:
    async def main() -> None:
        thread = FunctionThread(pool)
        pool.shutdown()
        for _ in range(2):
            results = await asyncio.gather(
                thread.run(int, 1), thread.run(int, 2), return_exceptions=True
            )
            assert [type(one) for one in results] == [RuntimeError] * 2

    asyncio.run(main())


class Watched(Store):
    """A store that notes its calls, and whether the main thread makes them."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.seen: list[tuple[str, bool]] = []

    def write(self, commit: Commit) -> None:
        """Note it."""
        self._note("write")
        super().write(commit)

    def sync(self, commit: Commit) -> None:
        """Note it."""
        self._note("sync")
        super().sync(commit)

    def find(self, source: str, id: str) -> Any:  # noqa: A002 - as in the store
        """Note it."""
        self._note("find")
        return super().find(source, id)

    def _note(self, verb: str) -> None:
        self.seen.append((verb, threading.current_thread() is threading.main_thread()))


def test_a_commit_computes_here_and_waits_for_the_disk_elsewhere_and_nothing_is_read_between() -> (
    None
):
    store = Watched()

    async def main() -> None:
        threads = ThreadWorkers(store)
        first, second = (threads.commit(Commit()) for _ in range(2))
        await asyncio.gather(first, threads.find("", "a"), second)
        threads.close()

    asyncio.run(main())

    commit = [("write", True), ("sync", False)]
    assert store.seen == [*commit, ("find", False), *commit]


def test_a_function_that_returns_instantly_needs_no_thread() -> None:
    here = threading.current_thread()
    names: list[threading.Thread] = []

    def look(instance: object) -> int:
        names.append(threading.current_thread())
        return 1

    async def main() -> None:
        threads = ThreadWorkers(Store.memory())
        plain = as_function(look, name="look", owner="north")
        constant = as_function(
            Constant(name="one", kind="constant", label=1), name="one", owner="north"
        )
        for function in (plain, constant, plain._replace(is_instant=True)):
            assert await threads.run(function, function.answer, None) == 1
        assert (plain.is_instant, constant.is_instant) == (False, True)
        threads.close()

    asyncio.run(main())
    assert [one is here for one in names] == [False, True]
