"""Log-ins: a cookie stands for a token with scope read, for the page only, and for hours only."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from covey.server import tokens
from covey.server.sessions import LASTS, MOST_SESSIONS, Sessions
from support.served import INFER, SITE, Client, infer, run

pytestmark = pytest.mark.beside_the_kernel

WITH_TOKENS = SITE.replace("dimension", 'tokens = "tokens.json"\ndimension')
START = datetime(2026, 11, 17, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def token(
    name: str = "eve", *, hours: int | None = None, scopes: tuple[str, ...] = ("read",)
) -> Any:
    ends = None if hours is None else START + timedelta(hours=hours)
    return tokens.Token(name=name, scopes=scopes, created=START, expires=ends, sha256=name * 8)


def cookie(header: str) -> str:
    """What a browser sends back for a Set-Cookie header."""
    return header.partition(";")[0]


def test_a_session_lasts_twelve_hours_and_no_longer() -> None:
    clock, one = Clock(), token()
    sessions = Sessions("north", clock)
    given = sessions.begin(one, None)

    assert timedelta(hours=12) == LASTS
    assert "Max-Age=43200; Path=/; Secure; HttpOnly; SameSite=Strict" in given
    assert given.startswith("__Host-")
    clock.now += LASTS - timedelta(seconds=1)
    assert sessions.find(cookie(given), [one]) == one
    clock.now += timedelta(seconds=1)
    assert sessions.find(cookie(given), [one]) is None


def test_a_session_ends_with_its_token() -> None:
    clock, short, other = Clock(), token(hours=2), token("other")
    sessions = Sessions("north", clock)
    given = sessions.begin(short, None)

    assert "Max-Age=7200;" in given
    assert sessions.find(cookie(given), [other]) is None  # revoked
    assert sessions.find(cookie(given), [token(scopes=("infer",))]) is None  # of fewer scopes
    clock.now += timedelta(hours=2)
    assert sessions.find(cookie(given), [short]) is None  # expired


def test_a_cookie_that_is_none_of_the_site_finds_nothing() -> None:
    sessions, one = Sessions("north"), token()
    given = cookie(sessions.begin(one, None))
    name, _, id_ = given.partition("=")

    assert sessions.find(f"a=b; {given}; c=d", [one]) == one
    for wrong in (None, "", name, f"{name}=", f"{name}={id_}x", f"{given}; {name}=x", f"x={id_}"):
        assert sessions.find(wrong, [one]) is None
    assert sessions.find(cookie(Sessions("south").begin(one, None)), [one]) is None


def test_a_token_has_few_sessions_and_the_oldest_ends() -> None:
    clock, one, other = Clock(), token(), token("other")
    sessions = Sessions("north", clock)
    first, kept = cookie(sessions.begin(one, None)), cookie(sessions.begin(other, None))
    for _ in range(MOST_SESSIONS):
        last = cookie(sessions.begin(one, None))

    assert sessions.find(first, [one, other]) is None
    assert sessions.find(kept, [one, other]) == other
    assert sessions.find(last, [one, other]) == one
    assert len(sessions) == MOST_SESSIONS + 1
    clock.now += LASTS
    sessions.begin(one, None)
    assert len(sessions) == 1


# -- over HTTP ------------------------------------------------------------------------------------


class Answer(NamedTuple):
    status: int
    headers: Any
    text: str


class Browser:
    """What a browser does: it sends the Origin of its forms, and the cookie that it was given."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.cookie = ""

    async def get(self, path: str, **headers: str) -> Answer:
        return await self._send("GET", path, headers)

    async def log_in(self, secret: str, **headers: str) -> Answer:
        sent = {"Origin": self._client.root, **headers}
        return await self._send("POST", "/session", sent, {"token": secret})

    async def log_out(self, **headers: str) -> Answer:
        return await self._send("POST", "/logout", {"Origin": self._client.root, **headers}, {})

    async def _send(self, method: str, path: str, headers: Any, form: Any = None) -> Answer:
        url = self._client.root + path
        mine = {"Cookie": self.cookie, **headers} if self.cookie else headers
        mine = {name: value for name, value in mine.items() if value}
        jar = aiohttp.DummyCookieJar()
        async with (
            aiohttp.ClientSession(cookie_jar=jar) as session,
            session.request(method, url, data=form, headers=mine, allow_redirects=False) as told,
        ):
            answer = Answer(told.status, told.headers, await told.text())
        if "Set-Cookie" in answer.headers:
            self.cookie = cookie(answer.headers["Set-Cookie"])
        return answer


Story = Callable[[Client, Browser, dict[str, str]], Awaitable[None]]


def told(folder: Path, story: Story) -> None:
    secrets = {
        name: tokens.new(folder / "tokens.json", name, scopes=scopes)[0]
        for name, scopes in {"eve": ["read", "infer"], "camera": ["infer"]}.items()
    }

    async def with_browser(client: Client) -> None:
        await story(client, Browser(client), secrets)

    run(folder, with_browser, WITH_TOKENS)


def test_a_person_logs_in_sees_the_page_and_logs_out(tmp_path: Path) -> None:
    async def story(client: Client, browser: Browser, secrets: dict[str, str]) -> None:
        first = await browser.get("/")
        assert (first.status, first.headers["Location"]) == (303, "/login")
        form = await browser.get("/login")
        assert form.status == 200
        assert 'action="/session"' in form.text
        assert "Set-Cookie" not in form.headers
        done = await browser.log_in(secrets["eve"])
        assert (done.status, done.headers["Location"]) == (303, "/")
        seen = await browser.get("/")
        assert seen.status == 200
        assert "Log out" in seen.text
        assert secrets["eve"] not in browser.cookie + seen.text
        before = browser.cookie
        gone = await browser.log_out()
        assert (gone.status, gone.headers["Location"]) == (303, "/login")
        assert "Max-Age=0" in gone.headers["Set-Cookie"]
        assert (await browser.get("/", Cookie=before)).status == 303

    told(tmp_path, story)


def test_a_session_opens_the_page_and_nothing_else(tmp_path: Path) -> None:
    async def story(client: Client, browser: Browser, secrets: dict[str, str]) -> None:
        await browser.log_in(secrets["eve"])

        for path in ("/v2/models/north/state", "/metrics", "/v2", "/nowhere"):
            assert (await browser.get(path)).status == 401
        assert (await client.post(INFER, infer(), Cookie=browser.cookie))[0] == 401
        assert (await client.post("/admin/reload", b"", Cookie=browser.cookie))[0] == 401

    told(tmp_path, story)


def test_a_wrong_token_is_told_and_sets_no_cookie(tmp_path: Path) -> None:
    async def story(client: Client, browser: Browser, secrets: dict[str, str]) -> None:
        for secret, status, why in (
            (secrets["camera"], 403, "needs scope"),
            (secrets["eve"][:-4] + "AAAA", 401, "unknown or was revoked"),
            ("<script>", 401, "does not hold a token"),
        ):
            answer = await browser.log_in(secret)
            assert (answer.status, browser.cookie) == (status, "")
            assert why in answer.text
            assert "<script" not in answer.text

    told(tmp_path, story)


def test_a_revoked_token_ends_its_session_at_once(tmp_path: Path) -> None:
    async def story(client: Client, browser: Browser, secrets: dict[str, str]) -> None:
        await browser.log_in(secrets["eve"])
        assert (await browser.get("/")).status == 200
        assert (await browser.get("/events")).status == 200
        tokens.revoke(tmp_path / "tokens.json", "eve")
        assert (await browser.get("/")).status == 303
        assert (await browser.get("/events")).status == 401

    told(tmp_path, story)


def test_a_form_of_another_site_neither_logs_in_nor_out(tmp_path: Path) -> None:
    async def story(client: Client, browser: Browser, secrets: dict[str, str]) -> None:
        for origin in ("https://evil.example", "null", ""):
            assert (await browser.log_in(secrets["eve"], Origin=origin)).status == 403
        assert browser.cookie == ""
        await browser.log_in(secrets["eve"])
        for origin in ("https://evil.example", "null", ""):
            assert (await browser.log_out(Origin=origin)).status == 403
            assert (await browser.get("/", Origin=origin)).status == (403 if origin else 200)

    told(tmp_path, story)


def test_a_cookie_that_was_known_before_is_never_a_session(tmp_path: Path) -> None:
    async def story(client: Client, browser: Browser, secrets: dict[str, str]) -> None:
        await browser.log_in(secrets["eve"])
        name, _, first = browser.cookie.partition("=")
        browser.cookie = planted = f"{name}=planted"
        await browser.log_in(secrets["eve"])
        second = browser.cookie
        assert (await browser.get("/", Cookie=planted)).status == 303
        assert first not in second
        await browser.log_in(secrets["eve"])
        assert (await browser.get("/", Cookie=second)).status == 303  # replaced
        assert (await browser.get("/")).status == 200

    told(tmp_path, story)


def test_no_token_is_taken_from_a_url_or_from_json(tmp_path: Path) -> None:
    async def story(client: Client, browser: Browser, secrets: dict[str, str]) -> None:
        for path in ("/?token=", "/session?token=", "/login?token="):
            answer = await browser.get(path + secrets["eve"])
            assert answer.status in (200, 303, 405)
            assert "Set-Cookie" not in answer.headers
            assert secrets["eve"] not in answer.text + answer.headers.get("Location", "")
        sent = {"Origin": client.root}
        assert (await client.post("/session", {"token": secrets["eve"]}, **sent))[0] == 415
        sent["Content-Type"] = "application/x-www-form-urlencoded"
        for body in (b"", b"token", b"a=b", b"token=a&token=b", b"token=%ff&x=y", b"\xff=\xff"):
            assert (await client.post("/session", body, **sent))[0] == 422

    told(tmp_path, story)


def test_without_tokens_nobody_has_to_log_in(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        browser = Browser(client)

        assert (await browser.get("/")).status == 200
        assert "Log out" not in (await browser.get("/")).text
        answer = await browser.get("/login")
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        assert (await browser.log_in("x")).status == 403
        assert (await browser.log_out()).status == 403

    run(tmp_path, story)
