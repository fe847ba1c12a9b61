"""Peers that do more than lie when asked: they send false labels, or questions without end."""

import asyncio
import itertools
from collections.abc import Awaitable

from covey.errors import CoveyError
from covey.peers import Request
from storm.world import Link, Network

CELLS = ("g1:0", "g2:0", "g3:0", "z0:0", "l0:0")  # some of which may be there


async def poison(network: Network, name: str) -> None:
    """Ask peers and tell them what is not true, twice and otherwise, and of others' tickets too."""
    chance, numbers = network.chance, itertools.count()
    while True:
        await asyncio.sleep(chance.expovariate(0.2))
        link, id_ = _link(network, name), f"{name}-{next(numbers)}"
        labels = network.poison.setdefault((link._name, name, id_), {0, 1})
        await _try(link.ask([_request(network, id_)]))
        for label in sorted(labels):
            await _try(link.deliver([(id_, label)]))
        await _try(link.deliver([(f"{chance.randrange(8)}-{chance.randrange(20)}", 1)]))


async def flood(network: Network, name: str) -> None:
    """Ask peers more and more, never a label."""
    for number in itertools.count():
        await asyncio.sleep(network.chance.expovariate(1.0))
        link = _link(network, name)
        await _try(link.ask([_request(network, f"{name}-{number}")]))


def _link(network: Network, name: str) -> Link:
    """Return the way to somebody else."""
    others = [other for other in network.names if other != name]
    return Link(network, name, network.chance.choice(others))


def _request(network: Network, id_: str) -> Request:
    return Request(id_, network.chance.choice(CELLS), 1, (0, 0))


async def _try(call: Awaitable[object]) -> None:
    try:
        async with asyncio.timeout(2.0):
            await call
    except (CoveyError, TimeoutError):
        pass


ENEMIES = {"poison": poison, "flood": flood}
