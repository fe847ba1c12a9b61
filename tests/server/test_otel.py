"""Traces: one over all sites that a request passes, with nothing of what it is about."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from covey.errors import FunctionError
from covey.server.client_api import ROUTES
from covey.server.otel import OtelSpans
from covey.server.peer_api import PATHS
from support.coroutines import looped
from support.served import FEEDBACK, INFER, SITE, Client, infer, served, serving, serving_all
from support.site_processes import Offices, table

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
POLICY = table(
    "[policy]",
    {
        "preset": "cos",
        "slices": 1,
        "explore": {"scale": 0.0, "power": 0.0},  # so that the peer is asked early
        "train": {"scale": 1.0, "power": 0.5},
    },
)


class Recorded:
    """The spans of one site, in memory."""

    def __init__(self, site: str) -> None:
        self._kept = InMemorySpanExporter()
        known = {route.at(site): route.path for route in ROUTES} | {path: path for path in PATHS}
        self.spans = OtelSpans(site, known, SimpleSpanProcessor(self._kept))

    def found(self) -> list[ReadableSpan]:
        return list(self._kept.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [one for one in self.found() if one.name == name]


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def is_within(span: ReadableSpan, parent: ReadableSpan) -> bool:
    one, other = span.parent, parent.context
    assert other is not None
    return one is not None and (one.trace_id, one.span_id) == (other.trace_id, other.span_id)


def file_of(offices: Offices, name: str, other: str, *, asks: bool) -> str:
    node = {"features": {"size": "FP64", "kind": "BYTES"}, "dimension": 1}
    known = offices.peer(other, **({"share": "data"} if asks else {"may-ask": True}))
    learner = {"peers": {other: 0.0} if asks else {}}
    return offices.file(name, POLICY, known, learner=learner, **node)


def test_one_trace_goes_over_both_sites_with_peers_functions_and_commits(tmp_path: Path) -> None:
    offices = Offices(tmp_path, ["north", "south"])
    south, north = Recorded("south"), Recorded("north")

    async def main() -> None:
        texts = {
            "south": file_of(offices, "south", "north", asks=False),
            "north": file_of(offices, "north", "south", asks=True),
        }
        spans = {"south": south.spans, "north": north.spans}
        async with serving_all(tmp_path, texts, spans) as clients:
            for k in range(60):
                _, told = await clients["north"].post(INFER, infer(f"r{k}"), traceparent=PARENT)
                if told["parameters"]["arm"] == "south":
                    return
                await clients["north"].post(FEEDBACK, {"id": told["id"], "truth": 1})
        raise AssertionError("the peer was never asked")

    asyncio.run(main())

    (call,) = north.named("ask south")
    (asked,) = south.named("POST /covey/v1/ask")
    request = north.named("POST /v2/models/{model}/infer")[-1]
    assert request.resource.attributes["service.name"] == "north"
    assert asked.resource.attributes["service.name"] == "south"
    assert is_within(call, request)
    assert is_within(asked, call)
    (answered,) = [one for one in south.named("function zero") if is_within(one, asked)]
    assert answered.attributes is not None
    assert answered.attributes["covey.rows"] == 1
    assert [is_within(one, asked) for one in south.named("store commit")].count(True) == 1
    assert [is_within(one, request) for one in north.named("store commit")].count(True) == 1
    # The client began the trace, and all of it is in there.
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == SPAN_ID
    assert {trace_of(one) for one in (call, asked, request, answered)} == {TRACE_ID}
    report = [one for one in north.named("report south") if is_within(one, request)]
    assert all(
        any(is_within(two, one) for two in south.named("POST /covey/v1/report")) for one in report
    )


@looped
async def test_a_span_has_names_numbers_and_kinds_of_errors_alone(tmp_path: Path) -> None:
    north = Recorded("north")

    async with serving(tmp_path, SITE, spans=north.spans) as client:
        await client.post(INFER, infer("secret-id"))
        await client.post(INFER, b"nonsense")
        await client.get("/nowhere/secret")
    for kind in (FunctionError, asyncio.CancelledError):
        with pytest.raises(kind), north.spans.function("f", 3):
            raise kind("an instance")

    told = [(one.name, *(one.attributes or {}).items(), *one.events) for one in north.found()]
    assert "secret" not in str(told)
    assert "an instance" not in str([one.to_json() for one in north.found()])
    named = dict(zip([one.name for one in north.found()], north.found(), strict=True))
    assert ("http.response.status_code", 404) in (named["GET other"].attributes or {}).items()
    assert ("error.type", "CancelledError") in (named["function f"].attributes or {}).items()


# -- configuration --------------------------------------------------------------------------------


def with_traces(url: str) -> str:
    return SITE.replace("dimension", f'traces = "{url}"\ndimension', 1)


@asynccontextmanager
async def collector(bodies: list[bytes]) -> Any:
    async def take(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.add_routes([web.post("/v1/traces", take)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    await runner.cleanup()


@looped
async def test_a_collector_gets_the_spans_at_the_latest_when_the_site_stops(tmp_path: Path) -> None:
    bodies: list[bytes] = []

    async with collector(bodies) as url, serving(tmp_path, with_traces(url)) as client:
        await client.post(INFER, infer("a"))

    sent = [ExportTraceServiceRequest.FromString(one).resource_spans for one in bodies]
    names = {
        span.name
        for one in sent
        for site in one
        for scope in site.scope_spans
        for span in scope.spans
    }
    assert {"POST /v2/models/{model}/infer", "store commit"} <= names
    assert any(name.startswith("function ") for name in names)


@served(with_traces("http://127.0.0.1:9/v1/traces"))
async def test_a_collector_that_is_gone_costs_no_answer(client: Client) -> None:
    assert (await client.post(INFER, infer("a")))[0] == 200
