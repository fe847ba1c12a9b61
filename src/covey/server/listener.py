"""Listen for HTTP requests: authenticate the caller, apply the limits, call the handler.

Clients have bearer tokens, peers have client certificates.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from covey import files
from covey.errors import ConfigError, CoveyError, PeerRefused
from covey.node.workers import Limits
from covey.server import keys, tokens
from covey.server.connection import Connection, Port
from covey.server.http import (
    Address,
    Authenticator,
    Caller,
    ConnectionLimit,
    HttpHandler,
    HttpProblem,
    HttpRequest,
    Rates,
    Turns,
    is_loopback,
)
from covey.server.metrics import Metrics

log = logging.getLogger(__name__)


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
            raise HttpProblem(
                403,
                "not_allowed",
                "without tokens, use 127.0.0.1 or localhost",
            )
        # And under any name: a browser adds whose page it is to what such a page posts.
        origin = head.headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host:
            raise HttpProblem(
                403,
                "not_allowed",
                "web pages of another origin may not call this site (Origin header)",
            )
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
        found = tokens.find(self._present(), head.headers.get("authorization"))
        if isinstance(found, tokens.Refused):
            raise HttpProblem(401, "no_token", found.sentence, {"WWW-Authenticate": "Bearer"})
        return Caller(found.name, frozenset(found.scopes))

    def _present(self) -> tuple[tokens.Token, ...]:
        """Return the tokens of the file as it is now."""
        if files.version(self._path) != self._version:
            self._reload()
        return self._known

    def _reload(self) -> None:
        """Read the file. A missing file admits no client; a broken one keeps the known tokens."""
        self._version = files.version(self._path)
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

    def __init__(self, gate: Authenticator, rates: Rates, rate_per_s: float) -> None:
        self._gate, self._rates, self._rate_per_s = gate, rates, rate_per_s
        self._refusal = f"a client may send {rate_per_s:g} requests per second; retry later"

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        caller = self._gate.admit(head, connection)
        self._rates.spend(caller.name, self._rate_per_s, self._refusal)
        return caller


class CertificateAuth:
    """Admits peers whose name and key are on the allow list."""

    def __init__(
        self,
        allowed: Mapping[str, str],
        *,
        expect: Callable[[str], int | None] = lambda peer: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`expect` counts a message of a peer, and returns how many bytes it may have."""
        self._allowed = allowed
        self._expect = expect
        self._now = now

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        """Return the peer; list and clock are looked at for every request, so both count now."""
        if connection is None:
            raise HttpProblem(403, "not_allowed", "peers must use TLS")
        try:
            name = keys.admit(connection, self._allowed, now=self._now())
        except PeerRefused as refused:
            log.warning("peer refused: %s", refused)
            raise HttpProblem(403, "not_allowed", "access denied") from None
        return Caller(name, most_bytes=self._expect(name))


BACKLOG = 128  # connections that wait to be accepted
FINISH_S = 15.0  # to finish requests in progress at the end
MOST_LATE_S = 0.25  # by which the end of a time limit may be noticed
MOST_EXCESS = 32  # connections beyond the limits that are told so at the same time
BUSY = HttpProblem(503, "busy", "there are too many connections; retry later")


class Listener:
    """One port: reads complete requests within limits and passes them to a handler."""

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
        self._address = address
        self._tls = tls
        metrics, turns = metrics or Metrics(), turns or Turns()
        self._port = Port(handler, gate, limits, side=side, metrics=metrics, turns=turns)
        self._context: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None
        self._limit, self._excess = ConnectionLimit(), ConnectionLimit()

    def use(self, handler: HttpHandler, gate: Authenticator, limits: Limits) -> None:
        """Serve with these from now on, also on open connections."""
        port = self._port
        port.handler, port.gate, port.limits = handler, gate, limits

    async def open(self) -> str:
        """Start to listen; return the URL."""
        self._context = None if self._tls is None else self._tls()
        bound = self._address.bind()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, sock=bound, backlog=BACKLOG)
        self._sweep()
        address = Address(*bound.getsockname()[:2])
        return address.url("http" if self._tls is None else "https")

    def reload(self) -> None:
        """Read the certificate again; open connections stay open."""
        try:
            self._context = None if self._tls is None else self._tls()
        except CoveyError as error:
            log.error("certificate not reloaded, the old one stays in use: %s", error)

    async def close(self) -> None:
        """Stop listening; requests in progress are answered first."""
        if self._server is None:
            return
        self._server.close()
        port = self._port
        port.stop()
        try:
            async with asyncio.timeout(FINISH_S):
                await port.is_empty.wait()
                if port.tasks:
                    await asyncio.wait(port.tasks.values())
        except TimeoutError:
            for task in port.tasks.values():
                task.cancel()
            for connection in port.connections:
                connection.abort()
        self._sweeper.cancel()

    def _connection(self) -> Connection:
        return Connection(self._port, self._enter, self._context)

    def _enter(self, host: str) -> tuple[Callable[[], None], HttpProblem | None] | None:
        """Count a connection; return how to count its end, and a refusal if there are too many.

        None: there are too many even for a refusal.
        """
        most = self._port.limits.connections
        if self._limit.enter(host, most, max(1, most // 2)):
            return partial(self._limit.leave, host), None
        self._port.metrics.turn_away(self._port.side)
        is_told = self._excess.enter(host, MOST_EXCESS, MOST_EXCESS)
        return (partial(self._excess.leave, host), BUSY) if is_told else None

    def _sweep(self) -> None:
        """End the connections whose time is over, and look again soon."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection in list(self._port.connections):
            if connection.due_s <= now_s:
                connection.expire()
        self._sweeper = loop.call_later(MOST_LATE_S, self._sweep)
