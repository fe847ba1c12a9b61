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

from covey.cli.parser import add_common, add_store, as_store, describe, show
from covey.errors import ConfigError, StoreError
from covey.node import tables
from covey.node.database import DatabaseUrl
from covey.node.export import Exported, export
from covey.node.reading import stored_result, stored_site
from covey.node.requests import DayPayments
from covey.node.store import Store
from covey.report.results import check_folder
from covey.report.text import table
from covey.types import MILLIONTHS

REPORT_EXAMPLES = """\
examples:
  covey report north.store
  covey report north.store --config site.toml --report out/
  covey report north.store --json | jq .shadow.estimates

The site may be running. With `shadow` in the [node] table of the site, it also estimates what other
choices would have done.
"""
EXPORT_EXAMPLES = """\
examples:
  covey export north.store --out log.parquet --config site.toml
  covey replay log.parquet --config log.toml
  covey export north.store --out log.csv --json | jq .sampled

The site may be running. Beside the log it writes a configuration (log.toml), which replays the rows
that have the predictions of all functions: those that were drawn by `shadow` in the [node] table of
the site.
"""


def add_report(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Report what a served site did, from its store: error, cost, decisions of each arm, cells "
        "and their preferred arms, over time.",
        REPORT_EXAMPLES,
    )
    _add_store(command)
    command.add_argument(
        "--report", type=Path, metavar="DIR", help="folder for report.html and summary.json"
    )
    add_common(command, _report)


def add_export(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Write the rows of a served site as a log: decisions, labels, contexts, and predictions "
        "that are known, with a configuration to replay them.",
        EXPORT_EXAMPLES,
    )
    _add_store(command)
    command.add_argument(
        "--out", type=Path, required=True, metavar="LOG", help="a .csv or .parquet file"
    )
    add_common(command, _export)


def _add_store(command: argparse.ArgumentParser) -> None:
    add_store(command)
    what = "the site's configuration: units of contexts, policy, prices"
    command.add_argument("--config", type=Path, metavar="SITE", help=what)


def _report(options: argparse.Namespace) -> None:
    if options.report is not None:
        check_folder(options.report)
    result = stored_result(options.store, config=options.config)
    show(result, options)
    if options.report is not None:
        print(f"report: {result.report(options.report)}", file=sys.stderr)


def _export(options: argparse.Namespace) -> None:
    if options.out.with_suffix(".toml").resolve() == _resolved(options.config):
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


def _resolved(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()


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
MIGRATE_EXAMPLES = """\
examples:
  covey migrate north.store postgresql://covey@db.example/north
  covey migrate postgresql://covey@db.example/north sqlite:north.store

The node must be stopped. All rows are copied with their checksums, in one transaction, and checked
there as `covey check` does it. The first store is only read: move it away afterwards, so that no
node starts with it again.

Exit codes: 0 copied, 2 nothing was written: a store is damaged, in use, or not empty.
"""


BACKUP_EXAMPLES = """\
examples:
  covey backup north.store north.copy
  covey backup postgresql://covey@db.example/north north.copy

The node may run: the copy is the store at one instant, checked as `covey check` does it. Never
serve from a copy while the original serves.

Exit codes: 0 copied, 2 nothing was written: the store is damaged, or the place is not empty.
"""


def add_migrate(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Copy the store of a node from a file to a PostgreSQL database, or back.",
        MIGRATE_EXAMPLES,
    )
    _add_places(command)
    add_common(command, _migrate)


def add_backup(command: argparse.ArgumentParser) -> None:
    describe(command, "Copy the store of a node, which may run meanwhile.", BACKUP_EXAMPLES)
    _add_places(command)
    add_common(command, _backup)


def _add_places(command: argparse.ArgumentParser) -> None:
    place_help = "a file, or postgresql://..."
    command.add_argument("source", type=as_store, metavar="FROM", help=place_help)
    command.add_argument("target", type=as_store, metavar="TO", help=f"{place_help}, empty")


def _migrate(options: argparse.Namespace) -> None:
    with closing(Store(options.source, is_new_allowed=False)) as old:
        _copy(old, options)
    if not options.json:
        print(f"{options.target} has all of them; move {options.source} away")


def _backup(options: argparse.Namespace) -> None:
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


STATEMENT_EXAMPLES = """\
examples:
  covey statement north.store --month 2026-11
  covey statement north.store --month 2026-11 --csv >north-2026-11.csv

The site may be running. Days are UTC, by its own clock. A peer counts an answer that it gave also
if it came too late here; then its statement has more rows.
"""


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


def add_statement(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Print what a site paid its peers for answers in a month, and what peers paid it, by day: "
        "requests, rows that were answered, and the amount.",
        STATEMENT_EXAMPLES,
    )
    month_help = "the month, like 2026-11 (UTC)"
    add_store(command)
    command.add_argument("--month", required=True, metavar="MONTH", help=month_help)
    command.add_argument("--csv", action="store_true", help="print the lines as CSV")
    add_common(command, _statement)


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
        days = [payment for payment in store.all(DayPayments) if payment.day in month.days]
        paid, earned = (
            [_line(day) for day in days if day.is_ours == is_ours] for is_ours in (True, False)
        )
        return MonthlyStatement(store.name(), month.name, paid, earned)


def _line(payments: DayPayments) -> Line:
    day = (EPOCH + timedelta(payments.day)).isoformat()
    return Line(day, payments.peer, payments.requests, payments.rows, payments.amount / MILLIONTHS)


def _statement(options: argparse.Namespace) -> None:
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
    for title, lines in (
        ("paid to peers", statement.paid),
        ("earned from peers", statement.earned),
    ):
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
