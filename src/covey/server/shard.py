"""One shard of a site: a process with a node, a store and some of the cells; a router calls it."""

import asyncio
import contextlib
import gc
import hashlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from covey import toml
from covey.bandit.preferences import preferences
from covey.errors import CoveyError
from covey.functions.registry import replay_training
from covey.node.questions import ROW_MARK, Question
from covey.node.requests import OWN, is_own
from covey.node.shard_node import SettledRow, ShardNode
from covey.node.store import Store
from covey.node.workers import ThreadWorkers
from covey.server import app, config
from covey.server import shard_messages as messages
from covey.server.channel import AnsweringEnd, connected
from covey.server.config import SiteConfig
from covey.server.log_lines import set_up_logging
from covey.server.metrics import Metrics
from covey.server.shard_messages import AnyCall

log = logging.getLogger(__name__)


def store_of(store: Path, number: int, shards: int) -> Path:
    """Return the store of a shard."""
    return store.with_name(f"{store.name}.{number}-of-{shards}")


class ShardApi:
    """Answers the calls of a router with a node."""

    def __init__(self, node: ShardNode, metrics: Callable[[], bytes] = bytes) -> None:
        self._node = node
        self._metrics = metrics
        self._answers: dict[type[Any], Callable[[Any], Awaitable[Any]]] = {
            messages.AnswerRows: self._answer,
            messages.FindEarlier: self._earlier,
            messages.FindSize: lambda call: node.size_of(call.source, call.id),
            messages.FindIds: lambda call: node.knows(call.source, call.ids),
            messages.LearnRow: self._learn_row,
            messages.LearnRows: self._learn_rows,
            messages.CheckRows: self._check_rows,
            messages.Assist: self._assist,
            messages.GetReport: self._report,
            messages.GetEstimate: self._estimate,
            messages.TakeLabels: self._take_labels,
            messages.TakePayments: lambda call: node.take_payments(call.payments),
            messages.GetStatus: self._status,
        }

    async def answer(self, call: AnyCall) -> Any:
        """Return what a call gives; raise `CoveyError` as the node does."""
        clock = getattr(call, "clock", None)
        if clock is not None:
            self._node.advance(OWN, clock.now, clock.slot)
            if clock.source:
                self._node.advance(clock.source, clock.source_now, clock.source_slot)
        return await self._answers[type(call)](call)

    async def _answer(self, call: messages.AnswerRows) -> messages.AnsweredRows:
        request = await self._node.answer_part(call.part, call.instances(), call.points())
        numbers = [0] if call.part.numbers is None else call.part.numbers
        places = {row: place for place, row in enumerate(numbers)}
        return messages.AnsweredRows.of(request, places)

    async def _earlier(self, call: messages.FindEarlier) -> list[messages.AnsweredRows]:
        asked = Question(call.source, call.id, call.digest)
        found = await self._node.earlier(asked, call.count)
        return [messages.AnsweredRows.of(one, {row: place}) for row, (one, place) in found.items()]

    async def _learn_row(self, call: messages.LearnRow) -> messages.Learnt:
        one = await self._node.learn(call.id, call.label, source=call.source, cost=call.cost)
        row = SettledRow(0, one.is_new, one.is_right)
        return messages.Learnt([row], self._node.latest_label)

    async def _learn_rows(self, call: messages.LearnRows) -> messages.Learnt:
        rows = await self._node.learn_part(
            call.id, call.truths, source=call.source, costs=call.costs
        )
        return messages.Learnt(rows, self._node.latest_label)

    async def _check_rows(self, call: messages.CheckRows) -> list[messages.Verdict]:
        verdicts = await self._node.check_part(call.id, call.truths, source=call.source)
        return [
            messages.Verdict(row, "" if error is None else type(error).__name__, str(error or ""))
            for row, error in verdicts.items()
        ]

    async def _assist(self, call: messages.Assist) -> messages.Assisted:
        rows, source = [row.asked() for row in call.rows], call.clock.source
        given = await self._node.assist(rows, source=source)
        return messages.Assisted(
            [messages.Given.of(one) for one in given], self._node.slot_of(source)
        )

    async def _report(self, call: messages.GetReport) -> Any:
        return await self._node.report(call.cell, call.slot, source=call.clock.source)

    async def _estimate(self, call: messages.GetEstimate) -> Any:
        return await self._node.estimate(
            call.cell, call.slot, source=call.clock.source, is_by_context=call.is_by_context
        )

    async def _take_labels(self, call: messages.TakeLabels) -> list[str]:
        return await self._node.take_labels(call.labels, source=call.clock.source)

    async def _status(self, call: messages.GetStatus) -> messages.Status:
        node, counters = self._node, self._node.counters
        cells = preferences(node.learner, call.cells) if call.cells else []
        return messages.Status(
            node.state(),
            [(phase, arm, rows) for (phase, arm), rows in counters.decisions.items()],
            dict(counters.asked),
            [messages.MapCell(*one) for one in cells],
            self._metrics() if call.has_metrics else b"",
        )


class ShardLife:
    """The life of a shard: it starts at the first call, and ends when the router says so."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()
        self._stack = AsyncExitStack()
        self._api: ShardApi | None = None
        self._ids: list[tuple[str, str]] = []
        self._keys: Callable[[], None] = lambda: None

    async def answer(self, call: AnyCall) -> Any:
        """Answer a call of the router."""
        if self._api is not None and not isinstance(call, messages.Start):
            if isinstance(call, messages.ListIds):
                return self._listed(call)
            if isinstance(call, messages.Stop):
                await self._stack.aclose()
                asyncio.get_running_loop().call_later(0.0, self.is_over.set)
                return None
            if isinstance(call, messages.ReloadKeys):
                return self._keys()
            return await self._api.answer(call)
        assert isinstance(call, messages.Start)
        return await self._start(call)

    async def _start(self, call: messages.Start) -> messages.Started:
        if call.log_form:
            set_up_logging(call.log_form, shard=f"{call.number}/{call.shards}")
        served = _part_of(call)
        certificate = app.own_certificate(served)
        metrics = Metrics({})
        store = await app.open_store(served)
        assert store is not None  # as it is not waited for
        threads = app.open_threads(store, self._stack, metrics)
        self._ids = ids_in(store)
        site = app.ServedSite(store, threads, metrics, kind=ShardNode)
        await site.open(served, certificate)
        self._stack.push_async_callback(site.close)
        self._keys = site.reload_certificates
        self._api = ShardApi(cast("ShardNode", site.node), lambda: metrics.page().body)
        site.failed.add_done_callback(self._failed)
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        return self._continued(cast("ShardNode", site.node), threads)

    def _failed(self, failed: "asyncio.Future[Any]") -> None:
        """End the process after a failed write: a new one continues from the disk."""
        if not failed.cancelled():
            log.error("%s; this shard ends", failed.result())
            self.is_over.set()

    def _continued(self, node: ShardNode, threads: ThreadWorkers) -> messages.Started:
        return messages.Started(
            slot=node.learner.slot,
            starts=node.starts,
            latest=node.latest_label,
            askers=node.askers(),
            peer_slots={source: node.slot_of(source) for source in node.askers()},
            series=threads.history.lines(),
        )

    def _listed(self, call: messages.ListIds) -> messages.Ids:
        end = call.after + call.most
        keys, is_all = self._ids[call.after : end], end >= len(self._ids)
        if is_all:
            self._ids = []
        return messages.Ids(keys, 0 if is_all else end)


def _part_of(call: messages.Start) -> SiteConfig:
    """Return the site of a file as the router read it, with the store of this shard."""
    path = Path(call.path)
    table = toml.parsed(call.content, path)
    served = config.from_table(table, path, remember=replay_training)
    assert isinstance(served.store, Path)  # the router has refused others
    return served._replace(
        store=store_of(served.store, call.number, call.shards),
        digest=hashlib.sha256(call.content).hexdigest(),
        processes=call.shards,
    )


def ids_in(store: Store) -> list[tuple[str, str]]:
    """Return the ids by which a router looks for requests, and for rows of peers."""
    keys = store.ids()
    return list({(one, id_.partition(ROW_MARK)[0] if is_own(one) else id_) for one, id_ in keys})


async def _run(descriptor: int) -> None:
    process = ShardLife()
    end = socket.socket(fileno=descriptor)
    end.setblocking(False)
    channel = await connected(lambda: AnsweringEnd(process.answer), end)
    over = asyncio.ensure_future(process.is_over.wait())
    ends: list[asyncio.Future[Any]] = [over, channel.closed]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if not over.done():
        os._exit(0)  # the router is gone: free the store at once; all that counts is on the disk
    channel.close()


def main(descriptor: int) -> None:
    """Serve calls over an inherited socket until it is closed."""
    # The router ends its shards, after requests in progress are answered.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=app.new_loop) as runner, contextlib.suppress(CoveyError):
        runner.run(_run(descriptor))


if __name__ == "__main__":
    main(int(sys.argv[1]))
