"""A network of real nodes in a storm: disks that lose power, links that are cut, peers that lie."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from chaos import cases
from chaos.disk import Disk, by_chance
from chaos.links import CheckedClient, Link
from chaos.plans import Plan, Storm
from covey.bandit.learner import Learner
from covey.errors import FunctionError, StoreError
from covey.node.functions import Training
from covey.node.node import Node
from covey.node.peers import PeerTimeouts
from covey.server.peer_api import PeerApi
from covey.site.requests import Commit
from covey.store.store import Store
from covey.types import Label
from support import message_links, virtual
from support.virtual import Clock, Crashed, VirtualLoop

TIMEOUTS = PeerTimeouts(timeout_s=1.0, failures=3, open_s=1.0, most_open_s=60.0)


class Network(virtual.World):
    """The sites of a plan; `found` is what was promised and did not hold."""

    def __init__(self, plan: Plan, shadow: float = 0.0) -> None:
        """`shadow` is the share of rows that all sites run in the shadow."""
        self.plan = plan
        self.shadow = dict.fromkeys(plan.names, shadow)
        self.disks = {name: Disk() for name in plan.names}
        self.found: list[tuple[str, str]] = []
        self.cuts: set[tuple[str, str]] = set()
        self.starts = dict.fromkeys(plan.names, 0)
        # By site: arrivals of requests that were in progress at crashes, by source and cell.
        self.lost_arrivals: dict[str, Counter[tuple[str, str]]] = {}
        self.backs: dict[str, PeerApi] = {}
        self.poison: dict[tuple[str, str, str], set[Any]] = {}  # site, source, id -> labels
        self.when_booted: Callable[[str, Store], None] = lambda name, store: None
        self._trace = hashlib.sha256()
        self.limits, self.peer_tickets = plan.limits, plan.peer_tickets
        self._functions = {name: self._function(name) for name in plan.accuracy}
        self._owners = {
            function: learner["name"]
            for learner in plan.config["learner"]
            for function in learner["functions"]
        }
        self.begun_slots: Counter[str] = Counter()  # the latest, by site
        super().__init__(
            plan.config,
            self._functions,
            dimension=1,
            seed=plan.seed,
            timeouts=TIMEOUTS,
            link=Link,
            trust=plan.trust,
        )

    # -- what happened --------------------------------------------------------------------------

    def note(self, *what: Any) -> None:
        """Add an event to the trace."""
        self._trace.update(repr(what).encode())

    def trace(self) -> str:
        """Return what tells this run from every other."""
        return self._trace.hexdigest()

    def blame(self, promise: str, how: str) -> None:
        """Note that a promise did not hold."""
        self.found.append((promise, how))

    def expect(self, is_so: bool, promise: str, how: str) -> None:
        if not is_so:
            self.blame(promise, how)

    # -- nodes ----------------------------------------------------------------------------------

    def store(self, name: str) -> Store:
        return Store(f"{name}.store", connect=self.disks[name].connect)  # type: ignore[arg-type]

    def disk(self, name: str) -> "StormWorkers":
        return StormWorkers(self, name)

    def boot(self, name: str) -> None:
        """Start a node, if its disk lets it."""
        rate = self.plan.rates[name]
        self.loop.clocks[name] = Clock(rate, self.chance.uniform(0.0, 1e6))
        for function in self._functions.values():
            if isinstance(function, cases.TrainedFunction) and self._owners[function.name] == name:
                function.load()
        try:
            super().boot(name)
        except StoreError as error:
            self.counts["failed boots"] += 1
            self.expect("damaged" not in str(error), "I4", f"{name}: {error}")
            self._release(name)
            return
        self.backs[name] = PeerApi(self.nodes[name], self.plan.tables[name])
        self._note_slots(name)
        self.note("boot", name)
        self.when_booted(name, self.stores[name])

    def _note_slots(self, name: str) -> None:
        """Note which slots a node begins; those of a request that fails are begun again."""
        state = self.nodes[name]._state
        take = state.take_slots

        def noted(slot: int | None, rows: int) -> int:
            first = take(slot, rows)
            self.begun_slots[name] = max(self.begun_slots[name], first)
            return first

        state.take_slots = noted  # type: ignore[method-assign]

    def crash(self, name: str, *, has_power: bool = True) -> None:
        """Kill a node, and cut the power of its machine if `has_power` is False."""
        if name not in self.nodes:
            return
        self.note("crash", name, has_power)
        self.loop.wake(name)
        super().crash(name)
        if has_power:
            self.disks[name].kill()
        else:
            self.counts["power losses"] += 1
            self.disks[name].lose_power(by_chance(self.chance))
        self._release(name)

    def close(self) -> None:
        """Close stores and remove disks."""
        for name, disk in self.disks.items():
            self._release(name)
            disk.remove()

    def _release(self, name: str) -> None:
        self.disks[name].kill()
        if name in self.stores:
            self.stores.pop(name).close()

    def _function(self, name: str) -> cases.Function:
        accuracy = self.plan.accuracy[name]
        if name in self.plan.trained:
            return cases.TrainedFunction(name, accuracy, self._is_broken, self._trained)
        return cases.Function(name, accuracy, self._is_broken)

    def _is_broken(self) -> bool:
        return self.chance.random() < self.storm.broken

    def _trained(self, function: str, case: int, times: int) -> None:
        """I2, I6: a label trains once, and only if it counts at the site."""
        self.counts["trainings"] += 1
        site = self._owners[function]
        source = cases.origin(case, [client.site for client in self.plan.clients], self.names)
        node = self.nodes.get(site)
        is_trusted = source == site or (node is not None and node._state.sources.teaches(source))
        self.expect(times == 1, "I2", f"{function} was trained {times} times with one label")
        self.expect(is_trusted, "I6", f"{function} of {site} was trained with a label of {source}")

    def label_of(self, site: str, function: str, case: int, truth: int) -> Label | None:
        """Return what a function of a site answers to a case; None: that is not known."""
        if function in self.plan.trained or self._owners.get(function) != site:
            return None
        return self._functions[function].label(case, truth)

    def has_missed(self, site: str, function: str, case: int) -> bool:
        """Return whether a function of a site answered a case and was not trained with it."""
        one = self._functions[function] if self._owners.get(function) == site else None
        return isinstance(one, cases.TrainedFunction) and one.has_missed(case)

    def forger(self, source: str, name: str) -> Link:
        """Return a link over which a site sends whatever it likes."""
        link = Link(self, source, name)
        link.is_forged = True
        everything = message_links.neighbour(name)
        link._client = CheckedClient(
            everything, link._post, self.chance, accepted=lambda request: None
        )
        return link

    @property
    def loop(self) -> VirtualLoop:
        """The clocks of all sites."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop

    @property
    def arms(self) -> dict[str, tuple[str, ...]]:
        """The arms of every site."""
        return {name: self.fresh_learner(name).arms for name in self.names}

    def training_budget(self, name: str, slot: int) -> float:
        """Return D2: how many arrivals of a peer in a cell are too few at `slot`."""
        policies = self.fresh_learner(name).policies
        return max(policy.train.at(slot) for policy in policies.values())

    def fresh_learner(self, name: str) -> Learner:
        """Return a learner of a site that has not begun."""
        return self.learner(self.names.index(name))

    @property
    def storm(self) -> Storm:
        """The weather now."""
        return self.weather if isinstance(self.weather, Storm) else Storm()

    async def call(self, name: str, say: Callable[[Node], Awaitable[Any]]) -> Any:
        """Return what a node answers; the caller may disconnect, noticed by the node or not."""
        if self.chance.random() >= self.storm.disconnect:
            return await super().call(name, say)
        self.counts["disconnects"] += 1
        calling = asyncio.ensure_future(super().call(name, say))
        calling.add_done_callback(virtual._ignore)
        await asyncio.sleep(self.chance.expovariate(5.0))
        if self.chance.random() < 0.5:
            calling.cancel()  # it was noticed
        raise Crashed


class StormWorkers:
    """What blocks at one site: a disk that is slow or full, or whose machine dies on the way."""

    def __init__(self, network: Network, name: str) -> None:
        self._network, self._name = network, name
        self._disk = network.disks[name]

    async def run(self, function: Any, call: Callable[..., Any], **how: Any) -> Any:
        if isinstance(call, Training):
            await self._pause()
        await asyncio.sleep(0.0)
        result = call()
        await asyncio.sleep(0.0)
        return result

    def is_available(self, function: Any) -> bool:
        return True

    async def find(self, source: str, ids: Sequence[str]) -> Any:
        await asyncio.sleep(0.0)
        found = self._network.stores[self._name].find_many(source, ids)
        await asyncio.sleep(0.0)
        return found

    async def commit(self, commit: Commit) -> None:
        await self._pause()
        await self._maybe_crash("before")
        self._draw_faults()
        try:
            self._network.stores[self._name].commit(commit)
        except StoreError:
            await self._failed()
            raise
        finally:
            self._disk.fails_sync = False
        self._network.note("commit", self._name, self._network_time(), len(commit.labels))
        if self._disk.fuse is not None:  # the power goes after the last operation
            await self._die(has_power=False)
        await self._pause()
        await self._maybe_crash("after")

    def _draw_faults(self) -> None:
        chance, storm = self._network.chance, self._network.storm
        if chance.random() < storm.power:
            self._disk.fuse = chance.randrange(25)
        if chance.random() < storm.sync_failure:
            self._disk.fails_sync = True

    async def _failed(self) -> None:
        network, disk = self._network, self._disk
        network.counts["failed commits"] += 1
        is_faulty = disk.is_cut or disk.fails_sync or disk.room is not None
        network.expect(is_faulty, "I8", f"{self._name} stopped, though its disk did not fail")
        if disk.is_cut:
            await self._die(has_power=False)

    async def _maybe_crash(self, when: str) -> None:
        if self._network.chance.random() < self._network.storm.crash:
            self._network.counts[f"crashes {when} a commit"] += 1
            await self._die(has_power=self._network.chance.random() < 0.5)

    async def _die(self, *, has_power: bool) -> None:
        self._network.crash(self._name, has_power=has_power)
        await asyncio.sleep(3600)  # where the cancellation comes
        raise AssertionError("what was killed runs on")

    async def _pause(self) -> None:
        await asyncio.sleep(virtual.exponential(self._network, self._network.storm.commit_s))

    def _network_time(self) -> float:
        return asyncio.get_running_loop().time()


FAILURES = (Crashed, StoreError, FunctionError)
