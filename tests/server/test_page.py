"""The live page: complete without scripts, escaped, and nothing in it comes from elsewhere."""

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from covey.bandit.preferences import CellPreference
from covey.node.earned import TrustState
from covey.node.series import Tally
from covey.node.status import ArmState, PeerState
from covey.server import page, tokens
from covey.server.drawings import Axis
from covey.server.events import SiteEvent
from covey.server.markup import bar, escaped, tag
from covey.server.metrics import DiskUse
from covey.server.summaries import best_own
from support.pages import MOMENT, NASTY, Reading, shown, state
from support.served import FEEDBACK, INFER, SITE, Client, infer, run

pytestmark = pytest.mark.beside_the_kernel


def test_the_page_shows_all_of_a_state_without_scripts() -> None:
    event = SiteEvent(MOMENT, "warning", "peer 'east': circuit open (timeout)")

    read = shown(state(), in_progress=3, waiting=2, disk=DiskUse(5 << 20, 7 << 30), events=[event])

    for told in (
        "Site north",
        "ready",
        "slot 12,345",
        "up for 1 d 2 h 3 min",
        "Error12.00 %",  # 12 of 100 labels
        "best own function: tree, 20.00 % of its rows",
        "Cost since the start5.5",
        "0.055 per decision; tree costs 0",
        "Decisions since the start100",
        "and 7 for peers",
        "Undelivered to peers4",
        "Requests in progress3",
        "2 wait",
        "5 MiB",
        "7 GiB free",
        "1.5 of 20",
        "resting",
        "explorerows that try an arm25",
        "2 alarms of the change detection, 1 since the start; the latest at slots 900, 40",
        "peer 'east': circuit open (timeout)",
        "2026-11-17 12:30:05 UTC",
    ):
        assert told in read.text, told
    assert read.tags.count("script") == 1  # which the page does without


def test_the_best_own_function_is_the_best_after_its_price() -> None:
    cheap, dear = (
        ArmState("a", "own", 0.0, 1, 0, 0, 10, 8),
        ArmState("b", "own", 0.3, 1, 0, 0, 10, 10),
    )
    peer = ArmState("c", "peer", 0.0, 1, 0, 0, 10, 10)

    assert best_own([dear, cheap, peer]) == cheap
    assert best_own([peer]) is None


def test_a_site_at_its_beginning_has_a_page() -> None:
    arms = [ArmState("tree", "own", None, 0, 0, 0.0, 0, 0)]

    read = shown(state(arms=arms, peers=[], phases={}, alarms_total=0, is_ready=False))

    assert "not ready: labels cannot be kept" in read.text
    assert "no own function has labels" in read.text
    assert "This site has no peers." in read.text
    assert "No event since the start." in read.text


def named(name: str) -> Reading:
    """The page of a site on which everything has one name, its contexts and their values, too."""
    axes = [Axis(0, name, [(0.0, name), (1.0, 5.0)]), Axis(1, name, [(0.5, name)])]
    cells = [CellPreference((0, 1), (0.0, 0.0), (0.5, 0.5), 3, name)]
    arms = [ArmState(name, kind, 0.1, 1, 0, 0.0, 1, 1) for kind in ("own", "peer", "context_only")]
    peers, trust = [PeerState(name, "open", 0, 0)], [TrustState(name, "pooled", 0, 0, name)]
    given = state(name, arms=arms, peers=peers, trust=trust, phases={name: 1})
    events = [SiteEvent(MOMENT, "info", name)]
    return shown(given, events=events, cells=cells, axes=axes, chosen=axes)


def test_no_name_becomes_markup() -> None:
    plain, read = named("x"), named(NASTY)

    seen = NASTY.replace("\u202e\x00", "\N{REPLACEMENT CHARACTER}" * 2)
    assert read.text.count(seen) >= 14
    assert sum("script" in (value or "") for *_, value in read.attributes) >= 2  # within them
    assert read.tags == plain.tags
    assert [one[:2] for one in read.attributes] == [one[:2] for one in plain.attributes]


def test_escaped_text_cannot_leave_an_attribute_or_an_element() -> None:
    assert tag("p", "\"<&'", title="\"<&'") == (
        '<p title="&quot;&lt;&amp;&#x27;">&quot;&lt;&amp;&#x27;</p>'
    )
    assert escaped(tag("b", "x")) == "<b>x</b>"
    assert tag("input", disabled=True, value=None, checked=False) == "<input disabled>"
    assert 'width="100.0"' in bar(7.0)
    assert 'width="0.0"' in bar(-1.0)


def test_nothing_on_the_page_is_inline_or_from_elsewhere() -> None:
    read = shown(state())

    inline = [one for one in read.attributes if one[1] == "style" or one[1].startswith("on")]
    assert inline == []
    assert "style" not in read.tags
    links = read.values("href") + read.values("src")
    assert all(re.fullmatch(r"/assets/[a-z]+\.[a-z]+", one) for one in links)
    assert len(links) == 3


def test_the_page_can_be_used_with_keys_and_a_screen_reader() -> None:
    read = shown(state())

    assert ("html", "lang", "en") in read.attributes
    ids = read.values("id")
    assert len(ids) == len(set(ids))
    assert set(read.values("aria-labelledby")) <= set(ids)
    assert read.tags.count("caption") == read.tags.count("table") == 4
    assert all(value in ("row", "col") for value in read.values("scope"))
    assert read.tags.count("main") == read.tags.count("h1") == 1
    regions = [one for one in read.attributes if one[:2] == ("div", "tabindex")]
    assert len(regions) == read.values("role").count("region") > 0


def test_the_files_of_the_page_are_small_and_name_no_other_site() -> None:
    folder = resources.files("covey.server") / "assets"
    files = {one.name: one.read_text() for one in folder.iterdir()}

    assert set(files) == set(page.ASSETS)
    assert sum(map(len, files.values())) < 200_000
    for text in files.values():
        assert "url(" not in text
        assert re.findall(r"https?://[^\"]+", text) in ([], ["http://www.w3.org/2000/svg"])


def test_an_event_has_the_sections_of_the_page_in_one_line() -> None:
    content = page.PageContent(state("a\nb"), MOMENT)

    sent = page.events(page.sections(content))

    assert (sent.status, sent.kind) == (200, "text/event-stream")
    retry, data, *rest = sent.body.decode().split("\n")
    assert (retry, rest) == ("retry: 2000", ["", ""])
    parts = json.loads(data.removeprefix("data: "))
    whole = page.page(content).body.decode()
    assert all(one in whole for one in parts.values())
    assert list(parts) == [
        *("top", "figures", "history", "network", "phases", "map", "arms", "peers", "events")
    ]


async def fetched(client: Client, path: str, **headers: str) -> tuple[int, Any, str]:
    async with client.session.get(client.root + path, headers=headers) as response:
        return response.status, response.headers, await response.text()


def test_a_site_serves_its_page_on_the_loopback(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("a"))
        await client.post(FEEDBACK, {"id": "a", "truth": 1})

        status, headers, text = await fetched(client, "/")

        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        directives = headers["Content-Security-Policy"].split("; ")
        assert directives[0] == "default-src 'none'"
        assert not any("unsafe" in one or "*" in one or ":" in one for one in directives)
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        read = Reading(text)
        assert "Site north" in read.text
        assert "Error100.00 %" in read.text
        assert "store read: start 1" in read.text
        for link in read.values("href") + read.values("src"):
            status, headers, _ = await fetched(client, link)
            assert status == 200
            assert headers["Content-Type"] == page.ASSETS[link.removeprefix("/assets/")]
        assert (await client.post("/", b""))[1]["code"] == "method"
        first, again = [(await fetched(client, "/events"))[2] for _ in range(2)]
        assert first == again  # browsers share it
        assert "Site <b>north</b>" in json.loads(first.partition("data: ")[2])["top"]

    run(tmp_path, story)


def over_time(text: str) -> dict[str, list[str]]:
    """The cells of the table of spans, by the name of the span."""
    part = text.partition('id="history"')[2].partition("</section>")[0]
    rows = re.findall(r"<tr><th[^>]*>([^<]*)</th>(.*?)</tr>", part.partition("<tbody>")[2])
    return {name: re.findall(r"<td[^>]*>([^<]*)</td>", cells) for name, cells in rows}


def test_error_and_cost_over_time_survive_a_restart(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        for id_, truth in (("a", 0), ("b", 1), ("c", 0)):
            assert (await client.post(INFER, infer(id_)))[0] == 200
            await client.post(FEEDBACK, {"id": id_, "truth": truth})

    async def later(client: Client) -> None:
        _, _, text = await fetched(client, "/")
        found = over_time(text)
        assert list(found) == ["last hour", "last day", "all"]
        assert [cells[:2] for cells in found.values()] == [["3", "3"]] * 3
        assert len({tuple(cells) for cells in found.values()}) == 1

    run(tmp_path, story)
    run(tmp_path, later)


def test_the_best_own_function_of_a_span_is_judged_by_its_labels_there() -> None:
    spans = {"last hour": {"tree": Tally(9, 8, 2, 0), "forest": Tally(4, 4, 3, 1_000_000)}}

    text = page.page(page.PageContent(state(), MOMENT, spans=spans)).body.decode()

    decisions, labels, error, cost, best, its_error, price = over_time(text)["last hour"]
    assert (decisions, labels, error) == ("13", "12", "58.33 %")
    assert (cost, best, its_error, price) == ("0.07692", "forest", "25.00 %", "0.25")


def test_a_function_with_a_name_of_markup_is_shown_as_text(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"

    async def story(client: Client) -> None:
        _, _, text = await fetched(client, "/")
        assert name in Reading(text).text
        assert "img" not in Reading(text).tags

    run(tmp_path, story, SITE.replace('"zero"', f'"{name}"'))


def test_with_tokens_the_page_needs_scope_read_and_its_files_need_none(tmp_path: Path) -> None:
    secrets = {
        scope: tokens.new(tmp_path / "tokens.json", scope, scopes=[scope])[0]
        for scope in ("read", "infer")
    }

    async def story(client: Client) -> None:
        found = [
            (await fetched(client, "/", Authorization=f"Bearer {secrets[scope]}"))[0]
            for scope in ("read", "infer")
        ]
        assert found == [200, 403]
        assert (await fetched(client, "/", Authorization="Bearer x"))[0] == 401
        for name in page.ASSETS:
            assert (await fetched(client, f"/assets/{name}"))[0] == 200
        assert (await fetched(client, "/assets/../page.py"))[0] == 401

    run(tmp_path, story, SITE.replace("dimension", 'tokens = "tokens.json"\ndimension'))
