"""Requests that a site forwards: peers ask its peers through it, and labels go the same way.

A forwarded row is a request of the peer that sent it, and the answer of the next site is kept with
it. So everything else is as with other rows: the same question gets the same answer, a label is
durable here before it goes on, and every site pays the next one.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from covey.errors import DataError, PeerDeclined
from covey.kernel.rules import Cell, Report
from covey.node.node import Node
from covey.node.peers import DEADLINE_S, VIA, CircuitBreaker, checked_slot
from covey.node.requests import AskRow, Assistance, Request

MOST_HOPS = 8  # sites that a request may have passed


class RelayRoute(msgspec.Struct, frozen=True):
    """Where a forwarded request goes: to which site, past which ones, and in what time."""

    to: str
    via: tuple[str, ...]  # the asker first, the sender last
    left_s: float = math.inf


class RelayingNode(Node):
    """A node that also forwards requests of peers to peers that it may ask itself."""

    async def relay(
        self, rows: Sequence[AskRow], route: RelayRoute, *, source: str
    ) -> list[Assistance]:
        """Return the answers of another site to rows of a peer.

        Raises `DataError` for a route that leads in a circle or is too long, `PeerDeclined` for a
        site that this one does not ask, and `PeerError` if there is no answer.
        """
        self.next_hop(route, source)

        async def forward(cells: Sequence[Cell]) -> Request:
            first = self.new_id()
            ids = [f"{first}:{k}" if len(rows) > 1 else first for k in range(len(rows))]
            sent = [
                msgspec.structs.replace(row, id=id_) for row, id_ in zip(rows, ids, strict=True)
            ]
            with _along(route):
                given = await self._driver.ask(route.to, sent)
            return self._state.relay(rows, cells, given, source=source, peer=route.to, ids=ids)

        return await self.assist(rows, source=source, forward=forward)

    async def relay_report(self, cell: str, slot: int, route: RelayRoute, *, source: str) -> Report:
        """Return what another site reports of a cell; raise as `relay` does."""
        peer = self.next_hop(route, source)
        self._driver.begin(source)
        with _along(route):
            return await peer.report(cell, checked_slot(slot))

    async def relay_estimate(
        self, cell: str, slot: int, route: RelayRoute, *, source: str, is_by_context: bool
    ) -> tuple[float, int]:
        """Return the accuracy of another site's answers in a cell; raise as `relay` does."""
        peer = self.next_hop(route, source)
        self._driver.begin(source)
        with _along(route):
            return await peer.estimate(cell, checked_slot(slot), is_by_context=is_by_context)

    def next_hop(self, route: RelayRoute, source: str) -> CircuitBreaker:
        """Return the way to the site that a route leads to; raise as `relay` does."""
        if not route.via or route.via[-1] != source:
            raise DataError(f"the route does not end with {source!r}, which sends the request")
        if self.name in route.via or route.to in route.via:
            raise DataError("the route leads in a circle; the request is not forwarded")
        if len(route.via) > MOST_HOPS:
            raise DataError(f"the route has passed {len(route.via)} sites; at most {MOST_HOPS} may")
        peer = self._breakers.get(route.to)
        if peer is None:
            raise PeerDeclined(f"{self.name!r} does not ask {route.to!r}, and cannot forward to it")
        return peer


@contextmanager
def _along(route: RelayRoute) -> Iterator[None]:
    """Let calls to peers know what the request has passed, and when it must be answered."""
    until_s = asyncio.get_running_loop().time() + route.left_s
    deadline, via = DEADLINE_S.set(min(until_s, DEADLINE_S.get())), VIA.set(route.via)
    try:
        yield
    finally:
        DEADLINE_S.reset(deadline)
        VIA.reset(via)
