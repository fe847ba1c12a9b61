"""The `[[peer]]` tables of a site: other sites, what they may do, and who is asked through whom."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from covey import toml
from covey.config import LearnerSpec, LearnerTable, NetworkConfig, Tables
from covey.errors import ConfigError, PeerError
from covey.node.budgets import BudgetTable
from covey.node.requests import NO_INSTANCE, AskRow
from covey.node.trust import Trust
from covey.server import certificates
from covey.server.http import Address

WHERE = "[[peer]]"
MOST_FUNCTIONS = 10**6
SHARES = ("none", "context", "data")  # ascending


class PeerConfig(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A `[[peer]]` table: another site, identified by name and key."""

    name: str
    key: str  # the hash that `covey keys show` prints
    url: str | None = None  # None: it is never queried
    share: Literal["none", "context", "data"] = "none"  # what queries to it may contain
    trust: Trust = "earned"  # use of its labels
    may_ask: bool = False
    asks_by_context: bool = False  # its queries may contain only the cell; labels are kept for it
    may: list[Literal["status"]] = []  # status: see on its live page what this site does
    functions: Annotated[int, Meta(ge=1, le=MOST_FUNCTIONS)] = 1  # assumed number
    rate_per_s: float | None = None  # of its messages; None: as in [limits]
    in_flight: Annotated[int, Meta(ge=1, le=1_024)] = 8  # of its requests
    budget: BudgetTable | None = None  # for its answers; None: no limit
    relays: dict[str, float] = {}  # other sites that it forwards to, and at what price beyond its

    def shows(self, requests: Sequence[AskRow]) -> Sequence[AskRow]:
        """Return the requests; raise `PeerError` if `share` does not permit them."""
        needed = "context" if all(row.instance is NO_INSTANCE for row in requests) else "data"
        if not self.may_see(needed):
            raise PeerError(f"share = {self.share!r} does not permit this request")
        return requests

    def may_see(self, needed: str) -> bool:
        """Return whether `share` permits `needed`, one of `SHARES`."""
        return SHARES.index(self.share) >= SHARES.index(needed)


def read_peers(tables: object, *, own_name: str, first: int = 1) -> dict[str, PeerConfig]:
    """Return the peers by name, in the order of the file; `first` is the number of the first.

    Raises `ConfigError` that names the table and the key.
    """
    if not isinstance(tables, list):
        raise ConfigError(f"{WHERE} must be a list of tables; write [[peer]] with two brackets")
    known: dict[str, PeerConfig] = {}
    for number, table in enumerate(tables, first):
        name = table.get("name") if isinstance(table, Mapping) else None
        where = f"{WHERE} {name!r}" if isinstance(name, str) else f"{WHERE} {number}"
        one = _checked(toml.read(table, PeerConfig, where=where), where)
        if one.name == own_name:
            raise ConfigError(f"{where} is this site itself; list other sites only")
        if one.name in known:
            raise ConfigError(f"duplicate {where}; keep one table per site")
        known[one.name] = one
    return known


def pinned_keys(neighbours: Mapping[str, PeerConfig]) -> dict[str, str]:
    """Return the allow list: names and key hashes."""
    return {name: one.key for name, one in neighbours.items()}


def furnished(
    tables: Tables,
    neighbours: Mapping[str, PeerConfig],
    *,
    own_name: str,
    free: Sequence[str] = (),
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
    own = [_own(one, own_name, neighbours, default) for one in tables.members]
    own = [_with_free(one, free) if one.name == own_name else one for one in own]
    names = [one.name for one in own]
    _check_relays(neighbours, own, has_links=default is None)
    others = [
        LearnerTable(
            name=one.name,
            functions=[f"{one.name}/{k + 1}" for k in range(one.functions)],
            peers=one.relays or default,
            relay=bool(one.relays),
        )
        for one in neighbours.values()
        if one.name not in names
    ]
    known = {*names, *neighbours}
    far = dict.fromkeys(far for one in neighbours.values() for far in one.relays)
    others += [
        LearnerTable(name=name, functions=[f"{name}/1"], peers=default)
        for name in far
        if name not in known
    ]
    return tables._replace(members=[*own, *others])


def _check_relays(
    neighbours: Mapping[str, PeerConfig], members: Sequence[LearnerTable], *, has_links: bool
) -> None:
    """Raise `ConfigError` if the paths of relays are given twice."""
    named = [one.name for one in members]
    for name, one in neighbours.items():
        if one.relays and (has_links or name in named):
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
            one = neighbours.get(name)
            if one is None:
                raise ConfigError(
                    f"learner {site.name!r} asks {name!r}, but {WHERE} {name!r} is missing; add it"
                )
            listed = f"learner {site.name!r} has {name!r} in {key}"
            if one.url is None:
                raise ConfigError(
                    f"{listed}, but {WHERE} {name!r} has no url; add "
                    f'url = "https://...", or remove it from {key}'
                )
            if not one.may_see(needed):
                raise ConfigError(
                    f"{listed}, which needs share = {needed!r}, but "
                    f"{WHERE} {name!r} has share = {one.share!r}; change one of them"
                )


def _checked(one: PeerConfig, where: str) -> PeerConfig:
    try:
        certificates.check_name(one.name)
    except ConfigError as error:
        raise ConfigError(f"{where} name: {error}") from None
    certificates.check_key_hash(one.key, f"{WHERE} key of {one.name}")
    if one.rate_per_s is not None and not 0 < one.rate_per_s < math.inf:
        raise ConfigError(f"{where} rate-per-s is {one.rate_per_s}; it must be above 0")
    if one.asks_by_context and not one.may_ask:
        raise ConfigError(f"{where} has asks-by-context without may-ask = true; add it")
    if one.url is None:
        return one
    return msgspec.structs.replace(one, url=_root(one.url, f"{where} url"))


def _root(url: str, where: str) -> str:
    """Return the root URL of a site, with its port."""
    shape = "write it like https://south.example:8443"
    try:
        parts = urlsplit(url)
        port = parts.port or 443
    except ValueError as error:
        raise ConfigError(f"{where} is {url!r}: {error}; {shape}") from None
    if parts.scheme != "https":
        raise ConfigError(f"{where} is {url!r}; only https is supported, {shape}")
    if not parts.hostname or parts.username is not None or parts.path.strip("/"):
        raise ConfigError(f"{where} is {url!r}; {shape}, without a path")
    if parts.query or parts.fragment:
        raise ConfigError(f"{where} is {url!r}; {shape}, without ? and #")
    (host,) = certificates.check_hosts([parts.hostname])
    return Address(host, port).url("https")


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
    return msgspec.structs.replace(learner, peers=default) if learner.peers is None else learner


def _with_free(learner: LearnerTable, free: Sequence[str]) -> LearnerTable:
    """Return a learner of which these functions are free, too."""
    if isinstance(learner.free, bool):
        listed = learner.functions if learner.free else []
    else:
        listed = learner.free
    both = [*listed, *(name for name in free if name in learner.functions)]
    return msgspec.structs.replace(learner, free=both) if free else learner


def relays_of(setup: NetworkConfig, site: LearnerSpec) -> dict[str, str]:
    """Return the peers that a site asks through another one, and which that is."""
    if setup.wiring is None:
        return {}
    peers = [setup.sites[place].name for place in site.peers]
    hops = {peer: setup.wiring.hop(site.name, peer) for peer in peers}
    return {peer: hop for peer, hop in hops.items() if hop != peer}
