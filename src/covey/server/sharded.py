"""A site in several processes: a router with the listeners, and the shards behind it."""

import asyncio
import hashlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from covey.bandit.cutting import why_coupled
from covey.bandit.policies import Policy
from covey.bandit.preferences import CellPreference
from covey.errors import ConfigError
from covey.node.change import Plan
from covey.node.database import DatabaseUrl
from covey.node.requests import Commit
from covey.node.series import SiteHistory
from covey.server import app
from covey.server import shard_messages as messages
from covey.server.client_api import ClientApi
from covey.server.config import SiteConfig
from covey.server.events import EventLog
from covey.server.http import HttpRequest, HttpResponse
from covey.server.merging import merged_series
from covey.server.metrics import Ends, Metrics
from covey.server.page_api import PAGE
from covey.server.routed_node import MOST_CELLS, RoutedNode
from covey.server.shard import store_of
from covey.server.supervisor import ShardProcess

MOST_SHARDS = 64


def check_divisible(served: SiteConfig, shards: int) -> None:
    """Raise `ConfigError` that names the key if the cells of a site cannot be divided."""
    if not 1 <= shards <= MOST_SHARDS:
        raise ConfigError(f"--shards {shards}: it must be from 1 to {MOST_SHARDS}")
    why = _why_not(served)
    if why is not None:
        raise ConfigError(f"{served.path} cannot be served with --shards {shards}: {why}")


def _why_not(served: SiteConfig) -> str | None:
    """Return what keeps the cells of a site from being divided; None: nothing does."""
    wiring = served.setup.wiring
    why = why_coupled(
        map(_as_served, served.learner.policies.values()),
        has_candidates=bool(served.learner.candidates),
        has_ensemble=served.setup.ensemble is not None,
        learns_link_costs=wiring is not None and bool(wiring.tolls),
    )
    if why is not None:
        return why
    learning = [one.name for one in served.functions if one.teach is not None]
    earned = [
        name for name, one in served.neighbours.items() if one.trust == "earned" and one.may_ask
    ]
    budgets = served.budgets
    for is_there, sentence in (
        (
            isinstance(served.store, DatabaseUrl),
            "[node] store is a database, and a shard needs a file of its own; name a file",
        ),
        (
            not served.learner.dimension,
            "it has no contexts, so there is only one cell; set context or dimension",
        ),
        (
            learning,
            f"function {', '.join(learning)} learns, and every shard would train a copy of its "
            "own; set learns = false",
        ),
        (
            earned,
            f'[[peer]] {", ".join(earned)} has trust = "earned", which compares labels over all '
            'cells; set trust = "isolated", "robust" or "full"',
        ),
        (
            budgets.peers or budgets.total is not None,
            "budget is spent by all cells together; remove it",
        ),
        (served.is_relay, "relay = true is for sites in one process; remove it"),
        (served.serving.shadow, "[node] shadow is for sites in one process; remove it"),
    ):
        if is_there:
            return sentence
    return None


def _as_served(policy: Policy) -> Policy:
    """Return a policy as a served site has it: pending labels count unless it says no."""
    pending = policy.settings.pending is not False
    return policy._replace(settings=msgspec.structs.replace(policy.settings, pending=pending))


def check_stores(served: SiteConfig, shards: int) -> None:
    """Raise `ConfigError` if the stores of a site are not those of so many shards; 0: of none."""
    if not isinstance(served.store, Path):
        return
    store = served.store
    wanted = [store_of(store, number, shards) for number in range(1, shards + 1)] or [store]
    there = [*([store] if store.exists() else []), *shard_stores(store)]
    for path in there:
        if path not in wanted:
            raise ConfigError(
                f"{path} was written with another number of shards; what a cell has learnt stays "
                "in its store: serve it with that number, or move the stores away to begin anew"
            )
    for path in wanted if there else ():
        if path not in there:
            raise ConfigError(
                f"{path} is missing, and {there[0]} is there; restore it from a backup, or move "
                "the others away to begin anew"
            )


def shard_stores(store: Path) -> list[Path]:
    """Return the stores of shards of a site, whatever their number, in order."""
    shape = re.compile(re.escape(store.name) + r"\.([1-9][0-9]?)-of-([1-9][0-9]?)")
    found = [(shape.fullmatch(path.name), path) for path in store.parent.glob(f"{store.name}.*")]
    numbered = [(int(name[2]), int(name[1]), path) for name, path in found if name is not None]
    return [path for _, _, path in sorted(numbered)]


class RouterHistory:
    """What the shards did over time; each of them keeps its part in its store."""

    def __init__(self, history: SiteHistory) -> None:
        self.history = history

    async def commit(self, commit: Commit) -> None:
        """Take lines as written: the shards write them."""
        self.history.written(commit.series)


class ShardMetrics(Collector):
    """The metrics of all shards, each with a label `shard`."""

    def __init__(self) -> None:
        self._pages: list[tuple[str, str]] = []

    def take(self, statuses: Sequence[messages.Status | None]) -> None:
        """Show these from now on; a shard that is away has no metrics."""
        self._pages = [
            (str(number), status.metrics.decode())
            for number, status in enumerate(statuses, 1)
            if status is not None
        ]

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for shard, text in self._pages:
            for family in text_string_to_metric_families(text):
                if family.name.startswith(("process_", "python_")):
                    family.name = f"covey_shard_{family.name}"
                one = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    name = sample.name
                    if name.startswith(("process_", "python_")):
                        name = f"covey_shard_{name}"
                    labels = {**sample.labels, "shard": shard}
                    one.samples.append(sample._replace(name=name, labels=labels))
        yield from families.values()


class RoutedApi(ClientApi):
    """Answers clients with what the shards know now."""

    def __init__(
        self, of_shards: ShardMetrics, served: SiteConfig, node: RoutedNode, *given: Any
    ) -> None:
        super().__init__(served, node, *given)
        self._routed, self._of_shards = node, of_shards

    async def handle(self, call: HttpRequest) -> HttpResponse:
        if call.method == "GET":
            if call.path == "/metrics":
                self._of_shards.take(await self._routed.refresh(has_metrics=True))
            elif call.path.endswith(("/state", "/ready")) or call.path == PAGE:
                await self._routed.refresh(cells=MOST_CELLS)
        return await super().handle(call)


class RoutedSite(app.ServedSite):
    """A served site whose node is in several processes."""

    def __init__(
        self,
        routed: RoutedNode,
        shards: Sequence[ShardProcess],
        history: RouterHistory,
        metrics: Metrics,
        events: EventLog,
    ) -> None:
        # It has no store: the shards have them.
        super().__init__(cast("Any", None), cast("Any", history), metrics, events=events)
        self._routed, self._shards = routed, shards
        self._of_shards = ShardMetrics()

    def _node(self, *_: Any) -> Any:
        return self._routed

    def _client_api(self, served: SiteConfig, node: Any, people: Callable[..., Any]) -> ClientApi:
        return RoutedApi(self._of_shards, served, node, self.metrics, self.reload, people)

    def _observe(self, served: SiteConfig, node: Any, ends: Ends) -> None:
        self.metrics.include(self._of_shards)

    def _cells(self, node: Any) -> list[CellPreference]:
        return [CellPreference(*msgspec.structs.astuple(one)) for one in self._routed.cells]

    def reload_certificates(self) -> None:
        super().reload_certificates()
        for shard in self._shards:
            if shard.is_up:
                task = asyncio.ensure_future(shard.call(messages.ReloadKeys()))
                task.add_done_callback(lambda done: done.exception())

    async def _reload(self) -> Plan:
        before = self.served
        content = await asyncio.to_thread(before.path.read_bytes)
        if hashlib.sha256(content).hexdigest() != before.digest:
            raise ConfigError(f"{before.path} has changed; with --shards that needs a restart")
        return Plan(before.serving.name, [])


async def serve(
    served: SiteConfig, shards: int, *, is_up: Callable[..., None], log_form: str = ""
) -> None:
    """Serve a site by `shards` processes until this one gets SIGINT or SIGTERM."""
    check_divisible(served, shards)
    check_stores(served, shards)
    await app.serve(served, is_up=is_up, make=partial(_divided, shards, log_form))


async def _divided(
    count: int,
    log_form: str,
    served: SiteConfig,
    stack: AsyncExitStack,
    metrics: Metrics,
    events: EventLog,
) -> RoutedSite:
    """Start the shards, and return the site with its router."""
    content = served.path.read_bytes()
    if hashlib.sha256(content).hexdigest() != served.digest:
        raise ConfigError(f"{served.path} has changed while it was read; start again")
    path = str(served.path.absolute())
    shards = [
        ShardProcess(messages.Start(path, content, number, count, log_form))
        for number in range(1, count + 1)
    ]
    routed = RoutedNode(served, shards, random.SystemRandom())
    stack.push_async_callback(_stop, shards)
    found = await asyncio.gather(*(one.begin() for one in shards), return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    started = [one for one in found if isinstance(one, messages.Started)]
    for place, (shard, one) in enumerate(zip(shards, started, strict=True)):
        routed.continue_from(place, one, await shard.ids())
        shard.watch(routed.continue_from)
    await routed.refresh()
    history = SiteHistory(merged_series(one.series for one in started))
    return RoutedSite(routed, shards, RouterHistory(history), metrics, events)


async def _stop(shards: Sequence[ShardProcess]) -> None:
    await asyncio.gather(*(shard.stop() for shard in shards))
