"""Traces by OpenTelemetry: the spans of a site, sent to a collector.

Names, numbers and kinds of errors are recorded, and nothing of instances, labels or tokens.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal

from covey.errors import MissingExtra, need_of
from covey.site.status import NO_SPAN, TRACE, Span, Spans

try:
    from opentelemetry import trace
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as missing:
    raise MissingExtra(need_of("[node] traces", "opentelemetry-sdk", extra="otel")) from missing

OTHER = "other"  # the name of unknown paths
EXPORT_S = 5.0  # within which a collector must take spans
PROPAGATOR = TraceContextTextMapPropagator()
Kind = Literal["SERVER", "CLIENT", "INTERNAL"]


class OtelSpan(Span):
    """A span that is current in its `with` block; an exception is noted by its kind alone."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def __enter__(self) -> "OtelSpan":
        self._token = attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, *error: Any) -> None:
        kind, *_ = error
        if kind is not None:  # the message of the error may quote an instance
            self._span.set_attribute("error.type", kind.__name__)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()
        detach(self._token)

    def note(self, key: str, value: str | int) -> None:
        self._span.set_attribute(key, value)
        if key == "http.response.status_code" and int(value) >= 500:
            self._span.set_status(trace.StatusCode.ERROR)


class PeerSpan(OtelSpan):
    """The span of a call to a peer, which continues the trace."""

    def __enter__(self) -> OtelSpan:
        super().__enter__()
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier)
        self._carried = TRACE.set(carrier)
        return self

    def __exit__(self, *error: Any) -> None:
        TRACE.reset(self._carried)
        super().__exit__(*error)


class OtelSpans(Spans):
    """The spans of one site."""

    def __init__(self, site: str, paths: Mapping[str, str], processor: SpanProcessor) -> None:
        """`paths` are the names of known paths; which traces are sampled, the environment says."""
        resource = {
            "service.name": site,
            "service.namespace": "covey",
            "service.version": version("covey"),
        }
        self._provider = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("covey", version("covey"))
        self._paths = paths

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def request(self, method: str, path: str, headers: Mapping[str, str]) -> Span:
        name = self._paths.get(path, OTHER)
        parent = PROPAGATOR.extract(headers, context=Context())
        noted = {"http.request.method": method, "http.route": name}
        return OtelSpan(self._begin(f"{method} {name}", "SERVER", noted, parent))

    def peer(self, name: str, call: str) -> Span:
        return PeerSpan(self._begin(f"{call} {name}", "CLIENT", {"peer.service": name}))

    def function(self, name: str, rows: int) -> Span:
        return OtelSpan(self._begin(f"function {name}", "INTERNAL", {"covey.rows": rows}))

    def commit(self, waiting: Sequence[object]) -> Span:
        """Begin a span within the first request that waits, with links to the others."""
        traced = [span for span in waiting if isinstance(span, trace.SpanContext)]
        if not traced:
            return NO_SPAN  # of nothing that is traced
        traced.sort(key=lambda span: not span.trace_flags.sampled)
        parent = trace.set_span_in_context(trace.NonRecordingSpan(traced[0]), Context())
        links = [trace.Link(span) for span in traced[1:]]
        noted = {"covey.requests": len(traced)}
        return OtelSpan(self._begin("store commit", "INTERNAL", noted, parent, links))

    def here(self) -> object | None:
        span = trace.get_current_span().get_span_context()
        return span if span.is_valid else None

    def _begin(
        self,
        name: str,
        kind: Kind,
        attributes: Mapping[str, str | int],
        parent: Context | None = None,
        links: Sequence[trace.Link] = (),
    ) -> trace.Span:
        return self._tracer.start_span(
            name, parent, trace.SpanKind[kind], attributes=attributes, links=links
        )


def exported(url: str) -> SpanProcessor:
    """Return what sends spans to a collector, in batches and in a thread of its own."""
    return BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=EXPORT_S))
