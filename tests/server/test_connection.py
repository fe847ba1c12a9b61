"""One connection: what is refused, in which order requests are answered, and how it ends."""

import asyncio
import gc
import gzip
import random
import re
import ssl
import tracemalloc
import zlib
from pathlib import Path

import pytest

from covey.server import connection, keys
from covey.server.connection import Connection
from covey.server.http import HttpProblem
from covey.server.keys import Tls
from support.coroutines import looped
from support.listening import GET, Port, listened, listening, post, told
from support.served import INFER, Client, served

# -- bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize(("size", "status"), [(2_048, b"200"), (2_049, b"413"), (10**7, b"413")])
@listened(binary_kib=2, idle_s=0.2)
async def test_a_compressed_body_has_the_size_of_what_it_holds(
    port: Port, coding: str, size: int, status: bytes
) -> None:
    body = bytes(size)
    packed = gzip.compress(body) if coding == "gzip" else zlib.compress(body)

    answer = await port.answers(post(packed, kind=f"x\r\nContent-Encoding: {coding}"))

    assert answer.split()[1] == status
    assert answer.endswith(b"\r\n\r\n" + body) == (status == b"200")
    assert port.echo.calls == (status == b"200")


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        gzip.compress(b"{}")[:-1],
        gzip.compress(b"{}") + b"more",
        gzip.compress(b"{}") + gzip.compress(b"{}"),
        gzip.compress(b"")[:-8],
    ],
    ids=["no gzip", "one that ends early", "bytes after it", "two", "nothing that ends early"],
)
@listened(idle_s=0.2)
async def test_a_body_that_is_not_compressed_as_it_says_is_400(port: Port, body: bytes) -> None:
    answer = await port.answers(post(body, kind="x\r\nContent-Encoding: gzip"))

    assert answer.startswith(b"HTTP/1.1 400")
    assert b"broken_body" in answer
    assert port.echo.calls == 0


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("letters", [b"a", bytes(range(256))])
def test_a_compressed_body_is_inflated(size: int, letters: bytes) -> None:
    body = (random.Random(size).randbytes(size // 2) + letters * size)[:size]  # noqa: S311

    assert connection.inflate(gzip.compress(body), "gzip", max(1, size)) == body


def test_others_have_their_turn_while_a_compressed_body_is_inflated() -> None:
    draw = random.Random(7).randbytes  # noqa: S311
    body = b"".join(draw(256) + bytes(12_000) for _ in range(170))  # 40 times its compressed form
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def story(port: Port) -> None:
        counting = asyncio.create_task(count())
        answer = await port.answers(post(gzip.compress(body), kind="x\r\nContent-Encoding: gzip"))
        counting.cancel()

        assert answer.endswith(b"\r\n\r\n" + body)

    told(story, idle_s=0.2)
    assert turns > 20


@listened(idle_s=60)
async def test_a_body_that_is_far_larger_than_its_compressed_form_is_not_inflated(
    port: Port,
) -> None:
    bomb = gzip.compress(bytes(2**24))
    answer = await port.answers(post(bomb, kind="x\r\nContent-Encoding: gzip"))

    assert answer.startswith(b"HTTP/1.1 413")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"Connection: close" in answer
    assert b"send the body plain" in answer
    assert port.echo.calls == 0
    tracemalloc.start()
    with pytest.raises(HttpProblem):
        connection.inflate(bomb, "gzip", 2**25)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


@pytest.mark.parametrize(
    "endless",
    [b"0\r\nX: " + b"y" * 300_000, b"0\r\n" + b"X: y\r\n" * 50_000, b"1;" + b"y" * 300_000],
    ids=["one line after the body", "many lines after it", "a chunk's extension"],
)
@listened(body_s=20, idle_s=0.2)
async def test_what_is_not_of_a_chunked_body_itself_has_the_size_of_a_head(
    port: Port, endless: bytes
) -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

    answer = await port.answers(head + b"2\r\n{}\r\n" + endless)

    assert answer.split()[1] == b"431"
    assert port.echo.calls == 0


@listened(body_s=60.0, idle_s=0.2)
async def test_a_body_in_small_chunks_takes_no_more_memory_than_it_has_bytes(port: Port) -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = head + b"2\r\n{}\r\n" * 20_000 + b"0\r\n\r\n"

    tracemalloc.start()
    answer = await port.answers(sent)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert answer.endswith(b"{}" * 20_000)
    assert peak < 5 * len(sent)


# -- several requests on one connection -----------------------------------------------------------


@listened(idle_s=0.3)
async def test_requests_sent_ahead_are_answered_in_order_and_one_at_a_time(port: Port) -> None:
    port.echo.may_answer.clear()
    sent = b"".join(post(b"%d" % k) for k in range(60))
    reading = asyncio.create_task(port.answers(sent + post(b"last", length=4)))
    while not port.echo.calls:
        await asyncio.sleep(0)
    assert port.echo.calls == 1
    port.echo.may_answer.set()

    bodies = re.findall(rb"\r\n\r\n(\d+|last)", await reading)
    assert bodies == [b"%d" % k for k in range(60)] + [b"last"]


@listened(idle_s=0.3)
async def test_too_many_requests_sent_ahead_are_refused_after_the_first_are_answered(
    port: Port,
) -> None:
    answer = await port.answers(GET * 1_000)

    assert answer.count(b" 200 OK") == port.echo.calls == 64
    assert answer.count(b" 429 ") == 1
    assert b"at most 64 requests may be sent ahead" in answer


@listened()
async def test_a_client_that_stops_sending_still_gets_its_answer(port: Port) -> None:
    port.echo.may_answer.clear()
    reader, writer = await port.open(post(b"7"))
    while not port.echo.calls:
        await asyncio.sleep(0)
    writer.write_eof()
    port.echo.may_answer.set()

    assert (await reader.read()).endswith(b"\r\n\r\n7")
    writer.close()


@listened()
async def test_a_body_that_ends_early_is_400(port: Port) -> None:
    reader, writer = await port.open(post(b"{", length=2))
    writer.write_eof()

    assert b"broken_body" in await reader.read()
    assert port.echo.calls == 0
    writer.close()


@listened(json_kib=1)
async def test_a_client_that_waits_for_a_word_gets_it_unless_its_body_is_refused(
    port: Port,
) -> None:
    def asks(size: int) -> bytes:
        return post(b"", kind="application/json\r\nExpect: 100-continue", length=size)

    reader, writer = await port.open(asks(2))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()

    assert (await port.answers(asks(2_000))).startswith(b"HTTP/1.1 413")


@served()
async def test_the_answer_to_head_is_the_one_to_get_without_its_body(client: Client) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/north", "/nowhere"):
        async with client.session.get(client.root + path) as got:
            body = await got.read()
        async with client.session.head(client.root + path) as head:
            assert (head.status, await head.read()) == (got.status, b"")
            assert head.headers["Content-Length"] == str(len(body))
            assert head.headers["Content-Type"] == got.headers["Content-Type"]
    async with client.session.head(client.root + INFER) as head:
        assert (head.status, head.headers["Allow"]) == (405, "POST")


@listened(idle_s=0.2)
async def test_an_upgrade_to_another_protocol_is_ignored_or_refused(port: Port) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"

    answer = await port.answers(GET[:-2] + upgrade + b"\r\n" + GET)
    assert answer.count(b"HTTP/1.1 200") == answer.count(b"Connection: close") == 1

    refused = await port.answers(post(b"7").replace(b"Host", upgrade + b"Host", 1))
    assert refused.count(b"HTTP/1.1 400") == 1
    assert b"send no Upgrade header" in refused
    assert port.echo.calls == 1


@pytest.mark.parametrize("is_last", [True, False])
@looped
async def test_stopping_answers_what_was_asked_and_closes_the_rest(is_last: bool) -> None:
    async with asyncio.timeout(20), listening() as port:
        port.echo.may_answer.clear()
        asked, silent = await port.open(post(b"7")), await port.open()
        while not port.echo.calls:
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0, port.echo.may_answer.set if is_last else int)
    answer = await asked[0].read()
    assert (b"\r\n\r\n7" in answer) == (b"Connection: close" in answer) == is_last
    assert await silent[0].read() == b""
    for _, writer in (asked, silent):
        writer.close()


def test_closed_tls_connections_release_their_memory_at_once(tmp_path: Path) -> None:
    keys.new("north", hosts=["127.0.0.1"], folder=tmp_path)
    files = tmp_path / "north.crt", tmp_path / "north.key"
    trust = ssl.create_default_context(cafile=files[0])

    def left() -> int:
        return sum(isinstance(one, Connection | Tls) for one in gc.get_objects())

    async def story(port: Port) -> None:
        for context, sent in ((trust, GET), (trust, b"nonsense\r\n\r\n"), (None, b"\x16\x03")):
            _, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=context)
            writer.write(sent)
            await writer.drain()
            writer.transport.abort()
        while left():
            await asyncio.sleep(0)  # until the other end has noticed

    gc.collect()
    gc.disable()
    try:
        told(story, tls=lambda: keys.open_context(*files))
    finally:
        gc.enable()
