"""Peers get what they may and what they asked for; their mistakes get a sentence, and no 5xx."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from covey.errors import LimitError, PeerError, StoreError
from covey.node.functions import Limits
from covey.server import peer_messages
from covey.server.http import HttpRequest, HttpResponse
from covey.server.peer_api import PeerApi
from covey.server.peer_client import PeerClient
from covey.server.peer_messages import MOST_ROWS, ROOT, VERSION, VERSIONS_HEADER
from covey.site.requests import AskRow
from support import virtual
from support.message_links import HEADERS, neighbour, respond
from support.virtual import World

CALLS = ("ask", "report", "labels", "hello")
HEAD: dict[str, Any] = {"version": 1, "request": "m1", "deadline_ms": 900}
BODIES: dict[str, dict[str, Any]] = {
    "ask": {**HEAD, "rows": [["r", "g1:0", 1]], "values": [1]},
    "report": {**HEAD, "cell": "g1:0", "slot": 1},
    "labels": {**HEAD, "labels": [["r", 1]]},
    "hello": HEAD,
}


def world_of(
    function: Callable[[Any], Any] = lambda x: x, *, kind: type[World] = World, **more: Any
) -> World:
    config = {
        "policy": {"preset": "cos", "slices": 1},
        "learner": [
            {"name": "south", "functions": ["f"], "peers": {}},
            {"name": "north", "functions": ["g"], "peers": {}, "context-peers": {"south": 0.0}},
        ],
    }
    return kind(config, {"f": function, "g": function}, dimension=1, **more)


def south(world: World, *, limits: Limits | None = None, **rights: Any) -> PeerApi:
    """Return the side for peers of a node that knows north and east."""
    known = {name: neighbour(name, **rights) for name in NAMES}
    return PeerApi(world.nodes["south"], known, limits=limits)


NAMES = ("north", "east")


def call(name: str, body: Any = None, *, who: str = "north", **more: Any) -> HttpRequest:
    sent = msgspec.msgpack.encode(BODIES[name] if body is None else body)
    return HttpRequest(
        **{"method": "POST", "path": f"{ROOT}/{name}", "headers": HEADERS, **more},
        body=sent,
        who=who,
    )


def peer_client(back: PeerApi, who: str = "north", **rights: Any) -> PeerClient:
    """Return a client of the peer API of a site, without a network."""

    async def post(path: str, body: bytes) -> HttpResponse:
        return await respond(back, HttpRequest("POST", path, HEADERS, body, who))

    return PeerClient(neighbour("south", **rights), post, random.Random(1))  # noqa: S311


def code(reply: HttpResponse) -> Any:
    return 200 if reply.status == 200 else (reply.status, msgspec.json.decode(reply.body)["code"])


async def answers(back: PeerApi, *calls: HttpRequest) -> list[Any]:
    return [code(await respond(back, one)) for one in calls]


# -- what is answered ---------------------------------------------------------------------------


@virtual.timed
async def test_a_peer_is_answered_and_its_label_counts_once() -> None:
    world = world_of(lambda x: x + 1)
    peer = peer_client(south(world))

    (helped,) = await peer.ask([AskRow("r", "g1:0", 3, 41)])
    said = [await peer.deliver([("r", 42)]) for _ in range(2)]
    said.append(await peer.deliver([("r", 43), ("s", 1)]))

    assert (helped.label, helped.function) == (42, "f")
    assert said == [["taken"], ["repeated"], ["conflict", "unknown"]]
    assert await peer.report("g1:0", 3) == (1, 0.0, 1.0, ())
    assert await peer.report("g1:0", 3, "accuracy") == (1, 1.0, 1.0, ())


@virtual.timed
async def test_a_batch_is_one_message_and_larger_ones_are_divided() -> None:
    world = world_of()
    back = south(world)
    sent: list[bytes] = []

    async def post(path: str, body: bytes) -> HttpResponse:
        sent.append(body)
        return await respond(back, HttpRequest("POST", path, HEADERS, body, "north"))

    peer = PeerClient(neighbour("south"), post, random.Random(1))  # noqa: S311
    count = MOST_ROWS + 2
    helps = await peer.ask([AskRow(f"r{k}", "g1:0", 1, k) for k in range(count)])

    assert [one.label for one in helps] == list(range(count))
    assert len(sent) == 2
    size = world.stores["south"].size()
    assert (size["requests"], size["rows"]) == (2, count)


@virtual.timed
async def test_a_repeated_ask_gets_the_same_answer_also_after_a_restart() -> None:
    seen = []
    world = world_of(lambda x: seen.append(x) or len(seen))
    rows = [AskRow(f"r{k}", "g1:0", 1, k) for k in range(3)]
    first = await peer_client(south(world)).ask(rows)
    again = await peer_client(south(world)).ask(rows)
    world.crash("south")
    world.boot("south")
    later = await peer_client(south(world)).ask(rows)

    assert first == again == later
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("ids", ["ca", "cb", "b", "ab", "ba", "abc"])
@pytest.mark.parametrize("commit_s", [0.0, 1.0])
@virtual.timed
async def test_an_id_of_an_earlier_ask_is_not_taken_for_another_row(
    ids: str, commit_s: float
) -> None:
    """Not at the same time either: the store has room for one row of an id."""
    world = world_of()
    world.weather.commit_s = commit_s
    back = south(world)

    def ask(ids: str) -> Any:
        body = {**HEAD, "rows": [[id_, "g1:0", 1] for id_ in ids], "values": [1] * len(ids)}
        return respond(back, call("ask", body))

    replies = await asyncio.gather(ask("abd"), ask(ids))
    replies += [await ask(ids), await ask("abd"), await ask("e")]

    refused = (409, "conflict")
    assert list(map(code, replies)) == [200, refused, refused, 200, 200]
    assert world.nodes["south"].is_ready


@virtual.timed
async def test_if_one_row_of_an_ask_cannot_be_classified_none_is_counted() -> None:
    world = world_of(lambda x: 1 // x)
    body = {**HEAD, "rows": [["a", "g1:0", 1], ["b", "g1:0", 1]], "values": [1, 0]}

    assert await answers(south(world), call("ask", body)) == [(422, "not_classified")]
    assert await peer_client(south(world)).report("g1:0", 1) == (0, 0.0, 1.0, ())
    assert await answers(south(world), call("ask", {**body, "values": [1, 1]})) == [200]


@virtual.timed
async def test_a_greeting_has_the_name_and_how_often_the_site_was_started() -> None:
    world = world_of()
    first = await peer_client(south(world)).hello()
    world.crash("south")
    world.boot("south")
    second = await peer_client(south(world)).hello()

    assert (first.name, second.name) == ("south", "south")
    assert second.incarnation == first.incarnation + 1


@pytest.mark.parametrize(
    ("rights", "knows_cells", "knows_data"),
    [
        ({"may_ask": True, "share": "none"}, True, True),
        ({"may_ask": False, "share": "data"}, True, True),
        ({"may_ask": False, "share": "context"}, True, False),
        ({"may_ask": False, "share": "none"}, False, False),
    ],
)
@virtual.timed
async def test_hello_describes_cells_and_instances_only_to_peers_that_use_them(
    rights: dict[str, Any], knows_cells: bool, knows_data: bool
) -> None:
    known = {"north": neighbour("north", **rights)}
    takes: Any = {"features": {"size": "FP64"}, "instance": "row"}
    said = await peer_client(PeerApi(world_of().nodes["south"], known, **takes)).hello()

    cells = [peer_messages.SpaceInfo("", "1 slices per dimension", 1)] if knows_cells else []
    assert (said.preset, said.spaces) == ("cos" if knows_cells else "", cells)
    data = ("row", [peer_messages.FeatureInfo("size", "FP64")]) if knows_data else ("", [])
    assert (said.instance, said.features) == data


@pytest.mark.parametrize("share", ["none", "context"])
@virtual.timed
async def test_no_message_contains_more_than_is_shared(share: Any) -> None:
    sent: list[bytes] = []

    async def post(path: str, body: bytes) -> HttpResponse:
        sent.append(body)
        return HttpResponse(500)

    peer = PeerClient(neighbour("south", share=share), post, random.Random(1))  # noqa: S311
    with pytest.raises(PeerError, match="share"):
        await peer.ask([AskRow("a", "g1:0", 1), AskRow("b", "g1:0", 1, 41)])

    assert sent == []


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rights", "expected"),
    [
        ({}, [200] * 5),
        ({"asks_by_context": False}, [200] * 4 + [(403, "not_allowed")]),
        ({"may_ask": False}, [(403, "not_allowed")] * 3 + [200, (403, "not_allowed")]),
    ],
)
@virtual.timed
async def test_the_permissions_of_a_peer_are_in_its_table(
    rights: dict[str, Any], expected: list[Any]
) -> None:
    back = south(world_of(), **rights)
    by_cell = call("ask", {**HEAD, "rows": [["c", "g1:0", 1]]})

    assert await answers(back, *map(call, CALLS), by_cell) == expected


@virtual.timed
async def test_labels_of_a_peer_that_may_no_longer_ask_are_taken_also_after_a_restart() -> None:
    world = world_of()
    rows = [AskRow(id_, "g1:0", 1, 1) for id_ in "ab"]
    await peer_client(south(world)).ask(rows)
    said = [await peer_client(south(world, may_ask=False)).deliver([("a", 1)])]
    world.crash("south")
    world.boot("south")
    said.append(await peer_client(south(world, may_ask=False)).deliver([("b", 1), ("c", 1)]))

    assert said == [["taken"], ["taken", "unknown"]]


@virtual.timed
async def test_to_others_a_ticket_is_as_unknown_as_one_that_never_was() -> None:
    back = south(world_of())
    await peer_client(back).ask([AskRow("r", "g1:0", 1, 1)])

    said = await peer_client(back, who="east").deliver([("r", 1), ("never", 1)])

    assert said == ["unknown", "unknown"]
    assert await peer_client(back).deliver([("r", 1)]) == ["taken"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"path": f"{ROOT}/else"}, (404, "not_found")),
        ({"path": "/v2/models/south/infer"}, (404, "not_found")),
        ({"method": "GET"}, (405, "method")),
        ({"headers": {"content-type": "application/json"}}, (415, "media_type")),
        ({"headers": {}}, (415, "media_type")),
        ({"who": "west"}, (403, "not_allowed")),
        ({"body": {**HEAD, "rows": [["r", "g1:0", 1]] * 2, "values": [1, 2]}}, (422, "invalid")),
    ],
)
@virtual.timed
async def test_what_is_no_message_is_refused(changed: dict[str, Any], expected: Any) -> None:
    assert await answers(south(world_of()), call("ask", **changed)) == [expected]


@virtual.timed
async def test_what_fails_here_is_answered_without_a_word_of_others() -> None:
    class Failing:
        name, starts = "south", 1

        def __init__(self, error: Exception) -> None:
            self.error, self.for_peers = error, self

        async def assist(self, rows: Any, *, source: str, route: object) -> Any:
            raise self.error

    errors = (LimitError("77 tickets are held"), StoreError("/var/south.store is full"))
    replies = [
        await respond(PeerApi(Failing(error), {"north": neighbour("north")}), call("ask"))  # type: ignore[arg-type]
        for error in errors
    ]

    assert list(map(code, replies)) == [(503, "busy"), (503, "store_failed")]
    assert not any(b"77" in reply.body or b"/var" in reply.body for reply in replies)
    assert [reply.headers["Retry-After"] for reply in replies] == ["1", "1"]


@pytest.mark.parametrize("name", CALLS)
@virtual.timed
async def test_a_site_announces_its_protocol_version_and_refuses_others(name: str) -> None:
    back = south(world_of())
    reply = await respond(back, call(name))
    refused = await respond(back, call(name, {**BODIES[name], "version": VERSION + 1}))
    problem = msgspec.json.decode(refused.body)

    assert msgspec.msgpack.decode(reply.body)["version"] == VERSION
    assert (refused.status, problem["code"]) == (422, "protocol_version")
    assert f"version {VERSION + 1}; this site speaks {VERSION}" in problem["detail"]
    assert [one.headers[VERSIONS_HEADER] for one in (reply, refused)] == [str(VERSION)] * 2
