"""Old tickets leave the store; what their labels counted stays, as sums."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from covey import lots
from covey.lots import Counted
from covey.schema import UNCOUNTED

Asked = dict[tuple[str, str], tuple[int, int]]  # cell, peer -> its answers, those with a label
PIECE = 256  # rows that go in one commit at least, if there are too many
KEPT = "SELECT (SELECT COUNT(*) FROM tickets) + (SELECT COALESCE(SUM(rows), 0) FROM lots)"
OLD_TICKETS = """
SELECT tickets.desk, ticket, source, cell, arm, phase, is_right, peer, tickets.slot
FROM desks JOIN tickets ON tickets.desk = desks.desk AND ticket < oldest
ORDER BY tickets.desk, ticket LIMIT ?
"""
OLD_LOT = "SELECT * FROM lots WHERE NOT is_open ORDER BY lot LIMIT 1"
FOLD_LABELS = """
INSERT INTO folded VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET labels = labels + excluded.labels, right = right + excluded.right
"""
FOLD_ASKED = """
INSERT INTO folded_asked VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
SET answers = answers + excluded.answers, labels = labels + excluded.labels
"""


def kept(base: sqlite3.Connection) -> int:
    """Return how many tickets there are, rows of lots included."""
    count: int = base.execute(KEPT).fetchone()[0]
    return count


def prune(base: sqlite3.Connection, excess: int) -> int:
    """Fold and delete old tickets, not many more than `excess`; return how many."""
    gone = 0
    while gone < excess:
        tickets = base.execute(OLD_TICKETS, (excess - gone,)).fetchall()
        lot = base.execute(OLD_LOT).fetchone()
        if lot is not None and (not tickets or lot[4] < tickets[0][8]):
            gone += _fold_lot(base, lot)
        elif tickets:
            gone += _fold_tickets(base, tickets)
        else:
            break
    return gone


def add_up(base: sqlite3.Connection, sums: Counted) -> None:
    """Add to `sums` the labels of tickets that are gone."""
    for cell, source, arm, labels, right in base.execute("SELECT * FROM folded"):
        lots.add(sums, {(cell, source, arm): (labels, right)})


def add_asked(base: sqlite3.Connection, sums: Asked) -> None:
    """Add to `sums` what peers answered for tickets that are gone."""
    for cell, peer, answers, labels in base.execute("SELECT * FROM folded_asked"):
        _count(sums, (cell, peer), answers, labels)


def _fold_tickets(base: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> int:
    sums: Counted = {}
    asked: Asked = {}
    for _, _, source, cell, arm, phase, is_right, peer, _ in rows:
        if is_right is not None and phase not in UNCOUNTED:
            lots.add(sums, {(cell, source, arm): (1, is_right)})
        if peer:
            _count(asked, (cell, peer), 1, int(is_right is not None))
    _write(base, sums, asked)
    keys = [row[:2] for row in rows]
    base.executemany("DELETE FROM tickets WHERE desk = ? AND ticket = ?", keys)
    return len(rows)


def _fold_lot(base: sqlite3.Connection, row: Sequence[Any]) -> int:
    number, rows = row[0], row[5]
    sums: Counted = {}
    asked: Asked = {}
    lots.add_up(base, sums, number)
    lots.add_asked(base, asked, number)
    _write(base, sums, asked)
    base.execute("DELETE FROM lot_labels WHERE lot = ?", (number,))
    base.execute("DELETE FROM lots WHERE lot = ?", (number,))
    return int(rows)


def _write(base: sqlite3.Connection, sums: Counted, asked: Asked) -> None:
    base.executemany(FOLD_LABELS, [(*key, *counted) for key, counted in sums.items()])
    base.executemany(FOLD_ASKED, [(*key, *counted) for key, counted in asked.items()])


def _count(sums: Asked, key: tuple[str, str], answers: int, labels: int) -> None:
    old = sums.get(key, (0, 0))
    sums[key] = old[0] + answers, old[1] + labels
