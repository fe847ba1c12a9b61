"""The file of a site changes: `covey plan`, the next start, SIGHUP and POST /admin/reload."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from covey import cli
from covey.server import tokens
from covey.store.store import Store
from support import slow
from support.served import CONSTANTS, FEEDBACK, INFER, SITE, Client, infer, run, serving
from support.site_processes import Offices, table

RELOAD, STATE = "/admin/reload", "/v2/models/north/state"
BOTH = 'functions = ["zero", "one"]'
WITH_TOKENS = SITE.replace("dimension = 1", 'dimension = 1\ntokens = "tokens.json"')
THIRD = '\n[[function]]\nname = "two"\nkind = "constant"\nlabel = 2\n'
MORE = WITH_TOKENS.replace(BOTH, 'functions = ["zero", "two", "one"]') + THIRD
LESS = WITH_TOKENS.replace(BOTH, 'functions = ["zero"]')
PYTHON = (
    '\n[[function]]\nname = "zero"\nkind = "python"\nentry = "{entry}"\nversion = "{version}"\n'
)


def told(folder: Path, story: Callable[[Client], Awaitable[None]], text: str = WITH_TOKENS) -> None:
    """Serve a site to a client that may do everything."""
    scopes = ["infer", "feedback", "read", "metrics", "admin"]
    secret, _ = tokens.new(folder / "tokens.json", "operator", scopes=scopes)

    async def main() -> None:
        async with serving(folder, text) as client:
            await story(client.known_by(secret))

    asyncio.run(asyncio.wait_for(main(), 120))


async def labelled(client: Client, rows: int, start: int = 0) -> None:
    for k in range(start, start + rows):
        assert (await client.post(INFER, infer(f"r{k}")))[0] == 200
        assert (await client.post(FEEDBACK, {"id": f"r{k}", "truth": k % 2}))[0] == 202


async def arms_of(client: Client) -> dict[str, tuple[int, int]]:
    _, state = await client.get(STATE)
    return {arm["name"]: (arm["labels"], arm["right"]) for arm in state["arms"]}


class Logged(logging.Handler):
    """Waits for a line of the log."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage() and not self._found.done():
            self._found.get_loop().call_soon_threadsafe(self._found.set_result, record.getMessage())

    async def line_after(self, act: Callable[[], Any]) -> str:
        """Return the line with the text that is logged after `act`."""
        ours = logging.getLogger("covey")
        level = ours.level
        ours.addHandler(self)
        ours.setLevel(logging.INFO)
        try:
            act()
            return await self._found
        finally:
            ours.removeHandler(self)
            ours.setLevel(level)


def hangup() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


# -- plan ----------------------------------------------------------------------------------------


def planned(
    folder: Path, text: str, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, str]:
    (folder / "site.toml").write_text(text)
    code = cli.main(["plan", str(folder / "site.toml"), *more])
    return code, capsys.readouterr().out


def test_a_plan_says_what_a_file_changes_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(tmp_path, WITH_TOKENS, capsys)[0] == 0
    told(tmp_path, lambda client: labelled(client, 12))
    before = (tmp_path / "north.store").read_bytes()

    assert planned(tmp_path, WITH_TOKENS, capsys)[0] == 0
    assert planned(tmp_path, MORE, capsys) == (
        3,
        "adds 'two' version 2: it begins without labels\n",
    )
    code, text = planned(tmp_path, LESS, capsys)
    assert (code, text.splitlines()) == (
        4,
        ["retires 'one' version 1: its 5 labels stay readable in the store"],
    )
    code, text = planned(tmp_path, WITH_TOKENS.replace("slices = 4", "slices = 2"), capsys)
    assert code == 3
    assert "counts again: 12 of 12 labels" in text
    code, text = planned(tmp_path, WITH_TOKENS.replace("dimension = 1", "dimension = 2"), capsys)
    assert (code, text) == (2, "")
    assert (tmp_path / "north.store").read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "north.store",
        "site.toml",
        "tokens.json",
    ]


def test_a_plan_as_json_has_every_arm_that_the_store_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(tmp_path, lambda client: labelled(client, 12))
    code, text = planned(tmp_path, LESS, capsys, "--json")
    plan = json.loads(text)

    assert (code, plan["is_change"], plan["sets_aside"]) == (4, True, True)
    assert [(one["what"], one["name"], one["labels"]) for one in plan["steps"]] == [
        ("keep", "zero", 7),
        ("retire", "one", 5),
    ]


# -- while it serves -----------------------------------------------------------------------------


def test_a_reload_by_request_changes_the_arms_and_keeps_what_was_learnt(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await labelled(client, 12)
        await client.post(INFER, infer("late"))
        (tmp_path / "site.toml").write_text(MORE)
        status, plan = await client.post(RELOAD, b"")

        assert (status, [one["what"] for one in plan["steps"]]) == (200, ["keep", "add", "keep"])
        assert await arms_of(client) == {"zero": (7, 4), "two": (0, 0), "one": (5, 3)}
        assert (await client.post(FEEDBACK, {"id": "late", "truth": 0}))[0] == 202
        status, answer = await client.post(INFER, infer("next"))
        assert answer["parameters"]["arm"] == "two"  # which has no labels yet
        _, state = await client.get(STATE)
        assert (state["starts"], sum(state["phases"].values())) == (1, 14)
        assert await client.post(RELOAD, {}) == (200, {**plan, "steps": [], "labels": 0})

    told(tmp_path, story)
    assert Store(tmp_path / "north.store").check() == []


FIRST = WITH_TOKENS[: WITH_TOKENS.index("[limits]")]


@pytest.mark.parametrize(
    "text",
    [
        f"# the same\n{WITH_TOKENS}",
        WITH_TOKENS.replace(FIRST, "") + FIRST,
        WITH_TOKENS.replace("dimension = 1", "dimension = 1\ntimeout-s = 1\ninstance = 'record'"),
    ],
    ids=["a comment", "another order", "written defaults"],
)
def test_a_file_that_says_the_same_changes_nothing(tmp_path: Path, text: str) -> None:
    async def story(client: Client) -> None:
        await labelled(client, 2)
        (tmp_path / "site.toml").write_text(text)
        line = await Logged("site.toml").line_after(hangup)
        line = await Logged("site.toml").line_after(lambda: None) if "reloading" in line else line

        assert line == f"{tmp_path / 'site.toml'} has not changed"

    told(tmp_path, story)


def test_requests_in_progress_finish_with_the_old_arms_and_others_wait(tmp_path: Path) -> None:
    slow.ENTERED.clear()
    slow.RELEASED.clear()
    text = LESS.replace(CONSTANTS, PYTHON.format(entry="support.slow:answer", version=1))
    after = WITH_TOKENS.replace(BOTH, 'functions = ["one"]')

    async def story(client: Client) -> None:
        first = asyncio.create_task(client.post(INFER, infer("first")))
        await asyncio.to_thread(slow.ENTERED.wait, 60)
        (tmp_path / "site.toml").write_text(after)
        reloads: list[asyncio.Task[Any]] = []
        line = await Logged("are answered first").line_after(
            lambda: reloads.append(asyncio.create_task(client.post(RELOAD, b"")))
        )
        second = asyncio.create_task(client.post(INFER, infer("second")))
        assert line == "1 requests in progress are answered first"
        assert (await client.get(STATE))[1]["arms"][0]["name"] == "zero"
        slow.RELEASED.set()
        answers = [await one for one in (first, *reloads, second)]

        assert [status for status, _ in answers] == [200, 200, 200]
        assert answers[0][1]["parameters"]["arm"] == "zero"
        assert answers[2][1]["parameters"]["arm"] == "one"
        assert list(await arms_of(client)) == ["one"]
        for id_ in ("first", "second"):
            assert (await client.post(FEEDBACK, {"id": id_, "truth": 0}))[0] == 202

    told(tmp_path, story, text)


def test_prices_limits_and_peers_change_while_a_request_is_answered(tmp_path: Path) -> None:
    slow.ENTERED.clear()
    slow.RELEASED.clear()
    offices = Offices(tmp_path, ["north", "south", "west"])

    def text(price: float, *peers: str, limits: dict[str, Any], **south: Any) -> str:
        file = offices.file(
            "north",
            table("[policy]", {"preset": "cos", "slices": 1}),
            table("[limits]", limits),
            offices.peer("south", share="data", **south),
            *peers,
            learner={"functions": ["zero"], "peers": {"south": price}},
            labels={},
            features={"size": "FP64", "kind": "BYTES"},
            dimension=1,
        )
        return file + PYTHON.format(entry="support.slow:answer", version=1)

    more = table("[[peer]]", {"name": "west", "key": offices.key("west"), "may-ask": True})
    changed = text(
        0.25,
        more,
        limits={"json-kib": 1, "tickets": 50_000},
        budget={"per-day": 3.0},
        trust="earned",
    )

    async def story(client: Client) -> None:
        first = asyncio.create_task(client.post(INFER, infer("first")))
        await asyncio.to_thread(slow.ENTERED.wait, 60)
        (tmp_path / "site.toml").write_text(changed)
        await Logged("is applied, while requests are answered").line_after(hangup)
        _, state = await client.get(STATE)

        assert not first.done()
        assert [(arm["name"], arm["price"]) for arm in state["arms"]] == [
            ("zero", 0.0),
            ("south", 0.25),
        ]
        assert [(peer["name"], peer["budget"]) for peer in state["peers"]] == [
            ("south", 3.0),
            ("west", None),
        ]
        assert (await client.post(FEEDBACK, b"{" + b" " * 2_000))[0] == 413
        slow.RELEASED.set()
        assert (await first)[0] == 200
        assert (await client.post(FEEDBACK, {"id": "first", "truth": 0}))[0] == 202

    asyncio.run(served_to(tmp_path, story, text(0.0, limits={}, trust="earned")))


async def served_to(folder: Path, story: Callable[[Client], Awaitable[None]], text: str) -> None:
    async with asyncio.timeout(60), serving(folder, text, ca=folder / "north.crt") as client:
        await story(client)


def test_a_reload_says_how_many_tickets_the_store_keeps(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await labelled(client, 20)
        (tmp_path / "site.toml").write_text(
            WITH_TOKENS.replace("rows =", "tickets-kept = 4\nrows =")
        )
        assert (await client.post(RELOAD, b""))[0] == 200
        await labelled(client, 40, start=20)

    told(tmp_path, story)
    store = Store(tmp_path / "north.store")
    assert len(list(store.requests())) < 25  # of 60: those that wait for no label go
    assert store.check() == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[node]", "[node", "site.toml"),
        ("slices = 4", "slides = 4", "slides"),
        ('functions = ["zero", "one"]', 'functions = ["zero", "three"]', "three"),
        ('"127.0.0.1:0"', '"127.0.0.1:1"', "[node] address has changed, which needs a restart"),
        ("north.store", "other.store", "[node] store has changed, which needs a restart"),
        ("dimension = 1", "dimension = 2", "dimensions: 1 before, 2 now"),
        ("label = 0", "label = 0\ncarry = 2", "carry: expected float <= 1"),
    ],
)
def test_a_file_that_cannot_be_used_leaves_the_site_as_it_was(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    async def story(client: Client) -> None:
        await labelled(client, 12)
        before = await arms_of(client)
        (tmp_path / "site.toml").write_text(WITH_TOKENS.replace(old, new))
        status, problem = await client.post(RELOAD, b"")
        line = await Logged("the site is unchanged").line_after(hangup)

        assert (status, problem["code"]) == (409, "not_changed")
        assert said in problem["detail"]
        assert said in line
        assert await arms_of(client) == before
        await labelled(client, 4, start=12)
        (tmp_path / "site.toml").write_text(MORE)
        assert (await client.post(RELOAD, b""))[0] == 200

    told(tmp_path, story)
    assert Store(tmp_path / "north.store").check() == []


def test_a_reload_needs_a_token_for_it(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        secret, _ = tokens.new(tmp_path / "tokens.json", "camera", scopes=["infer"])
        assert (await client.known_by(secret).post(RELOAD, b""))[0] == 403
        assert (await client.post(RELOAD, {"file": "other.toml"}))[0] == 422
        assert (await client.get(RELOAD))[0] == 405

    told(tmp_path, story)

    async def without_tokens(client: Client) -> None:
        status, problem = await client.post(RELOAD, b"")
        assert (status, problem["code"]) == (403, "not_allowed")
        assert "SIGHUP" in problem["detail"]

    (tmp_path / "other").mkdir()
    run(tmp_path / "other", without_tokens)


def test_another_version_of_a_python_function_is_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    rules = tmp_path / "rules_of_arms.py"
    rules.write_text("def rule(instance):\n    return 0\n")

    def text(version: str, entry: str = "rules_of_arms:rule") -> str:
        return LESS.replace(CONSTANTS, PYTHON.format(entry=entry, version=version))

    async def story(client: Client) -> None:
        await labelled(client, 6)
        rules.write_text("def rule(instance):\n    return 1  # retrained\n")
        (tmp_path / "site.toml").write_text(text("2"))
        status, plan = await client.post(RELOAD, b"")
        assert (status, [one["what"] for one in plan["steps"]]) == (200, ["renew", "retire"])
        assert await arms_of(client) == {"zero": (0, 0)}
        assert (await client.post(INFER, infer("x")))[1]["outputs"][0]["data"] == [1]
        (tmp_path / "site.toml").write_text(text("1"))
        status, plan = await client.post(RELOAD, b"")
        assert (status, [one["what"] for one in plan["steps"]]) == (200, ["return", "retire"])
        assert await arms_of(client) == {"zero": (6, 3)}
        (tmp_path / "site.toml").write_text(text("3", "rules_of_arms:missing"))
        assert (await client.post(RELOAD, b""))[0] == 409
        assert (await client.post(INFER, infer("y")))[0] == 200

    told(tmp_path, story, text("1"))
