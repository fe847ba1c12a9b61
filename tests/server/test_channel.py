"""Calls between a router and a shard: their order, their errors, and the end of a connection."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from covey.errors import ConflictingLabel, LateLabel
from covey.server.channel import HEAD, AnsweringEnd, CallingEnd, ChannelClosed, connected
from covey.server.shard_messages import AnyCall, FindIds, FindSize


@asynccontextmanager
async def joined(answer: Callable[[Any], Awaitable[Any]]) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the end of the router and that of the shard."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    shard = await connected(lambda: AnsweringEnd(answer), theirs)
    router = await connected(CallingEnd, ours)
    try:
        yield router, shard
    finally:
        for one in (router, shard):
            one.close()
            await one.closed


def test_calls_arrive_in_order_and_are_answered_as_they_are_ready() -> None:
    arrived: list[str] = []
    is_last = asyncio.Event()

    async def answer(call: Any) -> int:
        arrived.append(call.id)
        if call.id == "0":
            await is_last.wait()
        if call.id == "99":
            is_last.set()
        return int(call.id)

    async def main() -> list[int]:
        async with joined(answer) as (router, _):
            calls = (router.call(FindSize("", str(number))) for number in range(100))
            return await asyncio.gather(*calls)

    assert asyncio.run(main()) == list(range(100))
    assert arrived == [str(number) for number in range(100)]


@pytest.mark.parametrize("kind", [LateLabel, ConflictingLabel])
def test_an_error_of_covey_is_raised_at_the_other_end(kind: type[Exception]) -> None:
    async def answer(call: AnyCall) -> Any:
        raise kind("the sentence")

    async def main() -> None:
        async with joined(answer) as (router, _):
            await router.call(FindSize("", "a"))

    with pytest.raises(kind, match="the sentence"):
        asyncio.run(main())


def test_any_other_error_is_logged_there_and_unexpected_here(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(call: AnyCall) -> Any:
        raise ZeroDivisionError

    async def main() -> None:
        async with joined(answer) as (router, _):
            await router.call(FindSize("", "a"))

    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        asyncio.run(main())
    assert "unexpected failure of a call" in caplog.text


def test_calls_that_wait_fail_when_the_other_end_is_gone() -> None:
    async def answer(call: AnyCall) -> Any:
        await asyncio.Event().wait()

    async def main() -> None:
        async with joined(answer) as (router, shard):
            call = asyncio.ensure_future(router.call(FindSize("", "a")))
            await asyncio.sleep(0)
            shard.close()
            with pytest.raises(ChannelClosed):
                await call
            with pytest.raises(ChannelClosed):
                await router.call(FindSize("", "b"))

    asyncio.run(main())


@pytest.mark.parametrize("size", [1, 3, 7])
def test_frames_may_arrive_in_pieces(size: int) -> None:
    arrived: list[Any] = []
    calls = [FindIds("south", [f"id{number}"] * number) for number in range(4)]
    bodies = [msgspec.msgpack.encode(pair) for pair in enumerate(calls)]
    data = b"".join(len(body).to_bytes(HEAD, "big") + body for body in bodies)

    async def answer(call: AnyCall) -> Any:
        arrived.append(call)

    async def main() -> None:
        shard = AnsweringEnd(answer)
        for at in range(0, len(data), size):
            shard.data_received(data[at : at + size])
        await asyncio.sleep(0)

    asyncio.run(main())

    assert arrived == calls
