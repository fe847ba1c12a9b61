"""A network of nodes under a virtual clock: links that delay, lose and repeat, and crashes.

Nothing waits: when no callback is ready, the clock jumps to the next timer. The same seed gives the
same run.
"""

import asyncio
import itertools
import random
import selectors
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context, ContextVar
from typing import Any, NamedTuple, TypeVar

import msgspec

from covey.bandit.learner import Learner
from covey.config import learner_of, load
from covey.data.inputs import ANY
from covey.errors import PeerError
from covey.kernel.rules import Report
from covey.network.network import functions_of
from covey.node.functions import PEER_TICKETS, Limits, Workers
from covey.node.node import Node, NodeDependencies, Question
from covey.node.peers import DEADLINE_S, VIA, Budgets, PeerTimeouts, RelayRoute
from covey.site.ensemble import SiteEnsemble
from covey.site.requests import AskRow, Assistance
from covey.site.trust import Trust
from covey.store.store import Store
from covey.types import Label
from support.coroutines import Story, as_test

Given = TypeVar("Given")
# At which site something runs; "": at none, as the network and its clients.
SITE: ContextVar[str] = ContextVar("SITE", default="")


def at(site: str) -> Context:
    """Return a context for what runs at a site, which knows nothing of any other."""
    context = Context()
    context.run(SITE.set, site)
    return context


class Clock(NamedTuple):
    """How a site's clock runs: how fast, and where it stood when all began."""

    rate: float = 1.0
    start_s: float = 0.0


class _Jump(selectors.BaseSelector):
    """Never waits: it moves the clock on. Nothing scheduled at all is a deadlock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("deadlock: all tasks wait, and nothing is scheduled")
        self.now_s += max(0.0, timeout)
        return []


class _Numbered(asyncio.Task):  # type: ignore[type-arg]
    """A task that sets hold in the order of its making, not by where it lies in memory."""

    _numbers = itertools.count()

    def __init__(self, *given: Any, context: Context | None = None, **more: Any) -> None:
        self._number = next(self._numbers)
        self.site = SITE.get() if context is None else context.get(SITE, "")
        super().__init__(*given, context=context, **more)

    def __hash__(self) -> int:
        return self._number


class _Ready(deque[asyncio.Handle]):
    """What is to run next; what belongs to a site that stands still is kept back."""

    def __init__(self) -> None:
        super().__init__()
        self.still: dict[str, list[asyncio.Handle]] = {}

    def append(self, handle: asyncio.Handle) -> None:
        if self.still and (site := handle._context.get(SITE, "")) in self.still:  # type: ignore[attr-defined]
            self.still[site].append(handle)
        else:
            super().append(handle)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is what its timers make of it; threads are not allowed.

    Every site may have a clock of its own, and may stand still: then what reaches it waits, and
    its timers go off late.
    """

    def __init__(self) -> None:
        _Numbered._numbers = itertools.count()
        self._jump = _Jump()
        self.clocks: dict[str, Clock] = {}
        super().__init__(self._jump)
        self._ready = _Ready()
        self._clock_resolution = 1e-6  # so that timers of a far future are reached, too
        self.set_task_factory(lambda loop, coro, **more: _Numbered(coro, loop=loop, **more))

    def time(self) -> float:
        clock = self.clocks.get(SITE.get())
        now_s = self._jump.now_s
        return now_s if clock is None else clock.start_s + clock.rate * now_s

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        clock = self.clocks.get(SITE.get())
        true_s = when if clock is None else (when - clock.start_s) / clock.rate
        return super().call_at(true_s, callback, *args, context=context)

    def hold(self, site: str) -> None:
        """Let a site stand still."""
        self._ready.still.setdefault(site, [])

    def wake(self, site: str) -> None:
        """Let a site go on, with all that waits there."""
        self._ready.extend(self._ready.still.pop(site, ()))

    def run_in_executor(self, *_: Any) -> Any:
        raise RuntimeError("no threads under a virtual clock")


def run(main: Coroutine[Any, Any, Given]) -> Given:
    """Run `main` under a clock of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def timed(story: Story) -> Callable[..., None]:
    """Make a test of a story under a clock of its own."""
    return as_test(story, lambda story, values: run(story()))


class Weather(msgspec.Struct):
    """What the links and the disks do; it may change while a network runs."""

    delay_s: float = 0.0  # mean, one way
    loss: float = 0.0
    repeats: float = 0.0
    commit_s: float = 0.0  # mean
    crash: float = 0.0  # at a commit, before or after it


class Crashed(Exception):
    """The called node has crashed; how far it got is unknown."""


class World:
    """The sites of a configuration, each with a node that may be down and a store that stays."""

    limits = Limits()
    peer_tickets = PEER_TICKETS
    labels = ANY  # that the first site takes
    budgets: Mapping[str, Budgets] = {}  # by site
    shadow: Mapping[str, float] = {}  # by site
    noon_s = 0.0  # the time since the epoch when the loop's clock stands at 0

    def __init__(
        self,
        config: Mapping[str, Any],
        functions: Mapping[str, Any],
        *,
        dimension: int,
        seed: int = 0,
        timeouts: PeerTimeouts | None = None,
        link: "type[Link] | None" = None,
        trust: Trust | Mapping[str, Mapping[str, Trust]] = "isolated",
    ) -> None:
        """`trust` holds for all pairs, or maps a node to its trust in each peer."""
        self.link = Link if link is None else link
        self.setup = load(config)
        self.functions = functions
        self.dimension = dimension
        self.timeouts = timeouts
        names = [site.name for site in self.setup.sites]
        self.trust = (
            {site: {name: trust for name in names if name != site} for site in names}
            if isinstance(trust, str)
            else {site: dict(others) for site, others in trust.items()}
        )
        self.chance = random.Random(seed)  # noqa: S311 - a seeded world
        self.weather = Weather()
        self.down: set[str] = set()  # who hears and says nothing
        self.counts: Counter[str] = Counter()
        self.names = names
        self.stores: dict[str, Store] = {}
        self.nodes: dict[str, Node] = {}
        for name in self.names:
            self.boot(name)

    def store(self, name: str) -> Store:
        """Return the store of a site, opened once."""
        return self.stores.get(name) or Store.memory()

    def disk(self, name: str) -> Workers:
        """Return what runs the commits of a site, and whatever else blocks."""
        return Disk(self, name)

    def learner(self, place: int) -> Learner:
        """Return the learner of a site, before its store is loaded."""
        return learner_of(self.setup, place, self.dimension)

    def hop(self, name: str, peer: str) -> str:
        """Return to which site another one sends what it asks a peer."""
        return peer if self.setup.wiring is None else self.setup.wiring.hop(name, peer)

    def ensemble(self, name: str) -> SiteEnsemble | None:
        """Return whose vote answers the clients of a site."""
        return None

    def boot(self, name: str) -> None:
        """Start the node of a site from its store."""
        place = self.names.index(name)
        site = self.setup.sites[place]
        self.stores[name] = self.store(name)
        learner = self.learner(place)
        ensemble = self.ensemble(name)
        asked = [*(peer for peer, _ in learner.behind()), *(ensemble.voters if ensemble else ())]
        hops = {peer: self.hop(name, peer) for peer in asked}
        peers = {
            peer: self.link(self, name, peer)
            if hop == peer
            else RelayedLink(self.link(self, name, hop), name, peer)
            for peer, hop in hops.items()
        }
        wiring = self.setup.wiring
        doors = NodeDependencies(
            self.stores[name],
            peers,
            self.chance,
            self.disk(name),
            lambda: self.noon_s + asyncio.get_running_loop().time(),
            ensemble=ensemble,
            relays={peer: hop for peer, hop in hops.items() if hop != peer},
            is_relay=wiring is not None and name in (wiring.links.relays or ()),
            shadow=self.shadow.get(name, 0.0),
        )
        node = Node(
            site,
            learner,
            functions_of(site, self.functions),
            doors,
            trust=self.trust[name],
            timeouts=self.timeouts,
            limits=self.limits,
            peer_tickets=self.peer_tickets,
            labels=self.labels if name == self.names[0] else ANY,
            budgets=self.budgets.get(name),
        )
        self.nodes[name] = node
        at(name).run(node.start)

    def crash(self, name: str) -> None:
        """Kill a node at once: nothing of it runs on, and what it had not stored is gone."""
        self.counts["crashes"] += 1
        self.nodes.pop(name).stop()
        for task in sorted(asyncio.all_tasks(), key=hash):
            if isinstance(task, _Numbered) and task.site == name:
                task.cancel()

    async def call(self, name: str, say: Callable[[Node], Awaitable[Given]]) -> Given:
        """Return what a node says; raise `Crashed` if it is down or dies meanwhile."""
        node = self.nodes.get(name)
        if node is None:
            raise Crashed
        task = asyncio.get_running_loop().create_task(_told(say, node), context=at(name))
        try:
            return await task
        except asyncio.CancelledError:
            if self.nodes.get(name) is node:
                raise
            raise Crashed from None

    async def predict(self, name: str, id_: str, instance: Any, context: tuple[float, ...]) -> Any:
        return await self.call(
            name, lambda node: node.predict(instance, context, question=Question("", id_))
        )

    async def learn(self, name: str, id_: str, label: Label) -> Any:
        return await self.call(name, lambda node: node.learn(id_, label))


class Disk:
    """A disk that takes its time, and during whose commits a node may die."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name

    async def run(self, function: Any, call: Callable[..., Any], **how: Any) -> Any:
        return call()

    def is_available(self, function: Any) -> bool:
        return True

    async def find(self, source: str, ids: Sequence[str]) -> Any:
        return self._world.stores[self._name].find_many(source, ids)

    async def commit(self, commit: Any) -> None:
        store = self._world.stores[self._name]
        await self._pause()
        store.commit(commit)
        await self._pause()

    async def _pause(self) -> None:
        world = self._world
        await asyncio.sleep(exponential(world, world.weather.commit_s))
        if world.weather.crash and world.chance.random() < world.weather.crash:
            world.crash(self._name)
            await asyncio.sleep(0)  # where the cancellation comes


class Link:
    """The way from one site to another, as a peer of the first."""

    def __init__(self, world: World, source: str, name: str) -> None:
        self._world, self._source, self._name = world, source, name

    async def ask(self, rows: Sequence[AskRow]) -> list[Assistance]:
        return await self._send(lambda node: node.for_peers.assist(rows, source=self._source))

    async def report(self, cell: str, slot: int, what: Any = "arrivals") -> Report:
        return await self._send(
            lambda node: node.for_peers.report(cell, slot, what, source=self._source)
        )

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        return await self._send(
            lambda node: node.for_peers.take_labels(labels, source=self._source)
        )

    async def _send(self, say: Callable[[Node], Awaitable[Any]]) -> Any:
        world = self._world
        world.counts["messages"] += 1
        await self._travel()
        if world.chance.random() < world.weather.repeats:
            world.counts["repeated"] += 1
            again = asyncio.ensure_future(self._arrive(say))
            again.add_done_callback(_ignore)
        result = await self._arrive(say)
        await self._travel()
        return result

    async def _arrive(self, say: Callable[[Node], Awaitable[Any]]) -> Any:
        try:
            return await self._world.call(self._name, say)
        except Crashed:
            raise PeerError(f"{self._name} is down") from None

    async def _travel(self) -> None:
        world = self._world
        if {self._name, self._source} & world.down or world.chance.random() < world.weather.loss:
            world.counts["lost"] += 1
            await asyncio.sleep(1e9)
        await asyncio.sleep(exponential(world, world.weather.delay_s))


class RelayedLink:
    """The way from one site to another through a relay; `link` leads to that."""

    def __init__(self, link: Link, source: str, name: str) -> None:
        self._link, self._source, self._name = link, source, name
        self.deliver = link.deliver

    async def ask(self, rows: Sequence[AskRow]) -> list[Assistance]:
        route = self._route()
        return await self._link._send(
            lambda node: node.for_peers.assist(rows, source=self._source, route=route)
        )

    async def report(self, cell: str, slot: int, what: Any = "arrivals") -> Report:
        route = self._route()
        return await self._link._send(
            lambda node: node.for_peers.report(cell, slot, what, source=self._source, route=route)
        )

    def _route(self) -> RelayRoute:
        left_s = DEADLINE_S.get() - asyncio.get_running_loop().time()
        return RelayRoute(self._name, (*VIA.get(), self._source), left_s)


async def _told(say: Callable[[Node], Awaitable[Given]], node: Node) -> Given:
    return await say(node)


def exponential(world: World, mean_s: float) -> float:
    return world.chance.expovariate(1 / mean_s) if mean_s else 0.0


def _ignore(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
