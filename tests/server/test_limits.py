"""What a listener takes: how much, from how many, how fast, and for how long."""

import asyncio
import resource
from pathlib import Path

import msgspec
import pytest

from covey.errors import ConfigError
from covey.node.functions import Limits
from covey.server import config, connection, http, keys, tokens
from covey.server.http import AdmissionQueue, HttpProblem
from support.coroutines import looped
from support.listening import GET, Port, listened, listening, post, told
from support.served import INFER, INPUTS, SITE, Client, infer, run, served

DOCS = Path(__file__).parents[2] / "docs" / "operations" / "operating.md"


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET", GET[:-1]])
@listened(head_s=0.2)
async def test_a_head_that_does_not_come_closes_the_connection(port: Port, sent: bytes) -> None:
    answer = await port.answers(sent)

    assert answer.startswith(b"HTTP/1.1 408" if sent else b"")
    assert (b'"code":"too_slow"' in answer) == bool(sent)
    assert port.echo.calls == 0


@listened(idle_s=0.2)
async def test_a_connection_is_closed_when_nothing_is_asked_for_long(port: Port) -> None:
    answer = await port.answers(GET)

    assert [answer.count(word) for word in (b"HTTP/1.1", b"200 OK")] == [1, 1]


@listened(body_s=0.2)
async def test_a_body_that_does_not_come_is_408(port: Port) -> None:
    answer = await port.answers(post(b"{", length=2))

    assert answer.startswith(b"HTTP/1.1 408")
    assert port.echo.calls == 0


@listened(answer_s=0.2, connections=1, idle_s=0.2)
async def test_a_client_that_does_not_read_the_answer_is_cut_off(port: Port) -> None:
    port.echo.copies = 64
    _, writer = await port.open(post(bytes(2**20), kind="x"))
    while not port.echo.calls:
        await asyncio.sleep(0)

    while b" 200 " not in await port.answers(GET):
        pass  # until there is room for another
    writer.close()


def test_a_failed_tls_handshake_is_cut_off(tmp_path: Path) -> None:
    keys.new("north", hosts=["127.0.0.1"], folder=tmp_path)
    files = tmp_path / "north.crt", tmp_path / "north.key"

    async def story(port: Port) -> None:
        assert await port.answers(b"") == b""
        assert await port.answers(b"\x16\x03\x01") == b""
        garbage = await port.answers(b"nonsense" * 100)
        assert b"HTTP" not in garbage
        assert port.echo.calls == 0

    told(story, handshake_s=0.2, tls=lambda: keys.open_context(*files))


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
@listened(head_kib=1, head_s=0.5, idle_s=0.5)
async def test_a_head_beyond_its_size_is_431(port: Port, head: bytes) -> None:
    answer = await port.answers(head)

    assert answer.split()[1] == b"431"
    assert b"head_too_large" in answer
    assert port.echo.calls == 0


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
@listened(json_kib=1, binary_kib=2, idle_s=0.2)
async def test_json_and_other_bodies_have_a_size_each(
    port: Port, kind: str, size: int, status: bytes, is_chunked: bool
) -> None:
    sent = post(bytes(size), kind=kind)
    if is_chunked:
        head, _, body = sent.partition(b"\r\n\r\n")
        head = head.replace(b"Content-Length: %d" % size, b"Transfer-Encoding: chunked")
        sent = head + b"\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (size, body)

    answer = await port.answers(sent)

    assert answer.split()[1] == status
    assert port.echo.calls == (status == b"200")


@listened(bodies_mib=1, idle_s=0.2)
async def test_all_bodies_together_have_a_size(port: Port) -> None:
    port.echo.may_answer.clear()
    first = asyncio.create_task(port.answers(post(bytes(600_000), kind="x")))
    while not port.echo.calls:
        await asyncio.sleep(0)
    second = await port.answers(post(bytes(600_000), kind="x"))
    port.echo.may_answer.set()

    assert second.startswith(b"HTTP/1.1 503")
    assert (await first).startswith(b"HTTP/1.1 200")
    assert (await port.answers(post(bytes(600_000), kind="x"))).startswith(b"HTTP/1.1 200")


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [3, 6])
def test_connections_beyond_their_number_are_503_until_others_leave(most: int) -> None:
    """Half of them may be of one address, and one in any case."""

    async def story(port: Port) -> None:
        inside = [await port.open() for _ in range(most // 2)]
        assert (await port.answers(GET)).startswith(b"HTTP/1.1 503")
        assert port.echo.calls == 0

        inside[0][1].close()
        await inside[0][1].wait_closed()
        while b" 200 " not in await port.answers(GET):
            pass  # until the other end has noticed
        for _, writer in inside:
            writer.close()

    told(story, connections=most, idle_s=0.2)


@looped
async def test_a_process_that_may_open_few_files_takes_fewer_connections(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(connection, "KEPT_FILES", most - 9)
    async with listening() as port:
        inside = [await port.open() for _ in range(2)]  # half of them for one address
        refused = await port.answers(GET)
        for _, writer in inside:
            writer.close()

    assert b" 503 " in refused
    assert "at most 4 connections" in caplog.text


@looped
async def test_turns_are_taken_in_order() -> None:
    turns, order = AdmissionQueue(1), []
    inside = asyncio.Event()

    async def one(k: int) -> None:
        async with turns:
            order.append(k)
            await inside.wait()

    tasks = [asyncio.create_task(one(k)) for k in range(1 + http.QUEUED)]
    await asyncio.sleep(0)
    with pytest.raises(HttpProblem):
        await one(-1)
    tasks[1].cancel()
    inside.set()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert order == [0, *range(2, 1 + http.QUEUED)]


RARELY = SITE.replace("rows = 100", "rows = 100\nrequests-per-s = 0.001")


@served(RARELY)
async def test_a_client_above_its_rate_gets_retry_after(client: Client) -> None:
    assert (await client.get("/v2"))[0] == 200
    status, told = await client.get("/v2")
    assert (status, told["code"]) == (429, "too_often")
    async with client.session.get(client.root + "/v2") as response:
        assert 900 < int(response.headers["Retry-After"]) <= 1_000


def test_strangers_at_the_page_leave_the_rate_of_the_health_checks(tmp_path: Path) -> None:
    text = RARELY.replace("dimension", 'tokens = "tokens.json"\ndimension', 1)
    tokens.new(tmp_path / "tokens.json", "camera", scopes=["infer"])

    async def story(client: Client) -> None:
        paths = ["/assets/icon.svg", "/assets/icon.svg", "/v2/health/live"]
        statuses = []
        for path in paths:
            async with client.session.get(client.root + path) as response:
                statuses.append(response.status)
        assert statuses == [200, 429, 200]

    run(tmp_path, story, text)


def test_by_default_only_clients_of_other_machines_have_a_rate_limit(tmp_path: Path) -> None:
    keys.new("north", hosts=["127.0.0.1"], folder=tmp_path)
    identity = 'certificate = "north.crt"\nkey = "north.key"\n'
    outside = SITE.replace("127.0.0.1:0", "0.0.0.0:0").replace(
        "dimension", identity + 'tokens = "tokens.json"\ndimension'
    )
    for text, rate in ((SITE, None), (outside, 1_000.0)):
        (tmp_path / "site.toml").write_text(text)

        assert config.load(tmp_path / "site.toml").requests_per_s == rate


# -- banners, files, documents --------------------------------------------------------------------


@listened()
async def test_no_response_says_what_the_server_is_made_of(port: Port) -> None:
    get = GET.replace(b"Host", b"Connection: close\r\nHost")
    answers = [await port.answers(sent) for sent in (b"nonsense\r\n\r\n", get)]

    assert answers[0].startswith(b"HTTP/1.1 400")
    assert not any(word in answer for answer in answers for word in (b"Server", b"Python"))


@pytest.mark.parametrize("field", msgspec.structs.fields(Limits), ids=lambda field: field.name)
def test_a_limit_has_a_range_and_is_documented(field: msgspec.structs.FieldInfo) -> None:
    name, meta = field.encode_name, msgspec.json.schema(field.type)
    bounds = meta if "minimum" in meta else meta["anyOf"][0]
    low, high, kind = bounds["minimum"], bounds["maximum"], type(bounds["maximum"])

    for outside in (low - max(1, low / 2), high * 2):
        with pytest.raises(ConfigError, match=rf"\[limits\] {name}: expected .*, got -?[0-9]"):
            http.read_limits({name: kind(outside)}, label_wait=0)
    assert getattr(http.read_limits({name: kind(high)}, label_wait=0), field.name) == high
    assert f"| `{name}` |" in DOCS.read_text()


def test_room_for_tickets_that_is_left_out_is_enough_for_the_wait() -> None:
    few, many = (http.read_limits({"rows": 10}, label_wait=wait) for wait in (10, 5_000_000))

    assert (few.tickets, many.tickets) == (1_000_000, 5_000_020)
    assert http.read_limits({"tickets": 40, "rows": 10}, label_wait=20).tickets == 40


# 20 slots, and twice three rows
@served(SITE.replace("rows = 100", "rows = 3\ntickets = 26"))
async def test_with_as_little_room_as_is_allowed_a_site_never_refuses_for_good(
    client: Client,
) -> None:
    inputs = [{**one, "shape": [3, *one["shape"][1:]], "data": one["data"] * 3} for one in INPUTS]
    for k in range(100):
        body = infer(str(k), inputs=inputs) if k % 7 < 4 else infer(str(k))
        assert (await client.post(INFER, body))[0] == 200
