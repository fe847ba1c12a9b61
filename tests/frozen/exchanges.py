"""Exchanges of the peer protocol: an asker, a peer that answers it, and records of both."""

import base64
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from covey.bandit.learner import NO_ANSWER
from covey.errors import PeerError
from covey.node.requests import NO_INSTANCE, AskRow
from covey.server.http import HttpRequest, HttpResponse
from covey.server.peer_api import PeerApi
from covey.server.peer_client import PeerClient
from covey.server.peer_messages import KIND
from support.message_links import neighbour, respond
from support.virtual import World

FOLDER = Path(__file__).with_name("messages")
POLICIES: dict[str, dict[str, Any]] = {
    "cos": {"preset": "cos", "slices": 2},
    "dcza": {"preset": "dcza", "split-power": 2.0},
    "auto": {"preset": "two-sizes"},  # its name since then
    "balance": {"preset": "balance", "slices": 2},
}
Record = dict[str, Any]


def recorded(preset: str) -> list[Record]:
    """Return the exchanges that were recorded with a peer of this preset, in their order."""
    records: list[Record] = json.loads((FOLDER / f"{preset}.json").read_text(encoding="utf-8"))
    return records


def answers(instance: Any) -> int | str:
    """Answer as a function of a site does; one instance is too much for it."""
    if instance == "unreadable":
        raise ValueError(instance)
    return "text" if instance == "text" else len(str(instance)) % 2


def peer_world(preset: str) -> World:
    """Return a world in which south can be asked; to be made within a running loop."""
    config: dict[str, Any] = {
        "policy": POLICIES[preset],
        "learner": [
            {"name": "south", "functions": ["c", "d"], "peers": {}},
            {"name": "north", "functions": ["a"], "peers": {"south": 0.0}},
        ],
    }
    if preset in ("cos", "dcza"):  # then south keeps labels, to answer by the cell
        config["learner"][1] |= {"peers": {}, "context-peers": {"south": 0.0}}
    functions = {"a": answers, "c": answers, "d": answers}
    return World(config, functions, dimension=1, trust="full")


async def send(world: World, record: Record) -> HttpResponse:
    """Return how south answers a recorded request."""
    known = {"north": neighbour("north", **record["rights"])}
    features = {"size": "FP64", "kind": "BYTES"}
    back = PeerApi(world.nodes["south"], known, features=features, instance="record")
    body = base64.b64decode(record["request"])
    headers = {"content-type": record["content-type"]}
    made = HttpRequest(record["method"], record["path"], headers, body, record["who"])
    if "rate_per_s" in record["rights"]:  # one call a second, of which this is the second
        await respond(back, made)
    return await respond(back, made)


def reply_of(record: Record) -> HttpResponse:
    """Return the reply that was recorded."""
    body = base64.b64decode(record["reply"])
    return HttpResponse(record["status"], body, record["kind"], record["headers"])


class Numbered(random.Random):
    """Gives the request ids 1, 2, 3 and so on from a first one."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.latest = first - 1

    def getrandbits(self, k: int, /) -> int:
        self.latest += 1
        return self.latest


async def call(client: PeerClient, verb: str, given: Sequence[Any]) -> Any:
    """Return what an asker makes of a reply, as JSON has it; an error as the name of its class."""
    try:
        if verb == "ask":
            helped = await client.ask([_request(*one) for one in given])
            return [[_label(one.label), one.function, one.width] for one in helped]
        if verb == "report":
            return list(await client.report(*given))
        if verb == "estimate":
            cell, slot, is_by_context = given
            return list(await client.estimate(cell, slot, is_by_context=is_by_context))
        if verb == "deliver":
            return await client.deliver([(id_, label) for id_, label in given])
        hello = await client.hello()
        spaces = [[one.name, one.cells, one.dimension] for one in hello.spaces]
        features = [[one.name, one.datatype] for one in hello.features]
        return [hello.name, hello.incarnation, hello.preset, spaces, hello.instance, features]
    except PeerError as error:
        return type(error).__name__


def peer_client(post: Any, first: int) -> PeerClient:
    """Return the asker's side, whose request ids are numbered from `first`."""
    return PeerClient(neighbour("south"), post, Numbered(first))


def _request(id_: str, cell: str, slot: int, *instance: Any) -> AskRow:
    return AskRow(id_, cell, slot, instance[0] if instance else NO_INSTANCE)


def _label(label: Any) -> Any:
    return None if label is NO_ANSWER else label


def record(request: bytes, reply: HttpResponse, **more: Any) -> Record:
    """Return an exchange as it is kept."""
    return {
        **more,
        "request": base64.b64encode(request).decode(),
        "status": reply.status,
        "kind": reply.kind,
        "headers": dict(reply.headers),
        "reply": base64.b64encode(reply.body).decode(),
    }


USUAL = {"method": "POST", "content-type": KIND, "who": "north", "rights": {}}
