"""The latest events of a site, as its log tells them."""

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec

MOST_EVENTS = 100
MOST_LETTERS = 500  # of an event


class SiteEvent(msgspec.Struct, frozen=True):
    """A line of the log."""

    moment: datetime
    level: str  # info, warning or error
    text: str


class EventLog(logging.Handler):
    """Keeps the latest lines of the log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._kept: deque[SiteEvent] = deque(maxlen=MOST_EVENTS)

    def emit(self, record: logging.LogRecord) -> None:
        moment = datetime.fromtimestamp(record.created, UTC)
        text = record.getMessage()[:MOST_LETTERS]
        self._kept.append(SiteEvent(moment, record.levelname.lower(), text))

    def latest(self) -> list[SiteEvent]:
        """Return the events, newest first."""
        return list(reversed(self._kept))


@contextmanager
def kept_events() -> Iterator[EventLog]:
    """Keep the events of covey until the end; standard error gets what it gets without."""
    events, ours = EventLog(), logging.getLogger("covey")
    added: list[logging.Handler] = [events]
    if not ours.hasHandlers() and logging.lastResort is not None:
        added.append(logging.lastResort)  # which is used as long as there is no handler
    level = ours.level
    ours.setLevel(min(ours.getEffectiveLevel(), logging.INFO))
    for handler in added:
        ours.addHandler(handler)
    try:
        yield events
    finally:
        for handler in added:
            ours.removeHandler(handler)
        ours.setLevel(level)
