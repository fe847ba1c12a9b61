"""A served site: its node, a listener for clients and one for peers.

Its file may change while it serves: a reload waits until the requests in progress are answered,
makes the node of the new file from the present one, and lets the requests that came meanwhile go
on.
"""

import asyncio
import gc
import logging
import random
import signal
import ssl
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from covey.errors import ConfigError, CoveyError, PeerRefused, StoreAway, StoreError, StoreFailed
from covey.node.functions import ThreadWorkers
from covey.node.node import Node, NodeDependencies
from covey.server import config, keys
from covey.server.client_api import OPEN_PATHS, ROUTES, ClientApi, LiveState
from covey.server.conditions import FAR_S, Conditions
from covey.server.config import SiteConfig, pinned_keys
from covey.server.connection import CertificateAuth, Listener, LoopbackOnly, RateLimited, TokenAuth
from covey.server.http import AdmissionQueue, Authenticator, HttpHandler, Rates, Turns
from covey.server.log_lines import EventLog, kept_events
from covey.server.metrics import Metrics
from covey.server.peer_api import PATHS, PeerApi, PeerUse
from covey.server.peer_client import HttpsPeers, greeted, misfit
from covey.site.requests import Commit
from covey.store.change import Plan
from covey.store.database import DatabaseUrl
from covey.store.store import Store

log = logging.getLogger(__name__)
NOTED_S = 5.0  # after which it is noted again what happens over time
PATIENCE_S = 60.0  # for requests in progress, before a reload is given up
STORE_AGAIN_S = 1.0  # after which a store that is away is tried again
GREET_AGAIN_S = 1.0, 60.0  # after which a peer that is away is greeted again, at first and at most


def new_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of a site: that of uvloop, which costs less, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def serve(
    served: SiteConfig, *, is_up: Callable[..., None], waits_for_store: bool = False
) -> None:
    """Serve a site until the process gets SIGINT or SIGTERM.

    `is_up` gets the URL for clients and, if there is one, the URL for peers. Raises `StoreFailed`
    if the store cannot be written, after requests in progress are answered; with a full disk the
    node continues and refuses requests. While another node has the store, or its server is away, it
    is waited for, or `StoreAway` is raised.
    """
    certificate = config.own_certificate(served)
    stop = _stop_signal()
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        paths = {route.at(served.serving.name): route.path for route in ROUTES}
        metrics = Metrics(paths, PATHS)
        events = stack.enter_context(kept_events())
        store = await _open_store(served, stop if waits_for_store else None)
        if store is None:
            return
        stack.callback(store.close)
        threads = ThreadWorkers(store, metrics.write)
        stack.callback(threads.close)
        site = ServedSite(served, certificate, store, threads, metrics, events)
        failed, stopped = site.failed, asyncio.ensure_future(stop.wait())
        stack.callback(failed.cancel)  # not before requests in progress are answered
        stack.callback(stopped.cancel)
        await site.open()
        stack.push_async_callback(site.close)
        urls = await site.listen()
        loop.add_signal_handler(signal.SIGHUP, site.on_hangup)
        gc.freeze()  # exclude all present objects from garbage collection, and collect seldom
        gc.set_threshold(50_000, 20, 20)
        is_up(f"{urls[0]}/v2/models/{served.serving.name}", *urls[1:])
        ends: list[asyncio.Future[Any]] = [failed, stopped]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([failed])
    if not failed.cancelled():
        what = "the database" if isinstance(served.store, DatabaseUrl) else "the disk"
        raise StoreFailed(
            f"{failed.result()}; the site has stopped, and its store is whole up to the last label "
            f"that was acknowledged: check {what}, and restart"
        ) from failed.result()


def _log_start(node: Node) -> None:
    state = node.state()
    labels = sum(arm.labels for arm in state.arms)
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


class ServedSite:
    """The present parts of a served site, which a reload replaces."""

    def __init__(
        self,
        served: SiteConfig,
        certificate: keys.OwnCertificate | None,
        store: Store,
        threads: ThreadWorkers,
        metrics: Metrics,
        events: EventLog,
    ) -> None:
        """`certificate` is that of the file."""
        self.failed: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        self._served, self._certificate = served, certificate
        self._store, self._threads, self._metrics, self._events = store, threads, metrics, events
        self._allowed: dict[str, str] = {}  # the present peers and their keys
        self._reloading = asyncio.Lock()
        self._tasks: set[asyncio.Task[Plan]] = set()
        self._watching: list[asyncio.Task[None]] = []
        self._peers: HttpsPeers | None = None
        self._ports: dict[str, Listener] = {}
        # What stays when the file changes.
        self._turns = Turns()
        self._queues = {side: AdmissionQueue(served.limits.in_flight) for side in ("front", "back")}
        self._rates, self._peer_use = Rates(), PeerUse()
        self._conditions = Conditions()

    async def open(self) -> None:
        """Begin with the parts of the file; raise `CoveyError` if they cannot be used."""
        served = self._served
        await self._threads.open(served.functions)
        peers = self._connect(served, self._certificate)
        try:
            node = self._make_node(served, peers)
            self._peers = peers
            self._use(served, node)
        except BaseException:
            self._stop_watching()
            if peers is not None:
                await peers.close()
            raise
        node.start()
        _log_start(node)

    async def listen(self) -> list[str]:
        """Begin to serve; return the URL for clients and, if there is one, that for peers."""
        return [await listener.open() for listener in self._ports.values()]

    async def close(self) -> None:
        """Stop to serve, after requests in progress are answered."""
        for listener in reversed(self._ports.values()):
            await listener.close()
        self._stop_watching()
        with suppress(StoreError):
            await self._write_series()
        with suppress(StoreError):
            await self._node.pause()
        self._node.stop()
        if self._peers is not None:
            await self._peers.close()

    def _serve(self, side: str, handler: HttpHandler, gate: Authenticator) -> None:
        """Let a port use these from now on."""
        served = self._served
        if side in self._ports:
            port = self._ports[side]
            port.handler, port.gate, port.limits = handler, gate, served.limits
            return
        is_for_peers = side == "back"
        address = served.peer_address if is_for_peers else served.address
        assert address is not None  # else there is no such side
        self._ports[side] = Listener(
            handler,
            address,
            gate=gate,
            limits=served.limits,
            tls=partial(self._tls, side) if is_for_peers or served.has_tls else None,
            side=side,
            metrics=self._metrics,
            turns=self._turns,
        )

    def _tls(self, side: str) -> ssl.SSLContext:
        assert self._served.identity is not None  # else it has no TLS
        if side == "back":
            return keys.server_context(*self._served.identity, self._allowed)
        return keys.open_context(*self._served.identity)

    def _gate(self) -> Authenticator:
        """Return what clients must pass."""
        served = self._served
        gate: Authenticator = LoopbackOnly()
        if served.tokens is not None:
            gate = TokenAuth(served.tokens, open_paths=OPEN_PATHS)
        if served.requests_per_s is not None:
            gate = RateLimited(gate, self._rates, served.requests_per_s)
        return gate

    def _use(self, served: SiteConfig, node: Node) -> None:
        """Serve with these parts from now on."""
        self._threads.keep(served.functions)
        self._store.rows_kept = served.limits.tickets_kept
        self._served, self._node = served, node
        for queue in self._queues.values():
            queue.most = served.limits.in_flight
        queue, history = self._queues["front"], self._threads.history
        self._conditions.certificate, self._conditions.tokens = self._certificate, served.tokens
        self._live = LiveState(
            served, node, queue, events=self._events, history=history, conditions=self._conditions
        )
        front = ClientApi(served, node, self._metrics, queue, self.reload, self._live)
        back = PeerApi(
            node,
            served.neighbours,
            limits=served.limits,
            features=served.serving.features,
            instance=served.serving.instance,
            spaces=served.spaces,
            use=self._peer_use,
            queue=self._queues["back"],
        )
        self._allowed.clear()
        self._allowed.update(pinned_keys(served.neighbours))
        self._serve("front", front, self._gate())
        if served.peer_address is not None:
            self._serve("back", back, CertificateAuth(self._allowed, expect=back.expect))
        self._conditions.notes.clear()  # the peers are greeted again
        near = [name for name, peer in served.neighbours.items() if peer.url is not None]
        self._metrics.know([*near, *served.relays])
        self._metrics.follow(node, self._live.state)
        self._stop_watching()
        watching = [self._watch(node), self._note()]
        if self._peers is not None:
            watching += [self._greet(served, self._peers, name) for name in near]
        self._watching = [asyncio.ensure_future(work) for work in watching]

    async def _greet(self, served: SiteConfig, peers: HttpsPeers, name: str) -> None:
        """Say if a peer and this site do not understand each other, when it answers first."""
        assert served.identity is not None  # else there are no peers with a url
        notes, (wait_s, longest_s) = self._conditions.notes, GREET_AGAIN_S
        while True:
            try:
                seen = await greeted(name, peers, served.identity)
                break
            except PeerRefused as error:
                notes["settings", name] = f"peer {name} and this site refuse each other: {error}"
                return
            except CoveyError:  # it is away, and the site works without it
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, longest_s)
        why = misfit(served, served.neighbours[name], seen)
        if why:
            notes["settings", name] = f"peer {name} does not fit this site: {why}"
        if seen.ahead_s is not None and abs(seen.ahead_s) > FAR_S:
            notes["clock", name] = f"the clock of peer {name} differs by {abs(seen.ahead_s):.0f} s"

    async def _note(self) -> None:
        """Note what happens over time, until this is cancelled; commits write it."""
        while True:
            if self._certificate is not None and self._certificate.is_replaced():
                self.reload_certificates()
            self._live.state()
            await asyncio.sleep(NOTED_S)

    async def _write_series(self) -> None:
        """Write what happened since the last commit, before the node is stopped."""
        history, now_s = self._threads.history, time.time()
        history.note(self._node.state().arms, now_s)
        lines = history.due(now_s, is_last=True)
        if lines and self._node.is_ready:
            await self._threads.commit(Commit([*lines]))

    def _stop_watching(self) -> None:
        for task in self._watching:
            task.cancel()

    async def _watch(self, node: Node) -> None:
        failure = await node.failed()
        if not self.failed.done():
            self.failed.set_result(failure)

    def _connect(
        self, served: SiteConfig, certificate: keys.OwnCertificate | None
    ) -> HttpsPeers | None:
        """Return the clients of the peers with a url; None for a site without keys."""
        if served.identity is None or certificate is None:
            return None
        return HttpsPeers(
            served.neighbours,
            served.identity,
            random.SystemRandom(),
            fault=certificate.fault,
            announced=served.spaces.announcement(),
            relays=served.relays,
            own_name=served.serving.name,
            observed=self._metrics.calling,
        )

    def _make_node(
        self, served: SiteConfig, peers: HttpsPeers | None, before: Node | None = None
    ) -> Node:
        return Node(
            served.site,
            served.learner,
            served.functions,
            NodeDependencies(
                self._store,
                {} if peers is None else peers.by_name,
                random.SystemRandom(),
                self._threads,
                before=before,
                ensemble=served.ensemble,
                relays=served.relays,
                is_relay=served.is_relay,
                shadow=served.serving.shadow,
            ),
            trust={name: neighbour.trust for name, neighbour in served.neighbours.items()},
            timeouts=served.timeouts,
            labels=served.labels,
            limits=served.limits,
            peer_tickets=served.peer_tickets,
            fingerprint=served.fingerprint,
            budgets=served.budgets,
        )

    # -- reloads --------------------------------------------------------------------------------

    def on_hangup(self) -> None:
        """Read certificates and the file again; what cannot be used is logged."""
        log.info("reloading certificates and %s", self._served.path)
        self.reload_certificates()
        self._begin(self._reload()).add_done_callback(_log_failure)

    def _begin(self, work: Coroutine[Any, Any, Plan]) -> "asyncio.Task[Plan]":
        """Begin a reload that nothing interrupts."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def reload_certificates(self) -> None:
        for listener in self._ports.values():
            listener.reload()
        for reader in (self._peers, self._certificate):
            if reader is not None:
                reader.reload()

    async def reload(self) -> Plan:
        """Apply the file of the site; return what that has changed in the store.

        Raises `ConfigError` or `StoreError` if it cannot be used; then nothing has changed.
        """
        return await asyncio.shield(self._begin(self._reload()))

    async def _reload(self) -> Plan:
        try:
            plan = await self._applied()
        except CoveyError as error:
            self._conditions.notes["file", ""] = f"the file was not applied: {error}"
            raise
        self._conditions.notes.pop(("file", ""), None)
        return plan

    async def _applied(self) -> Plan:
        async with self._reloading:
            before = self._served
            served = await asyncio.to_thread(config.load, before.path, before=before)
            if served.content == before.content:
                log.info("%s has not changed", before.path)
                return Plan(before.serving.name, [])
            config.check_may_become(before, served)
            if config.may_take_over(before, served):
                self._take_over(served)
                self.reload_certificates()
                log.info("%s is applied, while requests are answered", before.path)
                return Plan(before.serving.name, [])
            is_same = served.identity == before.identity
            certificate = config.own_certificate(served, self._certificate if is_same else None)
            peers = self._connect(served, certificate)
            try:
                await self._threads.open(served.functions)
                await self._turns.pause(PATIENCE_S)
                await self._become(served, peers, certificate)
            except BaseException:
                self._threads.keep(before.functions)
                if peers is not None:
                    await peers.close()
                raise
            finally:
                self._turns.go_on()
            self.reload_certificates()
            log.info("%s is applied", before.path)
            return self._node.plan

    def _take_over(self, served: SiteConfig) -> None:
        """Let the present node have other prices, limits and peers."""
        if self._peers is not None:
            self._peers.use(served.neighbours)
        self._node.use(
            served.learner.costs,
            {name: peer.trust for name, peer in served.neighbours.items()},
            limits=served.limits,
            peer_tickets=served.peer_tickets,
            timeouts=served.timeouts,
            budgets=served.budgets,
        )
        self._use(served, self._node)

    async def _become(
        self, served: SiteConfig, peers: HttpsPeers | None, certificate: keys.OwnCertificate | None
    ) -> None:
        old, old_peers = self._node, self._peers
        try:
            await old.pause()
            node = await asyncio.to_thread(self._make_node, served, peers, old)
        except StoreFailed as error:  # what the store has now is not known
            self.failed.set_result(error)
            raise
        except BaseException as error:
            old.start()
            if isinstance(error, StoreError):
                raise ConfigError(str(error)) from error
            raise
        self._peers, self._certificate = peers, certificate
        self._use(served, node)
        node.start()
        if old_peers is not None:
            await old_peers.close()


def _log_failure(reload: "asyncio.Task[Plan]") -> None:
    if not reload.cancelled() and (error := reload.exception()) is not None:
        if not isinstance(error, CoveyError):
            raise error
        log.error("the site is unchanged: %s", error)


async def _open_store(served: SiteConfig, stop: asyncio.Event | None) -> Store | None:
    """Return the store; with `stop` it is waited for, and None is returned once that is set."""
    loop, logged = asyncio.get_running_loop(), ""
    opened = partial(Store, served.store, rows_kept=served.limits.tickets_kept, tell=log.info)
    while True:
        try:
            store = await loop.run_in_executor(None, opened)
            break
        except StoreAway as error:
            if stop is None:
                raise
            if str(error) != logged:
                logged = str(error)
                log.warning("waits for its store: %s", logged)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), STORE_AGAIN_S)
            return None
    if store.is_new:
        log.info("store %s is new: the site begins with no labels", served.store)
    return store


def _stop_signal() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; a second signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        log.info("%s: requests in progress are answered first", signal.Signals(number).name)
        stop.set()
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    return stop
