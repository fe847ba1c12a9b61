"""Probe a peer: reachability, identity, permissions, protocol version.

Nothing changes at the peer: the question has no time left or an unknown cell, so the peer checks
the permission and does not begin to answer.
"""

import asyncio
import random
import socket
import time
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from covey import letters, tls
from covey.calls import Reply, read_refusal
from covey.errors import PeerError, PeerRefused
from covey.https_peers import HttpsPeers
from covey.letters import ROOT, VERSION, Letter
from covey.neighbours import Neighbour
from covey.node.requests import AskRow
from covey.sites import Identity
from covey.sources.posting import HttpClient

TIMEOUT_S = 5.0
PATIENCE_MS = 5_000
NO_CELL = "?"  # such as no partition has
Asks = Literal["data", "context"]


class Visit(NamedTuple):
    """What a peer says of itself."""

    greeting: letters.Greeting
    versions: str  # of the peer protocol that it speaks
    software: str
    ahead_s: float | None  # its clock minus the own one; None: it does not say
    refusal: str  # the code if it refuses to be asked; "" if it answers, or is not to be asked


class _Model(msgspec.Struct):
    name: str
    platform: str


def visit(peer: Neighbour, identity: Identity, *, asks: Asks | None = None) -> Visit:
    """Return what a peer says to the site of `identity`.

    Raises `PeerError` if it does not answer, `PeerRefused` if one of the two sites does not accept
    the other, and `ConfigError` if its host is unknown.
    """
    return asyncio.run(_visit(peer, identity, asks))


async def _visit(peer: Neighbour, identity: Identity, asks: Asks | None) -> Visit:
    identify = partial(tls.client_context, *identity)
    peers = HttpsPeers({peer.name: peer}, identify, random.SystemRandom())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await _talk(peer.name, peers, asks)
    except TimeoutError:
        raise PeerError(f"no answer within {TIMEOUT_S:g} s") from None
    finally:
        await peers.close()


def shown_key(host: str, port: int, identity: Identity, *, name: str) -> str:
    """Return the hash of the key that the server at an address shows for `name`."""
    context = tls.client_context(*identity)
    with (
        socket.create_connection((host, port), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        return tls.peer_name_and_hash(connection)[1]


def is_model(host: str, port: int, *, name: str) -> bool:
    """Whether covey serves a model of this name there, without TLS; raises `PeerError`."""
    where = f"[{host}]" if ":" in host else host
    client = HttpClient.at(f"http://{where}:{port}", timeout_s=TIMEOUT_S)
    status, body = client.send("GET", f"/v2/models/{name}")
    if status == 401:
        return read_refusal(body)[0] == "no_token"
    try:
        return msgspec.json.decode(body, type=_Model) == _Model(name, "covey")
    except (ValueError, RecursionError):
        return False


async def _talk(name: str, peers: HttpsPeers, asks: Asks | None) -> Visit:
    hello = letters.Hello(version=VERSION, request="doctor", deadline_ms=PATIENCE_MS)
    reply = await _sent(name, peers, "hello", hello)
    ahead_s = _ahead_s(reply.headers.get("Date"), time.time())
    if reply.status == 403:
        raise PeerRefused("it does not know this site; its operator must list it as [[peer]]")
    versions, software = letters.announced(reply.headers)
    if reply.status != 200:
        code, _ = read_refusal(reply.body)
        if code == "protocol_version":
            raise PeerError(f"it speaks peer protocol {versions}, and this site {VERSION}")
        raise PeerError(f"it answers with status {reply.status} {code}".rstrip())
    greeting = letters.read_answer(reply.body, letters.Greeting, hello)
    if greeting.name != name:
        raise PeerRefused(f"it says that it is {greeting.name[:63]!r}")
    refusal = "" if asks is None else await _refusal(name, peers, asks)
    return Visit(greeting, versions, software, ahead_s, refusal)


async def _refusal(name: str, peers: HttpsPeers, asks: Asks) -> str:
    """Return the code with which it refuses such a question; it must not begin to answer."""
    if asks == "data":
        # The peer checks the permission first, and then the time, of which there is none left.
        letter: Letter = letters.Report(
            version=VERSION, request="doctor", deadline_ms=0, cell=NO_CELL, slot=1
        )
        expected, reply = "deadline_over", await _sent(name, peers, "report", letter)
    else:
        letter = letters.ask(
            [AskRow("doctor", NO_CELL, 1)], request="doctor", deadline_ms=PATIENCE_MS
        )
        expected, reply = "invalid", await _sent(name, peers, "ask", letter)
    code, _ = read_refusal(reply.body)
    return "" if code == expected else code or f"status {reply.status}"


async def _sent(name: str, peers: HttpsPeers, call: str, letter: Letter) -> Reply:
    return await peers.post(name, f"{ROOT}/{call}", letters.write(letter))


def _ahead_s(date: str | None, now_s: float) -> float | None:
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp() - now_s
    except ValueError:
        return None
