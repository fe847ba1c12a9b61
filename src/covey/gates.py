"""Who calls: clients by their tokens, peers by their certificates."""

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
    """A client or a peer by its name, and what a client's token is for."""

    name: str = ""
    rights: frozenset[str] = frozenset()


class Gate(Protocol):
    """Lets calls in, or not."""

    def admit(self, head: Call, connection: ssl.SSLObject | None) -> Caller:
        """Say who makes a call, whose body has not been read; raise `Problem` for nobody."""

    def reload(self) -> None:
        """Read again what is kept in files."""


class Anybody:
    """Lets this machine's clients do everything, without names."""

    def admit(self, head: Call, connection: ssl.SSLObject | None) -> Caller:
        """Let everybody in whose request was meant for this machine."""
        # A page in a browser can reach the loopback by a name of its own that leads here.
        host = head.headers.get("host", "localhost").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name != "localhost" and not is_loopback(name.strip("[]")):
            raise Problem(403, "not_allowed", "without tokens only 127.0.0.1 and localhost serve")
        return Caller("", frozenset(tokens.SCOPES))

    def reload(self) -> None:
        """Have nothing to read."""


class ByToken:
    """Lets clients in by the tokens of a file, which is read again when it has changed."""

    def __init__(self, path: Path, *, open_paths: Container[str] = ()) -> None:
        """Whoever asks for one of `open_paths` needs no token."""
        self._path = path
        self._open_paths = open_paths
        self._version = _version(path)
        self._known = tokens.listed(path)

    def admit(self, head: Call, connection: ssl.SSLObject | None) -> Caller:
        """Return the name of a token, and its scopes."""
        if head.path in self._open_paths:
            return Caller()
        if _version(self._path) != self._version:
            self.reload()
        found = tokens.find(self._known, head.headers.get("authorization"))
        if isinstance(found, tokens.Refused):
            raise Problem(401, "no_token", found.sentence, {"WWW-Authenticate": "Bearer"})
        return Caller(found.name, frozenset(found.scopes))

    def reload(self) -> None:
        """Read the file; one that is gone lets nobody in, one that is broken changes nothing."""
        self._version = _version(self._path)
        try:
            self._known = tokens.listed(self._path)
        except ConfigError as error:
            if self._path.exists():
                log.error("the tokens stay as they were: %s", error)
            else:
                log.error("no client is let in: %s", error)
                self._known = ()


class Paced:
    """Lets in whom another gate does, each so often a second."""

    def __init__(self, gate: Gate, rate_per_s: float) -> None:
        self._gate = gate
        self._rate_per_s = rate_per_s
        self._buckets: dict[str, Bucket] = {}  # by names that the other gate knows

    def admit(self, head: Call, connection: ssl.SSLObject | None) -> Caller:
        """Return who calls, if not too often."""
        caller = self._gate.admit(head, connection)
        bucket = self._buckets.setdefault(caller.name, Bucket(self._rate_per_s))
        wait_s = bucket.take(asyncio.get_running_loop().time())
        if wait_s:
            raise Problem(
                429,
                "too_often",
                f"a client may call {self._rate_per_s:g} times a second; wait a little",
                {"Retry-After": str(math.ceil(wait_s))},
            )
        return caller

    def reload(self) -> None:
        """Let the other gate read again."""
        self._gate.reload()


class ByCertificate:
    """Lets peers in by name and key, as an allow list has them."""

    def __init__(self, allowed: Mapping[str, str]) -> None:
        self._allowed = allowed

    def admit(self, head: Call, connection: ssl.SSLObject | None) -> Caller:
        """Return the name of a peer."""
        if connection is None:
            raise Problem(403, "not_allowed", "peers come over TLS")
        try:
            return Caller(tls.admit(connection, self._allowed))
        except PeerRefused as refused:
            log.warning("a peer was refused: %s", refused)
            raise Problem(403, "not_allowed", "this site does not let you in") from None

    def reload(self) -> None:
        """Have nothing to read."""


def _version(path: Path) -> tuple[int, ...]:
    """Return what changes when a file does."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
