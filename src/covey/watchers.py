"""Observers of requests, peer calls, labels and writes."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from covey.errors import PeerBusy
from covey.node.peers import Peer
from covey.node.requests import AskRow, Assistance
from covey.types import Label, Report

Given = TypeVar("Given")


class Watcher:
    """Observer with no-op methods."""

    def answer(self, side: str, path: str, status: int, took_s: float) -> None:
        """Observe the response to a request."""

    def turn_away(self, side: str) -> None:
        """Observe a connection that was refused by the connection limit."""

    def take(self, word: str, labels: int = 1) -> None:
        """Observe the outcome of labels that a client sent."""

    def ask(self, peer: str, word: str, took_s: float) -> None:
        """Observe a call to a peer: `answered`, `failed`, `busy`, or `given_up`."""

    def write(self, took_s: float, *, is_written: bool) -> None:
        """Observe a write of the store."""


class WatchedPeer:
    """A peer whose calls are observed."""

    def __init__(self, name: str, peer: Peer, watcher: Watcher) -> None:
        self._name = name
        self._peer = peer
        self._watcher = watcher

    async def ask(self, requests: Sequence[AskRow]) -> list[Assistance]:
        """Ask the peer."""
        return await self._watched(self._peer.ask(requests))

    async def report(self, cell: str, slot: int) -> Report:
        """Ask the peer for a report."""
        return await self._watched(self._peer.report(cell, slot))

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        """Ask the peer for an estimate."""
        return await self._watched(self._peer.estimate(cell, slot, is_by_context=is_by_context))

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        """Deliver labels to the peer."""
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
    """Return the same peers, with all calls observed."""
    return {name: WatchedPeer(name, peer, watcher) for name, peer in peers.items()}
