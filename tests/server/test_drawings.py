"""The drawings of the live page: who asks whom, and whom each region prefers."""

import re
from pathlib import Path
from typing import Any

import pytest

from covey.bandit.preferences import CellPreference
from covey.node.series import Tally
from covey.node.status import ArmState, PeerState, ServedState, State
from covey.server.drawings import (
    Axis,
    arm_classes,
    cells_map,
    error_line,
    legend,
    network,
    plain_axes,
)
from covey.server.peer_messages import LinkInfo
from covey.server.pulse import EVERY_S, SPAN_S, LastMinute, Pulse
from covey.server.summaries import links_of
from support.served import INFER, SITE, Client, infer, run

pytestmark = pytest.mark.beside_the_kernel

ARMS = [
    ArmState("tree", "own", 0.0, 0, 0, 0.0, 0, 0),
    ArmState("east", "peer", 0.1, 0, 0, 0.0, 0, 0),
    ArmState("east (context)", "context_only", 0.1, 0, 0, 0.0, 0, 0),
    ArmState("west", "peer", None, 0, 0, 0.0, 0, 0),
]
CALM = LastMinute(60.0, {}, {})


def state(*peers: PeerState) -> State:
    return State(
        name="north",
        is_ready=True,
        starts=1,
        uptime_s=1.0,
        slot=1,
        alarms=0,
        alarm_slot=0,
        phases={},
        arms=ARMS,
        peers=list(peers),
        open_tickets=0,
        cells=0,
        owed=0,
        for_peers=ServedState(0, 0, 0),
    )


def drawn_network(*peers: PeerState, minute: LastMinute = CALM, **others: list[LinkInfo]) -> str:
    return network("north", links_of(state(*peers), minute), arm_classes(ARMS), others)


def link(peer: str, *, asked: int = 0, asks: int = 0, state: Any = "open") -> LinkInfo:
    return LinkInfo(peer=peer, state=state, price=0.1, asked=asked, asks=asks, undelivered=0)


def elements(svg: str, name: str) -> list[dict[str, str]]:
    return [
        dict(re.findall(r'([\w-]+)="([^"]*)"', found))
        for found in re.findall(rf"<{name} ([^>]*)>", svg)
    ]


def test_a_peer_has_one_hue_and_own_functions_have_greys() -> None:
    assert arm_classes(ARMS) == {
        "tree": "own0",
        "east": "peer0",
        "east (context)": "peer0",
        "west": "peer1",
    }
    many = arm_classes(ArmState(str(k), "own", 0.0, 0, 0, 0.0, 0, 0) for k in range(9))
    assert set(many.values()) == {f"own{k}" for k in range(6)}


def test_arrows_are_who_asked_whom_in_the_last_minute() -> None:
    minute = LastMinute(60.0, {"tree": 9, "east": 3, "east (context)": 4}, {"west": 5})

    drawn = drawn_network(
        PeerState("east", "open", 0, 0), PeerState("west", "open", 0, 5), minute=minute
    )

    arrows = [one for one in elements(drawn, "line") if "marker-end" in one]
    assert len(arrows) == 2
    assert ">7<" in drawn
    assert ">5<" in drawn
    assert "east: open, asked 7 rows, asks 0; west: open, asked 0 rows, asks 5" in drawn
    assert "price 0.1" in drawn


def test_a_resting_peer_is_red_and_named_so() -> None:
    drawn = drawn_network(PeerState("east", "resting", 0, 0))

    assert [one["class"] for one in elements(drawn, "line")] == ["link resting idle"]
    assert "site peer0 resting" in drawn
    assert "price 0.1, resting" in drawn


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_all_peers_are_within_the_drawing(count: int) -> None:
    drawn = drawn_network(*(PeerState(str(k), "open", 0, 0) for k in range(count)))

    left, top, width, height = map(float, elements(drawn, "svg")[0]["viewBox"].split())
    circles = elements(drawn, "circle")
    assert len(circles) == count + 1
    for one in circles:
        x, y, r = (float(one[key]) for key in ("cx", "cy", "r"))
        assert left <= x - r < x + r <= left + width
        assert top <= y - r < y + r <= top + height


def test_labels_that_wait_for_a_peer_are_told_beside_it() -> None:
    assert "price 0.1, 1,200 labels wait" in drawn_network(PeerState("east", "open", 1_200, 0))


def test_peers_that_show_their_status_are_drawn_with_whom_they_ask() -> None:
    peers = [PeerState(name, "open", 0, 0) for name in ("east", "west")]
    east = [link("north", asked=9), link("west", asked=4, asks=6), link("far", asks=2)]
    west = [link("east", asked=5), link("north"), link("far", state="resting")]

    drawn = drawn_network(*peers, east=east, west=west)

    told = "east asks west: 4 rows; far asks east: 2 rows; west asks east: 5 rows; west asks far: 0"
    assert told in drawn  # and 6 is what east says of west, which says 5 itself
    assert ">6<" not in drawn
    assert [one["class"].split()[-1] for one in elements(drawn, "path") if "d" in one][1:] == [
        *("calm", "calm", "calm", "resting")
    ]
    assert len(elements(drawn, "circle")) == 4


# -- the map --------------------------------------------------------------------------------------


def test_the_map_has_the_units_of_the_contexts_on_its_axes() -> None:
    axes = [Axis(0, "bytes", [(0.0, 1.0), (1.0, 20_000.0)]), Axis(1, "day", [(0.5, "Monday")])]
    cells = [CellPreference((0, 1), (0.0, 0.5), (0.5, 1.0), 7, "east")]

    drawn = cells_map(cells, axes, arm_classes(ARMS))

    for told in (">bytes<", ">day<", ">20k<", ">Monday<", "<title>east, 7 arrivals</title>"):
        assert told in drawn
    (box, _) = elements(drawn, "rect")
    assert box["class"] == "cell peer0"
    assert (box["x"], box["y"], box["width"], box["height"]) == ("76.0", "8.0", "180.0", "180.0")


def test_cells_that_differ_elsewhere_only_show_the_arm_with_most_arrivals() -> None:
    cells = [
        CellPreference((0, 1), (0.0, 0.0), (0.5, 0.5), 7, "tree"),
        CellPreference((0, 1), (0.0, 0.5), (0.5, 1.0), 9, "east"),
        CellPreference((0, 1), (0.5, 0.5), (1.0, 1.0), 1, None),
        CellPreference((1,), (0.5,), (1.0,), 50, "tree"),  # of another space
    ]

    drawn = cells_map(cells, plain_axes(2)[:1], arm_classes(ARMS))

    assert re.findall("<title>([^<]*)", drawn) == ["east, 16 arrivals", "no label yet, 1 arrivals"]
    assert [one["class"] for one in elements(drawn, "rect")][:2] == ["cell peer0", "cell blank"]


def test_the_legend_names_arms_and_their_shares() -> None:
    cells = [
        CellPreference((0,), (0.0,), (0.5,), 30, "<b>"),
        CellPreference((0,), (0.5,), (1.0,), 10, None),
    ]

    told = legend(cells, {})

    assert "&lt;b&gt;, 75 % of arrivals" in told
    assert "no label yet, 25 % of arrivals" in told


def test_the_error_over_time_is_drawn_where_labels_came() -> None:
    points = [(0, Tally(4, 4, 2, 0)), (30, Tally(4, 0, 0, 0)), (60, Tally(1, 4, 3, 0))]

    drawn = error_line(points, (0.0, 120.0), "last hour")

    assert "error in the last hour, at most 50 %, now 25 %" in drawn
    assert elements(drawn, "polyline")[0]["points"] == "76.0,8.0 256.0,58.0"
    assert len(elements(drawn, "circle")) == 2
    assert "no labels" in error_line([], (0.0, 1.0), "last day")


# -- the last minute ------------------------------------------------------------------------------


def test_a_pulse_counts_the_last_minute_and_forgets_what_was_before() -> None:
    pulse = Pulse()
    first = pulse.note(LastMinute(0.0, {"a": 10}, {}))
    for k in range(1, 30):
        last = pulse.note(LastMinute(k * EVERY_S, {"a": 10 + k}, {"east": 2 * k}))

    assert first == LastMinute(0.0, {}, {})
    assert last.span_s == SPAN_S
    assert last.decisions == {"a": SPAN_S / EVERY_S}
    assert last.asked == {"east": 2 * SPAN_S / EVERY_S}


def test_many_looks_do_not_shorten_the_minute() -> None:
    pulse = Pulse()
    for k in range(100_000):
        last = pulse.note(LastMinute(k / 1_000, {"a": k}, {}))

    assert SPAN_S <= last.span_s <= SPAN_S + EVERY_S
    assert len(pulse._samples) < 40


# -- as served ------------------------------------------------------------------------------------


DATA = SITE.replace("dimension = 1\n", "").replace(
    "[policy]",
    '[data]\ncontext = [{ column = "size", scale = "linear", low = 0.0, high = 8.0 }, '
    '{ column = "kind", scale = "category", values = ["<a>", "b"] }]\n[policy]',
)


def test_the_viewer_chooses_the_contexts_of_the_map(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        async def shown(query: str) -> str:
            async with client.session.get(f"{client.root}/{query}") as response:
                assert response.status == 200
                return await response.text()

        assert "No row has come yet" in await shown("")
        inputs: list[dict[str, Any]] = infer()["inputs"][:2]
        inputs[1] = {**inputs[1], "data": ["<a>"]}
        assert (await client.post(INFER, infer("a", inputs=inputs)))[0] == 200
        text = await shown("")
        assert "arms preferred by size and kind" in text
        assert "&lt;a&gt;" in text
        assert "<a>" not in text
        assert "arms preferred by kind and size" in await shown("?x=1&y=0")
        assert 'arms preferred by kind"' in await shown("?x=1&y=1")
        for query in ("?x=7&y=-1", "?x=<script>", "?x", "?&&=;%ff", f"?x={'1' * 5_000}"):
            assert "arms preferred by" in await shown(query)

    run(tmp_path, story, DATA)
