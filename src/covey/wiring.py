"""The `[[link]]` and `[[link-change]]` tables of a configuration -> links, and how they change."""

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from covey import fields
from covey.errors import ConfigError
from covey.links import MOST_PRICE, Change, Links, Pair, PriceChange, price_changes

GONE = "gone"
Table = TypeVar("Table", bound="_Ends")


class _Ends(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"start": "from", "end": "to", "cost_column": "cost-column"},
):
    between: tuple[str, str] | None = None
    start: str | None = None
    end: str | None = None


class LinkTable(_Ends, frozen=True, kw_only=True):
    """A `[[link]]` table; one that is gone at first may come by a change."""

    cost: float | str | None = None
    cost_column: str | None = None  # what using it costs, slot by slot, which is learnt


class ChangeTable(_Ends, frozen=True, kw_only=True):
    """A `[[link-change]]` table: what a link costs from a slot on."""

    cost: float | str
    slot: int


class Wiring(NamedTuple):
    """The links as the first slot finds them, and how they and the prices change later."""

    links: Links
    changes: tuple[Change, ...]
    columns: dict[Pair, str]  # of links whose cost is learnt
    moves: tuple[PriceChange, ...]  # none where costs are learnt: then nobody knows them yet
    ever: frozenset[Pair]  # whoever may be asked by whom after the first slot

    def peers(self, asker: str) -> dict[str, float]:
        """Return whom a learner may ever ask, at the first slot's price; inf: not yet."""
        later = {peer: math.inf for who, peer in sorted(self.ever) if who == asker}
        first = {peer: price for (who, peer), price in self.links.prices().items() if who == asker}
        return later | first


def parse(table: Mapping[str, Any], learners: Iterable[str]) -> Wiring | None:
    """Return what a configuration says of links; None if it says nothing.

    Raises `ConfigError` with a sentence that names the link or the table that is wrong.
    """
    if "link" not in table:
        if "link-change" in table:
            raise ConfigError("there is a [[link-change]] but no [[link]]; list the links first")
        return None
    listed: list[Change] = []
    columns: dict[Pair, str] = {}
    for where, one in _tables(table["link"], LinkTable, "[[link]]"):
        column = _column(one, where)
        for pair in _pairs(one, where):
            listed.append(Change(1, *pair, _cost(one, where)))
            columns |= {} if column is None else {pair: column}
    names = list(learners)
    links = Links(names, [(*p, None if p in columns else c or 0.0) for p, c in _costs(listed)])
    changes = _changes(table.get("link-change", []), links.copy(), listed)
    links.apply(one for one in listed if one.cost is None)
    _warn_of_dear(listed)
    moves = () if columns else tuple(price_changes(links, changes))
    ever = {(move.asker, move.peer) for move in moves if move.price is not None}
    if columns:
        ever = _in_reach(names, itertools.chain(listed, changes))
    return Wiring(links, tuple(changes), columns, moves, frozenset(ever))


def _costs(listed: Iterable[Change]) -> Iterator[tuple[Pair, float | None]]:
    return (((start, end), cost) for _, start, end, cost in listed)


def _in_reach(names: Sequence[str], changes: Iterable[Change]) -> set[Pair]:
    """Return who can be asked by whom if every link costs the least that it ever may."""
    least: dict[Pair, float] = {}
    for pair, cost in _costs(changes):
        if cost is not None:
            least[pair] = min(cost, least.get(pair, cost))
    return set(Links(names, [(*pair, cost) for pair, cost in least.items()]).prices())


def _changes(tables: object, listed: Links, first: Iterable[Change]) -> list[Change]:
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
            change = Change(one.slot, start, end, _cost(one, where))
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


def _pairs(table: _Ends, where: str) -> list[Pair]:
    one_way = (table.start, table.end)
    if table.between is not None and one_way == (None, None):
        start, end = table.between
        return [(start, end), (end, start)]
    if table.between is None and table.start is not None and table.end is not None:
        return [(table.start, table.end)]
    raise ConfigError(f"{where} needs either between = [one, other], or from and to")


def _column(table: LinkTable, where: str) -> str | None:
    if (table.cost is None) == (table.cost_column is None):
        raise ConfigError(f"{where} needs either cost, or cost-column")
    return table.cost_column


def _cost(table: LinkTable | ChangeTable, where: str) -> float | None:
    if table.cost is None:
        return 0.0  # that is learnt, from the least it can be
    if isinstance(table.cost, str):
        if table.cost != GONE:
            raise ConfigError(f'{where} cost is {table.cost!r}; it must be a number or "{GONE}"')
        return None
    return table.cost


def _warn_of_dear(listed: Iterable[Change]) -> None:
    for _, start, end, cost in listed:
        if cost is not None and cost > MOST_PRICE:
            warnings.warn(
                f"no path takes the link from {start!r} to {end!r}: its cost {cost:g} is above 1, "
                "more than a right label is worth",
                stacklevel=2,
            )
