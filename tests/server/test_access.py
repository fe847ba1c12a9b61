"""Access: tokens and their scopes, TLS, tickets of other clients."""

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from covey.node.functions import Limits
from covey.server import keys, tokens
from covey.server.client_api import RELOAD
from covey.server.connection import Caller, CertificateAuth, Listener, LoopbackOnly
from covey.server.http import Address, HttpProblem, HttpRequest, HttpResponse
from covey.store.store import Store
from support.coroutines import looped
from support.served import FEEDBACK, INFER, SITE, Client, infer, run, serving

WITH_TOKENS = SITE.replace("dimension", 'tokens = "tokens.json"\ndimension')
WITH_TLS = WITH_TOKENS.replace(
    "dimension",
    'tls = true\ncertificate = "north.crt"\nkey = "north.key"\ndimension',
)
LABEL = {"id": "a", "truth": 0}
Story = Callable[[Client, dict[str, str]], Awaitable[None]]
CLIENTS = {
    "camera": ["infer", "feedback"],
    "door": ["infer", "feedback"],
    "mute": ["infer"],
    "expert": ["feedback-any"],
    "dashboard": ["read", "metrics"],
}


def told(folder: Path, story: Story) -> None:
    secrets = {
        name: tokens.new(folder / "tokens.json", name, scopes=scopes)[0]
        for name, scopes in CLIENTS.items()
    }

    async def with_secrets(client: Client) -> None:
        await story(client, secrets)

    run(folder, with_secrets, WITH_TOKENS)


def test_without_a_token_nothing_but_health_is_answered(tmp_path: Path) -> None:
    async def story(client: Client, secrets: dict[str, str]) -> None:
        assert await client.get("/v2/health/live") == (200, {"live": True})
        assert await client.get("/v2/health/ready") == (200, {"ready": True})
        for one in (client, client.known_by(secrets["camera"][:-1] + "!"), client.known_by("")):
            for path in ("/v2", "/v2/models/north", "/v2/models/north/ready", "/nowhere"):
                status, problem = await one.get(path)
                assert (status, problem["code"]) == (401, "no_token")
            assert (await one.post(INFER, infer()))[0] == 401
            assert (await one.post(FEEDBACK, LABEL))[0] == 401

    told(tmp_path, story)
    assert Store(tmp_path / "north.store").size()["rows"] == 0


def test_a_token_opens_what_its_scopes_say(tmp_path: Path) -> None:
    async def story(client: Client, secrets: dict[str, str]) -> None:
        statuses = {
            name: [
                (await client.known_by(secrets[name]).get("/v2/models/north"))[0],
                (await client.known_by(secrets[name]).post(INFER, infer()))[0],
                (await client.known_by(secrets[name]).post(FEEDBACK, LABEL))[0],
            ]
            for name in CLIENTS
        }

        assert statuses == {
            "camera": [200, 200, 202],
            "door": [200, 200, 202],
            "mute": [200, 200, 403],
            "expert": [200, 403, 404],
            "dashboard": [200, 403, 403],
        }

    told(tmp_path, story)


def test_a_ticket_of_another_client_is_unknown_like_one_that_never_was(tmp_path: Path) -> None:
    async def story(client: Client, secrets: dict[str, str]) -> None:
        camera, door = client.known_by(secrets["camera"]), client.known_by(secrets["door"])
        await camera.post(INFER, infer("a"))

        foreign = await door.post(FEEDBACK, LABEL)
        never = await door.post(FEEDBACK, {"id": "b", "truth": 0})

        assert foreign[0] == never[0] == 404
        assert str(foreign[1]).replace("'a'", "'b'") == str(never[1])
        assert (await camera.post(FEEDBACK, LABEL))[0] == 202

    told(tmp_path, story)
    store = Store(tmp_path / "north.store")
    assert store.counters() == {("g4:1", "client/camera", "zero"): (1, 1)}


def test_a_client_that_labels_for_all_names_the_client(tmp_path: Path) -> None:
    def label(client: object) -> dict[str, object]:
        return {**LABEL, "parameters": {"client": client}}

    async def story(client: Client, secrets: dict[str, str]) -> None:
        await client.known_by(secrets["camera"]).post(INFER, infer("a"))
        expert, door = client.known_by(secrets["expert"]), client.known_by(secrets["door"])

        said = [
            (await door.post(FEEDBACK, label("camera")))[0],
            (await expert.post(FEEDBACK, LABEL))[0],
            (await expert.post(FEEDBACK, label("door")))[0],
            (await expert.post(FEEDBACK, label(7)))[0],
            (await expert.post(FEEDBACK, label("camera")))[0],
            (await door.post(FEEDBACK, label("door")))[0],
        ]

        assert said == [403, 404, 404, 422, 202, 404]
        hints = [
            '"parameters": {"client"'
            in (await one.post(FEEDBACK, {**LABEL, "id": "x"}))[1]["detail"]
            for one in (expert, door)
        ]
        assert hints == [True, False]  # a client that may not label for others gets no hint of them

    told(tmp_path, story)


def test_tokens_that_are_made_or_revoked_count_at_once(tmp_path: Path) -> None:
    async def story(client: Client, secrets: dict[str, str]) -> None:
        path = tmp_path / "tokens.json"
        late = tokens.new(path, "late", scopes=["infer"])[0]
        assert (await client.known_by(late).post(INFER, infer()))[0] == 200

        tokens.revoke(path, "late")
        assert (await client.known_by(late).post(INFER, infer()))[0] == 401

    told(tmp_path, story)


def test_a_broken_token_file_changes_nothing_and_a_missing_one_admits_no_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(client: Client, secrets: dict[str, str]) -> None:
        path, camera = tmp_path / "tokens.json", client.known_by(secrets["camera"])
        whole = path.read_bytes()

        async def status(content: bytes) -> int:
            path.write_bytes(content)
            os.kill(os.getpid(), signal.SIGHUP)
            return (await camera.post(INFER, infer()))[0]

        assert [await status(broken) for broken in (b"", whole[:-9], b"[]", b"\xff")] == [200] * 4
        assert caplog.text.count("the known tokens stay valid") >= 4
        path.unlink()
        assert (await camera.post(INFER, infer()))[0] == 401
        assert "every client is refused" in caplog.text
        assert await status(whole) == 200

    told(tmp_path, story)


@looped
async def test_clients_are_served_over_tls_and_a_new_certificate_is_taken_up(
    tmp_path: Path,
) -> None:
    keys.new("north", hosts=["127.0.0.1"], folder=tmp_path)
    secret = tokens.new(tmp_path / "tokens.json", "camera", scopes=["infer"])[0]

    async def shown(port: int) -> bytes:
        trust = ssl.create_default_context(cafile=tmp_path / "north.crt")
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return der

    async with serving(tmp_path, WITH_TLS, ca=tmp_path / "north.crt") as client:
        port = int(client.root.rpartition(":")[2])
        assert client.root.startswith("https://")
        assert (await client.known_by(secret).post(INFER, infer()))[0] == 200
        before = await shown(port)

        keys.renew(tmp_path / "north.crt", days=30)
        os.kill(os.getpid(), signal.SIGHUP)
        while await shown(port) == before:
            pass  # the signal comes when the loop turns

        assert (await client.known_by(secret).post(INFER, infer("b")))[0] == 200


@pytest.mark.parametrize(
    ("host", "is_let_in"),
    [
        (None, True),
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("127.0.0.1:8080", True),
        ("127.1.2.3", True),
        ("[::1]:8080", True),
        ("[::1]", True),
        ("", False),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8080", False),
        ("192.168.1.1:8080", False),
        ("localhost.evil.example", False),
    ],
)
def test_without_tokens_a_request_must_be_meant_for_this_machine(
    host: str | None, is_let_in: bool
) -> None:
    head = HttpRequest("GET", "/v2", {} if host is None else {"host": host})

    if is_let_in:
        assert LoopbackOnly().admit(head, None) == Caller("", frozenset(tokens.SCOPES))
    else:
        with pytest.raises(HttpProblem) as refused:
            LoopbackOnly().admit(head, None)
        assert (refused.value.status, refused.value.code) == (403, "not_allowed")


@pytest.mark.parametrize(
    ("origin", "is_let_in"),
    [
        (None, True),
        ("http://127.0.0.1:8080", True),
        ("http://127.0.0.1:9090", False),
        ("https://127.0.0.1:8080", False),
        ("http://localhost:8080", False),
        ("https://evil.example", False),
        ("null", False),
        ("", False),
    ],
)
def test_without_tokens_a_page_of_another_origin_is_refused(
    origin: str | None, is_let_in: bool
) -> None:
    named = {} if origin is None else {"origin": origin}

    for path in (INFER, RELOAD):
        head = HttpRequest("POST", path, {"host": "127.0.0.1:8080", **named})
        if is_let_in:
            LoopbackOnly().admit(head, None)
            continue
        with pytest.raises(HttpProblem, match="pages of another origin may not call") as refused:
            LoopbackOnly().admit(head, None)
        assert (refused.value.status, refused.value.code) == (403, "not_allowed")


class Echo:
    """Answers every call with the name of its caller."""

    async def handle(self, call: HttpRequest) -> HttpResponse:
        return HttpResponse(body=call.who.encode(), kind="text/plain")


@asynccontextmanager
async def called_by_south(
    folder: Path, allowed: dict[str, str], now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> AsyncIterator[Callable[[], Awaitable[tuple[int, str]]]]:
    """Yield a call that site south makes at north, always on the same connection."""
    listed = {name: keys.show(folder / f"{name}.crt").key for name in ("north", "south")}

    def files(name: str) -> tuple[Path, Path, dict[str, str]]:
        return folder / f"{name}.crt", folder / f"{name}.key", listed

    listener = Listener(
        Echo(),
        Address("127.0.0.1", 0),
        gate=CertificateAuth(allowed, now=now),
        limits=Limits(),
        tls=partial(keys.server_context, *files("north")),
    )
    url, context = await listener.open(), keys.client_context(*files("south"))
    connected: list[None] = []

    async def count(*_: object) -> None:
        connected.append(None)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    async with aiohttp.ClientSession(trace_configs=[trace]) as session:

        async def call() -> tuple[int, str]:
            async with session.post(url, ssl=context, server_hostname="north") as response:
                return response.status, await response.text()

        yield call
    await listener.close()
    assert len(connected) == 1


@pytest.fixture
def two_sites(tmp_path: Path) -> Path:
    for name in ("north", "south"):
        keys.new(name, folder=tmp_path)
    return tmp_path


def test_a_certificate_that_expires_is_refused_on_an_open_connection(two_sites: Path) -> None:
    info = keys.show(two_sites / "south.crt")
    assert info.valid_until is not None
    times = [info.valid_until, info.valid_until + timedelta(seconds=1)]

    async def main() -> list[int]:
        allowed, clock = {"south": info.key}, iter(times)
        async with called_by_south(two_sites, allowed, lambda: next(clock)) as call:
            return [(await call())[0] for _ in times]

    assert asyncio.run(main()) == [200, 403]
