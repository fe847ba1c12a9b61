"""Log lines of a served node: one per event, as text or as JSON.

For an unexpected failure the place in the code is written, not the message: it may quote an
instance.
"""

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import TextIO

import msgspec

FORMS = ("plain", "json")
LONGEST = 500  # characters of a sentence


class _Line(logging.Formatter):
    """Makes one line of a record: nothing in it ends the line or steers a terminal."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._is_json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": _printable(record.getMessage()),
        }
        if record.exc_info and record.exc_info[0] is not None:
            event["error"] = record.exc_info[0].__name__
            event["at"] = "" if record.exc_info[1] is None else place_of(record.exc_info[1])
        if self._is_json:
            return msgspec.json.encode(event).decode()
        return " ".join(event.values())


def set_up(form: str, stream: TextIO | None = None) -> None:
    """Write what happens to `stream`, the standard error if none is given."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Line(form))
    ours = logging.getLogger("covey")
    ours.handlers = [handler]
    ours.propagate = False
    ours.setLevel(logging.INFO)


def place_of(error: BaseException) -> str:
    """Return where in the code something was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _printable(text: str) -> str:
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in short)
