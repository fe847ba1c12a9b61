"""The side of a node that its clients see: Open Inference Protocol v2, and feedback, on bytes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec

from covey import messages, openapi, wire
from covey.calls import Call, Problem, Reply
from covey.errors import (
    ConflictingLabel,
    LateLabel,
    TicketError,
    UnfitLabel,
    UnknownTicket,
)
from covey.node.node import Node, Question
from covey.node.requests import OWN, Request
from covey.routes import ROUTES, Route
from covey.sites import ServedSite
from covey.tensors import Table
from covey.types import Label
from covey.watchers import Watcher

EXTENSIONS = ["covey_feedback", "binary_tensor_data"]
Columns = dict[str, list[Any]]  # outputs by name
Answerer = Callable[[Call], Awaitable[Reply]]
HOW: tuple[messages.OutputName, ...] = ("phase", "arm", "function", "price")
WHOSE = '"parameters": {"client": its name}'
# What the refusals of labels are called where they are counted.
WORDS = (
    (LateLabel, "late"),
    (UnknownTicket, "unknown"),
    (ConflictingLabel, "conflict"),
    (UnfitLabel, "unfit"),
)


class Front:
    """Answers the clients of one site."""

    def __init__(
        self,
        served: ServedSite,
        node: Node,
        *,
        metrics: Callable[[], Reply] = Reply,
        watcher: Watcher | None = None,
    ) -> None:
        """`metrics` returns a page of them; `watcher` hears what becomes of labels."""
        self._served = served
        self._serving = served.serving
        self._limits = served.limits
        self._contexts = served.setup.context
        self._node = node
        self._metrics = metrics
        self._watcher = Watcher() if watcher is None else watcher
        self._dimension = None if served.has_contexts else (served.serving.dimension or 0)
        self._document = msgspec.json.encode(
            openapi.document(
                self._serving.name,
                has_tokens=served.tokens is not None,
                example=wire.example(self._serving, dimension=self._dimension),
            )
        )
        answerers: dict[str, Answerer] = {
            "live": self._live,
            "ready": self._ready,
            "server": self._server,
            "openapi": self._openapi,
            "model": self._model,
            "state": self._state,
            "infer": self._infer,
            "feedback": self._feedback,
            "metrics": self._page,
        }
        self._routes = {
            route.at(self._serving.name): (route, answerers[route.name]) for route in ROUTES
        }

    async def handle(self, call: Call) -> Reply:
        """Answer a call of a client."""
        route, answer = self._routes.get(call.path) or self._nowhere(call)
        if call.method != route.method:
            takes = {"Allow": route.method}
            raise Problem(405, "method", f"this path takes {route.method}", takes)
        if route.scopes and not route.scopes & call.rights:
            raise _not_allowed(min(route.scopes))
        return await answer(call)

    def _nowhere(self, call: Call) -> tuple[Route, Answerer]:
        if call.path.startswith("/v2/models/"):
            raise Problem(404, "model_unknown", f"the model here is {self._serving.name!r}")
        raise Problem(404, "not_found", "there is nothing at this path")

    async def _live(self, call: Call) -> Reply:
        return _json(messages.Live(True))

    async def _ready(self, call: Call) -> Reply:
        is_ready = self._node.is_ready
        return _json(messages.Ready(is_ready), 200 if is_ready else 503)

    async def _server(self, call: Call) -> Reply:
        return _json(messages.Server("covey", "2", EXTENSIONS))

    async def _openapi(self, call: Call) -> Reply:
        return Reply(body=self._document)

    async def _page(self, call: Call) -> Reply:
        return self._metrics()

    async def _model(self, call: Call) -> Reply:
        return Reply(body=wire.metadata(self._serving, dimension=self._dimension))

    async def _state(self, call: Call) -> Reply:
        return _json(self._node.state())

    async def _infer(self, call: Call) -> Reply:
        head, tail = wire.halves(call, self._limits)
        asked = wire.inference(head, tail or b"", depth=self._limits.depth)
        request = asked.request
        rows = wire.rows_of(asked, self._serving, dimension=self._dimension, most=self._limits.rows)
        slot = wire.first_slot(request, self._serving, count=rows.count)
        id_ = request.id or self._node.new_id()
        question = Question(_source(call.who), id_, f"{asked.digest}:{rows.count}")
        answered = await self._answer(rows, question, slot)
        parameters: dict[str, messages.Scalar] = {}
        wanted: Sequence[messages.OutputName] = wire.wanted_of(request)
        if rows.count == 1:
            wanted = ("label", "ticket", *HOW)
        columns = _columns_of(answered, wanted)
        if rows.count == 1:
            parameters = {name: columns[name][0] for name in HOW}
        return wire.answer(
            columns, request, model=self._serving.name, id=id_, parameters=parameters
        )

    async def _answer(self, rows: Table, question: Question, slot: int | None) -> Request:
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
                rows.columns, slot=first, count=rows.count, previous_label=previous
            )

        return await self._node.answer(instances, contexts, question=question, slot=slot)

    async def _feedback(self, call: Call) -> Reply:
        head, tail = wire.halves(call, self._limits)
        depth = self._limits.depth
        if tail is None:
            told = wire.feedback(head, depth=depth)
        else:
            told = wire.binary_feedback(head, tail, depth=depth)
        count = 1 if told.rows is None else len(told.rows)
        if count > self._limits.rows:
            raise Problem(
                413, "too_many_rows", f"{count} rows; at most {self._limits.rows} at once"
            )
        source = _asker(call, told.parameters.get("client", call.who))
        try:
            settled = await self._settle(told, source)
        except (TicketError, UnfitLabel) as error:
            word = next(word for kind, word in WORDS if isinstance(error, kind))
            self._watcher.take(word, count)
            if word == "unknown" and "feedback-any" in call.rights and source == _source(call.who):
                raise UnknownTicket(f"{error}; one of another client needs {WHOSE}") from None
            raise
        new = sum(settled.new) if isinstance(settled.new, list) else int(settled.new)
        for word, labels in (("joined", new), ("repeated", count - new)):
            if labels:
                self._watcher.take(word, labels)
        return _json(settled, 202 if new else 200)

    async def _settle(self, told: messages.Feedback, source: str) -> messages.Settled:
        """Take labels: of a ticket, of rows of a request, or of one row as `id:row`."""
        id_, truth = told.id, cast("Any", told.truth)
        if told.rows is not None:
            many = await self._node.learn_rows(id_, told.rows, truth, source=source)
            return messages.Settled(id_, many.is_new, many.is_right)
        one = await self._node.learn(id_, truth, source=source)
        return messages.Settled(id_, one.is_new, one.is_right)

    def _previous_label(self) -> Label | None:
        """Return the label to look back at; None if it is from before the classes were changed."""
        label = self._node.previous_label
        try:
            self._served.labels.check_own([] if label is None else [label])
        except UnfitLabel:
            return None
        return label


def _columns_of(request: Request, wanted: Sequence[messages.OutputName]) -> Columns:
    """Return the outputs that are wanted, for all rows."""
    rows = range(len(request))
    make: dict[messages.OutputName, Callable[[], list[Any]]] = {
        "label": lambda: list(request.answers),
        "ticket": lambda: (
            wire.tickets_of(request.id, len(request)) if len(request) > 1 else [request.id]
        ),
        "phase": lambda: [request.group(row).phase for row in rows],
        "arm": lambda: [request.group(row).arm for row in rows],
        "function": lambda: [request.function(row) for row in rows],
        "price": lambda: [request.group(row).price for row in rows],
    }
    return {name: make[name]() for name in wanted}


def _asker(call: Call, client: messages.Scalar) -> str:
    """Return the source of a client's tickets, if the caller may label them."""
    if not isinstance(client, str):
        raise Problem(422, "invalid", "parameters.client must be the name of a client")
    if client != call.who and "feedback-any" not in call.rights:
        raise _not_allowed("feedback-any")
    return _source(client)


def _source(client: str) -> str:
    """Return whose tickets are a client's; without a name, those of everybody without one."""
    return f"client/{client}" if client else OWN


def _not_allowed(scope: str) -> Problem:
    return Problem(403, "not_allowed", f"the token is not for this; it needs scope {scope!r}")


def _json(told: Any, status: int = 200) -> Reply:
    return Reply(status, msgspec.json.encode(told))
