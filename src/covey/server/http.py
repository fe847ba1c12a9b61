"""HTTP requests and responses of a site, its limits on them, and the addresses it listens on."""

import asyncio
import errno
import ipaddress
import logging
import math
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from covey import toml
from covey.errors import (
    ConfigError,
    ConflictingLabel,
    CoveyError,
    DataError,
    FunctionError,
    LateLabel,
    LimitError,
    PolicyError,
    StoreError,
    StoreFull,
    UnknownTicket,
)
from covey.node.functions import MOST_TICKETS, Limits


class Rates:
    """A token bucket for each caller, with a burst of one second.

    They stay when the file of a site, and so a rate, changes.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def take(self, caller: str, now_s: float, rate_per_s: float, count: float = 1.0) -> float:
        """Return 0 if so many calls are fine; else for how many seconds they are not."""
        tokens, at_s = self._held.get(caller, (0.0, -math.inf))
        tokens = min(max(1.0, rate_per_s), tokens + (now_s - at_s) * rate_per_s)
        is_fine = tokens >= count
        self._held[caller] = tokens - count * is_fine, now_s
        return 0.0 if is_fine else (count - tokens) / rate_per_s

    def spend(
        self,
        caller: str,
        rate_per_s: float,
        refusal: str,
        count: float = 1.0,
        *,
        is_last: bool = False,
    ) -> None:
        """Count calls; raise `HttpProblem` with this sentence if they come too early."""
        wait_s = self.take(caller, asyncio.get_running_loop().time(), rate_per_s, count)
        if wait_s:
            retry = {"Retry-After": str(math.ceil(wait_s))}
            raise HttpProblem(429, "too_often", refusal, retry, is_last=is_last)


class Turns:
    """The requests in progress, and a pause between them, in which a site may change."""

    def __init__(self) -> None:
        self.in_progress = 0
        self._is_open, self._is_quiet = asyncio.Event(), asyncio.Event()
        self._is_open.set()

    async def __aenter__(self) -> None:
        while not self._is_open.is_set():
            await self._is_open.wait()
        self.in_progress += 1

    async def __aexit__(self, *_: object) -> None:
        self.in_progress -= 1
        if not self.in_progress:
            self._is_quiet.set()

    async def pause(self, within_s: float) -> None:
        """Let new requests wait, and return when those in progress are answered.

        Raises `ConfigError` if they take longer than that.
        """
        self._is_open.clear()
        self._is_quiet.clear()
        if self.in_progress:
            log.info("%d requests in progress are answered first", self.in_progress)
            try:
                await asyncio.wait_for(self._is_quiet.wait(), within_s)
            except TimeoutError:
                raise ConfigError(
                    f"{self.in_progress} requests are still in progress after {within_s:g} s; try "
                    "again later"
                ) from None

    def go_on(self) -> None:
        self._is_open.set()


RELOAD = "/admin/reload"
JSON = "application/json"
BINARY = "application/octet-stream"
LENGTH = "Inference-Header-Content-Length"  # bytes of the JSON before those of tensors
# Content types of JSON: clients send none, and `curl -d` sends that of a form.
JSON_KINDS = frozenset([JSON, BINARY, "application/x-www-form-urlencoded", ""])
PROBLEM = "application/problem+json"
# The first match counts: subclasses come before their bases.
STATUSES: tuple[tuple[type[CoveyError], int, str], ...] = (
    (LateLabel, 410, "label_too_late"),
    (UnknownTicket, 404, "ticket_unknown"),
    (ConflictingLabel, 409, "conflict"),
    (DataError, 422, "invalid"),
    (LimitError, 503, "busy"),
    (StoreFull, 507, "store_full"),
    (StoreError, 503, "store_failed"),
    (FunctionError, 500, "function_failed"),
    (PolicyError, 500, "policy_failed"),
)
log = logging.getLogger(__name__)


class HttpRequest(msgspec.Struct, frozen=True):
    """A complete request."""

    method: str
    path: str  # without the query
    headers: Mapping[str, str]  # by names in lower case
    body: bytes = b""
    who: str = ""  # the authenticated client or peer
    rights: frozenset[str] = frozenset()  # of a client: the scopes of its token
    query: str = ""  # as it was sent


class HttpResponse(msgspec.Struct, frozen=True):
    """A response."""

    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: Mapping[str, str] = {}


class HttpHandler(Protocol):
    """Handles the requests of clients, or of peers."""

    async def handle(self, call: HttpRequest) -> HttpResponse:
        """Return the response; raise `HttpProblem` or another `CoveyError` if there is none."""


class Caller(NamedTuple):
    """The name of a client or a peer, and the scopes of a client's token."""

    name: str = ""
    rights: frozenset[str] = frozenset()
    most_bytes: int | None = None  # of its body; None: as the limits of the site say


class Authenticator(Protocol):
    """Authenticates a request before its body is read."""

    def admit(self, head: HttpRequest, connection: ssl.SSLObject | None) -> Caller:
        """Return the caller; raise `HttpProblem` if the request is refused."""


class ProblemBody(msgspec.Struct, frozen=True):
    """A problem as it is sent: RFC 9457, with a stable code, and the protocol's own `error`."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    error: str


class HttpProblem(Exception):
    """Why a request cannot be served: a status, a stable code, and a sentence."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        is_last: bool = False,
    ) -> None:
        """`is_last`: the connection is closed after the response."""
        super().__init__(detail)
        self.is_last = is_last
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = {"Retry-After": "1"} if status in (429, 503) else {}
        self.headers.update(headers or {})

    def reply(self) -> HttpResponse:
        title = self.code.replace("_", " ")
        body = ProblemBody("about:blank", title, self.status, self.code, self.detail, self.detail)
        return HttpResponse(self.status, msgspec.json.encode(body), PROBLEM, self.headers)


async def respond(handler: HttpHandler, call: HttpRequest) -> HttpResponse:
    """Return the response of a handler; every error becomes a problem."""
    try:
        return await handler.handle(call)
    except HttpProblem as problem:
        return problem.reply()
    except CoveyError as error:
        return problem_of(error).reply()
    except RecursionError:
        return HttpProblem(400, "bad_json", "the body is nested too deeply").reply()
    except Exception as error:
        return unexpected(error).reply()


def content_type(headers: Mapping[str, str]) -> str:
    """Return the content type of a body without its parameters; "" if there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def is_all_json(headers: Mapping[str, str]) -> bool:
    """Return whether a body is JSON with no tensors in bytes after it."""
    return content_type(headers) in JSON_KINDS and LENGTH.lower() not in headers


def invalid(detail: str) -> HttpProblem:
    """Return the problem of a readable but invalid request."""
    return HttpProblem(422, "invalid", detail)


def not_http() -> HttpProblem:
    return HttpProblem(400, "bad_http", "this is not an HTTP/1.1 request")


def not_compressed() -> HttpProblem:
    return HttpProblem(400, "broken_body", "the body is not what Content-Encoding says")


def too_large(most: int) -> HttpProblem:
    detail = f"the body may have at most {most} bytes"
    return HttpProblem(413, "too_large", detail, is_last=True)


def head_too_large(head_kib: int) -> HttpProblem:
    return HttpProblem(431, "head_too_large", f"the head may have at most {head_kib} KiB")


def unexpected(error: BaseException) -> HttpProblem:
    """Log an error that no code expects; return the problem of the request."""
    log.error("unexpected failure of a request", exc_info=error)
    return HttpProblem(500, "unexpected", "unexpected failure; see the log of the site")


def problem_of(error: CoveyError) -> HttpProblem:
    """Return the problem that a caller gets for an error."""
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            return HttpProblem(status, code, str(error))
    return HttpProblem(500, "unexpected", str(error))


KIB = 1_024
MIB = 1_024 * KIB
PEER_ROWS = 1_024  # of one request of a peer
QUEUED = 256  # requests that wait for their turn


def read_limits(table: object, *, label_wait: int) -> Limits:
    """Return the limits of a table, for a site that waits so many slots for a label.

    Raises `ConfigError` for one that makes no sense, or by which the site would refuse for good.
    """
    limits = toml.read(table, Limits, where="[limits]")
    # A ticket is held until `label_wait` slots have passed, which only new tickets let pass.
    # Besides, rows wait for the last of their request, and the next request needs room.
    needed = label_wait + 2 * limits.rows
    waits = f"[policy] label-wait is {label_wait}, and the tickets of so many slots are held"
    if needed > MOST_TICKETS:
        raise ConfigError(f"{waits}; make it {MOST_TICKETS - 2 * limits.rows} at most")
    if isinstance(table, Mapping) and "tickets" in table and limits.tickets < needed:
        raise ConfigError(
            f"{waits}, for which [limits] tickets = {limits.tickets} is no room; make that "
            f"{needed} or more, or label-wait less"
        )
    return msgspec.structs.replace(limits, tickets=max(limits.tickets, needed))


def most_bytes(limits: Limits, headers: Mapping[str, str]) -> int:
    """Return how many bytes the body of a request with these headers may have."""
    return (limits.json_kib if is_all_json(headers) else limits.binary_kib) * KIB


class AdmissionQueue:
    """Serves up to `most` requests at once and queues some more; refuses the rest."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.in_progress = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._waiting)

    async def __aenter__(self) -> None:
        if self.in_progress < self.most:
            self.in_progress += 1
            return
        if len(self._waiting) >= QUEUED:
            raise HttpProblem(503, "busy", f"{self.most} requests are in progress; retry later")
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(turn)
            else:
                self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        """Pass the turn on, unless fewer are to be served at once than before."""
        self.in_progress -= 1
        while self._waiting and self.in_progress < self.most:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_progress += 1
                turn.set_result(None)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Address(NamedTuple):
    """A host and a port; port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, key: str) -> "Address":
        """Return the address that a key of a file has; raise `ConfigError` if it is none."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or not port.isascii() or int(port) > 65_535:
            raise ConfigError(f"{key} is {text!r}; write it like 127.0.0.1:8080")
        return cls(host.strip("[]"), int(port))

    def url(self, scheme: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    def bind(self) -> socket.socket:
        """Return a socket that listens here; raise `ConfigError` if that cannot be."""
        try:
            family = socket.getaddrinfo(*self, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server(self, family=family)
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                why = "it is in use by another process; stop that, or give another address"
            raise ConfigError(f"cannot serve at {self.host}:{self.port}: {why}") from error
