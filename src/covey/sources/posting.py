"""One HTTP request with a deadline for the whole of it: JSON out, JSON back, or a sentence."""

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from covey.errors import ConfigError, DataError

MOST_BYTES = 64 * 2**20  # of an answer


class Post(NamedTuple):
    """Where to post, and how; no proxy is used and no redirection is followed."""

    url: str
    timeout_s: float
    token: str | None = None
    tls: ssl.SSLContext | None = None

    def send(self, body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer.

        Raises `DataError` if there is none within the time, or one that is too long.
        """
        end = time.monotonic() + self.timeout_s
        connection = self._connection()
        try:
            connection.connect()
            with _cut_at(end, connection.sock):
                answer = self._talk(connection, body)
            if time.monotonic() >= end:
                raise TimeoutError  # cut short, it may look whole
            return answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            is_late = time.monotonic() >= end or isinstance(error, TimeoutError)
            what = f"no whole answer within {self.timeout_s:g} s" if is_late else _reason(error)
            raise DataError(f"{self.url}: {what}") from error
        finally:
            connection.close()

    def _talk(self, connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection.request("POST", urlsplit(self.url).path, body, headers)
        answer = connection.getresponse()
        content = answer.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise DataError(f"{self.url}: the answer is longer than {MOST_BYTES} bytes")
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
    """Return the parts of an address of the web.

    Raises `ConfigError` if it is none, or holds a password.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isprintable() or set(url) & set(" ?#"):
        raise ConfigError(f"url is {url!r}; write http://host:port/... or https://host/...")
    if "@" in parts.netloc:
        raise ConfigError("url holds a name or a password; name a variable in token-variable")
    return parts


def is_here(host: str | None) -> bool:
    """Say whether `host` is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


@contextmanager
def _cut_at(end: float, sock: socket.socket) -> Iterator[None]:
    """Cut a connection at the end of its time: a peer that drips bytes resets other timeouts."""

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
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"the connection failed: {said}"
