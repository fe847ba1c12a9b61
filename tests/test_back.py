"""Peers get what they may and what they asked for; their mistakes get a sentence, and no 5xx."""

import asyncio
import math
import random
import struct
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import virtual
from covey import letters
from covey.back import Back
from covey.calls import Call, Problem, Reply
from covey.correspondents import Correspondent
from covey.decisions import NO_ANSWER
from covey.errors import LimitError, PeerDeclined, PeerError, StoreError
from covey.letters import KIND, MOST_ROWS, ROOT, Ask
from covey.node.node import Node
from covey.node.peers import DEADLINE_S
from covey.node.requests import AskRow
from covey.rates import Bucket
from letterbox import HEADERS, LetterLink, neighbour, respond
from virtual import World

CALLS = ("ask", "report", "estimate", "labels", "hello")
HEAD: dict[str, Any] = {"version": 1, "request": "m1", "deadline_ms": 900}
BODIES: dict[str, dict[str, Any]] = {
    "ask": {**HEAD, "rows": [["r", "g1:0", 1]], "values": [1]},
    "report": {**HEAD, "cell": "g1:0", "slot": 1},
    "estimate": {**HEAD, "cell": "g1:0", "slot": 1, "is_by_context": False},
    "labels": {**HEAD, "labels": [["r", 1]]},
    "hello": HEAD,
}


def world_of(function: Callable[[Any], Any] = lambda x: x, **more: Any) -> World:
    config = {
        "policy": {"preset": "cos", "slices": 1, "horizon": 500},
        "learner": [
            {"name": "south", "functions": ["f"], "peers": {}},
            {"name": "north", "functions": ["g"], "peers": {}, "context-peers": {"south": 0.0}},
        ],
    }
    return World(config, {"f": function, "g": function}, dimension=1, **more)


def south(world: World, **rights: Any) -> Back:
    """Return the side for peers of a node that knows north and east."""
    return Back(world.nodes["south"], {name: neighbour(name, **rights) for name in NAMES})


NAMES = ("north", "east")


def call(name: str, body: Any = None, *, who: str = "north", **more: Any) -> Call:
    sent = msgspec.msgpack.encode(BODIES[name] if body is None else body)
    return Call(
        **{"method": "POST", "path": f"{ROOT}/{name}", "headers": HEADERS, **more},
        body=sent,
        who=who,
    )


def pen(back: Back, who: str = "north", **rights: Any) -> Correspondent:
    """Return the way of a peer to a site: letters, handed over at once."""

    async def post(path: str, body: bytes) -> Reply:
        return await respond(back, Call("POST", path, HEADERS, body, who))

    return Correspondent(neighbour("south", **rights), post, random.Random(1))  # noqa: S311


def code(reply: Reply) -> Any:
    return 200 if reply.status == 200 else (reply.status, msgspec.json.decode(reply.body)["code"])


async def answers(back: Back, *calls: Call) -> list[Any]:
    return [code(await respond(back, one)) for one in calls]


# -- what is answered ---------------------------------------------------------------------------


def test_a_peer_is_answered_and_its_label_counts_once() -> None:
    async def main() -> None:
        world = world_of(lambda x: x + 1)
        peer = pen(south(world))

        (helped,) = await peer.ask([AskRow("r", "g1:0", 3, 41)])
        said = [await peer.deliver([("r", 42)]) for _ in range(2)]
        said.append(await peer.deliver([("r", 43), ("s", 1)]))

        assert (helped.label, helped.function) == (42, "f")
        assert said == [["taken"], ["repeated"], ["conflict", "unknown"]]
        assert await peer.report("g1:0", 3) == (1, 0.0, 1.0)
        assert await peer.estimate("g1:0", 3, is_by_context=False) == (1.0, 1)

    virtual.run(main())


def test_a_batch_is_one_letter_and_larger_ones_are_divided() -> None:
    async def main() -> None:
        world = world_of()
        back = south(world)
        sent: list[bytes] = []

        async def post(path: str, body: bytes) -> Reply:
            sent.append(body)
            return await respond(back, Call("POST", path, HEADERS, body, "north"))

        peer = Correspondent(neighbour("south"), post, random.Random(1))  # noqa: S311
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
        first = await pen(south(world)).ask(rows)
        again = await pen(south(world)).ask(rows)
        world.crash("south")
        world.boot("south")
        later = await pen(south(world)).ask(rows)

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
        assert await pen(south(world)).report("g1:0", 1) == (0, 0.0, 1.0)
        assert await answers(south(world), call("ask", {**body, "values": [1, 1]})) == [200]

    virtual.run(main())


def test_who_asks_by_the_cell_gets_the_label_seen_most() -> None:
    async def main() -> None:
        world = world_of()
        peer = pen(south(world))
        (first,) = await peer.ask([AskRow("a", "g1:0", 1)])
        await peer.deliver([("a", "calm")])
        (second,) = await peer.ask([AskRow("b", "g1:0", 2)])

        assert (first.label, second.label) == (NO_ANSWER, "calm")

    virtual.run(main())


def test_a_greeting_has_the_name_and_how_often_the_site_was_started() -> None:
    async def main() -> None:
        world = world_of()
        first = await pen(south(world)).hello()
        world.crash("south")
        world.boot("south")
        second = await pen(south(world)).hello()

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
def test_a_greeting_says_what_cells_and_instances_are_to_those_whom_it_concerns(
    rights: dict[str, Any], knows_cells: bool, knows_data: bool
) -> None:
    async def main() -> None:
        known = {"north": neighbour("north", **rights)}
        takes: Any = {"features": {"size": "FP64"}, "instance": "row"}
        said = await pen(Back(world_of().nodes["south"], known, **takes)).hello()

        cells = [letters.Space("", "1 slices per dimension", 1)] if knows_cells else []
        assert (said.preset, said.spaces) == ("cos" if knows_cells else "", cells)
        data = ("row", [letters.Feature("size", "FP64")]) if knows_data else ("", [])
        assert (said.instance, said.features) == data

    virtual.run(main())


def test_a_site_that_calls_itself_otherwise_is_no_peer() -> None:
    async def main() -> None:
        back = Back(world_of().nodes["north"], {"north": neighbour("north")})
        with pytest.raises(PeerError, match="greeting of 'north'"):
            await pen(back).hello()

    virtual.run(main())


@pytest.mark.parametrize("share", ["none", "context"])
def test_no_letter_is_written_that_shows_more_than_is_shared(share: Any) -> None:
    async def main() -> None:
        sent: list[bytes] = []

        async def post(path: str, body: bytes) -> Reply:
            sent.append(body)
            return Reply(500)

        peer = Correspondent(neighbour("south", share=share), post, random.Random(1))  # noqa: S311
        with pytest.raises(PeerError, match="share"):
            await peer.ask([AskRow("a", "g1:0", 1), AskRow("b", "g1:0", 1, 41)])

        assert sent == []

    virtual.run(main())


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rights", "expected"),
    [
        ({}, [200, 200, 200, 200, 200]),
        ({"may_ask": False}, [(403, "not_allowed")] * 3 + [200, 200]),
    ],
)
def test_what_a_peer_may_stands_in_its_table(rights: dict[str, Any], expected: list[Any]) -> None:
    async def main() -> None:
        back = south(world_of(), **rights)

        assert await answers(back, *map(call, CALLS)) == expected

    virtual.run(main())


def test_who_is_not_listed_may_nothing() -> None:
    async def main() -> None:
        back = south(world_of())

        said = await answers(back, *(call(name, who="west") for name in CALLS))

        assert said == [(403, "not_allowed")] * 5

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
        await pen(back).ask([AskRow("r", "g1:0", 1, 1)])

        said = await pen(back, who="east").deliver([("r", 1), ("never", 1)])

        assert said == ["unknown", "unknown"]
        assert await pen(back).deliver([("r", 1)]) == ["taken"]

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
def test_what_is_no_letter_is_refused(changed: dict[str, Any], expected: Any) -> None:
    async def main() -> None:
        assert await answers(south(world_of()), call("ask", **changed)) == [expected]

    virtual.run(main())


def test_who_does_not_post_is_told_to() -> None:
    async def main() -> None:
        reply = await respond(south(world_of()), call("ask", method="GET"))

        assert reply.headers["Allow"] == "POST"

    virtual.run(main())


@pytest.mark.parametrize("name", ["ask", "report", "estimate"])
@pytest.mark.parametrize("cell", ["g2:0", "g1:0:0", "z0:0", "else/g1:0", "x"])
def test_a_cell_that_cannot_be_is_the_mistake_of_who_asks(name: str, cell: str) -> None:
    async def main() -> None:
        body = {**BODIES[name], "cell": cell}
        if name == "ask":
            body = {**BODIES["ask"], "rows": [["r", cell, 1]]}

        assert await answers(south(world_of()), call(name, body)) == [(422, "invalid")]

    virtual.run(main())


def test_a_function_that_fails_says_nothing_of_itself() -> None:
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
            await respond(Back(Failing(error), {"north": neighbour("north")}), call("ask"))  # type: ignore[arg-type]
            for error in errors
        ]

        assert list(map(code, replies)) == [(503, "busy"), (503, "store_failed")]
        assert not any(b"77" in one.body or b"/var" in one.body for one in replies)
        assert [one.headers["Retry-After"] for one in replies] == ["1", "1"]

    virtual.run(main())


# -- how much, how often, how long --------------------------------------------------------------


def test_a_bucket_lets_a_second_worth_through_and_then_so_many_a_second() -> None:
    bucket = Bucket(2.0)

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
    bucket, now_s, taken = Bucket(rate_per_s), 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        if not bucket.take(now_s):
            taken.append(now_s)

    for k, first in enumerate(taken):
        for count, last in enumerate(taken[k:], 1):
            assert count <= max(1.0, rate_per_s) + rate_per_s * (last - first) + 1e-6


def test_who_calls_too_often_is_told_when_to_come_back_and_others_are_not_kept() -> None:
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


def test_so_many_requests_of_a_peer_are_under_way_and_no_more() -> None:
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
def test_what_nobody_waits_for_any_more_is_not_begun(name: str) -> None:
    async def main() -> None:
        world = world_of()
        before = world.nodes["south"].learner.snapshot()

        said = await answers(south(world), call(name, {**BODIES[name], "deadline_ms": 0}))

        assert said == [(408, "deadline_over")]
        assert world.nodes["south"].learner.snapshot() == before

    virtual.run(main())


def test_letters_say_how_long_their_sender_will_wait() -> None:
    async def main() -> None:
        deadlines: list[int] = []

        async def post(path: str, body: bytes) -> Reply:
            deadlines.append(letters.read(body, Ask).deadline_ms)
            return Reply(503)

        peer = Correspondent(neighbour("south"), post, random.Random(1))  # noqa: S311
        for deadline_s in (0.2504, 1e9, 0.0):
            DEADLINE_S.set(deadline_s)
            with pytest.raises(PeerError):
                await peer.ask([AskRow("r", "g1:0", 1, 1)])

        assert deadlines == [251, letters.MOST_DEADLINE_MS]

    virtual.run(main())


def test_a_refusal_names_its_code_to_who_asked() -> None:
    async def main() -> None:
        with pytest.raises(PeerDeclined, match=r"status 403 \(not_allowed\): you may not ask here"):
            await pen(south(world_of(), may_ask=False)).report("g1:0", 1)

    virtual.run(main())


@pytest.mark.parametrize(
    ("problem", "wait_s"),
    [
        (Problem(429, "too_often", "", {"Retry-After": "7"}), 7.0),
        (Problem(503, "busy", ""), 1.0),
        (Problem(503, "busy", "", {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}), 1.0),
        (Problem(503, "busy", "", {"Retry-After": "-3"}), 1.0),
        (Problem(503, "busy", "", {"Retry-After": "9" * 400}), math.inf),
        (Problem(503, "store_failed", ""), None),
        (Problem(507, "store_full", ""), None),
    ],
)
def test_who_is_busy_says_for_how_long_and_who_is_broken_is_not_busy(
    problem: Problem, wait_s: float | None
) -> None:
    async def main() -> None:
        async def post(path: str, sent: bytes) -> Reply:
            return problem.reply()

        peer = Correspondent(neighbour("south"), post, random.Random(1))  # noqa: S311
        with pytest.raises(PeerError, match=rf"status {problem.status} \({problem.code}\)") as told:
            await peer.report("g1:0", 1)

        assert getattr(told.value, "wait_s", None) == wait_s

    virtual.run(main())


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b'{"code": 1}', b'{"code": "a\\nb"}'])
def test_a_refusal_that_makes_no_sense_is_still_one(body: bytes) -> None:
    async def main() -> None:
        async def post(path: str, sent: bytes) -> Reply:
            return Reply(418, body)

        peer = Correspondent(neighbour("south"), post, random.Random(1))  # noqa: S311
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
            (await respond(back, Call("POST", f"{ROOT}/{name}", HEADERS, body, "north"))).status
            for name, body in sent
        ]

    assert set(virtual.run(main())) <= {200, 400, 403, 408, 413, 422}


def test_a_network_by_letters_decides_as_one_by_calls() -> None:
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

    by_letters = virtual.run(decisions(LetterLink))

    assert by_letters == virtual.run(decisions(virtual.Link))
    assert {arm for _, arm, _, _ in by_letters} == {"f", "g", "north", "south"}


def test_the_kind_of_letters_is_said() -> None:
    async def main() -> None:
        reply = await respond(south(world_of()), call("hello"))

        assert reply.kind == KIND

    virtual.run(main())


@settings(max_examples=25)
@given(st.text("abcdefgh", min_size=8, max_size=20), st.floats(1e-300, 1e300))
def test_who_is_shown_the_context_is_sent_no_byte_of_an_instance(word: str, number: float) -> None:
    config = {
        "policy": {"preset": "cos", "slices": 1},
        "learner": [
            {"name": "north", "functions": ["f"], "peers": {}, "context-peers": {"south": 0.0}},
            {"name": "south", "functions": ["g"], "peers": {}},
        ],
    }
    sent: list[bytes] = []

    class Tapped(LetterLink):
        rights: ClassVar[dict[str, Any]] = {"share": "context"}

        async def _post(self, path: str, body: bytes) -> Reply:
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
