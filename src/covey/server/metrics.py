"""Metrics of a node for Prometheus."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TypeVar

from covey import kernel as kernel_module
from covey.errors import MissingExtra, PeerBusy
from covey.kernel.rules import Report
from covey.node.node import Node
from covey.node.peers import Peer
from covey.node.requests import AskRow, Assistance
from covey.node.status import State, kinds_of
from covey.node.workers import Observer
from covey.server.http import HttpResponse
from covey.types import Label

Given = TypeVar("Given")


class ObservedPeer:
    """A peer whose calls are observed."""

    def __init__(self, name: str, peer: Peer, watcher: Observer) -> None:
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


def observed(peers: Mapping[str, Peer], watcher: Observer) -> dict[str, Peer]:
    """Return the same peers, with all calls observed."""
    return {name: ObservedPeer(name, peer, watcher) for name, peer in peers.items()}


try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        InfoMetricFamily,
    )
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise MissingExtra('metrics need prometheus-client: pip install "covey[node]"') from missing

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MOST_BITS = 24  # of the slots that a label was waited for; longer ones count as endless
OTHER = "other"  # unknown paths share one label value (bounded cardinality)


class Metrics(Observer):
    """The metrics of one node, in its own registry."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        """`paths` maps the paths of the site to label values."""
        self._paths = dict(paths)
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "covey_http_requests",
            "Requests that were answered.",
            ["side", "path", "status"],
            registry=registry,
        )
        self._request_s = Histogram(
            "covey_http_request_duration_seconds",
            "From the head of a request to its answer.",
            ["side", "path"],
            buckets=SECONDS,
            registry=registry,
        )
        self._turned_away = Counter(
            "covey_http_connections_refused",
            "Connections that were closed because there were too many.",
            ["side"],
            registry=registry,
        )
        self._labels = Counter(
            "covey_labels",
            "Labels that clients sent, by what became of them.",
            ["state"],
            registry=registry,
        )
        self._peer_s = Histogram(
            "covey_peer_request_duration_seconds",
            "Calls to peers.",
            ["peer"],
            buckets=SECONDS,
            registry=registry,
        )
        self._peer_calls = Counter(
            "covey_peer_requests",
            "Calls to peers, by how they ended.",
            ["peer", "outcome"],
            registry=registry,
        )
        self._write_s = Histogram(
            "covey_store_write_duration_seconds",
            "Batches written to the store.",
            buckets=SECONDS,
            registry=registry,
        )
        self._failed_writes = Counter(
            "covey_store_write_failures",
            "Batches that were not written; the node stops at the first.",
            registry=registry,
        )

    def follow(self, node: Node) -> None:
        """Include the state of a node."""
        self._registry.register(_Standing(node))

    def page(self) -> HttpResponse:
        """Return all metrics as text."""
        return HttpResponse(body=generate_latest(self._registry), kind=CONTENT_TYPE_LATEST)

    def answer(self, side: str, path: str, status: int, took_s: float) -> None:
        """Count and time a request."""
        known = self._paths.get(path, OTHER)
        self._requests.labels(side, known, str(status)).inc()
        self._request_s.labels(side, known).observe(took_s)

    def turn_away(self, side: str) -> None:
        """Count a connection."""
        self._turned_away.labels(side).inc()

    def take(self, word: str, labels: int = 1) -> None:
        """Count labels."""
        self._labels.labels(word).inc(labels)

    def ask(self, peer: str, word: str, took_s: float) -> None:
        """Count and time a call to a peer."""
        self._peer_calls.labels(peer, word).inc()
        self._peer_s.labels(peer).observe(took_s)

    def write(self, took_s: float, *, is_written: bool) -> None:
        """Time a batch."""
        self._write_s.observe(took_s)
        if not is_written:
            self._failed_writes.inc()


class _Standing(Collector):
    """Values that the node counts itself, read for every scrape."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        state = self._node.state()
        yield self._build()
        yield from self._decisions()
        yield from self._labels()
        yield self._failures()
        yield from self._gauges(state)
        yield from self._peers(state)

    def _build(self) -> Metric:
        kernel = "compiled" if kernel_module.is_compiled() else "plain"
        return InfoMetricFamily(
            "covey_build", "What runs.", {"version": version("covey"), "kernel": kernel}
        )

    def _decisions(self) -> Iterator[Metric]:
        ledger, kinds = self._node.counters, kinds_of(self._node.learner)
        decisions = CounterMetricFamily(
            "covey_decisions", "Decisions since the start.", labels=["phase", "arm_kind"]
        )
        counts: dict[tuple[str, str], int] = {}
        for (phase, arm), count in ledger.decisions.items():
            key = (phase, kinds.get(arm, "own"))
            counts[key] = counts.get(key, 0) + count
        for (phase, kind), count in sorted(counts.items()):
            decisions.add_metric([phase, kind], count)
        yield decisions
        yield CounterMetricFamily(
            "covey_decisions_alone",
            "Rows decided as if there were no peers, since one failed or was late.",
            ledger.alone,
        )
        cost = CounterMetricFamily(
            "covey_cost", "What answers have cost since the start.", labels=["arm_kind"]
        )
        spent = dict.fromkeys(kinds.values(), 0.0)
        for arm, price in ledger.spent.items():
            spent[kinds[arm]] += price
        for arm_kind, price in spent.items():
            cost.add_metric([arm_kind], price)
        yield cost

    def _labels(self) -> Iterator[Metric]:
        ledger = self._node.counters
        labels, right = ledger.labels.total(), ledger.right.total()
        ratio = GaugeMetricFamily(
            "covey_reward_ratio", "The share of own clients' labels that the arm got right."
        )
        if labels:
            ratio.add_metric([], right / labels)
        yield ratio
        waits = HistogramMetricFamily(
            "covey_label_delay_slots", "Slots between a decision and its label, of peers too."
        )
        waits.add_metric([], _cumulated(ledger.waits), ledger.waited_slots)
        yield waits

    def _failures(self) -> Metric:
        failures = CounterMetricFamily(
            "covey_function_failures", "Calls of own functions that failed.", labels=["function"]
        )
        for name, count in self._node.failures.items():
            failures.add_metric([name], count)
        return failures

    def _gauges(self, state: State) -> Iterator[Metric]:
        for name, says, value in (
            ("covey_ready", "1 if labels can be kept.", float(state.is_ready)),
            ("covey_uptime_seconds", "Since the start.", state.uptime_s),
            ("covey_slot", "The latest slot.", state.slot),
            ("covey_pending_labels", "Tickets whose label is waited for.", state.open_tickets),
            ("covey_active_cells", "Cells that are known.", state.cells),
        ):
            yield GaugeMetricFamily(name, says, value)

    def _peers(self, state: State) -> Iterator[Metric]:
        is_open = GaugeMetricFamily(
            "covey_peer_open",
            "0 while a peer that failed or is busy is left alone.",
            labels=["peer"],
        )
        owed = GaugeMetricFamily(
            "covey_outbox_labels", "Labels that a peer is still to be told.", labels=["peer"]
        )
        for peer in state.peers:
            is_open.add_metric([peer.name], float(peer.state == "open"))
            owed.add_metric([peer.name], peer.owed)
        yield is_open
        yield owed


def _cumulated(waits: Mapping[int, int]) -> list[tuple[str, float]]:
    """Return how many waits were no longer than 0, 1, 3, 7, ... slots."""
    count, buckets = 0, []
    for bits in range(MOST_BITS + 1):
        count += waits.get(bits, 0)
        buckets.append((str(float((1 << bits) - 1)), float(count)))
    return [*buckets, ("+Inf", float(sum(waits.values())))]
