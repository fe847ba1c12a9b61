"""Prices of peers by links that change by slot, or whose costs are learnt from their use."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Protocol

import msgspec

from covey.bandit.links import Pair, Prices, Wiring
from covey.errors import DataError
from covey.toml import nearest
from covey.types import MILLIONTHS

NEVER = 2**60  # slots between two looks at costs, where none is learnt


class LinkState(msgspec.Struct, frozen=True):
    """What links continue from: the latest slot, and the uses of those whose costs are learnt."""

    slot: int
    counted: list[tuple[str, str, float, int]]  # sum of costs and uses that prices know of
    seen: list[tuple[str, str, int, int]]  # the same since then, in millionths


class ChangingLinks:
    """Links that change at given slots, or whose costs are learnt from their use.

    Paths are chosen when prices change, and kept until the next change. Learnt costs change prices
    every `every` slots.
    """

    def __init__(self, wiring: Wiring, every: int) -> None:
        self._links = wiring.links.copy()
        self._changes = list(wiring.changes)
        self.tolls = wiring.tolls
        self._every = every if wiring.tolls else NEVER
        self._seen: dict[Pair, tuple[int, int]] = {}  # millionths and uses, since the last update
        self._slot = 1
        self.version = 0  # raised where prices or paths may have changed

    def next_slot(self, slot: int) -> int:
        """Return the first slot after this one at which prices may change."""
        update = slot - (slot - 1) % self._every + self._every
        return min(update, self._changes[0].slot) if self._changes else update

    def advance(self, slot: int) -> Prices:
        """Return the prices that change on the way to `slot`."""
        changed: Prices = {}
        is_due = (slot - 1) // self._every > (self._slot - 1) // self._every
        self._slot = max(slot, self._slot)
        if self._seen and is_due:
            seen = {link: (total / MILLIONTHS, uses) for link, (total, uses) in self._seen.items()}
            self._seen = {}
            self.version += 1
            changed |= self._links.learn(seen)
        due = [change for change in self._changes if change.slot <= slot]
        if due:
            del self._changes[: len(due)]
            self.version += 1
            changed |= self._links.apply(due)
        return changed

    def observe(self, link: Pair, total: int, uses: int) -> None:
        """Record what uses of a link have cost, in millionths."""
        before, times = self._seen.get(link, (0, 0))
        self._seen[link] = (before + total, times + uses)

    def price(self, asker: str, peer: str) -> float | None:
        """Return the price of a peer; None: it is out of reach."""
        return self._links.price(asker, peer)

    def cost(self, link: Pair) -> float:
        """Return the known or estimated cost of a link."""
        return self._links.cost(*link)

    def path(self, asker: str, peer: str) -> list[str]:
        """Return the present path to a peer, both ends included; empty: there is none."""
        return [*(self._links.path(asker, peer) or ())]

    def copy(self) -> "ChangingLinks":
        """Return an independent copy."""
        other = copy(self)
        other._links, other._changes = self._links.copy(), [*self._changes]
        other._seen = dict(self._seen)
        return other

    def state(self) -> LinkState:
        """Return what other links continue from."""
        counted = [(*link, *sums) for link, sums in self._links.sums().items()]
        return LinkState(self._slot, counted, [(*link, *use) for link, use in self._seen.items()])

    def restore(self, state: LinkState) -> None:
        """Continue from a state; links that are no longer learnt are left out."""
        self.advance(state.slot)
        counted = {(start, end): (total, uses) for start, end, total, uses in state.counted}
        self._links.restore({link: one for link, one in counted.items() if link in self.tolls})
        seen = {(start, end): (total, uses) for start, end, total, uses in state.seen}
        self._seen = {link: one for link, one in seen.items() if link in self.tolls}
        self.version += 1


class PriceState(msgspec.Struct, frozen=True):
    """What the prices of a site continue from."""

    links: LinkState
    paths: list[tuple[int, dict[str, list[str]]]]


class Repriced(Protocol):
    """A learner whose prices can change."""

    def reprice(self, peer: str, cost: float) -> None: ...


class LivePrices:
    """What the peers of one site cost, slot by slot, by links that it may share with other sites.

    The path of a request is known until its label can come no more.
    """

    def __init__(
        self,
        links: ChangingLinks,
        asker: str,
        carried: Mapping[str, float],
        *,
        label_wait: int,
    ) -> None:
        """`carried` are the peers, with the serving costs that their prices include."""
        self.links = links
        self._asker = asker
        self._carried = dict(carried)
        self._label_wait = label_wait
        self._version = links.version
        self._costs = self._present_costs(links)
        self._paths = [(0, self._present_paths())]  # from a slot on, by peer

    @property
    def columns(self) -> Iterable[str]:
        """The columns of the learnt costs of links."""
        return self.links.tolls.values()

    def apply(self, learner: Repriced, slot: int) -> bool:
        """Let a learner pay what peers cost at `slot`; return whether a price has changed."""
        self.links.advance(slot)
        if self.links.version == self._version:
            return False
        self._version = self.links.version
        before, self._costs = self._costs, self._present_costs(self.links)
        changed = {peer: cost for peer, cost in self._costs.items() if cost != before[peer]}
        for peer, cost in changed.items():
            learner.reprice(peer, cost)
        paths = self._present_paths()
        if paths != self._paths[-1][1]:
            self._paths.append((slot, paths))
        while len(self._paths) > 1 and self._paths[1][0] < slot - self._label_wait:
            del self._paths[0]
        return bool(changed)

    def due(self, slot: int) -> dict[str, float]:
        """Return the peers that cost something else at a slot, and what; nothing changes."""
        ahead = self.links.copy()
        ahead.advance(slot)
        costs = self._present_costs(ahead)
        return {peer: cost for peer, cost in costs.items() if cost != self._costs[peer]}

    def observe(self, peer: str, slot: int, costs: Mapping[str, float]) -> None:
        """Learn what a request of `slot` to a peer has cost, by the columns of links.

        Costs of links that the request did not use are ignored.
        """
        path: Sequence[str] = ()
        for since, paths in self._paths:
            if since <= slot:
                path = paths.get(peer, ())
        for link in itertools.pairwise(path):
            cost = costs.get(self.links.tolls.get(link, ""))
            if cost is not None:
                self.links.observe(link, round(cost * MILLIONTHS), 1)

    def state(self) -> PriceState:
        """Return what the prices of another start continue from."""
        return PriceState(self.links.state(), [(slot, dict(one)) for slot, one in self._paths])

    def restore(self, state: PriceState, learner: Repriced) -> None:
        """Continue from a state: the learner pays what it said."""
        self.links.restore(state.links)
        self.apply(learner, state.links.slot)
        self._paths = [*state.paths]
        paths = self._present_paths()
        if not self._paths or paths != self._paths[-1][1]:  # other links than then
            self._paths.append((state.links.slot, paths))

    def _present_costs(self, links: ChangingLinks) -> dict[str, float]:
        prices = {peer: links.price(self._asker, peer) for peer in self._carried}
        return {
            peer: math.inf if price is None else price + self._carried[peer]
            for peer, price in prices.items()
        }

    def _present_paths(self) -> dict[str, list[str]]:
        return {peer: self.links.path(self._asker, peer) for peer in self._carried}


def check_cost(
    cost: float | Mapping[str, float], arms: Sequence[str], links: Sequence[str], *, learner: str
) -> None:
    """Raise `DataError` unless a cost is one number, or of columns of arms and of links."""
    if isinstance(cost, Mapping):
        known = [*arms, *links]
        for column, one in cost.items():
            if column not in known:
                raise DataError(
                    f"learner {learner!r} has no cost column {column!r}"
                    f"{nearest(str(column), known)}"
                )
            if type(one) not in (int, float) or not 0 <= one <= 1:
                raise DataError(f"the cost of {column!r} is {one!r}; it must lie in [0, 1]")
        return
    if not 0 <= cost <= 1:
        raise DataError(f"the cost is {cost}; it must lie in [0, 1]")
    if not arms:
        how = "add them, or send labels without cost"
        if links:
            how = f'send costs of links by column, like {{"{links[0]}": 0.1}}'
        raise DataError(f"learner {learner!r} has no cost-columns, and learns no costs; {how}")
