"""Who asks under which id, and what ids are valid."""

import re

import msgspec

from covey.errors import ConflictingLabel

ROW_ID = re.compile(r"(.+):(0|[1-9][0-9]{0,4})", re.DOTALL)  # of a row in a request of many


class Question(msgspec.Struct, frozen=True):
    """The source and id of a request; an equal digest means the same request again."""

    source: str
    id: str
    digest: str = ""


def other_request(asked: Question) -> ConflictingLabel:
    """Return the error of an id that another request has."""
    return ConflictingLabel(f"id {asked.id!r} was used for another request; choose another")
