"""TOML -> objects: the replay configuration, checked as a whole before anything runs."""

import math
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey import contexts, fields
from covey.errors import ConfigError
from covey.policies import Policy, Settings, resolve, settings_from


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """The `[data]` table: which column of the log is what."""

    label: str = "label"
    context: list[str | dict[str, Any]] = []
    at: str | None = None
    revealed: str | None = None
    delay: str | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A `[[learner]]` table: one site, its functions and whom it may ask."""

    name: str
    functions: list[str]
    function_costs: list[float] | None = None
    arrivals: bool = True
    label_probability: float = 1.0
    peers: dict[str, float] | None = None


class Site(NamedTuple):
    """A learner as the network sees it: its place, its arms and their costs."""

    name: str
    functions: tuple[str, ...]
    peers: tuple[int, ...]  # places in the network, ascending
    costs: tuple[float, ...]  # own functions, then peers
    receives: bool
    label_probability: float = 1.0

    def alone(self) -> "Site":
        """Return the same site with nobody to ask."""
        return self._replace(peers=(), costs=self.costs[: len(self.functions)])


class ReplayConfig(NamedTuple):
    """All that a replay is told."""

    data: Data
    settings: Settings
    sites: tuple[Site, ...]
    context: contexts.Contexts

    def policy(self, dimension: int) -> Policy:
        """Return the policy in a context space of this dimension."""
        most = max(len(site.functions) for site in self.sites)
        return resolve(self.settings, dimension=dimension, most_functions=most)


def load(source: str | Path | Mapping[str, Any]) -> ReplayConfig:
    """Return the configuration in a TOML file, or the same given as a mapping."""
    table = source if isinstance(source, Mapping) else _read_toml(Path(source))
    known = ("data", "policy", "learner")
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown table [{key}]{fields.nearest(key, known)}")
    data = fields.read(table.get("data", {}), Data, where="[data]")
    settings = settings_from(table.get("policy", {}))
    members = _members(table.get("learner", []))
    sites = tuple(_site(place, members) for place in range(len(members)))
    if settings.mode == "paper" or settings.askers == "first":
        sites = _only_first_asks(sites, settings)
    return ReplayConfig(data, settings, sites, contexts.parse(data.context))


def _only_first_asks(sites: tuple[Site, ...], settings: Settings) -> tuple[Site, ...]:
    if settings.askers == "all":
        return sites
    return (sites[0], *(site.alone() for site in sites[1:]))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _members(tables: object) -> list[Member]:
    if not isinstance(tables, Sequence) or isinstance(tables, str) or not tables:
        raise ConfigError("no learners; add a [[learner]] table with a name and its functions")
    members = [
        fields.read(table, Member, where=f"[[learner]] {k + 1}") for k, table in enumerate(tables)
    ]
    names = [member.name for member in members]
    _check_no_repeat(names, "learners")
    for member in members:
        _check_member(member, names)
    return members


def _check_member(member: Member, names: list[str]) -> None:
    who = f"learner {member.name!r}"
    if not member.functions:
        raise ConfigError(f"{who} has no functions; list at least one column of predictions")
    _check_no_repeat(member.functions, f"functions of {who}")
    both = sorted(set(member.functions) & set(names))
    if both:
        raise ConfigError(
            f"{both[0]!r} names a learner and a function of {who}; rename one of them"
        )
    if member.function_costs is not None and len(member.function_costs) != len(member.functions):
        raise ConfigError(
            f"{who} has {len(member.functions)} functions and {len(member.function_costs)} "
            "function-costs; give one cost per function"
        )
    for name, cost in zip(member.functions, member.function_costs or [], strict=False):
        if not 0 <= cost <= 1:
            raise ConfigError(
                f"{who}: the cost of function {name!r} is {cost}; it must lie in [0, 1]"
            )
    if not 0 <= member.label_probability <= 1:
        raise ConfigError(
            f"{who}: label-probability is {member.label_probability}; it must lie in [0, 1]"
        )
    for peer, cost in (member.peers or {}).items():
        _check_peer(who, member.name, peer, cost, names)


def _check_peer(who: str, own_name: str, peer: str, cost: float, names: list[str]) -> None:
    if peer == own_name:
        raise ConfigError(f"{who} lists itself in peers; its own functions are its arms already")
    if peer not in names:
        raise ConfigError(
            f"{who} lists unknown learner {peer!r} in peers{fields.nearest(peer, names)}"
        )
    if not 0 <= cost < math.inf:
        raise ConfigError(f"{who}: the cost of peer {peer!r} is {cost}; it must be 0 or more")
    if cost > 1:
        warnings.warn(
            f"{who} never asks {peer!r}: its cost {cost:g} is above 1, more than a right label is "
            "worth",
            stacklevel=2,
        )


def _check_no_repeat(names: list[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"{name!r} stands twice among the {what}; names must differ")
        if not name:
            raise ConfigError(f"an empty name among the {what}; give it one")
        seen.add(name)


def _site(place: int, members: list[Member]) -> Site:
    member = members[place]
    wanted = member.peers
    if wanted is None:
        wanted = {other.name: 0.0 for other in members if other is not member}
    peers = [
        (other, wanted[name])
        for other, name in enumerate(one.name for one in members)
        if name in wanted and wanted[name] <= 1
    ]
    own_costs = tuple(member.function_costs or [0.0] * len(member.functions))
    return Site(
        name=member.name,
        functions=tuple(member.functions),
        peers=tuple(other for other, _ in peers),
        costs=own_costs + tuple(cost for _, cost in peers),
        receives=member.arrivals,
        label_probability=member.label_probability,
    )
