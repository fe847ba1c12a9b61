"""A short visit at a peer, to see that it is there, is the right one, and may be asked.

Nothing changes at the peer: a question that nobody waits for is looked at for the right to ask it,
and not begun.
"""

import http.client
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from covey import letters, tls
from covey.errors import ConfigError, CoveyError, PeerError, PeerRefused
from covey.letters import KIND, ROOT, VERSION, Letter
from covey.neighbours import Neighbour, allowed
from covey.node.requests import AskRow
from covey.sites import Identity

TIMEOUT_S = 5.0
PATIENCE_MS = 5_000
NO_CELL = "?"  # such as no partition has
Asks = Literal["data", "context"]


class Visit(NamedTuple):
    """What a peer told of itself."""

    greeting: letters.Greeting
    ahead_s: float | None  # of its clock before the own one; None: it did not say
    refusal: str  # of being asked: its code; "" if it would answer, or is not to be asked


class _Answer(NamedTuple):
    status: int
    body: bytes
    ahead_s: float | None


class _Refusal(msgspec.Struct):
    code: str = ""


class _Model(msgspec.Struct):
    name: str
    platform: str


def visit(peer: Neighbour, identity: Identity, *, asks: Asks | None = None) -> Visit:
    """Go to a peer as the site of `identity`, and come back.

    Raises `PeerError` if it is not there now, `PeerRefused` if one of the two does not take the
    other for what it is, and `ConfigError` if there can be no such place.
    """
    try:
        with _connected(peer, identity) as connection:
            return _talk(_Way(peer, connection), asks)
    except CoveyError:
        raise
    except ssl.SSLCertVerificationError as error:
        raise PeerRefused(f"it shows a certificate that is not its own: {_said(error)}") from None
    except ssl.SSLError as error:
        raise PeerRefused(
            f"it does not take this site's certificate ({_said(error)}); do both have the same "
            "authority, and is the clock right on both sides?"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise PeerError(f"no answer: {_said(error)}") from None


def shown_key(host: str, port: int, identity: Identity, *, name: str) -> str:
    """Return the hash of the key that whoever serves there shows for `name`."""
    context = tls.client_context(*identity)
    with (
        socket.create_connection((host, port), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        return tls.peer_name_and_hash(connection)[1]


def is_model(host: str, port: int, *, name: str) -> bool:
    """Say whether covey serves a model of this name there, without TLS."""
    way = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        way.request("GET", f"/v2/models/{name}")
        answer = way.getresponse()
        body = answer.read(letters.MOST_BYTES)
        if answer.status == 401:
            return _code(body) == "no_token"
        return msgspec.json.decode(body, type=_Model) == _Model(name, "covey")
    except (http.client.HTTPException, ValueError, RecursionError):
        return False
    finally:
        way.close()


class _Way:
    """Letters over a connection that is there already, and never over another one."""

    def __init__(self, peer: Neighbour, connection: ssl.SSLSocket) -> None:
        self.peer = peer
        self._http = http.client.HTTPConnection(_place(peer)[0])
        self._http.sock = connection
        self._http.auto_open = 0

    def send(self, call: str, letter: Letter) -> _Answer:
        """Return the answer to a letter."""
        self._http.request("POST", f"{ROOT}/{call}", letters.write(letter), {"Content-Type": KIND})
        response = self._http.getresponse()
        date, now_s = response.getheader("Date"), time.time()
        return _Answer(response.status, response.read(letters.MOST_BYTES), _ahead_s(date, now_s))


def _connected(peer: Neighbour, identity: Identity) -> ssl.SSLSocket:
    context = tls.client_context(*identity)
    try:
        plain = socket.create_connection(_place(peer), timeout=TIMEOUT_S)
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            raise ConfigError(f"nobody knows the host {_place(peer)[0]!r}; mend url") from None
        raise
    try:
        connection = context.wrap_socket(plain, server_hostname=peer.name)
    except BaseException:
        plain.close()
        raise
    try:
        tls.admit(connection, allowed({peer.name: peer}))
    except BaseException:
        connection.close()
        raise
    return connection


def _talk(way: _Way, asks: Asks | None) -> Visit:
    hello = letters.Hello(version=VERSION, request="doctor", deadline_ms=PATIENCE_MS)
    answer = way.send("hello", hello)
    if answer.status == 403:
        raise PeerRefused("it does not know this site; its operator must list it as [[peer]]")
    if answer.status != 200:
        raise PeerError(f"it answers with status {answer.status} {_code(answer.body)}".rstrip())
    greeting = letters.read_answer(answer.body, letters.Greeting, hello)
    if greeting.name != way.peer.name:
        raise PeerRefused(f"it says that it is {greeting.name[:63]!r}")
    refusal = "" if asks is None else _refusal(way, asks)
    return Visit(greeting, answer.ahead_s, refusal)


def _refusal(way: _Way, asks: Asks) -> str:
    """Return why it would not be asked so, or nothing; it must not begin to answer."""
    if asks == "data":
        # The right comes first, then the time, which is over.
        letter: Letter = letters.Report(
            version=VERSION, request="doctor", deadline_ms=0, cell=NO_CELL, slot=1
        )
        expected, answer = "deadline_over", way.send("report", letter)
    else:
        letter = letters.ask(
            [AskRow("doctor", NO_CELL, 1)], request="doctor", deadline_ms=PATIENCE_MS
        )
        expected, answer = "invalid", way.send("ask", letter)
    code = _code(answer.body)
    return "" if code == expected else code or f"status {answer.status}"


def _place(peer: Neighbour) -> tuple[str, int]:
    parts = urlsplit(peer.url or "")
    return parts.hostname or "", parts.port or 443


def _code(body: bytes) -> str:
    try:
        code = msgspec.json.decode(body, type=_Refusal).code
    except (ValueError, RecursionError):
        return ""
    return code if code.isidentifier() and code.isascii() and len(code) <= 40 else ""


def _ahead_s(date: str | None, now_s: float) -> float | None:
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp() - now_s
    except ValueError:
        return None


def _said(error: Exception) -> str:
    verified = getattr(error, "verify_message", None)
    return str(verified or getattr(error, "strerror", None) or error or type(error).__name__)
