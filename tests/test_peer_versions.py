"""Sites of different versions agree on the newest version of the peer protocol that both know."""

import asyncio
import contextlib
import random

import msgspec

import virtual
from covey import letters
from covey.calls import Problem, Reply
from covey.correspondents import Correspondent
from covey.errors import PeerDeclined
from covey.letters import KIND, Ask
from covey.peers import Help, Request
from letterbox import neighbour, respond
from test_back import BODIES, call, south, world_of


def test_an_ask_has_the_newest_version_that_the_latest_response_announced() -> None:
    announced = ["1, 2", "1, 2, 9", None, "1, 2", "two", ""]  # None: an older site refuses it
    asked: list[int] = []

    async def post(path: str, body: bytes) -> Reply:
        letter, said = letters.read(body, Ask), announced[len(asked)]
        asked.append(letter.version)
        if said is None:
            return Problem(422, "protocol_version", "this site speaks 1").reply()
        given = letters.write(letters.helped(letter, [Help(1, "f", 0)]))
        return Reply(200, given, KIND, {letters.VERSIONS_HEADER: said} if said else {})

    async def main() -> None:
        peer = Correspondent(neighbour("south"), post, random.Random(1))  # noqa: S311
        for _ in announced:
            with contextlib.suppress(PeerDeclined):
                await peer.ask([Request("r", "g1:0", 1, 1)])

    asyncio.run(main())
    assert asked == [1, 2, 2, 1, 2, 1]


def test_a_site_announces_its_versions_and_answers_in_that_of_the_message() -> None:
    async def main() -> None:
        back = south(world_of())
        for version in (1, 2):
            reply = await respond(back, call("ask", {**BODIES["ask"], "version": version}))

            assert msgspec.msgpack.decode(reply.body)["version"] == version
            assert reply.headers[letters.VERSIONS_HEADER] == "1, 2"

    virtual.run(main())
