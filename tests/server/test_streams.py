"""Event streams: made once for all, only what changes, and ended with the session or the site."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from covey.server import keys, page, streams, tokens
from covey.server.http import HttpRequest, HttpResponse, Reader
from covey.server.markup import Markup
from covey.server.streams import MOST_STREAMS, EventStreams
from support import virtual
from support.listening import GET, Port, told
from support.served import SITE, Client, run

pytestmark = pytest.mark.beside_the_kernel

CALL = HttpRequest("GET", "/events", {})
ACCEPT = {"Accept": page.STREAM_KIND}


class Screen:
    """A reader that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.is_open = self.is_reading = True

    def push(self, data: bytes) -> bool:
        if self.is_reading:
            self.got.append(data)
        return self.is_reading

    def finish(self) -> None:
        self.is_open = False

    def parts(self) -> list[dict[str, str]]:
        return [json.loads(one.removeprefix(b"data: ")) for one in self.got]


class Counting:
    """Makes sections of which one counts how often it was made."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, query: str) -> dict[str, Markup]:
        self.made.append(query)
        return {"same": Markup("<p>"), "count": Markup(str(len(self.made)))}


async def events_come(count: int = 1) -> None:
    await asyncio.sleep(count * streams.EVERY_S + 0.001)


def test_readers_of_one_view_share_what_is_made_and_get_what_changed() -> None:
    async def story() -> None:
        found, make, screens = EventStreams(), Counting(), [Screen() for _ in range(3)]
        found.use(make, lambda call: True)
        assert found.latest("") == {"same": "<p>", "count": "1"}
        leave = [found.follow(CALL, "", one) for one in screens]
        await events_come(2)
        assert make.made == [""] * 3
        assert all(one.parts() == [{"count": "2"}, {"count": "3"}] for one in screens)
        for one in leave:
            one()
        await events_come(3)
        assert make.made == [""] * 3  # nobody looks

    virtual.run(story())


def test_a_reader_that_has_missed_an_event_gets_all_sections() -> None:
    async def story() -> None:
        found, slow = EventStreams(), Screen()
        found.use(Counting(), lambda call: True)
        found.follow(CALL, "", slow)
        slow.is_reading = False
        await events_come(2)
        slow.is_reading = True
        await events_come(2)
        assert slow.parts() == [{"same": "<p>", "count": "4"}, {"count": "5"}]

    virtual.run(story())


def test_a_stream_ends_when_its_request_may_no_longer_read() -> None:
    async def story() -> None:
        found, allowed = EventStreams(), {"eve"}
        found.use(Counting(), lambda call: call.who in allowed)
        screens = {name: Screen() for name in ("eve", "bob")}
        for name, one in screens.items():
            found.follow(HttpRequest("GET", "/events", {}, who=name), "", one)
        await events_come()
        assert screens["bob"].got == [page.ENDED]
        assert [one.is_open for one in screens.values()] == [True, False]
        assert len(screens["eve"].got) == 1

    virtual.run(story())


def test_sections_that_cannot_be_made_do_not_end_the_streams() -> None:
    async def story() -> None:
        found, make, screen = EventStreams(), Counting(), Screen()

        def fails_once(query: str) -> dict[str, Markup]:
            parts = make(query)
            if len(make.made) == 2:
                raise ValueError
            return parts

        found.use(fails_once, lambda call: True)
        found.follow(CALL, "", screen)
        await events_come(2)
        assert screen.parts() == [{"count": "3"}]

    virtual.run(story())


# -- connections ----------------------------------------------------------------------------------


class Feed:
    """A handler whose responses go on; `readers` are those that have not left."""

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self.has_changed = asyncio.Event()

    async def handle(self, call: HttpRequest) -> HttpResponse:
        return HttpResponse(200, b"first", "text/event-stream", follow=self.follow)

    def follow(self, reader: Reader) -> Callable[[], None]:
        def leave() -> None:
            self.readers.remove(reader)
            self.has_changed.set()

        self.readers.append(reader)
        return leave

    async def left(self) -> None:
        await self.has_changed.wait()
        assert self.readers == []


def test_what_follows_a_response_arrives_until_the_site_ends_it() -> None:
    async def story(port: Port) -> None:
        feed: Any = Feed()
        port.echo.handle = feed.handle  # type: ignore[method-assign]
        reader, writer = await port.open(GET)
        head, _, rest = (await reader.readuntil(b"first")).partition(b"\r\n\r\n")
        assert b"Content-Length" not in head
        assert b"Connection: close" in head
        assert rest == b"first"
        writer.write(GET)  # which nothing answers
        assert feed.readers[0].push(b"second")
        assert await reader.readexactly(6) == b"second"
        feed.readers[0].finish()
        assert await reader.read() == b""
        assert feed.readers == []
        writer.close()

    told(story)


def test_a_reader_that_leaves_or_does_not_read_is_forgotten() -> None:
    async def story(port: Port) -> None:
        feed: Any = Feed()
        port.echo.handle = feed.handle  # type: ignore[method-assign]
        reader, writer = await port.open(GET)
        await reader.readuntil(b"first")
        writer.close()
        await feed.left()
        feed.has_changed.clear()
        reader, writer = await port.open(GET)
        await reader.readuntil(b"first")
        while feed.readers:  # for the time within which an answer must be taken
            feed.readers[0].push(bytes(1 << 20))
            await asyncio.sleep(0)
        writer.close()

    told(story, answer_s=0.2)


def test_what_follows_a_response_is_encrypted_and_ends_with_a_clean_close(tmp_path: Path) -> None:
    keys.new_authority(tmp_path / "office")
    keys.new_site("north", hosts=["127.0.0.1"], authority=tmp_path / "office", folder=tmp_path)
    authority = tmp_path / "office" / "ca.crt"
    trust = ssl.create_default_context(cafile=authority)

    async def story(port: Port) -> None:
        feed: Any = Feed()
        port.echo.handle = feed.handle  # type: ignore[method-assign]
        for is_left in (True, False):
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=trust)
            writer.write(GET)
            await reader.readuntil(b"first")
            assert feed.readers[0].push(b"second")
            assert await reader.readexactly(6) == b"second"
            if is_left:
                writer.close()
                await feed.left()
            else:
                feed.readers[0].finish()
                assert await reader.read() == b""
                writer.close()

    files = (tmp_path / "north.crt", tmp_path / "north.key", authority)
    told(story, tls=lambda: keys.open_context(*files))


def test_a_head_alone_is_followed_by_nothing() -> None:
    async def story(port: Port) -> None:
        feed: Any = Feed()
        port.echo.handle = feed.handle  # type: ignore[method-assign]
        answer = await port.answers(GET.replace(b"GET", b"HEAD"))
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"\r\n\r\n")
        assert feed.readers == []

    told(story)


# -- a served site --------------------------------------------------------------------------------


async def lines_of(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    async for line in response.content:
        if line.strip():
            yield line.decode().strip()


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "EVERY_S", 0.02)


@pytest.mark.usefixtures("_often")
def test_a_site_sends_events_to_those_that_understand_them(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        async with client.session.get(client.root + "/events") as one:
            assert len([line async for line in lines_of(one)]) == 2  # retry, and one event
        async with client.session.get(client.root + "/events", headers=ACCEPT) as response:
            assert response.headers["Content-Type"] == page.STREAM_KIND
            assert response.headers["Cache-Control"] == "no-store"
            lines = lines_of(response)
            assert await anext(lines) == "retry: 2000"
            whole = json.loads((await anext(lines)).removeprefix("data: "))
            assert "Site <b>north</b>" in whole["top"]
            later = [json.loads((await anext(lines)).removeprefix("data: ")) for _ in range(50)]
            assert all(one.keys() < whole.keys() for one in later)

    run(tmp_path, story)


@pytest.mark.usefixtures("_often")
def test_a_revoked_token_ends_its_stream(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    secret, _ = tokens.new(file, "eve", scopes=["read"])
    headers = ACCEPT | {"Authorization": f"Bearer {secret}"}

    async def story(client: Client) -> None:
        async with client.session.get(client.root + "/events", headers=headers) as response:
            lines = lines_of(response)
            for _ in range(3):
                await anext(lines)
            tokens.revoke(file, "eve")
            assert [line async for line in lines][-2:] == ["event: ended", "data: log in again"]

    run(tmp_path, story, SITE.replace("dimension", 'tokens = "tokens.json"\ndimension'))


def test_beyond_the_limit_a_stream_has_one_event(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        held = [
            await client.session.get(client.root + "/events", headers=ACCEPT)
            for _ in range(MOST_STREAMS)
        ]
        async with client.session.get(client.root + "/events", headers=ACCEPT) as one:
            assert len([line async for line in lines_of(one)]) == 2
        for response in held:
            response.close()

    run(tmp_path, story)


@pytest.mark.parametrize(
    "query",
    ["x=<script>&y=1", "x=%00&x=%ff", "&" * 5_000, "x=99999999999999999999", "%", "x=1;y=0"],
)
def test_no_query_breaks_a_stream_or_gets_into_it(tmp_path: Path, query: str) -> None:
    async def story(client: Client) -> None:
        url = URL(f"{client.root}/events?{query}", encoded=True)
        async with client.session.get(url, headers=ACCEPT) as response:
            assert response.status == 200
            lines = lines_of(response)
            await anext(lines)
            parts = json.loads((await anext(lines)).removeprefix("data: "))
            assert "<script" not in "".join(parts.values())

    run(tmp_path, story)
