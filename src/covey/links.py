"""Links with costs between learners: the price of a peer is the cost of the cheapest path to it.

A path only sets the price: a queried learner answers with an own function and never forwards a
request. Links can be added, removed and repriced; an unknown cost is learnt from observed costs.
"""

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from covey import fields
from covey.errors import ConfigError

MOST_PRICE = 1.0  # value of a correct label

Pair = tuple[str, str]  # asker and peer, or the two ends of a link
Prices = dict[Pair, float | None]  # None: unreachable


class Change(NamedTuple):
    """The cost of a link from a slot on; None: removed."""

    slot: int
    start: str
    end: str
    cost: float | None


class PriceChange(NamedTuple):
    """The price of a peer from a slot on; None: unreachable."""

    slot: int
    asker: str
    peer: str
    price: float | None


class Links:
    """Directed links with costs; every change returns the prices that it changed.

    A link leads from the asking learner to the queried one.

    >>> links = Links(["north", "south", "west"], [("north", "south", 0.25)])
    >>> links.apply([Change(1, "south", "west", 0.5)])
    {('north', 'west'): 0.75, ('south', 'west'): 0.5}
    >>> links.path("north", "west"), links.price("west", "north")
    (('north', 'south', 'west'), None)
    """

    def __init__(
        self,
        learners: Iterable[str],
        links: Iterable[tuple[str, str, float]] = (),
        *,
        learnt: Iterable[tuple[str, str, float]] = (),
    ) -> None:
        """`links` have known costs; `learnt` have initial guesses of unknown costs."""
        self._links: dict[str, dict[str, _Cost]] = {name: {} for name in learners}
        for start, end, cost in links:
            self._check_new(start, end)
            self._links[start][end] = _Cost(_checked(start, end, cost))
        for start, end, guess in learnt:
            self._check_new(start, end)
            self._links[start][end] = _Cost(None, _checked(start, end, guess))
        self._paths = self._all_paths()

    def apply(self, changes: Iterable[Change]) -> Prices:
        """Apply simultaneous changes, all or none, and return the changed prices.

        A change of a missing link adds it.
        """
        kept = self._copied()
        try:
            for change in changes:
                self._set(change)
        except ConfigError:
            self._links = kept
            raise
        return self._reprice()

    def learn(self, seen: Mapping[Pair, tuple[float, int]]) -> Prices:
        """Learn from the total cost and number of uses per link; return the changed prices."""
        for start, end in seen:
            self._check_there(start, end)
        for (start, end), (total, times) in seen.items():
            cost = self._links[start][end]
            cost.total += total
            cost.times += times
        return self._reprice()

    def has(self, start: str, end: str) -> bool:
        """Return whether a link leads from `start` to `end`."""
        for name in (start, end):
            self._check_name(name)
        return end in self._links[start]

    def cost(self, start: str, end: str) -> float:
        """Return the known or estimated cost of a link."""
        self._check_there(start, end)
        return self._links[start][end].estimate

    def price(self, asker: str, peer: str) -> float | None:
        """Return the cost of the cheapest path; None if there is none of cost 1 or less."""
        for name in (asker, peer):
            self._check_name(name)
        step = self._paths[asker].get(peer)
        return None if step is None or asker == peer else step.cost

    def path(self, asker: str, peer: str) -> tuple[str, ...] | None:
        """Return the cheapest path, both ends included; None without a price."""
        if self.price(asker, peer) is None:
            return None
        back = [peer]
        while back[-1] != asker:
            back.append(self._paths[asker][back[-1]].before)
        return tuple(reversed(back))

    def prices(self) -> dict[Pair, float]:
        """Return the price of every reachable peer."""
        return {
            (asker, peer): step.cost
            for asker, steps in self._paths.items()
            for peer, step in steps.items()
            if peer != asker
        }

    def copy(self) -> "Links":
        """Return an independent copy."""
        other = Links(())
        other._links = self._copied()
        other._paths = self._paths
        return other

    def _set(self, change: Change) -> None:
        _, start, end, cost = change
        if cost is None:
            self._check_there(start, end)
            del self._links[start][end]
            return
        if end not in self._links.get(start, ()):
            self._check_new(start, end)
        self._links[start][end] = _Cost(_checked(start, end, cost))

    def _copied(self) -> "dict[str, dict[str, _Cost]]":
        return {
            start: {end: msgspec.structs.replace(cost) for end, cost in ends.items()}
            for start, ends in self._links.items()
        }

    def _reprice(self) -> Prices:
        before = self.prices()
        self._paths = self._all_paths()
        after = self.prices()
        moved = [pair for pair in before | after if before.get(pair) != after.get(pair)]
        return {pair: after.get(pair) for pair in sorted(moved)}

    def _all_paths(self) -> "dict[str, dict[str, _Step]]":
        return {asker: self._cheapest(asker) for asker in self._links}

    def _cheapest(self, asker: str) -> "dict[str, _Step]":
        """Return the last steps of the cheapest paths to all reachable peers (Dijkstra)."""
        found: dict[str, _Step] = {}
        waiting = [(0.0, asker, asker)]
        while waiting:
            cost, here, before = heapq.heappop(waiting)
            if here in found:
                continue
            found[here] = _Step(cost, before)
            for end, link in self._links[here].items():
                total = cost + link.estimate
                if end not in found and total <= MOST_PRICE:
                    heapq.heappush(waiting, (total, end, here))
        return found

    def _check_name(self, name: str) -> None:
        if name not in self._links:
            raise ConfigError(
                f"a link names unknown learner {name!r}{fields.nearest(name, self._links)}"
            )

    def _check_new(self, start: str, end: str) -> None:
        is_there = self.has(start, end)
        if start == end:
            raise ConfigError(f"a link leads from {start!r} to itself; remove it")
        if is_there:
            raise ConfigError(f"duplicate link from {start!r} to {end!r}; keep one")

    def _check_there(self, start: str, end: str) -> None:
        if not self.has(start, end):
            raise ConfigError(f"there is no link from {start!r} to {end!r}; add it first")


def price_changes(links: Links, changes: Iterable[Change]) -> list[PriceChange]:
    """Return the price changes that `changes` cause, by slot; `links` is not modified.

    Changes of one slot are simultaneous, before the decisions of that slot.
    """
    links = links.copy()
    return [
        PriceChange(slot, asker, peer, price)
        for slot, at_once in itertools.groupby(changes, lambda change: change.slot)
        for (asker, peer), price in links.apply(at_once).items()
    ]


class _Cost(msgspec.Struct):
    """The cost of a link: given, or estimated."""

    given: float | None
    guess: float = 0.0
    total: float = 0.0
    times: int = 0

    @property
    def estimate(self) -> float:
        if self.given is not None:
            return self.given
        return self.total / self.times if self.times else self.guess


class _Step(NamedTuple):
    """The end of a path: its total cost, and the previous learner."""

    cost: float
    before: str


def _checked(start: str, end: str, cost: float) -> float:
    if not 0 <= cost < math.inf:
        raise ConfigError(
            f"the link from {start!r} to {end!r} costs {cost}; it must be a number, 0 or more"
        )
    return float(cost)
