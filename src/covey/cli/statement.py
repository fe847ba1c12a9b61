"""The statement of a month: what a site paid its peers, and what peers pay it."""

import argparse
import csv
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from covey.errors import ConfigError
from covey.node.copies import opened_copy
from covey.node.database import DatabaseUrl
from covey.node.requests import Payment
from covey.node.store import Store
from covey.report.text import table
from covey.types import MILLIONTHS

COLUMNS = ("direction", "time", "peer", "id", "rows", "amount")


class Month(NamedTuple):
    """A month and its bounds in milliseconds since the epoch."""

    name: str
    since_ms: int
    until_ms: int


class Line(msgspec.Struct, frozen=True):
    """A payment, as both ends print it."""

    time: str
    peer: str
    id: str
    rows: int
    amount: float


class MonthlyStatement(msgspec.Struct, frozen=True):
    """What was paid in a month."""

    site: str
    month: str
    paid: list[Line]  # to peers
    received: list[Line]  # from peers: what they owe for answers of this site
    unstated: int  # payments of any month that peers do not know of yet


def month_of(text: str) -> Month:
    """Return a month from text like 2026-11; raise `ConfigError` if it is none."""
    if not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", text) or not "1970" <= text[:4] <= "9998":
        raise ConfigError(f"--month: {text!r} is not a month; write it like 2026-11")
    year, month = int(text[:4]), int(text[5:])
    bounds = [(year, month), (year + month // 12, month % 12 + 1)]
    since, until = (1_000 * int(datetime(*one, 1, tzinfo=UTC).timestamp()) for one in bounds)
    return Month(text, since, until)


def statement_of(place: Path | DatabaseUrl, month: Month) -> MonthlyStatement:
    """Return the statement of a store, which may be in use."""
    with opened_copy(place) as store:
        return _read(store, month)


def _read(store: Store, month: Month) -> MonthlyStatement:
    paid, received = (
        [_line(one) for one in store.payments(*month[1:], is_ours=is_ours)]
        for is_ours in (True, False)
    )
    return MonthlyStatement(store.name(), month.name, paid, received, len(store.unstated()))


def _line(one: Payment) -> Line:
    at = datetime.fromtimestamp(one.at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return Line(at.replace("+00:00", "Z"), one.peer, one.id, one.rows, one.amount / MILLIONTHS)


def run(options: argparse.Namespace) -> None:
    """Print the statement that the options of the command line name."""
    if options.csv and options.json:
        raise ConfigError("--csv and --json exclude each other; give one of them")
    found = statement_of(options.store, month_of(options.month))
    if options.json:
        print(msgspec.json.encode(found).decode())
    elif options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        for direction, lines in (("paid", found.paid), ("received", found.received)):
            writer.writerows([direction, *msgspec.structs.astuple(one)] for one in lines)
    else:
        print(_text(found))


def _text(found: MonthlyStatement) -> str:
    parts = [f"site {found.site}, {found.month} (UTC)"]
    for title, lines in (("paid to peers", found.paid), ("owed by peers", found.received)):
        parts.append("\n".join([title, *_listed(lines)]) if lines else f"{title}: nothing")
    if found.unstated:
        parts.append(f"{found.unstated} payments are not known to the peer yet")
    return "\n\n".join(parts)


def _listed(lines: Sequence[Line]) -> list[str]:
    shown = [
        (one.time, one.peer, _plain(one.id), f"{one.rows:,}", f"{one.amount:,.6f}") for one in lines
    ]
    totals = []
    for peer in sorted({one.peer for one in lines}):
        mine = [one for one in lines if one.peer == peer]
        amount = sum(round(one.amount * MILLIONTHS) for one in mine) / MILLIONTHS
        rows = sum(one.rows for one in mine)
        totals.append(f"{peer}: {len(mine):,} requests, {rows:,} rows, {amount:,.6f}")
    return [table([COLUMNS[1:], *shown]), *totals]


def _plain(text: str) -> str:
    """Return printable text: a peer chooses the ids of what it asks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
