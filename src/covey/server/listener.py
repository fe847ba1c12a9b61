"""Listen for HTTP requests: authenticate the caller, apply the limits, call the handler.

Clients have bearer tokens, peers have client certificates.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Container, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

from covey.errors import ConfigError, CoveyError, MissingExtra, PeerRefused
from covey.node.workers import Observer
from covey.server import keys, tokens
from covey.server.config import is_loopback
from covey.server.http import (
    KIB,
    MIB,
    Address,
    ConnectionLimit,
    HttpHandler,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    SiteLimits,
    TokenBucket,
    respond,
)

log = logging.getLogger(__name__)


class Caller(NamedTuple):
    """The name of a client or a peer, and the scopes of a client's token."""

    name: str = ""
    rights: frozenset[str] = frozenset()


class Authenticator(Protocol):
    """Authenticates a request before its body is read."""

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        """Return the caller; raise `HttpProblem` if the request is refused."""


class LoopbackOnly:
    """Admits every client on this machine, without a name and with all scopes."""

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        """Admit requests whose Host header names this machine."""
        # A web page can send requests to the loopback under its own host name (DNS rebinding).
        host = head.headers.get("host", "localhost").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name != "localhost" and not is_loopback(name.strip("[]")):
            raise HttpProblem(403, "not_allowed", "without tokens, use 127.0.0.1 or localhost")
        return Caller("", frozenset(tokens.SCOPES))


class TokenAuth:
    """Admits clients by the tokens of a file, which is read again when it has changed."""

    def __init__(self, path: Path, *, open_paths: Container[str] = ()) -> None:
        """Require a token except for `open_paths`."""
        self._path = path
        self._open_paths = open_paths
        self._version = _version(path)
        self._known = tokens.listed(path)

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        if head.path in self._open_paths:
            return Caller()
        if _version(self._path) != self._version:
            self._reload()
        found = tokens.find(self._known, head.headers.get("authorization"))
        if isinstance(found, tokens.Refused):
            raise HttpProblem(401, "no_token", found.sentence, {"WWW-Authenticate": "Bearer"})
        return Caller(found.name, frozenset(found.scopes))

    def _reload(self) -> None:
        """Read the file. A missing file admits no client; a broken one keeps the known tokens."""
        self._version = _version(self._path)
        try:
            self._known = tokens.listed(self._path)
        except ConfigError as error:
            if self._path.exists():
                log.error("token file not reloaded, the known tokens stay valid: %s", error)
            else:
                log.error("token file missing, every client is refused: %s", error)
                self._known = ()


class RateLimited:
    """Limits the request rate of each caller that another gate admits."""

    def __init__(self, gate: Authenticator, rate_per_s: float) -> None:
        self._gate = gate
        self._rate_per_s = rate_per_s
        self._buckets: dict[str, TokenBucket] = {}  # by caller

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        caller = self._gate.admit(head, connection)
        bucket = self._buckets.setdefault(caller.name, TokenBucket(self._rate_per_s))
        bucket.spend(f"a client may send {self._rate_per_s:g} requests per second; retry later")
        return caller


class CertificateAuth:
    """Admits peers whose name and key are on the allow list."""

    def __init__(self, allowed: Mapping[str, str]) -> None:
        self._allowed = allowed

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        """Return the peer; the list is looked up for every request, so a change counts at once."""
        if connection is None:
            raise HttpProblem(403, "not_allowed", "peers must use TLS")
        try:
            return Caller(keys.admit(connection, self._allowed))
        except PeerRefused as refused:
            log.warning("peer refused: %s", refused)
            raise HttpProblem(403, "not_allowed", "access denied") from None


def _version(path: Path) -> tuple[int, ...]:
    """Return a value that changes when the file changes."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


try:
    from aiohttp import HttpVersion11, web
    from aiohttp.http_exceptions import LineTooLong
except ImportError as missing:
    raise MissingExtra('a node needs aiohttp to serve: pip install "covey[node]"') from missing

LINGER_S = 1.0  # for which an unwanted body is still read, so that the response arrives
PAUSE_S = 1.0  # before the next accept, if one failed


class Listener:
    """One port: reads complete requests within limits and passes them to a handler."""

    def __init__(
        self,
        handler: HttpHandler,
        address: Address,
        *,
        gate: Authenticator,
        limits: SiteLimits,
        tls: Callable[[], ssl.SSLContext] | None = None,
        side: str = "",
        watcher: Observer | None = None,
    ) -> None:
        """`tls` reads the certificate, at the start and for every reload.

        `watcher` gets every response, under the name `side`.
        """
        self._handler = handler
        self._address = address
        self._gate = gate
        self._limits = limits
        self._tls = tls
        self._side = side
        self._watcher = watcher or Observer()
        self._context: ssl.SSLContext | None = None
        self._connections = ConnectionLimit(limits.connections, limits.connections_per_address)
        self._held_bytes = 0  # of bodies
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Start to listen; return the URL."""
        self._context = None if self._tls is None else self._tls()
        # No router and no middlewares: they cost more than an answer does.
        self._web = web.Server(self._answer, request_factory=_request)
        self._socket = self._address.bind()
        self._socket.setblocking(False)
        self._start(self._accept())
        bound = Address(*self._socket.getsockname()[:2])
        return bound.url("http" if self._tls is None else "https")

    def reload(self) -> None:
        """Read the certificate again; open connections stay open."""
        try:
            self._context = None if self._tls is None else self._tls()
        except CoveyError as error:
            log.error("certificate not reloaded, the old one stays in use: %s", error)

    async def close(self) -> None:
        """Stop listening; requests in progress are answered first."""
        for task in self._tasks:
            task.cancel()
        self._socket.close()
        self._web.pre_shutdown()
        await self._web.shutdown(self._limits.finish_s)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, (host, *_) = await loop.sock_accept(self._socket)
            except OSError as error:
                log.error("cannot accept connections: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            if self._connections.enter(host):
                self._start(self._connect(taken, host))
            else:
                self._watcher.turn_away(self._side)
                taken.close()

    async def _connect(self, taken: socket.socket, host: str) -> None:
        """Do the TLS handshake, if any, and start to read."""
        loop = asyncio.get_running_loop()
        leave = partial(self._connections.leave, host)
        try:
            await loop.connect_accepted_socket(
                partial(_Connection, self._web, self._limits, leave, self._refused),
                taken,
                ssl=self._context,
                ssl_handshake_timeout=None if self._context is None else self._limits.handshake_s,
            )
        except OSError:
            leave()
        except asyncio.CancelledError:
            leave()
            raise

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        path = unquote(path) if "%" in path else path
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        reply = await self._reply(request, path)
        self._watcher.answer(self._side, path, reply.status, loop.time() - begun_s)
        if isinstance(request.protocol, _Connection):
            request.protocol.expect_head()
        return _web_response(reply)

    def _refused(self, problem: HttpProblem) -> None:
        """Report the response to a request that could not be parsed."""
        self._watcher.answer(self._side, "", problem.status, 0.0)

    async def _reply(self, request: web.BaseRequest, path: str) -> HttpResponse:
        call = None
        try:
            call = await self._receive(request, path)
            return await respond(self._handler, call)
        except HttpProblem as problem:
            return problem.reply()
        finally:
            if call is not None:
                self._held_bytes -= len(call.body)

    async def _receive(self, request: web.BaseRequest, path: str) -> HttpRequest:
        lines = sum(len(name) + len(value) + 4 for name, value in request.raw_headers)
        if len(request.raw_path) + lines > self._limits.head_kib * KIB:
            raise _head_too_large(self._limits)
        head = HttpRequest(request.method, path, request.headers)
        connection = None
        if self._tls is not None and request.transport is not None:
            connection = request.transport.get_extra_info("ssl_object")
        caller = self._gate.admit(head, connection)
        body = await self._body(request) if request.body_exists else b""
        return HttpRequest(head.method, path, head.headers, body, caller.name, caller.rights)

    async def _body(self, request: web.BaseRequest) -> bytes:
        """Return the body of a request if it is not too large and arrives in time."""
        if "Content-Encoding" in request.headers:
            raise HttpProblem(415, "media_type", "send the body uncompressed")
        most = self._limits.most_bytes(request.headers.get("Content-Type", ""))
        if (request.content_length or 0) > most:
            raise _too_large(most)
        expected = request.headers.get("Expect", "").lower()
        if expected == "100-continue" and request.version == HttpVersion11:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # nothing of the answer itself was sent
        within_s = self._limits.body_s
        try:
            async with asyncio.timeout(within_s):
                return await self._read(request, most)
        except TimeoutError:
            within = f"the body did not arrive within {within_s:g} s"
            raise HttpProblem(408, "too_slow", within) from None
        except (web.RequestPayloadError, ConnectionError):
            raise HttpProblem(400, "broken_body", "the body is incomplete") from None

    async def _read(self, request: web.BaseRequest, most: int) -> bytes:
        body = bytearray()
        try:
            while chunk := await request.content.readany():
                body += chunk
                self._held_bytes += len(chunk)
                if len(body) > most:
                    raise _too_large(most)
                if self._held_bytes > self._limits.bodies_mib * MIB:
                    raise HttpProblem(503, "busy", "too many bytes are being received; retry later")
        except BaseException:
            self._held_bytes -= len(body)
            raise
        return bytes(body)


class _Connection(web.RequestHandler):
    """A connection that is closed if the head of a request does not arrive in time."""

    def __init__(
        self,
        server: web.Server,
        limits: SiteLimits,
        leave: Callable[[], None],
        refused: Callable[[HttpProblem], None],
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle_s,
            access_log=None,  # type: ignore[arg-type] # aiohttp takes None for none, and says not
            auto_decompress=False,
            lingering_time=LINGER_S,
            max_line_size=limits.head_kib * KIB,
            max_field_size=limits.head_kib * KIB,
        )
        self._limits = limits
        self._leave = leave
        self._refused = refused
        self._timer: asyncio.TimerHandle | None = None
        self.expect_head()

    def expect_head(self) -> None:
        self._is_in_head = True
        self._since_s: float | None = None
        self._head_bytes = 0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()
        self._leave()

    def data_received(self, data: bytes) -> None:
        """Take received bytes; refuse a head that is too long or too slow."""
        if self._is_in_head and data:
            if self._since_s is None:
                self._begin_head()
            self._head_bytes += len(data)
            ends = b"\r\n\r\n" in self._tail + data
            if not ends and self._head_bytes > self._limits.head_kib * KIB:
                self._refuse(_head_too_large(self._limits))
                return
            self._tail = (self._tail + data)[-3:]
            self._is_in_head = not ends
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Refuse what is not HTTP, without a log line: any program can send it."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        problem = HttpProblem(400, "bad_http", "this is not an HTTP/1.1 request")
        if isinstance(exc, LineTooLong):
            problem = _head_too_large(self._limits)
        self._refused(problem)
        response = _web_response(problem.reply())
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response; abort if the client does not read it in time."""
        try:
            async with asyncio.timeout(self._limits.answer_s):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            return resp, True

    def _begin_head(self) -> None:
        self._since_s = self._loop.time()
        if self._timer is None:  # else it looks again when it is due
            self._timer = self._loop.call_later(self._limits.head_s, self._look)

    def _look(self) -> None:
        """Close the connection if a head is overdue."""
        self._timer = None
        if not self._is_in_head or self._since_s is None:
            return
        due_s = self._since_s + self._limits.head_s
        if self._loop.time() >= due_s:
            within = f"the head did not arrive within {self._limits.head_s:g} s"
            self._refuse(HttpProblem(408, "too_slow", within))
        else:
            self._timer = self._loop.call_at(due_s, self._look)

    def _refuse(self, problem: HttpProblem) -> None:
        """Close the connection, with a response if anything was received."""
        transport: Any = self.transport
        if transport is not None and self._head_bytes:
            self._refused(problem)
            reply = problem.reply()
            transport.write(
                b"HTTP/1.1 %d Refused\r\nContent-Type: %s\r\nContent-Length: %d\r\n"
                b"Connection: close\r\n\r\n%s"
                % (reply.status, reply.kind.encode(), len(reply.body), reply.body)
            )
        self.force_close()


class _Request(web.BaseRequest):
    """A request whose response omits the Server header."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers.pop("Server", None)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    return _Request(message, payload, protocol, writer, task, asyncio.get_running_loop())


def _web_response(reply: HttpResponse) -> web.Response:
    headers = {"Content-Type": reply.kind, **reply.headers}
    return web.Response(body=reply.body, status=reply.status, headers=headers)


def _too_large(most: int) -> HttpProblem:
    return HttpProblem(413, "too_large", f"the body may have at most {most} bytes")


def _head_too_large(limits: SiteLimits) -> HttpProblem:
    return HttpProblem(431, "head_too_large", f"the head may have at most {limits.head_kib} KiB")
