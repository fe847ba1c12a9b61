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

MOST_BYTES = 64 * 2**20  # of a response


class HttpClient(NamedTuple):
    """A base URL with timeout, token and TLS settings."""

    url: str
    timeout_s: float
    token: str | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def at(
        cls, url: str, *, timeout_s: float, token: str | None = None, authority: Path | None = None
    ) -> "HttpClient":
        """Return the client of a URL; `authority` is a file of certificates to trust.

        Raises `ConfigError` if the URL, the token or the file is not valid, or if the token would
        be sent unencrypted to another machine.
        """
        parts = checked(url)
        if token is not None:
            _check_token(token, parts)
        tls = _trusting(authority) if parts.scheme == "https" else None
        return cls(url.rstrip("/"), timeout_s, token, tls)

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of the response to a request for `path` below the URL.

        Raises `PeerError` if there is none in time, or if it is too long.
        """
        end = time.monotonic() + self.timeout_s
        connection = self._connection()
        try:
            connection.connect()
            with _cut_at(end, connection.sock):
                response = self._exchange(connection, method, path, body)
            if time.monotonic() >= end:
                raise TimeoutError  # a truncated response may look complete
            return response
        except (OSError, http.client.HTTPException, ValueError) as error:
            is_late = time.monotonic() >= end or isinstance(error, TimeoutError)
            late = f"no complete response within {self.timeout_s:g} s"
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
        response = connection.getresponse()
        content = response.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"the response has more than {MOST_BYTES} bytes")
        if response.length:
            raise http.client.IncompleteRead(content, response.length)
        return response.status, content

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if self.tls is None:
            return http.client.HTTPConnection(host, parts.port, timeout=self.timeout_s)
        return http.client.HTTPSConnection(
            host, parts.port, timeout=self.timeout_s, context=self.tls
        )


def checked(url: str) -> SplitResult:
    """Return the parts of a URL; raise `ConfigError` if it is invalid or holds a password."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not url.isprintable() or set(url) & set(" ?#"):
        raise ConfigError(f"url is {url!r}; write http://host:port/... or https://host/...")
    if "@" in parts.netloc:
        raise ConfigError("the url contains a user name or a password; give a token instead")
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
    except OSError as error:  # includes SSLError
        reason = "no certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"cannot read certificates from {authority}: {reason}") from None


@contextmanager
def _cut_at(end: float, sock: socket.socket) -> Iterator[None]:
    """Close the connection at the deadline: single bytes reset the socket's own timeout."""

    def cut() -> None:
        with suppress(OSError):  # it may be closed already
            # The base method: that of a TLS socket also frees objects that the reader uses.
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
            f"certificate not trusted ({error.verify_message}); give the CA file (ca, --ca) and a "
            "host name of the certificate"
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"no response: {reason}"
