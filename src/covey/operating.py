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
TOKEN_VARIABLE = "COVEY_TOKEN"  # noqa: S105 - a variable's name
CLEAR = "\x1b[H\x1b[2J"

SERVE_EXAMPLES = """\
examples:
  covey doctor site.toml && covey serve site.toml
  covey serve site.toml --log json 2>site.log

It prints the URL for clients and, if there is one, the URL for peers. SIGTERM and SIGINT stop it
after requests in progress are answered; a second signal stops it immediately. SIGHUP reloads
certificates; changed token files are reloaded without it.

Exit codes: 0 stopped by a signal, 2 unusable file, key, port or store, 74 the store could not be
written: check the disk, and restart.
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
    """Add the commands; `finish` adds the options that all commands share."""

    def command(name: str, text: str, description: str, epilog: str) -> argparse.ArgumentParser:
        formatter = argparse.RawDescriptionHelpFormatter
        return commands.add_parser(
            name, help=text, description=description, epilog=epilog, formatter_class=formatter
        )

    check = command(
        "check",
        "check that the counters of a node's store agree with its labels",
        "Recompute every counter of a store from its labels and report differences. The node that "
        "writes the store must be stopped.",
        "example:\n  covey check north.store\n",
    )
    check.add_argument("store", type=Path, metavar="STORE", help="the store of a node")
    finish(check, _check)

    doctor = command(
        "doctor",
        "check a site's configuration and all that it names",
        "Check a site's configuration, certificates, tokens, ports, store, disk, clock, functions "
        "and peers; report what will not work, and what to do.",
        DOCTOR_EXAMPLES,
    )
    doctor.add_argument("site", type=Path, metavar="SITE", help="the site's configuration")
    finish(doctor, _doctor)

    serve = command(
        "serve",
        "run a node: predictions and labels over HTTP",
        "Serve the site of a configuration: to clients by the Open Inference Protocol, on the "
        "loopback interface or anywhere with TLS and tokens; to its peers over mutual TLS. Its "
        "statistics are in its store; a restart continues from there.",
        SERVE_EXAMPLES,
    )
    site_help = "TOML: node, policy, learner, functions, peers"
    serve.add_argument("site", type=Path, metavar="SITE", help=site_help)
    serve.add_argument("--log", choices=notices.FORMS, help="log events to standard error")
    finish(serve, _serve)

    status = command(
        "status",
        "print the state of a node: phases, arms, peers, open tickets, undelivered labels",
        "Request the state of a node and print it.",
        STATUS_EXAMPLES,
    )
    token_help = f"file with the token (default: the variable {TOKEN_VARIABLE}, or none)"
    status.add_argument("url", metavar="URL", help="that `covey serve` prints")
    status.add_argument("--token-file", type=Path, metavar="FILE", help=token_help)
    status.add_argument("--ca", type=Path, metavar="FILE", help="CA certificate to trust")
    status.add_argument("--watch", type=_seconds, metavar="SECONDS", help="repeat until stopped")
    finish(status, _status)


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
        print("{rows} rows, {labels} with label, {deliveries} undelivered to peers".format(**size))
        print("every counter is the sum of its labels")
    if differences:
        raise StoreError("\n  ".join([f"{options.store} does not agree:", *differences]))


def _doctor(options: argparse.Namespace) -> int:
    # Not at the top: only this command needs certificates and peers.
    from covey import doctor

    findings = doctor.examine(options.site)
    is_fine = all(finding.state != doctor.FAILURE for finding in findings)
    if options.json:
        print(msgspec.json.encode({"fine": is_fine, "findings": findings}).decode())
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            print(f"{finding.state:<8} {finding.what:<{width}}  {finding.said}")
    return 0 if is_fine else 1


def _serve(options: argparse.Namespace) -> None:
    # Not at the top: no other command needs an event loop, or aiohttp.
    import asyncio

    from covey import server, sites

    if options.log:
        notices.set_up(options.log)
    log = logging.getLogger("covey")

    def is_up(url: str, *for_peers: str) -> None:
        log.info("serves clients at %s%s", url, "".join(f", peers at {peer}" for peer in for_peers))
        if options.log != "json":  # there every line is JSON
            lines = [url, *(f"for peers: {peer}" for peer in for_peers)]
            print(*lines, sep="\n", file=sys.stderr, flush=True)

    asyncio.run(server.serve(sites.load(options.site), is_up=is_up))
    log.info("stopped")


def _status(options: argparse.Namespace) -> None:
    from covey import status

    token = os.environ.get(TOKEN_VARIABLE) or None
    if options.token_file is not None:
        token = status.token_in(options.token_file)
    model = status.client(options.url, token=token, authority=options.ca)

    def shown() -> str:
        body = status.state(model)
        return body.decode() if options.json else status.text(body)

    print(shown(), flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while options.watch is not None:
            time.sleep(options.watch)
            try:
                text = shown()
            except CoveyError as error:  # it may recover
                text = f"covey: {error}"
            print(f"{CLEAR if sys.stdout.isatty() else ''}{text}", flush=True)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} s; it must be from 0.1 to 86400")
    return seconds
