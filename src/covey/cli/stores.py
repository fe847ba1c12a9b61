"""The commands that read the store of a site, which may be running: export and report."""

import argparse
import sys
from pathlib import Path

import msgspec

from covey.cli.parser import add_common, as_store, describe, show
from covey.errors import ConfigError
from covey.report import replay as replay_report
from covey.report.export import Exported, export
from covey.report.stores import stored_result, stored_site

REPORT_EXAMPLES = """\
examples:
  covey report north.store
  covey report north.store --config site.toml --report out/
  covey report north.store --json | jq .shadow.estimates

It reads a copy of the store, so the site may be running. With `shadow` in the [node] table of the
site, it also estimates what other choices would have done.
"""
STORE_HELP = "the store of a node: a file, or postgresql://..."
EXPORT_EXAMPLES = """\
examples:
  covey export north.store --out log.parquet --config site.toml
  covey replay log.parquet --config log.toml
  covey export north.store --out log.csv --json | jq .sampled

It reads a copy of the store, so the site may be running. Beside the log it writes a configuration
(log.toml), which replays the rows that have the predictions of all functions: those that were drawn
by `shadow` in the [node] table of the site.
"""


def add_report(command: argparse.ArgumentParser) -> None:
    """Add what `covey report` takes."""
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
    """Add what `covey export` takes."""
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
    command.add_argument("store", type=as_store, metavar="STORE", help=STORE_HELP)
    what = "the site's configuration: units of contexts, policy, prices"
    command.add_argument("--config", type=Path, metavar="SITE", help=what)


def _report(options: argparse.Namespace) -> None:
    if options.report is not None:
        replay_report.check_folder(options.report)
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
    found = export(site, options.out, config=options.config)
    if options.json:
        print(msgspec.json.encode(found).decode())
    else:
        print(_told(found))
    if found.sampled:
        print(f"try: covey replay {found.log} --config {found.config}", file=sys.stderr)


def _resolved(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()


def _told(found: Exported) -> str:
    text = f"{found.rows:,} rows, {found.labelled:,} with a label, are in {found.log}. "
    if not found.sampled:
        return text + (
            "None has the predictions of all functions, which a replay needs; set shadow = 0.05 in "
            "the [node] table of the site, to draw 5 % of the rows."
        )
    peers = f", and of {', '.join(found.with_peers)}" if found.with_peers else ""
    return text + (
        f"{found.sampled:,} have the predictions of all functions{peers}; {found.config} replays "
        "them."
    )
