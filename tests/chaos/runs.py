"""One seed from its plan to its verdict: a storm, then calm, then every promise."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from chaos.cases import ALONE
from chaos.clients import Oracle, RunningClient, clients_of
from chaos.enemies import ENEMIES
from chaos.plans import Client, Plan, Storm, plan
from chaos.promises import PROMISES, Found, limits_hold, memory_agrees_with_the_store
from chaos.world import TIMEOUTS, Network
from covey.errors import CoveyError
from support import virtual

HEAL_S = 60.0  # within which every label is delivered
LONGEST_S = 7200.0  # for all clients to be done
SLACK_S = 0.5  # for disks and functions, in calm weather
CALM = Storm(delay_s=0.02, commit_s=0.002)


class Verdict(msgspec.Struct, frozen=True):
    """What became of a seed."""

    seed: int
    trace: str
    hours: float  # of the virtual clock
    nodes: int
    counts: dict[str, int]
    found: list[tuple[str, str]]  # promise, how it was broken


def play(seed: int, *, is_free: bool = False, shadow: float = 0.0) -> Verdict:
    """Return the verdict on a seed; the same seed gives the same one.

    `is_free`: all functions of its plan are free. `shadow`: the share of rows in the shadow.
    """
    planned = plan(seed)
    if is_free:
        planned.config["policy"].pop("reading", None)
        for learner in planned.config["learner"]:
            learner["free"] = True
    return virtual.run(_play(planned, shadow))


async def _play(planned: Plan, shadow: float = 0.0) -> Verdict:
    loop = asyncio.get_running_loop()
    network = Network(planned, shadow)
    loop.set_exception_handler(lambda _, told: network.blame("none", _unexpected(told)))
    oracle = Oracle(network)
    for name in network.names:
        oracle.look(name, network.stores[name])
    network.weather = planned.storm
    await _run_storm(network, clients_of(network, oracle, planned))
    if not network.found:
        await _heal(network)
        await _stand_alone(network, oracle)
        for name, node in network.nodes.items():
            await memory_agrees_with_the_store(network, name, node)
    hours = loop.time() / 3600
    for name in network.names:
        network.crash(name)
    if not network.found:
        judge(network, oracle)
    network.close()
    network.counts["acknowledged"] = oracle.acknowledged
    network.counts["crashes"] -= len(network.names)
    return Verdict(
        planned.seed,
        network.trace(),
        hours,
        len(network.names),
        dict(network.counts),
        network.found,
    )


def judge(network: Network, oracle: Oracle) -> None:
    """Compare every store with what clients know."""
    found = Found.of(network)
    for promise in PROMISES:
        promise(network, oracle, found)
    found.close()


async def _run_storm(network: Network, clients: list[RunningClient]) -> None:
    """Let the clients work through the storm."""
    faults = [_keep(network), _watch(network)]
    storm = network.storm
    for per_h, strike in (
        (storm.restarts_per_h, _restart),
        (storm.cuts_per_h, _cut),
        (storm.full_per_h, _fill),
        (storm.pauses_per_h, _pause),
        (storm.hellos_per_h, _greet),
    ):
        if per_h:
            faults.append(_strike(network, per_h / 3600, strike))
    faults += [
        ENEMIES[how](network, name) for name, how in network.plan.liars.items() if how in ENEMIES
    ]
    running = [asyncio.ensure_future(fault) for fault in faults]
    working = asyncio.ensure_future(asyncio.gather(*(client.work() for client in clients)))
    await asyncio.wait([working, running[1]], return_when=asyncio.FIRST_COMPLETED)
    for task in (*running, working):
        task.cancel()
    await asyncio.wait(running)  # until each fault is taken back
    try:
        await working
    except asyncio.CancelledError:
        pass
    except Exception as error:
        network.blame("I10", f"a client was told {error!r}")


async def _keep(network: Network) -> None:
    """Start nodes that are down, or have stopped because their disk failed."""
    while True:
        await asyncio.sleep(network.chance.expovariate(0.5))
        for name in network.names:
            node = network.nodes.get(name)
            if node is not None and node.is_broken:
                network.crash(name)
            elif node is None:
                network.boot(name)


async def _watch(network: Network) -> None:
    """Return as soon as something did not hold, or if there is no end of it."""
    clock = asyncio.get_running_loop()
    while not network.found:
        await asyncio.sleep(1.0)
        limits_hold(network)
        network.expect(clock.time() < LONGEST_S, "I8", "clients still wait after two hours")


async def _strike(
    network: Network, per_s: float, strike: Callable[[Network], Awaitable[None]]
) -> None:
    while True:
        await asyncio.sleep(network.chance.expovariate(per_s))
        await strike(network)


async def _restart(network: Network) -> None:
    name = network.chance.choice(network.names)
    network.counts["crashes at any time"] += name in network.nodes
    network.crash(name, has_power=network.chance.random() < 0.5)


async def _cut(network: Network) -> None:
    """Cut some links, or a whole site off, for a while."""
    chance, names = network.chance, network.names
    one, other = chance.sample(names, 2)
    ways = [{(one, other)}, {(one, other), (other, one)}, {(one, "")}, {("", one), (one, "")}]
    cut = chance.choice(ways)
    network.counts["partitions"] += 1
    network.cuts |= cut
    await asyncio.sleep(chance.expovariate(1 / 40.0))
    network.cuts -= cut


async def _fill(network: Network) -> None:
    """Let a disk be full for a while; a node that crashes meanwhile cannot start."""
    chance, name = network.chance, network.chance.choice(network.names)
    disk = network.disks[name]
    network.counts["full disks"] += 1
    disk.room = 0
    try:
        await asyncio.sleep(chance.expovariate(1 / 5.0))
        if chance.random() < 0.5:
            network.crash(name, has_power=chance.random() < 0.5)
        await asyncio.sleep(chance.expovariate(1 / 15.0))
    finally:
        disk.room = None


async def _pause(network: Network) -> None:
    """Stop a node as SIGSTOP would, and let it go on after a while."""
    chance, name = network.chance, network.chance.choice(network.names)
    network.counts["pauses"] += 1
    network.loop.hold(name)
    try:
        await asyncio.sleep(chance.expovariate(1 / chance.choice((0.5, 5.0, 30.0))))
    finally:
        network.loop.wake(name)


async def _greet(network: Network) -> None:
    """I12: a site says its name, and how often it was started."""
    one, other = network.chance.sample(network.names, 2)
    before = network.starts[other]
    try:
        async with asyncio.timeout(TIMEOUTS.timeout_s):
            greeting = await network.link(network, one, other).hello()
    except (CoveyError, OSError):
        return
    network.counts["greetings"] += 1
    is_so = before <= greeting.incarnation <= network.starts[other]
    network.expect(is_so, "I12", f"{other} says that it started {greeting.incarnation} times")


async def _heal(network: Network) -> None:
    """I8: stop all faults, start every node, and wait until every label is delivered."""
    network.weather, network.cuts = CALM, set()
    for name in network.names:
        node = network.nodes.get(name)
        if node is not None and node.is_broken:
            network.crash(name)
        if name not in network.nodes:
            network.boot(name)
    until_s = asyncio.get_running_loop().time() + HEAL_S
    while any(node.undelivered for node in network.nodes.values()):
        if asyncio.get_running_loop().time() > until_s:
            left = {name: one.undelivered for name, one in network.nodes.items() if one.undelivered}
            network.blame("I8", f"labels are undelivered a minute after the storm: {left}")
            return
        await asyncio.sleep(0.5)


async def _stand_alone(network: Network, oracle: Oracle) -> None:
    """I9: without any peer, every instance is answered in time."""
    network.cuts = {(name, "") for name in network.names}
    for number, name in enumerate(network.names):
        client = Client(name, "", 0, pause_s=0, label_s=0)
        running = RunningClient(network, oracle, client, ALONE + number)
        for k in range(4):
            try:
                async with asyncio.timeout(TIMEOUTS.timeout_s + SLACK_S):
                    await running.ask(k)
            except TimeoutError:
                network.blame("I9", f"{name}, without peers, did not answer in time")
                return
            await running.say(k)
    network.cuts = set()
    await _heal(network)


def _unexpected(told: dict[str, Any]) -> str:
    return f"unexpected: {told.get('message')} {told.get('exception')!r}"
