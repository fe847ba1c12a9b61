"""The counters of a store, counted again from its requests and labels."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from covey.errors import StoreError
from covey.node import tables
from covey.node.database import Database
from covey.node.requests import Asked, Counts, RowGroup, add_counts

# Requests of one row, with one label, apart from others.
LABELLED_ROW = """
SELECT source, groups, labels.rows, "right" FROM {tables} ON request = number
WHERE requests.rows = 1 AND part = 0 AND {which}
"""
TWO_LABELS = """
SELECT request FROM labels CROSS JOIN requests ON request = number
WHERE part > 0 AND requests.rows = 1 LIMIT 1
"""
LABELLED = """
SELECT number, source, groups, group_of, labels.rows, "right"
FROM requests CROSS JOIN labels ON request = number
WHERE requests.rows > 1 AND {which} ORDER BY number, part
"""
# An answer without an id has `"",` in its text; few others have it.
ASKED_ROW = """
SELECT groups, CASE WHEN peer_answers LIKE '%"",%' THEN peer_answers END,
EXISTS (SELECT 1 FROM labels WHERE request = number)
FROM requests WHERE rows = 1 AND peer_answers IS NOT NULL AND {which}
"""
ASKED = """
SELECT number, groups, group_of, peer_answers, labels.rows
FROM requests LEFT JOIN labels ON request = number
WHERE requests.rows > 1 AND peer_answers IS NOT NULL AND {which} ORDER BY number, part
"""


def count_labels(base: Database, which: str, given: Sequence[Any] = ()) -> Counts:
    """Count the labels of requests; raise `StoreError` where a row has two."""
    sums: Counts = {}
    # Requests of one row are many and their decisions few: they are added up by the texts of these.
    # Labels first is faster for all of them, and reads too many of them for a part.
    order = "labels CROSS JOIN requests" if which == tables.ALL else "requests CROSS JOIN labels"
    alike = Counter(base.stream(LABELLED_ROW.format(tables=order, which=which), given))
    for (source, groups, places, right), labels in alike.items():
        (group,) = tables.GROUPS.decode(groups)
        (_,), (is_right,) = tables.row_numbers(places), right
        _add_label(sums, source, group, (labels, labels * is_right))
    for (number,) in base.execute(TWO_LABELS) if which == tables.ALL else ():
        raise StoreError(f"a row of request {number} has two labels")
    latest, seen = 0, set[int]()
    for number, source, groups, group_of, places, right in base.stream(
        LABELLED.format(which=which), given
    ):
        rows = tables.row_numbers(places)
        if number != latest:
            latest, seen = number, set()
        if len(seen) + len(rows) != len(seen.union(rows)):
            raise StoreError(f"a row of request {number} has two labels")
        seen.update(rows)
        of_row, known = _of_row(group_of), tables.GROUPS.decode(groups)
        for row, is_right in zip(rows, right, strict=True):
            _add_label(sums, source, known[of_row[row] if of_row else 0], (1, is_right))
    return sums


def _of_row(group_of: bytes | None) -> list[int]:
    """Return the group of each row; none: there is one group."""
    return [] if group_of is None else tables.row_numbers(group_of)


def _add_label(sums: Counts, source: str, group: RowGroup, counted: tuple[int, int]) -> None:
    if group.is_counted:
        add_counts(sums, {(group.cell, source, group.counted_as): counted})


def count_asked(base: Database, which: str, given: Sequence[Any] = ()) -> Asked:
    """Count the rows that peers answered, and those of them that have a label."""
    sums: Asked = {}
    alike = Counter(base.stream(ASKED_ROW.format(which=which), given))
    for (groups, answers, is_labelled), rows in alike.items():
        if answers is None or tables.PEER_ANSWERS.decode(answers)[0].id:
            (group,) = tables.GROUPS.decode(groups)
            add_counts(sums, {(group.cell, group.peer): (rows, rows * is_labelled)})
    latest, asked = 0, dict[int, tuple[str, str]]()
    for number, groups, group_of, answers, places in base.stream(ASKED.format(which=which), given):
        if number != latest:
            latest, asked = number, _asked(groups, group_of, answers)
            for key in asked.values():
                add_counts(sums, {key: (1, 0)})
        for row in tables.row_numbers(places or b""):
            if row in asked:
                add_counts(sums, {asked[row]: (0, 1)})
    return sums


def _asked(groups: str, group_of: bytes | None, answers: str) -> dict[int, tuple[str, str]]:
    """Return cell and peer of the rows that a peer answered."""
    known, of_row = tables.GROUPS.decode(groups), _of_row(group_of)
    found = {}
    for row, answer in tables.PEER_ANSWERS.decode(answers).items():
        if answer.id:
            group = known[of_row[row] if of_row else 0]
            found[row] = (group.cell, group.peer)
    return found


def difference(key: Sequence[str], kept: tuple[int, int], counted: tuple[int, int]) -> str:
    """Return what is wrong with the counters of a cell."""
    cell, source, arm = key
    return (
        f"cell {cell}, source {source or 'own'}, arm {arm}: {kept[1]} right of {kept[0]} are kept, "
        f"but the labels of the requests have {counted[1]} of {counted[0]}"
    )
