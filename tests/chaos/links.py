"""Links between sites: messages as bytes, and the faults that they meet on the way.

A message may be lost, late, repeated and overtaken; so may the response to it. In reality TLS finds
damage, so a damaged message is one of a peer with a bug.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from chaos import cases
from chaos.enemies import lie
from chaos.states import picture
from covey.errors import PeerError
from covey.node.node import Node
from covey.server.http import HttpRequest, HttpResponse
from covey.server.peer_client import PeerClient
from covey.server.peer_messages import AnyReply, PeerMessage
from support import virtual
from support.message_links import MessageLink, message_call, respond

if TYPE_CHECKING:
    from chaos.world import Network

LOST_S = 1e5  # until the system gives a connection up
HEAD = 18  # bytes of a message, none of which can be another: how it begins, and its version
QUESTIONS = ("ask", "report")
REFUSALS = (400, 403, 404, 422, 429, 503)


class CheckedClient(PeerClient):
    """Sends messages, and says which of them had a response that was accepted."""

    def __init__(self, *given: Any, accepted: Callable[[str], None]) -> None:
        super().__init__(*given)
        self._accepted = accepted

    async def _send(self, call: str, message: PeerMessage, kind: type[AnyReply]) -> AnyReply:
        answer = await super()._send(call, message, kind)
        self._accepted(message.request)
        return answer


class Link(MessageLink):
    """A link from one site to another: cut, slow, lossy, or with a lying peer at its end."""

    _world: "Network"
    is_forged = False  # used by a lying peer, without its node

    def __init__(self, world: "Network", source: str, name: str) -> None:
        self._table = world.plan.tables[source][name]  # the [[peer]] table of the source
        self._there = world.plan.tables[name][source]
        self._spoilt: set[str] = set()  # messages whose response must not be accepted
        self._latest: dict[str, HttpResponse] = {}  # by the path
        super().__init__(world, source, name)

    def _write(self, world: virtual.World) -> PeerClient:
        return CheckedClient(self._table, self._post, world.chance, accepted=self._accepted)

    def _accepted(self, request: str) -> None:
        is_sound = request not in self._spoilt
        self._world.expect(is_sound, "I15", f"{self._source} accepted what is no response to it")

    def _check_circuit(self, kind: str) -> None:
        """I16: a peer is asked nothing while its circuit is open."""
        node = None if self.is_forged else self._world.nodes.get(self._source)
        if node is not None and kind in QUESTIONS:
            breaker = node._breakers[self._name]
            is_closed = _now_s() >= max(breaker._until_s, breaker._busy_until_s)
            how = f"{self._source} asks {self._name}, whose circuit is open"
            self._world.expect(is_closed, "I16", how)

    async def _post(self, path: str, body: bytes) -> HttpResponse:
        world, kind = self._world, path.rpartition("/")[2]
        world.counts["messages"] += 1
        self._check_circuit(kind)
        world.note("send", self._source, self._name, kind, body, _now_s())
        if world.chance.random() < world.storm.crash_at_send:
            world.counts["crashes at a send"] += 1
            world.crash(self._source)
            await asyncio.sleep(3600)
        # On the way it belongs to no site: its sender may pause, give it up, or crash.
        loop = asyncio.get_running_loop()
        going = loop.create_task(self._exchange(path, body), context=virtual.at(""))
        going.add_done_callback(virtual._ignore)
        reply: HttpResponse = await asyncio.shield(going)
        return reply

    async def _exchange(self, path: str, body: bytes) -> HttpResponse:
        world, kind = self._world, path.rpartition("/")[2]
        self._check_shown(body)
        world.counts["asks by cell"] += kind == "ask" and self._table.share == "context"
        await self._transit(self._source, self._name)
        if path in self._latest and world.chance.random() < world.storm.crossed:
            world.counts["responses to others"] += 1
            self._spoilt.add(_request(body))
            return self._latest[path]
        arriving = self._deliver(path, body)
        if world.chance.random() < world.storm.repeats:
            world.counts["repeated"] += 1
            again = asyncio.ensure_future(self._again(path, body))
            again.add_done_callback(virtual._ignore)
        reply = await arriving
        told = reply.body
        world.note("deliver", self._source, self._name, kind, reply.status, told, _now_s())
        self._check_shown(told)
        self._latest[path] = reply
        await self._transit(self._name, self._source)
        told = lie(world.plan.liars.get(self._name, ""), kind, told, world.chance)
        told = self._damage_answer(kind, told, _request(body))
        return msgspec.structs.replace(reply, body=told)

    async def _again(self, path: str, body: bytes) -> None:
        await asyncio.sleep(self._world.chance.expovariate(0.2))
        await self._deliver(path, body)

    async def _deliver(self, path: str, body: bytes) -> HttpResponse:
        """Let the other side answer; it continues even if the caller has stopped waiting."""
        world = self._world
        if world.chance.random() < world.storm.damage:
            world.counts["damaged messages"] += 1
            call = message_call(path, _spoil(body, world.chance), who=self._source)
            arriving = self._arrive(lambda node: self._refuse(node, call))
        else:
            call = message_call(path, body, who=self._source)
            arriving = self._arrive(lambda node: self._answer(node, call))
        answering = asyncio.ensure_future(arriving)
        answering.add_done_callback(virtual._ignore)
        return await asyncio.shield(answering)

    async def _answer(self, node: Node, call: HttpRequest) -> HttpResponse:
        """Respond as the node does, which has a response to everything."""
        world, is_question = self._world, call.path.endswith(QUESTIONS)
        try:
            reply = await respond(world.backs[self._name], call)
        except Exception as error:
            world.blame("I15", f"{self._name} failed at a message of {self._source}: {error!r}")
            raise
        if is_question and not self._there.may_ask:
            world.counts["refused asks"] += 1
            is_refused = reply.status in REFUSALS
            world.expect(
                is_refused, "I15", f"{self._name} answered {self._source}, which may not ask"
            )
        return reply

    async def _refuse(self, node: Node, call: HttpRequest) -> HttpResponse:
        """Let the node see a damaged message: it refuses that, and its state stays the same."""
        before = picture(node._state)
        reply = await self._answer(node, call)
        is_refused = reply.status in REFUSALS and picture(node._state) == before
        self._world.expect(is_refused, "I15", f"{self._name} accepted a damaged message")
        return reply

    async def _transit(self, source: str, target: str) -> None:
        world = self._world
        is_cut = {(source, target), ("", target), (source, "")} & world.cuts
        if is_cut or world.chance.random() < world.storm.loss:
            world.counts["lost"] += 1
            await asyncio.sleep(LOST_S)
            raise PeerError("the message is lost")
        is_slow = world.chance.random() < world.storm.tail
        mean_s = 20.0 if is_slow else world.storm.delay_s
        await asyncio.sleep(virtual.exponential(world, mean_s))

    def _damage_answer(self, kind: str, told: bytes, request: str) -> bytes:
        """Truncate a response, or change a bit anywhere: what can be read then is like any lie.

        Those to `hello` are truncated only, as what they say is compared with the truth.
        """
        world = self._world
        if world.chance.random() >= world.storm.damage or not told:
            return told
        world.counts["damaged responses"] += 1
        if kind != "hello" and world.chance.random() < 0.5:
            return _flipped(told, world.chance.randrange(8 * len(told)))
        self._spoilt.add(request)
        return told[: world.chance.randrange(len(told))]

    def _check_shown(self, sent: bytes) -> None:
        is_shown = cases.is_shown(sent)
        self._world.counts["messages with an instance"] += is_shown
        is_hidden = not is_shown or self._table.may_see("data")
        how = f"{self._source} sent {self._name} an instance, not the cell alone"
        self._world.expect(is_hidden, "I14", how)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _request(body: bytes) -> str:
    """Return the id of a message."""
    try:
        return str(msgspec.msgpack.decode(body)["request"])
    except (ValueError, TypeError, KeyError):
        return ""  # its sender waits for no response


def _spoil(body: bytes, chance: Any) -> bytes:
    """Return a message so damaged that it is none: truncated, too long, or with another head."""
    how = chance.randrange(3)
    if how == 0 and body:
        return body[: chance.randrange(len(body))]
    if how == 1 or not body:
        return body + bytes([chance.randrange(256)])
    return _flipped(body, chance.randrange(8 * min(HEAD, len(body))))


def _flipped(sent: bytes, bit: int) -> bytes:
    changed = bytearray(sent)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
