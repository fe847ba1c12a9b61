"""`covey doctor`: check all that a site needs before it serves. Nothing is changed."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import msgspec

from covey import config as network_config
from covey import toml
from covey.data.inputs import ALL, cut, plain_label, shown
from covey.errors import (
    ConfigError,
    CoveyError,
    DataError,
    FunctionError,
    PeerError,
    PeerRefused,
    StoreError,
)
from covey.functions.function import Function
from covey.functions.registry import functions_from, replay_training
from covey.node.functions import Limits
from covey.server import config, keys, oip, peer_client, tokens
from covey.server.conditions import FAR_S, LITTLE_BYTES, REMEDIES, of_tokens
from covey.server.config import NodeTable, PeerConfig, SiteConfig, read_peers
from covey.site.requests import Delivery
from covey.store.database import DatabaseUrl
from covey.store.store_file import is_in_use
from covey.types import Label

NO_BYTES = 16 << 20  # of room on the disk
AT_ONCE = 16  # peers that are probed together
MADE_UP = {"BOOL": (False, True), "INT64": (0, 1), "FP64": (0.0, 1.0), "BYTES": ("", "a")}
OK: Literal["ok"] = "ok"
WARNING: Literal["warning"] = "warning"
FAILURE: Literal["failure"] = "failure"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: `failure` will not work, `warning` may not."""

    what: str
    state: Literal["ok", "warning", "failure"]
    message: str


Look = Callable[[SiteConfig], Iterable[Finding]]


def examine(path: Path) -> list[Finding]:
    """Check a site's file and all that it names."""
    served: list[SiteConfig] = []
    findings = _safely("file", partial(_file, path, served))
    for site in served:
        for what, look in LOOKS.items():
            findings += _safely(what, partial(look, site))
    return findings


def _safely(what: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return findings; an error becomes the last of them."""
    findings: list[Finding] = []
    failures = _failures(what, lambda: findings.extend(look()))
    return findings + failures


def _failures(what: str, look: Callable[[], object]) -> list[Finding]:
    """Return the error of a look as a finding; none if there is no error."""
    try:
        look()
    except CoveyError as error:
        text = str(error)
    except OSError as error:
        text = f"{error.filename or ''} {error.strerror or error}".strip()
    except Exception as error:
        text = f"cannot be checked: {type(error).__name__}: {error}"
    else:
        return []
    return [Finding(what, FAILURE, text)]


def _file(path: Path, served: list[SiteConfig]) -> Iterator[Finding]:
    table = toml.read_toml(path)
    try:
        site = config.from_table(table, path, remember=replay_training)
    except CoveyError as error:
        yield from _tables(table, path, error)
        return
    served.append(site)
    counts = f"{len(site.functions)} functions, {len(site.neighbours)} peers"
    yield Finding("file", OK, f"{path}: site {site.serving.name!r}, {counts}")


def _tables(table: Mapping[str, Any], path: Path, first: CoveyError) -> Iterator[Finding]:
    """Check each table of an invalid file by itself, so that one run names all that is wrong."""
    rest = {key: value for key, value in table.items() if key in network_config.TABLES}
    findings = [
        *_failures("file", partial(network_config.check_tables, table, config.TABLES)),
        *_failures("file", partial(toml.read, table.get("node", {}), NodeTable, where="[node]")),
        *_failures("file", partial(toml.read, table.get("limits", {}), Limits, where="[limits]")),
        *_failures("file", partial(network_config.read, rest)),
    ]
    node = table.get("node")
    owner = str(node.get("name", "")) if isinstance(node, Mapping) else ""
    reading = partial(functions_from, owner=owner, folder=path.parent, remember=replay_training)
    for key, read in (("function", reading), ("peer", partial(read_peers, own_name=owner))):
        tables = table.get(key, [])
        for place, entry in enumerate(tables if isinstance(tables, list) else [], 1):
            name = entry.get("name") if isinstance(entry, Mapping) else None
            what = f"{key} {name if isinstance(name, str) else place}"
            findings += _failures(what, partial(read, [entry], first=place))
    yield from findings or [Finding("file", FAILURE, str(first))]


def _certificate(site: SiteConfig) -> Iterator[Finding]:
    own = config.own_certificate(site)
    if own is None or site.identity is None:
        yield Finding("certificate", OK, "none: clients on this machine only, and no peers")
        return
    certificate, key = site.identity
    soon = f"{own.problem()}; {REMEDIES['certificate']}" if own.problem() else ""
    text = soon or f"{certificate} is valid until {own.end:%Y-%m-%d}"
    yield Finding("certificate", WARNING if soon else OK, text)
    if site.has_tls and not keys.show(certificate).hosts:
        text = f"{certificate} names no host, so clients that check the address will refuse it"
        yield Finding("certificate", WARNING, f"{text}; make one with --host")
    if key.stat().st_mode & 0o070:
        yield Finding("key", WARNING, f"{key} can be used by its group; run: chmod 600 {key}")
    else:
        yield Finding("key", OK, f"{key} belongs to the certificate, and is its owner's alone")


def _tokens(site: SiteConfig) -> Iterator[Finding]:
    if site.tokens is None:
        yield Finding("tokens", OK, "none: all clients on this machine have all scopes")
        return
    listed = tokens.listed(site.tokens)
    good = [token for token in listed if tokens.is_current(token)]
    if not good:
        yield Finding("tokens", WARNING, f"{site.tokens} admits no client: `covey tokens new`")
    elif site.tokens.stat().st_mode & 0o077:
        text = f"{site.tokens} can be read by others; run: chmod 600 {site.tokens}"
        yield Finding("tokens", WARNING, text)
    else:
        yield Finding("tokens", OK, f"{site.tokens}: {len(good)} of {len(listed)} are good")
    for condition in of_tokens(site.tokens, datetime.now(UTC)):
        if condition.level == "warning":
            yield Finding("tokens", WARNING, f"{condition.text}; {REMEDIES['tokens']}")


def _ports(site: SiteConfig) -> Iterator[Finding]:
    named = {"address": site.address, "peer-address": site.peer_address}
    for what, address in named.items():
        if address is None:
            continue
        where = f"{address.host}:{address.port}"
        try:
            address.bind().close()
        except ConfigError as error:
            if _is_served(site):
                yield Finding(what, OK, f"{where} is in use, and so is the store: the site serves")
            else:
                yield Finding(what, FAILURE, str(error))
        else:
            yield Finding(what, OK, f"{where} is free")


def _is_served(site: SiteConfig) -> bool:
    """Return whether a node has the store of the site."""
    if not isinstance(site.store, DatabaseUrl):
        return site.store.exists() and is_in_use(site.store)
    from covey.store import postgres  # needs an optional package

    return postgres.look(site.store).is_in_use


def _trust(site: SiteConfig) -> Iterator[Finding]:
    asking = {name: peer.trust for name, peer in site.neighbours.items() if peer.may_ask}
    learns = [name for name, trust in asking.items() if trust in ("earned", "full")]
    counted = f"labels of {len(learns)} of {len(asking)} peers that may ask count for this site"
    if site.learner.is_supervised or learns:
        yield Finding("trust", OK, counted)
        return
    why = "supervised = false and no peer with may-ask = true"
    if asking:
        kinds = " or ".join(sorted({f'trust = "{trust}"' for trust in asking.values()}))
        why = f"supervised = false and {kinds} for every peer with may-ask = true"
    text = f"{why}: no label ever counts for this site's own functions"
    yield Finding("trust", WARNING, f'{text}; set trust = "earned" for peers that may ask')


def _files(site: SiteConfig) -> Iterator[Finding]:
    import resource  # not on every system

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * site.limits.connections + 8 * len(site.neighbours) + 64
    if soft != resource.RLIM_INFINITY and soft < needed:
        text = f"{soft} may be open, and {needed} can be needed; raise it: ulimit -n, LimitNOFILE="
        yield Finding("open files", WARNING, text)
    else:
        yield Finding("open files", OK, f"{soft} may be open; at most {needed} are needed")


def _store(site: SiteConfig) -> Iterator[Finding]:
    if isinstance(site.store, DatabaseUrl):
        yield from _database(site, site.store)
        return
    folder = site.store.parent
    if not folder.is_dir():
        yield Finding("store", FAILURE, f"there is no folder {folder}; make it")
        return
    is_effective = os.access in os.supports_effective_ids
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=is_effective):
        text = f"files cannot be made in {folder}: mount it to be written, or let this user do so"
        yield Finding("store", FAILURE, text)
    elif site.store.exists():
        yield _kept(site)
    else:
        yield Finding("store", OK, f"{site.store} is not there yet; it will be made")
    free = shutil.disk_usage(folder).free
    text = f"{folder} has {free >> 20:,} MiB left"
    if free < NO_BYTES:
        yield Finding("disk", FAILURE, f"{text}; make room, or labels cannot be kept")
    else:
        yield Finding("disk", WARNING if free < LITTLE_BYTES else OK, text)


def _database(site: SiteConfig, url: DatabaseUrl) -> Iterator[Finding]:
    from covey.store import postgres  # needs an optional package

    state = postgres.look(url)
    yield Finding("database", OK, f"{url} answers, PostgreSQL {state.version}")
    if not state.is_near and not state.is_encrypted:
        text = "is reached without TLS; add sslmode=verify-full&sslrootcert=... to its URL"
        yield Finding("database", WARNING, f"{url} {text}")
    if not state.has_checksums:
        text = "has no checksums of its pages; run pg_checksums --enable while its server is down"
        yield Finding("database", WARNING, f"{url} {text}")
    if not state.standbys:
        yield Finding("standby", OK, f"none: what {url} holds is on the disk of one server")
    elif state.following is None:
        text = f"commits wait for {state.standbys!r}; whether one follows, the role may not see"
        yield Finding("standby", OK, f"{text} (GRANT pg_monitor TO it)")
    elif state.following:
        yield Finding("standby", OK, f"{state.following} synchronous, of {state.standbys!r}")
    else:
        text = f"commits wait for {state.standbys!r}, and no such standby follows"
        yield Finding("standby", FAILURE, f"{text}; start it, or no label is acknowledged")
    if not state.has_store:
        yield Finding("store", OK, f"{url} holds no store yet; it will be made")
        return
    yield _kept(site)


def _kept(site: SiteConfig) -> Finding:
    """Read the store as a start would."""
    try:
        plan, loaded = config.planned(site)
    except StoreError as error:
        return Finding("store", FAILURE, str(error))
    text = f"{site.store} agrees with its labels; {loaded.starts} starts so far"
    text = f"{text}, {len(loaded.of(Delivery))} undelivered labels"
    text += "; it is in use, so a node is running" if _is_served(site) else ""
    if plan.is_change:
        text = f"{text}; the next start changes it: `covey plan {site.path}`"
    return Finding("store", OK, text)


def _functions(site: SiteConfig) -> Iterator[Finding]:
    return (_answering(site, function) for function in site.functions)


def _answering(site: SiteConfig, function: Function) -> Finding:
    what = f"function {function.name}"
    try:
        instances = [_made_up(site, function.name, k) for k in (0, 1)]
        answers = _called(function, instances)
    except (FunctionError, DataError) as error:
        has_text = "BYTES" in site.serving.features.values()
        hint = "; made-up text may be unknown to it" if has_text else ""
        return Finding(what, FAILURE, f"no answer to a made-up instance: {error}{hint}")
    for answer in answers:
        if not site.labels.has(answer):
            text = f"answers a made-up instance with {answer!r}, which is not {site.labels.wanted}"
            return Finding(what, FAILURE, f"{text}; no true label can ever be that")
    return Finding(what, OK, f"answers made-up instances with {answers[0]!r} and {answers[1]!r}")


def _called(function: Function, instances: Sequence[Any]) -> list[Label]:
    """Return the answers of a function, called as a site does: in a thread, within its deadline.

    Whatever it raises there is a failure, and one that never returns does not keep this process.
    """
    answers: Future[list[Label]] = Future()

    def call() -> None:
        try:
            answers.set_result([plain_label(function.answer(instance)) for instance in instances])
        except BaseException as error:
            answers.set_exception(error)

    Thread(target=call, daemon=True).start()
    try:
        return answers.result(len(instances) * function.timeout_s)
    except TimeoutError:
        raise FunctionError(f"{function} did not return within {function.timeout_s:g} s") from None


def _made_up(site: SiteConfig, arm: str, number: int) -> Any:
    vectors = site.contexts.vectors
    record = {
        name: [MADE_UP[kind][number]] * vectors[name] if name in vectors else MADE_UP[kind][number]
        for name, kind in site.serving.features.items()
    }
    is_record = site.serving.instance == "record"
    instance: Any = record if is_record else oip.flattened(record.values())
    if not site.site.views:
        return instance
    width = site.contexts.dimension or site.serving.dimension or 0
    view = shown(site.site.views, arm, (0.5,) * width)
    return instance if view == ALL else cut(instance, site.site.views[view].columns)


def _peers(site: SiteConfig) -> Iterator[Finding]:
    if _failures("", partial(config.own_certificate, site)):
        text = "not asked, as the certificate of this site cannot be used (see above)"
        yield from (Finding(f"peer {name}", WARNING, text) for name in site.neighbours)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        looks = pool.map(lambda peer: list(_peer(site, peer)), site.neighbours.values())
        yield from chain.from_iterable(looks)


def _peer(site: SiteConfig, peer: PeerConfig) -> Iterator[Finding]:
    what = f"peer {peer.name}"
    if peer.url is None or site.identity is None:
        yield Finding(what, OK, "has no url: it may ask this site, and is not asked")
        return
    asks = peer_client.asks_of(site, peer.name)
    try:
        seen = peer_client.probe(peer, site.identity, asks=asks)
    except PeerRefused as error:
        yield Finding(what, FAILURE, f"{peer.url}: {error}")
    except PeerError as error:
        yield Finding(what, WARNING, f"{peer.url}: {error}; the site works without it")
    except CoveyError as error:
        yield Finding(what, FAILURE, f"{peer.url}: {error}")
    else:
        starts = seen.greeting.incarnation
        yield Finding(what, OK, f"{peer.url} knows this site; its start number {starts}")
        text = f"speaks peer protocol {seen.versions} ({seen.software})"
        yield Finding(f"{what}, protocol", OK, text)
        if asks is not None:
            yield _right(f"{what}, asking", asks, seen.refusal)
        if asks is not None or peer.may_ask:
            text = peer_client.misfit(site, peer, seen)
            yield Finding(f"{what}, settings", FAILURE if text else OK, text or "compatible")
        yield from _clock(f"{what}, clock", seen.ahead_s)


def _right(what: str, asks: peer_client.Asks, code: str) -> Finding:
    if not code:
        return Finding(what, OK, f"accepts questions by {asks}")
    if code != "not_allowed":
        return Finding(what, WARNING, f"answers {code!r} to questions by {asks}")
    key = "may-ask" if asks == "data" else "asks-by-context"
    text = f"does not accept questions by {asks}; its operator must set {key} = true"
    return Finding(what, FAILURE, text)


def _relaying(site: SiteConfig) -> Iterator[Finding]:
    for name, neighbour in site.neighbours.items():
        for far in neighbour.relays:
            if far not in site.learner.arms and far != site.serving.name:
                text = f"{far!r} is in relays of {name!r}, but is never asked: {name!r} is not in"
                text = f"{text} peers of the learner, or the path costs more than 1"
                yield Finding("relay", WARNING, f"{text}; correct the prices")
    if not site.is_relay:
        return
    asking = [name for name, peer in site.neighbours.items() if peer.may_ask]
    peers = [other for place, other in enumerate(site.setup.sites) if place in site.site.peers]
    names = ", ".join(peer.name for peer in peers)
    if asking:
        text = f"forwards questions of {len(asking)} peers that may ask to {names}"
        yield Finding("relay", OK, f"{text}; they see what these ask")
    else:
        text = "there is relay = true, but no [[peer]] has may-ask = true, so nothing is forwarded"
        yield Finding("relay", WARNING, text)


def _clock(what: str, ahead_s: float | None) -> Iterator[Finding]:
    if ahead_s is None:
        return
    text = f"is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
    if abs(ahead_s) > FAR_S:
        text = f"{text}; set both clocks, or certificates expire too early or too late"
    yield Finding(what, WARNING if abs(ahead_s) > FAR_S else OK, text)


LOOKS: dict[str, Look] = {
    "certificate": _certificate,
    "tokens": _tokens,
    "address": _ports,
    "open files": _files,
    "store": _store,
    "relay": _relaying,
    "functions": _functions,
    "peers": _peers,
    "trust": _trust,
}
