"""The configuration of a serving site: TOML to learner, functions, store and limits."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from covey import config, fields, limits, neighbours
from covey.batches import key_of, plain_label
from covey.classifiers import Function
from covey.config import ReplayConfig, Site
from covey.errors import ConfigError, DataError
from covey.labelsets import LabelSet, declared
from covey.learner import Learner
from covey.limits import SiteLimits
from covey.neighbours import Neighbour
from covey.node.network import check_can_run, functions_of, learner_of
from covey.node.peers import PeerTimeouts
from covey.node.requests import schema_fingerprint
from covey.ports import Address
from covey.sources.lessons import Remember, remembering
from covey.sources.registry import functions_from
from covey.sources.tables import Scalar

MOST_DIMENSIONS = 16
MOST_FEATURES = 4_096
REQUESTS_PER_S = 1_000.0  # of a client, unless the address is a loopback
_RANGES = {"dimension": (0, MOST_DIMENSIONS), "timeout_s": (0.001, 600)}
Datatype = Literal["BOOL", "INT64", "FP64", "BYTES"]


class Serving(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The `[node]` table: the site, its addresses and its files."""

    name: str
    features: dict[str, Datatype]
    store: str
    address: str = "127.0.0.1:8080"
    tokens: str | None = None  # the file of `covey tokens`
    certificate: str | None = None  # the files of `covey keys`
    key: str | None = None
    authority: str | None = None
    tls: bool | None = None  # for clients; None: unless the address is a loopback
    peer_address: str | None = None
    instance: Literal["record", "row"] = "record"  # input of functions
    dimension: int | None = None  # of contexts that clients send
    classes: list[Scalar] | None = None  # None: those of the functions, or any label
    slots: Literal["counted", "given"] = "counted"  # given: clients send slot numbers
    timeout_s: float = 1.0


class Identity(NamedTuple):
    """The certificate, key and authority files of a site."""

    certificate: Path
    key: Path
    authority: Path


class ServedSite(NamedTuple):
    """The parts of a node and its server."""

    serving: Serving
    setup: ReplayConfig
    site: Site
    learner: Learner
    functions: list[Function]
    store: Path
    address: Address
    timeouts: PeerTimeouts
    neighbours: dict[str, Neighbour]
    limits: SiteLimits
    labels: LabelSet
    tokens: Path | None = None
    identity: Identity | None = None
    has_tls: bool = False  # for clients
    peer_address: Address | None = None

    @property
    def has_contexts(self) -> bool:
        """Whether contexts are computed from features; otherwise clients send them."""
        return bool(self.setup.context.dimension)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the meaning of its counters; a store must have the same."""
        learner = self.learner
        return schema_fingerprint(learner.arms, learner.policies, self.setup.context.scales)

    @property
    def requests_per_s(self) -> float | None:
        """Request rate limit per client; None: no limit."""
        if self.limits.requests_per_s is None and not is_loopback(self.address.host):
            return REQUESTS_PER_S
        return self.limits.requests_per_s


def load(path: Path, *, remember: Remember = remembering) -> ServedSite:
    """Return the site of a TOML file; raise `ConfigError` if it is invalid.

    `remember` opens the training logs; the default opens them for writing.
    """
    table = config.read_toml(path)
    config.check_tables(table, ("node", "function", "limits", "peer"))
    if "node" not in table:
        raise ConfigError(f"{path} has no [node] table; add one with name, features and store")
    serving = fields.read(table.pop("node"), Serving, where="[node]")
    identity = _identity(serving, path.parent)
    address = _client_address(serving, identity)
    functions = table.pop("function", [])
    given = functions_from(functions, owner=serving.name, folder=path.parent, remember=remember)
    bounds = table.pop("limits", {})
    known = neighbours.read(table.pop("peer", []), own_name=serving.name)
    tables = neighbours.furnished(config.read(table), known, own_name=serving.name)
    setup = _with_checked_claims(config.assemble(tables))
    place = _place(serving, setup)
    _check(serving, setup, place)
    neighbours.check_site(setup.sites[place], [site.name for site in setup.sites], known)
    _check_ways(serving, setup.sites[place], known)
    width = serving.dimension if serving.dimension is not None else setup.context.dimension
    is_asked_by_context = any(peer.asks_by_context for peer in known.values())
    learner = learner_of(setup, place, width, is_asked_by_context=is_asked_by_context)
    if setup.settings.pending is None:
        learner.count_pending({})  # concurrent clients must not all explore the same arm
    own = functions_of(setup.sites[place], given)
    return ServedSite(
        serving,
        setup,
        setup.sites[place],
        learner,
        own,
        path.parent / serving.store,
        address,
        PeerTimeouts(timeout_s=serving.timeout_s),
        known,
        limits.read(bounds, label_wait=learner.label_wait),
        _labels(serving, setup, own),
        None if serving.tokens is None else path.parent / serving.tokens,
        identity,
        _has_tls(serving, address),
        _peer_address(serving, identity),
    )


def _with_checked_claims(setup: ReplayConfig) -> ReplayConfig:
    """Return the configuration with check-claims on by default."""
    if setup.settings.check_claims is not None:
        return setup
    settings = msgspec.structs.replace(setup.settings, check_claims=True)
    return setup._replace(settings=settings)


def _place(serving: Serving, setup: ReplayConfig) -> int:
    names = [site.name for site in setup.sites]
    if serving.name not in names:
        hint = fields.nearest(serving.name, names)
        raise ConfigError(f"[node] name: unknown learner {serving.name!r}{hint}")
    return names.index(serving.name)


def _check(serving: Serving, setup: ReplayConfig, place: int) -> None:
    check_can_run(setup)
    _check_numbers(serving)
    site = setup.sites[place]
    scales: Any = setup.context
    for is_there, what in (
        (setup.data.loss, "a loss, which a node does not support; remove it"),
        (any(site.cost_columns), "cost-columns, which are for replays only; remove them"),
        (scales.sample_rows, "sample-rows, which are for replays only; set sample"),
        (setup.settings.reading.ties == "random", 'ties = "random", which a node cannot restore'),
    ):
        if is_there:
            raise ConfigError(f"learner {site.name!r} has {what}")
    _check_contexts(serving, setup)


def _check_contexts(serving: Serving, setup: ReplayConfig) -> None:
    if setup.context.dimension:
        if serving.dimension is not None:
            raise ConfigError("[node] dimension: contexts are computed from features; remove it")
        for column in setup.context.columns:
            if column not in serving.features:
                hint = fields.nearest(column, serving.features)
                raise ConfigError(f"[data] context: {column!r} is not a feature of [node]{hint}")


def _check_numbers(serving: Serving) -> None:
    fields.check_range(len(serving.features), 1, MOST_FEATURES, "[node] features")
    fields.check_ranges(serving, _RANGES, where="[node]")
    for name in ("context", "instances"):
        if name in serving.features:
            raise ConfigError(f"[node] features: {name!r} is a reserved name; rename it")


def _labels(serving: Serving, setup: ReplayConfig, functions: list[Function]) -> LabelSet:
    """Return the valid labels of the site; the default is those of its functions."""
    if serving.classes is None:
        return LabelSet(declared(functions), setup.context)
    classes = serving.classes
    if "" in classes or not 2 <= len(classes) == len(set(map(key_of, classes))):
        raise ConfigError("[node] classes must be two or more different labels, without empty text")
    try:
        setup.context.check_labels([plain_label(label) for label in classes])
    except DataError as error:
        raise ConfigError(f"[node] classes: {error}") from None
    return LabelSet(classes, setup.context)


def _identity(serving: Serving, folder: Path) -> Identity | None:
    names = {"certificate": serving.certificate, "key": serving.key, "authority": serving.authority}
    missing = [name for name, file in names.items() if file is None]
    if len(missing) == len(names):
        return None
    if missing:
        raise ConfigError(
            f"[node] {missing[0]} is missing; certificate, key and authority are needed together: "
            "create them with `covey keys`"
        )
    return Identity(*(folder / file for file in names.values() if file is not None))


def _client_address(serving: Serving, identity: Identity | None) -> Address:
    """Return the address for clients; other addresses than a loopback need TLS and tokens."""
    address = _address(serving.address, "address")
    if identity is None and serving.tls:
        raise ConfigError("[node] tls = true needs certificate, key and authority: `covey keys`")
    if not is_loopback(address.host) and (
        identity is None or serving.tokens is None or serving.tls is False
    ):
        raise ConfigError(
            f"[node] address is {serving.address!r}, which is not a loopback; that needs TLS "
            "(certificate, key and authority: `covey keys`) and tokens (`covey tokens new`), or "
            "serve on the loopback: 127.0.0.1:8080"
        )
    return address


def _has_tls(serving: Serving, address: Address) -> bool:
    return not is_loopback(address.host) if serving.tls is None else serving.tls


def _peer_address(serving: Serving, identity: Identity | None) -> Address | None:
    if serving.peer_address is None:
        return None
    if identity is None:
        raise ConfigError(
            "[node] peer-address needs certificate, key and authority: use `covey keys`"
        )
    return _address(serving.peer_address, "peer-address")


def _check_ways(serving: Serving, site: Site, known: Mapping[str, Neighbour]) -> None:
    """Raise `ConfigError` if the keys or the peer address for the listed peers are missing."""
    if (site.peers or site.context_peers) and serving.certificate is None:
        raise ConfigError(
            f"learner {site.name!r} asks peers; [node] needs certificate, key and authority: "
            "create them with `covey keys`"
        )
    for name, one in known.items():
        if one.may_ask and serving.peer_address is None:
            raise ConfigError(
                f"[[peer]] {name!r} has may-ask = true; [node] needs peer-address, "
                'such as "0.0.0.0:8443"'
            )


def _address(text: str, key: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not port.isascii() or int(port) > 65_535:
        raise ConfigError(f"[node] {key} is {text!r}; write it like 127.0.0.1:8080")
    return Address(host.strip("[]"), int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
