"""Authentication: bearer tokens of clients, certificates of peers."""

import asyncio
import logging
import math
import os
import ssl
from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from covey import tls, tokens
from covey.calls import Call, Problem
from covey.errors import ConfigError, PeerRefused
from covey.rates import Bucket
from covey.sites import is_loopback

log = logging.getLogger(__name__)


class Caller(NamedTuple):
    """The name of a client or a peer, and the scopes of a client's token."""

    name: str = ""
    rights: frozenset[str] = frozenset()


class Gate(Protocol):
    """Authenticates a request before its body is read."""

    def admit(self, head: Call, connection: ssl.SSLObject | None) -> Caller:
        """Return the caller; raise `Problem` if the request is refused."""


class Anybody:
    """Admits every client on this machine, without a name and with all scopes."""

    def admit(self, head: Call, connection: ssl.SSLObject | None) -> Caller:
        """Admit requests whose Host header names this machine."""
        # A web page can send requests to the loopback under a host name of its own (DNS rebinding).
        host = head.headers.get("host", "localhost").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name != "localhost" and not is_loopback(name.strip("[]")):
            raise Problem(403, "not_allowed", "without tokens, use 127.0.0.1 or localhost")
        return Caller("", frozenset(tokens.SCOPES))


class ByToken:
    """Admits clients by the tokens of a file, which is read again when it has changed."""

    def __init__(self, path: Path, *, open_paths: Container[str] = ()) -> None:
        """Require a token except for `open_paths`."""
        self._path = path
        self._open_paths = open_paths
        self._version = _version(path)
        self._known = tokens.listed(path)

    def admit(self, head: Call, connection: ssl.SSLObject | None) -> Caller:
        """Return the name and the scopes of the token."""
        if head.path in self._open_paths:
            return Caller()
        if _version(self._path) != self._version:
            self._reload()
        found = tokens.find(self._known, head.headers.get("authorization"))
        if isinstance(found, tokens.Refused):
            raise Problem(401, "no_token", found.sentence, {"WWW-Authenticate": "Bearer"})
        return Caller(found.name, frozenset(found.scopes))

    def _reload(self) -> None:
        """Read the file. A missing file admits nobody; a broken one keeps the known tokens."""
        self._version = _version(self._path)
        try:
            self._known = tokens.listed(self._path)
        except ConfigError as error:
            if self._path.exists():
                log.error("token file not reloaded, the known tokens stay valid: %s", error)
            else:
                log.error("token file missing, every client is refused: %s", error)
                self._known = ()


class Paced:
    """Limits the request rate of each caller that another gate admits."""

    def __init__(self, gate: Gate, rate_per_s: float) -> None:
        self._gate = gate
        self._rate_per_s = rate_per_s
        self._buckets: dict[str, Bucket] = {}  # by caller

    def admit(self, head: Call, connection: ssl.SSLObject | None) -> Caller:
        """Return the caller if it is within its rate."""
        caller = self._gate.admit(head, connection)
        bucket = self._buckets.setdefault(caller.name, Bucket(self._rate_per_s))
        wait_s = bucket.take(asyncio.get_running_loop().time())
        if wait_s:
            raise Problem(
                429,
                "too_often",
                f"a client may send {self._rate_per_s:g} requests per second; retry later",
                {"Retry-After": str(math.ceil(wait_s))},
            )
        return caller


class ByCertificate:
    """Admits peers whose name and key are on the allow list."""

    def __init__(self, allowed: Mapping[str, str]) -> None:
        self._allowed = allowed

    def admit(self, head: Call, connection: ssl.SSLObject | None) -> Caller:
        """Return the peer; the list is looked up for every request, so a change counts at once."""
        if connection is None:
            raise Problem(403, "not_allowed", "peers must use TLS")
        try:
            return Caller(tls.admit(connection, self._allowed))
        except PeerRefused as refused:
            log.warning("peer refused: %s", refused)
            raise Problem(403, "not_allowed", "access denied") from None


def _version(path: Path) -> tuple[int, ...]:
    """Return a value that changes when the file changes."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
