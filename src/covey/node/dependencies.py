"""What a node is given: its store, its peers, its workers, and how it answers."""

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from covey.node.budgets import Payee
from covey.node.ensemble import ByArm
from covey.node.peers import Peer
from covey.node.shadow import ShadowSettings
from covey.node.store import Store
from covey.node.workers import Workers

if TYPE_CHECKING:
    from covey.node.node import Node


class NodeDependencies(msgspec.Struct, frozen=True):
    """The store, peers, random source and workers of a node."""

    store: Store
    peers: Mapping[str, Peer]
    rng: random.Random  # for ids and jitter
    workers: Workers
    clock: Callable[[], float] = time.time  # seconds since the epoch
    payees: Mapping[str, Payee] = {}  # peers that payments are stated to
    # A paused node of the same store, which is stopped when the new one starts.
    before: "Node | None" = None
    answering: ByArm = ByArm()  # or an ensemble, whose vote answers clients
    shadow: ShadowSettings = ShadowSettings()
    relays: Mapping[str, str] = {}  # peer -> the site through which it is asked, and which is paid
