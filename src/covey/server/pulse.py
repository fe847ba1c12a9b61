"""What happens at a site, from samples of its counters: in the last minute, and over time."""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from covey.errors import StoreError
from covey.node.requests import Commit
from covey.node.status import FOR_PEERS
from covey.node.workers import ThreadWorkers
from covey.server.routed_node import AnyNode

EVERY_S = 5.0
SPAN_S = 60.0


class LastMinute(NamedTuple):
    """Rows of the last minute, or of as much of it as is known."""

    span_s: float
    decisions: Mapping[str, int]  # of own clients, by arm
    asked: Mapping[str, int]  # by the peer that asked


class Pulse:
    """Samples of counters, of the last minute."""

    def __init__(self) -> None:
        self._samples: deque[LastMinute] = deque()  # with moments for spans

    async def follow(self, node: AnyNode, threads: ThreadWorkers) -> None:
        """Sample a node, until this is cancelled; commits keep what happened in its store."""
        while True:
            self.sample(node)
            threads.history.note(node.state().arms, time.time())
            await asyncio.sleep(EVERY_S)

    async def finish(self, node: AnyNode, threads: ThreadWorkers) -> None:
        """Keep what happened since the last commit; the node must not be stopped yet."""
        now_s = time.time()
        threads.history.note(node.state().arms, now_s)
        lines = threads.history.due(now_s, is_last=True)
        if lines and node.is_ready:
            with contextlib.suppress(StoreError):
                await threads.commit(Commit(series=lines))

    def sample(self, node: AnyNode) -> LastMinute:
        """Take a sample, and return what happened in the minute before it."""
        counters = node.counters
        decisions: Counter[str] = Counter()
        for (phase, arm), rows in counters.decisions.items():
            if phase not in FOR_PEERS:
                decisions[arm] += rows
        now_s = asyncio.get_running_loop().time()
        return self.note(LastMinute(now_s, decisions, Counter(counters.asked)))

    def note(self, sample: LastMinute) -> LastMinute:
        """Keep a sample of totals, whose span is its moment; return the difference to the first."""
        samples = self._samples
        # One at least is older than the span, so that the difference covers all of it.
        while len(samples) > 1 and samples[1].span_s <= sample.span_s - SPAN_S:
            samples.popleft()
        if not samples or sample.span_s - samples[-1].span_s >= EVERY_S / 2:
            samples.append(sample)
        first = samples[0]
        return LastMinute(
            sample.span_s - first.span_s,
            Counter(sample.decisions) - Counter(first.decisions),
            Counter(sample.asked) - Counter(first.asked),
        )
