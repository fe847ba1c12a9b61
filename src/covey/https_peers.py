"""Letters over https, to the site with the right key and to no other.

The one file with aiohttp's client.
"""

import logging
import random
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from covey import letters, tls
from covey.calls import Reply
from covey.correspondents import Correspondent
from covey.errors import ConfigError, MissingExtra, PeerError, PeerRefused
from covey.neighbours import Neighbour, allowed

try:
    import aiohttp
except ImportError as missing:
    raise MissingExtra('peers are reached by aiohttp: pip install "covey[node]"') from missing

AT_ONCE = 8  # connections to one peer
IDLE_S = 15.0  # after which a connection is closed
log = logging.getLogger(__name__)


class HttpsPeers:
    """The neighbours that have an address, over connections that are kept for a while.

    Deadlines are for whoever asks: nothing here gives up by itself.
    """

    def __init__(
        self,
        neighbours: Mapping[str, Neighbour],
        identify: Callable[[], ssl.SSLContext],
        chance: random.Random,
    ) -> None:
        """`identify` is `tls.client_context` with the files that say who calls."""
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
            headers={"Content-Type": letters.KIND, "User-Agent": "covey", "Accept-Encoding": ""},
        )
        self.by_name = {
            one.name: Correspondent(one, partial(self._post, one.name, one.url), chance)
            for one in neighbours.values()
            if one.url is not None
        }

    async def reload(self) -> None:
        """Read the own certificate again; connections that are open stay so."""
        try:
            self._context = _pinned(self._identify(), self._keys)
        except ConfigError as error:
            log.error("certificate not reloaded, the old one stays in use: %s", error)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _post(self, name: str, root: str, path: str, body: bytes) -> Reply:
        try:
            async with self._session.post(
                root + path,
                data=body,
                server_hostname=name,
                ssl=self._context,
                allow_redirects=False,
            ) as response:
                said = await _read(response)
                return Reply(response.status, said, letters.KIND, response.headers)
        except (aiohttp.ClientError, ValueError) as error:
            raise PeerError(f"no answer: {_said(error)}") from error


def _said(error: Exception) -> str:
    """Return why nothing came; what a connector says of itself names objects of Python."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    return str(error) or type(error).__name__


async def _read(response: aiohttp.ClientResponse) -> bytes:
    if response.status == 200 and response.content_type != letters.KIND:
        raise PeerError("an answer that is no letter")
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > letters.MOST_BYTES:
            response.close()
            raise PeerError(f"an answer of more than {letters.MOST_BYTES} bytes")
    return bytes(body)


def _pinned(context: ssl.SSLContext, keys: Mapping[str, str]) -> ssl.SSLContext:
    """Let handshakes fail with a site whose key is not the one on the list.

    So nothing is sent to it: to look only afterwards would be after the first letter.
    """

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
