"""Sites of 0.1.0 and of this version in one network: both speak version 1 of the peer protocol."""

import asyncio
import random
from typing import Any

import msgspec
import pytest
from test_peer_api import BODIES, CALLS, call, south, world_of

from covey.errors import PeerDeclined
from covey.node.requests import AskRow, Assistance
from covey.server import peer_messages
from covey.server.http import HttpResponse
from covey.server.peer_client import PeerClient
from covey.server.peer_messages import KIND, VERSIONS_HEADER, AskQuery
from frozen.exchanges import call as asked
from frozen.exchanges import peer_client, peer_world, recorded, reply_of, send
from support import virtual
from support.message_links import neighbour, respond
from support.virtual import World


@pytest.mark.parametrize("announced", [None, "", "1", "1, 2", "2", "two"])
def test_messages_have_version_1_whatever_a_peer_announces(announced: str | None) -> None:
    sent: list[int] = []

    async def post(path: str, body: bytes) -> HttpResponse:
        message = peer_messages.read(body, AskQuery)
        sent.append(message.version)
        given = peer_messages.write(peer_messages.helped(message, [Assistance(1, "f", 0)]))
        return HttpResponse(
            200, given, KIND, {} if announced is None else {VERSIONS_HEADER: announced}
        )

    async def main() -> None:
        peer = PeerClient(neighbour("south"), post, random.Random(1))  # noqa: S311
        for _ in range(2):
            await peer.ask([AskRow("r", "g1:0", 1, 1)])

    asyncio.run(main())
    assert sent == [1, 1]


@pytest.mark.parametrize("name", CALLS)
def test_a_site_announces_its_protocol_version_and_refuses_others(name: str) -> None:
    async def main() -> None:
        back = south(world_of(), may=["status"])
        reply = await respond(back, call(name))
        refused = await respond(back, call(name, {**BODIES[name], "version": 2}))

        assert msgspec.msgpack.decode(reply.body)["version"] == 1
        assert (refused.status, msgspec.json.decode(refused.body)["code"]) == (
            422,
            "protocol_version",
        )
        assert [one.headers[VERSIONS_HEADER] for one in (reply, refused)] == ["1", "1"]

    virtual.run(main())


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ("1", "covey 0.1.0")),
        ({VERSIONS_HEADER: "1, 2", "Covey-Software": "covey 7.1"}, ("1, 2", "covey 7.1")),
        ({VERSIONS_HEADER: "\x1b[2J", "Covey-Software": "a\nb"}, ("1", "covey 0.1.0")),
        ({VERSIONS_HEADER: "1" * 99, "Covey-Software": "x" * 99}, ("1" * 40, "x" * 40)),
    ],
)
def test_a_site_that_announces_nothing_is_of_0_1_0(
    headers: dict[str, str], expected: tuple[str, str]
) -> None:
    assert peer_messages.announced(headers) == expected


# -- networks -----------------------------------------------------------------------------------

CONFIG: dict[str, Any] = {
    "policy": {"preset": "cos", "slices": 2},
    "learner": [
        {"name": "north", "functions": ["f"], "peers": {"south": 0.0}},
        {"name": "south", "functions": ["g"], "peers": {}},
    ],
}


class Recorded(virtual.Link):
    """A peer of 0.1.0: it replies in the bytes that a site of 0.1.0 sent, and in no others.

    Only the ids of the message and of its rows are those of the asker.
    """

    def __init__(self, world: World, source: str, name: str) -> None:
        super().__init__(world, source, name)
        self.kinds: list[str] = []
        self.labels: list[tuple[str, Any]] = []
        self._replies = {one["verb"]: reply_of(one) for one in self._usable()}
        correspondent = PeerClient(neighbour(name), self._post, world.chance)
        self.ask = correspondent.ask  # type: ignore[method-assign]
        self.report = correspondent.report  # type: ignore[method-assign]
        self.deliver = correspondent.deliver  # type: ignore[method-assign]

    def _usable(self) -> list[dict[str, Any]]:
        names = ("ask with text", "report", "label of one that may ask no more")
        return [one for one in recorded("cos") if one["name"] in names]

    async def _post(self, path: str, body: bytes) -> HttpResponse:
        message = msgspec.msgpack.decode(body)
        kind = path.rpartition("/")[2]
        self.kinds.append(kind)
        if kind == "labels":
            self.labels += message["labels"]
            kind = "deliver"
        said = msgspec.msgpack.decode(self._replies[kind].body)
        given = {**said, "request": message["request"]}
        if kind == "deliver":
            given["words"] = said["words"] * len(message["labels"])
        return HttpResponse(200, msgspec.msgpack.encode(given), KIND)


def test_a_site_asks_a_peer_of_0_1_0_and_delivers_its_labels() -> None:
    async def main() -> None:
        world = World(CONFIG, {"f": lambda x: 0, "g": lambda x: 0}, dimension=1, link=Recorded)
        node = world.nodes["north"]
        helped = []
        for _ in range(100):
            answer = await node.predict("text", (0.5,))
            await node.learn(answer.ticket, "text")
            if answer.arm == "south":
                helped.append(answer.label)
        await node.drained()
        peer = node._dependencies.peers["south"]

        assert set(peer.kinds) == {"ask", "report", "labels"}
        assert len(helped) > 50  # as it is right, and the own function never
        assert set(helped) == {"text"}
        assert [label for _, label in peer.labels] == helped
        assert node.counters.alone == 0

    virtual.run(main())


@pytest.mark.parametrize("trust", ["isolated", "robust", "full"])
def test_a_site_of_0_1_0_is_answered_whatever_trust_it_has(trust: Any) -> None:
    """The whole recorded conversation: nothing is refused that was accepted, labels are taken."""

    async def main() -> None:
        world = peer_world("cos")
        world.trust["south"]["north"] = trust
        world.crash("south")
        world.boot("south")
        for record in recorded("cos"):
            reply = await send(world, record)
            assert reply.status == record["status"], record["name"]
        assert world.nodes["south"].state().for_peers.labels > 20
        assert world.stores["south"].check() == []

    virtual.run(main())


def test_a_message_that_a_peer_declines_is_an_error_that_says_so() -> None:
    async def main() -> None:
        problems = [one for one in recorded("cos") if one["status"] == 422]

        async def post(path: str, body: bytes) -> HttpResponse:
            return reply_of(problems[0])

        with pytest.raises(PeerDeclined, match="status 422"):
            await peer_client(post, 1).report("g2:0", 1)
        assert await asked(peer_client(post, 1), "report", ["g2:0", 1]) == "PeerDeclined"

    virtual.run(main())
