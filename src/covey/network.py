"""Learners in one process with real functions: predict now, learn when the label comes.

The same configuration as for `replay` says who may ask whom at what price; here the names of
functions stand for things that classify.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from covey.classifiers import Function, as_function
from covey.config import ReplayConfig, Site, load
from covey.errors import ConfigError
from covey.fields import nearest
from covey.learner import Learner
from covey.member import Member, Wait
from covey.spaces import space_name


class Network(Mapping[str, Member]):
    """The members of a network by name.

    A function may answer later, with a handle such as a `Future`: then who asks another's function
    calls `wait` with it, and falls back on its own best function if the answer is still not there.

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
        self._members: dict[str, Member] = {}
        self._sites = {
            site.name: [setup.sites[peer].name for peer in site.peers] for site in setup.sites
        }
        for place, site in enumerate(setup.sites):
            learner = learner_of(setup, place, width)
            self._members[site.name] = Member(site, learner, functions_of(site, functions))
        for member in self._members.values():
            member.meet(self._members, wait)
        _check_all_used(setup, functions)

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

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def learner_of(
    setup: ReplayConfig, place: int, width: int, *, is_asked_by_context: bool = False
) -> Learner:
    """Return the judgement of the site at `place`, for contexts of `width` coordinates in all.

    It may be asked by the cell alone also by learners of which the set-up does not say so.
    """
    site = setup.sites[place]
    names = [other.name for other in setup.sites]
    spaces = setup.plan.of_width(width)
    policies = setup.policies(width)
    # Where everybody has the same contexts, cells need no name of a space.
    titles = (
        [space_name(space, setup.context.names) for space in spaces] if len(spaces) > 1 else [""]
    )
    (own,) = site.spaces
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
        space=titles[own],
        loss=setup.data.loss,
        is_supervised=site.is_supervised,
        learns_costs=any(site.cost_columns) or policies[own].keeps_widths,
        remembers=is_asked_by_context or any(place in other.context_peers for other in setup.sites),
    )


def check_can_run(setup: ReplayConfig) -> None:
    """Refuse what only a replay can do so far, rather than leave it out in silence."""
    many = [site.name for site in setup.sites if len(site.spaces) > 1]
    waits = any(setup.answer_delays) or any(site.answer_wait is not None for site in setup.sites)
    for is_there, what in (
        (waits, "answer-delay or answer-wait (give Network a wait instead)"),
        (many, f"learner {many[0]!r} with several candidates" if many else ""),
        (
            setup.wiring is not None and setup.wiring.is_moving,
            "[[link-change]] or a [[link]] with cost-column (call reprice instead)",
        ),
        (setup.ensemble, "[ensemble]"),
        (setup.settings.reading.history == "asked", 'history = "asked"'),
    ):
        if is_there:
            raise ConfigError(
                f"the configuration has {what}, which only a replay knows; take it out"
            )


def functions_of(site: Site, given: Mapping[str, Any]) -> list[Function]:
    """Return the functions of a site by the names that it lists, out of those given."""
    missing = [name for name in site.functions if name not in given]
    if missing:
        raise ConfigError(
            f"learner {site.name!r} lists function {missing[0]!r}, but `functions` has none "
            f"of that name{nearest(missing[0], given)}"
        )
    return [as_function(given[name], name=name, owner=site.name) for name in site.functions]


def _check_all_used(setup: ReplayConfig, given: Mapping[str, Any]) -> None:
    listed = {name for site in setup.sites for name in site.functions}
    for name in given:
        if name not in listed:
            raise ConfigError(f"no learner lists function {name!r}{nearest(name, listed)}")
