"""A site as one node and as several shards in one process, and streams of requests for both."""

import json
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey.kernel.rules import Report
from covey.node.node import Node
from covey.node.requests import AskRow, Assistance
from covey.node.shard_node import ShardNode
from covey.node.store import Store
from covey.server import app, config
from covey.server.channel import ChannelClosed
from covey.server.client_api import ClientApi
from covey.server.config import SiteConfig
from covey.server.http import HttpRequest, respond
from covey.server.metrics import Metrics
from covey.server.routed_node import AnyNode, RoutedNode
from covey.server.shard import ShardApi, ids_in, store_of
from covey.server.shard_messages import ANSWERS, AnyCall, Started
from covey.types import Label

RIGHTS = frozenset(["infer", "feedback", "read", "metrics"])
INFER, FEEDBACK = "/v2/models/north/infer", "/v2/models/north/feedback"
KEY = "sha256:" + "0" * 64
Sent = tuple[str, dict[str, Any]]  # a path and a body


class LocalLink:
    """A shard of this process: calls and answers are written and read as between processes."""

    pid, restarts = 0, 0

    def __init__(self, node: ShardNode, store: Store) -> None:
        self.node, self.store = node, store
        self.is_up = True
        self._api = ShardApi(node)

    async def call(self, call: AnyCall) -> Any:
        if not self.is_up:
            raise ChannelClosed("it is away")
        sent: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(call), type=type(call))
        given = msgspec.msgpack.encode(await self._api.answer(sent))
        return msgspec.msgpack.decode(given, type=ANSWERS[type(call)])

    def started(self) -> Started:
        """Return what the shard would tell a new router."""
        node, askers = self.node, self.node.askers()
        slots = {one: node.slot_of(one) for one in askers}
        return Started(node.learner.slot, node.starts, node.latest_label, askers, slots, [])


class DirectPeer:
    """Another site of this process, as the site `source` sees it."""

    def __init__(self, node: AnyNode, source: str) -> None:
        self._node, self._source = node, source

    async def ask(self, rows: Sequence[AskRow]) -> list[Assistance]:
        return await self._node.assist(rows, source=self._source)

    async def report(self, cell: str, slot: int) -> Report:
        return await self._node.report(cell, slot, source=self._source)

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        return await self._node.estimate(
            cell, slot, source=self._source, is_by_context=is_by_context
        )

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        return await self._node.take_labels(labels, source=self._source)

    async def state(self, payments: Sequence[Any]) -> list[str]:
        return await self._node.take_payments(payments)

    async def status(self) -> Any:
        raise NotImplementedError


class DirectPeers:
    """The peers of a site, in this process."""

    def __init__(self, by_name: Mapping[str, DirectPeer]) -> None:
        self.by_name = dict(by_name)

    async def close(self) -> None: ...

    def reload(self) -> None: ...


class Site(NamedTuple):
    """A site: its API for clients, what answers, and the nodes behind it."""

    api: ClientApi
    node: AnyNode
    nodes: list[Node]
    links: list[LocalLink]

    async def drained(self) -> None:
        """Return when peers have all labels."""
        for node in self.nodes:
            await node.drained()


async def _node_of(
    served: SiteConfig, stack: AsyncExitStack, peers: Mapping[str, DirectPeer], **more: Any
) -> Any:
    metrics = Metrics({})
    store = await app.open_store(served)
    assert store is not None
    threads = app.open_threads(store, stack, metrics)
    connected: Any = DirectPeers(peers)
    site = app.ServedSite(store, threads, metrics, lambda *_: connected, **more)
    await site.open(served, None)
    stack.push_async_callback(site.close)
    return site.node, store


@asynccontextmanager
async def standing(
    path: Path, shards: int = 0, peers: Mapping[str, DirectPeer] | None = None
) -> AsyncIterator[Site]:
    """Serve a site by one node, or by several behind a router, all in this process."""
    async with AsyncExitStack() as stack:
        served = config.load(path)
        if not shards:
            node, _ = await _node_of(served, stack, peers or {})
            yield Site(ClientApi(served, node, Metrics({})), node, [node], [])
            return
        assert isinstance(served.store, Path)
        links = []
        for number in range(1, shards + 1):
            part = config.load(path)._replace(
                store=store_of(served.store, number, shards), processes=shards
            )
            links.append(LocalLink(*await _node_of(part, stack, peers or {}, kind=ShardNode)))
        routed = routing(path, links)
        nodes: list[Node] = [link.node for link in links]
        yield Site(ClientApi(served, routed, Metrics({})), routed, nodes, links)


def routing(path: Path, links: list[LocalLink]) -> RoutedNode:
    """Return a new router for shards that are there."""
    routed = RoutedNode(config.load(path), links, rng_of(1))
    for place, link in enumerate(links):
        routed.continue_from(place, link.started(), ids_in(link.store))
    return routed


async def sent(api: ClientApi, path: str, body: Any) -> tuple[int, Any]:
    """Return the status and the body that a request gets."""
    data = json.dumps(body).encode()
    call = HttpRequest("POST", path, {"content-type": "application/json"}, data, "", RIGHTS)
    reply = await respond(api, call)
    return reply.status, json.loads(reply.body)


async def answers_of(site: Site, stream: Sequence[Sent]) -> list[tuple[int, Any]]:
    """Return what each request of a stream gets; peers have all labels before the next one."""
    found = []
    for path, body in stream:
        found.append(await sent(site.api, path, body))
        await site.drained()
    return found


def rng_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a seeded stream


def stream_of(seed: int, count: int, *, rows: int = 6, wait: int = 20) -> list[Sent]:
    """Return requests and labels: in time, late, again, conflicting, of rows, of unknown ids."""
    return list(_stream(rng_of(seed), count, rows, wait))


def _stream(rng: random.Random, count: int, most: int, wait: int) -> Iterator[Sent]:
    asked: list[tuple[str, list[float]]] = []
    for number in range(count):
        id_ = f"q{number}"
        if rng.random() < 0.5 or not asked:
            size = 1 if rng.random() < 0.7 else rng.randint(2, most)
            points = [round(rng.random(), 3) for _ in range(size)]
            if asked and rng.random() < 0.08:
                id_ = rng.choice(asked)[0]  # mostly for another question
            elif asked and rng.random() < 0.08:
                id_, points = rng.choice(asked)  # the same question again
            yield question(id_, points)
            asked.append((id_, points))
        else:
            back = rng.randint(1, 4) if rng.random() < 0.8 else rng.randint(wait, 2 * wait)
            yield _labels(rng, *asked[-min(back, len(asked))])


def _labels(rng: random.Random, id_: str, points: list[float]) -> Sent:
    truths = [int(rng.random() < (0.8 if point < 0.5 else 0.2)) for point in points]
    if rng.random() < 0.03:
        return FEEDBACK, {"id": "never", "truth": 1}
    if len(points) == 1:
        return FEEDBACK, {"id": id_ + rng.choice(["", "", "", ":0", ":1"]), "truth": truths[0]}
    if rng.random() < 0.3:
        row = rng.randrange(len(points) + 1)
        return FEEDBACK, {"id": f"{id_}:{row}", "truth": truths[row % len(truths)]}
    if rng.random() < 0.1:
        return FEEDBACK, {"id": id_, "truth": truths[0]}
    chosen = rng.sample(range(len(points)), rng.randint(1, len(points)))
    if rng.random() < 0.1:
        chosen.append(len(points) + 3)
    return FEEDBACK, {"id": id_, "rows": chosen, "truth": [truths[k % len(truths)] for k in chosen]}


def question(id_: str, points: list[float], *, has_contexts: bool = True) -> Sent:
    """Return a request for rows with these contexts, or with these sizes."""
    size = len(points)
    inputs: list[dict[str, Any]] = [
        {"name": "size", "shape": [size], "datatype": "FP64", "data": points}
    ]
    if has_contexts:
        inputs.append({"name": "context", "shape": [size, 1], "datatype": "FP64", "data": points})
    outputs = ["label", "ticket", "phase", "arm", "function", "price"]
    return INFER, {"id": id_, "inputs": inputs, "outputs": [{"name": name} for name in outputs]}


class Learning:
    """A function that learns."""

    def predict_one(self, instance: Any) -> int:
        return 0

    def learn_one(self, instance: Any, label: Any) -> None: ...
