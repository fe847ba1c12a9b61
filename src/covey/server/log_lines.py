"""Lines of the log of a served site, plain or JSON, and the latest of them as events."""

import logging
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from covey.errors import place_of
from covey.site.status import SiteEvent

FORMS = ("plain", "json")
LONGEST = 500  # characters of a sentence
MOST_EVENTS = 100


class _Line(logging.Formatter):
    """Makes one line of a record: nothing in it ends the line or steers a terminal."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._is_json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        short = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": "".join(char if char.isprintable() else repr(char)[1:-1] for char in short),
        }
        if record.exc_info and record.exc_info[0] is not None:
            event["error"] = record.exc_info[0].__name__
            event["at"] = "" if record.exc_info[1] is None else place_of(record.exc_info[1])
        if self._is_json:
            return msgspec.json.encode(event).decode()
        return " ".join(event.values())


def set_up_logging(form: str, stream: TextIO | None = None) -> None:
    """Write what happens to `stream`, the standard error if none is given."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Line(form))
    for name in ("covey", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO if name == "covey" else logging.WARNING)


class EventLog(logging.Handler):
    """Keeps the latest lines of the log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._kept: deque[SiteEvent] = deque(maxlen=MOST_EVENTS)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()[:LONGEST]
        self._kept.append(SiteEvent(round(record.created, 3), record.levelname.lower(), text))

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
