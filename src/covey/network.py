"""Learners in one process with real functions: predict now, learn when the label comes.

The same configuration as for `replay` says who may ask whom at what price; here the names of
functions stand for things that classify.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from covey.classifiers import Function, as_function, as_label, run
from covey.config import ReplayConfig, Site, load
from covey.errors import ConfigError, DataError
from covey.fields import nearest
from covey.learner import Learner, Settlement
from covey.types import Cell, Context, Label


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A label for an instance, and the ticket under which its true label is to be reported."""

    label: Label
    ticket: int
    phase: str  # train, explore, exploit; serve where another learner asked
    arm: str  # own function or asked learner
    function: str  # the one that answered
    price: float  # in units of reward


class Member:
    """One site of a network: its judgement and its functions."""

    def __init__(self, site: Site, learner: Learner, functions: list[Function]) -> None:
        self.name = site.name
        self.learner = learner
        self._names = site.functions
        self._functions = functions
        self._others: Mapping[str, Member] = {}

    def meet(self, others: "Mapping[str, Member]") -> None:
        """Get to know the other members of the network."""
        self._others = others

    def predict(self, instance: Any, context: Context = (), *, slot: int | None = None) -> Answer:
        """Return a label for `instance`, by an own function or by a peer that is paid for it.

        Raises `ContextError` for a context outside the unit cube and `FunctionError` if the chosen
        function fails; then every counter is as before.
        """
        learner, others = self.learner, self._others
        decision = learner.decide(tuple(context), slot)
        try:
            if decision.asks:
                cell = learner.cell(decision)
                told = [others[p].learner.report(cell, decision.slot) for p in decision.asks]
                learner.inform(decision, told)
            choice = decision.choice
            if choice.function >= 0:
                label = self._run(instance, choice.function)
                function: str = choice.arm
                peer_ticket: int | None = None
            else:
                helped = others[choice.arm].assist(instance, learner.cell(decision), decision.slot)
                label, function, peer_ticket = helped.label, helped.arm, helped.ticket
        except BaseException:
            learner.abandon(decision)
            raise
        ticket = learner.accept(decision, label, peer_ticket)
        return Answer(label, ticket, choice.phase, choice.arm, function, choice.price)

    def assist(self, instance: Any, cell: Cell, slot: int) -> Answer:
        """Return a label for somebody else's instance, always by an own function."""
        decision = self.learner.assist(cell, slot)
        choice = decision.choice
        try:
            label = self._run(instance, choice.function)
        except BaseException:
            self.learner.abandon(decision)
            raise
        ticket = self.learner.accept(decision, label)
        return Answer(label, ticket, choice.phase, choice.arm, choice.arm, choice.price)

    def learn(self, ticket: int, label: Label) -> Settlement:
        """Settle `ticket` with its true label, at the peer that was asked too.

        The same label again has no effect, and the settlement says so.
        """
        kind = type(label)
        if kind is not str and kind is not int:
            label = _checked(label)
        settlement = self.learner.settle(ticket, label)
        if settlement.peer is not None and settlement.peer_ticket is not None:
            self._others[settlement.peer].learner.settle(settlement.peer_ticket, label)
        return settlement

    def _run(self, instance: Any, function: int) -> Label:
        return run(self._functions[function], instance, name=self._names[function], owner=self.name)


class Network(Mapping[str, Member]):
    """The members of a network by name.

    >>> config = {
    ...     "policy": {"slices": 4},
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
    ) -> None:
        setup = load(config)
        policy = setup.policy(setup.context.dimension if dimension is None else dimension)
        self._members: dict[str, Member] = {}
        for place, site in enumerate(setup.sites):
            learner = Learner(
                site.name,
                functions=site.functions,
                peers=[setup.sites[peer].name for peer in site.peers],
                costs=site.costs,
                policy=policy,
                position=place,
            )
            self._members[site.name] = Member(site, learner, _functions(site, functions))
        for member in self._members.values():
            member.meet(self._members)
        _check_all_used(setup, functions)

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def _functions(site: Site, given: Mapping[str, Any]) -> list[Function]:
    missing = [name for name in site.functions if name not in given]
    if missing:
        raise ConfigError(
            f"learner {site.name!r} lists function {missing[0]!r}, but `functions` has none "
            f"of that name{nearest(missing[0], given)}"
        )
    return [as_function(name, given[name]) for name in site.functions]


def _check_all_used(setup: ReplayConfig, given: Mapping[str, Any]) -> None:
    listed = {name for site in setup.sites for name in site.functions}
    for name in given:
        if name not in listed:
            raise ConfigError(f"no learner lists function {name!r}{nearest(name, listed)}")


def _checked(label: Any) -> Label:
    try:
        return as_label(label)
    except ValueError as error:
        raise DataError(f"the label is {error}") from None
