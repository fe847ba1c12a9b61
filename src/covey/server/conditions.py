"""What needs a person now: one list, for the live page, the status, the log and the metrics."""

import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from covey.errors import ConfigError
from covey.server import keys, tokens
from covey.site.status import SiteCondition, State

log = logging.getLogger(__name__)
# Every kind, and what helps; the latter is also the action of its alert.
REMEDIES = {
    "store": "make room on the disk, or check the database; the site continues by itself",
    "disk": "make room, or lower tickets-kept",
    "certificate": "run covey keys renew; the site takes the file up by itself",
    "tokens": "make new ones with covey tokens new, and give them to the clients",
    "peer": "covey doctor says whether it is down or refuses this site",
    "labels": "covey doctor says why they are not taken; they wait in the store",
    "function": "the log names the location in the code",
    "budget": "nothing until midnight UTC, or raise the budget",
    "trust": "its labels are kept apart; ask its owner what has changed",
    "settings": "covey doctor says what differs",
    "clock": "set both clocks, or certificates expire too early or too late",
    "file": "correct the file and reload; the site serves on as before",
}
# These have lines of their own in the log, where they begin and where they end.
LOGGED_ELSEWHERE = frozenset(["store", "peer", "function", "trust", "file"])
LITTLE_BYTES = 1 << 30  # of room on the disk
WAITED_S = 600.0  # after which waiting labels are a condition
FAILED_S = 600.0  # for which a function that failed is one
SOON = timedelta(days=14)  # before its end a token is one
FAR_S = 300.0  # that clocks may differ


class Condition(NamedTuple):
    """A condition that holds: its kind, what it is about, and a sentence."""

    kind: str
    subject: str
    text: str
    level: Literal["warning", "error"] = "warning"


class Conditions:
    """The present conditions of a site; the log has their begins and their ends."""

    def __init__(self) -> None:
        self.certificate: keys.OwnCertificate | None = None
        self.tokens: Path | None = None
        self.notes: dict[tuple[str, str], str] = {}  # what is seen elsewhere, by kind and subject
        self._present: dict[tuple[str, str, str], SiteCondition] = {}
        self._owed: dict[str, float] = {}  # peer -> since when labels wait for it
        self._failed: dict[str, tuple[int, float]] = {}  # function -> failures, and when they rose

    def latest(self) -> list[SiteCondition]:
        """Return the conditions, errors first."""
        return sorted(self._present.values(), key=lambda item: (item.level != "error", item.since))

    def look(self, state: State, now_s: float) -> list[SiteCondition]:
        """Return what holds now."""
        present: dict[tuple[str, str, str], SiteCondition] = {}
        findings = (
            *self._of_site(state),
            *of_tokens(self.tokens, datetime.fromtimestamp(now_s, UTC)),
            *self._of_peers(state, now_s),
            *self._of_functions(state.failures, now_s),
            *(
                Condition(kind, subject, text, "warning" if kind == "clock" else "error")
                for (kind, subject), text in self.notes.items()
            ),
        )
        for kind, subject, text, level in findings:
            key: tuple[str, str, str] = kind, subject, level
            since = self._present[key].since if key in self._present else round(now_s, 3)
            present[key] = SiteCondition(kind, subject, level, text, REMEDIES[kind], since)
        for key, begun in present.items():
            if key not in self._present and begun.kind not in LOGGED_ELSEWHERE:
                number = logging.ERROR if begun.level == "error" else logging.WARNING
                log.log(number, "%s; %s", begun.text, begun.remedy)
        for key, ended in self._present.items():
            if key not in present and ended.kind not in LOGGED_ELSEWHERE:
                log.info("over: %s", ended.text)
        self._present = present
        return self.latest()

    def _of_site(self, state: State) -> Iterator[Condition]:
        if not state.is_ready:
            yield Condition("store", "", f"labels cannot be kept: {state.why}", "error")
        if state.free_bytes is not None and state.free_bytes < LITTLE_BYTES:
            text = f"the disk of the store has {state.free_bytes >> 20:,} MiB left"
            yield Condition("disk", "", text)
        if self.certificate is not None and (text := self.certificate.problem()):
            level: Literal["warning", "error"] = "error" if self.certificate.fault() else "warning"
            yield Condition("certificate", "", text, level)
        if state.budget is not None and state.spent_today >= state.budget:
            yield Condition("budget", "", "the budget of today is spent, so no peer is paid")

    def _of_peers(self, state: State, now_s: float) -> Iterator[Condition]:
        for peer in state.peers:
            if peer.state == "resting":
                yield Condition("peer", peer.name, f"peer {peer.name} gives no answers")
            if peer.state == "over_budget":
                text = f"the budget of today for peer {peer.name} is spent"
                yield Condition("budget", peer.name, text)
        owing = [peer.name for peer in state.peers if peer.owed]
        self._owed = {name: self._owed.get(name, now_s) for name in owing}
        for name, since in self._owed.items():
            if now_s - since >= WAITED_S:
                text = f"labels for peer {name} have waited for {WAITED_S / 60:g} minutes or more"
                yield Condition("labels", name, text)
        for trust in state.trust:
            if trust.state == "parted":
                text = f"labels of {trust.source} are not trusted: {trust.why}"
                yield Condition("trust", trust.source, text)

    def _of_functions(self, failures: Mapping[str, int], now_s: float) -> Iterator[Condition]:
        for name, count in failures.items():
            before, rose_s = self._failed.get(name, (0, now_s))
            self._failed[name] = count, now_s if count > before else rose_s
            if count and now_s - self._failed[name][1] < FAILED_S:
                yield Condition("function", name, f"function {name} fails")


def of_tokens(path: Path | None, now: datetime) -> Iterator[Condition]:
    """Yield the tokens that end soon, or have ended."""
    if path is None:
        return
    try:
        listed = tokens.listed(path)
    except ConfigError as error:
        yield Condition("tokens", "", f"no client can be known: {error}", "error")
        return
    for token in listed:
        if token.expires is not None and token.expires - now < SOON:
            is_over = token.expires <= now
            end = f"{'ended' if is_over else 'ends'} on {token.expires:%Y-%m-%d}"
            level: Literal["warning", "error"] = "error" if is_over else "warning"
            yield Condition("tokens", token.name, f"token {token.name} {end}", level)
