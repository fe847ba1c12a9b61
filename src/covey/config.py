"""TOML -> objects: the replay configuration, checked as a whole before anything runs."""

import math
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from covey import contexts, fields, wiring
from covey.ensemble import Weighing, weighing_from
from covey.errors import ConfigError
from covey.policies import Policy, Settings, resolve, settings_from
from covey.types import Reward

WHOLE = 1_000_000  # what a right answer is worth where answers may be right in part


class Loss(msgspec.Struct, frozen=True):
    """How wrong a number is: its distance to the truth, or the square of it, at most `bound`."""

    kind: Literal["absolute", "squared"]
    bound: float


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """The `[data]` table: which column of the log is what."""

    label: str = "label"
    context: list[str | dict[str, Any]] = []
    at: str | None = None
    revealed: str | None = None
    delay: str | None = None
    loss: Loss | None = None  # None: an answer is right or wrong


class Member(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A `[[learner]]` table: one site, its functions and whom it may ask."""

    name: str
    functions: list[str]
    function_costs: list[float] | None = None
    arrivals: bool = True
    label_probability: float = 1.0
    supervised: bool = True
    serving_cost: float = 0.0  # what answering a request costs this learner
    rewards: dict[str, Reward] = {}
    peers: dict[str, float] | None = None


class Site(NamedTuple):
    """A learner as the network sees it: its place, its arms and their costs."""

    name: str
    functions: tuple[str, ...]
    peers: tuple[int, ...]  # places in the network, ascending
    costs: tuple[float, ...]  # own functions, then peers; inf: closed, until it is repriced
    receives: bool
    label_probability: float = 1.0
    is_supervised: bool = True
    serving_cost: float = 0.0
    rewards: tuple[Reward, ...] = ()  # one per arm, or none

    def alone(self) -> "Site":
        """Return the same site with nobody to ask."""
        own = len(self.functions)
        return self._replace(peers=(), costs=self.costs[:own], rewards=self.rewards[:own])


class Repricing(NamedTuple):
    """What an arm costs a learner from a slot on; inf: it is closed."""

    slot: int
    place: int  # of the learner that pays
    arm: int  # its place among the learner's costs
    cost: float


class ReplayConfig(NamedTuple):
    """All that a replay is told."""

    data: Data
    settings: Settings
    sites: tuple[Site, ...]
    context: contexts.Contexts
    repricings: tuple[Repricing, ...] = ()  # by slot
    ensemble: Weighing | None = None

    @property
    def unit(self) -> int:
        """What a right answer is worth, in whole units."""
        return 1 if self.data.loss is None else WHOLE

    def policy(self, dimension: int) -> Policy:
        """Return the policy in a context space of this dimension."""
        for site in self.sites:
            _check_slopes(site, dimension)
        most = max(len(site.functions) for site in self.sites)
        return resolve(self.settings, dimension=dimension, most_functions=most)


def load(source: str | Path | Mapping[str, Any]) -> ReplayConfig:
    """Return the configuration in a TOML file, or the same given as a mapping."""
    table = source if isinstance(source, Mapping) else read_toml(Path(source))
    known = ("data", "policy", "learner", "link", "link-change", "ensemble")
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown table [{key}]{fields.nearest(key, known)}")
    data = fields.read(table.get("data", {}), Data, where="[data]")
    settings = settings_from(table.get("policy", {}))
    members = _members(table.get("learner", []))
    links = wiring.parse(table, [member.name for member in members])
    sites = tuple(_site(place, members, links, settings) for place in range(len(members)))
    _check_loss(data.loss)
    if settings.mode == "paper" or settings.askers == "first":
        sites = _only_first_asks(sites, settings)
    weighing = weighing_from(table["ensemble"]) if "ensemble" in table else None
    if weighing is not None:
        sites = _voters(sites, data)
    context = contexts.parse(data.context)
    return ReplayConfig(data, settings, sites, context, _repricings(links, sites), weighing)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises `ConfigError` with a sentence if it cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _check_loss(loss: Loss | None) -> None:
    if loss is not None and not 0 < loss.bound < math.inf:
        raise ConfigError(f"[data] loss.bound is {loss.bound}; it must be above 0 and finite")


def _only_first_asks(sites: tuple[Site, ...], settings: Settings) -> tuple[Site, ...]:
    if settings.askers == "all":
        return sites
    return (sites[0], *(site.alone() for site in sites[1:]))


def _voters(sites: tuple[Site, ...], data: Data) -> tuple[Site, ...]:
    """Return the sites of an ensemble: each votes for itself, on every row."""
    if data.at is not None:
        raise ConfigError(
            f"[ensemble] needs every learner's vote on every row, but [data] has at = {data.at!r}; "
            "leave one of them out"
        )
    if not any(site.receives for site in sites):
        raise ConfigError("[ensemble] has nobody to vote, as every learner has arrivals = false")
    return tuple(site.alone() for site in sites)


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
    _check_numbers(member, who)
    for peer, cost in (member.peers or {}).items():
        _check_peer(who, member.name, peer, cost, names)


def _check_numbers(member: Member, who: str) -> None:
    for name, cost in zip(member.functions, member.function_costs or [], strict=False):
        if not 0 <= cost <= 1:
            raise ConfigError(
                f"{who}: the cost of function {name!r} is {cost}; it must lie in [0, 1]"
            )
    if not 0 <= member.serving_cost < math.inf:
        raise ConfigError(f"{who}: serving-cost is {member.serving_cost}; it must be 0 or more")
    if not 0 <= member.label_probability <= 1:
        raise ConfigError(
            f"{who}: label-probability is {member.label_probability}; it must lie in [0, 1]"
        )


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


def _rewards(member: Member, arms: list[str], common: Reward | None) -> tuple[Reward, ...]:
    for arm in member.rewards:
        if arm not in arms:
            raise ConfigError(
                f"learner {member.name!r} has a reward for {arm!r}, which is none of its arms"
                f"{fields.nearest(arm, arms)}"
            )
    if common is None and not member.rewards:
        return ()
    return tuple(member.rewards.get(arm, common or Reward()) for arm in arms)


def _site(
    place: int, members: list[Member], links: wiring.Wiring | None, settings: Settings
) -> Site:
    member = members[place]
    wanted = _peers(member, members, links)
    if settings.carry_serving_costs:
        serving = {other.name: other.serving_cost for other in members}
        wanted = {name: cost + serving[name] for name, cost in wanted.items()}
    peers = [(k, wanted[other.name]) for k, other in enumerate(members) if other.name in wanted]
    own_costs = tuple(member.function_costs or [0.0] * len(member.functions))
    return Site(
        name=member.name,
        functions=tuple(member.functions),
        peers=tuple(other for other, _ in peers),
        costs=own_costs + tuple(cost for _, cost in peers),
        receives=member.arrivals,
        label_probability=member.label_probability if member.supervised else 0.0,
        is_supervised=member.supervised,
        serving_cost=member.serving_cost,
        rewards=_rewards(
            member, [*member.functions, *(members[p].name for p, _ in peers)], settings.reward
        ),
    )


def _peers(
    member: Member, members: list[Member], links: wiring.Wiring | None
) -> Mapping[str, float]:
    if member.peers is None:
        others = {other.name: 0.0 for other in members if other is not member}
        return others if links is None else links.peers(member.name)
    if links is not None:
        raise ConfigError(
            f"learner {member.name!r} has peers, and there are [[link]] tables; choose one of them"
        )
    return {name: cost for name, cost in member.peers.items() if cost <= 1}


def _repricings(links: wiring.Wiring | None, sites: Sequence[Site]) -> tuple[Repricing, ...]:
    if links is None:
        return ()
    arms = {
        (site.name, sites[peer].name): (place, len(site.functions) + k)
        for place, site in enumerate(sites)
        for k, peer in enumerate(site.peers)
    }
    return tuple(
        Repricing(move.slot, *arms[pair], math.inf if move.price is None else move.price)
        for move in links.moves
        if (pair := (move.asker, move.peer)) in arms
    )


def _check_slopes(site: Site, dimension: int) -> None:
    for reward in site.rewards:
        if reward.context and len(reward.context) != dimension:
            raise ConfigError(
                f"learner {site.name!r}: a reward has {len(reward.context)} slopes in context, but "
                f"contexts have {dimension} dimensions"
            )
        numbers = (reward.accuracy, reward.power, reward.cost, *reward.context)
        if not all(map(math.isfinite, numbers)) or reward.power <= 0 or reward.accuracy < 0:
            raise ConfigError(
                f"learner {site.name!r}: a reward must have finite numbers, accuracy 0 or more and "
                "power above 0"
            )
