"""A listener on the loopback that echoes, and raw bytes over its connections."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from covey.node.functions import Limits
from covey.server import connection
from covey.server.connection import Listener, LoopbackOnly
from covey.server.http import Address, HttpRequest, HttpResponse
from support.coroutines import Story, as_test

GET = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Echo:
    """Answers with what was sent, when it is let."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.calls = 0
        self.copies = 1

    async def handle(self, call: HttpRequest) -> HttpResponse:
        self.calls += 1
        self.headers = call.headers
        await self.may_answer.wait()
        return HttpResponse(body=call.body * self.copies)


class Port:
    """A listener, and what comes over its connections."""

    def __init__(self, port: int, echo: Echo) -> None:
        self.port = port
        self.echo = echo

    async def open(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        return reader, writer

    async def answers(self, sent: bytes) -> bytes:
        """All that comes until the connection is closed; nothing if it is reset."""
        reader, writer = await self.open(sent)
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def listening(
    *,
    tls: Callable[[], ssl.SSLContext] | None = None,
    gate: LoopbackOnly | None = None,
    **changes: Any,
) -> AsyncIterator[Port]:
    """Listen with other limits: keys of `[limits]`, or constants in small letters."""
    echo = Echo()
    address = Address("127.0.0.1", 0)
    keys = {field.name for field in msgspec.structs.fields(Limits)}
    limits = Limits(**{key: value for key, value in changes.items() if key in keys})
    fixed = {"finish_s": 1.0} | {key: changes[key] for key in changes.keys() - keys}
    made = Listener(
        echo,
        address,
        gate=gate or LoopbackOnly(),
        limits=limits,
        tls=tls,
    )
    with pytest.MonkeyPatch.context() as patch:
        for key, value in fixed.items():
            patch.setattr(connection, key.upper(), value)
        url = await made.open()
        try:
            yield Port(int(url.rpartition(":")[2]), echo)
        finally:
            await made.close()


def told(story: Callable[[Port], Awaitable[None]], **changes: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), listening(**changes) as port:
            await story(port)

    asyncio.run(main())


def listened(**changes: Any) -> Callable[[Story], Callable[..., None]]:
    """Make a test of the story of a `port`."""
    return lambda story: as_test(
        story,
        lambda story, values: told(lambda port: story(port=port), **changes),
        gets=["port"],
    )


def post(body: bytes, *, kind: str = "application/json", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {size}"
    return head.encode() + b"\r\n\r\n" + body
