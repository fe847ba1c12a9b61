"""Sites in one process with real functions: predict now, learn when the label comes.

The configuration of `replay` says which site may ask which at what price; here the names of
functions stand for things that classify.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from covey.bandit.accounts import Account, Dealings, settle_accounts
from covey.bandit.ensemble import Weighing
from covey.bandit.learner import RIGHT, UNKNOWN, WRONG, Learner, Settlement
from covey.bandit.links import price_changes
from covey.bandit.partitions import BETWEEN, Candidates, space_names
from covey.bandit.policies import Policy
from covey.config import LearnerSpec, NetworkConfig, load
from covey.data.contexts import Contexts
from covey.data.inputs import PLAIN, as_label, contexts_of, costs_of, points_of, rows_of, truths_of
from covey.errors import ConfigError, DataError, UnknownSite
from covey.functions.function import Function, Late, as_function, declared
from covey.node.at_once import LocalDriver, Wait, run
from covey.node.handler import Handler
from covey.node.requests import (
    Draft,
    Prediction,
    Request,
    prediction_of,
)
from covey.node.rows import SETTLED, RowHandler, TicketState
from covey.node.voting import LocalEnsemble
from covey.toml import nearest
from covey.types import Context, Label

KEPT = Settlement(False, False, is_kept=True)


class LocalSite:
    """One site of a network: predict, and learn from true labels."""

    def __init__(
        self,
        site: LearnerSpec,
        learner: Learner,
        functions: Sequence[Function],
        others: "Mapping[str, LocalSite]",
        wait: Wait | None = None,
        contexts: Contexts | None = None,
    ) -> None:
        """`contexts` makes the contexts of records; None: they are given."""
        self.name = site.name
        self.learner = learner
        self._contexts = contexts
        self._is_supervised = learner.is_supervised
        self._state = TicketState(learner)
        self._tickets = self._state.tickets
        self._driver = LocalDriver(self, functions, others, wait)
        self._handler = Handler(self._state, site.views, self._driver)
        self.rows = RowHandler(
            self._state,
            functions,
            others,
            trainable=self._driver.trainable,
            has_views=bool(site.views),
        )

    @property
    def alarms(self) -> list[int]:
        """The slots in which the change detection of this site raised an alarm, oldest first."""
        return self.learner.alarms

    def predict(
        self, instance: Any, context: Context | None = None, *, slot: int | None = None
    ) -> Prediction:
        """Return a label for `instance`, by an own function or by a peer, at its price.

        Without `context` it is made as `[data] context` says, from the record `instance`.
        Raises `ContextError` for a context outside the unit cube and `FunctionError` if the chosen
        function fails; then every counter is as before.
        """
        if type(context) is not tuple:
            if context is None and self._contexts is not None:
                return self._answer_records([instance], self._contexts, slot)[0]
            context = () if context is None else tuple(context)
        answer = self.rows.predict(instance, context, slot)
        if type(answer) is Prediction:
            return answer
        request = run(self._handler.complete(cast("Draft", answer)))
        return prediction_of(request, 0, request.number)

    def predict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None
    ) -> list[Prediction]:
        """Return one answer per row, as `predict` would one by one with the labels still pending.

        Every function is called once with its rows, every peer once with its share. Pending labels
        count from now on, so that a batch spreads its exploration. Raises as `predict` does, and
        `DataError` for rows that do not fit together; then every counter is as before.
        """
        rows = rows_of(instances)
        if contexts is None and self._contexts is not None:
            self._state.count_pending()
            return self._answer_records(rows, self._contexts, slot)
        points: Any = contexts_of(contexts, rows)
        if not len(rows):
            return []
        wait = self.learner.label_wait
        if len(rows) > wait + 1:
            raise DataError(
                f"the batch has {len(rows)} rows, but label-wait of learner {self.name!r} is "
                f"{wait} slots; raise label-wait, or send fewer rows at once"
            )
        if len(rows) > 1:
            points = points_of(contexts, rows, dimension=self.learner.dimension)
        self._state.count_pending()
        request = run(self._handler.answer(rows, points, slot=slot))
        first = request.number
        return [prediction_of(request, row, first + row) for row in range(len(request))]

    def _answer_records(
        self, records: Any, contexts: Contexts, slot: int | None
    ) -> list[Prediction]:
        """Answer records; their contexts are made for the slots that they get."""
        if not len(records):
            return []

        def points(first: int) -> Any:
            latest = self._state.latest
            previous = None if latest is None else latest[1]
            if len(records) == 1:
                record = records[0]
                return [contexts.extract_one(record, slot=first, previous_label=previous)]
            columns = {name: [record.get(name) for record in records] for name in contexts.columns}
            return contexts.extract_rows(
                columns, slot=first, count=len(records), previous_label=previous
            )

        for record in records:
            if not isinstance(record, Mapping):
                raise DataError(
                    f"learner {self.name!r} makes contexts from records ([data] context); pass a "
                    "mapping from columns to values, or pass the context"
                )
        request = run(self._handler.answer(records, points, slot=slot))
        first = request.number
        return [prediction_of(request, row, first + row) for row in range(len(request))]

    def learn(self, ticket: int, label: Label, cost: float | None = None) -> Settlement:
        """Settle `ticket` with its true label, at the peer that was asked too.

        `cost` is what the arm cost beyond its fixed cost, where that is to be learnt. The function
        that answered is trained, if it can be. The same label again has no effect, and the
        settlement says so. Raises `FunctionError` if the function cannot learn from the label;
        then every counter is as before, and the label can be sent again.
        """
        kind = type(label)
        if kind is not str and kind is not int:
            label = _checked(label)
        if cost is None and self._is_supervised:
            found = self._tickets.settle(ticket, label)
            if found >= 0:
                return SETTLED[found]
            done = self.rows.learn(ticket, label, found)
            if done is not None:
                return done
        else:
            self._check_learns(ticket, [cost])
        request, row = self._state.find_ticket(ticket)
        costs = None if cost is None else {row: cost}
        settled = run(self._handler.learn(request, {row: label}, costs))
        if settled.kept:
            return KEPT
        if settled.is_new[0]:
            return RIGHT if settled.is_right[0] else WRONG
        return Settlement(False, settled.is_right[0])

    def learn_batch(
        self, tickets: Sequence[int], labels: Any, costs: Sequence[float | None] | None = None
    ) -> list[Settlement]:
        """Settle each ticket with its label, as `learn` does; every peer gets its labels at once.

        If a ticket is unknown, a label conflicts, or a function cannot learn, no label of the
        batch is taken; it can be sent again, and no function is trained twice.
        """
        truths = truths_of(tickets, labels)
        paid = costs_of(tickets, costs)
        for ticket in truths if paid or not self.learner.is_supervised else ():
            self._check_learns(ticket, [paid.get(ticket)])
        parts = self.parts(truths)
        kept: set[int] = set()
        for request, rows in parts:
            self._state.check(request, rows)
        try:
            for request, rows in parts:
                late = run(self._handler.prepare(request, rows))
                kept |= {request.number + row for row in late}
        except BaseException:
            self._driver.discard()
            raise
        self._driver.settle_peers()
        done: dict[int, Settlement] = {}
        for request, rows in parts:
            new = {row: one for row, one in rows.items() if request.number + row not in kept}
            costs_by_row = {row: paid.get(request.number + row) for row in new}
            settled = self._state.settle(request, new, costs_by_row)
            for row, is_new, is_right in zip(new, settled.is_new, settled.is_right, strict=True):
                done[request.number + row] = Settlement(is_new, is_right)
        found = []
        for ticket in tickets:
            found.append(KEPT if ticket in kept else done[ticket])
            if ticket in done:  # the same ticket again in the batch has no effect
                done[ticket] = Settlement(False, done[ticket].is_right)
        return found

    def join(self) -> list[Settlement]:
        """Settle the labels that were kept for a busy peer's answer, where that has come by now.

        Raises `FunctionError` for an answer that failed; its label is kept no longer, and the
        others can be joined again.
        """
        settlements = []
        for request, row in self._state.pending():
            late = request.predictions[row]
            if type(late) is Late and late.truth is not UNKNOWN and late.is_there():
                label, late.truth = late.truth, UNKNOWN
                settlements.append(self.learn(request.number + row, label))
        return settlements

    def cell_of(self, ticket: int) -> str:
        """Return the name of the cell that decided on a ticket."""
        request, row = self._state.find_ticket(ticket)
        return request.group(row).cell

    # -- for other sites and drivers ------------------------------------------------------------

    @property
    def state(self) -> TicketState:
        """The learner and its open rows."""
        return self._state

    @property
    def handler(self) -> Handler:
        """What answers requests."""
        return self._handler

    def parts(self, truths: Mapping[int, Any]) -> list[tuple[Request, dict[int, Any]]]:
        """Return labels by request and row; raise `UnknownTicket`."""
        found: dict[int, tuple[Request, dict[int, Any]]] = {}
        for ticket, label in truths.items():
            request, row = self._state.find_ticket(ticket)
            found.setdefault(request.number, (request, {}))[1][row] = label
        return list(found.values())

    def _check_learns(self, ticket: int, costs: Sequence[float | None]) -> None:
        request, row = self._state.find_ticket(ticket)
        is_served = request.group(row).phase in ("serve", "recall")
        if not self.learner.is_supervised and not is_served:
            raise DataError(
                f"learner {self.name!r} has supervised = false, and takes no labels; it learns by "
                "helping others"
            )
        self.learner.check_costs(costs)


class AccountedSite(LocalSite):
    """A site that keeps account of what it gains, pays and asks."""

    def __init__(self, *site: Any) -> None:
        super().__init__(*site)
        self.dealings = Dealings()

    def predict(
        self, instance: Any, context: Context | None = None, *, slot: int | None = None
    ) -> Prediction:
        answer = super().predict(instance, context, slot=slot)
        self._count([answer])
        return answer

    def predict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None
    ) -> list[Prediction]:
        answers = super().predict_batch(instances, contexts, slot=slot)
        self._count(answers)
        return answers

    def _count(self, answers: Sequence[Prediction]) -> None:
        peers = {peer for peer, is_by_context in self.learner.behind() if not is_by_context}
        for answer in answers:
            self.dealings.paid += answer.price
            if answer.arm in peers:
                self.dealings.asked[answer.arm] = self.dealings.asked.get(answer.arm, 0) + 1

    def learn(self, ticket: int, label: Label, cost: float | None = None) -> Settlement:
        settled = super().learn(ticket, label, cost)
        self._gain([ticket], [settled])
        return settled

    def learn_batch(
        self, tickets: Sequence[int], labels: Any, costs: Sequence[float | None] | None = None
    ) -> list[Settlement]:
        settled = super().learn_batch(tickets, labels, costs)
        self._gain(tickets, settled)
        return settled

    def _gain(self, tickets: Sequence[int], settled: Sequence[Settlement]) -> None:
        """Count what the answers that clients got are worth: not those of late peers."""
        for ticket, one in zip(tickets, settled, strict=True):
            if one.is_new:
                request, row = self._state.find_ticket(ticket)
                gain = self.learner.gain_of(request.answers[row], request.truths[row])
                self.dealings.right += gain / self.learner.unit


def _checked(label: Any) -> Label:
    if type(label) in PLAIN:
        return cast("Label", label)
    try:
        return as_label(label)
    except ValueError as error:
        raise DataError(f"the label is {error}") from None


class Network(Mapping[str, LocalSite]):
    """The sites of a network by name.

    A function may answer later, with a handle such as a `Future`: a site that asked a peer calls
    `wait` with it, and falls back to its own best function if the answer is still not there.

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
    ) -> None:
        setup = load(config)
        check_can_run(setup)
        width = setup.context.dimension if dimension is None else dimension
        self._members: dict[str, LocalSite] = {}
        self._serving_costs = {site.name: site.serving_cost for site in setup.sites}
        self._are_carried = setup.settings.carry_serving_costs
        kind = AccountedSite if any(self._serving_costs.values()) else LocalSite
        self._sites = {
            site.name: [setup.sites[peer].name for peer in site.peers] for site in setup.sites
        }
        for place, site in enumerate(setup.sites):
            learner = learner_of(setup, place, width)
            learner.price_changes = _price_changes(setup, site)
            own = functions_of(site, functions)
            contexts = setup.contexts_of(place) if dimension is None else None
            if contexts is not None and not contexts.dimension:
                contexts = None  # they are given, and have no coordinates
            self._members[site.name] = kind(site, learner, own, self._members, wait, contexts)
        _check_all_used(setup, functions)
        self._ensemble = None if setup.ensemble is None else self._voting(setup, functions)

    def _voting(self, setup: NetworkConfig, functions: Mapping[str, Any]) -> LocalEnsemble:
        voters = [site for site in setup.sites if site.receives]
        own = [one for site in voters for one in functions_of(site, functions)]
        return LocalEnsemble(
            {site.name: self._members[site.name] for site in voters},
            cast("Weighing", setup.ensemble),
            classes=declared(own),
            label_wait=self._members[voters[0].name].learner.label_wait,
        )

    @property
    def ensemble(self) -> LocalEnsemble:
        """What answers with the weighted vote of all learners, by the table `[ensemble]`."""
        if self._ensemble is None:
            raise ConfigError("the configuration has no [ensemble] table; add one to let all vote")
        return self._ensemble

    @property
    def accounts(self) -> dict[str, Account] | None:
        """The account of each site, by the labels so far; None: there is no serving-cost.

        The utility of the system is the sum of theirs.
        """
        dealings = {
            name: site.dealings
            for name, site in self._members.items()
            if isinstance(site, AccountedSite)
        }
        if not dealings:
            return None
        return settle_accounts(dealings, self._serving_costs, are_carried=self._are_carried)

    def reprice(self, asker: str, peer: str, price: float | None) -> None:
        """Let `asker` pay another price for asking `peer` from now on; None: the link is gone.

        A price above 1 is more than a right label is worth, and counts as gone.
        """
        site = self._sites.get(asker)
        if site is None or peer not in site:
            known = [f"{one} -> {other}" for one, peers in self._sites.items() for other in peers]
            raise ConfigError(
                f"{asker!r} has no peer {peer!r}{nearest(f'{asker} -> {peer}', known)}"
            )
        if price is not None and not 0 <= price < math.inf:
            raise ConfigError(
                f"the price of {peer!r} for {asker!r} is {price}; it must be 0 or more"
            )
        cost = math.inf if price is None or price > 1 else price
        self._members[asker].learner.reprice(peer, cost)
        self._members[asker].state.prices_changed()

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


def learner_of(
    setup: NetworkConfig, place: int, width: int, *, is_asked_by_context: bool = False
) -> Learner:
    """Return the judgement of the site at `place`, for contexts of `width` coordinates in all.

    It may be asked by the cell alone also by learners of which the set-up does not say so.
    """
    site = setup.sites[place]
    names = [other.name for other in setup.sites]
    spaces = setup.plan.of_width(width)
    policies = setup.policies(width)
    # Where all learners have the same contexts, cells need no name of a space.
    titles = space_names(spaces, setup.context.names) if len(spaces) > 1 else [""]
    candidates = _candidates(setup, titles, policies)
    own = site.spaces[0]
    return Learner(
        site.name,
        functions=site.functions,
        peers=[names[peer] for peer in site.peers],
        context_peers=[names[peer] for peer in site.context_peers],
        costs=site.costs,
        policy=policies[own],
        position=place,
        rewards=site.rewards,
        spaces=dict(zip(titles, policies, strict=True)),
        space=BETWEEN.join(titles[k] for k in site.spaces),
        candidates=candidates,
        loss=setup.data.loss,
        is_supervised=site.is_supervised,
        learns_costs=any(site.cost_columns) or policies[own].keeps_widths,
        remembers=is_asked_by_context or any(place in other.context_peers for other in setup.sites),
        free=site.free,
    )


def _price_changes(setup: NetworkConfig, site: LearnerSpec) -> list[tuple[int, str, float]]:
    """Return the changes of a site's prices that `[[link-change]]` tables make, by slot."""
    if setup.wiring is None:
        return []
    is_carried = setup.settings.carry_serving_costs
    carried = {one.name: one.serving_cost if is_carried else 0.0 for one in setup.sites}
    peers = [setup.sites[peer].name for peer in site.peers]
    return [
        (slot, peer, math.inf if price is None else price + carried[peer])
        for slot, asker, peer, price in price_changes(setup.wiring.links, setup.wiring.changes)
        if asker == site.name and peer in peers
    ]


def _candidates(
    setup: NetworkConfig, titles: Sequence[str], policies: Sequence[Policy]
) -> dict[str, Candidates]:
    """Return the candidates of all learners that have several, by the names of their spaces."""
    found = {}
    for place, site in enumerate(setup.sites):
        if len(site.spaces) > 1:
            coordinates = setup.coordinates_of(place)
            spaces = [setup.plan.spaces[k] for k in site.spaces]
            found[BETWEEN.join(titles[k] for k in site.spaces)] = Candidates(
                tuple(titles[k] for k in site.spaces),
                tuple(tuple(map(coordinates.index, space)) for space in spaces),
                tuple(policies[k].partition for k in site.spaces),
            )
    return found


def check_can_run(setup: NetworkConfig) -> None:
    """Refuse what only a replay can do so far, rather than leave it out in silence."""
    waits = any(setup.answer_delays) or any(site.answer_wait is not None for site in setup.sites)
    for is_there, what in (
        (waits, "answer-delay or answer-wait (give Network a wait instead)"),
        (
            setup.wiring is not None and setup.wiring.tolls,
            "a [[link]] with cost-column (write cost-columns of the learner instead)",
        ),
        (setup.settings.reading.history == "asked", 'history = "asked"'),
    ):
        if is_there:
            raise ConfigError(
                f"the configuration has {what}, which only a replay supports; remove it"
            )
    for site in setup.sites:
        if len(site.spaces) > 1 and (site.context_peers or not site.is_supervised):
            key = "context-peers" if site.context_peers else "supervised = false"
            raise ConfigError(
                f"learner {site.name!r} has {key} and several candidates, which only a replay "
                "supports together; remove one of them"
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
    for name in given:
        if name not in listed:
            raise ConfigError(f"no learner lists function {name!r}{nearest(name, listed)}")
