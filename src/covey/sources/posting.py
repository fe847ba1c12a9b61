"""A small blocking HTTP client: one deadline per exchange, no proxies, no redirections."""

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from covey.errors import ConfigError, PeerError

MOST_BYTES = 64 * 2**20  # of an answer


class HttpClient(NamedTuple):
    """An address, and how to reach it."""

    url: str
    timeout_s: float
    token: str | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def at(
        cls, url: str, *, timeout_s: float, token: str | None = None, authority: Path | None = None
    ) -> "HttpClient":
        """Return the client of a URL; `authority` is a file of certificates to trust.

        Raises `ConfigError` if the URL, the token or the file cannot be used, and if the token
        would be sent unencrypted to another machine.
        """
        parts = checked(url)
        if token is not None:
            _check_token(token, parts)
        tls = _trusting(authority) if parts.scheme == "https" else None
        return cls(url.rstrip("/"), timeout_s, token, tls)

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return the status and the body of the response to a request for `path` below the URL.

        Raises `PeerError` if there is none within the time, or one that is too long.
        """
        end = time.monotonic() + self.timeout_s
        connection = self._connection()
        try:
            connection.connect()
            with _cut_at(end, connection.sock):
                answer = self._exchange(connection, method, path, body)
            if time.monotonic() >= end:
                raise TimeoutError  # cut short, it may look whole
            return answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            is_late = time.monotonic() >= end or isinstance(error, TimeoutError)
            late = f"no complete answer within {self.timeout_s:g} s"
            raise PeerError(f"{self.url}: {late if is_late else _reason(error)}") from error
        finally:
            connection.close()

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection.request(method, urlsplit(self.url).path + path, body, headers)
        answer = connection.getresponse()
        content = answer.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"the response has more than {MOST_BYTES} bytes")
        if answer.length:
            raise http.client.IncompleteRead(content, answer.length)
        return answer.status, content

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if self.tls is None:
            return http.client.HTTPConnection(host, parts.port, timeout=self.timeout_s)
        return http.client.HTTPSConnection(
            host, parts.port, timeout=self.timeout_s, context=self.tls
        )


def checked(url: str) -> SplitResult:
    """Return the parts of a URL; raise `ConfigError` if it is none, or holds a password."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not url.isprintable() or set(url) & set(" ?#"):
        raise ConfigError(f"url is {url!r}; write http://host:port/... or https://host/...")
    if "@" in parts.netloc:
        raise ConfigError("the url holds a user name or a password; give a token instead")
    return parts


def _check_token(token: str, parts: SplitResult) -> None:
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError("the token is not one line of printable ASCII characters")
    if parts.scheme == "http" and not _is_this_machine(parts.hostname or ""):
        raise ConfigError("the token would be sent unencrypted; use https")


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _trusting(authority: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:  # an SSLError is one
        said = "no certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"cannot read certificates from {authority}: {said}") from None


@contextmanager
def _cut_at(end: float, sock: socket.socket) -> Iterator[None]:
    """Close the connection at the deadline: a slow sender of single bytes resets other timeouts."""

    def cut() -> None:
        with suppress(OSError):  # it may be closed by then
            # The plain method, since that of a TLS socket also drops what the reader is using.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, end - time.monotonic()), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"certificate not trusted ({error.verify_message}); name the file of its authority "
            "(ca, --ca), and a host that the certificate is for"
        )
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"no answer: {said}"
