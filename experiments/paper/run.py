"""Recompute every table of the paper on its data; `make paper` runs this script."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from covey.errors import CoveyError
from covey.report.text import Progress
from reproduction import report
from reproduction.run import Options, reproduce
from reproduction.tables import NAMES

EXAMPLES = """\
examples:
  python experiments/paper/run.py --data FOLDER
  python experiments/paper/run.py sim_results callcost --data FOLDER --out paper
  python experiments/paper/run.py --data FOLDER --out paper --json | jq .claims
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the reproduction; return 0 if done, 2 for bad input, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    try:
        _reproduce(options)
    except KeyboardInterrupt:
        print(
            f"\npaper: interrupted; {options.out} keeps the finished cases, and the same command "
            "resumes",
            file=sys.stderr,
        )
        return 130
    except CoveyError as error:
        if options.debug:
            raise
        print(f"paper: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Recompute every table of the paper on the KDD Cup 1999 data; report which "
        "printed numbers come out, which do not, and why. Interrupted runs resume.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "table", nargs="*", metavar="TABLE", help=f"{', '.join(NAMES)} (default: all)"
    )
    parser.add_argument(
        "--data", type=Path, metavar="PATH", help="folder of the data (default: COVEY_DATA)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent,
        metavar="FOLDER",
        help="finished cases, README.md, report.html and summary.json (default: experiments/paper)",
    )
    parser.add_argument(
        "--any-file", action="store_true", help="accept data other than the paper's"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--workers", type=_count, metavar="N", help="processes (default: one per core)"
    )
    where.add_argument("--on", metavar="CLUSTER", help="ray, or ray://host:port: a Ray cluster")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    parser.add_argument("--debug", action="store_true", help="show the traceback of a failure")
    return parser


def _reproduce(options: argparse.Namespace) -> None:
    chosen = Options(
        options.table, options.data, options.out, options.any_file, options.workers, options.on
    )
    with Progress("paper", is_quiet=options.quiet) as progress:
        found = reproduce(chosen, progress=progress)
    page = report.write(found, chosen.folder)
    if options.json:
        print(msgspec.json.encode(report.summary(found)).decode())
    else:
        print(report.text(found))
    print(f"report: {page}", file=sys.stderr)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
