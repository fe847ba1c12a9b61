"""The API for clients: its routes, their OpenAPI document, and their handlers."""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, NamedTuple, cast, get_args

import msgspec

from covey.errors import (
    ConfigError,
    ConflictingLabel,
    LateLabel,
    TicketError,
    UnfitLabel,
    UnknownTicket,
)
from covey.node.change import Plan
from covey.node.questions import Question
from covey.node.requests import OWN, Request
from covey.node.status import State
from covey.server import oip, page, page_api, tensors
from covey.server.config import SiteConfig
from covey.server.http import (
    BINARY,
    JSON,
    LENGTH,
    PROBLEM,
    AdmissionQueue,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    ProblemBody,
)
from covey.server.metrics import Metrics
from covey.server.page_api import PageApi
from covey.server.routed_node import AnyNode
from covey.server.tensors import Inference, TensorTable
from covey.types import Label

LIVE, READY = "/v2/health/live", "/v2/health/ready"
RELOAD = "/admin/reload"
OPEN_PATHS = frozenset([LIVE, READY]) | page_api.WITHOUT_TOKEN  # that need no token
PAGES = frozenset([page_api.PAGE, page_api.EVENTS])  # for which a session is enough
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
    "shard_away": 503,
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
    takes_media: str = JSON
    is_for_people: bool = False
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


class LogInForm(msgspec.Struct, forbid_unknown_fields=True):
    """What a person sends to log in."""

    token: str


class StreamEvent(msgspec.Struct):
    """A server-sent event: sections of the page, as JSON by their ids."""

    data: str
    event: str = "message"  # or "ended": log in again
    retry: int = page.RETRY_MS


_page = partial(Route, media=page.HTML_KIND, is_for_people=True)
_FOR_PEOPLE = (
    _page(
        "page",
        page_api.PAGE,
        "The live page; without a token or a session, the way to the log-in form.",
        {200: TEXT, 303: TEXT},
        ("read",),
    ),
    _page(
        "events",
        page_api.EVENTS,
        "The sections of the page as server-sent events: a stream for Accept: text/event-stream, "
        "else one event.",
        {200: StreamEvent},
        ("read",),
        media=page.STREAM_KIND,
    ),
    _page(
        "login",
        page_api.LOG_IN,
        "The log-in form; without tokens, the way to the page.",
        {200: TEXT, 303: TEXT},
    ),
    _page(
        "session",
        page_api.SESSION,
        "Log in with a token that has scope read: sets a cookie for at most 12 hours.",
        {303: TEXT, 401: TEXT, 403: TEXT},
        takes=LogInForm,
        takes_media=page_api.FORM,
        problems=frozenset(["invalid"]),
    ),
    _page("logout", page_api.LOG_OUT, "Log out.", {303: TEXT}, takes=Nothing),
    *(
        _page("asset", path, "A file of the page.", {200: TEXT}, media=page.ASSETS[name])
        for path, name in page_api.ASSET_PATHS.items()
    ),
)
MODEL = "/v2/models/{model}"
READINESS = {200: tensors.Ready, 503: tensors.Ready}
_ROUTES = (
    *_FOR_PEOPLE,
    Route("live", LIVE, "Whether the server runs.", {200: tensors.Live}),
    Route("ready", READY, "Whether it can serve.", READINESS),
    Route("server", "/v2", "What the server is.", {200: tensors.ServerMetadata}),
    Route("server", "/v2/", "What the server is.", {200: tensors.ServerMetadata}),
    Route("openapi", "/v2/openapi.json", "This document.", {200: DOCUMENT}),
    Route("model", MODEL, "What the model takes.", {200: tensors.ModelMetadata}),
    Route("ready", f"{MODEL}/ready", "Whether the model can serve.", READINESS),
    Route("state", f"{MODEL}/state", "The state of the site.", {200: State}, ("read",)),
    Route(
        "infer",
        f"{MODEL}/infer",
        "Labels for instances, with the tickets under which true labels are sent.",
        {200: tensors.InferenceResponse},
        ("infer",),
        takes=tensors.Inference,
        gives_bytes=True,
        problems=frozenset(_INFER),
    ),
    Route(
        "feedback",
        f"{MODEL}/feedback",
        "True labels of a ticket, or of rows: 202 if any is new, 200 if all were known.",
        {200: tensors.Settled, 202: tensors.Settled},
        ("feedback", "feedback-any"),
        takes=tensors.Feedback,
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
        if route.path in (MODEL, f"{MODEL}/ready", f"{MODEL}/infer")
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
    if route.takes is not None:
        content = _content(route.takes, schemas, route.takes_media)
        if route.takes is not Nothing and route.takes_media == JSON:
            content |= {BINARY: {"schema": BYTES}}
            operation["parameters"] = [{"name": LENGTH, "in": "header", **LENGTH_HEADER}]
        operation["requestBody"] = {"required": route.takes is not Nothing, "content": content}
    if has_tokens and route.path not in OPEN_PATHS:
        # The page leads to the log-in form without one.
        operation["security"] = [{"token": []}, *([{}] if 303 in route.gives else [])]
        if route.scopes:
            operation["description"] = f"Needs scope {' or '.join(route.scopes)}."
    return operation


def _content(kind: Any, schemas: dict[int, Schema], media: str) -> Schema:
    if media.startswith("image/"):  # generators of clients warn of it
        return {}
    return {media.partition(";")[0]: {"schema": schemas[id(kind)]}}


EXTENSIONS = ["covey_feedback", "binary_tensor_data"]
HOW = ("phase", "arm", "function", "price")
WHOSE = '"parameters": {"client": its name}'
# What the refusals of labels are called where they are counted.
WORDS = (
    (LateLabel, "late"),
    (UnknownTicket, "unknown"),
    (ConflictingLabel, "conflict"),
    (UnfitLabel, "unfit"),
)


class ClientApi:
    """Answers the clients of one site."""

    def __init__(
        self,
        served: SiteConfig,
        node: AnyNode,
        metrics: Metrics,
        reload: Callable[[], Awaitable[Plan]] | None = None,
        people: Callable[[AdmissionQueue], PageApi] | None = None,
    ) -> None:
        """`reload` applies the file of the site and returns what that has changed.

        `people` returns what answers people; by default there is nothing to see but the state.
        """
        self._reload = reload
        self._served = served
        self._serving = served.serving
        self._limits = served.limits
        # Of requests that may wait for functions and peers; all others are answered meanwhile.
        self._queue = AdmissionQueue(served.limits.in_flight, served.limits.queue)
        self._people = (people or partial(PageApi, served, node))(self._queue)
        self._contexts = served.contexts
        self._node = node
        self._metrics = metrics
        self._dimension = None if served.has_contexts else (served.serving.dimension or 0)
        self._document = msgspec.json.encode(
            openapi_document(
                self._serving.name,
                has_tokens=served.tokens is not None,
                example=oip.example(self._serving, dimension=self._dimension),
            )
        )
        self._routes = {route.at(self._serving.name): route for route in ROUTES}
        self._pages: dict[str, Callable[[], HttpResponse]] = {
            "live": lambda: _json(tensors.Live(True)),
            "ready": lambda: _json(tensors.Ready(node.is_ready), 200 if node.is_ready else 503),
            "server": lambda: _json(tensors.ServerMetadata("covey", "2", EXTENSIONS)),
            "openapi": lambda: HttpResponse(body=self._document),
            "model": self._metadata,
            "state": lambda: _json(node.state()),
            "metrics": metrics.page,
        }

    async def handle(self, call: HttpRequest) -> HttpResponse:
        route = self._routes.get(call.path)
        if route is None:
            raise self._nowhere(call.path)
        if call.method != route.method:
            takes = {"Allow": route.method}
            raise HttpProblem(405, "method", f"this path takes {route.method}", takes)
        if route.is_for_people:
            return self._people.handle(route.name, call)
        if route.scopes and call.rights.isdisjoint(route.scopes):
            raise _not_allowed(min(route.scopes))
        if route.name == "infer":
            async with self._queue:
                return await self._infer(call)
        if route.name == "reload":
            return await self._apply(call)
        return await self._feedback(call) if route.name == "feedback" else self._pages[route.name]()

    async def _apply(self, call: HttpRequest) -> HttpResponse:
        if self._served.tokens is None or self._reload is None:
            raise HttpProblem(403, "not_allowed", "without tokens, send the process SIGHUP instead")
        if call.body.strip() not in (b"", b"{}"):
            raise HttpProblem(422, "invalid", "this path reads the file of the site; send no body")
        try:
            return _json(await self._reload())
        except ConfigError as error:
            raise HttpProblem(409, "not_changed", f"the site is unchanged: {error}") from None

    def _nowhere(self, path: str) -> HttpProblem:
        """Return the problem of a path that is none."""
        name = self._serving.name
        parts = path.split("/")[2:]  # "models", its name, "versions", the version
        if parts[:1] == ["models"] and parts[1:2] != [name]:
            return HttpProblem(404, "model_unknown", f"the model here is {name!r}")
        if parts[2:3] == ["versions"] and parts[3:4] != [oip.VERSION]:
            only = f"the version of {name!r} is {oip.VERSION!r}; a version need not be named"
            return HttpProblem(404, "model_unknown", only)
        return HttpProblem(404, "not_found", "there is nothing at this path")

    def _metadata(self) -> HttpResponse:
        classes = self._served.labels.classes
        return _json(oip.metadata(self._serving, dimension=self._dimension, classes=classes))

    async def _infer(self, call: HttpRequest) -> HttpResponse:
        head, tail = oip.halves(call, self._limits)
        asked = oip.inference(head, tail or b"", depth=self._limits.depth)
        request = asked.request
        rows = oip.rows_of(asked, self._serving, dimension=self._dimension, most=self._limits.rows)
        slot = oip.first_slot(request, self._serving, count=rows.count)
        id_ = request.id or self._node.new_id()
        question = Question(_source(call.who), id_, f"{asked.digest}:{rows.count}")
        answered = await self._answer(rows, question, slot)
        parameters: dict[str, tensors.Scalar] = {}
        if rows.count == 1:
            columns = _columns_of(answered, get_args(tensors.OutputName))
            parameters = {name: columns[name][0] for name in HOW}
        else:
            columns = _columns_of(answered, [one.name for one in oip.wanted_of(request)])
        return oip.answer(columns, request, model=self._serving.name, id=id_, parameters=parameters)

    async def _answer(self, rows: TensorTable, question: Question, slot: int | None) -> Request:
        """Answer the rows of a request; contexts are made for the slots that they get."""
        is_record = self._serving.instance == "record"
        if rows.count == 1:
            row = rows.row(0)
            instances: Any = [row.record if is_record else list(row.record.values())]
        else:
            instances = rows.records() if is_record else rows.matrix()

        def contexts(first: int) -> Any:
            if not self._served.has_contexts:
                return [row.context or ()] if rows.count == 1 else rows.points()
            previous = self._previous_label()
            if rows.count == 1:
                return [self._contexts.extract_one(row.record, slot=first, previous_label=previous)]
            return self._contexts.extract_rows(
                rows.columns,
                slot=first,
                count=rows.count,
                previous_label=previous,
                is_one_slot=self._node.learner.shares_slots,
            )

        return await self._node.answer(instances, contexts, question=question, slot=slot)

    async def _feedback(self, call: HttpRequest) -> HttpResponse:
        head, tail = oip.halves(call, self._limits)
        feedback = oip.feedback(head, tail, depth=self._limits.depth, most=self._limits.rows)
        count = 1 if feedback.rows is None else len(feedback.rows)
        source = _asker(call, (feedback.parameters or {}).get("client", call.who))
        try:
            settled = await self._settle(feedback, source)
        except (TicketError, UnfitLabel) as error:
            word = next(word for kind, word in WORDS if isinstance(error, kind))
            self._metrics.take(word, count)
            if word == "unknown" and "feedback-any" in call.rights and source == _source(call.who):
                raise UnknownTicket(f"{error}; one of another client needs {WHOSE}") from None
            raise
        new = sum(settled.new) if isinstance(settled.new, list) else int(settled.new)
        for word, labels in (("joined", new), ("repeated", count - new)):
            if labels:
                self._metrics.take(word, labels)
        return _json(settled, 202 if new else 200)

    async def _settle(self, feedback: tensors.Feedback, source: str) -> tensors.Settled:
        """Take labels: of a ticket, of rows of a request, or of one row as `id:row`."""
        id_, truth = feedback.id, cast("Any", feedback.truth)
        if feedback.rows is not None:
            costs = cast("Any", feedback.cost)
            many = await self._node.learn_rows(
                id_, feedback.rows, truth, source=source, costs=costs
            )
            return tensors.Settled(id_, many.is_new, many.is_right)
        cost = cast("Any", feedback.cost)
        one = await self._node.learn(id_, truth, source=source, cost=cost)
        return tensors.Settled(id_, one.is_new, one.is_right)

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
