"""The command line. Messages and progress go to standard error, results to standard output.

Exit codes: 0 done, 1 unexpected failure, 2 bad input (with a message); under `covey serve` 74 store
failure, 75 address in use; 130 interrupted. `covey doctor` exits with 1
for a site that will not work.
"""

import argparse
import contextlib
import importlib
import itertools
import re
import sys
import textwrap
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from covey.errors import ConfigError, CoveyError, StoreFailed
from covey.store.database import DatabaseUrl, store_place

MODULES = {  # module of `covey.cli` -> commands, which its functions `run_<name>` run
    "commands": ("init", "replay", "compare", "advise", "demo", "simulate", "bounds"),
    "keys": ("keys", "tokens"),
    "serve": ("check", "doctor", "plan", "serve", "status"),
    "stores": ("report", "export", "backup", "migrate", "statement"),
}
COMMANDS = {name: module for module, names in MODULES.items() for name in names}


COMMON = (  # arguments of all commands
    {"names": "--json", "action": "store_true", "help": "print the summary as one JSON object"},
    {"names": "--quiet", "action": "store_true", "help": "no progress on standard error"},
    {"names": "--debug", "action": "store_true", "help": "show the traceback of a failure"},
)


class CommandParser(argparse.ArgumentParser):
    """A parser that knows what a misspelt word may mean."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options with what they may mean, and parse as argparse does."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        for argument in itertools.takewhile("--".__ne__, sys.argv[1:] if args is None else args):
            option = argument.partition("=")[0]
            is_known = any(name.startswith(option) for name in options)
            if option.startswith("--") and not is_known and self._subparsers is None:
                self.error(f"unknown option {option}{_hint(option, options)}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the usage and a message, and exit with 2."""
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice is not None:
            name, commands = choice[1], re.findall(r"[\w-]+", choice[2])
            message = (
                f"unknown command {name!r}{_hint(name, commands)}; known: {', '.join(commands)}"
            )
        super().error(message)


def _hint(word: str, options: Sequence[str]) -> str:
    from covey.toml import nearest  # not for `covey --help`, which imports little

    return nearest(word, options)


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
            made = parser()
            options = made.parse_args(arguments, options)
            if options.run is None:
                made.print_help()
            code = 0 if options.run is None else _run(options)
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
    return code


def _run(options: argparse.Namespace) -> int:
    """Run a command, which imports only what it needs; return its exit code."""
    if getattr(options, "report", None) is not None:
        from covey.report.results import check_folder

        check_folder(options.report)
    module = importlib.import_module(f"covey.cli.{COMMANDS[options.run]}")
    return getattr(module, f"run_{options.run}")(options) or 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = CommandParser(
        prog="covey",
        description="Independent sites classify their data streams cooperatively.",
        epilog="exit codes: 0 done, 1 unexpected failure, 2 bad input, 74 store failure "
        "under `covey serve`, 130 interrupted",
    )
    shown = "show the version of covey and the form of its kernel"
    made.add_argument("--version", action=_Version, nargs=0, help=shown)
    text = resources.files("covey.cli").joinpath("commands.toml").read_text("utf-8")
    add_commands(made, tomllib.loads(text))
    return made


def add_commands(
    parser: argparse.ArgumentParser, tables: Mapping[str, Any], run: str | None = None
) -> None:
    """Add the commands of `commands.toml`, or the verbs of the command `run`."""
    parser.set_defaults(run=run)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=run is not None)
    for name, table in tables.items():
        line = table["line"]
        listed = [
            f"{what}: {', '.join(table[key])}\n\n"
            for key, what in (("presets", "presets of [policy]"), ("baselines", "baselines"))
            if key in table
        ]
        if "examples" in table:
            listed.append(f"examples:\n{textwrap.indent(table['examples'], '  ')}")
        command = commands.add_parser(
            name,
            help=line,
            description=table.get("description", f"{line[0].upper()}{line[1:]}."),
            epilog="".join(listed),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if "verbs" in table:
            add_commands(command, table["verbs"], run=name)
        else:
            add_arguments(command, [*table["arguments"], *COMMON])
            command.set_defaults(run=run or name, verb=name)


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[Mapping[str, Any]]) -> None:
    """Add the arguments of a table of `commands.toml`."""
    groups: dict[str | None, Any] = {}
    for argument in arguments:
        keys = dict(argument)
        names, group = keys.pop("names"), keys.pop("either", None)
        if "type" in keys:
            keys["type"] = TYPES[keys["type"]]
        if group not in groups:
            groups[group] = command.add_mutually_exclusive_group() if group else command
        groups[group].add_argument(names, **keys)


def as_store(text: str) -> Path | DatabaseUrl:
    """Return the place of a store that an argument gives; a message never repeats it."""
    try:
        return store_place(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def show(result: Any, options: argparse.Namespace, **how: Any) -> None:
    """Print a result: its numbers as JSON, or its table; write its report if there is a folder."""
    print(result.json() if options.json else result.table())
    if getattr(options, "report", None) is not None:
        print(f"report: {result.report(options.report, **how)}", file=sys.stderr)


def as_number(text: str) -> float:
    """Return the number that an argument gives."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def names_in(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _as_count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


def _as_days(text: str) -> int:
    days = text.removesuffix("d")
    if not days.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}; it must be a number of days, like 30d")
    return int(days)


def _as_prices(text: str) -> list[float]:
    prices = [as_number(number) for number in names_in(text)]
    if not prices or not all(0 <= price <= 1 for price in prices):
        raise argparse.ArgumentTypeError(f"{text!r}: prices are numbers from 0 to 1")
    return prices


def _as_whole(text: str) -> float:
    """Return a number; whole numbers as int, also if written like 1e6."""
    number = as_number(text)
    return int(number) if number.is_integer() and abs(number) <= 2**53 else number


TYPES: Mapping[str, Callable[[str], Any]] = {  # that an argument of `commands.toml` can have
    "path": Path,
    "days": _as_days,
    "store": as_store,
    "number": _as_whole,
    "whole": int,
    "count": _as_count,
    "counts": lambda text: [_as_count(number) for number in names_in(text)],
    "names": names_in,
    "prices": _as_prices,
}


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
