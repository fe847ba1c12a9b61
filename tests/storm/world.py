"""A network of real nodes in a storm: disks that lose power, links that are cut, peers that lie."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import virtual
from covey.errors import FunctionError, PeerError, StoreError
from covey.learner import Learner
from covey.network import learner_of
from covey.node import Node
from covey.peers import Help, Patience
from covey.store import Store
from storm.disk import Disk, by_chance
from storm.plans import Plan, Storm
from virtual import Crashed

PATIENCE = Patience(timeout_s=1.0, failures=3, rest_s=1.0, most_rest_s=60.0)
LOST_S = 1e5  # until the system gives a connection up
WRONG_LABEL = [1]  # what is no label


class Network(virtual.World):
    """The sites of a plan; `found` is what was promised and did not hold."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.disks = {name: Disk() for name in plan.names}
        self.found: list[tuple[str, str]] = []
        self.cuts: set[tuple[str, str]] = set()
        self.starts = dict.fromkeys(plan.names, 0)
        self.poison: dict[tuple[str, str, str], set[Any]] = {}  # site, source, id -> labels
        self.when_booted: Callable[[str, Store], None] = lambda name, store: None
        self._trace = hashlib.sha256()
        self.limits = plan.limits
        functions = {name: self._function(name) for name in plan.accuracy}
        super().__init__(
            plan.config,
            functions,
            dimension=1,
            seed=plan.seed,
            patience=PATIENCE,
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

    def disk(self, name: str) -> "Work":
        return Work(self, name)

    def boot(self, name: str) -> None:
        """Start a node, if its disk lets it."""
        try:
            super().boot(name)
        except StoreError as error:
            self.counts["failed boots"] += 1
            self.expect("damaged" not in str(error), "I4", f"{name}: {error}")
            self._let_go(name)
            return
        self.note("boot", name)
        self.when_booted(name, self.stores[name])

    def crash(self, name: str, *, has_power: bool = True) -> None:
        """Kill a node, and its machine if that has no power."""
        if name not in self.nodes:
            return
        self.note("crash", name, has_power)
        super().crash(name)
        if has_power:
            self.disks[name].kill()
        else:
            self.counts["power losses"] += 1
            self.disks[name].lose_power(by_chance(self.chance))
        self._let_go(name)

    def close(self) -> None:
        """Let go of all that is left."""
        for name, disk in self.disks.items():
            self._let_go(name)
            disk.remove()

    def _let_go(self, name: str) -> None:
        self.disks[name].kill()
        if name in self.stores:
            self.stores.pop(name).close()

    def _function(self, name: str) -> Callable[[Any], int]:
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")

        def answer(instance: tuple[int, int]) -> int:
            if self.chance.random() < self.storm.broken:
                raise RuntimeError("out of order")
            case, truth = instance
            is_right = (case * 7919 + number) % 1000 < 1000 * self.plan.accuracy[name]
            return truth if is_right else 1 - truth

        return answer

    @property
    def arms(self) -> dict[str, tuple[str, ...]]:
        """The arms of every site."""
        return {name: self._learner(name).arms for name in self.names}

    def training_budget(self, name: str, slot: int) -> float:
        """Return D2: how many arrivals of a peer in a cell are too few at `slot`."""
        policies = self._learner(name).policies
        return max(policy.train.at(slot) for policy in policies.values())

    def _learner(self, name: str) -> Learner:
        return learner_of(self.setup, self.names.index(name), self.dimension)

    @property
    def storm(self) -> Storm:
        """The weather now."""
        return self.weather if isinstance(self.weather, Storm) else Storm()

    async def call(self, name: str, say: Callable[[Node], Awaitable[Any]]) -> Any:
        """Return what a node says; who asks may hang up, and the node may never know."""
        if self.chance.random() >= self.storm.hang_up:
            return await super().call(name, say)
        self.counts["hung up"] += 1
        calling = asyncio.ensure_future(super().call(name, say))
        calling.add_done_callback(virtual._ignore)
        await asyncio.sleep(self.chance.expovariate(5.0))
        if self.chance.random() < 0.5:
            calling.cancel()  # it was noticed
        raise Crashed


class Work:
    """What blocks at one site: a disk that is slow or full, or whose machine dies on the way."""

    def __init__(self, network: Network, name: str) -> None:
        self._network, self._name = network, name
        self._disk = network.disks[name]

    async def __call__(self, run: Callable[..., Any], /, *given: Any) -> Any:
        if getattr(run, "__name__", "") != "commit":
            await asyncio.sleep(0.0)
            return run(*given)
        await self._pause()
        await self._maybe_crash("before")
        self._ill_luck()
        try:
            result = run(*given)
        except StoreError:
            await self._failed()
            raise
        finally:
            self._disk.fails_sync = False
        self._network.note("commit", self._name, self._network_time(), len(given[0].truths))
        if self._disk.fuse is not None:  # the power goes after the last operation
            await self._die(has_power=False)
        await self._pause()
        await self._maybe_crash("after")
        return result

    def _ill_luck(self) -> None:
        chance, storm = self._network.chance, self._network.storm
        if chance.random() < storm.power:
            self._disk.fuse = chance.randrange(25)
        if chance.random() < storm.sync_failure:
            self._disk.fails_sync = True

    async def _failed(self) -> None:
        network, disk = self._network, self._disk
        network.counts["failed commits"] += 1
        is_ill = disk.is_cut or disk.fails_sync or disk.room is not None
        network.expect(is_ill, "I8", f"{self._name} stopped, though its disk did not fail")
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


class Link(virtual.Link):
    """The way from one site to another: cut, slow, lossy, or with a liar at its end."""

    _world: Network

    async def _send(self, say: Callable[[Node], Awaitable[Any]]) -> Any:
        world, kind = self._world, say.__qualname__.split(".")[1]
        world.counts["messages"] += 1
        world.note("send", self._source, self._name, kind, asyncio.get_running_loop().time())
        if world.chance.random() < world.storm.crash_at_send:
            world.counts["crashes at a send"] += 1
            world.crash(self._source)
            await asyncio.sleep(3600)
        await self._way(self._source, self._name)
        if world.chance.random() < world.storm.repeats:
            world.counts["repeated"] += 1
            again = asyncio.ensure_future(self._again(say))
            again.add_done_callback(virtual._ignore)
        told = await self._arrive(say)
        world.note("deliver", self._source, self._name, kind, asyncio.get_running_loop().time())
        await self._way(self._name, self._source)
        return self._lie(kind, told)

    async def _again(self, say: Callable[[Node], Awaitable[Any]]) -> None:
        await asyncio.sleep(self._world.chance.expovariate(0.2))
        await self._arrive(say)

    async def _arrive(self, say: Callable[[Node], Awaitable[Any]]) -> Any:
        """Let the other side answer; it goes on even if nobody waits any more."""
        answering = asyncio.ensure_future(super()._arrive(say))
        answering.add_done_callback(virtual._ignore)
        return await asyncio.shield(answering)

    async def _way(self, source: str, target: str) -> None:
        world = self._world
        is_cut = {(source, target), ("", target), (source, "")} & world.cuts
        if is_cut or world.chance.random() < world.storm.loss:
            world.counts["lost"] += 1
            await asyncio.sleep(LOST_S)
            raise PeerError("nobody heard it")
        is_slow = world.chance.random() < world.storm.tail
        mean_s = 20.0 if is_slow else world.storm.delay_s
        await asyncio.sleep(virtual.exponential(world, mean_s))

    def _lie(self, kind: str, told: Any) -> Any:
        how = self._world.plan.liars.get(self._name)
        if how == "silent" and kind != "deliver" and self._world.chance.random() < 0.7:
            raise PeerError(f"{self._name} says nothing")
        if how == "garbage" and kind == "ask" and self._world.chance.random() < 0.5:
            return [Help(WRONG_LABEL, "", -1) for _ in told]
        if kind != "report":
            return told
        arrivals, low, high = told
        lies = {"low": 0, "high": 2**50, "garbage": float("nan")}
        return lies.get(how or "", arrivals), low, high


FAILURES = (Crashed, StoreError, FunctionError)
