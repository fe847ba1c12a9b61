"""What passes between an HTTP server and the two sides of a node: calls, replies and problems."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

JSON = "application/json"
PROBLEM = "application/problem+json"


class Call(msgspec.Struct, frozen=True):
    """A request that came whole."""

    method: str
    path: str  # without the query
    headers: Mapping[str, str]  # by names in lower case
    body: bytes = b""
    who: str = ""  # the client or the peer, as whoever let it in knows it


class Reply(msgspec.Struct, frozen=True):
    """What is sent back."""

    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: Mapping[str, str] = {}


class Handler(Protocol):
    """One side of a node: for its clients, or for its peers."""

    async def handle(self, call: Call) -> Reply:
        """Answer a call; raise `Problem` where it cannot be served."""


class Problem(Exception):
    """Why a request cannot be served: a status, a stable code, and a sentence."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail

    def reply(self) -> Reply:
        """Return it as `application/problem+json`, with the protocol's own `error` beside."""
        told: dict[str, Any] = {
            "type": "about:blank",
            "title": self.code.replace("_", " "),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "error": self.detail,
        }
        headers = {"Retry-After": "1"} if self.status in (429, 503) else {}
        return Reply(self.status, msgspec.json.encode(told), PROBLEM, headers)
