"""Peers that lie in messages: false answers, false labels, nonsense, or requests without end."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from chaos import cases
from covey.errors import CoveyError
from covey.server.peer_messages import ROOT
from covey.site.requests import AskRow

if TYPE_CHECKING:
    from chaos.links import Link
    from chaos.world import Network

CELLS = ("g1:0", "g2:0", "g3:0", "z0:0", "l0:0")  # some of which may be there
CALLS = ("ask", "report", "labels", "hello", "nowhere")
WRONG_HELP = [[1], "", -1]  # no label, no function, a negative number
NAN = float("nan")
LIES: dict[tuple[str, str], dict[str, Any]] = {
    ("report", "low"): {"arrivals": 0},
    ("report", "high"): {"arrivals": 2**50},
    ("report", "garbage"): {"arrivals": NAN},
}


def lie(how: str, kind: str, told: bytes, chance: random.Random) -> bytes:
    """Return what a lying peer responds in place of the truth."""
    if how == "silent" and kind != "labels" and chance.random() < 0.7:
        raise OSError("no response")
    if how == "garbage" and chance.random() < 0.2:
        return chance.randbytes(chance.randrange(60))
    answer = _read(told)
    if kind == "ask" and how == "garbage" and chance.random() < 0.5:
        return _changed(answer, given=[WRONG_HELP for _ in answer.get("given", ())])
    return _changed(answer, **LIES[kind, how]) if (kind, how) in LIES else told


async def poison(network: "Network", name: str) -> None:
    """Send false labels, twice and in conflict, of rows of others, and of ids used twice."""
    chance = network.chance
    for number in itertools.count():
        await asyncio.sleep(chance.expovariate(0.2))
        link, ids = _link(network, name), [f"{name}-{number}"]
        if chance.random() < 0.5:
            ids.append(f"{name}-{chance.choice((number - 1, 'second'))}")
        for id_ in ids:
            network.poison[link._name, name, id_] = {0, 1}
        await _try(link.ask(_rows(network, name, number, ids)))
        for label in (0, 1):
            await _try(link.deliver([(id_, label) for id_ in ids]))
        await _try(link.deliver([(f"{chance.randrange(8)}-{chance.randrange(20)}", 1)]))


async def flood(network: "Network", name: str) -> None:
    """Ask peers more and more, and send no labels."""
    for number in itertools.count():
        await asyncio.sleep(network.chance.expovariate(1.0))
        ids = [f"{name}-{number}"]
        await _try(_link(network, name).ask(_rows(network, name, number, ids)))


async def scribble(network: "Network", name: str) -> None:
    """Send peers what is no message, or what was never asked for."""
    chance = network.chance
    while True:
        await asyncio.sleep(chance.expovariate(0.5))
        wild: list[Any] = [
            chance.randbytes(chance.randrange(200)),
            b"\x91" * chance.randrange(1, 3_000),
            msgspec.msgpack.encode({"version": chance.randrange(3), "request": "r"}),
            msgspec.msgpack.encode([chance.choice(CELLS), None, 2**63, -1.5, {"": []}]),
        ]
        await _try(
            _link(network, name)._post(f"{ROOT}/{chance.choice(CALLS)}", chance.choice(wild))
        )


ENEMIES = {"poison": poison, "flood": flood, "scribble": scribble}


def _link(network: "Network", name: str) -> "Link":
    """Return a link to another site."""
    others = [other for other in network.names if other != name]
    return network.forger(name, network.chance.choice(others))


def _rows(network: "Network", name: str, number: int, ids: Sequence[str]) -> list[AskRow]:
    place, cell = network.names.index(name), network.chance.choice(CELLS)
    return [AskRow(id_, cell, 1, cases.forged(place, 2 * number + k)) for k, id_ in enumerate(ids)]


async def _try(call: Awaitable[object]) -> None:
    try:
        async with asyncio.timeout(2.0):
            await call
    except (CoveyError, OSError):
        pass


def _read(told: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.msgpack.decode(told)
    except ValueError:
        return {}  # a refusal, which is no message
    return answer if isinstance(answer, dict) else {}


def _changed(answer: dict[str, Any], **lies: Any) -> bytes:
    return msgspec.msgpack.encode({**answer, **lies})
