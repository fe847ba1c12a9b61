"""Listeners that pass calls on to the sides of a node, and a site that serves.

The one file with aiohttp's server.
"""

import asyncio
import random
import signal
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple
from urllib.parse import unquote

from covey.calls import Call, Handler, Problem, Reply, respond
from covey.errors import MissingExtra
from covey.front import Front
from covey.node import Doors, Node
from covey.sites import ServedSite
from covey.store import Store
from covey.threads import Threads

try:
    from aiohttp import HttpVersion11, web
except ImportError as missing:
    raise MissingExtra('a node needs aiohttp to serve: pip install "covey[node]"') from missing

RECEIPT_S = 10.0  # within which a body must have come
LINGER_S = 1.0  # for which what nobody wants is still read, so that the answer gets through
FINISH_S = 15.0  # for which requests under way are waited for at the end


class Caller(NamedTuple):
    """Who calls: a client or a peer by name, and what its token is for."""

    name: str = ""
    rights: frozenset[str] = frozenset()


# Says who calls, by a call without its body and by the TLS connection; raises `Problem`.
Admit = Callable[[Call, ssl.SSLObject | None], Caller]


def anybody(head: Call, connection: ssl.SSLObject | None) -> Caller:
    """Let everybody in, without a name."""
    return Caller()


class Listener:
    """One port: reads requests whole, within limits, and hands them to one side of a node."""

    def __init__(
        self,
        handler: Handler,
        address: tuple[str, int],
        *,
        admit: Admit = anybody,
        tls: ssl.SSLContext | None = None,
        most_bytes: int,
    ) -> None:
        self._handler = handler
        self._address = address
        self._admit = admit
        self._tls = tls
        self._most_bytes = most_bytes

    async def open(self) -> tuple[str, int]:
        """Begin to listen; return where."""
        # No router and no middlewares: they cost more than an answer does.
        self._web = web.Server(
            self._answer, access_log=None, auto_decompress=False, lingering_time=LINGER_S
        )
        host, port = self._address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._web, host, port, ssl=self._tls)
        name: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return name

    async def close(self) -> None:
        """Listen no more; requests under way are answered first."""
        self._server.close()
        self._web.pre_shutdown()
        await self._web.shutdown(FINISH_S)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            call = await self._receive(request)
        except Problem as problem:
            return _response(problem.reply())
        return _response(await respond(self._handler, call))

    async def _receive(self, request: web.BaseRequest) -> Call:
        path = request.raw_path.partition("?")[0]
        path = unquote(path) if "%" in path else path
        head = Call(request.method, path, request.headers)
        connection = None
        if self._tls is not None and request.transport is not None:
            connection = request.transport.get_extra_info("ssl_object")
        caller = self._admit(head, connection)
        body = await self._body(request) if request.body_exists else b""
        return Call(head.method, path, head.headers, body, caller.name, caller.rights)

    async def _body(self, request: web.BaseRequest) -> bytes:
        """Return the body of a request, if it is not too large and comes in time."""
        if "Content-Encoding" in request.headers:
            raise Problem(415, "media_type", "send the body as it is, not compressed")
        if (request.content_length or 0) > self._most_bytes:
            raise self._too_large()
        if request.headers.get("Expect", "").lower() == "100-continue":
            await _go_on(request)
        try:
            async with asyncio.timeout(RECEIPT_S):
                return await self._read(request)
        except TimeoutError:
            raise Problem(
                408, "too_slow", f"the body did not come within {RECEIPT_S:g} s"
            ) from None
        except web.RequestPayloadError:
            raise Problem(400, "broken_body", "the body did not come whole") from None

    async def _read(self, request: web.BaseRequest) -> bytes:
        body = bytearray()
        while chunk := await request.content.readany():
            body += chunk
            if len(body) > self._most_bytes:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> Problem:
        return Problem(413, "too_large", f"a body may have {self._most_bytes} bytes")


async def serve(served: ServedSite, *, is_up: Callable[[str], None]) -> None:
    """Serve a site until the process is told to stop; `is_up` is told where it listens."""
    stop = _stop_signal()
    async with AsyncExitStack() as stack:
        store = Store(served.store)
        stack.callback(store.close)
        threads = Threads(store)
        stack.callback(threads.close)
        doors = Doors(store, {}, random.SystemRandom(), threads)
        node = Node(served.site, served.learner, served.functions, doors, patience=served.patience)
        stack.callback(node.stop)
        clients = Listener(
            Front(served, node),
            (served.host, served.port),
            most_bytes=served.serving.body_kib * 1024,
        )
        host, port = await clients.open()
        stack.push_async_callback(clients.close)
        # Peers come in here, by a listener of their own: its handler is the side for peers, its
        # TLS context is `tls.server_context`, and it admits by `tls.admit`.
        node.start()
        is_up(f"http://{host}:{port}/v2/models/{served.serving.name}")
        await stop.wait()


def _stop_signal() -> asyncio.Event:
    """Return what is set when the process is told to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _go_on(request: web.BaseRequest) -> None:
    if request.version == HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # nothing of the answer itself was sent


def _response(reply: Reply) -> web.Response:
    headers = {"Content-Type": reply.kind, "Server": "covey", **reply.headers}
    return web.Response(body=reply.body, status=reply.status, headers=headers)
