"""The client side of the peer protocol: peers over HTTPS, and a probe for the doctor."""

import asyncio
import logging
import math
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from covey.bandit.policies import Policy
from covey.errors import (
    ConfigError,
    CoveyError,
    MissingExtra,
    PeerBusy,
    PeerDeclined,
    PeerError,
    PeerRefused,
    need_of,
)
from covey.functions.remote import read_refusal
from covey.kernel.rules import Report
from covey.node.peers import DEADLINE_S, VIA
from covey.server import keys, peer_messages, spaces
from covey.server.config import Identity, PeerConfig, SiteConfig, pinned_keys
from covey.server.http import HttpResponse
from covey.server.peer_messages import MOST_ROWS, ROOT, VERSION, AnyReply, HelloReply, PeerMessage
from covey.server.spaces import Meaning
from covey.site.requests import NO_INSTANCE, AskRow, Assistance, QueryKind
from covey.store.fingerprint import describe_cells, preset_of
from covey.types import Label

# Posts the bytes of a message to a path and returns the response. Failures are `CoveyError`s.
Post = Callable[[str, bytes], Awaitable[HttpResponse]]
BUSY = ("too_often", "busy")  # codes of a peer that is overloaded
LATE = ("deadline_over", "too_slow")  # codes of a peer that got the message too late
# What surrounds the calls to a peer, by the names of peer and call.
Observed = Callable[[str, str], AbstractContextManager[object]]
USUAL_WAIT_S = 1.0  # if Retry-After is missing or cannot be read


def check_may_see(share: str, requests: Sequence[AskRow]) -> None:
    """Raise `PeerError` if `share` does not permit that a peer gets these."""
    is_cell_alone = all(row.instance is NO_INSTANCE for row in requests)
    if share == "none" or (share == "context" and not is_cell_alone):
        raise PeerError(f"share = {share!r} does not permit this request")


@dataclass(eq=False)
class PeerClient:
    """A client of another site: it sends no more than that site may see."""

    neighbour: PeerConfig
    post: Post
    chance: random.Random
    to: str = ""  # the site that the neighbour forwards questions to, for the site `own_name`
    own_name: str = ""
    # Gets the name of the peer and of each call; the call is made within the block.
    observed: Observed = lambda peer, call: nullcontext()

    async def ask(self, requests: Sequence[AskRow]) -> list[Assistance]:
        helps: list[Assistance] = []
        for start in range(0, len(requests), MOST_ROWS):
            rows = requests[start : start + MOST_ROWS]
            check_may_see(self.neighbour.share, rows)
            query = peer_messages.ask(rows, **self._head(), **self._route())
            helps += peer_messages.helps_of(await self._send("ask", query, peer_messages.AskReply))
        return helps

    async def report(self, cell: str, slot: int, what: QueryKind = "arrivals") -> Report:
        query = peer_messages.ReportQuery(
            version=VERSION, **self._head(), **self._route(), cell=cell, slot=slot, what=what
        )
        reply = await self._send("report", query, peer_messages.ReportReply)
        return reply.arrivals, reply.low, reply.high, tuple(reply.told)

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        query = peer_messages.delivery(labels, **self._head())
        return (await self._send("labels", query, peer_messages.DeliveryReply)).words

    async def hello(self) -> HelloReply:
        """Return the settings of the peer; raise `PeerError` if it is another site."""
        query = peer_messages.HelloQuery(version=VERSION, **self._head())
        greeting = await self._send("hello", query, HelloReply)
        if greeting.name != self.neighbour.name:
            raise PeerError(f"the greeting of {greeting.name!r}")
        return greeting

    async def _send(self, call: str, query: PeerMessage, kind: type[AnyReply]) -> AnyReply:
        with self.observed(self.to or self.neighbour.name, call):
            reply = await self.post(f"{ROOT}/{call}", peer_messages.write(query))
            if reply.status != 200:
                raise _refused(reply, *read_refusal(reply.body))
            return peer_messages.read_answer(reply.body, kind, query)

    def _route(self) -> dict[str, Any]:
        """Return where the neighbour forwards a question, and what it has passed."""
        return {"to": self.to, "via": [*VIA.get(), self.own_name]} if self.to else {}

    def _head(self) -> dict[str, Any]:
        """Return a new id, and the time that is left until the deadline of the caller."""
        request = f"{self.chance.getrandbits(64):016x}"
        left_ms = 1e3 * (DEADLINE_S.get() - asyncio.get_running_loop().time())
        if left_ms <= 0:
            raise PeerError("no time to answer")
        left_ms = min(left_ms, peer_messages.MOST_DEADLINE_MS)  # it may be infinite
        return {"request": request, "deadline_ms": math.ceil(left_ms)}


def _refused(reply: HttpResponse, code: str, detail: str) -> PeerError:
    text = f"status {reply.status} ({code})" if code else f"status {reply.status}"
    if code in BUSY:
        wait = reply.headers.get("Retry-After", "")
        is_number = wait.isascii() and wait.isdecimal()
        return PeerBusy(text, wait_s=float(wait) if is_number else USUAL_WAIT_S)
    if 400 <= reply.status < 500 and code not in LATE:
        return PeerDeclined(f"{text}: {detail}" if code and detail else text)
    return PeerError(text)


try:
    import aiohttp
except ImportError as missing:
    raise MissingExtra(need_of("requests to peers", "aiohttp", extra="node")) from missing

AT_ONCE = 8  # connections of a site to one peer
IDLE_S = 15.0  # after which a connection is closed
REMEDIES = {  # for what OpenSSL finds in the certificate of a peer
    "self-signed certificate in certificate chain": "; its key is not the one that is listed here",
    "certificate has expired": "; its operator must renew it, or the clock here is ahead",
    "certificate is not yet valid": "; the clock here is behind, or the one there ahead",
}
NOT_LISTED = "it does not list this site and its key"
log = logging.getLogger(__name__)


class HttpsPeers:
    """The peers that have a url, over kept connections; timeouts are the caller's."""

    def __init__(
        self,
        neighbours: Mapping[str, PeerConfig],
        identity: Identity,
        chance: random.Random,
        *,
        fault: Callable[[], str] = str,
        announced: Mapping[str, str] | None = None,
        relays: Mapping[str, str] | None = None,
        own_name: str = "",
        observed: Observed = lambda peer, call: nullcontext(),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`identity` are the files of the own site.

        `announced` are the headers that say what cells of the site mean.
        `relays` has the peers that are asked through another one, for the site `own_name`.
        `fault` says why every peer refuses this site, if so: peers only disconnect.
        """
        self._identity, self._fault = identity, fault
        self._now = now
        self._ends: dict[str, datetime] = {}  # of the certificates that peers have shown
        self._keys: dict[str, str] = {}
        self._urls: dict[str, str] = {}
        self.by_name: dict[str, PeerClient] = {}
        self.use(neighbours)
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=AT_ONCE, keepalive_timeout=IDLE_S)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={
                "Content-Type": peer_messages.KIND,
                "User-Agent": "covey",
                "Accept-Encoding": "",
                **peer_messages.announcement(),
                **(announced or {}),
            },
        )
        hops = {name: name for name in self._urls} | dict(relays or {})
        self.by_name = {
            name: PeerClient(
                neighbours[hop],
                partial(self.post, hop),
                chance,
                to="" if hop == name else name,
                own_name=own_name,
                observed=observed,
            )
            for name, hop in hops.items()
        }

    def use(self, neighbours: Mapping[str, PeerConfig]) -> None:
        """Call the same peers as other tables say from now on."""
        self._keys = pinned_keys(neighbours)
        self._urls = {name: peer.url for name, peer in neighbours.items() if peer.url is not None}
        self._context = self._pinned()
        for client in self.by_name.values():
            client.neighbour = neighbours[client.neighbour.name]

    def reload(self) -> None:
        """Read the own certificate again; open connections stay open."""
        try:
            self._context = self._pinned()
        except ConfigError as error:
            log.error("certificate not reloaded, the old one stays in use: %s", error)

    async def close(self) -> None:
        await self._session.close()

    async def post(self, name: str, path: str, body: bytes) -> HttpResponse:
        """Return a peer's response.

        Raises `PeerRefused` if the two sites do not accept each other's certificates, `ConfigError`
        if the host is unknown, and `PeerError` if there is no response, or one that is too long.
        """
        end = self._ends.get(name)
        if end is not None and self._now() > end:
            # Connections have the certificate of their handshake; another context makes new ones.
            del self._ends[name]
            self.reload()
        try:
            async with self._session.post(
                self._urls[name] + path,
                data=body,
                server_hostname=name,
                ssl=self._context,
                allow_redirects=False,
            ) as response:
                body = await _read(response)
                return HttpResponse(response.status, body, peer_messages.KIND, response.headers)
        except (aiohttp.ClientError, ValueError) as error:
            is_reached = not isinstance(error, aiohttp.ClientConnectorError) or isinstance(
                error, aiohttp.ClientSSLError
            )
            fault = self._fault() if is_reached else ""
            raise (PeerRefused(fault) if fault else _failure(error)) from error

    def _pinned(self) -> ssl.SSLContext:
        """Let the handshake fail if a site's key is not the listed one, before anything is sent."""
        allowed, ends, now = self._keys, self._ends, self._now

        class Pinned(ssl.SSLObject):
            def do_handshake(self) -> None:
                super().do_handshake()
                name: Any = self.server_hostname
                try:
                    keys.admit(self, {name: allowed[name]}, now=now())
                except PeerRefused as error:
                    raise ssl.SSLCertVerificationError(str(error)) from None
                ends[name] = keys.shown(self).valid_until or now()

        context = keys.client_context(*self._identity, allowed)
        context.sslobject_class = Pinned
        return context


def _failure(error: Exception) -> CoveyError:
    """Return why there was no response, in words."""
    cause: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    elif isinstance(error.__cause__, ssl.SSLError):
        cause = error.__cause__
    reason = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None)
    reason = str(reason or cause or type(cause).__name__)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return PeerRefused(f"certificate refused: {reason}{REMEDIES.get(reason, '')}")
    if isinstance(cause, ssl.SSLError):
        if "ALERT_UNKNOWN_CA" in reason:
            return PeerRefused(NOT_LISTED)
        return PeerRefused(
            f"no TLS connection ({reason}); check that each site lists the other's key, and both "
            "clocks"
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        if cause.args and cause.args[0] == socket.EAI_NONAME:
            return ConfigError(f"unknown host {error.host!r}; correct url")
        reason = f"{error.host}:{error.port}: {reason}"
    return PeerError(f"no answer: {reason}")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    if response.status == 200 and response.content_type != peer_messages.KIND:
        raise PeerError("unexpected content type in the response")
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > peer_messages.MOST_BYTES:
            response.close()
            raise PeerError(f"a response of more than {peer_messages.MOST_BYTES} bytes")
    return bytes(body)


MOST_SHOWN = 40  # characters of a name that a peer has sent


def asks_of(site: SiteConfig, name: str) -> "Asks | None":
    """Return what a site shows a peer that it asks directly; None: it does not."""
    place = [member.name for member in site.setup.sites].index(name)
    if place in site.asked.peers and name not in site.relays:
        return "data"
    return "context" if place in site.site.context_peers else None


def misfit(site: SiteConfig, peer: PeerConfig, seen: "Probe") -> str:
    """Return why this site and a peer would refuse questions of each other; empty: they fit."""
    asks = asks_of(site, peer.name)
    by_data = asks == "data" or (asks is None and not peer.asks_by_context)
    differences = [
        difference
        for is_asked, is_used in ((True, asks is not None), (False, peer.may_ask))
        if is_used
        for difference in _differences(site, seen, is_asked=is_asked, by_data=by_data)
    ]
    if not differences:
        return ""
    why = "; ".join(dict.fromkeys(differences))
    return f"{why}; so questions would be refused: write the same settings in both files"


def _differences(site: SiteConfig, seen: "Probe", *, is_asked: bool, by_data: bool) -> list[str]:
    """Return the settings of a site and a peer that keep one from asking the other.

    `is_asked`: this site asks the peer; else the peer may ask this site. Missing fields are not
    compared; presets and instances matter only if data is sent.
    """
    greeting = seen.greeting
    differences = list(_of_cells(site, seen, is_asked=is_asked)) if greeting.spaces else []
    if not by_data:
        return differences
    preset = preset_of(site.learner.policies)
    if greeting.preset and greeting.preset != preset:
        differences.append(f"the preset is {preset!r} here and {_shown(greeting.preset)} there")
    if greeting.features and not site.site.views:  # views show each arm something else
        differences += _of_instances(site, greeting)
    return differences


def _of_cells(site: SiteConfig, seen: "Probe", *, is_asked: bool) -> Iterator[str]:
    """Compare the spaces in which one site asks with those that the other knows."""
    here, announced = site.spaces, seen.greeting.spaces
    policies = site.learner.policies
    if not here.known or len(seen.known) < len(announced):  # clients send the contexts
        there = {space.name: space for space in announced}
        for space in site.learner.own_spaces:
            if space in there:
                yield from _of_forms(policies[space], there[space])
            else:
                name = space or "the same for all"
                yield f"contexts are {name} here, and it has none of these"
        return
    own = dict(zip(here.known, policies.values(), strict=False))  # candidates come last
    theirs = dict(zip(seen.known, announced, strict=False))
    who, whom = ("this site", "it") if is_asked else ("it", "this site")
    asking, knowing = (here.own, seen.known) if is_asked else (seen.own, here.known)
    for item in asking:
        if item in knowing:
            yield from _of_forms(own[item], theirs[item]) if item in own and item in theirs else ()
        elif any(item.name == other.name for other in knowing):
            yield f"contexts {_shown(item.name)} have other scales there"
        else:
            names = ", ".join(_shown(other.name) for other in knowing)
            yield f"{who} asks by contexts {_shown(item.name)}, and {whom} knows only {names}"


def _of_forms(policy: Policy, there: peer_messages.SpaceInfo) -> Iterator[str]:
    if there.dimension != policy.dimension:
        yield f"contexts have {policy.dimension} dimensions here and {there.dimension} there"
    if there.cells != describe_cells(policy):
        yield f"cells are {describe_cells(policy)} here and {_shown(there.cells, 120)} there"


def _of_instances(site: SiteConfig, greeting: HelloReply) -> Iterator[str]:
    if greeting.instance != site.serving.instance:
        there = _shown(greeting.instance)
        yield f"functions are given a {site.serving.instance!r} here and a {there} there"
    ours = {name: str(kind) for name, kind in site.serving.features.items()}
    theirs = {feature.name: feature.datatype for feature in greeting.features}
    for name in {**ours, **theirs}:
        if ours.get(name) != theirs.get(name):
            here, there = (kinds.get(name, "missing") for kinds in (ours, theirs))
            yield f"feature {_shown(name)} is {here!r} here and {_shown(there)} there"
            return
    if [*ours] != [*theirs] and site.serving.instance == "row":
        yield "features are in another order there, and rows have that order"


def _shown(text: str, most: int = MOST_SHOWN) -> str:
    return repr(text[:most])


TIMEOUT_S = 5.0
PATIENCE_MS = 5_000
NO_CELL = "?"  # such as no partition has
Asks = Literal["data", "context"]


class Probe(NamedTuple):
    """What a peer announces about itself."""

    greeting: HelloReply
    versions: str  # of the peer protocol that it speaks
    software: str
    ahead_s: float | None  # its clock minus the own one; None: it does not say
    refusal: str  # the code if it refuses to be asked; "" if it answers, or is not to be asked
    own: Sequence[Meaning] = ()  # the context spaces in which it asks, if it says so
    known: Sequence[Meaning] = ()  # those it may be asked about, in the order of the greeting


def probe(peer: PeerConfig, identity: Identity, *, asks: Asks | None) -> Probe:
    """Return what a peer announces to the site of `identity`.

    Raises `PeerError` if it does not answer, `PeerRefused` if one of the two sites does not accept
    the other, and `ConfigError` if its host is unknown.
    """
    return asyncio.run(_visit(peer, identity, asks))


async def _visit(peer: PeerConfig, identity: Identity, asks: Asks | None) -> Probe:
    peers = HttpsPeers({peer.name: peer}, identity, random.SystemRandom())
    try:
        return await greeted(peer.name, peers, identity, asks)
    finally:
        await peers.close()


async def greeted(
    name: str, peers: HttpsPeers, identity: Identity, asks: Asks | None = None
) -> Probe:
    """Return what a peer announces; raise `PeerError` as `probe` does."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await _talk(name, peers, asks, keys.show(identity.certificate))
    except TimeoutError:
        raise PeerError(f"no answer within {TIMEOUT_S:g} s") from None


async def _talk(name: str, peers: HttpsPeers, asks: Asks | None, own: keys.KeyInfo) -> Probe:
    hello = peer_messages.HelloQuery(version=VERSION, request="doctor", deadline_ms=PATIENCE_MS)
    remedy = f"its operator must add [[peer]] with name = {own.name!r} and key = {own.key!r}"
    try:
        reply = await _sent(name, peers, "hello", hello)
    except PeerRefused as error:
        raise PeerRefused(f"{error}; {remedy}" if str(error) == NOT_LISTED else error) from None
    ahead_s = _ahead_s(reply.headers.get("Date"), time.time())
    if reply.status == 403:
        raise PeerRefused(f"{NOT_LISTED}; {remedy}")
    versions, software = peer_messages.announced(reply.headers)
    if reply.status != 200:
        code, _ = read_refusal(reply.body)
        if code == "protocol_version":
            raise PeerError(f"it speaks peer protocol {versions}, and this site {VERSION}")
        raise PeerError(f"it answers with status {reply.status} {code}".rstrip())
    greeting = peer_messages.read_answer(reply.body, HelloReply, hello)
    if greeting.name != name:
        raise PeerRefused(f"it says that it is {greeting.name[:63]!r}")
    refusal = "" if asks is None else await _refusal(name, peers, asks)
    return Probe(greeting, versions, software, ahead_s, refusal, *spaces.announced(reply.headers))


async def _refusal(name: str, peers: HttpsPeers, asks: Asks) -> str:
    """Return the code with which it refuses such a question; it must not begin to answer."""
    if asks == "data":
        # The peer checks the permission first, and then the time, of which there is none left.
        query: PeerMessage = peer_messages.ReportQuery(
            version=VERSION, request="doctor", deadline_ms=0, cell=NO_CELL, slot=1
        )
        expected, reply = "deadline_over", await _sent(name, peers, "report", query)
    else:
        query = peer_messages.ask(
            [AskRow("doctor", NO_CELL, 1)], request="doctor", deadline_ms=PATIENCE_MS
        )
        expected, reply = "invalid", await _sent(name, peers, "ask", query)
    code, _ = read_refusal(reply.body)
    return "" if code == expected else code or f"status {reply.status}"


async def _sent(name: str, peers: HttpsPeers, call: str, query: PeerMessage) -> HttpResponse:
    return await peers.post(name, f"{ROOT}/{call}", peer_messages.write(query))


def _ahead_s(date: str | None, now_s: float) -> float | None:
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp() - now_s
    except ValueError:
        return None
