"""`covey status`: request a node's state over HTTP and print it."""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin

import msgspec

from covey.drawing import NONE
from covey.errors import ConfigError, PeerError
from covey.node import status as states
from covey.sources.posting import HttpClient, checked
from covey.terminal import number, table

TIMEOUT_S = 10.0
SHAPE = "give the URL that `covey serve` prints, like http://127.0.0.1:8080/v2/models/north"
PHASES = ("train", "explore", "exploit", "serve", "recall")
State: TypeAlias = Any  # `states.State` with fields that may be None: see `_lenient`
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
    return HttpClient.at(model, timeout_s=TIMEOUT_S, token=token, authority=authority)


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
    """Return the token in a file."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"{path}: {reason}; --token-file must contain the token") from None


def text(body: bytes) -> str:
    """Return a state as tables."""
    state = _read(body)
    arms = _table(_arms(state))
    parts = [
        _head(state),
        _table(_phases(state)),
        f"{arms}\n{SINCE}" if arms else "",
        _table(_peers(state)),
    ]
    return "\n\n".join(part for part in parts if part)


def _read(body: bytes) -> State:
    try:
        state: State = _decoder().decode(body)
    except (ValueError, RecursionError):
        state = None
    if state is None or not state.name:
        raise PeerError("the response is not the state of a covey node")
    return state


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_lenient(states.State))


def _lenient(kind: Any) -> Any:
    """Return a type like `kind` in which any field may be missing, as in other versions."""
    if get_origin(kind) is Literal:
        return str
    if get_origin(kind) is list:
        return list[_lenient(*get_args(kind))]  # type: ignore[misc] # a type made at run time
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return msgspec.defstruct(kind.__name__, map(_optional, msgspec.structs.fields(kind)))
    return kind


def _optional(field: msgspec.structs.FieldInfo) -> tuple[str, Any, Any]:
    kind: Any = _lenient(field.type)
    if get_origin(kind) in (list, dict) or isinstance(kind, msgspec.StructMeta):
        return field.name, kind, msgspec.field(default_factory=get_origin(kind) or kind)
    return field.name, kind | None, None


def _head(state: State) -> str:
    facts = [
        ("slot", _count(state.slot)),
        ("starts", _count(state.starts)),
        ("up for", _span(state.uptime_s)),
        ("known cells", _count(state.cells)),
        ("open tickets", _count(state.open_tickets)),
        ("undelivered labels", _count(state.owed)),
        ("labels from peers", _count(state.for_peers.labels)),
        ("open tickets of peers", _count(state.for_peers.open_tickets)),
        ("extra cells for peers", _count(state.for_peers.cells)),
    ]
    ready = {True: "ready", False: "not ready: its store cannot be written", None: ""}
    title = f"site {_plain(state.name)}, {ready[state.is_ready]}".removesuffix(", ")
    return "\n".join([title, "", *(f"{what:<22}{value}" for what, value in facts if value)])


def _phases(state: State) -> Sequence[Sequence[str]]:
    known = [phase for phase in PHASES if phase in state.phases]
    names = [*known, *sorted(set(state.phases) - set(known))]
    total = sum(state.phases.values())
    return [
        ("phase", "decisions*", "share"),
        *(
            (_plain(name), f"{state.phases[name]:,}", _share(state.phases[name], total))
            for name in names
        ),
    ]


def _arms(state: State) -> Sequence[Sequence[str]]:
    return [
        ("arm", "kind", "price", "chosen*", "spent*", "labels", "right"),
        *(
            (
                _plain(arm.name),
                _plain(arm.kind).replace("_", " "),
                number(arm.price, "g"),
                number(arm.decisions, ",d"),
                number(arm.spent, ",.2f"),
                number(arm.labels, ",d"),
                _share(arm.right, arm.labels),
            )
            for arm in state.arms
        ),
    ]


def _peers(state: State) -> Sequence[Sequence[str]]:
    lines = [
        (_plain(peer.name), _plain(peer.state), number(peer.owed, ",d")) for peer in state.peers
    ]
    return [("peer", "state", "undelivered labels"), *lines]


def _table(lines: Sequence[Sequence[str]]) -> str:
    return table(lines) if len(lines) > 1 else ""


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _share(part: int | None, whole: int | None) -> str:
    return NONE if part is None or not whole else f"{100 * part / whole:.1f} %"


def _span(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    named = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{value} {unit}" for value, unit in named if value) or "0 s"


def _plain(text: str | None) -> str:
    """Return printable text: names may come from other sites."""
    return "".join(letter if letter.isprintable() else "?" for letter in text or "")[:60]
