"""A site that serves: its node, and a listener for each side of it."""

import asyncio
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

from covey import tls
from covey.back import Back
from covey.front import OPEN_PATHS, Front
from covey.gates import Anybody, ByCertificate, ByToken, Gate, Paced
from covey.https_peers import HttpsPeers
from covey.listeners import Listener
from covey.neighbours import allowed
from covey.node import Doors, Limits, Node
from covey.peers import Peer
from covey.sites import Address, Identity, ServedSite
from covey.store import Store
from covey.threads import Threads


async def serve(served: ServedSite, *, is_up: Callable[[str], None]) -> None:
    """Serve a site until the process is told to stop; `is_up` is told where it listens."""
    stop = _stop_signal()
    async with AsyncExitStack() as stack:
        node = _node(served, stack)
        listeners = [_for_clients(served, node)]
        if served.peer_address is not None and served.identity is not None:
            listeners.append(_for_peers(served, node, served.peer_address, served.identity))
        urls = []
        for listener in listeners:
            urls.append(await listener.open())
            stack.push_async_callback(listener.close)
        _on_hangup(listeners)
        node.start()
        is_up(f"{urls[0]}/v2/models/{served.serving.name}")
        await stop.wait()


def _node(served: ServedSite, stack: AsyncExitStack) -> Node:
    store = Store(served.store)
    stack.callback(store.close)
    threads = Threads(store)
    stack.callback(threads.close)
    doors = Doors(store, _peers(served, stack), random.SystemRandom(), threads)
    node = Node(
        served.site,
        served.learner,
        served.functions,
        doors,
        trust={name: one.trust for name, one in served.neighbours.items()},
        patience=served.patience,
        limits=Limits(
            tickets=served.limits.tickets,
            peer_tickets=served.limits.peer_tickets,
            cells=served.limits.cells,
        ),
    )
    stack.callback(node.stop)
    return node


def _peers(served: ServedSite, stack: AsyncExitStack) -> Mapping[str, Peer]:
    """Return the ways to the neighbours that have an address."""
    if served.identity is None:
        return {}
    context = tls.client_context(*served.identity)
    peers = HttpsPeers(served.neighbours, context, random.SystemRandom())
    stack.push_async_callback(peers.close)
    return peers.by_name


def _for_clients(served: ServedSite, node: Node) -> Listener:
    gate: Gate = Anybody()
    if served.tokens is not None:
        gate = ByToken(served.tokens, open_paths=OPEN_PATHS)
    if served.requests_per_s is not None:
        gate = Paced(gate, served.requests_per_s)
    certificates = None
    if served.has_tls and served.identity is not None:
        certificates = partial(tls.open_context, *served.identity)
    return Listener(
        Front(served, node),
        served.address,
        gate=gate,
        limits=served.limits,
        tls=certificates,
    )


def _for_peers(served: ServedSite, node: Node, address: Address, identity: Identity) -> Listener:
    return Listener(
        Back(node, served.neighbours),
        address,
        gate=ByCertificate(allowed(served.neighbours)),
        limits=served.limits,
        tls=partial(tls.server_context, *identity),
    )


def _on_hangup(listeners: Sequence[Listener]) -> None:
    """Have tokens and certificates read again when the process is told to."""
    loop = asyncio.get_running_loop()
    under_way: set[asyncio.Task[None]] = set()

    def reload() -> None:
        for listener in listeners:
            task = loop.create_task(listener.reload())
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)


def _stop_signal() -> asyncio.Event:
    """Return what is set when the process is told to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
