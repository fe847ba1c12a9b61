"""The side of a node that its clients see: Open Inference Protocol v2, and feedback, on bytes."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from covey import messages, openapi, wire
from covey.books import OWN, Question
from covey.calls import JSON, Call, Problem, Reply
from covey.errors import ConflictingLabel, LateLabel, TicketError, UnknownTicket
from covey.node import Node
from covey.routes import ROUTES, Route
from covey.sites import ServedSite
from covey.store import Ticket
from covey.types import Context
from covey.watchers import Watcher

AT_ONCE = 64  # rows of one request that are under way together
EXTENSIONS = ["covey_feedback"]
Answerer = Callable[[Call], Awaitable[Reply]]
# What the refusals of labels are called where they are counted.
WORDS = ((LateLabel, "late"), (UnknownTicket, "unknown"), (ConflictingLabel, "conflict"))


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
        asked, digest = wire.inference(_body(call), depth=self._limits.depth)
        rows = wire.rows_of(asked, self._serving, dimension=self._dimension, most=self._limits.rows)
        slots = wire.slots_of(asked, self._serving, count=len(rows))
        contexts = [self._context(row, slot) for row, slot in zip(rows, slots, strict=True)]
        id_ = asked.id or f"{random.SystemRandom().getrandbits(128):032x}"
        ids = [id_] if len(rows) == 1 else [f"{id_}:{k}" for k in range(len(rows))]
        source = _source(call.who)
        tickets: list[Ticket] = []
        for start in range(0, len(rows), AT_ONCE):
            tickets += await _all(
                self._node.predict(
                    self._instance(rows[k]),
                    contexts[k],
                    question=Question(source, ids[k], f"{digest}:{len(ids)}"),
                    slot=slots[k],
                )
                for k in range(start, min(start + AT_ONCE, len(rows)))
            )
        return Reply(
            body=wire.answer(tickets, model=self._serving.name, id=id_, wanted=asked.outputs)
        )

    async def _feedback(self, call: Call) -> Reply:
        told = wire.feedback(_body(call), depth=self._limits.depth)
        source = _asker(call, told.parameters.get("client", call.who))
        try:
            settlement = await self._node.learn(told.id, told.truth, source=source)
        except TicketError as error:
            self._watcher.take(next(word for kind, word in WORDS if isinstance(error, kind)))
            raise
        self._watcher.take("joined" if settlement.is_new else "repeated")
        body = messages.Settled(told.id, settlement.is_new, settlement.is_right)
        return _json(body, 202 if settlement.is_new else 200)

    def _context(self, row: wire.Row, slot: int | None) -> Context:
        if not self._served.has_contexts:
            return row.context or ()
        contexts = self._served.setup.context
        return contexts.extract_one(row.record, slot=slot or self._node.learner.slot + 1)

    def _instance(self, row: wire.Row) -> Any:
        is_record = self._serving.instance == "record"
        return row.record if is_record else list(row.record.values())


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


def _body(call: Call) -> bytes:
    kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise Problem(415, "media_type", f"send {JSON}")
    return call.body


async def _all(calls: Iterable[Awaitable[Ticket]]) -> list[Ticket]:
    """Return all results; if one fails, so does the whole, when all others are done."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _json(told: Any, status: int = 200) -> Reply:
    return Reply(status, msgspec.json.encode(told))
