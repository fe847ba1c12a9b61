"""The routes over one node: Open Inference Protocol v2, and feedback. The one file with aiohttp."""

import asyncio
import logging
import random
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from covey import wire
from covey.books import OWN, Question
from covey.calls import Problem
from covey.errors import (
    ConflictingLabel,
    CoveyError,
    DataError,
    FunctionError,
    LateLabel,
    LimitError,
    MissingExtra,
    StoreError,
    UnknownTicket,
)
from covey.node import Doors, Node
from covey.sites import ServedSite
from covey.store import Store, Ticket
from covey.types import Context

try:
    from aiohttp import web
except ImportError as missing:
    raise MissingExtra('a node needs aiohttp to serve: pip install "covey[node]"') from missing

RECEIPT_S = 10.0  # within which a body must have come
AT_ONCE = 64  # rows of one request that are under way together
EXTENSIONS = ["covey_feedback"]
# The first that fits: subclasses stand before what they are made of.
STATUSES: tuple[tuple[type[CoveyError], int, str], ...] = (
    (LateLabel, 410, "label_too_late"),
    (UnknownTicket, 404, "ticket_unknown"),
    (ConflictingLabel, 409, "conflict"),
    (DataError, 422, "invalid"),
    (LimitError, 503, "busy"),
    (StoreError, 503, "store_failed"),
    (FunctionError, 500, "function_failed"),
)
log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Threads:
    """Runs what blocks: the store in one thread, and functions in another, one at a time each.

    A classifier need not bear two callers at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writer = ThreadPoolExecutor(1, "covey-store")
        self._runner = ThreadPoolExecutor(1, "covey-functions")

    async def __call__(self, run: Callable[..., Any], /, *given: Any) -> Any:
        """Return what `run` returns."""
        pool = self._writer if getattr(run, "__self__", None) is self._store else self._runner
        return await asyncio.get_running_loop().run_in_executor(pool, run, *given)

    def close(self) -> None:
        """Wait for what is under way."""
        self._runner.shutdown()
        self._writer.shutdown()


class Service:
    """The handlers of one site."""

    def __init__(self, served: ServedSite, node: Node) -> None:
        self._served = served
        self._serving = served.serving
        self._node = node
        self._dimension = None if served.has_contexts else (served.serving.dimension or 0)

    def app(self) -> web.Application:
        """Return the application with all routes."""
        app = web.Application(
            middlewares=[_problems], client_max_size=self._serving.body_kib * 1024
        )
        app.router.add_get("/v2/health/live", self._live)
        app.router.add_get("/v2/health/ready", self._ready)
        for path in ("/v2", "/v2/"):
            app.router.add_get(path, self._server)
        model = "/v2/models/{name}"
        app.router.add_get(model, self._model)
        app.router.add_get(f"{model}/ready", self._model_ready)
        app.router.add_post(f"{model}/infer", self._infer)
        app.router.add_post(f"{model}/feedback", self._feedback)
        return app

    async def _live(self, request: web.Request) -> web.Response:
        return _json({"live": True})

    async def _ready(self, request: web.Request) -> web.Response:
        return _json({"ready": self._node.is_ready}, 200 if self._node.is_ready else 503)

    async def _server(self, request: web.Request) -> web.Response:
        return _json({"name": "covey", "version": "2", "extensions": EXTENSIONS})

    async def _model(self, request: web.Request) -> web.Response:
        self._check_name(request)
        return _reply(wire.metadata(self._serving, dimension=self._dimension))

    async def _model_ready(self, request: web.Request) -> web.Response:
        self._check_name(request)
        return await self._ready(request)

    async def _infer(self, request: web.Request) -> web.Response:
        self._check_name(request)
        asked, digest = wire.inference(await _body(request))
        rows = wire.rows_of(asked, self._serving, dimension=self._dimension)
        contexts = [self._context(row) for row in rows]
        id_ = asked.id or f"{random.SystemRandom().getrandbits(128):032x}"
        ids = [id_] if len(rows) == 1 else [f"{id_}:{k}" for k in range(len(rows))]
        tickets: list[Ticket] = []
        for start in range(0, len(rows), AT_ONCE):
            tickets += await _all(
                self._node.predict(
                    self._instance(rows[k]),
                    contexts[k],
                    question=Question(OWN, ids[k], f"{digest}:{len(ids)}"),
                )
                for k in range(start, min(start + AT_ONCE, len(rows)))
            )
        return _reply(wire.answer(tickets, model=self._serving.name, id=id_, wanted=asked.outputs))

    async def _feedback(self, request: web.Request) -> web.Response:
        self._check_name(request)
        told = wire.feedback(await _body(request))
        settlement = await self._node.learn(told.id, told.truth)
        body = {"id": told.id, "new": settlement.is_new, "right": settlement.is_right}
        return _json(body, 202 if settlement.is_new else 200)

    def _check_name(self, request: web.Request) -> None:
        if request.match_info["name"] != self._serving.name:
            raise Problem(404, "model_unknown", f"the model here is {self._serving.name!r}")

    def _context(self, row: wire.Row) -> Context:
        if not self._served.has_contexts:
            return row.context or ()
        contexts = self._served.setup.context
        return contexts.extract_one(row.record, slot=self._node.learner.slot + 1)

    def _instance(self, row: wire.Row) -> Any:
        is_record = self._serving.instance == "record"
        return row.record if is_record else list(row.record.values())


async def serve(served: ServedSite, *, is_up: Callable[[str], None]) -> None:
    """Serve a site until the process is told to stop; `is_up` is told where it listens."""
    store = Store(served.store)
    threads = Threads(store)
    doors = Doors(store, {}, random.SystemRandom(), threads)
    node = Node(served.site, served.learner, served.functions, doors, patience=served.patience)
    runner = web.AppRunner(Service(served, node).app(), access_log=None, handle_signals=False)
    stop = _stop_signal()
    try:
        await runner.setup()
        site = web.TCPSite(runner, served.host, served.port)
        await site.start()
        node.start()
        host, port = runner.addresses[0][:2]
        is_up(f"http://{host}:{port}/v2/models/{served.serving.name}")
        await stop.wait()
    finally:
        await runner.cleanup()  # requests under way are answered first
        node.stop()
        threads.close()
        store.close()


def _stop_signal() -> asyncio.Event:
    """Return what is set when the process is told to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _all(calls: Any) -> list[Ticket]:
    """Return all results; if one fails, so does the whole, when all others are done."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


async def _body(request: web.Request) -> bytes:
    """Return the body of a request, if it is JSON and comes in time."""
    if "Content-Encoding" in request.headers or request.content_type != "application/json":
        raise Problem(415, "media_type", "send application/json, not compressed")
    try:
        async with asyncio.timeout(RECEIPT_S):
            return await request.read()
    except TimeoutError:
        raise Problem(408, "too_slow", f"the body did not come within {RECEIPT_S:g} s") from None
    except web.RequestPayloadError:
        raise Problem(400, "broken_body", "the body did not come whole") from None


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every failure with a problem: a status, a stable code, a sentence."""
    try:
        return await handler(request)
    except Problem as problem:
        return _problem(problem)
    except CoveyError as error:
        return _problem(_problem_of(error))
    except web.HTTPException as error:
        code = {404: "not_found", 405: "method", 413: "too_large"}.get(error.status, "refused")
        return _problem(Problem(error.status, code, error.reason))
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("a request failed unexpectedly")
        return _problem(Problem(500, "unexpected", "an unexpected failure; the log says more"))


def _problem_of(error: CoveyError) -> Problem:
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            return Problem(status, code, str(error))
    return Problem(500, "unexpected", str(error))


def _problem(problem: Problem) -> web.Response:
    reply = problem.reply()
    return web.Response(
        body=reply.body,
        status=reply.status,
        headers=dict(reply.headers),
        content_type=reply.kind,
    )


def _json(told: Any, status: int = 200) -> web.Response:
    return _reply(msgspec.json.encode(told), status)


def _reply(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
