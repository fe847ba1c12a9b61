"""One HTTP/1.1 connection: TLS, requests within the limits, and their responses in order."""

import asyncio
import math
import ssl
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote

from covey.errors import MissingExtra, need_of
from covey.node.spans import Observer
from covey.server.http import (
    KIB,
    LENGTH,
    MIB,
    Authenticator,
    HttpHandler,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    SiteLimits,
    head_too_large,
    not_compressed,
    not_http,
    respond,
    too_large,
    unexpected,
)
from covey.server.keys import Tls

try:
    from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
except ImportError as missing:
    raise MissingExtra(need_of("served sites", "httptools", extra="node")) from missing

READ_BYTES = 64 * KIB  # of a connection at once
MOST_PIPELINED = 64  # requests of a connection that wait for the answer to another one
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

    @property
    def size(self) -> int:
        """The bytes of the body."""
        return len(self.call.body) if isinstance(self.call, HttpRequest) else 0


class Port:
    """What the connections of one port share."""

    def __init__(
        self,
        handler: HttpHandler,
        gate: Authenticator,
        limits: SiteLimits,
        *,
        side: str,
        watcher: Observer,
    ) -> None:
        self.handler = handler
        self.gate = gate
        self.limits = limits
        self.side = side
        self.watcher = watcher
        self.held_bytes = 0  # of bodies
        self.is_closing = False
        self.is_empty = asyncio.Event()  # set when the last connection is closed at the end
        self.connections: dict[Connection, None] = {}  # the oldest first
        self.tasks: dict[Connection, asyncio.Task[None]] = {}  # of the requests in progress
        self.buffer = memoryview(bytearray(READ_BYTES))  # of what is parsed at once
        self.plain = memoryview(bytearray(READ_BYTES))
        self._heads: dict[tuple[int, str], bytes] = {}
        self._date = (0, b"")

    def silent_one(self, address: str | None) -> "Connection | None":
        """Return the oldest connection of an address that has no request."""
        found = (one for one in self.connections if one.address == address and one.is_waiting)
        return next(found, None)

    def forget(self, connection: "Connection") -> None:
        """Note that a connection is closed."""
        self.connections.pop(connection, None)
        if self.is_closing and not self.connections:
            self.is_empty.set()

    def stop(self) -> None:
        """Let every connection end, after its requests in progress are answered."""
        self.is_closing = True
        if not self.connections:
            self.is_empty.set()
        for one in list(self.connections):
            one.stop()

    def head(self, reply: HttpResponse, *, is_last: bool) -> bytes:
        """Return the head of a response."""
        key = (reply.status, reply.kind)
        first = self._heads.get(key)
        if first is None:
            line = f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"
            first = self._heads[key] = f"{line}\r\nContent-Type: {reply.kind}\r\n".encode()
        more = b"Connection: close\r\n" if is_last else b""
        for name, value in reply.headers.items():
            more += f"{name}: {value}\r\n".encode()
        if reply.follow is None:  # else the end of the connection is that of the body
            more += b"Content-Length: %d\r\n" % len(reply.body)
        return first + more + b"Date: %b\r\n\r\n" % self._now()

    def _now(self) -> bytes:
        second = int(time.time())
        if second != self._date[0]:
            self._date = (second, formatdate(second, usegmt=True).encode())
        return self._date[1]


class Connection(asyncio.BufferedProtocol):
    """Parses requests, has them answered one after the other, and ends if it is too slow."""

    def __init__(
        self,
        port: Port,
        enter: Callable[[str], tuple[Callable[[], None], HttpProblem | None] | None],
        context: ssl.SSLContext | None = None,
    ) -> None:
        """`enter` gets the client's address; it returns what to call at the end, and a refusal.

        None: the connection is closed at once.
        """
        self.address = ""
        self._port = port
        self._enter = enter
        self._leave: Callable[[], None] | None = None
        self._refusal: HttpProblem | None = None
        self._limits = port.limits
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None  # asyncio types it as any transport
        self._tls = None if context is None else Tls(context)
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._reading = HANDSHAKE
        self.due_s = self._loop.time() + self._limits.handshake_s
        self._pending: deque[Exchange] = deque()
        self._is_answering = False
        self._is_blocked = False  # the client does not read
        self._is_deaf = False  # nothing more is parsed
        self._is_ending = False
        self._is_refused = False  # so that bytes may come that nothing reads
        self._held = b""  # read while a request was answered
        self._unfollow: Callable[[], None] | None = None  # while more follows a response
        self._begin_message()

    @property
    def is_waiting(self) -> bool:
        """Whether there is no request, not even the first byte of one."""
        is_silent = self._reading in (HANDSHAKE, FIRST, IDLE) and not self._is_answering
        return is_silent and not self._is_ending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=0)
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        entered = self._enter(self.address)
        if entered is None or self._port.is_closing:
            self.abort()
            return
        self._leave, self._refusal = entered
        self._port.connections[self] = None
        if self._tls is None:
            self._open()

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.forget(self)
        self._port.held_bytes -= self._size
        self._drop_pending()
        self._begin_message()
        self._is_deaf, self.due_s = True, math.inf
        self._transport = self._tls = self._parser = None  # they refer to each other
        self._forget_reader()
        if self._leave is not None:
            self._leave()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._port.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._port.buffer[:nbytes]
        tls = self._tls
        if self._unfollow is not None and tls is not None:
            self._look_for_end(tls, data)
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

    def _look_for_end(self, tls: Tls, data: memoryview) -> None:
        """End what follows a response if the client has ended TLS; all else is not asked for."""
        tls.incoming.write(data)
        while (count := tls.read(self._port.plain)) is not None:
            if not count:
                self.finish()
                return

    def eof_received(self) -> bool:
        """Keep the connection until what was asked is answered."""
        if self._reading == BODY and not self._is_deaf:
            self._refuse(HttpProblem(400, "broken_body", "the body is incomplete"))
            return True
        self._is_deaf = True
        is_following = self._unfollow is not None
        return (self._is_answering and not is_following) or bool(self._pending)

    def pause_writing(self) -> None:
        self._is_blocked = True
        self.due_s = self._loop.time() + self._limits.answer_s

    def resume_writing(self) -> None:
        self._is_blocked = False
        if self._unfollow is not None:
            self.due_s = math.inf
        self._next()

    def expire(self) -> None:
        """End the connection, as what it waits for did not come in time."""
        if self._is_blocked or self._is_ending or self._reading == HANDSHAKE:
            self.abort()
        elif self._reading in (FIRST, IDLE):
            self._end()
        else:
            what, within_s = "head", self._limits.head_s
            if self._reading == BODY:
                what, within_s = "body", self._limits.body_s
            detail = f"the {what} did not arrive within {within_s:g} s"
            self._refuse(HttpProblem(408, "too_slow", detail))

    def stop(self) -> None:
        """End the connection, after the requests in progress are answered."""
        if self._unfollow is not None:
            self.finish()
        elif self._reading != BODY and not self._is_answering and not self._pending:
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
        except ssl.SSLError:
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
        self.due_s = self._loop.time() + self._limits.head_s
        if self._refusal is not None:
            self._refuse(self._refusal)

    def _feed(self, data: memoryview) -> None:
        """Parse what was read; start to answer what is complete."""
        if self._is_answering or self._is_blocked:
            self._held += data
            self._transport.pause_reading()
            return
        was = self._reading
        if was in (FIRST, IDLE):
            self._reading = HEAD
            self.due_s = self._loop.time() + self._limits.head_s
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
            self.due_s = self._loop.time() + self._limits.body_s
        self._bare_bytes = 0 if self._has_body else self._bare_bytes + len(data)
        if self._bare_bytes > self._limits.head_kib * KIB:
            self._refuse(head_too_large(self._limits.head_kib))

    def _begin_message(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._bare_bytes = 0  # read since there was anything of a body
        self._head: HttpRequest | None = None
        self._problem: HttpProblem | None = None
        self._body: bytes | bytearray = b""
        self._size = 0
        self._inflater: Any = None

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
        if self._head_bytes + len(self._url) > self._limits.head_kib * KIB:
            raise head_too_large(self._limits.head_kib)
        self._version = parser.get_http_version()
        if self._version not in ("1.1", "1.0"):
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
        self._most = self._limits.most_bytes(headers)
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            if coding not in WINDOW_BITS:
                raise HttpProblem(415, "media_type", "send the body plain, or by gzip or deflate")
            self._inflater = zlib.decompressobj(WINDOW_BITS[coding])
        if int(headers.get("content-length", "0")) > self._most:
            raise too_large(self._most)
        if headers.get("expect", "").lower() == "100-continue" and self._version == "1.1":
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._has_body = True
        if self._problem is not None:
            return
        try:
            self._take(data if self._inflater is None else self._inflated(data))
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
        if self._port.held_bytes > self._limits.bodies_mib * MIB:
            raise HttpProblem(503, "busy", "too many bytes are being received; retry later")

    def _inflated(self, data: bytes) -> bytes:
        """Decompress part of a body, to no more than may be sent plain."""
        try:
            found: bytes = self._inflater.decompress(data, self._most - self._size + 1)
        except zlib.error:
            raise not_compressed() from None
        if self._inflater.unused_data:
            raise not_compressed()
        return found

    def on_message_complete(self) -> None:
        """Queue the request, or the refusal, for its answer."""
        parser, call = self._parser, self._head
        assert parser is not None
        self._reading = IDLE
        if self._problem is None and self._inflater is not None and not self._inflater.eof:
            self._port.held_bytes -= self._size
            self._problem = not_compressed()
        answered: HttpRequest | HttpProblem
        if self._problem is not None or call is None:
            answered = self._problem or not_http()
        else:
            body = bytes(self._body)  # no copy if it came at once
            parts = call.method, call.path, call.headers, body, *self._caller
            answered = HttpRequest(*parts, self._query)
        is_head, is_last = self._method == "HEAD", not parser.should_keep_alive()
        is_last |= self._is_upgrade or self._version == "1.0"
        self._pending.append(Exchange(answered, self._path, self._begun_s, is_head, is_last))
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
                limits = self._limits
                within_s = limits.idle_s
                if self._reading != IDLE:
                    within_s = limits.body_s if self._reading == BODY else limits.head_s
                self.due_s = self._loop.time() + within_s
            return

    async def _answer(self, exchange: Exchange, call: HttpRequest) -> None:
        port = self._port
        try:
            with port.watcher.spans.request(call.method, call.path, call.headers) as span:
                reply = await respond(port.handler, call)
                span.note("http.response.status_code", reply.status)
        finally:
            port.held_bytes -= len(call.body)
            del port.tasks[self]
        self._is_answering = False
        self._reply(exchange, reply)
        self._next()

    def _drop_pending(self) -> None:
        self._port.held_bytes -= sum(one.size for one in self._pending)
        self._pending.clear()

    def _reply(self, exchange: Exchange, reply: HttpResponse) -> None:
        """Send a response, unless the client is gone."""
        begun_s = exchange.begun_s
        took_s = 0.0 if begun_s is None else self._loop.time() - begun_s
        self._port.watcher.answer(self._port.side, exchange.path, reply.status, took_s)
        if self._transport is None:
            return
        is_last = exchange.is_last or self._port.is_closing or reply.follow is not None
        if is_last:
            self._is_deaf = True
            self._drop_pending()
        head = self._port.head(reply, is_last=is_last)
        self._send(head if exchange.is_head else head + reply.body)
        if reply.follow is not None and not (exchange.is_head or self._port.is_closing):
            self._is_answering = True
            self._unfollow = reply.follow(self)

    def push(self, data: bytes) -> bool:
        """Send what follows a response; return False if the client has yet to read."""
        if self._is_blocked or self._transport is None:
            return False
        self._send(data)
        return True

    def finish(self) -> None:
        """End what follows a response, and the connection."""
        self._forget_reader()
        self._is_answering = False
        self._next()

    def _forget_reader(self) -> None:
        unfollow, self._unfollow = self._unfollow, None
        if unfollow is not None:
            unfollow()

    def _send(self, data: bytes) -> None:
        try:
            self._transport.write(data if self._tls is None else self._tls.sealed(data))
        except ssl.SSLError:
            self.abort()

    def _end(self) -> None:
        """Close the connection."""
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


def _problem_of(cause: BaseException | None) -> HttpProblem:
    """Return the problem of a request at which the parser, or a call from it, stopped."""
    if cause is None:
        return not_http()
    return cause if isinstance(cause, HttpProblem) else unexpected(cause)
