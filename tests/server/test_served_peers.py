"""A site that serves peers: which are admitted, and what a peer that hangs does to it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from covey.errors import PeerError
from covey.server import keys as site_keys
from covey.server import peer_messages
from covey.site.requests import AskRow
from support.coroutines import looped
from support.served import FEEDBACK, INFER, Client, infer, serving
from support.site_processes import Offices, table, way

MORE = 100
NODE = {"features": {"size": "FP64", "kind": "BYTES"}, "dimension": 1}
POLICY = table(
    "[policy]",
    {
        "preset": "cos",
        "slices": 1,
        "explore": {"scale": 0.0, "power": 0.0},  # so peers are asked from the first slot on
        "train": {"scale": 1.0, "power": 0.5},
        "explore-peers": {"scale": 1.0, "power": 0.5},
    },
)


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south", "west"])


def north(offices: Offices, *, asks: bool, node: dict[str, Any] | None = None, **peer: Any) -> str:
    """Return the file of north, which knows south, and west not."""
    learner = {"peers": {"south": 0.0} if asks else {}}
    known = offices.peer("south", **peer)
    return offices.file("north", POLICY, known, learner=learner, **NODE, **(node or {}))


# -- which peers are admitted --------------------------------------------------------------------


@looped
async def test_a_site_that_is_not_listed_is_not_let_in(offices: Offices) -> None:
    async with (
        serving(offices.folder, north(offices, asks=False, **{"may-ask": True})),
        way(offices, "west") as peer,
    ):
        for call in (peer.hello(), peer.ask([AskRow("r", "g1:0", 1, 1)])):
            with pytest.raises(PeerError, match="does not list this site"):
                await call


@looped
async def test_a_caller_without_a_certificate_gets_no_byte(offices: Offices) -> None:
    context = ssl.create_default_context(cafile=offices.folder / "north.crt")
    context.check_hostname = False
    async with (
        serving(offices.folder, north(offices, asks=False)),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
    ):
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await session.post(f"{offices.url('north')}{peer_messages.ROOT}/hello", data=b"")


async def answer_to_head(offices: Offices, size: int) -> bytes:
    """Return what north answers to south, which announces a body and sends none of it."""
    folder = offices.folder
    files = folder / "south.crt", folder / "south.key"
    listed = {"north": offices.key("north")}
    host, _, port = offices.url("north").removeprefix("https://").rpartition(":")
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=site_keys.client_context(*files, listed), server_hostname="north"
    )
    head = f"POST {peer_messages.ROOT}/ask HTTP/1.1\r\nHost: north\r\nContent-Length: {size}"
    writer.write(f"{head}\r\nContent-Type: {peer_messages.KIND}\r\n\r\n".encode())
    try:
        return await reader.read()  # until the connection is closed
    finally:
        writer.close()


@pytest.mark.parametrize(("may_ask", "most"), [(False, 64 * 1_024), (True, 4 * 1_024 * 1_024)])
@looped
async def test_a_peer_that_sends_too_much_or_too_often_is_refused_before_its_body_is_read(
    offices: Offices, may_ask: bool, most: int
) -> None:
    rights = {"may-ask": may_ask, "rate-per-s": 0.001}  # one message

    async with serving(offices.folder, north(offices, asks=False, **rights)):
        too_large = await answer_to_head(offices, most + 1)
        too_often = await answer_to_head(offices, most)

    assert too_large.startswith(b"HTTP/1.1 413")
    assert b"at most %d bytes" % most in too_large
    assert too_often.startswith(b"HTTP/1.1 429")
    assert all(b"Connection: close" in answer for answer in (too_large, too_often))


# -- a peer that hangs --------------------------------------------------------------------------


@asynccontextmanager
async def hanging(offices: Offices, *, shakes_hands: bool) -> AsyncIterator[list[Any]]:
    """Be south, accept connections and say nothing; yield the connections."""
    came: list[Any] = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer)
        await reader.read()  # until the other side has had enough
        writer.close()

    folder = offices.folder
    files = folder / "south.crt", folder / "south.key"
    listed = {"north": offices.key("north")}
    context = site_keys.server_context(*files, listed) if shakes_hands else None
    server = await asyncio.start_server(hang, "127.0.0.1", offices.ports["south"], ssl=context)
    try:
        yield came
    finally:
        server.close()
        for writer in came:
            writer.close()
        await server.wait_closed()


async def answered(client: Client, id_: str) -> str:
    """Ask as a client and say the label; return which function answered."""
    status, told = await client.post(INFER, infer(id_))
    assert status == 200
    status, _ = await client.post(FEEDBACK, {"id": id_, "truth": 0})
    assert status == 202
    function: str = told["parameters"]["function"]
    return function


@pytest.mark.parametrize("shakes_hands", [True, False])
@looped
async def test_a_peer_that_hangs_is_left_alone_and_own_clients_are_answered(
    offices: Offices, *, shakes_hands: bool
) -> None:
    text = north(offices, asks=True, node={"timeout-s": 0.5}, share="data")
    async with (
        hanging(offices, shakes_hands=shakes_hands) as came,
        serving(offices.folder, text) as client,
    ):
        first = [await answered(client, f"a{k}") for k in range(3)]
        asked = len(came)
        later = [await answered(client, f"b{k}") for k in range(MORE)]

        assert {*first, *later} == {"zero"}
        assert 1 <= asked <= 3  # one try each, and the deadline is that of the whole decision
        # The breaker lets it be tried after a second, two, four...: not by every request.
        assert len(came) < asked + MORE / 5
