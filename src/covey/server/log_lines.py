"""Lines of the log of a served site, plain or JSON."""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from covey.errors import place_of

FORMS = ("plain", "json")
LONGEST = 500  # characters of a sentence


class _Line(logging.Formatter):
    """Makes one line of a record: nothing in it ends the line or steers a terminal."""

    def __init__(self, form: str, shard: str) -> None:
        super().__init__()
        self._is_json = form == "json"
        self._shard = {"shard": shard} if shard else {}

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        short = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._shard,
            "from": record.name,
            "event": "".join(one if one.isprintable() else repr(one)[1:-1] for one in short),
        }
        if record.exc_info and record.exc_info[0] is not None:
            event["error"] = record.exc_info[0].__name__
            event["at"] = "" if record.exc_info[1] is None else place_of(record.exc_info[1])
        if self._is_json:
            return msgspec.json.encode(event).decode()
        return " ".join(event.values())


def set_up_logging(form: str, stream: TextIO | None = None, *, shard: str = "") -> None:
    """Write what happens to `stream`, the standard error if none is given.

    `shard` is that of a site in several processes.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Line(form, shard))
    ours = logging.getLogger("covey")
    ours.handlers = [handler]
    ours.propagate = False
    ours.setLevel(logging.INFO)
