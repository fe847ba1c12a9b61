"""What sites tell each other of themselves, for pages that show the whole network."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from covey.errors import PeerDeclined, PeerError
from covey.node.series import Tally
from covey.node.status import ArmState, PeerState
from covey.server import page, summaries
from covey.server.peer_messages import LinkInfo, SiteInfo
from covey.server.pulse import LastMinute
from covey.server.summaries import PeerStatuses, PeerView, site_info
from support import virtual
from support.pages import MOMENT, NASTY, Reading, shown, state

pytestmark = pytest.mark.beside_the_kernel

INFO = SiteInfo(
    is_ready=True,
    slot=7,
    uptime_s=3.0,
    decisions=10,
    cost=2.0,
    labels=50,
    right=40,
    hour_labels=4,
    hour_right=3,
    best="trees",
    best_labels=10,
    best_right=9,
    pending=2,
    alarms=1,
)


def test_a_site_tells_what_it_does_and_with_whom() -> None:
    minute = LastMinute(60.0, {"tree": 5, "east": 3}, {"west": 2})
    info = site_info(state(), minute, {"tree": Tally(9, 8, 6, 0), "east": Tally(4, 4, 4, 0)})

    assert (info.labels, info.right, info.hour_labels, info.hour_right) == (100, 88, 12, 10)
    assert (info.best, info.best_labels, info.best_right) == ("tree", 50, 40)
    assert (info.decisions, info.cost, info.pending, info.alarms) == (100, 5.5, 17, 2)
    east, west = info.links
    assert (east.peer, east.state, east.price, east.asked, east.undelivered) == (
        *("east", "resting", 0.1, 3, 4),
    )
    assert (west.peer, west.price, west.asks) == ("west", None, 2)


def test_peers_are_asked_while_people_look_and_no_longer() -> None:
    asked = 0

    async def tell() -> SiteInfo:
        nonlocal asked
        asked += 1
        return INFO

    async def story() -> None:
        statuses = PeerStatuses({"east": tell})
        assert statuses.look() == [PeerView("east")]
        await asyncio.sleep(1)
        (view,) = statuses.look()
        assert (view.info, view.why) == (INFO, "")
        await asyncio.sleep(10 * summaries.LOOKS_S)
        assert asked == 1 + summaries.LOOKS_S / summaries.EVERY_S  # and then nobody looked
        statuses.look()
        await asyncio.sleep(1)
        assert asked == 2 + summaries.LOOKS_S / summaries.EVERY_S
        statuses.stop()

    virtual.run(story())


@pytest.mark.parametrize(
    ("failure", "why", "is_kept"),
    [
        (PeerError("no answer"), "no answer", True),
        (OSError("gone"), "no answer", True),
        (PeerDeclined("status 403"), "does not show its status", False),
    ],
)
def test_a_peer_without_an_answer_keeps_its_last_status_with_the_reason(
    failure: Exception, why: str, is_kept: bool
) -> None:
    failures: list[Exception] = []

    async def tell() -> SiteInfo:
        if failures:
            raise failures[0]
        return INFO

    async def story() -> None:
        statuses = PeerStatuses({"east": tell})
        statuses.look()
        await asyncio.sleep(1)
        failures.append(failure)
        await asyncio.sleep(summaries.EVERY_S)
        (view,) = statuses.look()
        assert (view.info is INFO, view.why) == (is_kept, why)
        failures.clear()
        for _ in range(20):
            statuses.look()
            await asyncio.sleep(summaries.EVERY_S)
        assert statuses.look()[0].why == ""  # it came back
        statuses.stop()

    virtual.run(story())


def test_a_peer_that_never_answers_is_left_after_two_seconds() -> None:
    async def tell() -> SiteInfo:
        await asyncio.Event().wait()
        raise AssertionError

    async def story() -> None:
        statuses = PeerStatuses({"east": tell})
        statuses.look()
        await asyncio.sleep(summaries.TIMEOUT_S + 0.1)
        assert statuses.look()[0].why == "no answer"
        statuses.stop()

    virtual.run(story())


# -- the page -------------------------------------------------------------------------------------


def row(read: Reading, name: str) -> str:
    part = read.text.partition("Sites of the network")[2].partition("A peer is shown")[0]
    return part.partition(name)[2]


def test_the_page_shows_sites_that_show_their_status_beside_its_own() -> None:
    views = [
        PeerView("east", INFO, MOMENT, ""),
        PeerView("west", why="does not show its status"),
        PeerView("south", INFO, MOMENT - timedelta(seconds=90), "no answer"),
    ]

    read = shown(state(), peers=views)

    assert row(read, "north").startswith("ready12,345\N{EN DASH}12.00 %tree20.00 %0.05517")
    assert row(read, "east").startswith("ready725.00 %20.00 %trees10.00 %0.2201")
    assert row(read, "west").startswith("does not show its status")
    assert row(read, "south").startswith("no answer for 1 min725.00 %")


def test_a_site_whose_peers_have_no_url_has_no_table_of_sites() -> None:
    assert "Sites of the network" not in shown(state()).text


def test_no_name_that_a_peer_tells_becomes_markup() -> None:
    def read(name: str) -> Reading:
        link = LinkInfo(peer=name, state="open", price=0.1, asked=3, asks=3, undelivered=1)
        fields: dict[str, Any] = {key: getattr(INFO, key) for key in INFO.__struct_fields__}
        told = SiteInfo(**fields | {"best": name, "links": [link]})
        arms = [ArmState("east", "peer", 0.1, 1, 0, 0.0, 1, 1)]
        given = state(arms=arms, peers=[PeerState("east", "open", 0, 0)])
        return shown(given, peers=[PeerView("east", told, MOMENT, "")])

    plain, nasty = read("x"), read(NASTY)

    assert nasty.tags == plain.tags
    assert [one[:2] for one in nasty.attributes] == [one[:2] for one in plain.attributes]
    assert "script" in nasty.text


def test_sections_of_a_network_are_those_of_a_site_and_one_more() -> None:
    content = page.PageContent(state(), MOMENT, peers=[PeerView("east")])

    assert set(page.sections(content)) - set(page.sections(page.PageContent(state(), MOMENT))) == {
        "sites"
    }
