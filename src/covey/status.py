"""How a node stands, asked over HTTP and shown in a terminal."""

import http.client
import math
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from covey.drawing import NONE
from covey.errors import ConfigError, PeerError
from covey.sources import posting
from covey.terminal import number, table

TIMEOUT_S = 10.0
MOST_BYTES = 16 << 20  # of a state
MOST_TOKEN = 200
SHAPE = "give the URL that `covey serve` prints, like http://127.0.0.1:8080/v2/models/north"
PHASES = ("train", "explore", "exploit", "serve", "recall")


SINCE = "* since the start; labels are of all starts"


class Arm(msgspec.Struct):
    """An arm, as far as a node says something of it."""

    name: str = ""
    kind: str = "own"
    price: float | None = None
    decisions: int | None = None
    labels: int | None = None
    right: int | None = None
    spent: float | None = None


class Peer(msgspec.Struct):
    """A peer, likewise."""

    name: str = ""
    state: str | None = None
    owed: int | None = None


class ForPeers(msgspec.Struct):
    """What a node has of those who ask it, likewise."""

    open_tickets: int | None = None
    labels: int | None = None
    cells: int | None = None


class State(msgspec.Struct):
    """A node, likewise: one of another version may say less, or more."""

    name: str
    is_ready: bool | None = None
    starts: int | None = None
    uptime_s: float | None = None
    slot: int | None = None
    phases: dict[str, int] = {}
    arms: list[Arm] = []
    peers: list[Peer] = []
    open_tickets: int | None = None
    cells: int | None = None
    owed: int | None = None
    for_peers: ForPeers = msgspec.field(default_factory=ForPeers)


class Place(NamedTuple):
    """Where a node tells how it stands, and how to get there."""

    url: str  # of the model
    token: str | None
    tls: ssl.SSLContext | None

    @classmethod
    def at(cls, url: str, *, token: str | None = None, authority: Path | None = None) -> "Place":
        """Return the place of a URL; raise `ConfigError` if it is none, or not a safe one."""
        parts = posting.checked(url)
        path = parts.path.rstrip("/").removesuffix("/state")
        if not path.startswith("/v2/models/") or path.count("/") != 3:
            raise ConfigError(f"{url!r} is not the URL of a model; {SHAPE}")
        is_open = parts.scheme == "http"
        if is_open and token is not None and not posting.is_here(parts.hostname):
            raise ConfigError(f"{url!r} would show the token to others on the way; use https")
        if is_open and authority is not None:
            raise ConfigError(f"--ca is for https, and {url!r} is not")
        tls = None if is_open else _trusting(authority)
        return cls(f"{parts.scheme}://{parts.netloc}{path}", _checked_token(token), tls)

    def state(self) -> bytes:
        """Return the state as JSON; raise `PeerError` or `ConfigError` if there is none."""
        try:
            status, body = self._get()
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"{self.url}: its certificate is not trusted ({error.verify_message}); give the "
                "certificate of its authority with --ca, and a host that the certificate names"
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise PeerError(f"{self.url}: no answer: {said}") from None
        if status in (401, 403):
            raise ConfigError(
                f"{self.url}: refused ({status}); it needs a token with scope 'read', in "
                "--token-file or COVEY_TOKEN"
            )
        if status != 200:
            raise PeerError(f"{self.url}: it answers with status {status}; {SHAPE}")
        _read(body)
        return body

    def _get(self) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if self.tls is None:
            way = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
        else:
            way = http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=self.tls)
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        try:
            way.request("GET", f"{parts.path}/state", headers=headers)
            answer = way.getresponse()
            return answer.status, answer.read(MOST_BYTES)
        finally:
            way.close()


def token_in(path: Path) -> str:
    """Return the token that a file holds."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"{path}: {said}; --token-file is a file with the token in it") from None
    return text.strip()


def text(body: bytes) -> str:
    """Return a state as a person reads it."""
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
        return msgspec.json.decode(body, type=State)
    except (ValueError, RecursionError):
        raise PeerError("what answers there is not a node of covey, or a newer one") from None


def _trusting(authority: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except ssl.SSLError:
        raise ConfigError(
            f"{authority} holds no certificate; give the authority's ca.crt"
        ) from None
    except OSError as error:
        raise ConfigError(f"{authority}: {error.strerror}") from None


def _checked_token(token: str | None) -> str | None:
    if token is not None and not (
        token.isascii() and token.isprintable() and " " not in token and len(token) <= MOST_TOKEN
    ):
        raise ConfigError("the token is not one line of `covey tokens new`")
    return token


def _head(state: State) -> str:
    facts = [
        ("slot", _count(state.slot)),
        ("starts", _count(state.starts)),
        ("up for", _span(state.uptime_s)),
        ("known cells", _count(state.cells)),
        ("open tickets", _count(state.open_tickets)),
        ("labels owed to peers", _count(state.owed)),
        ("labels from peers", _count(state.for_peers.labels)),
        ("their open tickets", _count(state.for_peers.open_tickets)),
        ("their further cells", _count(state.for_peers.cells)),
    ]
    ready = {True: "ready", False: "not ready: its store cannot be written", None: ""}
    title = f"site {_plain(state.name)}, {ready[state.is_ready]}".removesuffix(", ")
    return "\n".join([title, "", *(f"{what:<22}{said}" for what, said in facts if said)])


def _phases(state: State) -> Sequence[Sequence[str]]:
    known = [phase for phase in PHASES if phase in state.phases]
    names = [*known, *sorted(set(state.phases) - set(known))]
    total = sum(state.phases.values())
    return [
        ("phase", "decisions*", "share"),
        *(
            (_plain(one), f"{state.phases[one]:,}", _share(state.phases[one], total))
            for one in names
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
        (_plain(one.name), _plain(one.state or ""), number(one.owed, ",d")) for one in state.peers
    ]
    return [("peer", "is", "labels owed"), *lines]


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


def _plain(text: str) -> str:
    """Return what a terminal may be shown: names come from elsewhere."""
    return "".join(one if one.isprintable() else "?" for one in text)[:60]
