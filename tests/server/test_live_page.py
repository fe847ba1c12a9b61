"""The live page as a site serves it: its files, and the state that it polls."""

import logging
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from covey.server import tokens
from covey.server.client_api import FILES
from support.served import FEEDBACK, INFER, SITE, Client, infer, run, served

STATE = "/v2/models/north/state"


async def send(client: Client, *rows: tuple[str, int]) -> None:
    for id_, truth in rows:
        assert (await client.post(INFER, infer(id_)))[0] == 200
        assert (await client.post(FEEDBACK, {"id": id_, "truth": truth}))[0] == 202


@served()
async def test_the_map_is_made_once_for_all_requests_and_each_gets_no_more_than_it_asks(
    client: Client,
) -> None:
    for number, place in enumerate((0.1, 0.1, 0.9)):
        *features, context = infer()["inputs"]
        inputs = [*features, {**context, "data": [[place]]}]
        await client.post(INFER, infer(f"r{number}", inputs=inputs))
    assert (await client.get(STATE))[1]["map"] is None
    whole = (await client.get(f"{STATE}?cells=400"))[1]["map"]
    await client.post(INFER, infer("later"))
    first = (await client.get(f"{STATE}?cells=1"))[1]["map"]

    ticks = [[quarter / 4, quarter / 4] for quarter in range(5)]
    assert whole["axes"] == [{"name": "context 1", "ticks": ticks}]
    assert [cell["arrivals"] for cell in whole["cells"]] == [2, 1]
    assert first["cells"] == whole["cells"][:1]
    assert (whole["cells"][1]["low"], whole["cells"][1]["high"]) == ([0.75], [1.0])


@pytest.mark.parametrize(
    "query", ["cells=401", "cells=-1", "cells=many", "cells=", "x=1", "%ff=;&"]
)
@served()
async def test_a_query_that_makes_no_sense_is_422_with_what_may_be_asked(
    client: Client, query: str
) -> None:
    status, problem = await client.get(f"{STATE}?{query}")
    assert (status, problem["code"]) == (422, "invalid")
    assert "cells, from 0 to 400" in problem["detail"]


def test_recent_minutes_and_hours_survive_a_restart(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await client.get(STATE)  # what is counted before the first look is no news
        await send(client, ("a", 0), ("b", 1), ("c", 0))

    async def later(client: Client) -> None:
        _, state = await client.get(STATE)
        for points in (state["minutes"], state["hours"]):
            sums = [sum(point[key] for point in points) for key in ("decisions", "labels", "right")]
            assert sums == [3, 3, state["right"]]
            assert all(
                state["at"] - 86_400 - 3_600 < point["at"] <= state["at"] for point in points
            )
        assert state["labels"] == 3

    run(tmp_path, story)
    run(tmp_path, later)


@served()
async def test_events_of_the_log_are_in_the_state_the_latest_first(client: Client) -> None:
    logging.getLogger("covey.server").warning("peer %r: circuit open", "east")
    _, state = await client.get(STATE)
    first, *before = state["events"]
    assert (first["level"], first["text"]) == ("warning", "peer 'east': circuit open")
    assert before[-1]["at"] <= first["at"] <= state["at"]


# -- its files ------------------------------------------------------------------------------------


async def fetched(client: Client, path: str, **headers: str) -> tuple[int, Any, str]:
    async with client.session.get(client.root + path, headers=headers) as response:
        return response.status, response.headers, await response.text()


@pytest.mark.parametrize("path", FILES)
@served()
async def test_a_file_of_the_page_is_static_and_allows_nothing_from_elsewhere(
    client: Client, path: str
) -> None:
    status, headers, text = await fetched(client, path)
    assert (status, headers["Content-Type"]) == (200, FILES[path][1])
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = dict(
        part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";")
    )
    assert policy.pop("default-src") == "'none'"
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert set(policy.values()) == {"'self'", "'none'"}
    assert "Set-Cookie" not in headers
    assert re.findall(r"https?://[\w.]+", text) in ([], ["http://www.w3.org"])
    again = await fetched(client, f"{path}?x=<b>", Cookie="a=b", Authorization="Bearer x")
    assert again[2] == text


def test_nothing_of_the_page_is_inline_or_makes_markup_of_text() -> None:
    folder = resources.files("covey.server").joinpath("assets")
    page, script = (folder.joinpath(name).read_text() for name in ("page.html", "page.js"))

    assert re.findall(
        r"<script(?! src=\"/assets/page.js\" defer></script>)|\son\w+=|style", page
    ) == [
        "style"  # of the style sheet
    ]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|DOMParser|eval|Function\(", script)
    used = set(re.findall(r'(?:find|put|tile|rows|draw|chart|widthOf)\("([\w-]+)"', script))
    assert used - set(re.findall(r' id="([\w-]+)"', page)) == set()
    assert len(used) > 25


def test_with_tokens_the_files_are_open_and_the_state_needs_scope_read(tmp_path: Path) -> None:
    secrets = {
        scope: tokens.new(tmp_path / "tokens.json", scope, scopes=[scope])[0]
        for scope in ("read", "infer")
    }

    async def story(client: Client) -> None:
        assert [(await fetched(client, path))[0] for path in FILES] == [200] * len(FILES)
        assert (await client.get(STATE))[0] == 401
        assert (await client.get(f"{STATE}?token={secrets['read']}"))[0] == 401
        assert (await client.get(STATE, Cookie=f"token={secrets['read']}"))[0] == 401
        assert (await client.known_by(secrets["infer"]).get(STATE))[0] == 403
        assert (await client.known_by(secrets["read"]).get(STATE))[0] == 200

    run(tmp_path, story, SITE.replace("dimension", 'tokens = "tokens.json"\ndimension'))
