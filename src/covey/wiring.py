"""The `[[link]]` and `[[link-change]]` tables of a configuration."""

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
    """The link, or the two links, of a table."""

    between: tuple[str, str] | None = None
    start: str | None = None
    end: str | None = None


class LinkTable(Ends, frozen=True, kw_only=True, rename=NAMES):
    """A `[[link]]` table; a change can add a link that is initially "gone"."""

    cost: float | str | None = None
    cost_column: str | None = None  # of the observed cost per use, which is learnt
    guess: float | None = None  # initial estimate of a learnt cost


class ChangeTable(Ends, frozen=True, kw_only=True, rename=NAMES):
    """A `[[link-change]]` table: the cost of a link from a slot on."""

    cost: float | str
    slot: int


class Wiring(NamedTuple):
    """The initial links, their changes, and all pairs that are ever connected."""

    links: Links
    changes: tuple[Change, ...]  # by slot
    tolls: dict[Pair, str]  # link with a learnt cost -> column of its observed cost
    reach: frozenset[Pair]  # asker and peer

    @property
    def is_moving(self) -> bool:
        """Whether prices can change."""
        return bool(self.changes or self.tolls)

    def peers(self, asker: str) -> dict[str, float]:
        """Return all peers ever reachable from a learner, with initial prices; inf: not yet."""
        first = self.links.prices()
        return {
            end: first.get((start, end), math.inf) for start, end in self.reach if start == asker
        }


def parse(table: Mapping[str, Any], learners: Iterable[str]) -> Wiring | None:
    """Return the links of a configuration; None without link tables.

    Raises `ConfigError` that names the invalid link or table.
    """
    if "link" not in table:
        if "link-change" in table:
            raise ConfigError("[[link-change]] without [[link]]; list the links first")
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
    """Return all pairs that can ever be connected: learnt costs count as 0."""
    links = links.copy()
    links.apply(Change(1, *pair, 0.0) for pair in learnt)
    later = price_changes(links, changes)
    found = {(move.asker, move.peer) for move in later if move.price is not None}
    return frozenset(found | links.prices().keys())


def _check_source(table: LinkTable, where: str) -> None:
    if (table.cost is None) == (table.cost_column is None):
        raise ConfigError(f"{where} needs either cost, or cost-column for a learnt cost")
    if table.guess is None:
        return
    if table.cost is not None:
        raise ConfigError(f"{where} has cost and guess; remove one of them")
    if not 0 <= table.guess <= MOST_PRICE:
        raise ConfigError(f"{where} guess is {table.guess}; it must lie in [0, 1]")


def _changes(
    tables: object, listed: Links, first: Iterable[Change], tolls: Mapping[Pair, str]
) -> list[Change]:
    """Return the changes in order of their slots; each is of a listed link."""
    now = {(one.start, one.end): one for one in first}
    changes: list[Change] = []
    for where, one in _tables(tables, ChangeTable, "[[link-change]]"):
        _check_slot(one.slot, changes[-1].slot if changes else 2, where)
        for start, end in _pairs(one, where):
            if not listed.has(start, end):
                raise ConfigError(
                    f"{where}: no [[link]] from {start!r} to {end!r}; add one, with "
                    f'cost = "{GONE}" if it is initially absent'
                )
            if (start, end) in tolls:
                raise ConfigError(
                    f"{where}: the cost of the link from {start!r} to {end!r} is learnt from "
                    f"{tolls[start, end]!r}; remove the change, or set a cost for the link"
                )
            change = Change(one.slot, start, end, _cost(one.cost, where))
            _check_step(now[start, end], change, where)
            now[start, end] = change
            changes.append(change)
    return changes


def _check_slot(slot: int, earliest: int, where: str) -> None:
    if slot < 2:
        raise ConfigError(
            f"{where} slot is {slot}; it must be 2 or more ([[link]] sets the initial cost)"
        )
    if slot < earliest:
        raise ConfigError(
            f"{where} slot is {slot}, but the previous one is {earliest}; list changes in order"
        )


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
                f"the link from {start!r} to {end!r} is never used: its cost {cost:g} is above 1, "
                "the value of a correct label",
                stacklevel=2,
            )
