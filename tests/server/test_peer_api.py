"""Peers get what they may and what they asked for; their mistakes get a sentence, and no 5xx."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from covey.bandit.learner import NO_ANSWER
from covey.errors import LimitError, PeerDeclined, PeerError, StoreError
from covey.node.requests import AskRow
from covey.server import peer_messages
from covey.server.http import HttpRequest, HttpResponse, SiteLimits
from covey.server.peer_api import PeerApi
from covey.server.peer_client import PeerClient
from covey.server.peer_messages import MOST_ROWS, ROOT
from support import virtual
from support.message_links import HEADERS, neighbour, respond
from support.virtual import World

CALLS = ("ask", "report", "estimate", "labels", "status", "hello")
HEAD: dict[str, Any] = {"version": 1, "request": "m1", "deadline_ms": 900}
BODIES: dict[str, dict[str, Any]] = {
    "ask": {**HEAD, "rows": [["r", "g1:0", 1]], "values": [1]},
    "report": {**HEAD, "cell": "g1:0", "slot": 1},
    "estimate": {**HEAD, "cell": "g1:0", "slot": 1, "is_by_context": False},
    "labels": {**HEAD, "labels": [["r", 1]]},
    "status": HEAD,
    "hello": HEAD,
}
INFO = peer_messages.SiteInfo(
    is_ready=True,
    slot=7,
    uptime_s=1.5,
    decisions=9,
    cost=0.5,
    labels=8,
    right=6,
    hour_labels=4,
    hour_right=3,
)


def world_of(
    function: Callable[[Any], Any] = lambda x: x, *, kind: type[World] = World, **more: Any
) -> World:
    config = {
        "policy": {"preset": "cos", "slices": 1, "horizon": 500},
        "learner": [
            {"name": "south", "functions": ["f"], "peers": {}},
            {"name": "north", "functions": ["g"], "peers": {}, "context-peers": {"south": 0.0}},
        ],
    }
    return kind(config, {"f": function, "g": function}, dimension=1, **more)


def south(world: World, *, limits: SiteLimits | None = None, **rights: Any) -> PeerApi:
    """Return the side for peers of a node that knows north and east."""
    known = {name: neighbour(name, **rights) for name in NAMES}
    return PeerApi(world.nodes["south"], known, limits=limits, status=lambda: INFO)


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


def test_a_peer_is_answered_and_its_label_counts_once() -> None:
    async def main() -> None:
        world = world_of(lambda x: x + 1)
        peer = peer_client(south(world))

        (helped,) = await peer.ask([AskRow("r", "g1:0", 3, 41)])
        said = [await peer.deliver([("r", 42)]) for _ in range(2)]
        said.append(await peer.deliver([("r", 43), ("s", 1)]))

        assert (helped.label, helped.function) == (42, "f")
        assert said == [["taken"], ["repeated"], ["conflict", "unknown"]]
        assert await peer.report("g1:0", 3) == (1, 0.0, 1.0)
        assert await peer.estimate("g1:0", 3, is_by_context=False) == (1.0, 1)

    virtual.run(main())


def test_a_peer_that_may_see_the_status_gets_it() -> None:
    async def main() -> None:
        world = world_of()

        assert await peer_client(south(world, may=["status"])).status() == INFO
        with pytest.raises(PeerDeclined, match="you may not see the status of this site"):
            await peer_client(south(world)).status()

    virtual.run(main())


def test_a_batch_is_one_message_and_larger_ones_are_divided() -> None:
    async def main() -> None:
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

    virtual.run(main())


def test_a_repeated_ask_gets_the_same_answer_also_after_a_restart() -> None:
    async def main() -> None:
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

    virtual.run(main())


@pytest.mark.parametrize("ids", ["ca", "cb", "b", "ab", "ba", "abc"])
@pytest.mark.parametrize("commit_s", [0.0, 1.0])
def test_an_id_of_an_earlier_ask_is_not_taken_for_another_row(ids: str, commit_s: float) -> None:
    """Not at the same time either: the store has room for one row of an id."""

    async def main() -> None:
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

    virtual.run(main())


def test_the_rows_of_an_ask_need_different_ids() -> None:
    async def main() -> None:
        body = {**HEAD, "rows": [["r", "g1:0", 1]] * 2, "values": [1, 2]}

        assert await answers(south(world_of()), call("ask", body)) == [(422, "invalid")]

    virtual.run(main())


def test_if_one_row_of_an_ask_cannot_be_classified_none_is_counted() -> None:
    async def main() -> None:
        world = world_of(lambda x: 1 // x)
        body = {**HEAD, "rows": [["a", "g1:0", 1], ["b", "g1:0", 1]], "values": [1, 0]}

        assert await answers(south(world), call("ask", body)) == [(422, "not_classified")]
        assert await peer_client(south(world)).report("g1:0", 1) == (0, 0.0, 1.0)
        assert await answers(south(world), call("ask", {**body, "values": [1, 1]})) == [200]

    virtual.run(main())


def test_a_request_by_the_cell_gets_the_label_seen_most() -> None:
    async def main() -> None:
        world = world_of()
        peer = peer_client(south(world))
        (first,) = await peer.ask([AskRow("a", "g1:0", 1)])
        await peer.deliver([("a", "calm")])
        (second,) = await peer.ask([AskRow("b", "g1:0", 2)])

        assert (first.label, second.label) == (NO_ANSWER, "calm")

    virtual.run(main())


def test_a_greeting_has_the_name_and_how_often_the_site_was_started() -> None:
    async def main() -> None:
        world = world_of()
        first = await peer_client(south(world)).hello()
        world.crash("south")
        world.boot("south")
        second = await peer_client(south(world)).hello()

        assert (first.name, second.name) == ("south", "south")
        assert second.incarnation == first.incarnation + 1

    virtual.run(main())


@pytest.mark.parametrize(
    ("rights", "knows_cells", "knows_data"),
    [
        ({"may_ask": True, "share": "none"}, True, True),
        ({"may_ask": False, "share": "data"}, True, True),
        ({"may_ask": False, "share": "context"}, True, False),
        ({"may_ask": False, "share": "none"}, False, False),
    ],
)
def test_hello_describes_cells_and_instances_only_to_peers_that_use_them(
    rights: dict[str, Any], knows_cells: bool, knows_data: bool
) -> None:
    async def main() -> None:
        known = {"north": neighbour("north", **rights)}
        takes: Any = {"features": {"size": "FP64"}, "instance": "row"}
        said = await peer_client(PeerApi(world_of().nodes["south"], known, **takes)).hello()

        cells = [peer_messages.SpaceInfo("", "1 slices per dimension", 1)] if knows_cells else []
        assert (said.preset, said.spaces) == ("cos" if knows_cells else "", cells)
        data = ("row", [peer_messages.FeatureInfo("size", "FP64")]) if knows_data else ("", [])
        assert (said.instance, said.features) == data

    virtual.run(main())


def test_a_site_that_calls_itself_otherwise_is_no_peer() -> None:
    async def main() -> None:
        back = PeerApi(world_of().nodes["north"], {"north": neighbour("north")})
        with pytest.raises(PeerError, match="greeting of 'north'"):
            await peer_client(back).hello()

    virtual.run(main())


@pytest.mark.parametrize("share", ["none", "context"])
def test_no_message_contains_more_than_is_shared(share: Any) -> None:
    async def main() -> None:
        sent: list[bytes] = []

        async def post(path: str, body: bytes) -> HttpResponse:
            sent.append(body)
            return HttpResponse(500)

        peer = PeerClient(neighbour("south", share=share), post, random.Random(1))  # noqa: S311
        with pytest.raises(PeerError, match="share"):
            await peer.ask([AskRow("a", "g1:0", 1), AskRow("b", "g1:0", 1, 41)])

        assert sent == []

    virtual.run(main())


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rights", "expected"),
    [
        ({}, [200, 200, 200, 200, (403, "not_allowed"), 200]),
        ({"may": ["status"]}, [200] * 6),
        ({"may_ask": False}, [(403, "not_allowed")] * 5 + [200]),
        ({"may_ask": False, "may": ["status"]}, [(403, "not_allowed")] * 4 + [200] * 2),
    ],
)
def test_the_permissions_of_a_peer_are_in_its_table(
    rights: dict[str, Any], expected: list[Any]
) -> None:
    async def main() -> None:
        back = south(world_of(), **rights)

        assert await answers(back, *map(call, CALLS)) == expected

    virtual.run(main())


def test_labels_of_a_peer_that_may_no_longer_ask_are_taken_also_after_a_restart() -> None:
    async def main() -> None:
        world = world_of()
        rows = [AskRow(id_, "g1:0", 1, 1) for id_ in "ab"]
        await peer_client(south(world)).ask(rows)
        said = [await peer_client(south(world, may_ask=False)).deliver([("a", 1)])]
        world.crash("south")
        world.boot("south")
        said.append(await peer_client(south(world, may_ask=False)).deliver([("b", 1), ("c", 1)]))

        assert said == [["taken"], ["taken", "unknown"]]

    virtual.run(main())


def test_an_unlisted_peer_may_do_nothing() -> None:
    async def main() -> None:
        back = south(world_of())

        said = await answers(back, *(call(name, who="west") for name in CALLS))

        assert said == [(403, "not_allowed")] * len(CALLS)

    virtual.run(main())


def test_asking_by_the_cell_alone_must_be_allowed_by_name() -> None:
    async def main() -> None:
        back = south(world_of(), asks_by_context=False)
        by_cell = {**HEAD, "rows": [["r", "g1:0", 1]]}

        assert await answers(back, call("ask", by_cell), call("ask")) == [
            (403, "not_allowed"),
            200,
        ]

    virtual.run(main())


def test_to_others_a_ticket_is_as_unknown_as_one_that_never_was() -> None:
    async def main() -> None:
        back = south(world_of())
        await peer_client(back).ask([AskRow("r", "g1:0", 1, 1)])

        said = await peer_client(back, who="east").deliver([("r", 1), ("never", 1)])

        assert said == ["unknown", "unknown"]
        assert await peer_client(back).deliver([("r", 1)]) == ["taken"]

    virtual.run(main())


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"path": f"{ROOT}/else"}, (404, "not_found")),
        ({"path": "/v2/models/south/infer"}, (404, "not_found")),
        ({"method": "GET"}, (405, "method")),
        ({"headers": {"content-type": "application/json"}}, (415, "media_type")),
        ({"headers": {}}, (415, "media_type")),
    ],
)
def test_what_is_no_message_is_refused(changed: dict[str, Any], expected: Any) -> None:
    async def main() -> None:
        assert await answers(south(world_of()), call("ask", **changed)) == [expected]

    virtual.run(main())


def test_methods_other_than_post_are_refused_with_allow() -> None:
    async def main() -> None:
        reply = await respond(south(world_of()), call("ask", method="GET"))

        assert reply.headers["Allow"] == "POST"

    virtual.run(main())


@pytest.mark.parametrize("name", ["ask", "report", "estimate"])
@pytest.mark.parametrize("cell", ["g2:0", "g1:0:0", "z0:0", "else/g1:0", "x"])
def test_an_impossible_cell_is_an_error_of_the_asker(name: str, cell: str) -> None:
    async def main() -> None:
        body = {**BODIES[name], "cell": cell}
        if name == "ask":
            body = {**BODIES["ask"], "rows": [["r", cell, 1]]}

        assert await answers(south(world_of()), call(name, body)) == [(422, "invalid")]

    virtual.run(main())


def test_the_response_for_a_failing_function_has_no_details() -> None:
    async def main() -> None:
        def secret(instance: Any) -> int:
            raise KeyError("the weights are in /models/secret")

        reply = await respond(south(world_of(secret)), call("ask"))

        assert code(reply) == (422, "not_classified")
        assert b"secret" not in reply.body

    virtual.run(main())


def test_what_fails_here_is_answered_without_a_word_of_others() -> None:
    class Failing:
        name, starts = "south", 1

        def __init__(self, error: Exception) -> None:
            self.error = error

        async def assist(self, rows: Any, *, source: str) -> Any:
            raise self.error

    async def main() -> None:
        errors = (LimitError("77 tickets are held"), StoreError("/var/south.store is full"))
        replies = [
            await respond(PeerApi(Failing(error), {"north": neighbour("north")}), call("ask"))  # type: ignore[arg-type]
            for error in errors
        ]

        assert list(map(code, replies)) == [(503, "busy"), (503, "store_failed")]
        assert not any(b"77" in one.body or b"/var" in one.body for one in replies)
        assert [one.headers["Retry-After"] for one in replies] == ["1", "1"]

    virtual.run(main())
