"""Functions in threads: each call returns as if it had run alone, or is given up in time."""

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from covey.errors import FunctionBusy
from covey.functions.function import as_function
from covey.node import functions
from covey.node.functions import Answering, FunctionThread, ThreadWorkers
from covey.site.requests import Commit
from covey.store.store import Store
from support.coroutines import looped


@looped
async def test_calls_run_in_order_one_at_a_time_and_each_returns_its_result() -> None:
    seen: list[int] = []
    names = set()

    def note(number: int) -> int:
        seen.append(number)
        names.add(threading.current_thread().name)
        return 10 * number

    thread = FunctionThread("f")
    results = await asyncio.gather(*(thread.run(partial(note, k)) for k in range(200)))

    assert results == [10 * k for k in range(200)]
    assert seen == list(range(200))
    assert len(names) == 1
    assert threading.current_thread().name not in names


@looped
async def test_calls_longer_than_a_turn_do_not_delay_the_result_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "TURN_S", 0.0)
    has_result = threading.Event()

    thread = FunctionThread("f")

    async def first() -> None:
        await thread.run(int)
        has_result.set()

    # The second call ends only when the answer to the first was handed over.
    _, is_seen = await asyncio.gather(first(), thread.run(partial(has_result.wait, 30.0)))
    assert is_seen


@looped
async def test_a_call_that_fails_does_not_fail_the_others() -> None:
    thread = FunctionThread("f")
    calls = (thread.run(partial(int, text)) for text in ("1", "x", "3"))
    first, second, third = await asyncio.gather(*calls, return_exceptions=True)

    assert (first, third) == (1, 3)
    assert isinstance(second, ValueError)


@looped
async def test_a_cancelled_call_is_not_run() -> None:
    seen: list[int] = []
    may_go = threading.Event()

    thread = FunctionThread("f")
    first, given_up, kept = (
        asyncio.create_task(thread.run(call))
        for call in (partial(may_go.wait, 30.0), *(partial(seen.append, k) for k in range(2)))
    )
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    may_go.set()
    await asyncio.wait([first, kept])
    assert seen == [1]


# -- functions that do not return ---------------------------------------------------------------


class Gate:
    """A function that returns when it is let go, and notes what it was called with."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.is_called = threading.Event()
        self.may_return = threading.Event()

    def __call__(self, instance: Any = None) -> Any:
        self.seen.append(instance)
        self.is_called.set()
        assert self.may_return.wait(30.0)
        return instance

    async def called(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.is_called.wait, 30.0)


async def busy(*calls: Any) -> list[bool]:
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [isinstance(result, FunctionBusy) for result in results]


@looped
async def test_a_call_that_is_late_is_given_up_and_so_are_those_that_wait() -> None:
    gate = Gate()

    thread = FunctionThread("f", timeout_s=0.05)
    assert await busy(*(thread.run(partial(gate, k)) for k in range(3))) == [True] * 3
    assert not thread.is_available
    assert await busy(thread.run(gate)) == [True]
    gate.may_return.set()
    assert gate.seen == [0]


@looped
async def test_a_late_function_is_called_again_after_a_pause_with_one_call_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "FIRST_PAUSE_S", 0.0)
    late, probe = Gate(), Gate()

    thread = FunctionThread("f", timeout_s=0.05)
    assert await busy(thread.run(late)) == [True]
    late.may_return.set()
    while not thread.is_available:
        await asyncio.sleep(0)
    thread._timeout_s = 30.0
    again = asyncio.create_task(thread.run(partial(probe, 1), patience_s=30.0))
    await probe.called()
    assert await busy(thread.run(int, patience_s=30.0)) == [True]
    probe.may_return.set()
    assert await again == 1
    assert thread.is_available


@looped
async def test_a_call_does_not_wait_for_one_that_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "TAKEN_S", 0.05)
    gate = Gate()

    thread = FunctionThread("f", timeout_s=30.0)
    first, patient = (asyncio.create_task(thread.run(partial(gate, k))) for k in range(2))
    await gate.called()
    assert await busy(thread.run(gate, patience_s=0.05)) == [True]
    assert not thread.is_available
    gate.may_return.set()
    assert await asyncio.gather(first, patient) == [0, 1]


@looped
async def test_a_function_that_never_returns_does_not_keep_the_workers_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(functions, "CLOSE_S", 0.0)
    gate = Gate()
    function = as_function(gate, name="gate", owner="north")._replace(timeout_s=0.05)

    runner = ThreadWorkers(Store.memory())
    assert await busy(runner.run(function, partial(function.answer, 1))) == [True]
    assert not runner.is_available(function)
    runner.close()
    gate.may_return.set()
    assert "'gate' has not returned; the site stops without it" in caplog.text


@looped
async def test_a_new_version_does_not_wait_for_an_earlier_one_that_hangs() -> None:
    gate = Gate()
    old = as_function(gate, name="f", owner="north")._replace(timeout_s=0.05)
    new = as_function(str, name="f", owner="north")._replace(timeout_s=0.05, version="2")

    runner = ThreadWorkers(Store.memory())
    assert await busy(runner.run(old, partial(old.answer, 1))) == [True]
    assert runner.is_available(new)
    assert await runner.run(new, partial(new.answer, 2)) == "2"
    runner.close()
    gate.may_return.set()


# -- fair shares --------------------------------------------------------------------------------


def answering(function: Any, rows: Sequence[Any]) -> Answering:
    return Answering(as_function(function, name="f", owner="n"), list(rows))


@looped
async def test_own_clients_come_first_and_peers_take_turns_row_by_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "TURN_S", 0.0)
    gate = Gate()

    def note(instance: Any) -> Any:
        gate.seen.append(instance)
        return instance

    thread = FunctionThread("f")
    first = asyncio.create_task(thread.run(partial(gate, "begin")))
    await gate.called()
    waiting = [
        asyncio.create_task(thread.run(answering(note, rows), source=source))
        for source, rows in (
            ("east", ["e1", "e2", "e3"]),
            ("east", ["e4"]),
            ("west", ["w1", "w2"]),
            ("", ["own1"]),
            ("client/a", ["own2"]),
        )
    ]
    await asyncio.sleep(0)
    gate.may_return.set()
    await first
    results = await asyncio.gather(*waiting)

    assert gate.seen == ["begin", "own1", "own2", "e1", "w1", "e2", "w2", "e3", "e4"]
    assert results == [["e1", "e2", "e3"], ["e4"], ["w1", "w2"], ["own1"], ["own2"]]


@looped
async def test_an_own_row_does_not_wait_for_the_end_of_a_peer_s_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "TURN_S", 0.0)
    gate, seen = Gate(), list[Any]()

    def note(instance: Any) -> Any:
        seen.append(instance)
        return gate(instance) if instance == 1 else instance

    thread = FunctionThread("f")
    batch = asyncio.create_task(thread.run(answering(note, [1, 2, 3]), source="east"))
    await gate.called()
    own = asyncio.create_task(thread.run(answering(note, ["own"])))
    await asyncio.sleep(0)
    gate.may_return.set()
    assert await asyncio.gather(batch, own) == [[1, 2, 3], ["own"]]
    assert seen == [1, "own", 2, 3]


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

    def find_many(self, source: str, ids: Sequence[str]) -> Any:
        """Note it."""
        self._note("find")
        return super().find_many(source, ids)

    def _note(self, verb: str) -> None:
        self.seen.append((verb, threading.current_thread() is threading.main_thread()))


@looped
async def test_a_commit_computes_here_and_waits_for_the_disk_elsewhere_without_a_read() -> None:
    store = Watched()

    runner = ThreadWorkers(store)
    first, second = (runner.commit(Commit()) for _ in range(2))
    await asyncio.gather(first, runner.find("", ["a"]), second)
    runner.close()

    commit = [("write", True), ("sync", False)]
    assert store.seen == [*commit, ("find", False), *commit]
