"""The configuration of a served site: `[node]`, its keys, `[limits]` and `[[peer]]` tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from covey import config, toml
from covey.bandit.learner import Learner
from covey.config import LearnerSpec, LearnerTable, NetworkConfig, Share, Tables, learner_of
from covey.data.contexts import MOST_COORDINATES, Contexts
from covey.data.inputs import LabelSet, NumberSet, key_of, plain_label
from covey.errors import ConfigError, DataError
from covey.functions import remote
from covey.functions.function import Function, Named, Scalar, declared
from covey.functions.registry import Remember, functions_from, with_training_log
from covey.network.network import check_can_run, functions_of
from covey.node.functions import PEER_TICKETS, Limits
from covey.node.peers import Budgets, BudgetTable, PeerTimeouts, prices_of
from covey.server import http, keys
from covey.server.http import Address, is_loopback
from covey.server.spaces import SpaceNames, names_of
from covey.site.ensemble import SiteEnsemble, voters_of
from covey.site.requests import Loaded
from covey.site.trust import Trust
from covey.store import change
from covey.store.change import Plan, wanted_arms
from covey.store.database import DatabaseUrl, store_place
from covey.store.fingerprint import schema_fingerprint
from covey.store.store import Store
from covey.types import Label, Loss

WHERE = "[[peer]]"
MOST_FUNCTIONS = 10**6
SHARES = ("none", "context", "data")  # ascending


class PeerConfig(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A `[[peer]]` table: another site, identified by name and key."""

    name: str
    key: str  # the public key that `covey keys show` prints
    url: str | None = None  # None: it is never queried
    share: Literal["none", "context", "data"] = "none"  # what queries to it may contain
    trust: Trust = "earned"  # use of its labels
    may_ask: bool = False
    asks_by_context: bool = False  # its queries may contain only the cell; labels are kept for it
    functions: Annotated[int, Meta(ge=1, le=MOST_FUNCTIONS)] = 1  # assumed number
    # Of its messages; None: 1,000.
    rate_per_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    in_flight: Annotated[int, Meta(ge=1, le=1_024)] = 8  # of its requests
    budget: BudgetTable | None = None  # for its answers; None: no limit
    relays: dict[str, float] = {}  # other sites that it forwards to, and at what price beyond its

    def may_see(self, needed: str) -> bool:
        """Return whether `share` permits `needed`, one of `SHARES`."""
        return SHARES.index(self.share) >= SHARES.index(needed)


def read_peers(tables: object, *, own_name: str, first: int = 1) -> dict[str, PeerConfig]:
    """Return the peers by name, in the order of the file; `first` is the number of the first.

    Raises `ConfigError` that names the table and the key.
    """
    if not isinstance(tables, list):
        raise ConfigError(f"{WHERE} must be a list of tables; write [[peer]] with two brackets")
    peers: dict[str, PeerConfig] = {}
    for number, table in enumerate(tables, first):
        name = table.get("name") if isinstance(table, Mapping) else None
        where = f"{WHERE} {name!r}" if isinstance(name, str) else f"{WHERE} {number}"
        peer = _checked(toml.read(table, PeerConfig, where=where), where)
        if peer.name == own_name:
            raise ConfigError(f"{where} is this site itself; list other sites only")
        if peer.name in peers:
            raise ConfigError(f"duplicate {where}; keep one table per site")
        peers[peer.name] = peer
    return peers


def pinned_keys(neighbours: Mapping[str, PeerConfig]) -> dict[str, str]:
    """Return the allow list: names and keys."""
    return {name: neighbour.key for name, neighbour in neighbours.items()}


def furnished(
    tables: Tables, neighbours: Mapping[str, PeerConfig], *, own_name: str, free: Sequence[str] = ()
) -> Tables:
    """Return a site's configuration with a learner added for every peer without one.

    Such a learner provides a name and a number of functions (thresholds depend on the largest
    one). A site without `peers` queries none. `free` are functions whose tables say that they are.
    """
    if neighbours and tables.settings.carry_serving_costs:
        raise ConfigError(
            "[policy] carry-serving-costs needs the serving costs of peers, which a site does not "
            "know; remove it, and include them in the prices"
        )
    default: dict[str, float] | None = None if "link" in tables.links else {}
    own = [_own(member, own_name, neighbours, default) for member in tables.members]
    own = [_with_free(member, free) if member.name == own_name else member for member in own]
    names = [member.name for member in own]
    _check_relays(neighbours, own, has_links=default is None)
    others = [
        LearnerTable(
            name=neighbour.name,
            functions=[f"{neighbour.name}/{k + 1}" for k in range(neighbour.functions)],
            peers=neighbour.relays or default,
            relay=bool(neighbour.relays),
        )
        for neighbour in neighbours.values()
        if neighbour.name not in names
    ]
    sites = {*names, *neighbours}
    far = dict.fromkeys(far for neighbour in neighbours.values() for far in neighbour.relays)
    others += [
        LearnerTable(name=name, functions=[f"{name}/1"], peers=default)
        for name in far
        if name not in sites
    ]
    return tables._replace(members=[*own, *others])


def _check_relays(
    neighbours: Mapping[str, PeerConfig], members: Sequence[LearnerTable], *, has_links: bool
) -> None:
    """Raise `ConfigError` if the paths of relays are given twice."""
    named = [member.name for member in members]
    for name, neighbour in neighbours.items():
        if neighbour.relays and (has_links or name in named):
            where = "[[link]] tables" if has_links else f"a [[learner]] table {name!r}"
            raise ConfigError(
                f"{WHERE} {name!r} has relays, but the file has {where}; remove relays, and set "
                f"relay = true in [[learner]] {name!r}"
            )


def check_site(
    site: LearnerSpec,
    names: Sequence[str],
    neighbours: Mapping[str, PeerConfig],
    relays: Mapping[str, str],
) -> None:
    """Raise `ConfigError` unless every queried peer, or its relay, has a url and may see enough."""
    for key, places, needed in (
        ("peers", site.peers, "data"),
        ("context-peers", site.context_peers, "context"),
    ):
        for name in [relays.get(names[place], names[place]) for place in places]:
            neighbour = neighbours.get(name)
            if neighbour is None:
                raise ConfigError(
                    f"learner {site.name!r} asks {name!r}, but {WHERE} {name!r} is missing; add it"
                )
            listed = f"learner {site.name!r} has {name!r} in {key}"
            if neighbour.url is None:
                raise ConfigError(
                    f"{listed}, but {WHERE} {name!r} has no url; add "
                    f'url = "https://...", or remove it from {key}'
                )
            if not neighbour.may_see(needed):
                raise ConfigError(
                    f"{listed}, which needs share = {needed!r}, but "
                    f"{WHERE} {name!r} has share = {neighbour.share!r}; change one of them"
                )


def _checked(peer: PeerConfig, where: str) -> PeerConfig:
    try:
        keys.check_name(peer.name)
    except ConfigError as error:
        raise ConfigError(f"{where} name: {error}") from None
    keys.check_key(peer.key, f"{WHERE} key of {peer.name}")
    if peer.asks_by_context and not peer.may_ask:
        raise ConfigError(f"{where} has asks-by-context without may-ask = true; add it")
    if peer.url is None:
        return peer
    return replace(peer, url=_root(peer.url, f"{where} url"))


def _root(url: str, where: str) -> str:
    """Return the root URL of a site, with its port."""
    try:
        parts = remote.checked(url)
        is_root = parts.scheme == "https" and not parts.path.strip("/")
    except ConfigError:
        is_root = False
    if not is_root:
        shape = "like https://south.example:8443, without a path, and without ? and #"
        raise ConfigError(f"{where} is {url!r}; only https is supported: write it {shape}")
    (host,) = keys.check_hosts([parts.hostname or ""])
    return Address(host, parts.port or 443).url("https")


def _own(
    learner: LearnerTable,
    own_name: str,
    neighbours: Mapping[str, PeerConfig],
    default: dict[str, float] | None,
) -> LearnerTable:
    if learner.name != own_name:
        return learner
    for key, listed in (("peers", learner.peers or {}), ("context-peers", learner.context_peers)):
        for peer in listed:
            if peer not in neighbours and peer != own_name:
                hint = toml.nearest(peer, neighbours)
                raise ConfigError(
                    f"learner {own_name!r} lists {peer!r} in {key}, but {WHERE} {peer!r} is "
                    f"missing{hint}"
                )
    return replace(learner, peers=default) if learner.peers is None else learner


def _with_free(learner: LearnerTable, free: Sequence[str]) -> LearnerTable:
    """Return a learner of which these functions are free, too."""
    if isinstance(learner.free, bool):
        listed = learner.functions if learner.free else []
    else:
        listed = learner.free
    both = [*listed, *(name for name in free if name in learner.functions)]
    return replace(learner, free=both) if free else learner


def relays_of(setup: NetworkConfig, site: LearnerSpec) -> dict[str, str]:
    """Return the peers that a site asks through another one, and which that is."""
    if setup.wiring is None:
        return {}
    peers = [setup.sites[place].name for place in site.peers]
    hops = {peer: setup.wiring.hop(site.name, peer) for peer in peers}
    return {peer: hop for peer, hop in hops.items() if hop != peer}


TABLES = ("node", "function", "limits", "peer")  # beside those of `covey.config`
MOST_FEATURES = 4_096
REQUESTS_PER_S = 1_000.0  # of a client, unless the address is a loopback
FeatureType = Literal["BOOL", "INT64", "FP64", "BYTES"]


class NodeTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The `[node]` table: the site, its addresses and its files."""

    name: str
    features: Annotated[dict[str, FeatureType], Meta(min_length=1, max_length=MOST_FEATURES)]
    store: str
    address: str = "127.0.0.1:8080"
    tokens: str | None = None  # the file of `covey tokens`
    certificate: str | None = None  # the files of `covey keys`
    key: str | None = None
    tls: bool | None = None  # for clients; None: unless the address is a loopback
    peer_address: str | None = None
    instance: Literal["record", "row"] = "record"  # input of functions
    # Of contexts that clients send.
    dimension: Annotated[int, Meta(ge=0, le=MOST_COORDINATES)] | None = None
    classes: list[Scalar] | None = None  # None: those of the functions, or any label
    slots: Literal["counted", "given"] = "counted"  # given: clients send slot numbers
    timeout_s: Annotated[float, Meta(ge=0.001, le=600)] = 1.0
    # After the timeout, in which an answer is learnt from.
    late_answer_s: Annotated[float, Meta(ge=0, le=600)] = 0.0
    budget: BudgetTable | None = None  # for answers of all peers; None: no limit
    shadow: Share = 0.01  # of own rows that all own functions answer, too


class Identity(NamedTuple):
    """The certificate and key files of a site."""

    certificate: Path
    key: Path


class FileContent(NamedTuple):
    """What a file says: its tables as records, without comments, order and defaults."""

    node: NodeTable
    limits: Limits
    peers: Mapping[str, PeerConfig]
    network: Tables
    functions: Mapping[str, Named]

    def of_node(self) -> "FileContent":
        """Return the same without what a running node and its ports take over."""
        node = replace(self.node, tokens=None, timeout_s=1.0, late_answer_s=0.0, budget=None)
        peers = {
            name: PeerConfig(
                name=name,
                key="",
                url=None if peer.url is None else "",
                functions=peer.functions,
                relays=dict.fromkeys(peer.relays, 0.0),
            )
            for name, peer in self.peers.items()
            if peer.url is not None or peer.trust == "full"
        }
        members = [
            replace(
                member,
                peers=None if member.peers is None else dict.fromkeys(member.peers, 0.0),
                context_peers=dict.fromkeys(member.context_peers, 0.0),
            )
            for member in self.network.members
        ]
        network = self.network._replace(members=members)
        return FileContent(node, Limits(), peers, network, self.functions)


class SiteConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a node and its server."""

    path: Path  # of the file
    content: FileContent
    serving: NodeTable
    setup: NetworkConfig
    site: LearnerSpec
    asked: LearnerSpec  # the same, with all peers that it asks: those that vote, too
    learner: Learner
    functions: list[Function]
    ensemble: SiteEnsemble | None  # whose vote answers clients
    labels: LabelSet
    contexts: Contexts  # that the site makes of features: those of its own learner
    has_contexts: bool  # whether it makes any; otherwise clients send them
    spaces: SpaceNames  # the context spaces of the file, as they are named between sites
    fingerprint: str  # of the meaning of its counters; a store must have the same
    store: Path | DatabaseUrl
    limits: Limits
    requests_per_s: float | None  # of a client; None: no limit
    peer_tickets: int  # rows of a peer that are held: those of a long wait, and two requests more
    address: Address
    has_tls: bool  # for clients
    tokens: Path | None
    identity: Identity | None
    peer_address: Address | None
    neighbours: dict[str, PeerConfig]
    relays: dict[str, str]  # the peers that are asked through another one, and which that is
    is_relay: bool  # it forwards requests of peers to its own peers
    timeouts: PeerTimeouts
    budgets: Budgets


def load(
    path: Path, *, remember: Remember = with_training_log, before: SiteConfig | None = None
) -> SiteConfig:
    """Return the site of a TOML file; raise `ConfigError` if it is invalid.

    `remember` opens the training logs; the default opens them for writing. What has not changed
    since `before` is used on, if that is given.
    """
    return from_table(toml.read_toml(path), path, remember=remember, before=before)


def from_table(
    content: Mapping[str, Any], path: Path, *, remember: Remember, before: SiteConfig | None = None
) -> SiteConfig:
    """Return the site of the content of a file."""
    with toml.modules_beside(path):
        return _from_table(content, path, remember, before)


def _from_table(
    content: Mapping[str, Any], path: Path, remember: Remember, before: SiteConfig | None
) -> SiteConfig:
    table, folder = dict(content), path.parent
    config.check_tables(table, TABLES)
    if "node" not in table:
        raise ConfigError(f"{path} has no [node] table; add one with name, features and store")
    serving = toml.read(table.pop("node"), NodeTable, where="[node]")
    identity = _identity(serving, folder)
    address, peer_address = _addresses(serving, identity)
    known_functions = {} if before is None else {old.name: old for old in before.functions}
    loaded = functions_from(
        table.pop("function", []),
        owner=serving.name,
        folder=folder,
        remember=remember,
        before=known_functions,
    )
    bounds = table.pop("limits", {})
    neighbours = read_peers(table.pop("peer", []), own_name=serving.name)
    free = [name for name, function in loaded.items() if function.table.free]
    network = config.read(table)
    tables = furnished(network, neighbours, own_name=serving.name, free=free)
    setup = config.assemble(tables)
    setup = setup._replace(settings=setup.settings.checked())
    names = [site.name for site in setup.sites]
    if serving.name not in names:
        hint = toml.nearest(serving.name, names)
        raise ConfigError(f"[node] name: unknown learner {serving.name!r}{hint}")
    place = names.index(serving.name)
    site, contexts = setup.sites[place], setup.contexts_of(place)
    _check(serving, setup, site, contexts)
    voters = _voters(tables.members[place], setup)
    asked = site._replace(peers=(*site.peers, *(names.index(voter) for voter in voters)))
    relays = relays_of(setup, site)
    check_site(asked, names, neighbours, relays)
    _check_keys(serving, asked, neighbours)
    learner = _learner(serving, setup, place, neighbours)
    functions = functions_of(site, loaded)
    labels = _labels(serving, contexts, functions, setup.data.loss)
    limits = http.read_limits(bounds, label_wait=learner.label_wait)
    is_outside = not is_loopback(address.host)
    wiring = setup.wiring
    return SiteConfig(
        path=path,
        content=FileContent(
            serving,
            limits,
            neighbours,
            network,
            {name: replace(function.table, carry=0.0) for name, function in loaded.items()},
        ),
        serving=serving,
        setup=setup,
        site=site,
        asked=asked,
        learner=learner,
        functions=functions,
        ensemble=None
        if setup.ensemble is None
        else SiteEnsemble(serving.name, voters, setup.ensemble, labels.classes),
        labels=labels,
        contexts=contexts,
        has_contexts=bool(setup.plan.entries),
        spaces=names_of(setup, learner),
        fingerprint=schema_fingerprint(
            learner.arms, learner.policies, setup.context.scales, learner.counted_parts
        ),
        store=_place(serving.store, folder),
        limits=limits,
        requests_per_s=limits.requests_per_s or (REQUESTS_PER_S if is_outside else None),
        peer_tickets=max(PEER_TICKETS, learner.label_wait + 2 * http.PEER_ROWS),
        address=address,
        has_tls=is_outside if serving.tls is None else serving.tls,
        tokens=None if serving.tokens is None else folder / serving.tokens,
        identity=identity,
        peer_address=peer_address,
        neighbours=neighbours,
        relays=relays,
        is_relay=wiring is not None and site.name in (wiring.links.relays or ()),
        timeouts=PeerTimeouts(timeout_s=serving.timeout_s, late_s=serving.late_answer_s),
        budgets=_budgets(
            serving,
            prices_of(learner),
            relays,
            neighbours,
            are_learnt=wiring is not None and bool(wiring.tolls),
        ),
    )


def _voters(member: LearnerTable, setup: NetworkConfig) -> list[str]:
    """Return the peers that vote in an ensemble; none if there is none."""
    if setup.ensemble is None:
        return []
    if setup.ensemble.weights == "cell" and len(setup.plan.spaces) > 1:
        raise ConfigError(
            '[ensemble] weights = "cell" needs one context space for all learners of a served '
            'site; use weights = "global", or the same context for all'
        )
    return voters_of(member)


def _learner(
    serving: NodeTable, setup: NetworkConfig, place: int, neighbours: Mapping[str, PeerConfig]
) -> Learner:
    width = setup.context.dimension if serving.dimension is None else serving.dimension
    is_asked_by_context = any(peer.asks_by_context for peer in neighbours.values())
    learner = learner_of(setup, place, width, is_asked_by_context=is_asked_by_context)
    if setup.settings.pending is None:
        learner.count_pending({})  # concurrent clients must not all explore the same arm
    return learner


def may_take_over(before: SiteConfig, now: SiteConfig) -> bool:
    """Return whether a running node can take over what has changed, while requests go on.

    That is: prices, budgets, limits, the addresses and rights of peers, and peers that only ask.
    """
    trusts = [
        {name: peer.trust for name, peer in site.neighbours.items()} for site in (before, now)
    ]
    common = trusts[0].keys() & trusts[1].keys()
    return (
        before.identity == now.identity
        and before.learner.arms == now.learner.arms
        and before.learner.remembers == now.learner.remembers
        and before.relays == now.relays
        and before.content.of_node() == now.content.of_node()
        and all(trusts[0][name] == trusts[1][name] for name in common)
        and ("earned" in trusts[0].values() or "earned" not in trusts[1].values())
    )


def check_may_become(before: SiteConfig, now: SiteConfig) -> None:
    """Raise `ConfigError` if a running site cannot become another without a restart."""
    for key, old, new in (
        ("[node] name", before.serving.name, now.serving.name),
        ("[node] store", _resolved(before.store), _resolved(now.store)),
        ("[node] address", before.address, now.address),
        ("[node] peer-address", before.peer_address, now.peer_address),
        ("[node] tls", before.has_tls, now.has_tls),
    ):
        if old != new:
            raise ConfigError(f"{key} has changed, which needs a restart")


def _place(store: str, folder: Path) -> Path | DatabaseUrl:
    try:
        return store_place(store, folder)
    except ConfigError as error:
        raise ConfigError(f"[node] store: {error}") from None


def _resolved(store: Path | DatabaseUrl) -> Path | DatabaseUrl:
    return store if isinstance(store, DatabaseUrl) else store.resolve()


def _check(serving: NodeTable, setup: NetworkConfig, site: LearnerSpec, contexts: Contexts) -> None:
    check_can_run(setup)
    for name in ("context", "instances"):
        if name in serving.features:
            raise ConfigError(f"[node] features: {name!r} is a reserved name; rename it")
    wiring = setup.wiring
    if wiring is not None and wiring.changes:
        raise ConfigError(
            f"learner {site.name!r} has [[link-change]] tables, which are for replays and networks "
            "in one process; change the [[link]] tables and reload the file (SIGHUP, or POST "
            "/admin/reload)"
        )
    if wiring is not None and wiring.tolls and wiring.links.relays:
        raise ConfigError(
            f"learner {site.name!r} has a [[link]] with cost-column and relay = true, but a relay "
            "does not change its path as costs are learnt; remove one of them"
        )
    if setup.context.dimension and serving.dimension is not None:
        raise ConfigError("[node] dimension: contexts are computed from features; remove it")
    for column in contexts.columns:
        if column not in serving.features:
            hint = toml.nearest(column, serving.features)
            raise ConfigError(f"[data] context: {column!r} is not a feature of [node]{hint}")
    for name in contexts.vectors:
        if serving.features[name] != "FP64":
            raise ConfigError(
                f"[node] features: {name!r} is {serving.features[name]}, but a vector in [data] "
                "context; its type must be FP64"
            )


def _budgets(
    serving: NodeTable,
    prices: Mapping[str, float],
    relays: Mapping[str, str],
    neighbours: Mapping[str, PeerConfig],
    *,
    are_learnt: bool,
) -> Budgets:
    """Return the budgets; raise `ConfigError` for one that would never allow or limit anything.

    Prices that are learnt may begin at 0.
    """
    total = None if serving.budget is None else serving.budget.millionths("[node]")
    if total is not None and not any(prices.values()) and not are_learnt:
        raise ConfigError(
            "[node] has a budget, and no peer has a price; write one, like "
            "peers = { south = 0.1 }, or remove the budget"
        )
    peers: dict[str, int] = {}
    for name, peer in neighbours.items():
        if peer.budget is None:
            continue
        asked = [arm for arm in prices if relays.get(arm, arm) == name]  # by way of it, too
        where, price = f"{WHERE} {name!r}", max((prices[peer] for peer in asked), default=0.0)
        if not price and not (asked and are_learnt):
            what = "its answers are free" if name in prices else "it is never asked"
            raise ConfigError(
                f"{where} has a budget, but {what}; list it with a price in peers of the learner, "
                f"like peers = {{ {name} = 0.1 }}, or remove the budget"
            )
        peers[name] = peer.budget.millionths(where)
        if price > peer.budget.per_day:
            raise ConfigError(
                f"{where} budget per-day is {peer.budget.per_day:g}, less than the price {price:g} "
                "of one answer; it would never be asked"
            )
    askers = sum(peer.may_ask for peer in neighbours.values())
    return Budgets(peers, total, max(1, askers))


def _labels(
    serving: NodeTable, contexts: Contexts, functions: list[Function], loss: Loss | None
) -> LabelSet:
    """Return the valid labels of the site; the default is those of its functions."""
    if loss is not None and loss.is_numeric:
        if serving.classes is not None:
            raise ConfigError(
                f'[node] classes cannot be combined with [data] loss of kind = "{loss.kind}": its '
                "labels are numbers; remove one of them"
            )
        return NumberSet((), contexts)
    _check_errors(loss, declared(functions) if serving.classes is None else serving.classes)
    if serving.classes is None:
        return LabelSet(declared(functions), contexts)
    classes = serving.classes
    if "" in classes or not 2 <= len(classes) == len(set(map(key_of, classes))):
        raise ConfigError("[node] classes must be two or more different labels, without empty text")
    try:
        contexts.check_labels([plain_label(label) for label in classes])
    except DataError as error:
        raise ConfigError(f"[node] classes: {error}") from None
    return LabelSet(classes, contexts)


def _check_errors(loss: Loss | None, classes: Sequence[Label]) -> None:
    """Raise `ConfigError` if a loss names a class that the site does not have."""
    labels = [str(label) for label in classes]
    errors = {} if loss is None or not labels else loss.errors
    inner = [name for error in errors.values() if isinstance(error, dict) for name in error]
    for name in (*errors, *inner):
        if name not in labels:
            raise ConfigError(
                f"[data] loss.errors names the class {name!r}, which is not one of the site's "
                f"classes{toml.nearest(name, labels)}"
            )


def _identity(serving: NodeTable, folder: Path) -> Identity | None:
    if serving.certificate is None and serving.key is None:
        return None
    if serving.certificate is None or serving.key is None:
        missing = "key" if serving.key is None else "certificate"
        raise ConfigError(
            f"[node] {missing} is missing; certificate and key are needed together: create them "
            "with `covey keys new`"
        )
    return Identity(folder / serving.certificate, folder / serving.key)


def own_certificate(
    served: SiteConfig, known: keys.OwnCertificate | None = None
) -> keys.OwnCertificate | None:
    """Return the certificate; raise `ConfigError` if peers would refuse it.

    `known` is that of the same files, which may have expired meanwhile: clients are served still.
    """
    if served.identity is None:
        return None
    certificate, name = served.identity.certificate, keys.show(served.identity.certificate).name
    if name != served.serving.name:
        raise ConfigError(
            f"[node] certificate: {certificate} is of site {name!r}, and this one is "
            f"{served.serving.name!r}; peers would refuse it: name the file of this site"
        )
    return known or keys.OwnCertificate(*served.identity)


def _addresses(serving: NodeTable, identity: Identity | None) -> tuple[Address, Address | None]:
    """Return the addresses for clients and for peers, if the files that they need are there."""
    address = Address.parse(serving.address, "[node] address")
    if identity is None and serving.tls:
        raise ConfigError("[node] tls = true needs certificate and key: `covey keys new`")
    if not is_loopback(address.host) and (
        identity is None or serving.tokens is None or serving.tls is False
    ):
        raise ConfigError(
            f"[node] address is {serving.address!r}, which is not a loopback; that needs TLS "
            "(certificate and key: `covey keys new`) and tokens (`covey tokens new`), or serve on "
            "the loopback: 127.0.0.1:8080"
        )
    if serving.peer_address is None:
        return address, None
    if identity is None:
        raise ConfigError("[node] peer-address needs certificate and key: `covey keys new`")
    return address, Address.parse(serving.peer_address, "[node] peer-address")


def _check_keys(
    serving: NodeTable, site: LearnerSpec, neighbours: Mapping[str, PeerConfig]
) -> None:
    """Raise `ConfigError` if the keys or the peer address for the listed peers are missing."""
    if (site.peers or site.context_peers) and serving.certificate is None:
        raise ConfigError(
            f"learner {site.name!r} asks peers; [node] needs certificate and key: create them with "
            "`covey keys new`"
        )
    for name, neighbour in neighbours.items():
        if neighbour.may_ask and serving.peer_address is None:
            raise ConfigError(
                f"[[peer]] {name!r} has may-ask = true; [node] needs peer-address, such as "
                '"0.0.0.0:8443"'
            )


def has_store(site: SiteConfig) -> bool:
    """Return whether the site has been started before; raise `StoreError` if that is not known."""
    if isinstance(site.store, DatabaseUrl):
        from covey.store import postgres  # needs an optional package

        return postgres.look(site.store).has_store
    return site.store.exists()


def planned(site: SiteConfig) -> tuple[Plan, Loaded]:
    """Return what a start would change in the store, and what the store has now.

    Raises `StoreError` if the store could not be used.
    """
    trust = {name: peer.trust for name, peer in site.neighbours.items()}
    wanted = wanted_arms(site.learner, site.functions)
    with Store.reading(site.store) as store:
        loaded = store.peek(site.serving.name)
        plan, _ = change.planned(store, loaded, site.learner, wanted, site.fingerprint, trust)
    return plan, loaded
