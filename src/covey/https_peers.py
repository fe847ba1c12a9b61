"""Messages over https, only to the site with the listed key. The one file with aiohttp's client."""

import logging
import random
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

from covey import letters, tls
from covey.calls import Reply
from covey.correspondents import Correspondent
from covey.errors import ConfigError, CoveyError, MissingExtra, PeerError, PeerRefused
from covey.neighbours import Neighbour, allowed

try:
    import aiohttp
except ImportError as missing:
    raise MissingExtra('peers are reached by aiohttp: pip install "covey[node]"') from missing

AT_ONCE = 8  # connections to one peer
IDLE_S = 15.0  # after which a connection is closed
log = logging.getLogger(__name__)


class HttpsPeers:
    """The neighbours that have a url, over connections that are kept for a while.

    Timeouts are set by the caller.
    """

    def __init__(
        self,
        neighbours: Mapping[str, Neighbour],
        identify: Callable[[], ssl.SSLContext],
        chance: random.Random,
    ) -> None:
        """`identify` is `tls.client_context` with the files of the own identity."""
        self._identify = identify
        self._keys = allowed(neighbours)
        self._context = _pinned(identify(), self._keys)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, limit_per_host=AT_ONCE, keepalive_timeout=IDLE_S
            ),
            timeout=aiohttp.ClientTimeout(),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={
                "Content-Type": letters.KIND,
                "User-Agent": "covey",
                "Accept-Encoding": "",
                **letters.announcement(f"covey {version('covey')}"),
            },
        )
        self._urls = {one.name: one.url for one in neighbours.values() if one.url is not None}
        self.by_name = {
            name: Correspondent(neighbours[name], partial(self.post, name), chance)
            for name in self._urls
        }

    async def reload(self) -> None:
        """Read the own certificate again; open connections stay open."""
        try:
            self._context = _pinned(self._identify(), self._keys)
        except ConfigError as error:
            log.error("certificate not reloaded, the old one stays in use: %s", error)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def post(self, name: str, path: str, body: bytes) -> Reply:
        """Return a peer's response.

        Raises `PeerRefused` if the two sites do not accept each other's certificates, `ConfigError`
        if the host is unknown, and `PeerError` if there is no response, or one that is too long.
        """
        try:
            async with self._session.post(
                self._urls[name] + path,
                data=body,
                server_hostname=name,
                ssl=self._context,
                allow_redirects=False,
            ) as response:
                said = await _read(response)
                return Reply(response.status, said, letters.KIND, response.headers)
        except (aiohttp.ClientError, ValueError) as error:
            raise _failure(error) from error


def _failure(error: Exception) -> CoveyError:
    """Return why there was no response, in words."""
    cause: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    elif isinstance(error.__cause__, ssl.SSLError):
        cause = error.__cause__
    said = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None)
    said = str(said or cause or type(cause).__name__)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return PeerRefused(f"certificate refused: {said}")
    if isinstance(cause, ssl.SSLError):
        return PeerRefused(
            f"no TLS connection ({said}); check that both sites have the same authority, and both "
            "clocks"
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        if cause.args and cause.args[0] == socket.EAI_NONAME:
            return ConfigError(f"unknown host {error.host!r}; correct url")
        said = f"{error.host}:{error.port}: {said}"
    return PeerError(f"no answer: {said}")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    if response.status == 200 and response.content_type != letters.KIND:
        raise PeerError("unexpected content type in the response")
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > letters.MOST_BYTES:
            response.close()
            raise PeerError(f"a response of more than {letters.MOST_BYTES} bytes")
    return bytes(body)


def _pinned(context: ssl.SSLContext, keys: Mapping[str, str]) -> ssl.SSLContext:
    """Let the handshake fail if the site's key is not the listed one: so nothing is sent to it."""

    class Pinned(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            name: Any = self.server_hostname
            try:
                tls.admit(self, {name: keys[name]})
            except PeerRefused as error:
                raise ssl.SSLCertVerificationError(str(error)) from None

    context.sslobject_class = Pinned
    return context
