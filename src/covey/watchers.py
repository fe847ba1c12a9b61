"""Who is told how long things take, and how they end; by default nobody."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from covey.errors import PeerBusy
from covey.node.peers import Peer
from covey.node.requests import AskRow, Assistance
from covey.types import Label, Report

Given = TypeVar("Given")


class Watcher:
    """Hears what happens at the edges of a node, and takes no note of it."""

    def answer(self, side: str, path: str, status: int, took_s: float) -> None:
        """Hear that a request was answered."""

    def turn_away(self, side: str) -> None:
        """Hear that a connection was closed because there were too many."""

    def take(self, word: str, labels: int = 1) -> None:
        """Hear what became of labels that a client sent."""

    def ask(self, peer: str, word: str, took_s: float) -> None:
        """Hear how a call to a peer ended: `answered`, `failed`, `busy`, or `given_up`."""

    def write(self, took_s: float, *, is_written: bool) -> None:
        """Hear that a batch was written, or that it was not."""


class WatchedPeer:
    """A peer, and a watcher of all that it is asked."""

    def __init__(self, name: str, peer: Peer, watcher: Watcher) -> None:
        self._name = name
        self._peer = peer
        self._watcher = watcher

    async def ask(self, requests: Sequence[AskRow]) -> list[Assistance]:
        """Ask as the peer is asked."""
        return await self._watched(self._peer.ask(requests))

    async def report(self, cell: str, slot: int) -> Report:
        """Ask for a report as the peer is asked."""
        return await self._watched(self._peer.report(cell, slot))

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        """Ask for an estimate as the peer is asked."""
        return await self._watched(self._peer.estimate(cell, slot, is_by_context=is_by_context))

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        """Deliver labels as they are delivered to the peer."""
        return await self._watched(self._peer.deliver(labels))

    async def _watched(self, call: Awaitable[Given]) -> Given:
        loop, word = asyncio.get_running_loop(), "failed"
        begun_s = loop.time()
        try:
            given = await call
            word = "answered"
        except PeerBusy:
            word = "busy"
            raise
        except asyncio.CancelledError:
            word = "given_up"
            raise
        finally:
            self._watcher.ask(self._name, word, loop.time() - begun_s)
        return given


def watched(peers: Mapping[str, Peer], watcher: Watcher) -> dict[str, Peer]:
    """Return the same peers, with a watcher of all that they are asked."""
    return {name: WatchedPeer(name, peer, watcher) for name, peer in peers.items()}
