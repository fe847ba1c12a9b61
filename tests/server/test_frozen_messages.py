"""The peer protocol of 0.1.0: recorded requests get the recorded replies, and askers read them."""

import base64
import json

import pytest

from covey.server.http import HttpResponse
from frozen.exchanges import (
    POLICIES,
    Record,
    call,
    peer_client,
    peer_world,
    recorded,
    reply_of,
    send,
)
from support import virtual

EVERY_PRESET = pytest.mark.parametrize("preset", POLICIES)
NEW_NAME = (b"\xa9two-sizes", b"\xa4auto")  # of a preset, as strings of MessagePack
NEW_HEADERS = {"Covey-Versions", "Covey-Software"}  # 0.1.0 ignores them
pytestmark = pytest.mark.beside_the_kernel


def of_askers(preset: str) -> list[Record]:
    """Return the exchanges whose requests an asker of 0.1.0 wrote."""
    return [record for record in recorded(preset) if record["verb"]]


@EVERY_PRESET
def test_every_kind_of_message_was_recorded(preset: str) -> None:
    records = recorded(preset)
    problems = [json.loads(reply_of(one).body)["code"] for one in records if one["status"] != 200]
    bodies = b"".join(base64.b64decode(one["request"]) for one in records)

    assert {one["verb"] for one in of_askers(preset)} == {
        "ask",
        "report",
        "estimate",
        "deliver",
        "hello",
    }
    assert {
        "bad_letter",
        "deadline_over",
        "invalid",
        "media_type",
        "method",
        "not_allowed",
        "not_classified",
        "not_found",
        "protocol_version",
        "too_often",
    } == set(problems)
    assert all(word in bodies for word in (b"i8", b"f8", b"values", b"is_by_context"))


@EVERY_PRESET
def test_a_peer_replies_as_0_1_0_did(preset: str) -> None:
    async def main() -> None:
        world = peer_world(preset)
        for record in recorded(preset):
            reply, kept = await send(world, record), reply_of(record)

            assert (reply.status, reply.kind) == (kept.status, kept.kind), record["name"]
            assert kept.headers.items() <= reply.headers.items(), record["name"]
            assert reply.headers.keys() - kept.headers.keys() <= NEW_HEADERS
            if kept.status == 200:
                assert reply.body.replace(*NEW_NAME) == kept.body, record["name"]
            else:  # sentences may become better; codes are what peers go by
                codes = [json.loads(one.body)["code"] for one in (reply, kept)]
                assert codes[0] == codes[1], record["name"]

    virtual.run(main())


@EVERY_PRESET
def test_an_asker_reads_the_replies_of_0_1_0(preset: str) -> None:
    async def main() -> None:
        for record in of_askers(preset):

            async def post(path: str, body: bytes, record: Record = record) -> HttpResponse:
                return reply_of(record)

            found = await call(peer_client(post, record["first"]), record["verb"], record["given"])
            assert found == record["result"], record["name"]

    virtual.run(main())


@EVERY_PRESET
def test_an_asker_writes_the_requests_of_0_1_0(preset: str) -> None:
    async def main() -> None:
        for record in of_askers(preset):
            sent = []

            async def post(path: str, body: bytes, sent=sent, record=record) -> HttpResponse:
                sent.append((path, body))
                return reply_of(record)

            await call(peer_client(post, record["first"]), record["verb"], record["given"])
            assert sent == [(record["path"], base64.b64decode(record["request"]))], record["name"]

    virtual.run(main())
