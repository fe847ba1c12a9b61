"""Metrics of a node for Prometheus."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import TypeVar

from covey import kernel as kernel_module
from covey.errors import MissingExtra, PeerBusy
from covey.kernel.rules import Report
from covey.node.node import Node
from covey.node.peers import Peer
from covey.node.requests import AskRow, Assistance
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
        return await self._watched(self._peer.ask(requests))

    async def report(self, cell: str, slot: int) -> Report:
        return await self._watched(self._peer.report(cell, slot))

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        return await self._watched(self._peer.estimate(cell, slot, is_by_context=is_by_context))

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
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
        self._collector: _NodeCollector | None = None
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=SECONDS)
        self._requests = counter(
            "covey_http_requests", "Requests that were answered.", ["side", "path", "status"]
        )
        self._request_s = histogram(
            "covey_http_request_duration_seconds",
            "From the head of a request to its answer.",
            ["side", "path"],
        )
        self._refused = counter(
            "covey_http_connections_refused",
            "Connections that were closed because there were too many.",
            ["side"],
        )
        self._labels = counter(
            "covey_labels", "Labels that clients sent, by what became of them.", ["state"]
        )
        self._peer_s = histogram("covey_peer_request_duration_seconds", "Calls to peers.", ["peer"])
        self._peer_calls = counter(
            "covey_peer_requests", "Calls to peers, by how they ended.", ["peer", "outcome"]
        )
        self._write_s = histogram(
            "covey_store_write_duration_seconds", "Batches written to the store."
        )
        self._failed_writes = counter(
            "covey_store_write_failures",
            "Batches that were not written; the node stops at the first.",
        )

    def follow(self, node: Node) -> None:
        """Include the state of a node; that of an earlier one is left out from now on."""
        if self._collector is not None:
            self._registry.unregister(self._collector)
        self._collector = _NodeCollector(node)
        self._registry.register(self._collector)

    def page(self) -> HttpResponse:
        """Return all metrics as text."""
        return HttpResponse(body=generate_latest(self._registry), kind=CONTENT_TYPE_LATEST)

    def answer(self, side: str, path: str, status: int, took_s: float) -> None:
        known = self._paths.get(path, OTHER)
        self._requests.labels(side, known, str(status)).inc()
        self._request_s.labels(side, known).observe(took_s)

    def turn_away(self, side: str) -> None:
        self._refused.labels(side).inc()

    def take(self, word: str, labels: int = 1) -> None:
        self._labels.labels(word).inc(labels)

    def ask(self, peer: str, word: str, took_s: float) -> None:
        self._peer_calls.labels(peer, word).inc()
        self._peer_s.labels(peer).observe(took_s)

    def write(self, took_s: float, *, is_written: bool) -> None:
        self._write_s.observe(took_s)
        if not is_written:
            self._failed_writes.inc()


class _NodeCollector(Collector):
    """Values that the node counts itself, read for every scrape."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        state = self._node.state()
        kernel = "compiled" if kernel_module.is_compiled() else "plain"
        yield InfoMetricFamily(
            "covey_build", "What runs.", {"version": version("covey"), "kernel": kernel}
        )
        yield from self._decisions()
        yield from self._labels()
        failures = CounterMetricFamily(
            "covey_function_failures", "Calls of own functions that failed.", labels=["function"]
        )
        yield _filled(failures, {(name,): count for name, count in self._node.failures.items()})
        for name, says, value in (
            ("covey_ready", "1 if labels can be kept.", float(state.is_ready)),
            ("covey_uptime_seconds", "Since the start.", state.uptime_s),
            ("covey_slot", "The latest slot.", state.slot),
            ("covey_pending_labels", "Tickets with a pending label.", state.open_tickets),
            ("covey_active_cells", "Cells that are known.", state.cells),
        ):
            yield GaugeMetricFamily(name, says, value)
        is_open = GaugeMetricFamily(
            "covey_peer_open",
            "0 while the circuit of a peer that failed or is busy is open.",
            labels=["peer"],
        )
        yield _filled(is_open, {(peer.name,): peer.state == "open" for peer in state.peers})
        owed = GaugeMetricFamily(
            "covey_outbox_labels", "Undelivered labels to a peer.", labels=["peer"]
        )
        yield _filled(owed, {(peer.name,): peer.owed for peer in state.peers})

    def _decisions(self) -> Iterator[Metric]:
        ledger, kinds = self._node.counters, self._node.arm_kinds
        counts: dict[tuple[str, ...], float] = defaultdict(int)
        for (phase, arm), count in ledger.decisions.items():
            counts[phase, kinds.get(arm, "own")] += count
        decisions = CounterMetricFamily(
            "covey_decisions", "Decisions since the start.", labels=["phase", "arm_kind"]
        )
        yield _filled(decisions, dict(sorted(counts.items())))
        yield CounterMetricFamily(
            "covey_decisions_alone",
            "Rows decided as if there were no peers, since one failed or was late.",
            ledger.alone,
        )
        spent: dict[tuple[str, ...], float] = {(kind,): 0.0 for kind in kinds.values()}
        for arm, price in ledger.spent.items():
            spent[kinds[arm],] += price
        cost = CounterMetricFamily(
            "covey_cost", "What answers have cost since the start.", labels=["arm_kind"]
        )
        yield _filled(cost, spent)

    def _labels(self) -> Iterator[Metric]:
        ledger = self._node.counters
        labels, right = ledger.labels.total(), ledger.right.total()
        ratio = GaugeMetricFamily(
            "covey_reward_ratio", "The share of own clients' labels that the arm got right."
        )
        yield _filled(ratio, {(): right / labels} if labels else {})
        waits = HistogramMetricFamily(
            "covey_label_delay_slots", "Slots between a decision and its label, of peers too."
        )
        waits.add_metric([], _cumulated(ledger.waits), ledger.waited_slots)
        yield waits


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[tuple[str, ...], float]
) -> Metric:
    """Return a family with a value for each tuple of labels."""
    for labels, value in values.items():
        family.add_metric(labels, float(value))
    return family


def _cumulated(waits: Mapping[int, int]) -> list[tuple[str, float]]:
    """Return how many waits were no longer than 0, 1, 3, 7, ... slots."""
    count, buckets = 0, []
    for bits in range(MOST_BITS + 1):
        count += waits.get(bits, 0)
        buckets.append((str(float((1 << bits) - 1)), float(count)))
    return [*buckets, ("+Inf", float(sum(waits.values())))]
