"""A served site: its node, a listener for clients and one for peers."""

import asyncio
import gc
import logging
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from covey.errors import ConfigError, StoreFailed
from covey.node.node import Limits, Node, NodeDependencies
from covey.node.peers import Peer
from covey.node.store import Store
from covey.node.workers import Observer, ThreadWorkers
from covey.server import keys
from covey.server.client_api import OPEN_PATHS, ROUTES, ClientApi
from covey.server.config import Identity, SiteConfig, pinned_keys
from covey.server.http import Address, Authenticator
from covey.server.listener import CertificateAuth, Listener, LoopbackOnly, RateLimited, TokenAuth
from covey.server.metrics import Metrics, ObservedPeer
from covey.server.peer_api import PATHS, PeerApi
from covey.server.peer_client import HttpsPeers

log = logging.getLogger(__name__)


def new_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of a site: that of uvloop, which costs less, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def serve(served: SiteConfig, *, is_up: Callable[..., None]) -> None:
    """Serve a site until the process gets SIGINT or SIGTERM.

    `is_up` gets the URL for clients and, if there is one, the URL for peers. Raises `StoreFailed`
    if the store cannot be written, after requests in progress are answered; with a full disk the
    node continues and refuses requests.
    """
    certificate = _own_certificate(served)
    stop = _stop_signal()
    async with AsyncExitStack() as stack:
        paths = {route.at(served.serving.name): route.path for route in ROUTES}
        asked = [name for name, one in served.neighbours.items() if one.url is not None]
        metrics = Metrics(paths, PATHS, asked)
        store, threads = _threads(served, stack, metrics)
        peers = _peers(served, stack, certificate)
        observed: dict[str, Peer] = {}
        if peers is not None:
            observed = {
                name: ObservedPeer(name, peer, metrics) for name, peer in peers.by_name.items()
            }
        payees = {} if peers is None else peers.by_name
        node = _node(
            served,
            NodeDependencies(store, observed, random.SystemRandom(), threads, payees=payees),
        )
        stack.callback(node.stop)
        failed, stopped = asyncio.ensure_future(node.failed()), asyncio.ensure_future(stop.wait())
        stack.callback(failed.cancel)  # not before requests in progress are answered
        stack.callback(stopped.cancel)
        ends = dict if certificate is None else certificate.ends
        metrics.follow(node, store=served.store, ends=ends)
        node.start()
        _log_start(node)
        listeners = [_for_clients(served, node, metrics)]
        if served.peer_address is not None and served.identity is not None:
            address, identity = served.peer_address, served.identity
            listeners.append(_for_peers(served, node, address, identity, metrics))
        urls = []
        for listener in listeners:
            urls.append(await listener.open())
            stack.push_async_callback(listener.close)
        readers: list[Listener | HttpsPeers | keys.OwnCertificate] = [*listeners]
        readers += [one for one in (peers, certificate) if one is not None]
        if certificate is not None:
            watching = asyncio.ensure_future(certificate.watch())
            stack.callback(watching.cancel)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, readers)
        gc.freeze()  # exclude all present objects from garbage collection, and collect seldom
        gc.set_threshold(50_000, 20, 20)
        is_up(f"{urls[0]}/v2/models/{served.serving.name}", *urls[1:])
        await asyncio.wait([failed, stopped], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([failed])
    if not failed.cancelled():
        raise StoreFailed(
            f"{failed.result()}; the site has stopped, and its store is whole up to the last label "
            "that was acknowledged: check the disk, and restart"
        ) from failed.result()


def _log_start(node: Node) -> None:
    state, labels = node.state(), node.counters.labels.total()
    log.info(
        "store read: start %d, slot %d, %d labels of own clients, %d of peers, %d cells, "
        "%d pending labels, %d undelivered",
        state.starts,
        state.slot,
        labels,
        state.for_peers.labels,
        state.cells,
        state.open_tickets,
        state.owed,
    )


def _own_certificate(served: SiteConfig) -> keys.OwnCertificate | None:
    """Return the certificate; raise `ConfigError` if peers would refuse it."""
    if served.identity is None:
        return None
    certificate, name = served.identity.certificate, keys.show(served.identity.certificate).name
    if name != served.serving.name:
        raise ConfigError(
            f"[node] certificate: {certificate} is of site {name!r}, and this one is "
            f"{served.serving.name!r}; peers would refuse it: name the file of this site"
        )
    return keys.OwnCertificate(*served.identity)


def _threads(
    served: SiteConfig, stack: AsyncExitStack, watcher: Observer
) -> tuple[Store, ThreadWorkers]:
    store = Store(served.store, rows_kept=served.limits.tickets_kept, tell=log.info)
    stack.callback(store.close)
    if store.is_new:
        log.info("store %s is new: the site begins with no labels", served.store)
    if store.copy is not None:
        log.info(
            "store %s of an earlier covey is migrated; the old file is %s", served.store, store.copy
        )
    threads = ThreadWorkers(store, watcher)
    stack.callback(threads.close)
    return store, threads


def _peers(
    served: SiteConfig, stack: AsyncExitStack, certificate: keys.OwnCertificate | None
) -> HttpsPeers | None:
    """Return the clients of the peers with a url; None for a site without keys."""
    if served.identity is None or certificate is None:
        return None
    identify = partial(keys.client_context, *served.identity)
    chance = random.SystemRandom()
    peers = HttpsPeers(served.neighbours, identify, chance, fault=certificate.fault)
    stack.push_async_callback(peers.close)
    return peers


def _node(served: SiteConfig, doors: NodeDependencies) -> Node:
    return Node(
        served.site,
        served.learner,
        served.functions,
        doors,
        trust={name: one.trust for name, one in served.neighbours.items()},
        timeouts=served.timeouts,
        labels=served.labels,
        limits=Limits(
            tickets=served.limits.tickets,
            peer_tickets=served.limits.peer_tickets,
            cells=served.limits.cells,
        ),
        fingerprint=served.fingerprint,
        budgets=served.budgets,
    )


def _for_clients(served: SiteConfig, node: Node, metrics: Metrics) -> Listener:
    gate: Authenticator = LoopbackOnly(served.hosts)
    if served.tokens is not None:
        gate = TokenAuth(served.tokens, open_paths=OPEN_PATHS)
    if served.requests_per_s is not None:
        gate = RateLimited(gate, served.requests_per_s)
    certificates = None
    if served.has_tls and served.identity is not None:
        certificates = partial(keys.open_context, *served.identity)
    return Listener(
        ClientApi(served, node, metrics),
        served.address,
        gate=gate,
        limits=served.limits,
        tls=certificates,
        side="front",
        watcher=metrics,
    )


def _for_peers(
    served: SiteConfig, node: Node, address: Address, identity: Identity, watcher: Observer
) -> Listener:
    return Listener(
        PeerApi(
            node,
            served.neighbours,
            limits=served.limits,
            features=served.serving.features,
            instance=served.serving.instance,
        ),
        address,
        gate=CertificateAuth(pinned_keys(served.neighbours)),
        limits=served.limits,
        tls=partial(keys.server_context, *identity),
        side="back",
        watcher=watcher,
    )


def _reload(readers: Sequence[Listener | HttpsPeers | keys.OwnCertificate]) -> None:
    log.info("reloading certificates")
    for reader in readers:
        reader.reload()


def _stop_signal() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; a second signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        stop.set()
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    return stop
