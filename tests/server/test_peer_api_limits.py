"""How much, how often and how long a peer may call, and what it may send."""

import asyncio
import math
import random
import struct
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_peer_api import BODIES, CALLS, answers, call, code, south, world_of

from covey.errors import PeerError
from covey.node.functions import Limits
from covey.node.peers import DEADLINE_S
from covey.server import peer_messages
from covey.server.http import HttpProblem, HttpRequest, HttpResponse, Rates
from covey.server.peer_api import PeerApi, PeerUse
from covey.server.peer_client import PeerClient
from covey.server.peer_messages import ROOT, AskQuery
from covey.site.requests import AskRow
from support import virtual
from support.message_links import HEADERS, MessageLink, neighbour, respond
from support.virtual import World

# -- how much, how often, how long --------------------------------------------------------------


@given(st.floats(0.1, 100), st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_in_no_stretch_of_time_are_there_more_calls_than_the_rate_allows(
    rate_per_s: float, gaps_s: list[float]
) -> None:
    rates, now_s, taken = Rates(), 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        if not rates.take("north", now_s, rate_per_s):
            taken.append(now_s)

    for k, first in enumerate(taken):
        for count, last in enumerate(taken[k:], 1):
            assert count <= max(1.0, rate_per_s) + rate_per_s * (last - first) + 1e-6


@virtual.timed
async def test_a_peer_above_its_rate_gets_retry_after_and_others_are_served() -> None:
    back = south(world_of(), rate_per_s=0.25)
    first, second, other = [
        await respond(back, one)
        for one in (call("hello"), call("hello"), call("hello", who="east"))
    ]
    await asyncio.sleep(4.0)

    assert [code(one) for one in (first, second, other)] == [200, (429, "too_often"), 200]
    assert second.headers["Retry-After"] == "4"
    assert await answers(back, call("hello")) == [200]


@virtual.timed
async def test_what_a_peer_has_used_of_its_rate_still_counts_after_the_file_has_changed() -> None:
    world, use = world_of(), PeerUse()
    known = {"north": neighbour("north", rate_per_s=0.25)}
    before, after = (PeerApi(world.nodes["south"], known, use=use) for _ in range(2))

    assert await answers(before, call("hello")) == [200]
    assert await answers(after, call("hello")) == [(429, "too_often")]
    await asyncio.sleep(4.0)
    assert await answers(after, call("hello")) == [200]


@virtual.timed
async def test_the_rows_and_labels_of_a_peer_per_second_are_limited() -> None:
    back = south(world_of(), limits=Limits(peer_rows_per_s=1_024))
    rows = [[f"r{k}", "g1:0", 1] for k in range(1_000)]
    ask = {**BODIES["ask"], "rows": rows, "values": [1] * 1_000}
    labels = {**BODIES["labels"], "labels": [[f"r{k}", 1] for k in range(1_000)]}
    calls = [call("ask", ask), call("labels", labels), call("labels", labels, who="east")]
    first = await answers(back, *calls, call("report"))
    refused = await respond(back, calls[1])
    await asyncio.sleep(1.0)

    assert first == [200, (429, "too_often"), 200, 200]
    assert b"you may send 1024 rows and labels a second" in refused.body
    assert refused.headers["Retry-After"] == "1"
    assert await answers(back, calls[1]) == [200]


def test_the_messages_of_a_peer_per_second_are_limited_more_if_it_may_not_ask() -> None:
    async def main(**rights: Any) -> list[Any]:
        back = south(world_of(), rate_per_s=30, **rights)
        return await answers(back, *[call("hello")] * 31)

    assert virtual.run(main()) == [200] * 30 + [(429, "too_often")]
    assert virtual.run(main(may_ask=False)) == [200] * 20 + [(429, "too_often")] * 11


@virtual.timed
async def test_the_number_of_running_requests_of_a_peer_is_limited() -> None:
    world = world_of()
    world.weather.commit_s = 1.0
    back = south(world, in_flight=2)
    asks = [call("ask", {**BODIES["ask"], "rows": [[f"r{k}", "g1:0", 1]]}) for k in range(3)]
    others = [call("ask", who="east")]

    said = await asyncio.gather(*(respond(back, ask) for ask in [*asks, *others]))

    assert list(map(code, said)) == [200, 200, (503, "busy"), 200]
    assert await answers(back, *asks) == [200, 200, 200]


@virtual.timed
async def test_messages_contain_the_deadline_of_the_sender() -> None:
    deadlines: list[int] = []

    async def post(path: str, body: bytes) -> HttpResponse:
        deadlines.append(peer_messages.read(body, AskQuery).deadline_ms)
        return HttpResponse(503)

    peer = PeerClient(neighbour("south"), post, random.Random(1))  # noqa: S311
    for deadline_s in (0.2504, 1e9, 0.0):
        DEADLINE_S.set(deadline_s)
        with pytest.raises(PeerError):
            await peer.ask([AskRow("r", "g1:0", 1, 1)])

    assert deadlines == [251, peer_messages.MOST_DEADLINE_MS]


@pytest.mark.parametrize(
    ("problem", "wait_s"),
    [
        (HttpProblem(429, "too_often", "", {"Retry-After": "7"}), 7.0),
        (HttpProblem(503, "busy", ""), 1.0),
        (HttpProblem(503, "busy", "", {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}), 1.0),
        (HttpProblem(503, "busy", "", {"Retry-After": "-3"}), 1.0),
        (HttpProblem(503, "busy", "", {"Retry-After": "9" * 400}), math.inf),
        (HttpProblem(503, "store_failed", ""), None),
        (HttpProblem(507, "store_full", ""), None),
    ],
)
@virtual.timed
async def test_a_busy_peer_has_a_wait_and_a_failed_peer_is_not_busy(
    problem: HttpProblem, wait_s: float | None
) -> None:
    async def post(path: str, sent: bytes) -> HttpResponse:
        return problem.reply()

    peer = PeerClient(neighbour("south"), post, random.Random(1))  # noqa: S311
    with pytest.raises(PeerError, match=rf"status {problem.status} \({problem.code}\)") as told:
        await peer.report("g1:0", 1)

    assert getattr(told.value, "wait_s", None) == wait_s


# -- whatever else ------------------------------------------------------------------------------


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    body = bytearray(msgspec.msgpack.encode(BODIES[draw(st.sampled_from(CALLS))]))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(body)))
        body[start : start + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(body)


@given(st.lists(st.tuples(st.sampled_from(CALLS), hostile()), min_size=1, max_size=20))
def test_no_bytes_of_a_peer_are_this_site_s_failure(sent: list[tuple[str, bytes]]) -> None:
    async def main() -> list[int]:
        back = south(world_of(lambda x: 1))
        return [
            (
                await respond(back, HttpRequest("POST", f"{ROOT}/{name}", HEADERS, body, "north"))
            ).status
            for name, body in sent
        ]

    assert set(virtual.run(main())) <= {200, 400, 403, 408, 413, 422}


@settings(max_examples=25)
@given(st.text("abcdefgh", min_size=8, max_size=20), st.floats(1e-300, 1e300))
def test_a_context_only_peer_is_sent_no_byte_of_an_instance(word: str, number: float) -> None:
    config = {
        "policy": {"preset": "cos", "slices": 1},
        "learner": [
            {"name": "north", "functions": ["f"], "peers": {}, "context-peers": {"south": 0.0}},
            {"name": "south", "functions": ["g"], "peers": {}},
        ],
    }
    sent: list[bytes] = []

    class Tapped(MessageLink):
        rights: ClassVar[dict[str, Any]] = {"share": "context"}

        async def _post(self, path: str, body: bytes) -> HttpResponse:
            sent.append(body)
            return await super()._post(path, body)

    async def main() -> set[str]:
        world = World(config, {"f": lambda x: 0, "g": lambda x: 1}, dimension=1, link=Tapped)
        arms = set()
        for k in range(12):
            answer = await world.nodes["north"].predict({"word": word, "x": number}, (0.5,))
            await world.nodes["north"].learn(answer.ticket, k % 2)
            arms.add(answer.arm)
        await world.nodes["north"].drained()
        return arms

    arms = virtual.run(main())

    assert "south (context)" in arms
    assert sent
    everything = b"\0".join(sent)
    for secret in (word.encode(), struct.pack("<d", number), struct.pack(">d", number)):
        assert secret not in everything
