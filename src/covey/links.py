"""Links with costs between learners: the price of a peer is that of the cheapest path to it.

The path sets the price and nothing else: whoever is asked answers by an own function and never
passes a request on. Links may come, go and change their cost; a cost that nobody knows is learnt
from what using the link turned out to cost.
"""

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from covey import fields
from covey.errors import ConfigError

MOST_PRICE = 1.0  # what a right label is worth

Pair = tuple[str, str]  # asker and peer, or the two ends of a link
Prices = dict[Pair, float | None]  # None: never asked


class Change(NamedTuple):
    """What a link costs from a slot on; None: it is gone."""

    slot: int
    start: str
    end: str
    cost: float | None


class PriceChange(NamedTuple):
    """What asking a peer costs from a slot on; None: it is not asked any more."""

    slot: int
    asker: str
    peer: str
    price: float | None


class Links:
    """Who is linked with whom at what cost; every change says which prices it moved.

    A link leads from the learner that asks to the one that is asked.

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
        """`links` have a cost each; `learnt` have one to be learnt, and a guess of it."""
        self._links: dict[str, dict[str, _Cost]] = {name: {} for name in learners}
        for start, end, cost in links:
            self._check_new(start, end)
            self._links[start][end] = _Cost(_checked(start, end, cost))
        for start, end, guess in learnt:
            self._check_new(start, end)
            self._links[start][end] = _Cost(None, _checked(start, end, guess))
        self._paths = self._all_paths()

    def apply(self, changes: Iterable[Change]) -> Prices:
        """Make changes that happen at once and return the prices that changed.

        A link that is not there appears. If a change cannot be made, none is.
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
        """Take what links cost in all over so many uses; return the prices that changed."""
        for start, end in seen:
            self._check_there(start, end)
        for (start, end), (total, times) in seen.items():
            self._links[start][end].see(total, times)
        return self._reprice()

    def has(self, start: str, end: str) -> bool:
        """Say whether a link leads from one learner to the other."""
        for name in (start, end):
            self._check_name(name)
        return end in self._links[start]

    def cost(self, start: str, end: str) -> float:
        """Return what a link costs, as far as is known."""
        self._check_there(start, end)
        return self._links[start][end].estimate

    def price(self, asker: str, peer: str) -> float | None:
        """Return what asking costs by the cheapest path.

        None if there is no path, or none at a price of at most 1: such a peer is never asked.
        """
        for name in (asker, peer):
            self._check_name(name)
        step = self._paths[asker].get(peer)
        return None if step is None or asker == peer else step.cost

    def path(self, asker: str, peer: str) -> tuple[str, ...] | None:
        """Return the cheapest path with both its ends; None where there is no price."""
        if self.price(asker, peer) is None:
            return None
        back = [peer]
        while back[-1] != asker:
            back.append(self._paths[asker][back[-1]].before)
        return tuple(reversed(back))

    def prices(self) -> dict[Pair, float]:
        """Return the price of every peer that may be asked."""
        return {
            (asker, peer): step.cost
            for asker, steps in self._paths.items()
            for peer, step in steps.items()
            if peer != asker
        }

    def copy(self) -> "Links":
        """Return the same links, to be changed on their own."""
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
        """Return the last steps of the cheapest paths to all that are in reach (Dijkstra's)."""
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
            raise ConfigError(f"a link leads from {start!r} to itself; it must join two learners")
        if is_there:
            raise ConfigError(f"a link from {start!r} to {end!r} is there already; keep one")

    def _check_there(self, start: str, end: str) -> None:
        if not self.has(start, end):
            raise ConfigError(f"there is no link from {start!r} to {end!r}; add it first")


def price_changes(links: Links, changes: Iterable[Change]) -> list[PriceChange]:
    """Return how the prices move when `links` change as told, slot after slot.

    Changes at one slot happen at once, before anyone decides in it. `links` stay as they are.
    """
    links = links.copy()
    return [
        PriceChange(slot, asker, peer, price)
        for slot, at_once in itertools.groupby(changes, lambda change: change.slot)
        for (asker, peer), price in links.apply(at_once).items()
    ]


class _Cost(msgspec.Struct):
    """What is known of the cost of a link."""

    given: float | None
    guess: float = 0.0
    total: float = 0.0
    times: int = 0

    @property
    def estimate(self) -> float:
        if self.given is not None:
            return self.given
        return self.total / self.times if self.times else self.guess

    def see(self, cost: float, times: int) -> None:
        self.total += cost
        self.times += times


class _Step(NamedTuple):
    """The end of a path: what all of it costs, and who stands before."""

    cost: float
    before: str


def _checked(start: str, end: str, cost: float) -> float:
    if not 0 <= cost < math.inf:
        raise ConfigError(
            f"the link from {start!r} to {end!r} costs {cost}; it must be a number, 0 or more"
        )
    return float(cost)
