"""Who asks under which id, and what ids are valid."""

import re

import msgspec

from covey.errors import ConflictingLabel

ROW_ID = re.compile(r"(.+):(0|[1-9][0-9]{0,4})", re.DOTALL)  # of a row in a request of many
ROW_MARK = "\x1f"  # in the ids of rows at a shard; ids of clients can be printed, so none has it


class Question(msgspec.Struct, frozen=True):
    """The source and id of a request; an equal digest means the same request again."""

    source: str
    id: str
    digest: str = ""


def row_id(id: str, row: int) -> str:
    """Return the id at a shard of a row of a request of many."""
    return f"{id}{ROW_MARK}{row}"


def divided(asked: Question, *, rows: int, shares_slots: bool) -> Question:
    """Return a question whose rows go to several shards: its digest says how many there are."""
    digest = f"{asked.digest.partition(':')[0]}:{rows}"
    return Question(asked.source, asked.id, f"{digest}:1" if shares_slots else digest)


def rows_in(digest: str) -> int:
    """Return how many rows a divided question has."""
    return int(digest.split(":")[1])


def slots_after(id: str, digest: str) -> int:
    """Return how many slots of a divided question follow that of a row."""
    if digest.count(":") > 1:  # its rows share one
        return 0
    return rows_in(digest) - 1 - int(id.rpartition(ROW_MARK)[2])


def shown_id(id: str) -> str:
    """Return the id of a request, or of a row, as sentences name it."""
    request, mark, row = id.rpartition(ROW_MARK)
    return f"row {row} of {request!r}" if mark else repr(id)


def other_request(asked: Question) -> ConflictingLabel:
    """Return the error of an id that another request has."""
    return ConflictingLabel(f"id {asked.id!r} was used for another request; choose another")
