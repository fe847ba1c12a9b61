"""Peer messages over real sockets and mutual TLS: to the right site and its key, or to none."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from covey.errors import PeerError, PeerRefused
from covey.server import keys, peer_messages
from covey.server.config import Identity, PeerConfig
from covey.server.peer_client import HttpsPeers
from covey.site.requests import AskRow
from support.coroutines import looped

HELLO = peer_messages.HelloReply(version=1, request="an older one", name="south", incarnation=7)
Files = tuple[Path, Path, dict[str, str]]
Answer = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sites")
    for name in ("north", "south", "east"):
        keys.new(name, folder=folder)
    keys.new("south", folder=folder / "again")
    return folder


def files(sites: Path, name: str) -> Files:
    """Return the certificate and the key of a site, and the keys that it lists."""
    listed = {other: key_of(sites, other) for other in ("north", "south")}
    return sites / f"{name}.crt", sites / f"{name}.key", listed


async def greet(request: web.Request, body: bytes) -> web.StreamResponse:
    asked = peer_messages.read(body, peer_messages.HelloQuery)
    told = peer_messages.HelloReply(version=1, request=asked.request, name="south", incarnation=7)
    return web.Response(body=peer_messages.write(told), content_type=peer_messages.KIND)


@asynccontextmanager
async def site(
    context: ssl.SSLContext, answer: Answer = greet
) -> AsyncIterator[tuple[str, list[bytes], set[Any]]]:
    """Serve as a site would; yield where, the bodies that came, and the connections they took."""
    bodies: list[bytes] = []
    connections: set[Any] = set()

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        connections.add(request.transport.get_extra_info("peername"))
        bodies.append(await request.read())
        return await answer(request, bodies[-1])

    app = web.Application()
    app.router.add_post("/covey/v1/{call}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}", bodies, connections
    finally:
        await runner.cleanup()


@asynccontextmanager
async def known_by(own: Identity, url: str, key: str, **more: Any) -> AsyncIterator[HttpsPeers]:
    """Yield the peers of a site that knows south by this key."""
    south = PeerConfig(name="south", key=key, url=url, share="data")
    peers = HttpsPeers({"south": south}, own, random.Random(2), **more)  # noqa: S311
    try:
        yield peers
    finally:
        await peers.close()


@asynccontextmanager
async def north(sites: Path, url: str, key: str, **more: Any) -> AsyncIterator[Any]:
    """Yield the way to south from a site that knows it by this key."""
    async with known_by(Identity(*files(sites, "north")[:2]), url, key, **more) as peers:
        yield peers.by_name["south"]


def key_of(folder: Path, name: str = "south") -> str:
    return keys.show(folder / f"{name}.crt").key


async def greeted(sites: Path, answer: Answer = greet, times: int = 1) -> Any:
    async with (
        site(keys.server_context(*files(sites, "south")), answer) as (url, _, connections),
        north(sites, url, key_of(sites)) as peer,
    ):
        said = [await peer.hello() for _ in range(times)]
        return said, connections


@pytest.mark.parametrize(
    ("folder", "name"), [("again", "south"), ("", "east")], ids=["another key", "another name"]
)
@looped
async def test_a_site_that_is_not_the_one_on_the_list_is_sent_nothing(
    sites: Path, folder: str, name: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # it admits every client
    context.load_cert_chain(sites / folder / f"{name}.crt", sites / folder / f"{name}.key")
    async with site(context) as (url, bodies, _), north(sites, url, key_of(sites)) as peer:
        with pytest.raises(PeerError) as refused:
            await peer.ask([AskRow("r", "g1:0", 1, [0.5])])
        said = str(refused.value)

        assert bodies == []
    assert "ertificate" in said or "another key" in said


@looped
async def test_a_new_certificate_is_shown_on_new_connections_and_a_broken_one_never(
    sites: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shown: list[int] = []

    async def look(request: web.Request, body: bytes) -> web.StreamResponse:
        assert request.transport is not None
        shown.append(request.transport.get_extra_info("peercert")["serialNumber"])
        answer = await greet(request, body)
        answer.force_close()
        return answer

    own = tmp_path / "north.crt", tmp_path / "north.key"

    for file in own:
        file.write_bytes((sites / file.name).read_bytes())
        file.chmod(0o600)
    async with (
        site(keys.server_context(*files(sites, "south")), look) as (url, _, _),
        known_by(Identity(*own), url, key_of(sites)) as peers,
    ):
        await peers.by_name["south"].hello()
        keys.renew(own[0])
        peers.reload()
        await peers.by_name["south"].hello()
        own[0].write_text("nothing")
        peers.reload()
        await peers.by_name["south"].hello()

    first, second, third = shown
    assert (first != second, second == third) == (True, True)
    assert "certificate not reloaded" in caplog.text


@pytest.mark.parametrize(
    ("days_ago", "said"),
    [
        (9, "certificate has expired; its operator must renew it, or the clock here is ahead"),
        (-9, "certificate is not yet valid; the clock here is behind"),
    ],
)
def test_a_peer_whose_certificate_is_not_valid_now_is_refused_with_what_to_do(
    sites: Path, tmp_path: Path, days_ago: int, said: str
) -> None:
    moment = datetime.now(UTC) - timedelta(days=days_ago)
    keys.new("south", folder=tmp_path, days=3, now=moment)

    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "south.crt", tmp_path / "south.key")
        async with site(context) as (url, _, _), north(sites, url, key_of(tmp_path)) as peer:
            await peer.hello()

    with pytest.raises(PeerRefused, match=said):
        asyncio.run(main())


@looped
async def test_a_connection_is_not_used_after_the_end_of_the_certificate_that_it_was_made_with(
    sites: Path,
) -> None:
    moment = [datetime.now(UTC)]
    async with (
        site(keys.server_context(*files(sites, "south"))) as (url, bodies, _),
        north(sites, url, key_of(sites), now=lambda: moment[0]) as peer,
    ):
        await peer.hello()
        moment[0] += timedelta(days=keys.SITE_DAYS + 1)
        for _ in range(2):
            with pytest.raises(PeerRefused, match="site 'south' expired on"):
                await peer.hello()

    assert len(bodies) == 1


@pytest.mark.parametrize("is_up", [True, False])
@looped
async def test_a_site_whose_own_certificate_has_expired_says_so_of_peers_that_hang_up(
    sites: Path, is_up: bool
) -> None:
    async with site(keys.server_context(*files(sites, "south")), _gone) as (url, _, _):
        where = url if is_up else "https://127.0.0.1:1"
        async with north(sites, where, key_of(sites), fault=lambda: "own one expired") as peer:
            with pytest.raises(PeerError) as refused:
                await peer.hello()

    assert (str(refused.value) == "own one expired") == is_up


async def _plain(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(text="hello")


async def _cut(request: web.Request, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={"Content-Type": peer_messages.KIND, "Content-Length": "9"}
    )
    await response.prepare(request)
    await response.write(b"1234")
    assert request.transport is not None
    request.transport.abort()
    return response


async def _gone(request: web.Request, body: bytes) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _endless(request: web.Request, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": peer_messages.KIND})
    await response.prepare(request)
    while True:
        await response.write(bytes(1 << 20))


async def _elsewhere(request: web.Request, body: bytes) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect(f"https://127.0.0.1:{request.url.port}/covey/v1/again")


async def _replayed(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=peer_messages.write(HELLO), content_type=peer_messages.KIND)


async def _noise(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=b"\xc1" * 40, content_type=peer_messages.KIND)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (_plain, "unexpected content type"),
        (_cut, "no answer"),
        (_gone, "no answer"),
        (_endless, "more than"),
        (_elsewhere, "status 307"),
        (_replayed, "another request"),
        (_noise, "cannot be read"),
    ],
)
def test_whatever_a_site_answers_instead_is_a_peer_error(
    sites: Path, answer: Answer, sentence: str
) -> None:
    with pytest.raises(PeerError, match=sentence):
        asyncio.run(greeted(sites, answer))
