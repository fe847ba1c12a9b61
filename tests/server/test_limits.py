"""What a listener takes: how much, from how many, how fast, and for how long."""

import asyncio
import gc
import gzip
import re
import ssl
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey import cli
from covey.bandit.learner import UNKNOWN
from covey.errors import ConfigError, StoreError, StoreFull
from covey.node.requests import Commit, Request, RowGroup
from covey.node.store import Store
from covey.server import config, http, keys
from covey.server.connection import Connection, Tls
from covey.server.http import (
    Address,
    AdmissionQueue,
    ConnectionLimit,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    SiteLimits,
    problem_of,
)
from covey.server.listener import Listener, LoopbackOnly
from support.served import FEEDBACK, INFER, INPUTS, SITE, Client, infer, run

pytestmark = pytest.mark.beside_the_kernel

GET = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
DOCS = Path(__file__).parents[2] / "docs" / "operations" / "operating.md"


class Echo:
    """Answers with what was sent, when it is let."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.calls = 0
        self.copies = 1

    async def handle(self, call: HttpRequest) -> HttpResponse:
        self.calls += 1
        self.headers = call.headers
        await self.may_answer.wait()
        return HttpResponse(body=call.body * self.copies)


class Port:
    """A listener, and what comes over its connections."""

    def __init__(self, port: int, echo: Echo) -> None:
        self.port = port
        self.echo = echo

    async def open(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        return reader, writer

    async def answers(self, sent: bytes) -> bytes:
        """All that comes until the connection is closed; nothing if it is reset."""
        reader, writer = await self.open(sent)
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def listening(
    *, tls: Callable[[], ssl.SSLContext] | None = None, **changes: Any
) -> AsyncIterator[Port]:
    echo = Echo()
    address = Address("127.0.0.1", 0)
    listener = Listener(
        echo,
        address,
        gate=LoopbackOnly(),
        limits=SiteLimits(**{"finish_s": 1.0} | changes),
        tls=tls,
    )
    url = await listener.open()
    try:
        yield Port(int(url.rpartition(":")[2]), echo)
    finally:
        await listener.close()


def told(story: Callable[[Port], Awaitable[None]], **changes: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), listening(**changes) as port:
            await story(port)

    asyncio.run(main())


def post(body: bytes, *, kind: str = "application/json", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {size}"
    return head.encode() + b"\r\n\r\n" + body


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET", GET[:-1]])
def test_a_head_that_does_not_come_closes_the_connection(sent: bytes) -> None:
    async def story(port: Port) -> None:
        answer = await port.answers(sent)

        assert answer.startswith(b"HTTP/1.1 408" if sent else b"")
        assert (b'"code":"too_slow"' in answer) == bool(sent)
        assert port.echo.calls == 0

    told(story, head_s=0.2)


def test_a_head_may_be_slow_after_another_request_no_more_than_at_first() -> None:
    async def story(port: Port) -> None:
        reader, writer = await port.open(GET)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"GET")

        assert b"too_slow" in await reader.read()
        writer.close()

    told(story, head_s=0.2)


def test_a_connection_is_closed_when_nothing_is_asked_for_long() -> None:
    async def story(port: Port) -> None:
        answer = await port.answers(GET)

        assert [answer.count(word) for word in (b"HTTP/1.1", b"200 OK")] == [1, 1]

    told(story, idle_s=0.2)


def test_a_body_that_does_not_come_is_408() -> None:
    async def story(port: Port) -> None:
        answer = await port.answers(post(b"{", length=2))

        assert answer.startswith(b"HTTP/1.1 408")
        assert port.echo.calls == 0

    told(story, body_s=0.2)


def test_a_client_that_does_not_read_the_answer_is_cut_off() -> None:
    async def story(port: Port) -> None:
        port.echo.copies = 64
        _, writer = await port.open(post(bytes(2**20), kind="x"))
        while not port.echo.calls:
            await asyncio.sleep(0)

        while b" 200 " not in await port.answers(GET):
            pass  # until there is room for another
        writer.close()

    told(story, answer_s=0.2, connections=1, idle_s=0.2)


def test_a_failed_tls_handshake_is_cut_off(tmp_path: Path) -> None:
    keys.new_authority(tmp_path / "ca")
    keys.new_site("north", hosts=["127.0.0.1"], authority=tmp_path / "ca", folder=tmp_path)
    files = (tmp_path / "north.crt", tmp_path / "north.key", tmp_path / "ca" / "ca.crt")

    async def story(port: Port) -> None:
        assert await port.answers(b"") == b""
        assert await port.answers(b"\x16\x03\x01") == b""
        garbage = await port.answers(b"nonsense" * 100)
        assert b"HTTP" not in garbage
        assert port.echo.calls == 0

    told(story, handshake_s=0.2, tls=lambda: keys.open_context(*files))


def test_closed_tls_connections_release_their_memory_at_once(tmp_path: Path) -> None:
    keys.new_authority(tmp_path / "ca")
    keys.new_site("north", hosts=["127.0.0.1"], authority=tmp_path / "ca", folder=tmp_path)
    files = (tmp_path / "north.crt", tmp_path / "north.key", tmp_path / "ca" / "ca.crt")
    trust = ssl.create_default_context(cafile=files[2])

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


# -- size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        GET[:-2] + b"X: " + b"y" * 1_100 + b"\r\n\r\n",
        GET[:-2] + b"X: " + b"y" * 1_100,
        GET[:-2] + b"".join(b"X%d: yyyyyyyy\r\n" % k for k in range(90)) + b"\r\n",
        GET.replace(b"/v2", b"/" + b"y" * 1_100),
    ],
    ids=["a long line", "one that never ends", "many lines", "a long path"],
)
def test_a_head_beyond_its_size_is_431(head: bytes) -> None:
    async def story(port: Port) -> None:
        answer = await port.answers(head)

        assert answer.split()[1] == b"431"
        assert b"head_too_large" in answer
        assert port.echo.calls == 0

    told(story, head_kib=1, head_s=0.5, idle_s=0.5)


def test_a_body_in_the_same_packet_does_not_count_as_head() -> None:
    async def story(port: Port) -> None:
        answer = await port.answers(post(b"7" * 200_000))

        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.count(b"7" * 200_000) == 1

    told(story, head_kib=1, idle_s=0.2)


@pytest.mark.parametrize(
    ("kind", "size", "status"),
    [
        ("application/json", 1_024, b"200"),
        ("application/json", 1_025, b"413"),
        ("application/json; charset=utf-8", 1_025, b"413"),
        ("application/octet-stream", 1_024, b"200"),
        ("application/octet-stream", 1_025, b"413"),
        ("", 1_025, b"413"),
        ("\r\nInference-Header-Content-Length: 9", 2_048, b"200"),
        ("\r\nInference-Header-Content-Length: 9", 2_049, b"413"),
        ("application/msgpack", 2_048, b"200"),
        ("application/msgpack", 2_049, b"413"),
    ],
)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_json_and_other_bodies_have_a_size_each(
    kind: str, size: int, status: bytes, is_chunked: bool
) -> None:
    sent = post(bytes(size), kind=kind)
    if is_chunked:
        head, _, body = sent.partition(b"\r\n\r\n")
        head = head.replace(b"Content-Length: %d" % size, b"Transfer-Encoding: chunked")
        sent = head + b"\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (size, body)

    async def story(port: Port) -> None:
        answer = await port.answers(sent)

        assert answer.split()[1] == status
        assert port.echo.calls == (status == b"200")

    told(story, json_kib=1, binary_kib=2, idle_s=0.2)


def test_all_bodies_together_have_a_size() -> None:
    async def story(port: Port) -> None:
        port.echo.may_answer.clear()
        first = asyncio.create_task(port.answers(post(bytes(600_000), kind="x")))
        while not port.echo.calls:
            await asyncio.sleep(0)
        second = await port.answers(post(bytes(600_000), kind="x"))
        port.echo.may_answer.set()

        assert second.startswith(b"HTTP/1.1 503")
        assert (await first).startswith(b"HTTP/1.1 200")
        assert (await port.answers(post(bytes(600_000), kind="x"))).startswith(b"HTTP/1.1 200")

    told(story, bodies_mib=1, idle_s=0.2)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize(("size", "status"), [(2_048, b"200"), (2_049, b"413"), (10**7, b"413")])
def test_a_compressed_body_has_the_size_of_what_it_holds(
    coding: str, size: int, status: bytes
) -> None:
    body = bytes(size)
    packed = gzip.compress(body) if coding == "gzip" else zlib.compress(body)

    async def story(port: Port) -> None:
        answer = await port.answers(post(packed, kind=f"x\r\nContent-Encoding: {coding}"))

        assert answer.split()[1] == status
        assert answer.endswith(b"\r\n\r\n" + body) == (status == b"200")
        assert port.echo.calls == (status == b"200")

    told(story, binary_kib=2, idle_s=0.2)


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
def test_a_body_that_is_not_compressed_as_it_says_is_400(body: bytes) -> None:
    async def story(port: Port) -> None:
        answer = await port.answers(post(body, kind="x\r\nContent-Encoding: gzip"))

        assert answer.startswith(b"HTTP/1.1 400")
        assert b"broken_body" in answer
        assert port.echo.calls == 0

    told(story, idle_s=0.2)


def test_bytes_of_compressed_and_refused_bodies_are_released() -> None:
    async def story(port: Port) -> None:
        for body in (gzip.compress(bytes(700_000)), gzip.compress(bytes(700_000))[:-1]) * 2:
            await port.answers(post(body, kind="x\r\nContent-Encoding: gzip"))
        answer = await port.answers(post(bytes(700_000), kind="x"))

        assert answer.startswith(b"HTTP/1.1 200")

    told(story, bodies_mib=1, idle_s=0.2)


@pytest.mark.parametrize(
    "endless",
    [b"0\r\nX: " + b"y" * 300_000, b"0\r\n" + b"X: y\r\n" * 50_000, b"1;" + b"y" * 300_000],
    ids=["one line after the body", "many lines after it", "a chunk's extension"],
)
def test_what_is_not_of_a_chunked_body_itself_has_the_size_of_a_head(endless: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def story(port: Port) -> None:
        answer = await port.answers(head + b"2\r\n{}\r\n" + endless)

        assert answer.split()[1] == b"431"
        assert port.echo.calls == 0

    told(story, body_s=20, idle_s=0.2)


def test_a_body_in_small_chunks_takes_no_more_memory_than_it_has_bytes() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = head + b"2\r\n{}\r\n" * 200_000 + b"0\r\n\r\n"

    async def story(port: Port) -> None:
        tracemalloc.start()
        answer = await port.answers(sent)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

        assert answer.endswith(b"{}" * 200_000)
        assert peak < 5 * len(sent)

    told(story, json_kib=1_000, idle_s=0.2)


def test_headers_after_the_body_are_ignored() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def story(port: Port) -> None:
        answer = await port.answers(head + b"2\r\n{}\r\n0\r\nAuthorization: x\r\n\r\n")

        assert answer.startswith(b"HTTP/1.1 200")
        assert "authorization" not in port.echo.headers

    told(story, idle_s=0.2)


# -- several requests on one connection -----------------------------------------------------------


def test_requests_sent_ahead_are_answered_in_order_and_one_at_a_time() -> None:
    async def story(port: Port) -> None:
        port.echo.may_answer.clear()
        sent = b"".join(post(b"%d" % k) for k in range(60))
        reading = asyncio.create_task(port.answers(sent + post(b"last", length=4)))
        while not port.echo.calls:
            await asyncio.sleep(0)
        assert port.echo.calls == 1
        port.echo.may_answer.set()

        bodies = re.findall(rb"\r\n\r\n(\d+|last)", await reading)
        assert bodies == [b"%d" % k for k in range(60)] + [b"last"]

    told(story, idle_s=0.3)


def test_too_many_requests_sent_ahead_are_refused_after_the_first_are_answered() -> None:
    async def story(port: Port) -> None:
        answer = await port.answers(GET * 1_000)

        assert answer.count(b" 200 OK") == port.echo.calls == 64
        assert answer.count(b" 429 ") == 1
        assert b"at most 64 requests may be sent ahead" in answer

    told(story, idle_s=0.3)


def test_a_client_that_stops_sending_still_gets_its_answer() -> None:
    async def story(port: Port) -> None:
        port.echo.may_answer.clear()
        reader, writer = await port.open(post(b"7"))
        while not port.echo.calls:
            await asyncio.sleep(0)
        writer.write_eof()
        port.echo.may_answer.set()

        assert (await reader.read()).endswith(b"\r\n\r\n7")
        writer.close()

    told(story)


def test_a_body_that_ends_early_is_400() -> None:
    async def story(port: Port) -> None:
        reader, writer = await port.open(post(b"{", length=2))
        writer.write_eof()

        assert b"broken_body" in await reader.read()
        assert port.echo.calls == 0
        writer.close()

    told(story)


def test_a_client_that_waits_for_a_word_gets_it_unless_its_body_is_refused() -> None:
    def asks(size: int) -> bytes:
        return post(b"", kind="application/json\r\nExpect: 100-continue", length=size)

    async def story(port: Port) -> None:
        reader, writer = await port.open(asks(2))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()

        assert (await port.answers(asks(2_000))).startswith(b"HTTP/1.1 413")

    told(story, json_kib=1)


def test_the_answer_to_head_is_the_one_to_get_without_its_body(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/north", "/nowhere"):
            async with client.session.get(client.root + path) as got:
                body = await got.read()
            async with client.session.head(client.root + path) as head:
                assert (head.status, await head.read()) == (got.status, b"")
                assert head.headers["Content-Length"] == str(len(body))
                assert head.headers["Content-Type"] == got.headers["Content-Type"]
        async with client.session.head(client.root + INFER) as head:
            assert (head.status, head.headers["Allow"]) == (405, "POST")

    run(tmp_path, story)


def test_an_upgrade_to_another_protocol_is_ignored_or_refused() -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"

    async def story(port: Port) -> None:
        answer = await port.answers(GET[:-2] + upgrade + b"\r\n" + GET)
        assert answer.count(b"HTTP/1.1 200") == answer.count(b"Connection: close") == 1

        refused = await port.answers(post(b"7").replace(b"Host", upgrade + b"Host", 1))
        assert refused.count(b"HTTP/1.1 400") == 1
        assert b"send no Upgrade header" in refused
        assert port.echo.calls == 1

    told(story, idle_s=0.2)


@pytest.mark.parametrize("is_last", [True, False])
def test_stopping_answers_what_was_asked_and_closes_the_rest(is_last: bool) -> None:
    async def main() -> None:
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

    asyncio.run(main())


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["connections", "connections_per_address"])
def test_connections_beyond_their_number_are_503_until_others_leave(key: str) -> None:
    async def story(port: Port) -> None:
        inside = [await port.open() for _ in range(3)]
        assert (await port.answers(GET)).startswith(b"HTTP/1.1 503")
        assert port.echo.calls == 0

        inside[0][1].close()
        await inside[0][1].wait_closed()
        while b" 200 " not in await port.answers(GET):
            pass  # until the other end has noticed
        for _, writer in inside:
            writer.close()

    told(story, **{key: 3}, idle_s=0.2)


def test_the_connection_limit_counts_each_address_and_all() -> None:
    crowd = ConnectionLimit(3, 2)

    assert [crowd.enter(one) for one in "aaabb"] == [True, True, False, True, False]
    crowd.leave("a")
    assert [crowd.enter(one) for one in "ba"] == [True, False]
    assert len(crowd) == 3


def test_only_an_address_with_more_connections_makes_room_for_another() -> None:
    crowd = ConnectionLimit(6, 4)
    for one in "aaaabb":
        crowd.enter(one)

    assert [crowd.rival(one) for one in "abc"] == [None, "a", "a"]
    crowd.leave("a")
    crowd.leave("a")
    assert [crowd.rival(one) for one in "abc"] == [None, None, "a"]


@pytest.mark.parametrize("port_of", ["127.0.0.1", "127.0.0.2"])
def test_silent_connections_of_one_address_make_room_for_those_of_another(port_of: str) -> None:
    async def story(port: Port) -> None:
        silent = [await port.open() for _ in range(3)]
        busy = await port.open(post(b"{", length=2))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port.port, local_addr=(port_of, 0)
        )
        writer.write(GET)
        answer = await reader.readuntil(b"\r\n")
        writer.close()

        assert (b"200" in answer) == (port_of == "127.0.0.2")
        busy[1].write(b"}")
        assert b" 200 " in await busy[0].readuntil(b"\r\n")
        for _, one in (*silent, busy):
            one.close()

    told(story, connections=4)


def test_requests_beyond_their_number_wait_and_then_are_503() -> None:
    async def story(port: Port) -> None:
        port.echo.may_answer.clear()
        inside = [asyncio.create_task(port.answers(GET)) for _ in range(3)]
        while port.echo.calls < 2:
            await asyncio.sleep(0)
        refused = b""
        while b"503" not in refused:  # as soon as the third waits
            refused = await port.answers(GET) if port.echo.calls == 2 else b"more were served"
        port.echo.may_answer.set()

        assert b"Retry-After: 1" in refused
        assert [(await one).split()[1] for one in inside] == [b"200"] * 3
        assert port.echo.calls == 3

    told(story, in_flight=2, queue=1, idle_s=0.2)


def test_turns_are_taken_in_order() -> None:
    async def main() -> None:
        turns, order = AdmissionQueue(1, 5), []
        inside = asyncio.Event()

        async def one(k: int) -> None:
            async with turns:
                order.append(k)
                await inside.wait()

        tasks = [asyncio.create_task(one(k)) for k in range(6)]
        await asyncio.sleep(0)
        with pytest.raises(HttpProblem):
            await one(6)
        tasks[1].cancel()
        inside.set()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert order == [0, 2, 3, 4, 5]

    asyncio.run(main())


def test_a_client_above_its_rate_gets_retry_after(tmp_path: Path) -> None:
    text = SITE.replace("rows = 100", "rows = 100\nrequests-per-s = 0.001")

    async def story(client: Client) -> None:
        assert (await client.get("/v2"))[0] == 200
        status, told = await client.get("/v2")
        assert (status, told["code"]) == (429, "too_often")
        async with client.session.get(client.root + "/v2") as response:
            assert 900 < int(response.headers["Retry-After"]) <= 1_000

    run(tmp_path, story, text)


def test_by_default_only_clients_of_other_machines_have_a_rate_limit(tmp_path: Path) -> None:
    keys.new_authority(tmp_path / "ca")
    keys.new_site("north", hosts=["127.0.0.1"], authority=tmp_path / "ca", folder=tmp_path)
    identity = 'certificate = "north.crt"\nkey = "north.key"\nauthority = "ca/ca.crt"\n'
    outside = SITE.replace("127.0.0.1:0", "0.0.0.0:0").replace(
        "dimension", identity + 'tokens = "tokens.json"\ndimension'
    )
    for text, rate in ((SITE, None), (outside, 1_000.0)):
        (tmp_path / "site.toml").write_text(text)

        assert config.load(tmp_path / "site.toml").requests_per_s == rate


# -- the store ------------------------------------------------------------------------------------


def test_a_full_disk_is_507_and_nothing_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "north.store")
    store.load("north", "fingerprint")
    pages = store._base.execute("PRAGMA page_count").fetchone()[0]
    store._base.execute(f"PRAGMA max_page_count = {pages}")
    request = Request(
        number=1,
        source="",
        id="a",
        digest="x" * 100_000,
        slot=1,
        groups=[RowGroup(0, "g1:0", "explore", "zero", 0.0)],
        contexts=[()],
        predictions=[0],
        answers=[0],
        truths=[UNKNOWN],
    )

    with pytest.raises(StoreFull) as refused:
        store.commit(Commit(requests=[request]))

    problem = problem_of(refused.value)
    assert (problem.status, problem.code) == (507, "store_full")
    assert problem_of(StoreError("a disk error")).status == 503
    assert store.size()["rows"] == 0


# -- banners, files, documents --------------------------------------------------------------------


def test_no_response_has_a_server_header(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        for path in ("/v2", "/nowhere", INFER, FEEDBACK):
            async with client.session.get(client.root + path) as response:
                assert "Server" not in response.headers
        await client.post(INFER, infer())

    run(tmp_path, story)

    async def broken(port: Port) -> None:
        answer = await port.answers(b"nonsense\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"bad_http" in answer
        assert b"Server" not in answer
        assert b"Python" not in answer

    told(broken)


@pytest.mark.parametrize("key", http.RANGES)
def test_a_limit_has_a_range_and_is_documented(key: str) -> None:
    name, (low, high) = key.replace("_", "-"), http.RANGES[key]
    default = getattr(SiteLimits(), key)
    kind = type(default) if default is not None else float

    for outside in (low - max(1, low / 2), high * 2):
        with pytest.raises(ConfigError, match=rf"\[limits\] {name} is .* must lie from"):
            http.read_limits({name: kind(outside)}, label_wait=0)
    assert getattr(http.read_limits({name: kind(high)}, label_wait=0), key) == high
    assert f"| `{name}` |" in DOCS.read_text()


def test_every_limit_has_a_range() -> None:
    assert list(http.RANGES) == [field.name for field in msgspec.structs.fields(SiteLimits)]
    with pytest.raises(ConfigError, match="unknown key 'row' in .limits.; did you mean 'rows'"):
        http.read_limits({"row": 1}, label_wait=0)


@pytest.mark.parametrize(
    ("table", "wait", "says"),
    [
        (
            {"tickets": 12_047},
            10_000,
            "[limits] tickets = 12047 is no room; make that 12048 or more",
        ),
        ({"tickets": 39, "rows": 10}, 20, "[limits] tickets = 39 is no room; make that 40"),
        (
            {"peer-tickets": 12_047},
            10_000,
            "[limits] peer-tickets = 12047 is no room; make that 12048",
        ),
        ({}, 10**8, "[policy] label-wait is 100000000, and the tickets of so many slots are held"),
    ],
)
def test_room_for_fewer_tickets_than_are_waited_for_is_refused(
    table: dict[str, int], wait: int, says: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        http.read_limits(table, label_wait=wait)


def test_room_for_tickets_that_is_left_out_is_enough_for_the_wait() -> None:
    few, many = (http.read_limits({"rows": 10}, label_wait=wait) for wait in (10, 5_000_000))

    assert (few.tickets, few.peer_tickets) == (1_000_000, 100_000)
    assert (many.tickets, many.peer_tickets) == (5_000_020, 5_002_048)
    assert http.read_limits({"tickets": 40, "rows": 10}, label_wait=20).tickets == 40


def test_with_as_little_room_as_is_allowed_a_site_never_refuses_for_good(tmp_path: Path) -> None:
    text = SITE.replace("rows = 100", "rows = 3\ntickets = 26")  # 20 slots, and twice three rows
    inputs = [{**one, "shape": [3, *one["shape"][1:]], "data": one["data"] * 3} for one in INPUTS]

    async def story(client: Client) -> None:
        for k in range(100):
            body = infer(str(k), inputs=inputs) if k % 7 < 4 else infer(str(k))
            assert (await client.post(INFER, body))[0] == 200

    run(tmp_path, story, text)


def test_a_limit_that_makes_no_sense_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.toml").write_text(SITE.replace("rows = 100", "head-s = nan"))

    assert cli.main(["serve", str(tmp_path / "site.toml")]) == 2
    assert "[limits] head-s is nan" in capsys.readouterr().err
