"""Metrics of a node for Prometheus."""

import asyncio
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from covey import kernel as kernel_module
from covey.errors import MissingExtra, PeerBusy, need_of
from covey.node.node import Node
from covey.server.conditions import REMEDIES
from covey.server.http import HttpResponse
from covey.server.oip import Duration
from covey.site.status import State

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

Values = Mapping[tuple[str, ...], float]  # by the values of labels
TOTAL, NOW = CounterMetricFamily, GaugeMetricFamily
# What a node counts itself, by name: kind, labels (or, without any, where the state has it), and
# what it is.
FAMILIES: dict[str, tuple[Any, tuple[str, ...] | str, str]] = {
    "decisions": (TOTAL, ("phase", "arm", "arm_kind"), "Decisions since the start."),
    "decisions_alone": (TOTAL, (), "Rows decided without peers, since one failed or was late."),
    "cost": (TOTAL, ("arm", "arm_kind"), "What answers have cost since the start."),
    "arm_labels": (TOTAL, ("arm", "arm_kind"), "Labels of own clients, over all starts."),
    "arm_labels_right": (TOTAL, ("arm", "arm_kind"), "Those that the arm got right."),
    "reward_ratio": (NOW, (), "The share of own clients' labels that the arm got right."),
    "served_cost": (TOTAL, "account.serving_cost", "What answers to peers have cost this site."),
    "utility": (
        NOW,
        "account.utility",
        "Right answers, less what was spent, and the balance with peers.",
    ),
    "function_failures": (TOTAL, ("function",), "Calls of own functions that failed."),
    "alarms": (TOTAL, ("space",), "Alarms of the change detection since the start."),
    "shadow_rows": (TOTAL, ("outcome",), "Rows drawn for the shadow since the start, by outcome."),
    "shadow_waiting_rows": (NOW, "shadow.waiting", "Drawn rows that are not run yet."),
    "net_gain": (
        NOW,
        "gain.points.mean",
        "Points gained over the best own function on drawn rows, net of costs.",
    ),
    "net_gain_low": (NOW, "gain.points.low", "The low end of its 95 % interval."),
    "net_gain_high": (NOW, "gain.points.high", "The high end of its 95 % interval."),
    "net_gain_rows": (
        NOW,
        "gain.rows",
        "Drawn rows with a label and all answers, which it is said of.",
    ),
    "ready": (NOW, "is_ready", "1 if labels can be kept."),
    "slot": (NOW, "slot", "The latest slot."),
    "pending_labels": (NOW, "open_tickets", "Tickets with a pending label."),
    "active_cells": (NOW, "cells", "Cells that are known."),
    "peer_open": (NOW, ("peer",), "0 while the circuit of a peer that failed or is busy is open."),
    "peer_rows": (TOTAL, ("peer",), "Rows that a peer has asked since the start."),
    "peer_unfit_answers": (TOTAL, ("peer",), "Answers of a peer that are not among the classes."),
    "peer_pooled": (NOW, ("peer",), "0 while labels of a peer with earned trust are kept apart."),
    "outbox_labels": (NOW, ("peer",), "Undelivered labels to a peer."),
    "condition": (NOW, ("kind",), "What needs a person now, by its kind."),
    "certificate_expiry_timestamp_seconds": (
        NOW,
        "certificate_ends",
        "When the certificate in use expires.",
    ),
    "store_bytes": (NOW, "store_bytes", "Size of the store, its log included."),
    "store_free_bytes": (NOW, "free_bytes", "Free space on the disk of the store."),
}


class Metrics:
    """The metrics of one node, in its own registry; series exist before the first event."""

    def __init__(self, front: Mapping[str, str] | None = None, back: Sequence[str] = ()) -> None:
        """`front` maps paths for clients to label values; `back` are the paths for peers."""
        front = front or {}
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

    def know(self, peers: Iterable[str]) -> None:
        """Begin the series of peers."""
        for peer in peers:
            self._peer_s.labels(peer)
            for outcome in OUTCOMES:
                self._peer_calls.labels(peer, outcome)

    def follow(self, node: Node, state: Callable[[], State] | None = None) -> None:
        """Include the state of a node, as its site has it, in place of an earlier one."""
        if self._collector is not None:
            self._registry.unregister(self._collector)
        self._collector = _NodeCollector(node, state or node.state)
        self._registry.register(self._collector)

    def page(self) -> HttpResponse:
        return HttpResponse(body=generate_latest(self._registry), kind=CONTENT_TYPE_LATEST)

    def answer(self, side: str, path: str, status: int, took_s: float) -> None:
        pair = self._answers.get((side, path, status))
        if pair is None:
            name = self._paths.get(path, OTHER)
            pair = (
                self._requests.labels(side, name, str(status)),
                self._request_s.labels(side, name),
            )
            if name != OTHER:
                self._answers[side, path, status] = pair  # a look-up costs more than the count
        pair[0].inc()
        pair[1].observe(took_s)

    def inferences(self) -> tuple[Duration, Duration]:
        """Return the requests for labels that succeeded, and those that did not."""
        samples = [
            sample
            for family in (*self._requests.collect(), *self._request_s.collect())
            for sample in family.samples
            if sample.labels.get("path", "").endswith("/infer")
        ]
        counts = [sample for sample in samples if sample.name.endswith("_total")]
        done = sum(sample.value for sample in counts if sample.labels["status"] == "200")
        failed = sum(sample.value for sample in counts) - done
        took_s = sum(sample.value for sample in samples if sample.name.endswith("_sum"))
        return Duration(int(done), int(1e9 * took_s)), Duration(int(failed))

    def turn_away(self, side: str) -> None:
        self._refused.labels(side).inc()

    def take(self, word: str, labels: int = 1) -> None:
        self._labels.labels(word).inc(labels)

    @contextmanager
    def calling(self, peer: str, call: str) -> Iterator[None]:
        """Observe a call to a peer, and how it ends."""
        loop, outcome = asyncio.get_running_loop(), "failed"
        begun_s = loop.time()
        try:
            yield
            outcome = "answered"
        except PeerBusy:
            outcome = "busy"
            raise
        except asyncio.CancelledError:
            outcome = "given_up"
            raise
        finally:
            self._peer_calls.labels(peer, outcome).inc()
            self._peer_s.labels(peer).observe(loop.time() - begun_s)

    def write(self, took_s: float, is_written: bool) -> None:
        self._write_s.observe(took_s)
        if not is_written:
            self._failed_writes.inc()


class _NodeCollector(Collector):
    """Values that the node counts itself, read for every scrape."""

    def __init__(self, node: Node, state: Callable[[], State]) -> None:
        self._node, self._state = node, state

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        counters, state = self._node.counters, self._state()
        labelled = {**dict(self._values(state)), **dict(self._values_of_peers(state))}
        for name, (kind, where, says) in FAMILIES.items():
            is_single = isinstance(where, str)
            values = _single(state, where) if isinstance(where, str) else labelled[name]
            family = kind(f"covey_{name}", says, labels=() if is_single else where)
            for names, value in values.items():
                family.add_metric(names, float(value))
            yield family
        waits = HistogramMetricFamily(
            "covey_label_delay_slots", "Slots between a decision and its label, of peers too."
        )
        waits.add_metric([], _cumulated(counters.waits), counters.waited_slots)
        yield waits
        kernel = "compiled" if kernel_module.is_compiled() else "plain"
        what = {"version": version("covey"), "kernel": kernel}
        yield InfoMetricFamily("covey_build", "What runs.", what)

    def _values(self, state: State) -> Iterator[tuple[str, Values]]:
        node, counters, kinds = self._node, self._node.counters, self._node.arm_kinds
        counts = {(phase, arm.name): 0 for arm in state.arms for phase in PHASES}
        yield (
            "decisions",
            {
                (phase, arm, kinds.get(arm, "own")): count
                for (phase, arm), count in (counts | counters.decisions).items()
            },
        )
        fields = {"cost": "spent", "arm_labels": "labels", "arm_labels_right": "right"}
        for name, field in fields.items():
            yield name, {(arm.name, arm.kind): getattr(arm, field) for arm in state.arms}
        yield "decisions_alone", {(): counters.alone}
        yield "alarms", {(space,): counters.alarms[space] for space in node.learner.policies}
        yield "function_failures", {(name,): count for name, count in state.failures.items()}
        labels = counters.labels.total()
        yield "reward_ratio", {(): counters.right.total() / labels} if labels else {}
        shadow = state.shadow
        outcomes = () if shadow is None else ("complete", "incomplete", "dropped")
        yield "shadow_rows", {(outcome,): getattr(shadow, outcome) for outcome in outcomes}
        kinds_now = Counts(condition.kind for condition in state.conditions)
        yield "condition", {(kind,): kinds_now[kind] for kind in REMEDIES}

    def _values_of_peers(self, state: State) -> Iterator[tuple[str, Values]]:
        asked = [peer for peer in state.peers if peer.state != "not asked"]
        owing = [peer for peer in state.peers if peer in asked or peer.owed]
        yield "peer_open", {(peer.name,): peer.state == "open" for peer in asked}
        yield "outbox_labels", {(peer.name,): peer.owed for peer in owing}
        yield "peer_rows", {(peer.name,): peer.asked for peer in state.peers}
        unfit = self._node.unfit_answers.items()
        yield "peer_unfit_answers", {(peer,): count for peer, count in unfit}
        yield "peer_pooled", {(peer.source,): peer.state == "pooled" for peer in state.trust}


def _single(state: State, path: str) -> Values:
    """Return the value at a path of attributes; none if one of them is None."""
    value: Any = state
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return {} if value is None else {(): value}


def _cumulated(waits: Mapping[int, int]) -> list[tuple[str, float]]:
    """Return how many waits were no longer than 0, 1, 3, 7, ... slots."""
    count, buckets = 0, []
    for bits in range(MOST_BITS + 1):
        count += waits.get(bits, 0)
        buckets.append((str(float((1 << bits) - 1)), float(count)))
    return [*buckets, ("+Inf", float(sum(waits.values())))]
