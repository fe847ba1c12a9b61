"""The command that copies a store to another database."""

import argparse
import sys

import msgspec

from covey.cli.parser import add_common, as_store, describe
from covey.node.copies import move

EXAMPLES = """\
examples:
  covey migrate north.store postgresql://covey@db.example/north
  covey migrate postgresql://covey@db.example/north sqlite:north.store

The node must be stopped. All rows are copied with their checksums, in one transaction, and checked
there as `covey check` does it. The first store is only read: move it away afterwards, so that no
node starts with it again.

Exit codes: 0 copied, 2 nothing was written: a store is damaged, in use, or not empty.
"""


def add_migrate(command: argparse.ArgumentParser) -> None:
    """Add what `covey migrate` takes."""
    describe(
        command,
        "Copy the store of a node from a file to a PostgreSQL database, or back.",
        EXAMPLES,
    )
    place_help = "a file, or postgresql://..."
    command.add_argument("source", type=as_store, metavar="FROM", help=place_help)
    command.add_argument("target", type=as_store, metavar="TO", help=f"{place_help}, empty")
    add_common(command, _migrate)


def _migrate(options: argparse.Namespace) -> None:
    def tell(text: str) -> None:
        if not options.quiet:
            print(text, file=sys.stderr)

    size = move(options.source, options.target, tell)
    if options.json:
        print(msgspec.json.encode(size).decode())
    else:
        print("{rows} rows, {labels} with label, {deliveries} undelivered to peers".format(**size))
        print(f"{options.target} has all of them; move {options.source} away")
