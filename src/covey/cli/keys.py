"""The commands `covey keys` and `covey tokens`."""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from covey.cli.parser import Commands, add_common, describe
from covey.report import text as report_text
from covey.server import tokens

if TYPE_CHECKING:
    from covey.server.keys import KeyInfo

KEYS_EXAMPLES = """\
examples:
  covey keys new north --host 10.0.0.7             north.key stays there, north.crt is for clients
  covey keys show north.crt                        the table for the files of its peers
  covey keys show north.crt --key north.key
  covey keys renew north.crt --before 30d          same key, so its peers change nothing
"""
TOKENS_EXAMPLES = """\
examples:
  covey tokens new dashboard --scope read --scope metrics
  covey tokens new camera-7 --scope infer --scope feedback --days 30
  covey tokens list --json
  covey tokens revoke camera-7
"""


def add_keys(command: argparse.ArgumentParser) -> None:
    verbs = _verbs(command, "Make, show and end keys and certificates of sites.", KEYS_EXAMPLES)
    verb = _verb(verbs, "new", "make a site's key and certificate: NAME.key and NAME.crt")
    verb.add_argument("name", metavar="NAME", help="of the site: a-z, 0-9, single hyphens")
    verb.add_argument(
        "--host", action="append", default=[], metavar="HOST", help="address or host name; repeat"
    )
    verb.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="(default: here)")
    _add_days(verb, 365)
    add_common(verb, _keys)

    verb = _verb(verbs, "renew", "replace a certificate by a longer lasting one for the same key")
    verb.add_argument("certificate", type=Path, metavar="CERTIFICATE", help="NAME.crt")
    verb.add_argument(
        "--before", type=_days, metavar="DAYS", help="only if it lasts less, like 30d: for a timer"
    )
    _add_days(verb, 365)
    add_common(verb, _keys)

    verb = _verb(verbs, "show", "print a file's content, and its table for the files of peers")
    verb.add_argument("file", type=Path, metavar="FILE")
    verb.add_argument("--key", type=Path, metavar="FILE", help="fail unless this is its key")
    add_common(verb, _keys)


def add_tokens(command: argparse.ArgumentParser) -> None:
    verbs = _verbs(command, "Make, show and end bearer tokens of clients.", TOKENS_EXAMPLES)
    scopes = ", ".join(f"{scope} ({text})" for scope, text in tokens.SCOPES.items())
    verb = _verb(verbs, "new", "make a token and print it, once")
    verb.add_argument("name", metavar="NAME")
    verb.add_argument(
        "--scope", action="append", default=[], metavar="SCOPE", help=f"what it is for: {scopes}"
    )
    _add_days(verb, tokens.TOKEN_DAYS)
    _add_file(verb)
    add_common(verb, _new_token)

    verb = _verb(verbs, "list", "names, scopes and times of all tokens")
    _add_file(verb)
    add_common(verb, _list_tokens)

    verb = _verb(verbs, "revoke", "refuse a token from now on")
    verb.add_argument("name", metavar="NAME")
    _add_file(verb)
    add_common(verb, _revoke_token)


def _verbs(command: argparse.ArgumentParser, description: str, examples: str) -> Commands:
    describe(command, description, examples)
    return command.add_subparsers(title="commands", required=True, metavar="COMMAND")


def _verb(verbs: Commands, name: str, text: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    verb.set_defaults(verb=name)
    return verb


def _add_days(verb: argparse.ArgumentParser, days: int) -> None:
    verb.add_argument(
        "--days", type=int, default=days, metavar="N", help=f"how long it lasts (default: {days})"
    )


def _add_file(verb: argparse.ArgumentParser) -> None:
    path = Path("tokens.json")
    verb.add_argument("--file", type=Path, default=path, metavar="FILE", help=f"(default: {path})")


def _days(text: str) -> int:
    days = text.removesuffix("d")
    if not days.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}; it must be a number of days, like 30d")
    return int(days)


def _keys(options: argparse.Namespace) -> None:
    # Not at the top: only these commands need cryptography.
    from covey.server import keys

    advice = ""
    match options.verb:
        case "new":
            info = keys.new(options.name, hosts=options.host, folder=options.out, days=options.days)
            advice = f"{info.files[0]} stays here; tell each peer the key over a channel you trust"
        case "renew":
            renewed = keys.renew(options.certificate, before=options.before, days=options.days)
            info = renewed or keys.show(options.certificate)
            if renewed is None:
                advice = f"{options.certificate} lasts {info.days_left} days, so it is not renewed"
        case _:
            check = keys.show if options.key is None else partial(keys.check, key=options.key)
            info = check(options.file)
    print(_json(info) if options.json else "\n".join(_lines(info)))
    if advice:
        _say(advice, options)


def _new_token(options: argparse.Namespace) -> None:
    secret, token = tokens.new(options.file, options.name, scopes=options.scope, days=options.days)
    print(_json({"token": secret, **_public(token)}) if options.json else secret)
    _say(
        f"shown this once; {options.file} keeps only its hash. It ends on {_day(token.expires)}.",
        options,
    )


def _list_tokens(options: argparse.Namespace) -> None:
    held = tokens.listed(options.file)
    if options.json:
        print(_json({"tokens": [_public(token) for token in held]}))
        return
    lines = [
        (token.name, ", ".join(token.scopes), _day(token.created), _day(token.expires))
        for token in held
    ]
    print(report_text.table([("token", "scopes", "made on", "ends on"), *lines]))


def _revoke_token(options: argparse.Namespace) -> None:
    token = tokens.revoke(options.file, options.name)
    print(_json({"revoked": token.name}) if options.json else f"{token.name} is revoked")


def _public(token: tokens.Token) -> dict[str, object]:
    fields = msgspec.structs.asdict(token)
    del fields["sha256"]
    return fields


def _lines(info: "KeyInfo") -> Sequence[str]:
    lines = [
        ("kind", info.kind),
        ("name", info.name),
        ("hosts", ", ".join(info.hosts)),
        ("key", info.key),
        ("valid", _validity(info)),
        ("files", ", ".join(info.files)),
    ]
    shown = [f"{what:<11} {text}" for what, text in lines if text]
    return shown if info.allow is None else [*shown, "", info.allow]


def _validity(info: "KeyInfo") -> str | None:
    if info.state is None:
        return None
    span = f"{_day(info.valid_from)} to {_day(info.valid_until)}"
    rest = f"{info.days_left} days left" if info.state == "valid" else info.state
    return f"{span}, {rest}"


def _day(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d}"


def _json(record: object) -> str:
    return msgspec.json.encode(record).decode()


def _say(sentence: str, options: argparse.Namespace) -> None:
    if not options.quiet:
        print(sentence, file=sys.stderr)
