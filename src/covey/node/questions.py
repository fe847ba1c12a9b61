"""Who asks under which id, and what ids and slots are valid."""

import re

import msgspec

from covey.errors import ConflictingLabel, DataError

MOST_SLOTS = 2**53
ROW_ID = re.compile(r"(.+):(0|[1-9][0-9]{0,4})", re.DOTALL)  # of a row in a request of many


class Question(msgspec.Struct, frozen=True):
    """The source and id of a request; an equal digest means the same request again."""

    source: str
    id: str
    digest: str = ""


def other_request(asked: Question) -> ConflictingLabel:
    """Return the error of an id that another request has."""
    return ConflictingLabel(f"id {asked.id!r} was used for another request; choose another")


def checked_slot(slot: int) -> int:
    """Return a slot that a peer names; raise `DataError` if it is none."""
    if not 1 <= slot <= MOST_SLOTS:
        raise DataError(f"the slot is {slot}; it must lie from 1 to 2**53")
    return slot
