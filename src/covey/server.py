"""Listeners that pass calls on to the sides of a node, and a site that serves.

The one file with aiohttp's server.
"""

import asyncio
import logging
import random
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from urllib.parse import unquote

from covey import letters, tls
from covey.back import Back
from covey.calls import Call, Handler, Problem, Reply, respond
from covey.errors import ConfigError, CoveyError, MissingExtra
from covey.front import OPEN_PATHS, Front
from covey.gates import Anybody, ByCertificate, ByToken, Gate
from covey.https_peers import HttpsPeers
from covey.neighbours import allowed
from covey.node import Doors, Node
from covey.sites import Address, Identity, ServedSite
from covey.store import Store
from covey.threads import Threads

try:
    from aiohttp import HttpVersion11, web
except ImportError as missing:
    raise MissingExtra('a node needs aiohttp to serve: pip install "covey[node]"') from missing

RECEIPT_S = 10.0  # within which a body must have come
LINGER_S = 1.0  # for which what nobody wants is still read, so that the answer gets through
FINISH_S = 15.0  # for which requests under way are waited for at the end
log = logging.getLogger(__name__)


class Listener:
    """One port: reads requests whole, within limits, and hands them to one side of a node."""

    def __init__(
        self,
        handler: Handler,
        address: Address,
        *,
        gate: Gate,
        tls: Callable[[], ssl.SSLContext] | None = None,
        most_bytes: int,
    ) -> None:
        """`tls` reads certificates, at the start and whenever they are to be read again."""
        self._handler = handler
        self._address = address
        self._gate = gate
        self._tls = tls
        self._most_bytes = most_bytes

    async def open(self) -> str:
        """Begin to listen; return the URL."""
        # No router and no middlewares: they cost more than an answer does.
        self._web = web.Server(
            self._answer, access_log=None, auto_decompress=False, lingering_time=LINGER_S
        )
        self._socket = _bound(self._address)
        self._server = await self._listen()
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def reload(self) -> None:
        """Read tokens and certificates again; connections that are open stay so."""
        self._gate.reload()
        try:
            before, self._server = self._server, await self._listen()
            before.close()
        except CoveyError as error:
            log.error("the certificate stays as it was: %s", error)

    async def close(self) -> None:
        """Listen no more; requests under way are answered first."""
        self._server.close()
        self._socket.close()
        self._web.pre_shutdown()
        await self._web.shutdown(FINISH_S)

    async def _listen(self) -> asyncio.Server:
        context = None if self._tls is None else self._tls()
        # The socket is kept, so that no caller is turned away while certificates change.
        return await asyncio.get_running_loop().create_server(
            self._web, sock=self._socket.dup(), ssl=context
        )

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
        caller = self._gate.admit(head, connection)
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


async def serve(served: ServedSite, *, is_up: Callable[..., None]) -> None:
    """Serve a site until the process is told to stop.

    `is_up` is told where it listens: for clients, and then for peers if it does.
    """
    stop = _stop_signal()
    async with AsyncExitStack() as stack:
        store, threads = _threads(served, stack)
        peers = _peers(served, stack)
        ways = {} if peers is None else peers.by_name
        node = _node(served, Doors(store, ways, random.SystemRandom(), threads))
        stack.callback(node.stop)
        listeners = [_for_clients(served, node)]
        if served.peer_address is not None and served.identity is not None:
            listeners.append(_for_peers(served, node, served.peer_address, served.identity))
        urls = []
        for listener in listeners:
            urls.append(await listener.open())
            stack.push_async_callback(listener.close)
        _on_hangup(listeners if peers is None else [*listeners, peers])
        node.start()
        is_up(f"{urls[0]}/v2/models/{served.serving.name}", *urls[1:])
        await stop.wait()


def _threads(served: ServedSite, stack: AsyncExitStack) -> tuple[Store, Threads]:
    store = Store(served.store)
    stack.callback(store.close)
    threads = Threads(store)
    stack.callback(threads.close)
    return store, threads


def _peers(served: ServedSite, stack: AsyncExitStack) -> HttpsPeers | None:
    """Return the ways to the neighbours that have an address; None for a site without keys."""
    if served.identity is None:
        return None
    identify = partial(tls.client_context, *served.identity)
    peers = HttpsPeers(served.neighbours, identify, random.SystemRandom())
    stack.push_async_callback(peers.close)
    return peers


def _node(served: ServedSite, doors: Doors) -> Node:
    return Node(
        served.site,
        served.learner,
        served.functions,
        doors,
        trust={name: one.trust for name, one in served.neighbours.items()},
        patience=served.patience,
    )


def _for_clients(served: ServedSite, node: Node) -> Listener:
    gate: Gate = Anybody()
    if served.tokens is not None:
        gate = ByToken(served.tokens, open_paths=OPEN_PATHS)
    certificates = None
    if served.has_tls and served.identity is not None:
        certificates = partial(tls.open_context, *served.identity)
    return Listener(
        Front(served, node),
        served.address,
        gate=gate,
        tls=certificates,
        most_bytes=served.serving.body_kib * 1024,
    )


def _for_peers(served: ServedSite, node: Node, address: Address, identity: Identity) -> Listener:
    return Listener(
        Back(node, served.neighbours),
        address,
        gate=ByCertificate(allowed(served.neighbours)),
        tls=partial(tls.server_context, *identity),
        most_bytes=letters.MOST_BYTES,
    )


def _on_hangup(readers: Sequence[Listener | HttpsPeers]) -> None:
    """Have tokens and certificates read again when the process is told to."""
    loop = asyncio.get_running_loop()
    under_way: set[asyncio.Task[None]] = set()

    def reload() -> None:
        for reader in readers:
            task = loop.create_task(reader.reload())
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)


def _bound(address: Address) -> socket.socket:
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server(address, family=family, backlog=128)
    except OSError as error:
        raise ConfigError(f"cannot serve at {address.host}:{address.port}: {error}") from None
    bound.setblocking(False)  # a copy that blocks would make all of them block
    return bound


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
