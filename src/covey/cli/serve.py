"""The commands that run and inspect a site: serve, plan, check, doctor, status."""

import argparse
import errno
import faulthandler
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from covey.errors import ConfigError, PeerError, StoreAway, StoreError, StoreFailed
from covey.functions.remote import HttpClient, checked
from covey.replay.outcome import percent
from covey.report.text import Column, cells, columns_named, number, shorten, table
from covey.server.log_lines import set_up_logging
from covey.site.status import State
from covey.store.change import Plan
from covey.store.store import Store
from covey.toml import modules_beside

TIMEOUT_S = 10.0
SHAPE = "give the URL that `covey serve` prints, like http://127.0.0.1:8080/v2/models/north"
PHASES = ("train", "explore", "exploit", "serve", "recall", "relay")
SINCE = "* since the start; labels are of all starts"


def client(url: str, *, token: str | None = None, authority: Path | None = None) -> HttpClient:
    """Return the client of a model's URL; raise `ConfigError` if it cannot be used safely."""
    parts = checked(url)
    path = parts.path.rstrip("/").removesuffix("/state")
    if not path.startswith("/v2/models/") or path.count("/") != 3:
        raise ConfigError(f"{url!r} is not the URL of a model; {SHAPE}")
    if parts.scheme == "http" and authority is not None:
        raise ConfigError(f"--ca is for https, and {url!r} is not")
    model = f"{parts.scheme}://{parts.netloc}{path}"
    return HttpClient(model, TIMEOUT_S, token, authority)


def state(model: HttpClient) -> bytes:
    """Return the state as JSON; raise `PeerError` or `ConfigError` if there is none."""
    status, body = model.send("GET", "/state")
    if status in (401, 403):
        raise ConfigError(
            f"{model.url}: refused ({status}); it needs a token with scope 'read', in "
            "--token-file or COVEY_TOKEN"
        )
    if status != 200:
        raise PeerError(f"{model.url}: response status {status}; {SHAPE}")
    _read(body)
    return body


def token_in(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"{path}: {reason}; --token-file must contain the token") from None


def status_text(body: bytes) -> str:
    """Return a state as tables."""
    state = _read(body)
    paid = any(peer.spent_today or peer.budget is not None for peer in state.peers)
    tables = (
        _phases(state),
        _table("arm", columns_named("site arms"), state.arms),
        _table(
            "peer",
            columns_named("site peers") + (columns_named("site payments") if paid else []),
            state.peers,
        ),
        _table("labels of", columns_named("site trust"), state.trust, "source"),
    )
    text = "\n\n".join(filter(None, [_head(state), *tables]))
    return f"{text}\n\n{SINCE}" if "*" in text else text


def _table(
    name: str, columns: Sequence[Column], records: Sequence[Any], attribute: str = "name"
) -> str:
    if not records:
        return ""
    lines = [(_plain(getattr(record, attribute)), *cells(record, columns)) for record in records]
    return table([(name, *(column.heading for column in columns)), *lines])


def _read(body: bytes) -> State:
    try:
        return msgspec.json.decode(body, type=State)
    except (ValueError, RecursionError) as error:
        raise PeerError(
            f"the response is not the state of a covey node ({_plain(str(error))}); use the covey "
            "that serves it"
        ) from None


def _head(state: State) -> str:
    passed = state.horizon is not None and state.slot > state.horizon
    facts = [
        *_facts(state, "site"),
        ("up for", _span(state.uptime_s)),
        ("spent today", _of(state.spent_today, state.budget)),
        ("horizon (passed)", f"{state.horizon:,}" if passed else ""),
        *_account(state),
        *_facts(state, "site shadow"),
    ]
    ready = "ready" if state.is_ready else "not ready: its store cannot be written"
    title = f"site {_plain(state.name)}, {ready}"
    needs = [f"{need.level}: {_plain(need.text, 200)}; {need.remedy}" for need in state.conditions]
    return "\n".join([title, *needs, "", *(f"{what:<22}{value}" for what, value in facts if value)])


def _facts(state: State, kind: str) -> Iterator[tuple[str, str]]:
    """Yield what a table of facts has of a state; a fact of which nothing is known is left out."""
    for what, attribute, form in columns_named(kind):
        value: Any = state
        for name in attribute.split("."):
            value = getattr(value, name, None)
        is_said = value is not None and (value or not form.endswith("?"))
        yield what, format(value, form.removesuffix("?")) if is_said else ""


def _account(state: State) -> list[tuple[str, str]]:
    account = state.account
    if account is None or not (account.bought or account.sold):
        return []
    return [
        ("answers bought", f"{account.bought:,} for {account.paid:,.2f}"),
        ("answers sold", f"{account.sold:,} for {account.earned:,.2f}"),
        ("cost of these", number(account.serving_cost or None, ",.2f")),
        ("balance", number(account.balance, ",.2f")),
        ("utility", number(account.utility, ",.2f")),
    ]


def _phases(state: State) -> str:
    names = sorted(state.phases, key=lambda name: (*PHASES, name).index(name))
    total = sum(state.phases.values())
    lines = [
        (_plain(name), f"{(n := state.phases[name]):,}", number(percent(n, total), ".1f"))
        for name in names
    ]
    return table([("phase", "decisions*", "share %"), *lines]) if lines else ""


def _of(spent: float, budget: float | None) -> str:
    limit = "" if budget is None else f" of {budget:,.2f}"
    return f"{spent:,.2f}{limit}" if spent or limit else ""


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    named = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{value} {unit}" for value, unit in named if value) or "0 s"


def _plain(text: str, most: int = 60) -> str:
    """Return printable text: names may come from other sites."""
    return shorten(text, most)


TAKEN = 75  # EX_TEMPFAIL of `sysexits.h`: an address is in use, which may pass
TOKEN_VARIABLE = "COVEY_TOKEN"  # noqa: S105 - a variable's name


def run_check(options: argparse.Namespace) -> None:
    with Store.reading(options.store) as store:
        differences, size = store.check(), store.size()
    if options.json:
        print(msgspec.json.encode({**size, "differences": differences}).decode())
    elif not differences:
        print("{rows} rows, {labels} with label, {deliveries} undelivered to peers".format(**size))
        print("every row fits its checksum, every counter is the sum of its labels")
    if differences:
        raise StoreError("\n  ".join([f"{options.store} does not agree:", *differences]))


def run_doctor(options: argparse.Namespace) -> int:
    # Not at the top: only this command needs certificates and peers.
    from covey.server import doctor as server_doctor

    findings = server_doctor.examine(options.site)
    is_fine = all(finding.state != server_doctor.FAILURE for finding in findings)
    if options.json:
        print(msgspec.json.encode({"fine": is_fine, "findings": findings}).decode())
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            print(f"{finding.state:<8} {finding.what:<{width}}  {finding.message}")
    return 0 if is_fine else 1


def run_plan(options: argparse.Namespace) -> int:
    # Not at the top: no other command needs functions and a store.
    from covey.functions.registry import replay_training
    from covey.server import config

    site = config.load(options.site, remember=replay_training)
    if not config.has_store(site):
        plan, lines = Plan(site.serving.name, []), [f"{site.store} is not there; a start makes it"]
    else:
        plan, _ = config.planned(site)
        lines = plan.lines() or [f"nothing changes in {site.store}"]
    if options.json:
        facts = {"is_change": plan.is_change, "sets_aside": plan.sets_aside, "lines": lines}
        print(msgspec.json.encode({**msgspec.to_builtins(plan), **facts}).decode())
    else:
        print(*lines, sep="\n")
    return 4 if plan.sets_aside else 3 if plan.is_change else 0


def run_serve(options: argparse.Namespace) -> int:
    # Not at the top: no other command needs an event loop, or aiohttp.
    import asyncio

    from covey.server import app, config

    form = options.log or ("json" if options.json else None)
    if form:
        set_up_logging(form)
    log = logging.getLogger("covey")

    def is_up(url: str, *for_peers: str) -> None:
        log.info("serves clients at %s%s", url, "".join(f", peers at {peer}" for peer in for_peers))
        if form != "json":  # there every line is JSON
            lines = [url, *(f"for peers: {peer}" for peer in for_peers)]
            # One write: a thread that logs at the same time must not cut a line in two.
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()

    # A crash of a library leaves its place on standard error.
    faulthandler.enable(sys.__stderr__ or sys.stderr)
    try:
        served = config.load(options.site)
        serving = app.serve(served, is_up=is_up, waits_for_store=options.wait)
        # Processes of functions import what stands beside the file.
        with modules_beside(options.site), asyncio.Runner(loop_factory=app.new_loop) as runner:
            runner.run(serving)
    except BaseException as error:
        if form:
            log.critical("the site ends: %s: %s", type(error).__name__, error)
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
            print(f"covey: {error}", file=sys.stderr)
            return TAKEN
        if isinstance(error, StoreAway) and not isinstance(served.store, Path):
            raise StoreFailed(f"{error}; restart, or wait for it with --wait") from error
        raise
    log.info("stopped")
    return 0


def run_status(options: argparse.Namespace) -> None:
    token = os.environ.get(TOKEN_VARIABLE) or None
    if options.token_file is not None:
        token = token_in(options.token_file)
    model = client(options.url, token=token, authority=options.ca)

    body = state(model)
    print(body.decode() if options.json else status_text(body))
