"""Metrics of a node for Prometheus."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, TypeVar

from covey import kernel as kernel_module
from covey.errors import MissingExtra, PeerBusy, need_of
from covey.kernel.rules import Report
from covey.node.database import DatabaseUrl
from covey.node.node import Node
from covey.node.peers import Peer
from covey.node.requests import AskRow, Assistance
from covey.node.spans import NO_SPANS, Observer, Spans
from covey.node.status import State
from covey.server.http import HttpResponse
from covey.types import Label

Given = TypeVar("Given")


class DiskUse(NamedTuple):
    """The size of a store, its log included, and the free space on its disk."""

    store_bytes: int
    free_bytes: int


def disk_use(store: Path | DatabaseUrl) -> DiskUse | None:
    """Return what a store takes and what is left; None if the file is gone, or there is none."""
    if isinstance(store, DatabaseUrl):
        return None
    log = store.with_name(f"{store.name}-wal")
    try:
        size = store.stat().st_size + log.stat().st_size
        return DiskUse(size, shutil.disk_usage(store.parent).free)
    except OSError:
        return None


class ObservedPeer:
    """A peer whose calls are observed."""

    def __init__(self, name: str, peer: Peer, watcher: Observer) -> None:
        self._name = name
        self._peer = peer
        self._watcher = watcher

    async def ask(self, requests: Sequence[AskRow]) -> list[Assistance]:
        return await self._watched("ask", self._peer.ask(requests))

    async def report(self, cell: str, slot: int) -> Report:
        return await self._watched("report", self._peer.report(cell, slot))

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        call = self._peer.estimate(cell, slot, is_by_context=is_by_context)
        return await self._watched("estimate", call)

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        return await self._watched("labels", self._peer.deliver(labels))

    async def _watched(self, name: str, call: Awaitable[Given]) -> Given:
        loop, word = asyncio.get_running_loop(), "failed"
        begun_s = loop.time()
        try:
            with self._watcher.spans.peer(self._name, name):
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
    from prometheus_client import (
        CollectorRegistry,
        Counter,
        Histogram,
        PlatformCollector,
        ProcessCollector,
        disable_created_metrics,
        generate_latest,
    )
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
    raise MissingExtra(need_of("metrics", "prometheus-client", extra="node")) from missing

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MOST_BITS = 24  # of the slots that a label was waited for; longer ones count as endless
OTHER = "other"  # unknown paths share one label value (bounded cardinality)
LABEL_STATES = ("joined", "repeated", "late", "unknown", "conflict", "unfit")
OUTCOMES = ("answered", "failed", "busy", "given_up")  # of calls to peers
PHASES = ("train", "explore", "exploit")  # of own clients' rows
Ends = Callable[[], Mapping[str, datetime]]  # when the own certificate and its authority expire


class Metrics(Observer):
    """The metrics of one node, in its own registry; series exist before the first event."""

    def __init__(
        self,
        front: Mapping[str, str],
        back: Sequence[str] = (),
        peers: Sequence[str] = (),
        spans: Spans = NO_SPANS,
    ) -> None:
        """`front` maps paths for clients to label values; `back` are the paths for peers."""
        self.spans = spans
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._paths = {**front, **dict(zip(back, back, strict=True))}
        self._registry = registry = CollectorRegistry()
        self._collector: Collector | None = None
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
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
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
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
        for side, labels in (("front", front.values()), ("back", back)):
            self._refused.labels(side)
            for path in labels:
                self._requests.labels(side, path, "200")
        for state in LABEL_STATES:
            self._labels.labels(state)
        self.know(peers)

    def know(self, peers: Iterable[str]) -> None:
        """Begin the series of peers."""
        for peer in peers:
            self._peer_s.labels(peer)
            for outcome in OUTCOMES:
                self._peer_calls.labels(peer, outcome)

    def follow(
        self, node: Node, *, store: Path | DatabaseUrl | None = None, ends: Ends = dict
    ) -> None:
        """Include the state of a node, its file and its certificate, in place of an earlier one."""
        self.include(_NodeCollector(node, store, ends))

    def include(self, collector: Collector) -> None:
        """Include what else is counted, in place of an earlier one."""
        if self._collector is not None:
            self._registry.unregister(self._collector)
        self._collector = collector
        self._registry.register(collector)

    def page(self) -> HttpResponse:
        """Return all metrics as text."""
        return HttpResponse(body=generate_latest(self._registry), kind=CONTENT_TYPE_LATEST)

    def answer(self, side: str, path: str, status: int, took_s: float) -> None:
        pair = self._answers.get((side, path, status))
        if pair is None:
            known = self._paths.get(path, OTHER)
            pair = (
                self._requests.labels(side, known, str(status)),
                self._request_s.labels(side, known),
            )
            if known != OTHER:
                self._answers[side, path, status] = pair  # a look-up costs more than the count
        pair[0].inc()
        pair[1].observe(took_s)

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

    def __init__(self, node: Node, store: Path | DatabaseUrl | None, ends: Ends) -> None:
        self._node = node
        self._store = store
        self._ends = ends

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        state = self._node.state()
        kernel = "compiled" if kernel_module.is_compiled() else "plain"
        yield InfoMetricFamily(
            "covey_build", "What runs.", {"version": version("covey"), "kernel": kernel}
        )
        yield from self._arms(state)
        yield from self._labels()
        alarms = CounterMetricFamily(
            "covey_alarms", "Alarms of the change detection since the start.", labels=["space"]
        )
        counted = self._node.counters.alarms
        yield _filled(alarms, {(space,): counted[space] for space in self._node.learner.policies})
        for name, says, value in (
            ("covey_ready", "1 if labels can be kept.", float(state.is_ready)),
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
        asked = [peer for peer in state.peers if peer.state != "not asked"]
        yield _filled(is_open, {(peer.name,): peer.state == "open" for peer in asked})
        owed = GaugeMetricFamily(
            "covey_outbox_labels", "Undelivered labels to a peer.", labels=["peer"]
        )
        owing = [peer for peer in state.peers if peer in asked or peer.owed]
        yield _filled(owed, {(peer.name,): peer.owed for peer in owing})
        rows = CounterMetricFamily(
            "covey_peer_rows", "Rows that a peer has asked since the start.", labels=["peer"]
        )
        yield _filled(rows, {(peer.name,): peer.asked for peer in state.peers})
        yield from _shadow(state)
        pooled = GaugeMetricFamily(
            "covey_peer_pooled",
            "0 while the labels of a peer with earned trust differ, and are kept apart.",
            labels=["peer"],
        )
        yield _filled(pooled, {(one.source,): one.state == "pooled" for one in state.trust})
        yield from self._files()

    def _files(self) -> Iterator[Metric]:
        ends = GaugeMetricFamily(
            "covey_certificate_expiry_timestamp_seconds",
            "When the certificate that is in use, and its authority, expire.",
            labels=["of"],
        )
        yield _filled(ends, {(of,): end.timestamp() for of, end in self._ends().items()})
        size = GaugeMetricFamily("covey_store_bytes", "Size of the store, its log included.")
        free = GaugeMetricFamily("covey_store_free_bytes", "Free space on the disk of the store.")
        found = None if self._store is None else disk_use(self._store)
        if found is not None:
            size.add_metric([], found.store_bytes)
            free.add_metric([], found.free_bytes)
        yield from (size, free)

    def _arms(self, state: State) -> Iterator[Metric]:
        ledger, kinds = self._node.counters, self._node.arm_kinds
        counts = {(phase, arm.name): 0 for arm in state.arms for phase in PHASES} | ledger.decisions
        decisions = CounterMetricFamily(
            "covey_decisions", "Decisions since the start.", labels=["phase", "arm", "arm_kind"]
        )
        for (phase, arm), count in counts.items():
            decisions.add_metric([phase, arm, kinds.get(arm, "own")], count)
        yield decisions
        yield CounterMetricFamily(
            "covey_decisions_alone",
            "Rows decided as if there were no peers, since one failed or was late.",
            ledger.alone,
        )
        for name, says, field in (
            ("covey_cost", "What answers have cost since the start.", "spent"),
            ("covey_arm_labels", "Labels of own clients, over all starts.", "labels"),
            ("covey_arm_labels_right", "Those that the arm got right.", "right"),
        ):
            family = CounterMetricFamily(name, says, labels=["arm", "arm_kind"])
            yield _filled(family, {(arm.name, arm.kind): getattr(arm, field) for arm in state.arms})
        account = state.account
        served = CounterMetricFamily(
            "covey_served_cost", "What answers to peers have cost this site since the start."
        )
        yield _filled(served, {} if account is None else {(): account.served_cost})
        utility = GaugeMetricFamily(
            "covey_utility", "Right answers since the start, less what was paid and serving costs."
        )
        yield _filled(utility, {} if account is None else {(): account.utility})
        failures = CounterMetricFamily(
            "covey_function_failures", "Calls of own functions that failed.", labels=["function"]
        )
        yield _filled(failures, {(name,): count for name, count in self._node.failures.items()})

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


def _shadow(state: State) -> Iterator[Metric]:
    found = state.shadow
    rows = CounterMetricFamily(
        "covey_shadow_rows",
        "Rows drawn for the shadow since the start, by what became of them.",
        labels=["outcome"],
    )
    waiting = GaugeMetricFamily("covey_shadow_waiting_rows", "Drawn rows that are not run yet.")
    if found is not None:
        for outcome in ("complete", "incomplete", "dropped"):
            rows.add_metric([outcome], getattr(found, outcome))
        waiting.add_metric([], found.waiting)
    yield from (rows, waiting)


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
