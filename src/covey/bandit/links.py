"""Links with costs, and their tables; the price of a peer is that of the cheapest path to it."""

import heapq
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from covey import toml
from covey.errors import ConfigError, DataError
from covey.toml import nearest
from covey.types import MILLIONTHS, Array

MOST_PRICE = 1.0  # value of a correct label

Pair = tuple[str, str]  # asker and peer, or the two ends of a link
Prices = dict[Pair, float | None]  # None: unreachable
Reprice = Callable[[str, float], None]  # lets a learner pay a cost of a peer


class Change(NamedTuple):
    """The cost of a link, or the price of a peer, from a slot on; None: there is none."""

    slot: int
    start: str
    end: str
    cost: float | None


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
        relays: Iterable[str] | None = None,
    ) -> None:
        """`links` have known costs; `learnt` have initial guesses of unknown costs.

        `relays` are the learners that a path may lead through; None: through any.
        """
        self.relays = None if relays is None else frozenset(relays)
        self._links: dict[str, dict[str, _Cost]] = {name: {} for name in learners}
        for start, end, cost in links:
            self._add(start, end, _Cost(_checked(start, end, cost)))
        for start, end, guess in learnt:
            self._add(start, end, _Cost(None, _checked(start, end, guess)))
        self._find_paths()

    def apply(self, changes: Iterable[Change]) -> Prices:
        """Apply simultaneous changes and return the changed prices.

        A change of a missing link adds it.
        """
        for _, start, end, cost in changes:
            if self.has(start, end):
                del self._links[start][end]
            if cost is not None:
                self._add(start, end, _Cost(_checked(start, end, cost)))
        return self._reprice()

    def learn(self, seen: Mapping[Pair, tuple[float, int]]) -> Prices:
        """Learn from the total cost and number of uses per link; return the changed prices."""
        for (start, end), (total, times) in seen.items():
            cost = self._links[start][end]
            cost.total += total
            cost.times += times
        return self._reprice()

    def sums(self) -> dict[Pair, tuple[float, int]]:
        """Return the total cost and number of uses of each link that has been learnt from."""
        return {
            (start, end): (cost.total, cost.times)
            for start, ends in self._links.items()
            for end, cost in ends.items()
            if cost.times
        }

    def restore(self, sums: Mapping[Pair, Sequence[Any]]) -> None:
        """Let links be learnt as `sums` says, and no further."""
        for start, end in sums:
            cost = self._links[start][end]
            cost.total, cost.times = sums[start, end]
        self._find_paths()

    def has(self, start: str, end: str) -> bool:
        for name in (start, end):
            if name not in self._links:
                hint = toml.nearest(name, self._links)
                raise ConfigError(f"a link names unknown learner {name!r}{hint}")
        return end in self._links[start]

    def cost(self, start: str, end: str) -> float:
        return self._links[start][end].estimate

    def price(self, asker: str, peer: str) -> float | None:
        """Return the cost of the cheapest path; None if there is none of cost 1 or less."""
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
        return {
            (asker, peer): step.cost
            for asker, steps in self._paths.items()
            for peer, step in steps.items()
            if peer != asker
        }

    def _reprice(self) -> Prices:
        before = self.prices()
        self._find_paths()
        after = self.prices()
        moved = [pair for pair in before | after if before.get(pair) != after.get(pair)]
        return {pair: after.get(pair) for pair in sorted(moved)}

    def _find_paths(self) -> None:
        self._paths = {asker: self._cheapest(asker) for asker in self._links}

    def _cheapest(self, asker: str) -> "dict[str, _Step]":
        """Return the last steps of the cheapest paths to all reachable peers (Dijkstra).

        Of paths with the same cost the one with the fewest links counts.
        """
        steps: dict[str, _Step] = {}
        waiting = [(0.0, 0, asker, asker)]
        while waiting:
            cost, links, here, before = heapq.heappop(waiting)
            if here in steps:
                continue
            steps[here] = _Step(cost, before)
            if here != asker and self.relays is not None and here not in self.relays:
                continue
            for end, link in self._links[here].items():
                total = cost + link.estimate
                if end not in steps and total <= MOST_PRICE:
                    heapq.heappush(waiting, (total, links + 1, end, here))
        return steps

    def _add(self, start: str, end: str, cost: "_Cost") -> None:
        is_there = self.has(start, end)
        if start == end:
            raise ConfigError(f"a link leads from {start!r} to itself; remove it")
        if is_there:
            raise ConfigError(f"duplicate link from {start!r} to {end!r}; keep one")
        self._links[start][end] = cost


def price_changes(links: Links, changes: Iterable[Change]) -> list[Change]:
    """Return the price changes that `changes` cause, by slot; `links` is not modified.

    Changes of one slot are simultaneous, before the decisions of that slot.
    """
    links = deepcopy(links)
    return [
        Change(slot, asker, peer, price)
        for slot, at_once in itertools.groupby(changes, lambda change: change.slot)
        for (asker, peer), price in links.apply(at_once).items()
    ]


class _Cost(msgspec.Struct):
    """The cost of a link: given, or estimated."""

    stated: float | None
    guess: float = 0.0
    total: float = 0.0
    times: int = 0

    @property
    def estimate(self) -> float:
        if self.stated is not None:
            return self.stated
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


NAMES = {"start": "from", "end": "to", "cost_column": "cost-column"}
Table = TypeVar("Table", bound="Ends")


class Ends(msgspec.Struct, frozen=True, kw_only=True, rename=NAMES):
    """The link, or the two links, of a table."""

    between: tuple[str, str] | None = None
    start: str | None = None
    end: str | None = None


class LinkTable(Ends, frozen=True, kw_only=True, rename=NAMES):
    """A `[[link]]` table; a change can add a link that is initially "gone"."""

    cost: float | Literal["gone"] | None = None
    cost_column: str | None = None  # of the observed cost per use, which is learnt
    # Initial estimate of a learnt cost.
    guess: Annotated[float, msgspec.Meta(ge=0, le=MOST_PRICE)] | None = None


class ChangeTable(Ends, frozen=True, kw_only=True, rename=NAMES):
    """A `[[link-change]]` table: the cost of a link from a slot on."""

    cost: float | Literal["gone"]
    slot: Annotated[int, msgspec.Meta(ge=2)]  # `[[link]]` sets the cost from slot 1 on


class Wiring(NamedTuple):
    """The initial links, their changes, and all pairs that are ever connected."""

    links: Links
    changes: tuple[Change, ...]  # by slot
    tolls: dict[Pair, str]  # link with a learnt cost -> column of its observed cost
    reach: frozenset[Pair]  # asker and peer
    are_prices: bool = False  # costs of links are prices that learners list

    @property
    def is_moving(self) -> bool:
        return bool(self.changes or self.tolls)

    def hop(self, asker: str, peer: str) -> str:
        """Return to which learner `asker` sends what it asks `peer`: that peer, or a relay."""
        path = None if self.links.relays is None else self.links.path(asker, peer)
        return peer if path is None else path[1]

    def peers(self, asker: str) -> dict[str, float]:
        """Return all peers ever reachable from a learner, with initial prices; inf: not yet."""
        first = self.links.prices()
        return {
            end: first.get((start, end), math.inf) for start, end in self.reach if start == asker
        }


def wiring_of(
    tables: Mapping[str, Any],
    peers: Mapping[str, Mapping[str, float] | None],
    relays: Sequence[str],
    *,
    has_ensemble: bool = False,
) -> Wiring:
    """Return the links of `[[link]]` tables, or those by which peers are asked through relays.

    `peers` are the prices that each learner lists; None: it lists none.
    """
    if tables:
        for name, listed in peers.items():
            if listed is not None:
                raise ConfigError(
                    f"learner {name!r} has peers, but prices come from [[link]] tables; remove one"
                )
        return _parsed(tables, peers, relays or None)
    prices = {name: own or {} for name, own in peers.items()}
    for name in relays:
        if has_ensemble:
            raise ConfigError(
                f"learner {name!r} has relay = true, which cannot be combined with [ensemble], "
                "where nobody asks anybody; remove one of them"
            )
        if not prices[name]:
            raise ConfigError(
                f"learner {name!r} has relay = true, but no peers that it could ask for others; "
                "list them in peers, or remove relay"
            )
    pairs = [(name, peer, cost) for name, own in prices.items() for peer, cost in own.items()]
    links = Links(prices, pairs, relays=relays)
    return Wiring(links, (), {}, frozenset(links.prices()), are_prices=True)


def _parsed(
    table: Mapping[str, Any], learners: Iterable[str], relays: Iterable[str] | None
) -> Wiring:
    """Return the links of tables; without `relays` paths may lead through any learner."""
    if "link" not in table:
        raise ConfigError("[[link-change]] without [[link]]; list the links first")
    tables = list(_tables(table["link"], LinkTable, "[[link]]"))
    for where, link in tables:
        if (link.cost is None) == (link.cost_column is None):
            raise ConfigError(f"{where} needs either cost, or cost-column for a learnt cost")
        if link.guess is not None and link.cost is not None:
            raise ConfigError(f"{where} has cost and guess; remove one of them")
    pairs = [(pair, link) for where, link in tables for pair in _pairs(link, where)]
    priced = [(pair, link.cost) for pair, link in pairs if link.cost is not None]
    listed = [Change(1, *pair, _cost(cost)) for pair, cost in priced]
    tolls = {pair: link.cost_column for pair, link in pairs if link.cost_column is not None}
    links = Links(
        learners,
        [(start, end, cost or 0.0) for _, start, end, cost in listed],
        learnt=[(*pair, link.guess or 0.0) for pair, link in pairs if link.cost is None],
        relays=relays,
    )
    changes = _changes(table.get("link-change", []), deepcopy(links), listed, tolls)
    links.apply(change for change in listed if change.cost is None)
    for _, start, end, cost in listed:
        if cost is not None and cost > MOST_PRICE:
            warnings.warn(
                f"the link from {start!r} to {end!r} is never used: its cost {cost:g} is above 1, "
                "the value of a correct label",
                stacklevel=2,
            )
    return Wiring(links, tuple(changes), tolls, _reach(links, changes, tolls))


def _reach(links: Links, changes: Iterable[Change], learnt: Iterable[Pair]) -> frozenset[Pair]:
    """Return all pairs that can ever be connected: learnt costs count as 0."""
    links = deepcopy(links)
    links.apply(Change(1, *pair, 0.0) for pair in learnt)
    later = price_changes(links, changes)
    pairs = {(asker, peer) for _, asker, peer, price in later if price is not None}
    return frozenset(pairs | links.prices().keys())


def _changes(
    tables: object, listed: Links, first: Iterable[Change], tolls: Mapping[Pair, str]
) -> list[Change]:
    """Return the changes in order of their slots; each is of a listed link."""
    now = {(change.start, change.end): change for change in first}
    changes: list[Change] = []
    for where, table in _tables(tables, ChangeTable, "[[link-change]]"):
        if changes and table.slot < changes[-1].slot:
            raise ConfigError(
                f"{where} slot is {table.slot}, but the previous one is {changes[-1].slot}; list "
                "changes in order"
            )
        for start, end in _pairs(table, where):
            if not listed.has(start, end):
                raise ConfigError(
                    f"{where}: no [[link]] from {start!r} to {end!r}; add one, with "
                    'cost = "gone" if it is initially absent'
                )
            if (start, end) in tolls:
                raise ConfigError(
                    f"{where}: the cost of the link from {start!r} to {end!r} is learnt from "
                    f"{tolls[start, end]!r}; remove the change, or set a cost for the link"
                )
            change = Change(table.slot, start, end, _cost(table.cost))
            _check_step(now[start, end], change, where)
            now[start, end] = change
            changes.append(change)
    return changes


def _check_step(before: Change, after: Change, where: str) -> None:
    link = f"the link from {after.start!r} to {after.end!r}"
    if before.slot == after.slot:
        raise ConfigError(f"{where}: duplicate change of {link} at slot {after.slot}; keep one")
    if before.cost is None and after.cost is None:
        raise ConfigError(f"{where}: {link} is already gone; set a cost, or remove the change")


def _tables(tables: object, kind: type[Table], name: str) -> Iterator[tuple[str, Table]]:
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise ConfigError(f"{name} must be a list of tables")
    for k, table in enumerate(tables):
        where = f"{name} {k + 1}"
        yield where, toml.read(table, kind, where=where)


def _pairs(table: Ends, where: str) -> list[Pair]:
    one_way = (table.start, table.end)
    if table.between is not None and one_way == (None, None):
        start, end = table.between
        return [(start, end), (end, start)]
    if table.between is None and table.start is not None and table.end is not None:
        return [(table.start, table.end)]
    raise ConfigError(f"{where} needs either between = [one, other], or from and to")


def _cost(cost: float | str) -> float | None:
    return None if isinstance(cost, str) else cost


NEVER = 2**60  # slots between two looks at costs, where none is learnt


class LinkState(msgspec.Struct, frozen=True):
    """What links continue from: the latest slot, and the uses of those whose costs are learnt."""

    slot: int
    counted: list[tuple[str, str, float, int]]  # sum of costs and uses that prices know of
    seen: list[tuple[str, str, int, int]]  # the same since then, in millionths


class LinkPrices:
    """Links that change at given slots, or whose costs are learnt from their use.

    Paths are chosen when prices change, and kept until the next change. Learnt costs change prices
    every `every` slots.
    """

    def __init__(self, wiring: Wiring, every: int) -> None:
        self.links = deepcopy(wiring.links)  # the present ones
        self._changes = list(wiring.changes)
        self.tolls = wiring.tolls
        self._every = every if wiring.tolls else NEVER
        self._seen: dict[Pair, tuple[int, int]] = {}  # millionths and uses, since the last update
        self._slot = 1
        self.version = 0  # raised where prices or paths may have changed

    def next_slot(self, slot: int) -> int:
        update = slot - (slot - 1) % self._every + self._every
        return min(update, self._changes[0].slot) if self._changes else update

    def advance(self, slot: int) -> None:
        is_due = (slot - 1) // self._every > (self._slot - 1) // self._every
        self._slot = max(slot, self._slot)
        if self._seen and is_due:
            seen = {link: (total / MILLIONTHS, uses) for link, (total, uses) in self._seen.items()}
            self._seen = {}
            self.version += 1
            self.links.learn(seen)
        due = [change for change in self._changes if change.slot <= slot]
        if due:
            del self._changes[: len(due)]
            self.version += 1
            self.links.apply(due)

    def observe(self, link: Pair, total: int, uses: int) -> None:
        before, times = self._seen.get(link, (0, 0))
        self._seen[link] = (before + total, times + uses)

    def state(self) -> LinkState:
        counted = [(*link, *sums) for link, sums in self.links.sums().items()]
        return LinkState(self._slot, counted, [(*link, *use) for link, use in self._seen.items()])

    def restore(self, state: LinkState) -> None:
        """Continue from a state; links that are no longer learnt are left out."""
        self.advance(state.slot)
        tolls = self.tolls
        self.links.restore({(a, b): use for a, b, *use in state.counted if (a, b) in tolls})
        self._seen = {(a, b): (paid, uses) for a, b, paid, uses in state.seen if (a, b) in tolls}
        self.version += 1


class PriceState(msgspec.Struct, frozen=True):
    """What the prices of a site continue from."""

    links: LinkState
    paths: list[tuple[int, dict[str, list[str]]]]
    costs: dict[str, float | None]  # that the site pays, of each peer; None: infinite


class SitePrices:
    """What the peers of one site cost, slot by slot, by links that it may share with other sites.

    The path of a request is known until its label can come no more.
    """

    def __init__(
        self,
        links: LinkPrices,
        asker: str,
        carried: Mapping[str, float],
        *,
        label_wait: int,
    ) -> None:
        self.links = links
        self._asker = asker
        self._carried = dict(carried)
        self._label_wait = label_wait
        self._version = links.version
        self._costs = self._present_costs(links)
        self._paths = [(0, self._present_paths())]  # from a slot on, by peer

    @property
    def columns(self) -> Iterable[str]:
        return self.links.tolls.values()

    def apply(self, reprice: Reprice, slot: int) -> bool:
        """Tell what peers cost at `slot` where that has changed; return whether it has."""
        self.links.advance(slot)
        if self.links.version == self._version:
            return False
        self._version = self.links.version
        before, self._costs = self._costs, self._present_costs(self.links)
        changed = {peer: cost for peer, cost in self._costs.items() if cost != before[peer]}
        for peer, cost in changed.items():
            reprice(peer, cost)
        paths = self._present_paths()
        if paths != self._paths[-1][1]:
            self._paths.append((slot, paths))
        while len(self._paths) > 1 and self._paths[1][0] < slot - self._label_wait:
            del self._paths[0]
        return bool(changed)

    def due(self, slot: int) -> dict[str, float]:
        """Return the peers that cost something else at a slot, and what; nothing changes."""
        ahead = deepcopy(self.links)
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

    def charge(self, peer: str, paid: Mapping[str, Array], times: int) -> Array:
        """Return what so many requests to a peer have cost by its present path, and learn it.

        `paid` is in millionths, by the columns of links. The cost is a sum over links, not a
        difference to the price, so it has no rounding error.
        """
        total = np.zeros(times)
        for link in itertools.pairwise(self._paths[-1][1][peer]):
            column = self.links.tolls.get(link)
            if column is None:
                total += self.links.links.cost(*link)
                continue
            self.links.observe(link, int(paid[column].sum()), times)
            total += paid[column] / MILLIONTHS
        return total + self._carried[peer]

    def state(self) -> PriceState:
        costs = {peer: None if cost == math.inf else cost for peer, cost in self._costs.items()}
        return PriceState(self.links.state(), [*self._paths], costs)

    def restore(self, state: PriceState, reprice: Reprice) -> None:
        """Continue from a state: the learner pays what it did, until its next decision."""
        self.links.restore(state.links)
        self._version = -1  # another site may have advanced the links since
        for peer in self._costs.keys() & state.costs:
            cost = state.costs[peer]
            self._costs[peer] = math.inf if cost is None else cost
            reprice(peer, self._costs[peer])
        self._paths = [*state.paths]

    def _present_costs(self, links: LinkPrices) -> dict[str, float]:
        prices = {peer: links.links.price(self._asker, peer) for peer in self._carried}
        return {
            peer: math.inf if price is None else price + self._carried[peer]
            for peer, price in prices.items()
        }

    def _present_paths(self) -> dict[str, list[str]]:
        links = self.links.links
        return {peer: [*(links.path(self._asker, peer) or ())] for peer in self._carried}


def check_cost(
    cost: float | Mapping[str, float], arms: Sequence[str], links: Sequence[str], *, learner: str
) -> None:
    """Raise `DataError` unless a cost is one number, or of columns of arms and of links."""
    if isinstance(cost, Mapping):
        columns = [*arms, *links]
        for column, amount in cost.items():
            if column not in columns:
                hint = nearest(str(column), columns)
                raise DataError(f"learner {learner!r} has no cost column {column!r}{hint}")
            if type(amount) not in (int, float) or not 0 <= amount <= 1:
                raise DataError(f"the cost of {column!r} is {amount!r}; it must lie in [0, 1]")
        return
    if not 0 <= cost <= 1:
        raise DataError(f"the cost is {cost}; it must lie in [0, 1]")
    if not arms:
        how = "add them, or send labels without cost"
        if links:
            how = f'send costs of links by column, like {{"{links[0]}": 0.1}}'
        raise DataError(f"learner {learner!r} has no cost-columns, and learns no costs; {how}")
