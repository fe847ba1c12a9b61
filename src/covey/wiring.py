"""The `[[link]]` and `[[link-change]]` tables of a configuration -> links, and how they change."""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from covey import fields
from covey.errors import ConfigError
from covey.links import MOST_PRICE, Change, Links, Pair, price_changes

GONE = "gone"
NAMES = {"start": "from", "end": "to", "cost_column": "cost-column"}
Table = TypeVar("Table", bound="Ends")


class Ends(msgspec.Struct, frozen=True, kw_only=True, rename=NAMES):
    """Which link, or which two, a table is about."""

    between: tuple[str, str] | None = None
    start: str | None = None
    end: str | None = None


class LinkTable(Ends, frozen=True, kw_only=True, rename=NAMES):
    """A `[[link]]` table; one that is gone at first may come by a change."""

    cost: float | str | None = None
    cost_column: str | None = None  # of what it costs when it is used, which is learnt
    guess: float | None = None  # of such a cost


class ChangeTable(Ends, frozen=True, kw_only=True, rename=NAMES):
    """A `[[link-change]]` table: what a link costs from a slot on."""

    cost: float | str
    slot: int


class Wiring(NamedTuple):
    """The links as the first slot finds them, how they change, and whom anyone may ever ask."""

    links: Links
    changes: tuple[Change, ...]  # by slot
    tolls: dict[Pair, str]  # links whose cost is learnt -> the column of what using them costs
    reach: frozenset[Pair]  # asker and peer

    @property
    def is_moving(self) -> bool:
        """Whether prices may ever be others than at first."""
        return bool(self.changes or self.tolls)

    def peers(self, asker: str) -> dict[str, float]:
        """Return whom a learner may ever ask, at the first slot's price; inf: not yet."""
        first = self.links.prices()
        return {peer: first.get((who, peer), math.inf) for who, peer in self.reach if who == asker}


def parse(table: Mapping[str, Any], learners: Iterable[str]) -> Wiring | None:
    """Return what a configuration says of links; None if it says nothing.

    Raises `ConfigError` with a sentence that names the link or the table that is wrong.
    """
    if "link" not in table:
        if "link-change" in table:
            raise ConfigError("there is a [[link-change]] but no [[link]]; list the links first")
        return None
    tables = list(_tables(table["link"], LinkTable, "[[link]]"))
    for where, one in tables:
        _check_source(one, where)
    pairs = [(pair, one, where) for where, one in tables for pair in _pairs(one, where)]
    listed = [
        Change(1, *pair, _cost(one.cost, where))
        for pair, one, where in pairs
        if one.cost is not None
    ]
    tolls = {pair: one.cost_column for pair, one, _ in pairs if one.cost_column is not None}
    links = Links(
        learners,
        [(start, end, cost or 0.0) for _, start, end, cost in listed],
        learnt=[(*pair, one.guess or 0.0) for pair, one, _ in pairs if one.cost is None],
    )
    changes = _changes(table.get("link-change", []), links.copy(), listed, tolls)
    links.apply(one for one in listed if one.cost is None)
    _warn_of_dear(listed)
    return Wiring(links, tuple(changes), tolls, _reach(links, changes, tolls))


def _reach(links: Links, changes: Iterable[Change], learnt: Iterable[Pair]) -> frozenset[Pair]:
    """Return who may ever ask whom, if what is learnt turns out to cost nothing."""
    links = links.copy()
    links.apply(Change(1, *pair, 0.0) for pair in learnt)
    later = price_changes(links, changes)
    found = {(move.asker, move.peer) for move in later if move.price is not None}
    return frozenset(found | links.prices().keys())


def _check_source(table: LinkTable, where: str) -> None:
    if (table.cost is None) == (table.cost_column is None):
        raise ConfigError(f"{where} needs either cost, or cost-column where it is to be learnt")
    if table.guess is None:
        return
    if table.cost is not None:
        raise ConfigError(f"{where} has a cost and a guess of it; take one of them out")
    if not 0 <= table.guess <= MOST_PRICE:
        raise ConfigError(f"{where} guess is {table.guess}; it must lie in [0, 1]")


def _changes(
    tables: object, listed: Links, first: Iterable[Change], tolls: Mapping[Pair, str]
) -> list[Change]:
    """Return the changes, each of a link that is listed, in the order of their slots."""
    now = {(one.start, one.end): one for one in first}
    changes: list[Change] = []
    for where, one in _tables(tables, ChangeTable, "[[link-change]]"):
        _check_slot(one.slot, changes[-1].slot if changes else 2, where)
        for start, end in _pairs(one, where):
            if not listed.has(start, end):
                raise ConfigError(
                    f"{where}: no [[link]] leads from {start!r} to {end!r}; list it, with "
                    f'cost = "{GONE}" if it comes later'
                )
            if (start, end) in tolls:
                raise ConfigError(
                    f"{where}: the cost of the link from {start!r} to {end!r} is learnt from "
                    f"{tolls[start, end]!r}; drop the change, or give the link a cost"
                )
            change = Change(one.slot, start, end, _cost(one.cost, where))
            _check_step(now[start, end], change, where)
            now[start, end] = change
            changes.append(change)
    return changes


def _check_slot(slot: int, earliest: int, where: str) -> None:
    if slot < 2:
        raise ConfigError(
            f"{where} slot is {slot}; it must be 2 or more: what holds at first stands in [[link]]"
        )
    if slot < earliest:
        raise ConfigError(
            f"{where} slot is {slot}, but the one before has {earliest}; list changes in order"
        )


def _check_step(before: Change, after: Change, where: str) -> None:
    link = f"the link from {after.start!r} to {after.end!r}"
    if before.slot == after.slot:
        raise ConfigError(f"{where}: {link} changes twice at slot {after.slot}; keep one")
    if before.cost is None and after.cost is None:
        raise ConfigError(f"{where}: {link} is gone already; give it a cost, or drop the change")


def _tables(tables: object, kind: type[Table], name: str) -> Iterator[tuple[str, Table]]:
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise ConfigError(f"{name} must be a list of tables")
    for k, table in enumerate(tables):
        where = f"{name} {k + 1}"
        yield where, fields.read(table, kind, where=where)


def _pairs(table: Ends, where: str) -> list[Pair]:
    one_way = (table.start, table.end)
    if table.between is not None and one_way == (None, None):
        start, end = table.between
        return [(start, end), (end, start)]
    if table.between is None and table.start is not None and table.end is not None:
        return [(table.start, table.end)]
    raise ConfigError(f"{where} needs either between = [one, other], or from and to")


def _cost(cost: float | str, where: str) -> float | None:
    if isinstance(cost, str):
        if cost != GONE:
            raise ConfigError(f'{where} cost is {cost!r}; it must be a number or "{GONE}"')
        return None
    return cost


def _warn_of_dear(listed: Iterable[Change]) -> None:
    for _, start, end, cost in listed:
        if cost is not None and cost > MOST_PRICE:
            warnings.warn(
                f"no path takes the link from {start!r} to {end!r}: its cost {cost:g} is above 1, "
                "more than a right label is worth",
                stacklevel=2,
            )
