"""The configuration of a network: learners, arms, prices, context spaces."""

import itertools
import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from covey import toml
from covey.bandit.ensemble import Weighing, weighing_from
from covey.bandit.learner import Learner
from covey.bandit.links import LinkPrices, SitePrices, Wiring, wiring_of
from covey.bandit.partitions import BETWEEN, MOST_DRAWN, Candidates, Dyadic, Space, space_names
from covey.bandit.policies import (
    CANDIDATES,
    CONTEXT_PEERS,
    AnyReward,
    Policy,
    PolicyRecord,
    check_reward,
    policy_from,
    policy_table,
    reward_from,
)
from covey.data import contexts
from covey.data.inputs import FeatureView, ViewTable, checked_views
from covey.data.times import FORMS, Timing, duration_of
from covey.errors import ConfigError
from covey.kernel import Clock
from covey.kernel.rules import MOST_AXES, WIDE_LEVEL, CustomReward, Reward
from covey.toml import read_toml
from covey.types import BY_CONTEXT, WHOLE, Loss, Value

Entry = str | dict[str, Any]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Slots = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Choices = list[Entry | list[Entry]]


class ContextSpaces(NamedTuple):
    """All coordinates in order of first use, the spaces, and the spaces of each learner."""

    entries: list[Entry]
    spaces: tuple[Space, ...]
    own: tuple[tuple[int, ...], ...]  # per learner, the indices of its candidate spaces

    def coordinates_of(self, place: int) -> list[int]:
        """Return the coordinates of a learner's own contexts, in the order of first mention."""
        return list(dict.fromkeys(k for space in self.own[place] for k in self.spaces[space]))

    def of_width(self, width: int) -> tuple[Space, ...]:
        """Return the spaces for contexts of `width` coordinates; unnamed ones form one space."""
        return self.spaces if self.entries else (tuple(range(width)),)


MOST_DIVIDED = 256  # dimensions in which there can be more than one cell
TABLES = ("data", "policy", "learner", "link", "link-change", "ensemble")


class Data(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The `[data]` table: the columns of the log."""

    label: str = "label"
    context: list[Entry] | dict[str, Any] = []
    candidates: Choices | None = None
    at: str | None = None
    revealed: str | None = None
    delay: str | None = None  # slots; beside `time` a duration, or a column of them
    time: str | None = None
    label_time: str | None = None
    batch: str | None = None  # rows with the same value, one after the other, are a batch
    missing: Literal["unavailable"] | None = None  # functions without a prediction; None: refused
    only: str | None = None  # a column that is 1 in the rows to replay; None: all of them
    loss: Loss | None = None  # None: zero-one loss
    value: Value | None = None  # of a right answer


class LearnerTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A `[[learner]]` table: one site, its functions and its peers."""

    name: str
    functions: list[str]
    function_costs: list[Share] | None = None
    free: bool | list[str] = False  # own functions that every label scores: all, or these
    arrivals: bool = True
    label_probability: Share = 1.0
    supervised: bool = True
    # Cost to this learner per answered request.
    serving_cost: Annotated[float, msgspec.Meta(ge=0, le=1e300)] = 0.0
    rewards: dict[str, Reward | str] = {}
    peers: dict[str, float] | None = None
    relay: bool = False  # its askers may ask its peers through it
    context_peers: dict[str, float] = {}  # peers that receive the cell, never the data
    cost_columns: dict[str, str] = {}  # arm -> column of its variable cost
    answer_delay: Slots | str = 0  # or a column of them
    answer_wait: Slots | None = None
    context: list[Entry] | dict[str, Any] | None = None
    candidates: Choices | None = None
    view: list[ViewTable] = []


class LearnerSpec(NamedTuple):
    """A validated learner: its arms, their costs and rewards."""

    name: str
    functions: tuple[str, ...]
    peers: tuple[int, ...]  # indices of learners, ascending
    # Own functions, peers, context peers; inf: unavailable until its price changes.
    costs: tuple[float, ...]
    receives: bool
    label_probability: float = 1.0
    is_supervised: bool = True
    serving_cost: float = 0.0
    rewards: tuple[AnyReward, ...] = ()  # one per arm, or none
    context_peers: tuple[int, ...] = ()  # indices of learners, ascending
    cost_columns: tuple[str | None, ...] = ()  # one per arm, or none
    answer_delay: int | str = 0
    answer_wait: int | None = None
    spaces: tuple[int, ...] = (0,)  # indices of its context spaces
    views: tuple[FeatureView, ...] = ()
    stream: int = 0  # index of its instance stream, when there are several
    reports_falsely: bool = False  # to peers; simulations only
    labels_falsely: bool = False  # what peers have answered; simulations only
    free: tuple[int, ...] = ()  # indices of functions that every label scores

    @property
    def behind(self) -> tuple[int, ...]:
        """Per arm the index of the queried learner; -1: an own function."""
        return (-1,) * len(self.functions) + self.peers + self.context_peers

    def alone(self) -> "LearnerSpec":
        """Return the same site without peers."""
        own = len(self.functions)
        return self._replace(
            peers=(),
            context_peers=(),
            costs=self.costs[:own],
            rewards=self.rewards[:own],
            cost_columns=self.cost_columns[:own],
        )

    def arms(self, names: Sequence[str]) -> list[str]:
        """Return the names of its arms, given the names of all learners."""
        by_context = [names[peer] + BY_CONTEXT for peer in self.context_peers]
        return [*self.functions, *(names[peer] for peer in self.peers), *by_context]


class Payment(NamedTuple):
    """What one site pays another for an answer."""

    payer: str
    receiver: str
    amount: float


# Asker and arm -> who pays whom for an answer: several payments on a path through relays.
Payments = Mapping[tuple[str, str], tuple[Payment, ...]]


class NetworkConfig(NamedTuple):
    """The configuration of a replay."""

    data: Data
    settings: PolicyRecord
    sites: Sequence[LearnerSpec]
    context: contexts.Contexts  # coordinates of all spaces
    plan: ContextSpaces
    wiring: Wiring | None = None
    ensemble: Weighing | None = None

    @property
    def unit(self) -> int:
        """Gain of a correct answer, as an integer."""
        return 1 if self.data.loss is None else WHOLE

    @property
    def cost_columns(self) -> list[str]:
        """The columns of variable costs, of arms and of links."""
        named = [column for site in self.sites for column in site.cost_columns if column]
        tolls = [] if self.wiring is None else self.wiring.tolls.values()
        return list(dict.fromkeys([*named, *tolls]))

    @property
    def shares_slots(self) -> bool:
        """Whether the rows of a batch of the log share one slot."""
        return self.data.batch is not None and self.settings.rules.shares_slots

    @property
    def timing(self) -> Timing | None:
        """The columns of times of the log; None: labels are late by slots."""
        data, wait = self.data, self.settings.label_wait
        if data.time is None:
            return None
        delay = None if data.delay is None else duration_of(data.delay) or data.delay
        limit = duration_of(wait) if isinstance(wait, str) else None
        return Timing(data.time, data.label_time, delay, limit)

    @property
    def answer_delays(self) -> list[int | str]:
        """Per learner, the delay of its answers to peers in slots, or the column of it."""
        return [site.answer_delay for site in self.sites]

    def links(self) -> LinkPrices | None:
        """Return the links, if they change or are learnt."""
        if self.wiring is None or not self.wiring.is_moving:
            return None
        return LinkPrices(self.wiring, self.settings.relearn_every)

    def payments(self) -> Payments:
        """Return who pays whom for an answer, by asker and arm; a relay pays the next site.

        Nobody receives the costs of links.
        """
        names = [site.name for site in self.sites]
        payments = {}
        for site in self.sites:
            own = len(site.functions)
            peers = (*site.peers, *site.context_peers)
            arms = zip(site.arms(names)[own:], peers, site.costs[own:], strict=True)
            for arm, peer, price in arms:
                path: tuple[str, ...] = (site.name, names[peer])
                carried = self.sites[peer].serving_cost * self.settings.carry_serving_costs
                amounts = [0.0 if math.isinf(price) else price]
                if self.wiring is not None and not arm.endswith(BY_CONTEXT):
                    amounts = [carried]
                    if self.wiring.are_prices:
                        path = self.wiring.links.path(site.name, names[peer]) or path
                        costs = [self.wiring.links.cost(*pair) for pair in itertools.pairwise(path)]
                        amounts = [carried + sum(costs[k:]) for k in range(len(costs))]
                pairs = zip(itertools.pairwise(path), amounts, strict=True)
                payments[site.name, arm] = tuple(Payment(*ends, amount) for ends, amount in pairs)
        return payments

    def contexts_of(self, place: int) -> contexts.Contexts:
        """Return the contexts that the learner at `place` sees."""
        return contexts.Contexts(self.context.scales_of(self.plan.coordinates_of(place)))

    def policies(self, width: int) -> list[Policy]:
        """Return the policy of each space; `width` is the total number of coordinates."""
        wide = self.plan.of_width(width)
        for site in self.sites:
            for space in site.spaces:
                _check_rewards(site, len(wide[space]))
        policies = [self.policy(len(space)) for space in wide]
        for policy in policies:
            _check_width(policy)
        for policy, own in zip(policies, wide if self.plan.entries else (), strict=False):
            is_wide = isinstance(policy.partition, Dyadic) and len(own) > MOST_AXES
            finest = policy.partition.levels(len(own))[-1].side
            self.context.check_categories(own, slices=2**WIDE_LEVEL if is_wide else finest)
        return policies

    def policy(self, dimension: int) -> Policy:
        """Return the policy for a context space of this dimension."""
        counts = [len(site.functions) for site in self.sites]
        return self.settings.resolve(dimension=dimension, most_functions=max(counts))


def learner_of(
    setup: NetworkConfig, place: int, width: int, *, is_asked_by_context: bool = False
) -> Learner:
    """Return the judgement of the site at `place`, for contexts of `width` coordinates in all.

    It may be asked by the cell alone also by learners of which the set-up does not say so.
    """
    (learner,) = learners_of(
        setup, width, places=[place], is_asked_by_context=is_asked_by_context, links=setup.links()
    )
    return learner


def learners_of(
    setup: NetworkConfig,
    width: int,
    *,
    places: Sequence[int] | None = None,
    are_together: bool = False,
    is_asked_by_context: bool = False,
    links: LinkPrices | None = None,
) -> list[Learner]:
    """Return the judgement of the sites at `places` (None: of all), which share `links`.

    Those that are together have the same slots at any time, and share their clocks.
    """
    sites = setup.sites
    names = [site.name for site in sites]
    # Where all learners have the same contexts, cells need no name of a space.
    spaces = setup.plan.of_width(width)
    titles = space_names(spaces, setup.context.names) if len(spaces) > 1 else [""]
    policies = dict(zip(titles, setup.policies(width), strict=True))
    clocks = {title: Clock(*policy.curves()) for title, policy in policies.items()}
    candidates = {}
    for own in dict.fromkeys(site.spaces for site in sites if len(site.spaces) > 1):
        listed = [(titles[k], spaces[k], policies[titles[k]].partition) for k in own]
        candidates[BETWEEN.join(titles[k] for k in own)] = Candidates.of(listed)
    asked_by_context = {peer for site in sites for peer in site.context_peers}
    learners = []
    for place in range(len(sites)) if places is None else places:
        site = sites[place]
        learner = Learner(
            site.name,
            functions=site.functions,
            peers=[names[peer] for peer in site.peers],
            context_peers=[names[peer] for peer in site.context_peers],
            costs=site.costs,
            policy=policies[titles[site.spaces[0]]],
            position=place,
            rewards=site.rewards,
            spaces=policies,
            space=BETWEEN.join(titles[k] for k in site.spaces),
            candidates=candidates,
            loss=setup.data.loss,
            is_supervised=site.is_supervised,
            learns_costs=any(site.cost_columns),
            remembers=is_asked_by_context or place in asked_by_context,
            free=site.free,
            clocks=clocks if are_together else None,
        )
        columns = zip(learner.arms, site.cost_columns, strict=False)
        learner.cost_columns = {arm: column for arm, column in columns if column is not None}
        if links is not None:
            is_carried = setup.settings.carry_serving_costs
            peers = [sites[peer] for peer in site.peers]
            carried = {peer.name: peer.serving_cost if is_carried else 0.0 for peer in peers}
            wait = setup.settings.live_wait
            learner.prices = SitePrices(links, site.name, carried, label_wait=wait)
        learners.append(learner)
    return learners


def _check_width(policy: Policy) -> None:
    """Raise `ConfigError` if a policy divides so many dimensions that its cells cannot be named."""
    dimension, levels = policy.dimension, policy.partition.levels(policy.dimension)
    most = MOST_DRAWN if policy.settings.kernel().get("inherits") else MOST_DIVIDED
    if dimension > most and (len(levels) > 1 or levels[0].side > 1):
        raise ConfigError(
            f"[policy] preset {policy.settings.preset!r} divides contexts into cells, of at most "
            f"{most} dimensions, but there are {dimension}; use the default policy, which divides "
            "only few, or fewer contexts"
        )


def check_tables(table: Mapping[str, Any], more: Sequence[str] = ()) -> None:
    """Raise `ConfigError` for a table that is neither in `TABLES` nor in `more`."""
    allowed = (*TABLES, *more)
    unknown = [
        f"unknown table [{key}]{toml.nearest(key, allowed)}" for key in table.keys() - allowed
    ]
    if unknown:
        raise ConfigError("; ".join(sorted(unknown)))


class Tables(NamedTuple):
    """The tables of a configuration, each checked separately; `assemble` checks them together."""

    settings: PolicyRecord
    members: Sequence[LearnerTable]
    data: Data = Data()
    links: Mapping[str, Any] = {}  # `[[link]]` and `[[link-change]]`, unparsed
    ensemble: Weighing | None = None


def load(source: str | Path | Mapping[str, Any]) -> NetworkConfig:
    """Return the configuration in a TOML file or a mapping."""
    with toml.modules_beside(source):
        return assemble(read(tables_in(source)))


def tables_in(source: str | Path | Mapping[str, Any], *, policy: Any = None) -> Mapping[str, Any]:
    """Return the tables of a TOML file or a mapping, with another `[policy]` if one is given.

    A policy is a table, a record such as `CoS(...)`, a preset's name, or a class of one's own.
    """
    if not isinstance(source, Mapping | str | Path):
        raise ConfigError(
            f"the configuration is a {type(source).__name__}; give a dict, or the path of a file"
        )
    tables = source if isinstance(source, Mapping) else read_toml(Path(source))
    if policy is None and isinstance(tables.get("policy"), PolicyRecord | type):
        policy = tables["policy"]
    return tables if policy is None else {**tables, "policy": policy_table(policy)}


def changed(
    table: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return a configuration with other keys of some learners."""
    learners = [{**learner, **changes.get(learner["name"], {})} for learner in table["learner"]]
    return {**table, "learner": learners}


def without_function(
    table: Mapping[str, Any], learner: Mapping[str, Any], function: str
) -> Mapping[str, Any]:
    """Return a configuration in which a learner lacks one of its functions."""
    place = learner["functions"].index(function)
    left: dict[str, Any] = {
        key: [*values[:place], *values[place + 1 :]]
        for key in ("functions", "function-costs")
        if (values := learner.get(key))
    }
    if isinstance(free := learner.get("free"), list):
        left["free"] = [name for name in free if name != function]
    for key in ("rewards", "cost-columns"):
        if key in learner:
            left[key] = {name: own for name, own in learner[key].items() if name != function}
    return changed(table, {learner["name"]: left})


def read(table: Mapping[str, Any]) -> Tables:
    """Return the tables of a configuration as records."""
    check_tables(table)
    return Tables(
        data=toml.read(table.get("data", {}), Data, where="[data]"),
        settings=policy_from(table.get("policy", {})),
        members=_members(table.get("learner", [])),
        links={key: table[key] for key in ("link", "link-change") if key in table},
        ensemble=weighing_from(table["ensemble"]) if "ensemble" in table else None,
    )


def assemble(tables: Tables) -> NetworkConfig:
    """Return the configuration of these tables; raise `ConfigError` if they are inconsistent."""
    data, settings, members = tables.data, tables.settings, tables.members
    places = {member.name: place for place, member in enumerate(members)}
    _check_unique([member.name for member in members], "learner name", "")
    for member in members:
        _check_member(member, places)
    listed = {member.name: None if member.peers is None else _listed(member) for member in members}
    relays = [member.name for member in members if member.relay]
    links = None
    if tables.links or relays:
        links = wiring_of(tables.links, listed, relays, has_ensemble=tables.ensemble is not None)
    plan = _plan_spaces(data, members, joins=settings.joins_candidates)
    context = contexts.parse(plan.entries)
    sites = tuple(_site(k, places, tables, links, plan, context.names) for k in range(len(members)))
    _check_loss(data.loss)
    _check_times(data, settings)
    toml.check_apart(_combinations(sites, tables))
    if settings.rules.is_paper:  # only the first learner asks
        sites = (sites[0], *(site.alone() for site in sites[1:]))
    settings.check_features(
        {
            CANDIDATES: any(len(site.spaces) > 1 for site in sites),
            CONTEXT_PEERS: any(site.context_peers for site in sites),
        }
    )
    if tables.ensemble is not None:
        if not any(site.receives for site in sites):
            raise ConfigError("[ensemble] has no voters: every learner has arrivals = false")
        sites = tuple(site.alone() for site in sites)
    setup = NetworkConfig(data, settings, sites, context, plan, links, tables.ensemble)
    return setup if data.batch is None else in_batches(setup)


def _combinations(sites: Sequence[LearnerSpec], tables: Tables) -> Iterator[toml.Pair]:
    """Yield what cannot be combined, and whether both are there."""
    data, votes, loss = tables.data, tables.ensemble, tables.data.loss
    is_paper = tables.settings.rules.is_paper
    if votes is not None:
        is_numeric = loss is not None and loss.is_numeric
        for key, value in (("at", data.at), ("missing", data.missing)):
            there = f"{key} = {value!r} in [data]"
            yield value is not None, "[ensemble], a vote of every learner on every row,", there
        yield is_numeric, "[ensemble], which votes for classes,", "a [data] loss of numbers"
    is_limited = tables.settings.harm is not None
    harm = "[policy] harm, a limit of what asking peers may cost,"
    yield is_limited and votes is not None, harm, "[ensemble], in which nobody asks"
    for site in sites:
        owner, is_several = f"learner {site.name!r}: ", len(site.spaces) > 1
        for what, is_apart in (
            ("supervised = false: it sees no label that could show a gain", not site.is_supervised),
            ("rewards: points are right answers minus costs", bool(site.rewards)),
            ("cost-columns of own functions", any(site.cost_columns[: len(site.functions)])),
        ):
            yield is_limited and is_apart, harm, f"{owner}{what}"
        loses = loss is not None and site.context_peers
        yield loses, "[data] loss", "context-peers, which answer with class labels"
        yield votes is not None and site.free, f"{owner}free functions", "[ensemble]"
        one_each = 'reading = "paper", which runs one function per instance'
        yield is_paper and site.free, f"{owner}free functions", one_each
        for key, is_there in (
            ("free functions", site.free),
            ("context-peers", site.context_peers),
            ("supervised = false", not site.is_supervised),
            ('[ensemble] weights = "cell"', votes is not None and votes.weights == "cell"),
        ):
            yield is_several and is_there, f"{owner}{key}", "several candidates"


def in_batches(setup: NetworkConfig) -> NetworkConfig:
    """Return the configuration of a log with batches: pending labels count in their slots.

    Raises `ConfigError` if their rows share one slot, and something else needs a slot per row.
    """
    data, settings = setup.data, setup.settings
    if not settings.rules.shares_slots:
        if settings.pending is False:
            raise ConfigError(
                "[policy] pending = false cannot be combined with batches, in which pending labels "
                "count; remove it"
            )
        return setup._replace(settings=msgspec.structs.replace(settings, pending=True))
    is_late, shared = data.delay is not None, '[policy] batch = "slot"'
    previous = "a previous label and a delay in [data]"
    pairs = (
        (is_late and setup.ensemble is not None, shared, "[ensemble] and a delay in [data]"),
        (is_late and setup.context.has_previous, shared, previous),
    )
    toml.check_apart(pairs, remedy=', or set batch = "slots"')
    return setup


def _plan_spaces(data: Data, members: Sequence[LearnerTable], *, joins: bool) -> ContextSpaces:
    """Return the spaces of all learners; `joins`: candidates are one space together."""
    shared = _candidates(data, "[data]") or [[]]
    wished = [_candidates(member, f"learner {member.name!r}") or shared for member in members]
    for member, listed in zip(members, wished, strict=True):
        if any(listed.count(candidate) > 1 for candidate in listed):
            raise ConfigError(f"learner {member.name!r} has a duplicate candidate; remove one")
    if joins:
        wished = [[_joined(listed)] for listed in wished]
    # The shared columns come first, also when no learner uses them.
    entries = _joined([*shared, *itertools.chain(*wished)])
    ends = [*itertools.accumulate(map(contexts.width_of, entries), initial=0)]
    spaces: list[Space] = []
    own = []
    for listed in wished:
        places = [[entries.index(entry) for entry in candidate] for candidate in listed]
        named = [
            tuple(itertools.chain(*(range(ends[k], ends[k + 1]) for k in candidate)))
            for candidate in places
        ]
        spaces += [space for space in named if space not in spaces]
        own.append(tuple(spaces.index(space) for space in named))
    return ContextSpaces(entries, tuple(spaces), tuple(own))


def _joined(candidates: Sequence[Sequence[Entry]]) -> list[Entry]:
    joined: list[Entry] = []
    for entry in itertools.chain(*candidates):
        if entry not in joined:
            joined.append(entry)
    return joined


def _candidates(table: Data | LearnerTable, where: str) -> list[list[Entry]] | None:
    """Return the candidates, each a list of coordinates; None if neither key is set."""
    if table.context and table.candidates:
        raise ConfigError(f"{where} has context and candidates; remove one of them")
    if table.candidates is not None:
        if not table.candidates:
            raise ConfigError(f"{where} candidates is empty; list contexts to choose from")
        listed = [entry if isinstance(entry, list) else [entry] for entry in table.candidates]
        return [contexts.expanded(entries) for entries in listed]
    context = [table.context] if isinstance(table.context, dict) else table.context
    return None if context is None else [contexts.expanded(context)]


def _check_times(data: Data, settings: PolicyRecord) -> None:
    wait = settings.label_wait
    is_late = data.delay is not None and duration_of(data.delay) is not None
    if isinstance(wait, str) and duration_of(wait) is None:
        raise ConfigError(f"[policy] label-wait is {wait!r}; write slots, or a duration: {FORMS}")
    if data.time is None:
        for key, is_there in (("label-time", data.label_time is not None), ("delay", is_late)):
            if is_there:
                raise ConfigError(f"[data] {key} needs times; name their column as time")
    elif data.label_time is not None and data.delay is not None:
        raise ConfigError("[data] has label-time and delay; remove one of them")
    elif settings.rules.shares_slots and data.batch is not None:
        raise ConfigError(
            '[data] time cannot be combined with batch = "slot" in [policy], whose slots have '
            "several rows; remove one of them"
        )


def _check_loss(loss: Loss | None) -> None:
    if loss is None:
        return
    if not 0 < loss.bound < math.inf:
        raise ConfigError(f"[data] loss.bound is {loss.bound}; it must be above 0 and finite")
    if loss.is_numeric == bool(loss.errors):
        raise ConfigError(
            f'[data] loss has kind = "{loss.kind}" and {len(loss.errors)} errors; write errors = '
            '{ class = loss } with kind = "classes", and only there'
        )
    for label, costs in loss.errors.items():
        for error in costs.values() if isinstance(costs, dict) else [costs]:
            if not 0 <= error <= loss.bound:
                raise ConfigError(
                    f"[data] loss: an error of class {label!r} costs {error:g}; it must lie from 0 "
                    f"to bound = {loss.bound:g}"
                )


def _members(tables: object) -> list[LearnerTable]:
    if not isinstance(tables, Sequence) or isinstance(tables, str) or not tables:
        raise ConfigError("no learners; add a [[learner]] table with a name and its functions")
    return [
        toml.read(_with_names(table), LearnerTable, where=f"[[learner]] {k + 1}")
        for k, table in enumerate(tables)
    ]


def _with_names(table: Any) -> Any:
    """Return a learner's table with the names of functions that are rewards."""
    rewards = table.get("rewards") if isinstance(table, Mapping) else None
    if not isinstance(rewards, Mapping):
        return table
    names = {
        arm: toml.named(reward) if callable(reward) else reward for arm, reward in rewards.items()
    }
    return {**table, "rewards": names}


def _check_member(member: LearnerTable, names: Collection[str]) -> None:
    owner = f"learner {member.name!r}"
    if not member.functions:
        raise ConfigError(f"{owner} has no functions; list at least one column of predictions")
    _check_unique(member.functions, "function name", f" of {owner}")
    both = sorted(name for name in member.functions if name in names)
    if both:
        raise ConfigError(
            f"{both[0]!r} is the name of a learner and of a function of {owner}; rename one of them"
        )
    if member.function_costs is not None and len(member.function_costs) != len(member.functions):
        raise ConfigError(
            f"{owner} has {len(member.functions)} functions and {len(member.function_costs)} "
            "function-costs; give one cost per function"
        )
    _check_peers(member, owner, names, "peers", member.peers or {})
    _check_peers(member, owner, names, "context-peers", member.context_peers)


def _check_peers(
    member: LearnerTable, owner: str, names: Collection[str], key: str, peers: Mapping[str, float]
) -> None:
    for peer, cost in peers.items():
        if peer == member.name:
            raise ConfigError(f"{owner} lists itself in {key}; remove it")
        if peer not in names:
            raise ConfigError(
                f"{owner} lists unknown learner {peer!r} in {key}{toml.nearest(peer, names)}"
            )
        if not 0 <= cost < math.inf:
            raise ConfigError(f"{owner}: the cost of peer {peer!r} is {cost}; it must be 0 or more")
        if cost > 1:
            warnings.warn(
                f"{owner} never asks {peer!r}: cost {cost:g} is above 1, the value of a correct "
                "label",
                stacklevel=2,
            )


def _check_unique(names: list[str], what: str, of: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise ConfigError(f"{what}{of} is empty; set one")
        if name in seen:
            raise ConfigError(f"duplicate {what} {name!r}{of}")
        seen.add(name)


def _rewards(
    member: LearnerTable, arms: list[str], common: Reward | str | None, loss: Loss | None
) -> tuple[AnyReward, ...]:
    _check_names(member, member.rewards, arms, "a reward for {!r}", "arms")
    if common is None and not member.rewards:
        return ()
    shared = reward_from(common or Reward(), where="[policy] reward", loss=loss)
    own = {
        arm: reward_from(reward, where=f"learner {member.name!r}: rewards {arm!r}", loss=loss)
        for arm, reward in member.rewards.items()
    }
    return tuple(own.get(arm, shared) for arm in arms)


def _free(member: LearnerTable) -> tuple[int, ...]:
    """Return the indices of the functions that every label scores."""
    if isinstance(member.free, bool):
        return tuple(range(len(member.functions))) if member.free else ()
    _check_names(member, member.free, member.functions, "{!r} in free", "functions")
    return tuple(k for k, name in enumerate(member.functions) if name in member.free)


def _check_costs_of_free(site: LearnerSpec) -> None:
    for function in site.free:
        column = site.cost_columns[function] if site.cost_columns else None
        if site.costs[function] > 0 or column is not None:
            cost = column or f"{site.costs[function]:g}"
            raise ConfigError(
                f"learner {site.name!r}: function {site.functions[function]!r} is free and has a "
                f"cost ({cost}), but it would run on every instance; remove one of them"
            )


def _check_names(
    member: LearnerTable, names: Iterable[str], valid: list[str], what: str, kind: str
) -> None:
    """Raise `ConfigError` for a name that is not valid; `what` is a format of it."""
    for name in names:
        if name not in valid:
            raise ConfigError(
                f"learner {member.name!r} has {what.format(name)}, which is not one of its {kind}"
                f"{toml.nearest(name, valid)}"
            )


def _site(
    place: int,
    places: Mapping[str, int],
    tables: Tables,
    links: Wiring | None,
    plan: ContextSpaces,
    context_names: Sequence[str],
) -> LearnerSpec:
    members, settings = tables.members, tables.settings
    member, own = members[place], plan.own[place]
    coordinates = plan.coordinates_of(place)
    wanted = _listed(member) if links is None else links.peers(member.name)
    if settings.carry_serving_costs:
        wanted = {name: cost + members[places[name]].serving_cost for name, cost in wanted.items()}
    shown = {peer: cost for peer, cost in member.context_peers.items() if cost <= 1}
    peers, readers = (sorted(places[name] for name in listed) for listed in (wanted, shown))
    costs = [wanted[members[k].name] for k in peers] + [shown[members[k].name] for k in readers]
    arms = [
        *member.functions,
        *(members[k].name for k in peers),
        *(members[k].name + BY_CONTEXT for k in readers),
    ]
    _check_names(member, member.cost_columns, arms, "a cost column for {!r}", "arms")
    columns = [member.cost_columns.get(arm) for arm in arms] if member.cost_columns else []
    seen = [context_names[k] for k in coordinates] if plan.entries else []
    site = LearnerSpec(
        name=member.name,
        functions=tuple(member.functions),
        peers=tuple(peers),
        costs=(*(member.function_costs or [0.0] * len(member.functions)), *costs),
        receives=member.arrivals,
        label_probability=member.label_probability if member.supervised else 0.0,
        is_supervised=member.supervised,
        serving_cost=member.serving_cost,
        rewards=_rewards(member, arms, settings.reward, tables.data.loss),
        context_peers=tuple(readers),
        cost_columns=tuple(columns),
        answer_delay=member.answer_delay,
        answer_wait=member.answer_wait,
        spaces=own,
        views=checked_views(member.view, f"learner {member.name!r}", arms, seen)
        if member.view
        else (),
        free=_free(member),
    )
    _check_costs_of_free(site)
    return site


def _listed(member: LearnerTable) -> Mapping[str, float]:
    """Return the peers that a learner asks directly, with their prices."""
    return {name: cost for name, cost in (member.peers or {}).items() if cost <= 1}


def _check_rewards(site: LearnerSpec, dimension: int) -> None:
    for reward in dict.fromkeys(site.rewards):
        if isinstance(reward, CustomReward):
            check_reward(reward, where=f"learner {site.name!r}", dimension=dimension)
            continue
        if reward.context and len(reward.context) != dimension:
            raise ConfigError(
                f"learner {site.name!r}: a reward has {len(reward.context)} slopes in context, but "
                f"contexts have {dimension} dimensions"
            )
        numbers = (reward.accuracy, reward.power, reward.cost, *reward.context)
        if not all(map(math.isfinite, numbers)) or reward.power <= 0 or reward.accuracy < 0:
            raise ConfigError(
                f"learner {site.name!r}: a reward needs finite numbers, accuracy >= 0 and power > 0"
            )
