"""The ports of a site: who is let in, and HTTP/1.1 over TLS within the limits."""

import asyncio
import logging
import math
import ssl
import sys
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from covey import files
from covey.errors import ConfigError, CoveyError, MissingExtra, PeerRefused, need_of
from covey.node.functions import Limits
from covey.server import keys, tokens
from covey.server.http import (
    KIB,
    LENGTH,
    MIB,
    RELOAD,
    Address,
    Authenticator,
    Caller,
    HttpHandler,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    Rates,
    Turns,
    head_too_large,
    is_loopback,
    most_bytes,
    not_compressed,
    not_http,
    respond,
    too_large,
    unexpected,
)
from covey.server.keys import Tls
from covey.server.metrics import Metrics

try:
    from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
except ImportError as missing:
    raise MissingExtra(need_of("served sites", "httptools", extra="node")) from missing

log = logging.getLogger(__name__)
HANDSHAKE_S = 5.0  # within which TLS is agreed on
HEAD_S = 5.0  # within which the head of a request comes
BODY_S = 10.0  # within which its body comes
ANSWER_S = 10.0  # within which the answer is taken
IDLE_S = 60.0  # after which a connection without a request is closed
HEAD_KIB = 16  # of a request's head
BODIES_MIB = 128  # of all bodies that the connections of a port hold at once
READ_BYTES = 64 * KIB  # of a connection at once
MOST_PIPELINED = 64  # requests of a connection that wait for the answer to another one
MOST_RATIO, MOST_DENSE = 100, 256 * KIB  # of a body to its compressed form, beyond so many bytes
LINGER_S = 1.0  # for which an unwanted body is still read, so that the response arrives
# Of which a second one would let two programs understand a request differently.
_OF_BODIES = ("content-encoding", "content-length", "content-type", "expect", LENGTH.lower())
SINGLE = frozenset([*_OF_BODIES, "authorization", "host", "origin", "transfer-encoding"])
WINDOW_BITS = {
    "gzip": 16 + zlib.MAX_WBITS,
    "x-gzip": 16 + zlib.MAX_WBITS,
    "deflate": zlib.MAX_WBITS,
}
HANDSHAKE, FIRST, IDLE, HEAD, BODY = range(5)  # what is being read


class Exchange(NamedTuple):
    """A request, or why it is refused, and how its response is sent."""

    call: HttpRequest | HttpProblem
    path: str = ""
    begun_s: float | None = None  # None: not even its head was understood
    is_head: bool = False  # the response has no body
    is_last: bool = False  # the connection is closed after it
    coding: str = ""  # by which the body is compressed
    most: int = 0  # bytes of the body, once it is inflated

    @property
    def size(self) -> int:
        """The bytes of the body."""
        return len(self.call.body) if isinstance(self.call, HttpRequest) else 0


class Connection(asyncio.BufferedProtocol):
    """Parses requests, has them answered one after the other, and ends if it is too slow."""

    def __init__(self, port: "Listener") -> None:
        self._port = port
        self._host = ""
        self._counted: Counter[str] | None = None  # where the port counts it
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None  # asyncio types it as any transport
        self._tls = None if port.context is None else Tls(port.context)
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._reading = HANDSHAKE
        self.due_s = self._loop.time() + HANDSHAKE_S
        self._pending: deque[Exchange] = deque()
        self._is_answering = False
        self._is_blocked = False  # the client does not read
        self._is_deaf = False  # nothing more is parsed
        self._is_ending = False
        self._is_refused = False  # so that bytes may come that nothing reads
        self._held = b""  # read while a request was answered
        self._begin_message()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=0)
        self._host = (transport.get_extra_info("peername") or ("",))[0]
        self._counted = self._port.enter(self._host)
        if self._counted is None or self._port.is_closing:
            self.abort()
            return
        self._port.connections[self] = None
        if self._tls is None:
            self._open()

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.held_bytes -= self._size
        self._drop_pending()
        self._begin_message()
        self._is_deaf, self.due_s = True, math.inf
        self._transport = self._tls = self._parser = None  # they refer to each other
        self._port.forget(self, self._counted, self._host)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._port.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._port.buffer[:nbytes]
        tls = self._tls
        if self._is_deaf:
            return
        if tls is None:
            self._feed(data)
            return
        tls.incoming.write(data)
        if self._reading == HANDSHAKE and not self._shake(tls):
            return
        while not self._is_deaf and (count := tls.read(self._port.plain)) is not None:
            if not count:
                if not self.eof_received():
                    self._end()
                return
            self._feed(self._port.plain[:count])

    def eof_received(self) -> bool:
        """Keep the connection until what was asked is answered."""
        if self._reading == BODY and not self._is_deaf:
            self._refuse(HttpProblem(400, "broken_body", "the body is incomplete"))
            return True
        self._is_deaf = True
        return self._is_answering or bool(self._pending)

    def pause_writing(self) -> None:
        self._is_blocked = True
        self.due_s = self._loop.time() + ANSWER_S

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._next()

    def expire(self) -> None:
        """End the connection, as what it waits for did not come in time."""
        if self._is_blocked or self._is_ending or self._reading == HANDSHAKE:
            self.abort()
        elif self._reading in (FIRST, IDLE):
            self._end()
        else:
            what, within_s = "head", HEAD_S
            if self._reading == BODY:
                what, within_s = "body", BODY_S
            detail = f"the {what} did not arrive within {within_s:g} s"
            self._refuse(HttpProblem(408, "too_slow", detail))

    def stop(self) -> None:
        """End the connection, after the requests in progress are answered."""
        if self._reading != BODY and not self._is_answering and not self._pending:
            self._end()

    def abort(self) -> None:
        """End the connection at once."""
        self._is_ending = True
        if self._transport is not None:
            self._transport.abort()

    # -- reading ----------------------------------------------------------------------------------

    def _shake(self, tls: Tls) -> bool:
        """Return whether the handshake is complete."""
        try:
            is_done = tls.shake()
        except ssl.SSLError as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                log.warning("peer refused: its key is not listed (%s)", error.verify_message)
            self._transport.write(tls.sealed(b""))  # the alert
            self._transport.close()
            self._is_deaf = True
            return False
        self._transport.write(tls.sealed(b""))
        if is_done:
            self._open()
        return is_done

    def _open(self) -> None:
        self._reading = FIRST
        self.due_s = self._loop.time() + HEAD_S
        if self._counted is self._port.excess:
            self._refuse(BUSY)

    def _feed(self, data: memoryview) -> None:
        """Parse what was read; start to answer what is complete."""
        if self._is_answering or self._is_blocked:
            self._held += data
            self._transport.pause_reading()
            return
        was = self._reading
        if was in (FIRST, IDLE):
            self._reading = HEAD
            self.due_s = self._loop.time() + HEAD_S
        self._has_body = False
        parser = self._parser
        assert parser is not None
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            self._is_deaf = self._is_refused = True  # what follows is another protocol
        except HttpParserError as error:
            self._refuse(_problem_of(error.__context__))
            return
        if self._pending:
            self._bare_bytes = 0
            self._next()
            return
        if self._problem is not None:
            self._refuse(self._problem)
            return
        if was != BODY and self._reading == BODY:
            self.due_s = self._loop.time() + BODY_S
        self._bare_bytes = 0 if self._has_body else self._bare_bytes + len(data)
        if self._bare_bytes > HEAD_KIB * KIB:
            self._refuse(head_too_large(HEAD_KIB))

    def _begin_message(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._bare_bytes = 0  # read since there was anything of a body
        self._head: HttpRequest | None = None
        self._problem: HttpProblem | None = None
        self._body: bytes | bytearray = b""
        self._size = 0
        self._most = 0
        self._coding = ""

    def on_message_begin(self) -> None:
        self._reading = HEAD

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading == BODY:
            return  # after the body: not asked for
        self._head_bytes += len(name) + len(value) + 4
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        if key in self._headers:
            if key in SINGLE:
                raise not_http()
            text = f"{self._headers[key]}, {text}"
        self._headers[key] = text

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, self._headers
        assert parser is not None
        self._reading = BODY
        if self._head_bytes + len(self._url) > HEAD_KIB * KIB:
            raise head_too_large(HEAD_KIB)
        self._version = parser.get_http_version()
        if self._version != "1.0" and (self._version != "1.1" or "host" not in headers):
            raise not_http()
        self._is_upgrade = parser.should_upgrade()
        self._begun_s = self._loop.time()
        self._method = parser.get_method().decode("latin-1")
        path, _, self._query = self._url.decode("utf-8", "replace").partition("?")
        self._path = unquote(path) if "%" in path else path
        # The response to HEAD is the one to GET, without its body.
        method = "GET" if self._method == "HEAD" else self._method
        self._head = HttpRequest(method, self._path, headers)
        tls = None if self._tls is None else self._tls.object
        try:
            self._caller = self._port.gate.admit(self._head, tls)
            if "content-length" in headers or "transfer-encoding" in headers:
                self._expect_body(headers)
        except HttpProblem as problem:
            self._problem = problem

    def _expect_body(self, headers: Mapping[str, str]) -> None:
        """Prepare for a body; raise `HttpProblem` if it is not wanted."""
        if self._is_upgrade:  # after which the parser reads no body
            only = "only HTTP/1.1 is spoken here; send no Upgrade header with a body"
            raise HttpProblem(400, "bad_http", only)
        if headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise not_http()
        most = self._caller.most_bytes
        self._most = most_bytes(self._port.limits, headers) if most is None else most
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            if coding not in WINDOW_BITS:
                raise HttpProblem(415, "media_type", "send the body plain, or by gzip or deflate")
            self._coding = coding
        if int(headers.get("content-length", "0")) > self._most:
            raise too_large(self._most)
        if headers.get("expect", "").lower() == "100-continue" and self._version == "1.1":
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._has_body = True
        if self._problem is not None:
            return
        try:
            self._take(data)
        except HttpProblem as problem:
            self._problem = problem
            self._port.held_bytes -= self._size
            self._body, self._size = b"", 0

    def _take(self, chunk: bytes) -> None:
        if not self._size:
            self._body = chunk  # mostly the whole body
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += chunk
        self._size += len(chunk)
        self._port.held_bytes += len(chunk)
        if self._size > self._most:
            raise too_large(self._most)
        self._check_room()

    def _check_room(self) -> None:
        if self._port.held_bytes > BODIES_MIB * MIB:
            raise HttpProblem(503, "busy", "too many bytes are being received; retry later")

    def on_message_complete(self) -> None:
        """Queue the request, or the refusal, for its answer."""
        parser, call = self._parser, self._head
        assert parser is not None
        self._reading = IDLE
        answered: HttpRequest | HttpProblem
        if self._problem is not None or call is None:
            answered = self._problem or not_http()
        else:
            body = bytes(self._body)  # no copy if it came at once
            caller = self._caller.name, self._caller.rights
            answered = HttpRequest(call.method, call.path, call.headers, body, *caller, self._query)
        is_head, is_last = self._method == "HEAD", not parser.should_keep_alive()
        is_last |= self._is_upgrade or self._version == "1.0"
        is_last |= isinstance(answered, HttpProblem) and answered.is_last
        how = self._path, self._begun_s, is_head, is_last, self._coding, self._most
        self._pending.append(Exchange(answered, *how))
        self._begin_message()
        if len(self._pending) > MOST_PIPELINED:
            self._port.held_bytes -= self._pending.pop().size
            most = f"at most {MOST_PIPELINED} requests may be sent ahead of their responses"
            raise HttpProblem(429, "too_often", most)

    # -- answering --------------------------------------------------------------------------------

    def _refuse(self, problem: HttpProblem) -> None:
        """Respond with a problem, after what was asked before; then close the connection."""
        begun_s = None if self._head is None else self._begun_s
        path = "" if self._head is None else self._path
        self._is_deaf = self._is_refused = True
        self._port.held_bytes -= self._size
        self._begin_message()
        self._pending.append(Exchange(problem, path, begun_s, is_last=True))
        self._next()

    def _next(self) -> None:
        """Answer the next request; if there is none, wait for it."""
        while not (self._is_answering or self._is_blocked or self._transport is None):
            if self._pending:
                exchange = self._pending.popleft()
                if isinstance(exchange.call, HttpProblem):
                    self._reply(exchange, exchange.call.reply())
                    continue
                self._is_answering, self.due_s = True, math.inf
                answering = self._answer(exchange, exchange.call)
                self._port.tasks[self] = self._loop.create_task(answering)
            elif self._is_deaf or (self._port.is_closing and self._reading != BODY):
                self._end()
            elif self._held:
                data, self._held = self._held, b""
                self._transport.resume_reading()
                self._feed(memoryview(data))
            else:
                within_s = IDLE_S
                if self._reading != IDLE:
                    within_s = BODY_S if self._reading == BODY else HEAD_S
                self.due_s = self._loop.time() + within_s
            return

    async def _answer(self, exchange: Exchange, call: HttpRequest) -> None:
        port = self._port
        try:
            if exchange.coding:
                async with port.inflating:
                    how = call.body, exchange.coding, exchange.most
                    body = await asyncio.to_thread(inflate, *how)
                port.held_bytes += len(body) - len(call.body)
                call = msgspec.structs.replace(call, body=body)
                self._check_room()
            if call.method == "GET" or call.path == RELOAD:
                reply = await respond(port.handler, call)
            else:
                async with port.turns:
                    reply = await respond(port.handler, call)
        except HttpProblem as problem:  # of the compressed body
            reply, exchange = problem.reply(), exchange._replace(is_last=True)
        finally:
            port.held_bytes -= len(call.body)
            del port.tasks[self]
        self._is_answering = False
        self._reply(exchange, reply)
        self._next()

    def _drop_pending(self) -> None:
        self._port.held_bytes -= sum(exchange.size for exchange in self._pending)
        self._pending.clear()

    def _reply(self, exchange: Exchange, reply: HttpResponse) -> None:
        """Send a response, unless the client is gone."""
        begun_s = exchange.begun_s
        took_s = 0.0 if begun_s is None else self._loop.time() - begun_s
        self._port.metrics.answer(self._port.side, exchange.path, reply.status, took_s)
        if self._transport is None:
            return
        is_last = exchange.is_last or self._port.is_closing
        if is_last:
            self._is_deaf = True
            self._drop_pending()
        head = self._port.head(reply, is_last=is_last)
        self._send(head if exchange.is_head else head + reply.body)

    def _send(self, data: bytes) -> None:
        try:
            self._transport.write(data if self._tls is None else self._tls.sealed(data))
        except ssl.SSLError:
            self.abort()

    def _end(self) -> None:
        if self._is_ending or self._transport is None:
            return
        self._is_deaf = self._is_ending = True
        if self._tls is not None:
            self._transport.write(self._tls.close())
        if self._is_refused or self._held:
            # Read on for a while: unread bytes would reset the connection, and lose the response.
            self.due_s = self._loop.time() + LINGER_S
            try:
                self._transport.write_eof()
            except OSError:  # the client is gone
                self.abort()
            else:
                self._transport.resume_reading()
        else:
            self._transport.close()


def inflate(body: bytes, coding: str, most: int) -> bytes:
    """Return what a compressed body holds.

    Raises `HttpProblem` if it holds more than may be sent plain, or is not one whole body that is
    compressed by `coding`.
    """
    inflater = zlib.decompressobj(WINDOW_BITS[coding])
    most_dense = max(MOST_DENSE, MOST_RATIO * len(body))
    try:
        content = inflater.decompress(body, min(most, most_dense) + 1)
    except zlib.error:
        raise not_compressed() from None
    if len(content) > most:
        raise too_large(most)
    if len(content) > most_dense:
        size = f"more than {MOST_RATIO} times as large as its compressed form"
        dense = f"the body is {size}; send the body plain"
        raise HttpProblem(413, "too_large", dense, is_last=True)
    if inflater.unused_data or not inflater.eof:
        raise not_compressed()
    return content


def _problem_of(cause: BaseException | None) -> HttpProblem:
    """Return the problem of a request at which the parser, or a call from it, stopped."""
    if cause is None:
        return not_http()
    return cause if isinstance(cause, HttpProblem) else unexpected(cause)


# -- who is let in ---------------------------------------------------------------------------------

EVERYTHING = Caller("", frozenset(tokens.SCOPES))


class LoopbackOnly:
    """Admits every client on this machine, without a name and with all scopes."""

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        """Admit requests whose Host header names this machine."""
        # A web page can send requests to the loopback under its own host name (DNS rebinding).
        host = head.headers.get("host", "localhost").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        name = name.strip("[]")
        if name != "localhost" and not is_loopback(name):
            raise HttpProblem(403, "not_allowed", "without tokens, use 127.0.0.1 or localhost")
        # And under any name: a browser adds whose page it is to what such a page posts.
        origin = head.headers.get("origin")
        scheme = "http" if connection is None else "https"
        if origin is not None and origin.lower() != f"{scheme}://{host}":
            refusal = "web pages of another origin may not call this site (Origin header)"
            raise HttpProblem(403, "not_allowed", refusal)
        return EVERYTHING


class TokenAuth:
    """Admits clients by the tokens of a file, which is read again when it has changed."""

    def __init__(self, path: Path, *, open_paths: Container[str] = ()) -> None:
        """Require a token except for `open_paths`."""
        self._path = path
        self._open_paths = open_paths
        self._version = files.version(path)
        self._known = tokens.listed(path)

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        if head.path in self._open_paths:
            return Caller()
        token = tokens.find(self._present(), head.headers.get("authorization"))
        if isinstance(token, str):
            headers = {"WWW-Authenticate": "Bearer"}
            raise HttpProblem(401, "no_token", tokens.SENTENCES[token], headers)
        return Caller(token.name, frozenset(token.scopes))

    def _present(self) -> tuple[tokens.Token, ...]:
        """Return the tokens of the file as it is now.

        A missing file admits no client; a broken one keeps the known tokens.
        """
        before, self._version = self._version, files.version(self._path)
        if self._version == before:
            return self._known
        try:
            self._known = tokens.listed(self._path)
        except ConfigError as error:
            if self._path.exists():
                log.error("token file not reloaded, the known tokens stay valid: %s", error)
            else:
                log.error("token file missing, every client is refused: %s", error)
                self._known = ()
        return self._known


class RateLimited(NamedTuple):
    """Limits the request rate of each caller that another gate admits."""

    gate: Authenticator
    rates: Rates
    rate_per_s: float

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        caller = self.gate.admit(head, connection)
        # Of the few paths that need no token, each has a rate of its own.
        named = caller.name if caller.rights else head.path
        refusal = f"a client may send {self.rate_per_s:g} requests per second; retry later"
        self.rates.spend(named, self.rate_per_s, refusal)
        return caller


class CertificateAuth(NamedTuple):
    """Admits peers whose name and key are on the allow list."""

    allowed: Mapping[str, str]
    # Counts a message of a peer, and returns how many bytes it may have.
    expect: Callable[[str], int | None] = lambda peer: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        """Return the peer; list and clock are looked at for every request, so both count now."""
        assert connection is not None  # the port for peers has TLS
        try:
            name = keys.admit(connection, self.allowed, now=self.now())
        except PeerRefused as refused:
            log.warning("peer refused: %s", refused)
            raise HttpProblem(403, "not_allowed", "access denied") from None
        return Caller(name, most_bytes=self.expect(name))


BACKLOG = 128  # connections that wait to be accepted
FINISH_S = 15.0  # to finish requests in progress at the end
MOST_LATE_S = 0.25  # by which the end of a time limit may be noticed
KEPT_FILES = 2 * 32 + 64  # of a process, for refusals at both ports, the store and peers
MOST_EXCESS = 32  # connections beyond the limits that are told so at the same time
BUSY = HttpProblem(503, "busy", "there are too many connections; retry later")


def _room_for_connections() -> int:
    """Return how many connections a port may have, so that accepting another one never fails."""
    import resource  # not on every system

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(1, (soft - KEPT_FILES) // 2)


class Listener:
    """One port: its connections, within limits, and what answers their requests."""

    def __init__(
        self,
        handler: HttpHandler,
        address: Address,
        *,
        gate: Authenticator,
        limits: Limits,
        tls: Callable[[], ssl.SSLContext] | None = None,
        side: str = "",
        metrics: Metrics | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`tls` reads the certificate, at the start and for every reload.

        `metrics` gets every response, under the name `side`.
        """
        self.handler, self.gate, self.limits = handler, gate, limits  # others may take their place
        self.side = side
        self.metrics = metrics or Metrics()
        self.turns = turns or Turns()  # of what a site must not change meanwhile
        self.held_bytes = 0  # of bodies
        self.inflating = asyncio.Lock()  # one body at a time, as it may become large
        self.is_closing = False
        self.connections: dict[Connection, None] = {}  # the oldest first
        self.excess: Counter[str] = Counter()  # connections that are told that there are too many
        self.tasks: dict[Connection, asyncio.Task[None]] = {}  # of the requests in progress
        self.buffer = memoryview(bytearray(READ_BYTES))  # of what is parsed at once
        self.plain = memoryview(bytearray(READ_BYTES))
        self.context: ssl.SSLContext | None = None
        self._address, self._tls = address, tls
        self._admitted: Counter[str] = Counter()
        self._is_empty = asyncio.Event()  # set when the last connection is closed at the end
        self._server: asyncio.Server | None = None
        self._heads: dict[tuple[int, str], bytes] = {}
        self._date = (0, b"")

    async def open(self) -> str:
        """Start to listen; return the URL."""
        self.context = None if self._tls is None else self._tls()
        self._room = _room_for_connections()
        if self._room < self.limits.connections:
            text = "at most %d connections at once, as the process may open few files (LimitNOFILE)"
            log.warning(text, self._room)
        bound = self._address.bind()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), sock=bound, backlog=BACKLOG
        )
        self._sweep()
        address = Address(*bound.getsockname()[:2])
        return address.url("http" if self._tls is None else "https")

    def reload(self) -> None:
        """Read the certificate again; open connections stay open."""
        try:
            self.context = None if self._tls is None else self._tls()
        except CoveyError as error:
            log.error("certificate not reloaded, the old one stays in use: %s", error)

    async def close(self) -> None:
        """Stop listening; requests in progress are answered first."""
        if self._server is None:
            return
        self._server.close()
        self.is_closing = True
        if not self.connections:
            self._is_empty.set()
        for connection in list(self.connections):
            connection.stop()
        try:
            async with asyncio.timeout(FINISH_S):
                await self._is_empty.wait()
                if self.tasks:
                    await asyncio.wait(self.tasks.values())
        except TimeoutError:
            for task in self.tasks.values():
                task.cancel()
            for connection in self.connections:
                connection.abort()
        self._sweeper.cancel()

    def enter(self, host: str) -> "Counter[str] | None":
        """Count a connection, as one of the excess if there are too many; return where.

        None: there are too many even for a refusal.
        """
        most = min(self.limits.connections, self._room)
        if _count(self._admitted, host, most, max(1, most // 2)):
            return self._admitted
        self.metrics.turn_away(self.side)
        return self.excess if _count(self.excess, host, MOST_EXCESS, MOST_EXCESS) else None

    def forget(self, connection: Connection, counted: "Counter[str] | None", host: str) -> None:
        """Count a connection no longer, as it is closed."""
        if counted is not None:
            counted[host] -= 1
            if not counted[host]:
                del counted[host]
        self.connections.pop(connection, None)
        if self.is_closing and not self.connections:
            self._is_empty.set()

    def head(self, reply: HttpResponse, *, is_last: bool) -> bytes:
        key = (reply.status, reply.kind)
        first = self._heads.get(key)
        if first is None:
            line = f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"
            first = self._heads[key] = f"{line}\r\nContent-Type: {reply.kind}\r\n".encode()
        more = b"Connection: close\r\n" if is_last else b""
        for name, value in reply.headers.items():
            more += f"{name}: {value}\r\n".encode()
        size = b"Content-Length: %d\r\n" % len(reply.body)
        return first + more + size + b"Date: %b\r\n\r\n" % self._now()

    def _now(self) -> bytes:
        second = int(time.time())
        if second != self._date[0]:
            self._date = (second, formatdate(second, usegmt=True).encode())
        return self._date[1]

    def _sweep(self) -> None:
        """End the connections whose time is over, and look again soon."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection in list(self.connections):
            if connection.due_s <= now_s:
                connection.expire()
        self._sweeper = loop.call_later(MOST_LATE_S, self._sweep)


def _count(counted: Counter[str], host: str, most: int, most_each: int) -> bool:
    """Count one more connection of an address; return False if a limit is reached."""
    if counted.total() >= most or counted[host] >= most_each:
        return False
    counted[host] += 1
    return True
