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
from test_peer_api import BODIES, CALLS, answers, call, code, peer_client, south, world_of

from covey.errors import FunctionBusy, PeerDeclined, PeerError
from covey.node.node import Node
from covey.node.peers import DEADLINE_S
from covey.node.requests import AskRow
from covey.server import peer_messages
from covey.server.http import HttpProblem, HttpRequest, HttpResponse, SiteLimits, TokenBucket
from covey.server.peer_client import PeerClient
from covey.server.peer_messages import KIND, ROOT, AskQuery
from support import virtual
from support.message_links import HEADERS, MessageLink, neighbour, respond
from support.virtual import Disk, World

# -- how much, how often, how long --------------------------------------------------------------


def test_a_bucket_lets_a_second_worth_through_and_then_so_many_a_second() -> None:
    bucket = TokenBucket(2.0)

    assert [bucket.take(10.0) for _ in range(3)] == [0.0, 0.0, 0.5]
    assert bucket.take(10.25) == 0.25
    assert bucket.take(10.5) == 0.0
    assert [bucket.take(99.0) for _ in range(3)] == [0.0, 0.0, 0.5]


@given(
    st.floats(0.1, 100),
    st.lists(st.floats(0, 3), min_size=1, max_size=60),
)
def test_in_no_stretch_of_time_are_there_more_calls_than_the_rate_allows(
    rate_per_s: float, gaps_s: list[float]
) -> None:
    bucket, now_s, taken = TokenBucket(rate_per_s), 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        if not bucket.take(now_s):
            taken.append(now_s)

    for k, first in enumerate(taken):
        for count, last in enumerate(taken[k:], 1):
            assert count <= max(1.0, rate_per_s) + rate_per_s * (last - first) + 1e-6


def test_a_peer_above_its_rate_gets_retry_after_and_others_are_served() -> None:
    async def main() -> None:
        back = south(world_of(), rate_per_s=0.25)
        first, second, other = [
            await respond(back, one)
            for one in (call("hello"), call("hello"), call("hello", who="east"))
        ]
        await asyncio.sleep(4.0)

        assert [code(one) for one in (first, second, other)] == [200, (429, "too_often"), 200]
        assert second.headers["Retry-After"] == "4"
        assert await answers(back, call("hello")) == [200]

    virtual.run(main())


def test_a_bucket_takes_many_at_once() -> None:
    bucket = TokenBucket(100.0)

    assert [bucket.take(10.0, count) for count in (60, 60, 40, 1)] == [0.0, 0.2, 0.0, 0.01]


def test_the_rows_and_labels_of_a_peer_per_second_are_limited() -> None:
    async def main() -> None:
        back = south(world_of(), limits=SiteLimits(peer_rows_per_s=1_024))
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

    virtual.run(main())


def test_the_messages_of_a_peer_per_second_are_limited_more_if_it_may_not_ask() -> None:
    async def main(**rights: Any) -> list[Any]:
        limits = SiteLimits(peer_messages_per_s=30)
        back = south(world_of(), limits=limits, rate_per_s=None, **rights)
        return await answers(back, *[call("hello")] * 31)

    assert virtual.run(main()) == [200] * 30 + [(429, "too_often")]
    assert virtual.run(main(may_ask=False)) == [200] * 20 + [(429, "too_often")] * 11


def test_ids_of_labels_are_looked_up_at_once_and_unknown_ones_not_at_all() -> None:
    looked: list[Any] = []

    class Noting(Disk):
        async def find(self, source: str, ids: Any) -> Any:
            looked.append((source, sorted(ids)))
            return await super().find(source, ids)

    class Noted(World):
        def disk(self, name: str) -> Disk:
            return Noting(self, name)

    async def main() -> list[str]:
        world = world_of(kind=Noted)
        old = [AskRow(f"r{k}", "g1:0", 1, k) for k in range(3)]
        await peer_client(south(world)).ask(old)
        labels = [(f"r{k}", k) for k in range(3)]
        await peer_client(south(world)).deliver(labels)
        await peer_client(south(world)).ask([AskRow("later", "g1:0", 10**6, 1)])
        looked.clear()  # the others are closed now, and in the store alone
        unknown = [(f"x{k}", 1) for k in range(500)]
        return await peer_client(south(world)).deliver([*unknown, *labels])

    assert virtual.run(main()) == ["unknown"] * 500 + ["repeated"] * 3
    ((source, ids),) = looked
    assert source == "north"
    assert {"r0", "r1", "r2"} <= set(ids)
    assert len(ids) < 20  # some unknown ones may be taken for known


def test_labels_of_one_message_are_one_commit() -> None:
    commits: list[int] = []

    class Counting(Disk):
        async def commit(self, commit: Any) -> None:
            commits.append(len(commit.labels))
            await super().commit(commit)

    class Counted(World):
        def disk(self, name: str) -> Disk:
            return Counting(self, name)

    async def main() -> list[str]:
        world = world_of(kind=Counted)
        peer = peer_client(south(world))
        for k in range(40):
            await peer.ask([AskRow(f"r{k}", "g1:0", 1, k)])
        commits.clear()
        return await peer.deliver([(f"r{k}", k) for k in range(40)])

    assert virtual.run(main()) == ["taken"] * 40
    assert commits == [40]


def test_a_peer_whose_rows_a_function_is_too_busy_for_is_told_so() -> None:
    class Taken(Disk):
        async def run(self, function: Any, call: Any, /, *arguments: Any) -> Any:
            raise FunctionBusy("function 'f' is busy")

    class Busy(World):
        def disk(self, name: str) -> Disk:
            return Taken(self, name)

    async def main() -> None:
        world = world_of(kind=Busy)

        assert await answers(south(world), call("ask")) == [(503, "busy")]
        assert await peer_client(south(world)).report("g1:0", 1) == (0, 0.0, 1.0)

    virtual.run(main())


def test_the_number_of_running_requests_of_a_peer_is_limited() -> None:
    async def main() -> None:
        world = world_of()
        world.weather.commit_s = 1.0
        back = south(world, in_flight=2)
        asks = [call("ask", {**BODIES["ask"], "rows": [[f"r{k}", "g1:0", 1]]}) for k in range(3)]
        others = [call("ask", who="east")]

        said = await asyncio.gather(*(respond(back, one) for one in [*asks, *others]))

        assert list(map(code, said)) == [200, 200, (503, "busy"), 200]
        assert await answers(back, *asks) == [200, 200, 200]

    virtual.run(main())


@pytest.mark.parametrize("name", ["ask", "report", "estimate", "labels"])
def test_a_request_after_its_deadline_is_not_begun(name: str) -> None:
    async def main() -> None:
        world = world_of()
        before = world.nodes["south"].learner.snapshot()

        said = await answers(south(world), call(name, {**BODIES[name], "deadline_ms": 0}))

        assert said == [(408, "deadline_over")]
        assert world.nodes["south"].learner.snapshot() == before

    virtual.run(main())


def test_messages_contain_the_deadline_of_the_sender() -> None:
    async def main() -> None:
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

    virtual.run(main())


def test_a_refusal_has_a_code_for_the_asker() -> None:
    async def main() -> None:
        with pytest.raises(PeerDeclined, match=r"status 403 \(not_allowed\): you may not ask here"):
            await peer_client(south(world_of(), may_ask=False)).report("g1:0", 1)

    virtual.run(main())


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
def test_a_busy_peer_has_a_wait_and_a_failed_peer_is_not_busy(
    problem: HttpProblem, wait_s: float | None
) -> None:
    async def main() -> None:
        async def post(path: str, sent: bytes) -> HttpResponse:
            return problem.reply()

        peer = PeerClient(neighbour("south"), post, random.Random(1))  # noqa: S311
        with pytest.raises(PeerError, match=rf"status {problem.status} \({problem.code}\)") as told:
            await peer.report("g1:0", 1)

        assert getattr(told.value, "wait_s", None) == wait_s

    virtual.run(main())


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b'{"code": 1}', b'{"code": "a\\nb"}'])
def test_a_refusal_that_makes_no_sense_is_still_one(body: bytes) -> None:
    async def main() -> None:
        async def post(path: str, sent: bytes) -> HttpResponse:
            return HttpResponse(418, body)

        peer = PeerClient(neighbour("south"), post, random.Random(1))  # noqa: S311
        with pytest.raises(PeerError, match="^status 418$"):
            await peer.report("g1:0", 1)

    virtual.run(main())


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


def test_a_network_over_messages_decides_as_one_by_direct_calls() -> None:
    config = {
        "policy": {"preset": "cos", "slices": 2},
        "learner": [
            {"name": "north", "functions": ["f"], "peers": {"south": 0.05}},
            {"name": "south", "functions": ["g"], "peers": {"north": 0.05}},
        ],
    }

    async def decisions(link: type[virtual.Link]) -> list[Any]:
        functions = {"f": lambda x: 0, "g": lambda x: int(x[0] > 0.5)}
        world = World(config, functions, dimension=1, link=link)
        chance, found = random.Random(4), []  # noqa: S311
        for slot in range(200):
            name, x = chance.choice(("north", "south")), chance.random()
            node: Node = world.nodes[name]
            answer = await node.predict([x], (x,), slot=slot + 1)
            await node.learn(answer.ticket, int(x > 0.5))
            await node.drained()
            found.append((answer.phase, answer.arm, answer.function, answer.label))
        return found

    by_messages = virtual.run(decisions(MessageLink))

    assert by_messages == virtual.run(decisions(virtual.Link))
    assert {arm for _, arm, _, _ in by_messages} == {"f", "g", "north", "south"}


def test_messages_have_a_content_type() -> None:
    async def main() -> None:
        reply = await respond(south(world_of()), call("hello"))

        assert reply.kind == KIND

    virtual.run(main())


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
