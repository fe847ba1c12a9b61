"""Networks of sites in one process, with real functions.

The configuration of `replay` says which site may ask which at what price; here the names of
functions stand for things that classify. An ensemble lets the sites of a network vote.
"""

import copy
import hashlib
import math
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from covey import files
from covey.bandit.ensemble import ABSTAINED, Ensemble, Weighing
from covey.bandit.learner import NO_ANSWER, RIGHT, UNKNOWN, WRONG, Learner, Settlement
from covey.bandit.links import PriceState
from covey.config import (
    LearnerSpec,
    NetworkConfig,
    changed,
    learners_of,
    load,
    tables_in,
    without_function,
)
from covey.data.inputs import plain_label, truths_of
from covey.errors import (
    ConfigError,
    ConflictingLabel,
    DataError,
    FunctionError,
    StoreError,
    UnknownSite,
    UnknownTicket,
)
from covey.functions.function import Function, Late, as_function, declared
from covey.network.local_site import LearntCells, LocalSite, TicketState, TicketTimes, Wait
from covey.replay.outcome import Account, Dealings, settle_accounts
from covey.site.cells import ArmPlaces, StoredTables, kinds_of
from covey.site.ensemble import ClassCodes, KeptWeights, classes_of, kept_weights, restore_weights
from covey.site.requests import (
    DETACHED,
    NONE,
    OWN,
    Arm,
    Belief,
    BeliefNotes,
    CellLine,
    CountedArm,
    Loaded,
    Prediction,
    Request,
    RowGroup,
    SourceState,
)
from covey.site.trust import table_records
from covey.store import tables
from covey.store.change import WantedArm, planned
from covey.store.fingerprint import differences
from covey.store.store import Store
from covey.toml import nearest
from covey.types import Context, Label

FORMAT = 1
KIND = "covey network"
LATER = 0  # a slot before all others: nothing expires while rows are restored
SITE = "here"  # the site of a `ModelChoice`


class Vote(msgspec.Struct, frozen=True):
    """The label of an ensemble, and the ticket under which its true label is to be reported."""

    label: Label
    ticket: int
    votes: dict[str, Label]  # by learner


class Ballot(msgspec.Struct):
    """The votes on an instance, and its label; None: it has not arrived."""

    codes: list[int]
    cell: dict[str, str] | None  # of each learner's context, where weights are per cell
    answer: int
    tickets: dict[str, int]  # of the learners
    truth: Any = None


class Votes(msgspec.Struct):
    """What an ensemble in one process continues from."""

    weights: KeptWeights
    ballots: dict[int, Ballot]  # by ticket
    latest: int  # ticket


class LocalEnsemble:
    """The learners of a network that vote on every instance; each decides by itself."""

    def __init__(
        self,
        sites: Mapping[str, LocalSite],
        settings: Weighing,
        *,
        classes: Sequence[Label] | None = None,
        label_wait: int,
        lock: AbstractContextManager[Any],
    ) -> None:
        """`classes` are those that the functions declare, if they do; `lock` is the network's."""
        self._lock = lock
        self._sites = dict(sites)
        self._known = ClassCodes(classes_of(settings, classes))
        self._is_local = settings.weights == "cell"
        options = msgspec.to_builtins(msgspec.structs.replace(settings, base=None))
        self._ensemble = Ensemble(list(sites), **options)
        self._label_wait = label_wait
        self._ballots: dict[int, Ballot] = {}
        self._latest = 0

    def saved(self) -> Votes:
        """Return what another one continues from."""
        weights = kept_weights(self._ensemble, self._known)
        weights.classes = list(weights.classes)
        ballots = {ticket: msgspec.structs.replace(vote) for ticket, vote in self._ballots.items()}
        return Votes(weights, ballots, self._latest)

    def restore(self, votes: Votes) -> None:
        """Continue from an earlier one with the same learners."""
        self._known = ClassCodes(votes.weights.classes)
        restore_weights(self._ensemble, votes.weights)
        self._ballots, self._latest = dict(votes.ballots), votes.latest

    @property
    def members(self) -> tuple[str, ...]:
        """The learners that vote."""
        return self._ensemble.learners

    def weights(self, cell: str | None = None) -> dict[str, float]:
        """Return the weight of every learner, in `cell` if weights are per cell."""
        return self._ensemble.weights(cell)

    def predict(
        self,
        instance: Any,
        context: Context | Mapping[str, Context] | None = None,
        *,
        slot: int | None = None,
    ) -> Vote:
        """Let every learner answer, and return the label that their weighted vote gives.

        `context` is that of all learners, or has one for each by name; without it, it is made of
        the record `instance`. A learner whose function fails does not vote; `FunctionError` is
        raised if none is left.
        """
        with self._lock:
            return self._elected(
                self._asked(lambda site, point: site.predict(instance, point, slot=slot), context)
            )

    def predict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None
    ) -> list[Vote]:
        """Return one vote per row, with the weights before any label of the batch.

        `contexts` are those of all learners, or have those of each by name. Raises as `predict`.
        """
        with self._lock:
            answers = self._asked(
                lambda site, points: site.predict_batch(instances, points, slot=slot), contexts
            )
            rows = range(len(next(iter(answers.values()))))
            return [
                self._elected({name: own[row] for name, own in answers.items()}) for row in rows
            ]

    def _asked(self, ask: Callable[[LocalSite, Any], Any], context: Any) -> dict[str, Any]:
        """Return the answers of the learners whose functions do not fail."""
        answers: dict[str, Any] = {}
        failure: FunctionError | None = None
        for name, site in self._sites.items():
            try:
                answers[name] = ask(
                    site, context[name] if isinstance(context, Mapping) else context
                )
            except FunctionError as error:
                failure = error
        if failure is not None and not answers:
            raise failure
        return answers

    def _elected(self, answers: Mapping[str, Prediction]) -> Vote:
        tickets = {name: answer.ticket for name, answer in answers.items()}
        votes = {name: answer.label for name, answer in answers.items()}
        codes = [
            self._known.code(votes[name]) if name in votes else ABSTAINED for name in self._sites
        ]
        cell = self._cells(tickets) if self._is_local else None
        winner = self._ensemble.elect(codes, cell)
        self._latest += 1
        self._ballots.pop(self._latest - self._label_wait - 1, None)
        self._ballots[self._latest] = Ballot(codes, cell, winner, tickets)
        return Vote(self._known.classes[winner], self._latest, votes)

    def _cells(self, tickets: Mapping[str, int]) -> dict[str, str]:
        """Return the cell of each learner's own context; without a vote that of the first."""
        cells = {name: self._sites[name].cell_of(ticket) for name, ticket in tickets.items()}
        first = next(iter(cells.values()))
        return {name: cells.get(name, first) for name in self._sites}

    def learn(
        self, ticket: int, label: Label, cost: Mapping[str, float] | None = None
    ) -> Settlement:
        """Let every learner that voted learn the true label, then change the weights.

        `cost` has what functions cost beyond their fixed costs, by the names of `cost-columns`. The
        same label again has no effect. Raises as `LocalSite.learn` does.
        """
        with self._lock:
            return self._learn(ticket, label, cost)

    def learn_batch(
        self,
        tickets: Sequence[int],
        labels: Any,
        costs: Sequence[Mapping[str, float] | None] | None = None,
    ) -> list[Settlement]:
        """Settle tickets in order, as `learn` does."""
        truths = truths_of(tickets, labels)
        paid = [None] * len(tickets) if costs is None else costs
        with self._lock:
            return [
                self._learn(ticket, truths[ticket], cost)
                for ticket, cost in zip(tickets, paid, strict=True)
            ]

    def _learn(self, ticket: int, label: Label, cost: Mapping[str, float] | None) -> Settlement:
        ballot = self._ballots.get(ticket)
        if ballot is None:
            raise UnknownTicket(
                f"unknown ticket {ticket!r} of the ensemble: it was never issued, or its label "
                f"was due within {self._label_wait} slots"
            )
        is_right = bool(self._known.classes[ballot.answer] == label)
        if ballot.truth is not None:
            if ballot.truth != label:
                raise ConflictingLabel(
                    f"ticket {ticket} of the ensemble has the label {ballot.truth!r}; the "
                    f"conflicting label {label!r} was rejected"
                )
            return Settlement(False, is_right)
        columns = {
            name: {*site.learner.cost_columns.values()} for name, site in self._sites.items()
        }
        known = set().union(*columns.values())
        for column in cost or ():
            if column not in known:
                raise DataError(
                    f"no learner has the cost column {column!r}{nearest(column, known)}"
                )
        for name, own in ballot.tickets.items():
            paid = (
                {column: cost[column] for column in columns[name] & cost.keys()} if cost else None
            )
            if self._sites[name].learner.is_supervised:
                self._sites[name].learn(own, label, paid or None)
        self._ensemble.move(ballot.codes, self._known.code(label), ballot.cell)
        ballot.truth = label
        return RIGHT if is_right else WRONG


class SavedSite(msgspec.Struct, frozen=True):
    """A site: what its learner has counted, its tickets and its prices."""

    name: str
    meaning: str  # of the counters, as `schema_fingerprint` returns it
    records: list[Any]  # what the tables hold, those of retired arms included; in a file columns
    is_pending: bool
    latest_slot: int
    first: int  # the oldest ticket that is held
    next: int  # the next ticket
    due: int
    costs: list[float | None]  # None: infinite
    prices: PriceState | None  # where they change by slot, or are learnt
    requests: list[Any]  # in a file their columns, labels and training
    dealings: Dealings = msgspec.field(default_factory=Dealings)
    arms: list[Arm] = []  # that the site has or had, where functions were changed


class SavedNetwork(msgspec.Struct, frozen=True):
    """All that a network continues from, beside functions."""

    config: Any  # None: it names code, and must be given again
    dimension: int | None
    sites: list[SavedSite]
    votes: Votes | None = None  # of an ensemble
    times: list[tuple[int, dict[str, int]]] = []  # and the tickets that were given by them


class Network(Mapping[str, LocalSite]):
    """The sites of a network by name.

    Threads may share it: one lock is held during each call, while functions run included.
    A function may answer later, with a handle such as a `Future`: a site that asked a peer calls
    `wait` with it, and falls back to its own best function if the answer is still not there.
    `policy` is used in place of the `[policy]` table: settings such as `CoS(slices=4)`, a preset's
    name, a table, or a class of your own.

    >>> config = {
    ...     "policy": {"preset": "cos", "slices": 4},
    ...     "learner": [
    ...         {"name": "north", "functions": ["always-0"], "peers": {"south": 0.1}},
    ...         {"name": "south", "functions": ["sign"]},
    ...     ],
    ... }
    >>> network = Network(
    ...     config, functions={"always-0": lambda x: 0, "sign": lambda x: int(x > 0)}, dimension=1
    ... )
    >>> answer = network["north"].predict(0.7, context=(0.3,))
    >>> answer.label, answer.phase, answer.arm, answer.price
    (0, 'explore', 'always-0', 0.0)
    >>> network["north"].learn(answer.ticket, 1).is_right
    False
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any],
        *,
        functions: Mapping[str, Any],
        dimension: int | None = None,
        wait: Wait | None = None,
        policy: Any = None,
    ) -> None:
        # Code that reads or changes a site holds it: sites ask each other.
        self._lock = threading.RLock()
        if not isinstance(functions, Mapping):
            raise ConfigError(
                f"functions are a {type(functions).__name__}; give a dict from names to functions"
            )
        if dimension is not None and dimension < 0:
            raise ConfigError(f"dimension is {dimension}; it must be 0 or more")
        self._build(_Given(tables_in(config, policy=policy), dict(functions), dimension, wait))

    def _build(self, given: "_Given") -> None:
        self._given = given
        _, functions, dimension, wait = given
        setup = load(given.config)
        check_can_run(setup)
        width = setup.context.dimension if dimension is None else dimension
        self._members: dict[str, LocalSite] = {}
        self._serving_costs = {site.name: site.serving_cost for site in setup.sites}
        self._payments = setup.payments()
        self._are_prices_paid = setup.wiring is None
        has_async = False
        self._sites = {
            site.name: [setup.sites[peer].name for peer in site.peers] for site in setup.sites
        }
        self._times = TicketTimes(setup.settings.label_wait, self._members)
        # All sites learn what each of the links has cost.
        learners = learners_of(setup, width, links=setup.links())
        for place, (site, learner) in enumerate(zip(setup.sites, learners, strict=True)):
            own = functions_of(site, functions)
            contexts = setup.contexts_of(place) if dimension is None else None
            if contexts is not None and not contexts.dimension:
                contexts = None  # they are given, and have no coordinates
            self._members[site.name] = LocalSite(
                site, learner, own, self._members, wait, contexts, self._lock, self._times
            )
            has_async |= any(function.is_async for function in own)
        _check_all_used(setup, functions)
        if has_async:  # while one is awaited, other instances are decided
            for member in self._members.values():
                member.state.open.count_pending()
        self._ensemble = None if setup.ensemble is None else self._voting(setup, functions)

    # -- saving and copying ---------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write all that was learnt, and the open tickets, to a file that `load` reads.

        Functions are not in it, nor what they have learnt themselves. Raises `DataError` for
        labels and instances that a file cannot hold, and for answers that have not come yet.
        """
        with self._lock:  # or an older state could be written after a newer one
            _write(Path(path), self._saved())

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        functions: Mapping[str, Any],
        config: str | Path | Mapping[str, Any] | None = None,
        wait: Wait | None = None,
    ) -> "Network":
        """Return the network that was saved to a file; it continues exactly as that one would.

        `config` is needed only if the configuration has classes or functions of one's own. Raises
        `StoreError` for a damaged file, or one of another configuration.
        """
        saved = _read(Path(path))
        tables = saved.config if config is None else tables_in(config)
        if tables is None:
            raise StoreError(
                f"{path} was saved with a configuration that names code, which is not in the file; "
                "give config"
            )
        network = cls(tables, functions=functions, dimension=saved.dimension, wait=wait)
        network._restore(saved, str(path))
        return network

    def _saved(self) -> SavedNetwork:
        with self._lock:
            sites = [saved_site(site) for site in self._members.values()]
            votes = None if self._ensemble is None else self._ensemble.saved()
            times = self._times.saved()
        config = plain_config(self._given.config)
        return SavedNetwork(config, self._given.dimension, sites, votes, times)

    def _restore(self, saved: SavedNetwork, where: str) -> None:
        if [site.name for site in saved.sites] != list(self._members):
            there = ", ".join(site.name for site in saved.sites)
            raise StoreError(f"{where} has the sites {there}; the configuration has others")
        for site in saved.sites:
            changes = differences(site.meaning, self._members[site.name].meaning)
            if changes:
                raise StoreError(
                    f"{where} was saved with other settings of learner {site.name!r}: "
                    f"{'; '.join(changes)}; give the configuration that it was saved with"
                )
        self._times.restore(saved.times)
        for site in saved.sites:
            restore_site(self._members[site.name], site)
        if self._ensemble is not None and saved.votes is not None:
            self._ensemble.restore(saved.votes)

    def __reduce__(self) -> tuple[Any, ...]:
        for what, value in (("the configuration", self._given.config), *self._named_functions()):
            try:
                pickle.dumps(value)
            except Exception as error:
                raise DataError(
                    f"{what} cannot be pickled: {type(error).__name__}: {error}; define it at the "
                    "top level of a module, or use Network.save"
                ) from None
        return _copied, (self._given, self._saved())

    def __deepcopy__(self, memo: dict[int, Any]) -> "Network":
        return _copied(copy.deepcopy(self._given, memo), copy.deepcopy(self._saved(), memo))

    def _named_functions(self) -> Iterator[tuple[str, Any]]:
        for name, function in self._given.functions.items():
            yield f"function {name!r}", function

    # -- changing functions ---------------------------------------------------------------------

    def add_function(
        self, site: str, name: str, function: Any, *, cost: float = 0.0, version: str = ""
    ) -> None:
        """Let a site have one more function from now on; all that was learnt stays.

        A function that was retired, by its name and version, continues with what it had learnt.
        """
        with self._lock:
            config = with_function(self._given.config, self[site].name, name, cost)
            self._alter(site, config, {name: function}, {name: version})

    def replace_function(
        self, site: str, name: str, function: Any, *, carry: float = 0.0, version: str | None = None
    ) -> None:
        """Let another function answer under a name from now on, such as a retrained model.

        It is another arm: it begins with the share `carry` of what the earlier one has learnt. The
        labels of open tickets still count for the earlier one.
        """
        with self._lock:
            check_alone(self._given.config, self[site].name, name)
            arms = self[site].arms
            known = max(1, sum(arm.name == name for arm in arms))
            renewed = str(known + 1) if version is None else version
            self._alter(site, self._given.config, {name: function}, {name: renewed}, carry)

    def retire_function(self, site: str, name: str) -> None:
        """Let a site have a function no more; what was learnt of it stays."""
        with self._lock:
            own = _listing(self._given.config, self[site].name, name)
            if len(own["functions"]) == 1:
                raise ConfigError(
                    f"{name!r} is the last function of learner {site!r}; add another first"
                )
            config = without_function(self._given.config, own, name)
            self._alter(site, config, {name: None}, {})

    def _alter(
        self,
        name: str,
        config: Mapping[str, Any],
        functions: Mapping[str, Any],
        versions: Mapping[str, str],
        carry: float = 0.0,
    ) -> None:
        """Continue with other functions of a site; None: there is none of that name."""
        site, own = self[name], {**self._given.functions, **functions}
        listed = {name for learner in config["learner"] for name in learner["functions"]}
        own = {key: arm for key, arm in own.items() if key in listed and arm is not None}
        self._check_can_alter(site, own, listed)
        saved = self._saved()
        other = Network.__new__(Network)
        other._lock = self._lock
        other._build(self._given._replace(config=config, functions=own))
        place = list(self._members).index(name)
        before = saved.sites[place]
        saved.sites[place] = altered(
            before,
            site.learner,
            other[name].learner,
            other[name].meaning,
            versions=versions,
            carry=carry,
        )
        other._restore(saved, "the network")
        self._become(other)

    def _check_can_alter(
        self, site: LocalSite, functions: Mapping[str, Any], listed: set[str]
    ) -> None:
        if any(member.in_flight for member in self._members.values()):
            raise ConfigError("requests wait for functions; change functions when they are done")
        if site.learner.candidates:
            raise ConfigError(
                f"learner {site.name!r} chooses among candidates of contexts; its functions cannot "
                "be changed while it runs"
            )
        missing = sorted(listed - set(functions))
        if missing:
            raise ConfigError(f"function {missing[0]!r} is None; give a callable or a model")

    def _become(self, other: "Network") -> None:
        """Continue as another network; sites and the ensemble that callers hold do so, too."""
        for name, site in self._members.items():
            site.__dict__ = other._members[name].__dict__
            other._members[name] = site
        if self._ensemble is not None:
            self._ensemble.__dict__ = cast("LocalEnsemble", other._ensemble).__dict__
            other._ensemble = self._ensemble
        self.__dict__ = other.__dict__

    def _voting(self, setup: NetworkConfig, functions: Mapping[str, Any]) -> LocalEnsemble:
        voters = [site for site in setup.sites if site.receives]
        own = [function for site in voters for function in functions_of(site, functions)]
        return LocalEnsemble(
            {site.name: self._members[site.name] for site in voters},
            cast("Weighing", setup.ensemble),
            classes=declared(own),
            label_wait=self._members[voters[0].name].learner.label_wait,
            lock=self._lock,
        )

    @property
    def ensemble(self) -> LocalEnsemble:
        """What answers with the weighted vote of all learners, by the table `[ensemble]`."""
        if self._ensemble is None:
            raise ConfigError("the configuration has no [ensemble] table; add one to let all vote")
        return self._ensemble

    @property
    def accounts(self) -> dict[str, Account]:
        """The account of each site: what it bought and sold, and its right answers so far."""
        with self._lock:
            dealings = {name: site.dealings for name, site in self._members.items()}
            payments = self._payments
            if self._are_prices_paid:  # as they were when each answer was bought
                payments = {
                    (name, arm): (path[0]._replace(amount=dealing.mean_price(arm)),)
                    for (name, arm), path in payments.items()
                    for dealing in [dealings[name]]
                }
            return settle_accounts(dealings, payments, self._serving_costs)

    def learnt(self) -> LearntCells:
        """Return what all sites have learnt, per cell and arm, as a table."""
        with self._lock:
            return LearntCells([site.learner for site in self._members.values()])

    def reprice(self, asker: str, peer: str, price: float | None) -> None:
        """Let `asker` pay another price for asking `peer` from now on; None: the link is gone.

        A price above 1 is more than a right label is worth, and counts as gone.
        """
        site = self._sites.get(asker)
        if site is None or peer not in site:
            known = [f"{name} -> {other}" for name, peers in self._sites.items() for other in peers]
            raise ConfigError(
                f"{asker!r} has no peer {peer!r}{nearest(f'{asker} -> {peer}', known)}"
            )
        if price is not None and not 0 <= price < math.inf:
            raise ConfigError(
                f"the price of {peer!r} for {asker!r} is {price}; it must be 0 or more"
            )
        cost = math.inf if price is None or price > 1 else price
        with self._lock:
            self._members[asker].learner.reprice(peer, cost)
            self._members[asker].state.groups.clear()

    def __getitem__(self, name: str) -> LocalSite:
        if name not in self._members:
            raise UnknownSite(
                f"the network has no site {name!r}{nearest(str(name), self._members)}"
            )
        return self._members[name]

    def __repr__(self) -> str:
        return f"<Network of {', '.join(self._members)}>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


class _Given(NamedTuple):
    """What a network was made of."""

    config: Mapping[str, Any]
    functions: dict[str, Any]
    dimension: int | None
    wait: Wait | None


def _copied(given: _Given, saved: SavedNetwork) -> Network:
    """Return a network of the same parts that continues from what another one has learnt."""
    config, functions, dimension, wait = given
    network = Network(config, functions=functions, dimension=dimension, wait=wait)
    network._restore(saved, "the copy")
    return network


def check_can_run(setup: NetworkConfig) -> None:
    """Refuse what only a replay can do so far, rather than leave it out in silence."""
    if any(setup.answer_delays) or any(site.answer_wait is not None for site in setup.sites):
        raise ConfigError(
            "the configuration has answer-delay or answer-wait, which only a replay supports; "
            "remove it, and give Network a wait instead"
        )
    if setup.settings.doubling is not None and any(len(site.spaces) > 1 for site in setup.sites):
        raise ConfigError(
            '[policy] horizon = "doubling" and several candidates only work together in a replay; '
            "remove one of them"
        )


def functions_of(site: LearnerSpec, given: Mapping[str, Any]) -> list[Function]:
    """Return the functions of a site by the names that it lists, out of those given."""
    missing = [name for name in site.functions if name not in given]
    if missing:
        raise ConfigError(
            f"learner {site.name!r} lists function {missing[0]!r}, but `functions` has none "
            f"of that name{nearest(missing[0], given)}"
        )
    return [as_function(given[name], name=name, owner=site.name) for name in site.functions]


def _check_all_used(setup: NetworkConfig, given: Mapping[str, Any]) -> None:
    listed = {name for site in setup.sites for name in site.functions}
    for name, function in given.items():
        if name not in listed:
            raise ConfigError(f"no learner lists function {name!r}{nearest(name, listed)}")
        if isinstance(function, Function) and function.processes is not None:
            raise ConfigError(
                f"function {name!r} has processes, which only a served site uses; remove them"
            )


# -- what was learnt, as records that a file, a pickle or a copy holds -----------------------------
#
# A file has one line that says what it is, with a checksum, and then MessagePack. Functions are
# code and are not in it; nor is a configuration that names code.


def saved_site(site: LocalSite) -> SavedSite:
    """Return what a site continues from; raise `DataError` for an answer that has not come yet."""
    learner, state = site.learner, site.state
    own = SourceState(OWN, learner.slot, latest=state.latest_label)
    arms = ArmPlaces(learner, site.arms)
    return SavedSite(
        name=learner.name,
        meaning=site.meaning,
        records=[*table_records(learner, own, learner.tables, arms), *site.aside],
        is_pending=learner.is_pending,
        latest_slot=state.latest_slot,
        first=state.open.ring.first,
        next=state.open.ring.next,
        due=state.open.ring.due,
        costs=[None if math.isinf(cost) else cost for cost in learner.costs],
        prices=None if learner.prices is None else learner.prices.state(),
        requests=[_copied_request(request, learner.name) for request in state.open.all()],
        dealings=msgspec.structs.replace(site.dealings),
        arms=site.arms,
    )


def loaded_of(saved: SavedSite) -> Loaded:
    """Return what a site has learnt as a store would have it."""
    records: dict[type, list[Any]] = {Arm: saved.arms}
    for record in saved.records:
        records.setdefault(type(record), []).append(record)
    return Loaded(records, latest_number=saved.next - 1, fingerprint=saved.meaning)


def restore_site(site: LocalSite, saved: SavedSite) -> None:
    """Let a site that has not begun continue from an earlier one."""
    learner, state = site.learner, site.state
    arms, loaded = ArmPlaces(learner, saved.arms), loaded_of(saved)
    learner.slot, state.latest_label = loaded.sources[OWN].slot, loaded.sources[OWN].latest
    StoredTables(learner, loaded, arms).fill(OWN, learner.tables)
    if learner.prices is not None and saved.prices is not None:
        learner.prices.restore(saved.prices, learner.reprice)
    costs, peers = [math.inf if cost is None else cost for cost in saved.costs], learner.behind()
    own = learner.costs[: len(learner.costs) - len(peers)]  # as the configuration says
    learner.use_costs([*own, *costs[len(costs) - len(peers) :]])
    state.latest_slot = saved.latest_slot
    of_arms = [
        record for record in saved.records if isinstance(record, CountedArm | Belief | BeliefNotes)
    ]
    site.arms = saved.arms
    site.aside = [record for record in of_arms if record.arm not in arms.places]
    state.learning.arm_ids.update(arms.renamed)  # some rows may be of retired arms
    _restore_tickets(state, saved, arms)
    site.dealings = saved.dealings


def _copied_request(request: Request, learner: str) -> Request:
    """Return a request that changes apart; raise `DataError` for an answer that has not come."""
    for row, label in enumerate(request.predictions):
        if type(label) is Late:
            raise DataError(
                f"ticket {request.number + row} of learner {learner!r} waits for the late answer "
                f"of {label.function}; wait for it and settle its label, then save or copy the "
                "network"
            )
    return msgspec.structs.replace(
        request,
        truths=list(request.truths),
        training=dict(request.training),
        peer_answers=dict(request.peer_answers),
        scored=dict(request.scored),
    )


def _restore_tickets(state: TicketState, saved: SavedSite, arms: ArmPlaces) -> None:
    """Hold the rows and requests of an earlier network under their tickets."""

    def resolved(group: RowGroup, space: str) -> RowGroup:
        learner = state.learner
        code = arms.code_of(group, learner.names, learner.tables[space].cells.find)
        return msgspec.structs.replace(group, code=DETACHED if code is None else code)

    held = state.open.ring
    held.begin(saved.first, saved.due)
    for request in (_copied_request(request, saved.name) for request in saved.requests):
        request.groups = [resolved(group, request.space) for group in request.groups]
        held.hold_request(request, len(request), request.last_slot, LATER)
        held.pending -= len(request) - len(request.pending)
    codes = state.open.pending_codes()
    if saved.is_pending:
        state.learner.count_pending(codes)
        held.count_in(state.learner.table, True)
    elif state.learner.knows_ends:
        for space, decisions in codes.items():
            for decision in decisions:
                state.learner.tables[space].expect(decision)


class _FileHead(msgspec.Struct, frozen=True):
    kind: str
    format: int
    sha256: str


def _write(path: Path, saved: SavedNetwork) -> None:
    """Write a network; raise `DataError` for what a file cannot hold."""
    sites = [_plain_site(site) for site in saved.sites]
    body = msgspec.msgpack.encode(msgspec.structs.replace(saved, sites=sites))
    head = msgspec.json.encode(_FileHead(KIND, FORMAT, hashlib.sha256(body).hexdigest()))
    try:
        files.replace(path, head + b"\n" + body)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None


def _read(path: Path) -> SavedNetwork:
    """Return the network in a file; raise `StoreError` for a damaged or another one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None
    line, _, body = content.partition(b"\n")
    try:
        head = msgspec.json.decode(line, type=_FileHead)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        head = None
    if head is None or head.kind != KIND:
        raise StoreError(f"{path} is not a network that covey saved; give the path of Network.save")
    if head.format != FORMAT:
        raise StoreError(
            f"{path} has format {head.format} of a newer covey, and this one reads {FORMAT}; "
            "upgrade covey"
        )
    if hashlib.sha256(body).hexdigest() != head.sha256:
        raise StoreError(f"{path} is damaged: it does not fit its checksum; use a backup")
    try:
        saved = msgspec.msgpack.decode(body, type=SavedNetwork)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} cannot be read: {error}; use a backup") from None
    return msgspec.structs.replace(saved, sites=[_restored(site) for site in saved.sites])


def plain_config(table: Any) -> Any:
    """Return a configuration that a file can hold; None if it names or holds code."""
    policy = table.get("policy", {})
    if not _is_plain(table) or not isinstance(policy, dict):
        return None
    named = [policy.get(key, "") for key in ("preset", "policy", "reward")]
    for learner in table.get("learner", []):
        named += [*learner.get("rewards", {}).values()]
    return None if any(isinstance(name, str) and ":" in name for name in named) else table


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, bool) or _is_finite(value)


def _is_finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


def _plain_site(site: SavedSite) -> SavedSite:
    """Return a site with labels and instances that a file can hold."""
    for record in site.records:
        if isinstance(record, CellLine):
            _check_labels(label for label, _ in record.seen)
    requests = [_plain_request(request, site.name) for request in site.requests]
    stored = [(tables.OF[type(record)], record) for record in site.records]
    records = [(table.name, table.row(record)) for table, record in stored]
    return msgspec.structs.replace(site, requests=requests, records=records)


def _plain_request(request: Request, learner: str) -> tuple[Any, ...]:
    _check_labels([*request.predictions, *request.answers, *request.truths])
    for scored in request.scored.values():
        _check_labels(scored.values())
    training = {
        row: (arm, _packed(instance, request.number + row, learner))
        for row, (arm, instance) in request.training.items()
    }
    truths = [None if truth is UNKNOWN else truth for truth in request.truths]
    return tables.REQUESTS.row(tables.line_of(request)), truths, training


def _check_labels(labels: Iterable[Any]) -> None:
    for label in labels:
        if label is not NO_ANSWER and label is not UNKNOWN and type(label) is not str:
            plain_label(label)


def _restored(site: SavedSite) -> SavedSite:
    requests = [_restored_request(*request) for request in site.requests]
    records = [tables.TABLES[name].record_of(row) for name, row in site.records]
    return msgspec.structs.replace(site, requests=requests, records=records)


def _restored_request(row: Any, truths: Any, training: Any) -> Request:
    request = tables.request_of(tables.REQUESTS.record_of(row))
    request.truths = [UNKNOWN if truth is None else truth for truth in truths]
    unpacked = {row: (arm, _unpacked(instance)) for row, (arm, instance) in training.items()}
    request.training = unpacked or NONE
    return request


def _packed(value: Any, ticket: int, learner: str) -> Any:
    """Return an instance as JSON that `_unpacked` takes; raise `DataError` if it has no such form.

    Everything but text, whole numbers and truth values is an object with one key.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (str, int, bool) or _is_finite(value):
        return value
    if type(value) is float:
        return {"float": str(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        return {"array": [value.dtype.str, list(value.shape), value.tobytes()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_packed(item, ticket, learner) for item in value]}
    if type(value) is dict:
        pairs = [[_packed(item, ticket, learner) for item in pair] for pair in value.items()]
        return {"dict": pairs}
    raise DataError(
        f"ticket {ticket} of learner {learner!r} is to train a function with a "
        f"{type(value).__name__}, which a file cannot hold; settle its label first, or give "
        "instances that are numbers, text, lists, dicts or NumPy arrays"
    )


def _unpacked(packed: Any) -> Any:
    if not isinstance(packed, Mapping):
        return packed
    ((kind, value),) = packed.items()
    if kind == "float":
        return float(value)
    if kind == "array":
        dtype, shape, content = value
        flat = np.frombuffer(msgspec.convert(content, bytes), np.dtype(dtype))
        return flat.reshape(shape).copy()
    if kind == "dict":
        return {_unpacked(key): _unpacked(item) for key, item in value}
    values = [_unpacked(item) for item in value]
    return tuple(values) if kind == "tuple" else values


# -- functions that are added, replaced or retired ------------------------------------------------
#
# What becomes of the arms is decided as for a store: see `node.change`.


def altered(
    saved: SavedSite,
    old: Learner,
    learner: Learner,
    meaning: str,
    *,
    versions: Mapping[str, str],
    carry: float = 0.0,
) -> SavedSite:
    """Return what a site of other functions continues from.

    `learner` is that of the other functions and has not begun; `versions` has those that change.
    """
    saved = msgspec.structs.replace(saved, arms=ArmPlaces(old, saved.arms).all)
    known = {arm.name: arm.version for arm in saved.arms if arm.place >= 0}
    wanted = [
        WantedArm(name, kind, versions.get(name, known.get(name, "")), carry)
        for name, kind in kinds_of(learner).items()
    ]
    _, commit = planned(Store.memory(), loaded_of(saved), learner, wanted, meaning, {})
    arms = commit.of(Arm)
    records = [*saved.records, *commit.records[len(arms) :]]
    return msgspec.structs.replace(saved, meaning=meaning, arms=arms, records=records)


# -- configurations -------------------------------------------------------------------------------


def with_function(
    tables: Mapping[str, Any], site: str, name: str, cost: float
) -> Mapping[str, Any]:
    """Return a configuration in which a learner lists one more function."""
    own = _learner(tables, site)
    if name in own["functions"]:
        raise ConfigError(f"learner {site!r} has a function {name!r}; replace it, or name another")
    more: dict[str, Any] = {"functions": [*own["functions"], name]}
    if cost or "function-costs" in own:
        costs = own.get("function-costs") or [0.0] * len(own["functions"])
        more["function-costs"] = [*costs, cost]
    return changed(tables, {site: more})


def check_alone(tables: Mapping[str, Any], site: str, name: str) -> None:
    """Raise `ConfigError` unless a learner lists a function, and no other does."""
    _listing(tables, site, name)
    for other in tables["learner"]:
        if other["name"] != site and name in other["functions"]:
            raise ConfigError(
                f"function {name!r} is also listed by learner {other['name']!r}; give each its own"
            )


def _learner(tables: Mapping[str, Any], site: str) -> Mapping[str, Any]:
    own: Mapping[str, Any] = next(table for table in tables["learner"] if table["name"] == site)
    return own


def _listing(tables: Mapping[str, Any], site: str, name: str) -> Mapping[str, Any]:
    """Return the table of a learner; raise `ConfigError` unless it lists a function."""
    own = _learner(tables, site)
    if name not in own["functions"]:
        hint = nearest(name, own["functions"])
        raise ConfigError(f"learner {site!r} has no function {name!r}{hint}")
    return own


# -- models of another library --------------------------------------------------------------------
#
# The library calls its models. The site is shown their answers with the features of an instance, so
# that nothing but cells and counters is learnt here; every label scores every model.


class Answered(dict[Any, Any]):
    """The features of an instance, with the answers of the models as `said`."""

    def __init__(self, features: Mapping[Any, Any], said: Mapping[str, Any]) -> None:
        super().__init__(features)
        self.said = said


class _Said:
    """A function that says what a model answered; None: it had no answer yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def predict(self, instance: Answered) -> Any:
        return instance.said[self.name]

    def learn(self, instance: Answered, label: Any) -> None:
        """Learn nothing: the library trains its models."""


class ModelChoice:
    """Chooses one of several models for each instance, by the context of the instance."""

    def __init__(
        self,
        names: Sequence[str],
        context: Sequence[Any] | dict[str, Any] | None,
        policy: Mapping[str, Any] | None,
    ) -> None:
        """`context` and `policy` are those of a configuration; None: one cell, the default."""
        if not names:
            raise ConfigError("there are no models; give at least one, by name")
        config: dict[str, Any] = {
            "policy": dict(policy or {}),
            "learner": [{"name": SITE, "functions": list(names), "free": True}],
        }
        if context:
            config["data"] = {"context": context if isinstance(context, dict) else [*context]}
        functions = {name: _Said(name) for name in names}
        dimension = None if context else 0
        self._network = Network(config, functions=functions, dimension=dimension)

    def best(self, features: Mapping[Any, Any], said: Mapping[str, Any]) -> str:
        """Return the model that answers an instance; nothing changes."""
        return self._network[SITE].peek(Answered(features, said)).function

    def learn(self, features: Mapping[Any, Any], said: Mapping[str, Any], label: Any) -> None:
        """Score the answers of all models with a label."""
        self._network[SITE].observe(Answered(features, said), label)
