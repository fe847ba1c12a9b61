"""The commands on the store of a site: some read it, backup and migrate copy it."""

import argparse
import csv
import re
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import date, timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from covey.cli.parser import show
from covey.errors import ConfigError, StoreError
from covey.report.text import table
from covey.site.requests import NO_PEERS, DayPayments
from covey.store import tables
from covey.store.database import DatabaseUrl
from covey.store.reading import Exported, export, stored_result, stored_site
from covey.store.store import Store
from covey.types import MILLIONTHS


def run_report(options: argparse.Namespace) -> None:
    show(stored_result(options.store, config=options.config), options)


def run_export(options: argparse.Namespace) -> None:
    written = options.out.with_suffix(".toml").resolve()
    if options.config is not None and options.config.resolve() == written:
        raise ConfigError(
            f"{options.config} would be overwritten by the configuration of the log; name another "
            "file with --out"
        )
    site = stored_site(options.store, config=options.config)
    exported = export(site, options.out, config=options.config)
    if options.json:
        print(msgspec.json.encode(exported).decode())
    else:
        print(_told(exported))
    if exported.sampled:
        print(f"try: covey replay {exported.log} --config {exported.config}", file=sys.stderr)


def _told(exported: Exported) -> str:
    text = f"{exported.rows:,} rows, {exported.labelled:,} with a label, are in {exported.log}. "
    if not exported.sampled:
        return text + (
            "None has the predictions of all functions, which a replay needs; set shadow = 0.05 in "
            "the [node] table of the site, to draw 5 % of the rows."
        )
    return text + (
        f"{exported.sampled:,} have the predictions of all functions; {exported.config} replays "
        "them."
    )


AT_ONCE = 4_096  # rows that are written together


def run_migrate(options: argparse.Namespace) -> None:
    with closing(Store(options.source, is_new_allowed=False)) as old:
        _copy(old, options)
    if not options.json:
        print(f"{options.target} has all of them; move {options.source} away")


def run_backup(options: argparse.Namespace) -> None:
    with Store.reading(options.source) as old:
        _copy(old, options)


def _copy(old: Store, options: argparse.Namespace) -> None:
    """Copy a store to a place where there is none, and print its size.

    The copy is checked, as `covey check` does, before it is complete. Raises `StoreError` if it
    cannot be made; then the target holds no site, and the source is as it was in any case.
    """

    def tell(text: str) -> None:
        if not options.quiet:
            print(text, file=sys.stderr)

    with closing(Store(options.target, tell=tell)) as new:
        if new.name():  # a site was started with it
            raise StoreError(f"there is a store in {new.path} already; give an empty place")
        tell(f"{old.path} has {old.size()['rows']} rows; they are checked and copied")
        with new.filling() as write:
            for name in tables.TABLES:
                waiting = iter(old.stored_rows(name))
                while rows := list(islice(waiting, AT_ONCE)):
                    write(name, rows)
        size = new.size()
    if options.json:
        print(msgspec.json.encode(size).decode())
    else:
        print("{rows} rows, {labels} with label, {deliveries} undelivered to peers".format(**size))


COLUMNS = ("day", "peer", "requests", "rows", "amount")
EPOCH = date(1970, 1, 1)


class Month(NamedTuple):
    """A month and its days, since the epoch."""

    name: str
    days: range


class Line(msgspec.Struct, frozen=True):
    """What was paid for the answers of a day."""

    day: str
    peer: str
    requests: int
    rows: int
    amount: float


class MonthlyStatement(msgspec.Struct, frozen=True):
    """What was paid in a month, as the site itself counted it."""

    site: str
    month: str
    paid: list[Line]  # to peers, for their answers
    earned: list[Line]  # from peers, for answers of this site


def month_of(text: str) -> Month:
    """Return a month from text like 2026-11; raise `ConfigError` if it is none."""
    if not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", text) or not "1970" <= text[:4] <= "9998":
        raise ConfigError(f"--month: {text!r} is not a month; write it like 2026-11")
    year, month = int(text[:4]), int(text[5:])
    bounds = (date(year, month, 1), date(year + month // 12, month % 12 + 1, 1))
    return Month(text, range(*((day - EPOCH).days for day in bounds)))


def statement_of(place: Path | DatabaseUrl, month: Month) -> MonthlyStatement:
    """Return the statement of a store, which may be in use."""
    with Store.reading(place) as store:
        days = [
            payment
            for payment in store.all(DayPayments)
            if payment.day in month.days and payment.peer not in NO_PEERS
        ]
        paid, earned = (
            [_line(day) for day in days if day.is_ours == is_ours] for is_ours in (True, False)
        )
        return MonthlyStatement(store.name(), month.name, paid, earned)


def _line(payments: DayPayments) -> Line:
    day = (EPOCH + timedelta(payments.day)).isoformat()
    return Line(day, payments.peer, payments.requests, payments.rows, payments.amount / MILLIONTHS)


def run_statement(options: argparse.Namespace) -> None:
    if options.csv and options.json:
        raise ConfigError("--csv and --json exclude each other; give one of them")
    statement = statement_of(options.store, month_of(options.month))
    if options.json:
        print(msgspec.json.encode(statement).decode())
    elif options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("direction", *COLUMNS))
        for direction, lines in (("paid", statement.paid), ("earned", statement.earned)):
            writer.writerows([direction, *msgspec.structs.astuple(line)] for line in lines)
    else:
        print(_text(statement))


def _text(statement: MonthlyStatement) -> str:
    parts = [f"site {statement.site}, {statement.month} (UTC)"]
    sides = {"paid to peers": statement.paid, "earned from peers": statement.earned}
    for title, lines in sides.items():
        parts.append("\n".join([title, *_listed(lines)]) if lines else f"{title}: nothing")
    return "\n\n".join(parts)


def _listed(lines: Sequence[Line]) -> list[str]:
    shown = [
        (line.day, line.peer, f"{line.requests:,}", f"{line.rows:,}", f"{line.amount:,.6f}")
        for line in lines
    ]
    totals = []
    for peer in sorted({line.peer for line in lines}):
        own = [line for line in lines if line.peer == peer]
        amount = sum(round(line.amount * MILLIONTHS) for line in own) / MILLIONTHS
        rows, requests = sum(line.rows for line in own), sum(line.requests for line in own)
        totals.append(f"{peer}: {requests:,} requests, {rows:,} rows, {amount:,.6f}")
    return [table([COLUMNS, *shown]), *totals]
