"""The `[[peer]]` tables of a site's file: known sites and their permissions.

Everything is denied by default: queries, data sharing and trust.
"""

import ipaddress
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from covey import allowlist, fields
from covey.config import Member, Site, Tables
from covey.errors import ConfigError, PeerError
from covey.node.requests import NO_INSTANCE, AskRow

WHERE = "[[peer]]"
MOST_FUNCTIONS = 10**6
SHARES = ("none", "context", "data")  # ascending


class Neighbour(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A `[[peer]]` table: another site, identified by name and key."""

    name: str
    key: str  # the hash that `covey keys show` prints
    url: str | None = None  # None: it is never queried
    share: Literal["none", "context", "data"] = "none"  # what queries to it may contain
    trust: Literal["isolated", "robust", "full"] = "isolated"  # use of its labels
    may_ask: bool = False
    asks_by_context: bool = (
        False  # its queries may contain only the cell; labels are stored for them
    )
    functions: Annotated[int, Meta(ge=1, le=MOST_FUNCTIONS)] = 1  # assumed number
    rate_per_s: float = 1_000.0  # of its requests; a decision can take three
    in_flight: Annotated[int, Meta(ge=1, le=1_024)] = 8  # of its requests

    def shows(self, requests: Sequence[AskRow]) -> Sequence[AskRow]:
        """Return the requests; raise `PeerError` if `share` does not permit them."""
        needed = "context" if all(row.instance is NO_INSTANCE for row in requests) else "data"
        if not self.may_see(needed):
            raise PeerError(f"share = {self.share!r} does not permit this request")
        return requests

    def may_see(self, needed: str) -> bool:
        """Return whether `share` permits `needed`, one of `SHARES`."""
        return SHARES.index(self.share) >= SHARES.index(needed)


def read(tables: object, *, own_name: str) -> dict[str, Neighbour]:
    """Return the neighbours by name, in the order of the file.

    Raises `ConfigError` that names the table and the key.
    """
    if not isinstance(tables, list):
        raise ConfigError(f"{WHERE} must be a list of tables; write [[peer]] with two brackets")
    known: dict[str, Neighbour] = {}
    for place, table in enumerate(tables):
        name = table.get("name") if isinstance(table, Mapping) else None
        where = f"{WHERE} {name!r}" if isinstance(name, str) else f"{WHERE} {place + 1}"
        one = _checked(fields.read(table, Neighbour, where=where), where)
        if one.name == own_name:
            raise ConfigError(f"{where} is this site itself; list other sites only")
        if one.name in known:
            raise ConfigError(f"duplicate {where}; keep one table per site")
        known[one.name] = one
    return known


def allowed(neighbours: Mapping[str, Neighbour]) -> dict[str, str]:
    """Return the allow list: names and key hashes."""
    return {name: one.key for name, one in neighbours.items()}


def furnished(tables: Tables, neighbours: Mapping[str, Neighbour], *, own_name: str) -> Tables:
    """Return a site's configuration with a learner added for every neighbour without one.

    Such a learner provides a name and a number of functions (thresholds depend on the largest
    one). A site without `peers` queries none.
    """
    if neighbours and tables.settings.carry_serving_costs:
        raise ConfigError(
            "[policy] carry-serving-costs needs the serving costs of peers, which a site does not "
            "know; remove it, and include them in the prices"
        )
    default: dict[str, float] | None = None if "link" in tables.links else {}
    own = [_own(one, own_name, neighbours, default) for one in tables.members]
    names = [one.name for one in own]
    others = [
        Member(
            name=one.name,
            functions=[f"{one.name}/{k + 1}" for k in range(one.functions)],
            peers=default,
        )
        for one in neighbours.values()
        if one.name not in names
    ]
    return tables._replace(members=[*own, *others])


def check_site(site: Site, names: Sequence[str], neighbours: Mapping[str, Neighbour]) -> None:
    """Raise `ConfigError` unless every queried peer has a url and a sufficient share."""
    for key, places, needed in (
        ("peers", site.peers, "data"),
        ("context-peers", site.context_peers, "context"),
    ):
        for place in places:
            _check_asked(site.name, key, neighbours.get(names[place]), names[place], needed)


def _check_asked(site: str, key: str, one: Neighbour | None, name: str, needed: str) -> None:
    if one is None:
        raise ConfigError(
            f"learner {site!r} asks {name!r}, but {WHERE} {name!r} is missing; add it"
        )
    if one.url is None:
        raise ConfigError(
            f"learner {site!r} has {name!r} in {key}, but {WHERE} {name!r} has no url; add "
            f'url = "https://...", or remove it from {key}'
        )
    if not one.may_see(needed):
        raise ConfigError(
            f"learner {site!r} has {name!r} in {key}, which needs share = {needed!r}, but "
            f"{WHERE} {name!r} has share = {one.share!r}; change one of them"
        )


def _checked(one: Neighbour, where: str) -> Neighbour:
    try:
        allowlist.check_name(one.name)
    except ConfigError as error:
        raise ConfigError(f"{where} name: {error}") from None
    allowlist.read({one.name: one.key}, f"{WHERE} key of")
    if not 0 < one.rate_per_s < math.inf:
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
    (host,) = allowlist.check_hosts([parts.hostname])
    return f"https://[{host}]:{port}" if _is_v6(host) else f"https://{host}:{port}"


def _is_v6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def _own(
    learner: Member,
    own_name: str,
    neighbours: Mapping[str, Neighbour],
    default: dict[str, float] | None,
) -> Member:
    if learner.name != own_name:
        return learner
    for key, listed in (("peers", learner.peers or {}), ("context-peers", learner.context_peers)):
        for peer in listed:
            if peer not in neighbours and peer != own_name:
                hint = fields.nearest(peer, neighbours)
                raise ConfigError(
                    f"learner {own_name!r} lists {peer!r} in {key}, but {WHERE} {peer!r} is "
                    f"missing{hint}"
                )
    return msgspec.structs.replace(learner, peers=default) if learner.peers is None else learner
