"""The command line. Messages and progress go to standard error, results to standard output.

Exit codes: 0 done, 1 unexpected failure, 2 bad input (with a message), 74 store failure under
`covey serve`, 130 interrupted. `covey doctor` exits with 1 for a site that will not work.
"""

import argparse
import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from covey.errors import ConfigError, CoveyError, StoreFailed
from covey.node.database import DatabaseUrl, store_place

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

COMMANDS = {  # name -> module of `covey.cli` with its function `add_<name>`, line of the list
    "init": ("commands", "write a first configuration for a log"),
    "replay": ("commands", "replay a log of predictions: gain and cost of cooperation"),
    "compare": ("commands", "replay presets and slices side by side on one log"),
    "demo": ("commands", "replay generated attacks on four sites"),
    "simulate": ("commands", "measure the regret of policies in simulated environments"),
    "bounds": ("commands", "evaluate the theorems' regret bounds"),
    "report": ("stores", "report what a served site did, from its store"),
    "export": ("stores", "write the rows of a served site as a log, to replay them"),
    "keys": ("keys", "keys and certificates of sites"),
    "tokens": ("keys", "bearer tokens of clients"),
    "backup": ("stores", "copy a node's store while the node runs"),
    "check": (
        "serve",
        "check a node's store for damage, and that its counters agree with its labels",
    ),
    "doctor": ("serve", "check a site's configuration and all that it names"),
    "migrate": ("stores", "copy a node's store to another database"),
    "plan": ("serve", "say what a site's configuration would change in its store"),
    "serve": ("serve", "run a node: predictions and labels over HTTP"),
    "statement": ("stores", "print what a site paid its peers in a month, and what it earned"),
    "status": (
        "serve",
        "print the state of a node: phases, arms, peers, open tickets, undelivered labels",
    ),
}


class CommandParser(argparse.ArgumentParser):
    """The parser of a command, whose arguments are added once it is used.

    So `covey --help` imports no command, and a command only what it needs.
    """

    module: str | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the arguments, unless that is done, and parse as argparse does."""
        if self.module is not None:
            module, self.module = importlib.import_module(f"covey.cli.{self.module}"), None
            getattr(module, f"add_{self.prog.split()[-1]}")(self)
        return super().parse_known_args(args, namespace)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        import covey
        from covey import kernel

        form = "compiled" if kernel.is_compiled() else "plain Python; `make fast` compiles it"
        print(f"covey {covey.__version__} (kernel: {form})")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = argparse.Namespace(debug=False)
    try:
        with _plain_warnings():
            options = parser().parse_args(arguments)
            code: int | None = options.run(options)
    except StoreFailed as error:
        return _fail(options, error, 74)  # EX_IOERR of `sysexits.h`
    except CoveyError as error:
        return _fail(options, error, 2)
    except KeyboardInterrupt:
        print("covey: interrupted; no file is incomplete", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        return _fail(options, error, 1)
    return code or 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="covey",
        description="Independent sites classify their data streams cooperatively.",
        epilog="exit codes: 0 done, 1 unexpected failure, 2 bad input, 74 store failure "
        "under `covey serve`, 130 interrupted",
    )
    shown = "show the version of covey and the form of its kernel"
    made.add_argument("--version", action=_Version, nargs=0, help=shown)
    commands = made.add_subparsers(
        title="commands", required=True, metavar="COMMAND", parser_class=CommandParser
    )
    for name, (module, line) in COMMANDS.items():
        commands.add_parser(name, help=line).module = module
    return made


def describe(command: argparse.ArgumentParser, description: str, examples: str) -> None:
    """Give a command its description and examples."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description, command.epilog = description, examples


def add_common(command: argparse.ArgumentParser, run: object) -> None:
    """Add the options that all commands share, and the function that `main` calls."""
    command.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    command.add_argument("--quiet", action="store_true", help="no progress on standard error")
    command.add_argument("--debug", action="store_true", help="show the traceback of a failure")
    command.set_defaults(run=run)


def add_store(command: argparse.ArgumentParser) -> None:
    what = "the store of a node: a file, or postgresql://..."
    command.add_argument("store", type=as_store, metavar="STORE", help=what)


def as_store(text: str) -> Path | DatabaseUrl:
    """Return the place of a store that an argument gives; a message never repeats it."""
    try:
        return store_place(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def show(result: Any, options: argparse.Namespace) -> None:
    """Print a result: its numbers as JSON, or its table."""
    print(result.json() if options.json else result.table())


def as_number(text: str) -> float:
    """Return the number that an argument gives."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _fail(options: argparse.Namespace, error: Exception, code: int) -> int:
    if options.debug:
        raise error
    is_known = isinstance(error, CoveyError)
    message = error if is_known else f"{type(error).__name__}: {error} (--debug shows where)"
    print(f"covey: {message}", file=sys.stderr)
    return code


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings as one line each, without the source line that raised them."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: print(
            f"covey: warning: {message}", file=sys.stderr
        )
        yield
