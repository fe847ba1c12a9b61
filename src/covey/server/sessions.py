"""Log-ins of people: a cookie stands for a token with scope `read`, until either is void."""

import hashlib
import secrets
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from covey.server.tokens import Token, is_current

LASTS = timedelta(hours=12)
MOST_SESSIONS = 16  # of one token; the oldest ends
READ = "read"


class Session(NamedTuple):
    """Whose session it is, and when it ends."""

    token: str  # its hash
    ends: datetime


class Sessions:
    """The sessions of one site, in memory: a restart ends them."""

    def __init__(self, site: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        # Browsers send cookies to all ports of a host, so the sites on one must differ in it.
        self._cookie = f"__Host-covey-{_hash(site)[:12]}"
        self._now = now
        self._open: dict[str, Session] = {}  # by the hash of the id, the oldest first

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, token: Token, before: str | None) -> str:
        """Return the Set-Cookie header of a new session, which replaces that of a Cookie header."""
        self._forget(before)
        id_, now = secrets.token_urlsafe(32), self._now()
        ends = min(now + LASTS, token.expires or datetime.max.replace(tzinfo=UTC))
        self._open = {key: one for key, one in self._open.items() if one.ends > now}
        own = [key for key, one in self._open.items() if one.token == token.sha256]
        for key in own[: max(0, len(own) + 1 - MOST_SESSIONS)]:
            del self._open[key]
        self._open[_hash(id_)] = Session(token.sha256, ends)
        return self._set(id_, int((ends - now).total_seconds()))

    def end(self, header: str | None) -> str:
        """End the session of a Cookie header; return the Set-Cookie header that removes it."""
        self._forget(header)
        return self._set("", 0)

    def find(self, header: str | None, known: Iterable[Token]) -> Token | None:
        """Return the token of the session of a Cookie header, if both are valid now."""
        key = self._key(header)
        found = None if key is None else self._open.get(key)
        if found is None or found.ends <= self._now():
            return None
        of = [one for one in known if one.sha256 == found.token and READ in one.scopes]
        return of[0] if of and is_current(of[0], now=self._now()) else None

    def _forget(self, header: str | None) -> None:
        key = self._key(header)
        if key is not None:
            self._open.pop(key, None)

    def _key(self, header: str | None) -> str | None:
        """Return the hash of the session's id; None if there is none, or more than one."""
        pairs = [one.strip().partition("=") for one in (header or "").split(";")]
        ids = [value for name, _, value in pairs if name == self._cookie]
        return _hash(ids[0]) if len(ids) == 1 else None

    def _set(self, value: str, lasts_s: int) -> str:
        return (
            f"{self._cookie}={value}; Max-Age={lasts_s}; Path=/; Secure; HttpOnly; SameSite=Strict"
        )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
