"""The API for clients: its routes, their OpenAPI document, their handlers, and the live page."""

import re
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from http import HTTPStatus
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from covey.bandit.learner import CellPreference, preferences
from covey.bandit.partitions import MOST_DRAWN
from covey.errors import ConfigError, TicketError, UnfitLabel, UnknownTicket
from covey.node.node import Node
from covey.node.peers import OUTCOME_OF
from covey.server import oip
from covey.server.conditions import Conditions
from covey.server.config import SiteConfig
from covey.server.http import (
    BINARY,
    JSON,
    LENGTH,
    PROBLEM,
    RELOAD,
    AdmissionQueue,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    ProblemBody,
    invalid,
    is_all_json,
)
from covey.server.log_lines import EventLog
from covey.server.metrics import Metrics
from covey.server.oip import Inference, TensorTable
from covey.site.requests import HOUR_S, OWN, Question, Request
from covey.site.status import DAY_S, MINUTE_S, AxisState, MapState, SiteHistory, State
from covey.store.change import Plan
from covey.store.database import DatabaseUrl
from covey.types import Label

# -- the live page: its files, and the state that it polls, which programs may read, too ----------

PAGE = "/"
# By path: the name of the file, and what it is.
FILES = {
    PAGE: ("page.html", "text/html; charset=utf-8"),
    "/assets/page.css": ("page.css", "text/css; charset=utf-8"),
    "/assets/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/assets/icon.svg": ("icon.svg", "image/svg+xml"),
}
# Nothing is loaded from elsewhere or written as markup, and no form is sent: a script reads it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
MOST_CELLS = 400  # of the map, in each context space
MAP_S = 10.0  # for which all requests get cells of the same map: of 40,000 it takes 26 ms


def page_file(path: str, model: str) -> HttpResponse:
    name, kind = FILES[path]
    text = resources.files("covey.server").joinpath("assets", name).read_text("utf-8")
    if path == PAGE:
        text = text.replace("{model}", escape(model))
    return HttpResponse(200, text.encode(), kind, HEADERS)


class StateQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request for the state may ask for besides."""

    cells: Annotated[int, Meta(ge=0, le=MOST_CELLS)] = 0  # of the map, in each context space


class LiveState:
    """Reads the state of a site."""

    def __init__(
        self,
        served: SiteConfig,
        node: Node,
        queue: AdmissionQueue,
        *,
        events: EventLog,
        history: SiteHistory,
        conditions: Conditions,
    ) -> None:
        self._store, self._node, self._queue = served.store, node, queue
        self._events, self._history, self._conditions = events, history, conditions
        self._axes, self._value = _axes(served), served.setup.data.value
        self._made = (0.0, list[CellPreference]())  # all cells of the latest map, and when

    def state(self) -> State:
        """Return the state without what only the page shows; note what happens over time."""
        state, now_s = self._node.state(), time.time()
        store_bytes, free_bytes = disk_use(self._store)
        own = self._conditions.certificate
        state = replace(
            state,
            at=round(now_s, 3),
            in_progress=self._queue.in_progress,
            waiting=self._queue.waiting,
            store_bytes=store_bytes,
            free_bytes=free_bytes,
            certificate_ends=None if own is None else own.end.timestamp(),
            gain=None if state.gain is None else replace(state.gain, value=self._value),
        )
        self._history.note(state.arms, now_s)
        return replace(state, conditions=self._conditions.look(state, now_s))

    def read(self, query: str) -> State:
        """Return the state, with the cells that the query of a request asks for."""
        wanted, state = _query(query), self.state()
        return replace(
            state,
            minutes=self._history.points(MINUTE_S, state.at - HOUR_S),
            hours=self._history.points(HOUR_S, state.at - DAY_S),
            events=self._events.latest(),
            map=self._map(wanted.cells, state.at) if wanted.cells else None,
        )

    def _map(self, most: int, now_s: float) -> MapState:
        if abs(now_s - self._made[0]) >= MAP_S:
            self._made = now_s, preferences(self._node.learner, MOST_CELLS)
        spaces: dict[tuple[int, ...], list[CellPreference]] = {}
        for cell in self._made[1]:
            spaces.setdefault(cell.places, []).append(cell)
        return MapState(self._axes, [cell for cells in spaces.values() for cell in cells[:most]])


def disk_use(store: Path | DatabaseUrl) -> tuple[int | None, int | None]:
    """Return the size of a store, its log included, and the free space on its disk.

    None: the file is gone, or there is none.
    """
    if isinstance(store, DatabaseUrl):
        return None, None
    log = store.with_name(f"{store.name}-wal")
    try:
        size = store.stat().st_size + log.stat().st_size
        return size, shutil.disk_usage(store.parent).free
    except OSError:
        return None, None


def _query(text: str) -> StateQuery:
    try:
        fields = dict(parse_qsl(text, keep_blank_values=True))
        return msgspec.convert(fields, StateQuery, strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        raise invalid(f"the query may have cells, from 0 to {MOST_CELLS}: {error}") from None


def _axes(served: SiteConfig) -> list[AxisState]:
    """Return the contexts, in the units of the features if the site makes them of these.

    Of many contexts no map is drawn.
    """
    if served.learner.dimension > MOST_DRAWN:
        return []
    if served.has_contexts:
        made = served.contexts
        return [AxisState(*part) for part in zip(made.names, made.ticks(), strict=True)]
    ticks: list[tuple[float, float | str]] = [(quarter / 4, quarter / 4) for quarter in range(5)]
    return [AxisState(f"context {k + 1}", ticks) for k in range(served.learner.dimension)]


# -- routes ---------------------------------------------------------------------------------------

LIVE, READY = "/v2/health/live", "/v2/health/ready"
OPEN_PATHS = frozenset([LIVE, READY, *FILES])  # that need no token
TEXT = str  # what a path gives that gives no JSON object
DOCUMENT = dict[str, Any]
_EVERYWHERE = {
    "bad_http": 400,
    "broken_body": 400,
    "no_token": 401,
    "not_allowed": 403,
    "too_slow": 408,
    "too_large": 413,
    "media_type": 415,
    "too_often": 429,
    "head_too_large": 431,
    "unexpected": 500,
    "busy": 503,
}
EVERYWHERE = frozenset(_EVERYWHERE)  # codes of problems that any request may get
NOWHERE = {"not_found": 404, "model_unknown": 404, "method": 405}  # of unknown paths
_INFER = {
    "bad_json": 400,
    "conflict": 409,
    "too_many_rows": 413,
    "invalid": 422,
    "function_failed": 500,
    "policy_failed": 500,
    "store_failed": 503,
    "store_full": 507,
}
_FEEDBACK = {"label_too_late": 410, "ticket_unknown": 404, **_INFER}
_RELOAD = {"not_changed": 409, "invalid": 422, "store_failed": 503, "store_full": 507}
CODES = _EVERYWHERE | _FEEDBACK | _RELOAD | NOWHERE


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """An empty object; the body may be left out."""


class Route(NamedTuple):
    """One path: POST if it takes something, otherwise GET."""

    name: str
    path: str  # in which {model} stands for the name of the site
    says: str
    gives: dict[int, Any]
    scopes: tuple[str, ...] = ()  # one of which a client must have; none: any client
    takes: Any = None  # JSON, or JSON with tensors in bytes after it
    gives_bytes: bool = False
    media: str = JSON  # of what it gives
    query: Any = None  # what may be asked for after a question mark
    problems: frozenset[str] = frozenset()  # beyond those that are possible everywhere

    @property
    def method(self) -> str:
        """The only HTTP method of the path."""
        return "GET" if self.takes is None else "POST"

    def at(self, model: str) -> str:
        return self.path.replace("{model}", model)

    def codes(self) -> frozenset[str]:
        """Return the codes of the problems that it may give."""
        if self.path in OPEN_PATHS:
            return (EVERYWHERE | self.problems) - {"no_token"}
        return EVERYWHERE | self.problems


MODEL = "/v2/models/{model}"
READINESS = {200: oip.Ready, 503: oip.Ready}
_ROUTES = (
    *(
        Route("file", path, "A file of the live page.", {200: TEXT}, media=kind)
        for path, (_, kind) in FILES.items()
    ),
    Route("live", LIVE, "Whether the server runs.", {200: oip.Live}),
    Route("ready", READY, "Whether it can serve.", READINESS),
    Route("server", "/v2", "What the server is.", {200: oip.ServerMetadata}),
    Route("server", "/v2/", "What the server is.", {200: oip.ServerMetadata}),
    Route("openapi", "/v2/openapi.json", "This document.", {200: DOCUMENT}),
    Route("model", MODEL, "What the model takes.", {200: oip.ModelMetadata}),
    Route("config", f"{MODEL}/config", "The same as Triton has it.", {200: oip.ModelConfig}),
    Route("stats", f"{MODEL}/stats", "Requests since the start.", {200: oip.Statistics}),
    Route("ready", f"{MODEL}/ready", "Whether the model can serve.", READINESS),
    Route(
        "state",
        f"{MODEL}/state",
        "The state of the site: what its live page shows.",
        {200: State},
        ("read",),
        query=StateQuery,
        problems=frozenset(["invalid"]),
    ),
    Route(
        "infer",
        f"{MODEL}/infer",
        "Labels for instances, with the tickets under which true labels are sent.",
        {200: oip.InferenceResponse},
        ("infer",),
        takes=oip.Inference,
        gives_bytes=True,
        problems=frozenset(_INFER),
    ),
    Route(
        "feedback",
        f"{MODEL}/feedback",
        "True labels of a ticket, or of rows: 202 if any is new, 200 if all were known.",
        {200: oip.Settled, 202: oip.Settled},
        ("feedback", "feedback-any"),
        takes=oip.Feedback,
        problems=frozenset(_FEEDBACK),
    ),
    Route(
        "metrics",
        "/metrics",
        "Counters and times for Prometheus.",
        {200: TEXT},
        ("metrics",),
        media="text/plain",
    ),
    Route(
        "reload",
        RELOAD,
        "Read the file of the site again and apply it; what that changes in the store.",
        {200: Plan},
        ("admin",),
        takes=Nothing,
        problems=frozenset(_RELOAD),
    ),
)

VERSIONED = f"{MODEL}/versions/{oip.VERSION}"
ROUTES = (
    *_ROUTES,
    *(
        route._replace(path=route.path.replace(MODEL, VERSIONED))
        for route in _ROUTES
        if route.name in ("model", "config", "stats", "infer") or route.path == f"{MODEL}/ready"
    ),
)

Schema = dict[str, Any]
BYTES = {"description": "The JSON, and the bytes of tensors after it.", "type": "string"}
LENGTH_HEADER = {
    "description": f"With {BINARY}: how many bytes of the body are JSON.",
    "required": False,
    "schema": {"type": "integer", "minimum": 0},
}


def openapi_document(model: str, *, has_tokens: bool, example: Inference | None = None) -> Schema:
    """Return the document of a site whose model has this name, with a request that it serves."""
    kinds = [kind for route in ROUTES for kind in (*route.gives.values(), route.takes) if kind]
    unique = list({id(kind): kind for kind in [ProblemBody, *kinds]}.values())
    schemas, components = msgspec.json.schema_components(
        unique, ref_template="#/components/schemas/{name}"
    )
    by_kind = {id(kind): schema for kind, schema in zip(unique, schemas, strict=True)}
    components["ProblemBody"]["properties"]["code"]["enum"] = sorted(CODES)
    _say_items(components)
    paths: dict[str, Any] = {}
    for route in ROUTES:
        operation = _operation(route, by_kind, has_tokens=has_tokens)
        paths.setdefault(route.at(model), {})[route.method.lower()] = operation
        if route.takes is Inference and example is not None:
            body = operation["requestBody"]["content"][JSON]
            body["example"] = msgspec.to_builtins(example)
    document: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": f"covey: {model}",
            "version": version("covey"),
            "description": "Open Inference Protocol v2, with true labels at /feedback. "
            f"Elsewhere: {', '.join(f'{status} {code}' for code, status in NOWHERE.items())}.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if has_tokens:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document


def _say_items(schema: Any) -> None:
    """Add `items` to every array of any values: generators of clients refuse one without."""
    if isinstance(schema, dict):
        if schema.get("type") == "array" and "prefixItems" not in schema:
            schema.setdefault("items", {})
        schema = list(schema.values())
    for inner in schema if isinstance(schema, list) else ():
        _say_items(inner)


def _operation(route: Route, schemas: dict[int, Schema], *, has_tokens: bool) -> Schema:
    responses: Schema = {
        str(status): {"description": "", "content": _content(kind, schemas, route.media)}
        for status, kind in route.gives.items()
    }
    if route.gives_bytes:
        responses["200"]["content"][BINARY] = {"schema": BYTES}
        responses["200"]["headers"] = {LENGTH: LENGTH_HEADER}
    for status in sorted({CODES[code] for code in route.codes()}):
        codes = sorted(code for code in route.codes() if CODES[code] == status)
        response = responses.setdefault(str(status), {"description": "", "content": {}})
        response["description"] = ", ".join(codes)
        response["content"][PROBLEM] = {
            "schema": {
                "allOf": [
                    {"$ref": "#/components/schemas/ProblemBody"},
                    {
                        "properties": {
                            "status": {"type": "integer", "enum": [status]},
                            "code": {"type": "string", "enum": codes},
                        }
                    },
                ],
                "title": HTTPStatus(status).phrase,
            }
        }
    # Generators name models after it, and drop marks: /v2 and /v2/ must differ in letters.
    name = f"{route.method}{route.path}{'slash' if route.path.endswith('/') else ''}"
    operation: Schema = {
        "operationId": re.sub(r"[^a-z0-9]", "_", name.lower()),
        "summary": route.says,
        "responses": responses,
    }
    if route.query is not None:
        operation["parameters"] = _query_parameters(route.query)
    if route.takes is not None:
        content = _content(route.takes, schemas, JSON)
        if route.takes is oip.Inference:
            content |= {BINARY: {"schema": BYTES}}
            operation["parameters"] = [{"name": LENGTH, "in": "header", **LENGTH_HEADER}]
        operation["requestBody"] = {"required": route.takes is not Nothing, "content": content}
    if has_tokens and route.path not in OPEN_PATHS:
        operation["security"] = [{"token": []}]
        if route.scopes:
            operation["description"] = f"Needs scope {' or '.join(route.scopes)}."
    return operation


def _query_parameters(query: Any) -> list[Schema]:
    (_,), components = msgspec.json.schema_components([query])
    fields = components[query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in fields.items()
    ]


def _content(kind: Any, schemas: dict[int, Schema], media: str) -> Schema:
    if media.startswith("image/"):  # generators of clients warn of it
        return {}
    return {media.partition(";")[0]: {"schema": schemas[id(kind)]}}


EXTENSIONS = ["covey_feedback", "binary_tensor_data", "model_configuration", "statistics"]
HOW = ("phase", "arm", "function", "price")
WHOSE = '"parameters": {"client": its name}'


class ClientApi:
    """Answers the clients of one site."""

    def __init__(
        self,
        served: SiteConfig,
        node: Node,
        metrics: Metrics,
        queue: AdmissionQueue,
        reload: Callable[[], Awaitable[Plan]],
        live: LiveState,
    ) -> None:
        """`reload` applies the file of the site and returns what that has changed.

        `queue` is for requests that may wait for functions and peers; others need no turn.
        """
        self._served, self._node, self._metrics = served, node, metrics
        self._queue, self._reload = queue, reload
        self._model = oip.Model(
            served.serving,
            None if served.has_contexts else (served.serving.dimension or 0),
            served.contexts.vectors,
            served.labels.classes,
            served.limits,
        )
        name, example = served.serving.name, self._model.example()
        has_tokens = served.tokens is not None
        document = msgspec.json.encode(
            openapi_document(name, has_tokens=has_tokens, example=example)
        )
        self._routes = {route.at(name): route for route in ROUTES}
        self._pages: dict[str, Callable[[HttpRequest], HttpResponse]] = {
            "file": lambda call: page_file(call.path, name),
            "live": lambda _: _json(oip.Live(True)),
            "ready": lambda _: _json(oip.Ready(node.is_ready), 200 if node.is_ready else 503),
            "server": lambda _: _json(oip.ServerMetadata("covey", "2", EXTENSIONS)),
            "openapi": lambda _: HttpResponse(body=document),
            "model": lambda _: _json(self._model.metadata()),
            "config": lambda _: _json(self._model.config()),
            "stats": lambda _: _json(self._model.statistics(*metrics.inferences())),
            "state": lambda call: _json(live.read(call.query)),
            "metrics": lambda _: metrics.page(),
        }
        self._calls = {"infer": self._infer, "feedback": self._feedback, "reload": self._apply}

    async def handle(self, call: HttpRequest) -> HttpResponse:
        route = self._routes.get(call.path)
        if route is None:
            raise self._nowhere(call.path)
        if call.method != route.method:
            takes = {"Allow": route.method}
            raise HttpProblem(405, "method", f"this path takes {route.method}", takes)
        if route.scopes and call.rights.isdisjoint(route.scopes):
            raise _not_allowed(min(route.scopes))
        if route.name in self._pages:
            return self._pages[route.name](call)
        return await self._calls[route.name](call)

    async def _apply(self, call: HttpRequest) -> HttpResponse:
        if self._served.tokens is None:
            raise HttpProblem(403, "not_allowed", "without tokens, send the process SIGHUP instead")
        if call.body.strip() not in (b"", b"{}"):
            raise HttpProblem(422, "invalid", "this path reads the file of the site; send no body")
        try:
            return _json(await self._reload())
        except ConfigError as error:
            raise HttpProblem(409, "not_changed", f"the site is unchanged: {error}") from None

    def _nowhere(self, path: str) -> HttpProblem:
        """Return the problem of a path that is none."""
        name = self._served.serving.name
        parts = path.split("/")[2:]  # "models", its name, "versions", the version
        if parts[:1] == ["models"] and parts[1:2] != [name]:
            return HttpProblem(404, "model_unknown", f"the model here is {name!r}")
        if parts[2:3] == ["versions"] and parts[3:4] != [oip.VERSION]:
            only = f"the version of {name!r} is {oip.VERSION!r}; a version need not be named"
            return HttpProblem(404, "model_unknown", only)
        return HttpProblem(404, "not_found", "there is nothing at this path")

    async def _infer(self, call: HttpRequest) -> HttpResponse:
        async with self._queue:
            request, digest, rows = self._model.read(call)
            slot = self._model.first_slot(request, count=rows.count)
            id_ = request.id or self._node.new_id()
            question = Question(_source(call.who), id_, f"{digest}:{rows.count}")
            answered = await self._answer(rows, question, slot)
            parameters: dict[str, oip.Scalar] = {}
            if rows.count == 1:
                columns = _columns_of(answered, oip.OUTPUTS)
                parameters = {name: columns[name][0] for name in HOW}
            else:
                columns = _columns_of(answered, [wanted.name for wanted in oip.wanted_of(request)])
            name = self._served.serving.name
            return oip.answer(columns, request, model=name, id=id_, parameters=parameters)

    async def _answer(self, rows: TensorTable, question: Question, slot: int | None) -> Request:
        """Answer the rows of a request; contexts are made for the slots that they get."""
        is_record = self._served.serving.instance == "record"
        if rows.count == 1:
            (record,) = rows.records()
            instances: Any = [record if is_record else oip.flattened(record.values())]
        else:
            instances = rows.records() if is_record else rows.matrix()

        def contexts(first: int) -> Any:
            if not self._served.has_contexts:
                return rows.points() if rows.count > 1 else [rows.context()]
            made, previous = self._served.contexts, self._previous_label()
            if rows.count == 1:
                return [made.extract_one(record, slot=first, previous_label=previous)]
            return made.extract_rows(
                rows.columns,
                slot=first,
                count=rows.count,
                previous_label=previous,
                is_one_slot=self._node.learner.shares_slots,
            )

        return await self._node.answer(instances, contexts, question=question, slot=slot)

    async def _feedback(self, call: HttpRequest) -> HttpResponse:
        if not is_all_json(call.headers):
            raise HttpProblem(415, "media_type", f"send labels as {JSON}")
        feedback = oip.feedback(call.body, most=self._served.limits.rows)
        count = 1 if feedback.rows is None else len(feedback.rows)
        source = _asker(call, (feedback.parameters or {}).get("client", call.who))
        try:
            settled = await self._settle(feedback, source)
        except (TicketError, UnfitLabel) as error:
            word = next(word for kind, word in OUTCOME_OF.items() if isinstance(error, kind))
            self._metrics.take(word, count)
            if word == "unknown" and "feedback-any" in call.rights and source == _source(call.who):
                raise UnknownTicket(f"{error}; one of another client needs {WHOSE}") from None
            raise
        new = sum(settled.new) if isinstance(settled.new, list) else int(settled.new)
        for word, labels in (("joined", new), ("repeated", count - new)):
            if labels:
                self._metrics.take(word, labels)
        return _json(settled, 202 if new else 200)

    async def _settle(self, feedback: oip.Feedback, source: str) -> oip.Settled:
        """Take labels: of a ticket, of rows of a request, or of one row as `id:row`."""
        id_, rows = feedback.id, feedback.rows
        truth, cost = cast("Any", feedback.truth), cast("Any", feedback.cost)
        if rows is not None:
            many = await self._node.learn_rows(id_, rows, truth, source=source, costs=cost)
            return oip.Settled(id_, many.is_new, many.is_right)
        settlement = await self._node.learn(id_, truth, source=source, cost=cost)
        return oip.Settled(id_, settlement.is_new, settlement.is_right)

    def _previous_label(self) -> Label | None:
        """Return the label to look back at; None if it is from before the classes were changed."""
        label = self._node.previous_label
        try:
            self._served.labels.check_own([] if label is None else [label])
        except UnfitLabel:
            return None
        return label


def _columns_of(request: Request, wanted: Sequence[str]) -> dict[str, list[Any]]:
    """Return the outputs that are wanted, by name, for all rows."""
    rows = range(len(request))
    make: dict[str, Callable[[], list[Any]]] = {
        "label": lambda: list(request.answers),
        "ticket": lambda: (
            [f"{request.id}:{row}" for row in rows] if len(request) > 1 else [request.id]
        ),
        "phase": lambda: [request.group(row).phase for row in rows],
        "arm": lambda: [request.group(row).arm for row in rows],
        "function": lambda: [request.function(row) for row in rows],
        "price": lambda: [request.group(row).price for row in rows],
    }
    return {name: make[name]() for name in wanted}


def _asker(call: HttpRequest, client: Any) -> str:
    """Return the source of a client's tickets, if the caller may label them."""
    if not isinstance(client, str):
        raise HttpProblem(422, "invalid", "parameters.client must be the name of a client")
    if client != call.who and "feedback-any" not in call.rights:
        raise _not_allowed("feedback-any")
    return _source(client)


def _source(client: str) -> str:
    """Return whose tickets are a client's; without a name, those of all clients without one."""
    return f"client/{client}" if client else OWN


def _not_allowed(scope: str) -> HttpProblem:
    return HttpProblem(403, "not_allowed", f"the token is not for this; it needs scope {scope!r}")


def _json(body: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, msgspec.json.encode(body))
