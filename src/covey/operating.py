"""The commands `covey serve`, `check`, `doctor` and `status`."""

import argparse
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from covey import notices
from covey.errors import CoveyError, StoreError
from covey.node.store import Store

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Finish = Callable[[argparse.ArgumentParser, object], None]
TOKEN_VARIABLE = "COVEY_TOKEN"  # noqa: S105 - the name of it
CLEAR = "\x1b[H\x1b[2J"

SERVE_EXAMPLES = """\
examples:
  covey doctor site.toml && covey serve site.toml
  covey serve site.toml --log json 2>site.log

It prints the URL for clients and, if there is one, the URL for peers. SIGTERM and SIGINT stop it
after requests in progress are answered; a second signal stops it at once. SIGHUP reloads
certificates; changed token files are noticed without it.

Exit codes: 0 stopped by a signal, 2 a file, a key, a port or a store that cannot be used, 74 the
store could not be written: check the disk, and restart.
"""
DOCTOR_EXAMPLES = """\
examples:
  covey doctor site.toml
  covey doctor site.toml --json | jq '.findings[] | select(.state != "ok")'

Nothing is changed, here or at peers, so it may run while the node runs. Exit codes: 0 no failure
(there may be warnings), 1 something will not work.
"""
STATUS_EXAMPLES = """\
examples:
  covey status http://127.0.0.1:8080/v2/models/north
  covey status https://north.example:8080/v2/models/north --ca ca.crt --token-file token
  COVEY_TOKEN=covey_... covey status https://127.0.0.1:8080/v2/models/north --ca ca.crt --watch 2
  covey status http://127.0.0.1:8080/v2/models/north --json | jq .owed

The URL is the one that `covey serve` prints; a token needs scope `read`.
"""


def add(commands: Commands, *, finish: Finish) -> None:
    """Add the commands; `finish` gives each what all commands have."""
    _add_check(commands, finish)
    _add_doctor(commands, finish)
    _add_serve(commands, finish)
    _add_status(commands, finish)


def _command(
    commands: Commands, name: str, text: str, *, description: str, epilog: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=text,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_check(commands: Commands, finish: Finish) -> None:
    command = _command(
        commands,
        "check",
        "do the counters of a node's store agree with its labels?",
        description="Recompute every counter of a store from its labels and say whether "
        "they agree. The node that writes the store must be stopped.",
        epilog="example:\n  covey check north.store\n",
    )
    command.add_argument("store", type=Path, metavar="STORE", help="the file of a node")
    finish(command, _check)


def _add_doctor(commands: Commands, finish: Finish) -> None:
    command = _command(
        commands,
        "doctor",
        "check a site's file and all that it names",
        description="Look at a site's file, certificates, tokens, ports, store, disk, clock and "
        "functions, go to its peers, and say what will not work, and what to do.",
        epilog=DOCTOR_EXAMPLES,
    )
    command.add_argument("site", type=Path, metavar="SITE", help="the file of the site")
    finish(command, _doctor)


def _add_serve(commands: Commands, finish: Finish) -> None:
    command = _command(
        commands,
        "serve",
        "a node: answer instances and take labels over HTTP",
        description="Serve the site of a configuration: to clients by the Open Inference "
        "Protocol, on the loopback or anywhere with TLS and tokens; to its peers over mutual TLS. "
        "What it learns is in its store; a restart continues from there.",
        epilog=SERVE_EXAMPLES,
    )
    command.add_argument(
        "site", type=Path, metavar="SITE", help="TOML: node, policy, learner, functions, peers"
    )
    command.add_argument(
        "--log", choices=notices.FORMS, help="write what happens, a line each, to standard error"
    )
    finish(command, _serve)


def _add_status(commands: Commands, finish: Finish) -> None:
    command = _command(
        commands,
        "status",
        "state of a node: phases, arms, peers, open tickets, labels owed",
        description="Request the state of a node and print it.",
        epilog=STATUS_EXAMPLES,
    )
    command.add_argument("url", metavar="URL", help="that `covey serve` prints")
    command.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"with the token (default: the variable {TOKEN_VARIABLE}, or none)",
    )
    command.add_argument(
        "--ca", type=Path, metavar="FILE", help="certificate of the authority to trust"
    )
    command.add_argument(
        "--watch", type=_seconds, metavar="SECONDS", help="repeat until interrupted"
    )
    finish(command, _status)


def _check(options: argparse.Namespace) -> None:
    with contextlib.closing(Store(options.store, is_new_allowed=False)) as store:
        differences, size, copy = store.check(), store.size(), store.copy
    if copy is not None:
        print(
            f"{options.store} was written by covey 0.1.0 and is migrated now; the old file is "
            f"{copy}",
            file=sys.stderr,
        )
    if options.json:
        # The names of 0.1.0 stay for one release.
        former = {"tickets": size["rows"], "owed": size["deliveries"]}
        print(msgspec.json.encode({**size, **former, "differences": differences}).decode())
    elif not differences:
        print(
            "{rows} rows, {labels} with their label, {deliveries} to deliver to peers".format(
                **size
            )
        )
        print("every counter is the sum of its labels")
    if differences:
        raise StoreError("\n  ".join([f"{options.store} does not agree:", *differences]))


def _doctor(options: argparse.Namespace) -> int:
    # Not at the top: only this command needs certificates and peers.
    from covey import doctor

    found = doctor.examine(options.site)
    is_fine = all(one.state != doctor.FAILURE for one in found)
    if options.json:
        print(msgspec.json.encode({"fine": is_fine, "findings": found}).decode())
    else:
        width = max(len(one.what) for one in found)
        for one in found:
            print(f"{one.state:<8} {one.what:<{width}}  {one.said}")
    return 0 if is_fine else 1


def _serve(options: argparse.Namespace) -> None:
    # Not at the top: no other command needs an event loop, or aiohttp.
    import asyncio

    from covey import server, sites

    if options.log:
        notices.set_up(options.log)
    log = logging.getLogger("covey")

    def is_up(url: str, *for_peers: str) -> None:
        log.info("serves clients at %s%s", url, "".join(f", peers at {one}" for one in for_peers))
        if options.log == "json":
            return  # every line is JSON then
        print(
            url, *(f"for peers: {one}" for one in for_peers), sep="\n", file=sys.stderr, flush=True
        )

    asyncio.run(server.serve(sites.load(options.site), is_up=is_up))
    log.info("stopped")


def _status(options: argparse.Namespace) -> None:
    from covey import status

    model = status.client(options.url, token=_token(options), authority=options.ca)
    print(_shown(status.state(model), options), flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while options.watch is not None:
            time.sleep(options.watch)
            try:
                said = _shown(status.state(model), options)
            except CoveyError as error:  # it may come back
                said = f"covey: {error}"
            print(f"{CLEAR if sys.stdout.isatty() else ''}{said}", flush=True)


def _shown(state: bytes, options: argparse.Namespace) -> str:
    from covey import status

    return state.decode() if options.json else status.text(state)


def _token(options: argparse.Namespace) -> str | None:
    from covey import status

    if options.token_file is not None:
        return status.token_in(options.token_file)
    return os.environ.get(TOKEN_VARIABLE) or None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} s; it must lie from 0.1 to 86400")
    return seconds
