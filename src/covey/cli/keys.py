"""The commands `covey keys` and `covey tokens`."""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from covey.report import text as report_text
from covey.server import tokens

if TYPE_CHECKING:
    from covey.server.keys import KeyInfo


def run_keys(options: argparse.Namespace) -> None:
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


def run_tokens(options: argparse.Namespace) -> None:
    verbs = {"new": _new_token, "list": _list_tokens, "revoke": _revoke_token}
    verbs[options.verb](options)


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
