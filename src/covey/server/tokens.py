"""Bearer tokens of clients: 256 random bits, shown once, kept as hashes with what they are for."""

import contextlib
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from covey import files
from covey.errors import ConfigError
from covey.toml import nearest

SCOPES = {
    "infer": "ask for decisions",
    "feedback": "send labels of own tickets",
    "feedback-any": "send labels of every client's tickets",
    "read": "see states and statistics",
    "metrics": "scrape the metrics",
    "admin": "make the site read its file again",
}
TOKEN_DAYS = 365
MOST_DAYS = 36_500
PREFIX = "covey_"  # by which people, and scanners for secrets, know one
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_HEADER = re.compile(rf"(?i:bearer) +({PREFIX}[A-Za-z0-9_-]{{43}})", re.ASCII)
_LONGEST_HEADER = 200
_MOST_BYTES = 16 << 20

Why = Literal["missing", "malformed", "unknown", "expired"]
SENTENCES: dict[Why, str] = {  # which reveal nothing about a token
    "missing": "no token; send the header Authorization: Bearer TOKEN",
    "malformed": "the Authorization header does not hold a token of covey",
    "unknown": "the token is unknown or was revoked",
    "expired": "the token has expired; ask for a new one",
}


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a token."""

    name: str
    scopes: tuple[str, ...]
    created: datetime
    expires: datetime | None
    sha256: str


class _Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[Token, ...] = ()
    version: Literal[1] = 1


def new(
    path: Path,
    name: str,
    *,
    scopes: Iterable[str],
    days: int | None = TOKEN_DAYS,
    now: datetime | None = None,
) -> tuple[str, Token]:
    """Add a token to a file; return it, for the only time, with what is kept of it."""
    secret = PREFIX + secrets.token_urlsafe(32)
    moment = (now or datetime.now(UTC)).replace(microsecond=0)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:64]!r} cannot name a token; use letters, digits and . _ @ - inside, "
            "at most 64 characters"
        )
    wanted = _check_scopes(scopes)
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise ConfigError(f"{days} days; a token lasts from 1 to {MOST_DAYS} of them")
    token = Token(
        name=name,
        scopes=wanted,
        created=moment,
        expires=None if days is None else moment + timedelta(days=days),
        sha256=_hash(secret),
    )
    with _changing(path) as held:
        if any(token.name == name for token in held):
            raise ConfigError(f"{path} has a token named {name!r}; revoke it, or choose a new name")
        held.append(token)
    return secret, token


def revoke(path: Path, name: str) -> Token:
    """Remove a token from a file, so that it is refused from now on."""
    listed(path)
    with _changing(path) as held:
        for token in held:
            if token.name == name:
                held.remove(token)
                return token
        hint = nearest(name, [token.name for token in held])
        raise ConfigError(f"{path} has no token named {name[:64]!r}{hint}")


def listed(path: Path) -> tuple[Token, ...]:
    """Return what is kept of all tokens of a file."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES)
        return msgspec.json.decode(content, type=_Book).tokens
    except FileNotFoundError:
        raise ConfigError(f"{path} is not there; `covey tokens new` makes it") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigError(
            f"{path} is not a file of tokens; restore it, or move it away and make new tokens"
        ) from None


def find(
    listed: Iterable[Token], header: str | None, *, now: datetime | None = None
) -> Token | Why:
    """Return the token that an Authorization header holds, or why it is refused."""
    if not header:
        return "missing"
    match = _HEADER.fullmatch(header) if len(header) <= _LONGEST_HEADER else None
    if match is None:
        return "malformed"
    digest = _hash(match[1]).encode()
    # Every token is compared, so that the time taken does not show which one is similar.
    matches = [token for token in listed if hmac.compare_digest(token.sha256.encode(), digest)]
    if not matches:
        return "unknown"
    return matches[-1] if is_current(matches[-1], now=now) else "expired"


def is_current(token: Token, *, now: datetime | None = None) -> bool:
    return token.expires is None or (now or datetime.now(UTC)) < token.expires


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[list[Token]]:
    """Lock the token file for a change."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with files.locked(path.parent):
            held = list(listed(path)) if path.exists() else []
            yield held
            content = msgspec.json.format(msgspec.json.encode(_Book(tuple(held))), indent=2)
            files.replace(path, content + b"\n", mode=0o600)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(scopes))
    if not wanted:
        raise ConfigError(f"a token needs a scope; known: {', '.join(SCOPES)}")
    for scope in wanted:
        if scope not in SCOPES:
            raise ConfigError(f"unknown scope {scope[:64]!r}{nearest(scope, SCOPES)}")
    return wanted


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
