"""Links of a virtual network that carry peer messages, as bytes, to the peer API of a node."""

from collections.abc import Sequence
from typing import Any, ClassVar

from covey.kernel.rules import Report
from covey.node.node import Node
from covey.server.config import PeerConfig
from covey.server.http import HttpProblem, HttpRequest, HttpResponse, too_large
from covey.server.peer_api import PeerApi
from covey.server.peer_client import PeerClient
from covey.server.peer_messages import KIND, HelloReply
from covey.site.requests import AskRow, Assistance
from covey.types import Label
from support import virtual

KEY = "p256:A2sX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKW"
HEADERS = {"content-type": KIND}


def neighbour(name: str, **more: Any) -> PeerConfig:
    """Return a peer that may do everything, at any rate."""
    rights = {"share": "data", "may_ask": True, "asks_by_context": True, "rate_per_s": 1e9}
    return PeerConfig(**{"name": name, "key": KEY, "in_flight": 1_024, **rights, **more})


def message_call(path: str, body: bytes, *, who: str) -> HttpRequest:
    """Return the request with a message, as the peer API gets it."""
    return HttpRequest("POST", path, HEADERS, body, who)


async def respond(back: PeerApi, call: HttpRequest) -> HttpResponse:
    try:
        if len(call.body) > (most := back.expect(call.who)):
            raise too_large(most)
        return await back.handle(call)
    except HttpProblem as problem:
        return problem.reply()


class MessageLink(virtual.Link):
    """A link from one site to another, by peer messages."""

    rights: ClassVar[dict[str, Any]] = {}  # of the other, besides the usual ones

    def __init__(self, world: virtual.World, source: str, name: str) -> None:
        super().__init__(world, source, name)
        self._client = self._write(world)

    def _write(self, world: virtual.World) -> PeerClient:
        """Return the client that writes the messages."""
        return PeerClient(neighbour(self._name, **self.rights), self._post, world.chance)

    async def ask(self, requests: Sequence[AskRow]) -> list[Assistance]:
        return await self._client.ask(requests)

    async def report(self, cell: str, slot: int, what: Any = "arrivals") -> Report:
        return await self._client.report(cell, slot, what)

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        return await self._client.deliver(labels)

    async def hello(self) -> HelloReply:
        return await self._client.hello()

    async def _post(self, path: str, body: bytes) -> HttpResponse:
        call = message_call(path, body, who=self._source)
        known = {self._source: neighbour(self._source)}

        def say(node: Node) -> Any:
            return respond(PeerApi(node, known), call)

        reply: HttpResponse = await self._send(say)
        return reply
