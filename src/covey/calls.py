"""Requests, responses and problems between the HTTP listeners and the handlers of a node."""

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from covey.errors import (
    ConflictingLabel,
    CoveyError,
    DataError,
    FunctionError,
    LateLabel,
    LimitError,
    StoreError,
    StoreFull,
    UnknownTicket,
)

JSON = "application/json"
BINARY = "application/octet-stream"
PROBLEM = "application/problem+json"
MOST_CODE, MOST_SENTENCE = 40, 200  # characters of a refusal that are read
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
)
log = logging.getLogger(__name__)


class Call(msgspec.Struct, frozen=True):
    """A complete request."""

    method: str
    path: str  # without the query
    headers: Mapping[str, str]  # by names in lower case
    body: bytes = b""
    who: str = ""  # the authenticated client or peer
    rights: frozenset[str] = frozenset()  # of a client: the scopes of its token


class Reply(msgspec.Struct, frozen=True):
    """A response."""

    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: Mapping[str, str] = {}


class Handler(Protocol):
    """Handles the requests of clients, or of peers."""

    async def handle(self, call: Call) -> Reply:
        """Return the response; raise `Problem` or another `CoveyError` if there is none."""


class Refusal(msgspec.Struct, frozen=True):
    """A problem as it is sent: RFC 9457, with a stable code, and the protocol's own `error`."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    error: str


class Problem(Exception):
    """Why a request cannot be served: a status, a stable code, and a sentence."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = {"Retry-After": "1"} if status in (429, 503) else {}
        self.headers.update(headers or {})

    def reply(self) -> Reply:
        """Return it as `application/problem+json`, with the protocol's own `error` beside."""
        title = self.code.replace("_", " ")
        told = Refusal("about:blank", title, self.status, self.code, self.detail, self.detail)
        return Reply(self.status, msgspec.json.encode(told), PROBLEM, self.headers)


class _Received(msgspec.Struct):
    """The fields of a refusal that a caller uses; other servers may send fewer, or more."""

    code: str = ""
    detail: str = ""
    error: Any = ""


def read_refusal(body: bytes) -> tuple[str, str]:
    """Return the code and the sentence of a refusal, "" for what is missing or not printable."""
    try:
        found = msgspec.json.decode(body, type=_Received)
    except (ValueError, RecursionError):
        return "", ""
    is_code = found.code.isidentifier() and found.code.isascii() and len(found.code) <= MOST_CODE
    sentence = (found.detail or str(found.error))[:MOST_SENTENCE]
    printable = "".join(one if one.isprintable() else " " for one in sentence)
    return found.code if is_code else "", printable


async def respond(handler: Handler, call: Call) -> Reply:
    """Return the response of a handler; every error becomes a problem."""
    try:
        return await handler.handle(call)
    except Problem as problem:
        return problem.reply()
    except CoveyError as error:
        return problem_of(error).reply()
    except Exception:
        log.exception("unexpected failure of a request")
        return Problem(500, "unexpected", "unexpected failure; see the log of the site").reply()


def problem_of(error: CoveyError) -> Problem:
    """Return the problem that a caller gets for an error."""
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            return Problem(status, code, str(error))
    return Problem(500, "unexpected", str(error))
