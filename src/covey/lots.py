"""Many rows of one request under one id: what was decided, answered and told, column by column.

A lot is one record of the store. Its labels are added in parts, as they come.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey.decisions import NO_ANSWER, UNKNOWN
from covey.errors import StoreError
from covey.schema import COUNT_MANY, UNCOUNTED
from covey.types import Label

Counted = dict[tuple[str, str, str], tuple[int, int]]  # cell, source, arm -> labels, right
ADD = "INSERT INTO lots VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
FIND = "SELECT * FROM lots WHERE source = ? AND id = ?"
OPEN = "SELECT * FROM lots WHERE is_open ORDER BY lot"
LABELLED = """
SELECT lot, source, kinds, which, part.rows, right FROM lots JOIN lot_labels AS part USING (lot)
WHERE ?1 IS NULL OR lot = ?1 ORDER BY lot, part
"""
ASKING = "SELECT * FROM lots WHERE helped IS NOT NULL AND (?1 IS NULL OR lot = ?1)"
SIZE = """
SELECT (SELECT COALESCE(SUM(rows), 0) FROM lots), (SELECT COALESCE(SUM(labels), 0) FROM lot_labels)
"""


class Kind(NamedTuple):
    """What rows that were decided alike have in common."""

    code: int
    cell: str
    phase: str
    arm: str
    price: float
    peer: str = ""

    @property
    def is_counted(self) -> bool:
        """Whether its labels move a counter of the arm."""
        return self.phase not in UNCOUNTED


class Helped(NamedTuple):
    """What a row has of its own where a peer was asked."""

    function: str  # that answered the client in the end
    peer_ticket: str
    width: int = 0


class Lot(msgspec.Struct, eq=False, kw_only=True):
    """Many decisions in consecutive slots; nothing but `truths` and what goes with them changes."""

    number: int
    source: str
    id: str
    digest: str
    slot: int  # of the first row
    space: str
    kinds: list[Kind]
    which: np.ndarray  # the kind of each row
    contexts: np.ndarray  # rows x dimension
    predictions: list[Label]  # what the arms said; NO_ANSWER: nothing
    answers: list[Label]  # what the source was told
    helped: dict[int, Helped] = {}
    truths: list[Any] = []  # labels; UNKNOWN: has not come
    parts: int = 0  # in which labels were stored
    is_open: bool = True  # labels are waited for
    is_stored: bool = False
    lessons: dict[int, tuple[int, Any]] = {}  # function and instance, to be taught by the label

    def __len__(self) -> int:
        return len(self.predictions)

    @property
    def last_slot(self) -> int:
        """The slot of the last row."""
        return self.slot + len(self) - 1

    @property
    def codes(self) -> np.ndarray:
        """The kernel's decisions, row by row."""
        found: np.ndarray = np.array([kind.code for kind in self.kinds], np.int64)[self.which]
        return found

    @property
    def waiting(self) -> list[int]:
        """The rows whose label has not come."""
        return [row for row, truth in enumerate(self.truths) if truth is UNKNOWN]

    def kind(self, row: int) -> Kind:
        """Return the decision of a row."""
        return self.kinds[int(self.which[row])]

    def function(self, row: int) -> str:
        """Return who answered a row: a function of the site, or of a peer."""
        helped = self.helped.get(row)
        return self.kind(row).arm if helped is None else helped.function


class Told(msgspec.Struct):
    """Labels of a lot that came since the last commit."""

    lot: int
    part: int
    rows: list[int] = []
    truths: list[Label] = []
    right: list[bool] = []


class LotBatch(msgspec.Struct):
    """What lots add to a commit."""

    lots: list[Lot] = []
    told: dict[int, Told] = {}
    counts: Counted = {}
    closed: list[int] = []  # lots whose labels are waited for no longer


def write(base: sqlite3.Connection, batch: LotBatch) -> None:
    """Write what lots add to a commit."""
    base.executemany(ADD, map(_row, batch.lots))
    parts = map(_part, batch.told.values())
    base.executemany("INSERT INTO lot_labels VALUES (?, ?, ?, ?, ?, ?)", parts)
    base.executemany(COUNT_MANY, [(*key, *counted) for key, counted in batch.counts.items()])
    base.executemany("UPDATE lots SET is_open = 0 WHERE lot = ?", [(n,) for n in batch.closed])


def find(base: sqlite3.Connection, source: str, id: str) -> Lot | None:  # noqa: A002 - as in a store
    """Return the lot that `source` knows as `id`, however old; None if there is none."""
    rows = base.execute(FIND, (source, id)).fetchall()
    return _lot(base, rows[0]) if rows else None


def opened(base: sqlite3.Connection) -> list[Lot]:
    """Return the lots whose labels are waited for, in the order in which they were given out."""
    return [_lot(base, row) for row in base.execute(OPEN).fetchall()]


def latest(base: sqlite3.Connection) -> int:
    """Return the number of the latest lot; 0 if there was none."""
    number: int = base.execute("SELECT COALESCE(MAX(lot), 0) FROM lots").fetchone()[0]
    return number


def size(base: sqlite3.Connection) -> tuple[int, int]:
    """Return how many rows there are in lots, and how many have their label."""
    rows, labels = base.execute(SIZE).fetchone()
    return rows, labels


def add_up(base: sqlite3.Connection, sums: Counted, number: int | None = None) -> None:
    """Add to `sums` all labels of a lot, or of all; raise `StoreError` where a row has two."""
    seen: dict[int, set[int]] = {}
    for lot, source, kinds, which, rows, right in base.execute(LABELLED, (number,)):
        places = np.frombuffer(rows, np.uint32)
        known = seen.setdefault(lot, set())
        if len(known) + len(places) != len(known.union(places.tolist())):
            raise StoreError(f"a row of lot {lot} has two labels")
        known.update(places.tolist())
        found = np.frombuffer(which, np.uint32)[places]
        add(sums, counts(source, _kinds(kinds), found, np.frombuffer(right, np.uint8)))


def counts(source: str, kinds: Sequence[Kind], which: np.ndarray, right: np.ndarray) -> Counted:
    """Return the labels of some rows, by cell, source and arm, and how many were right."""
    labels = np.bincount(which, minlength=len(kinds)).tolist()
    hits = np.bincount(which[right > 0], minlength=len(kinds)).tolist()
    sums: Counted = {}
    for kind, count, hit in zip(kinds, labels, hits, strict=True):
        if count and kind.is_counted:
            add(sums, {(kind.cell, source, kind.arm): (count, hit)})
    return sums


def add(sums: Counted, more: Mapping[tuple[str, str, str], tuple[int, int]]) -> None:
    """Add `more` to `sums`."""
    for key, (labels, right) in more.items():
        old = sums.get(key, (0, 0))
        sums[key] = old[0] + labels, old[1] + right


def add_asked(
    base: sqlite3.Connection,
    sums: dict[tuple[str, str], tuple[int, int]],
    number: int | None = None,
) -> None:
    """Add to `sums` what peers answered for rows of lots, and how many of these have a label."""
    asking = base.execute(ASKING, (number,)).fetchall()
    for lot in (_lot(base, row) for row in asking):
        for row in lot.helped:
            kind = lot.kind(row)
            count, labelled = sums.get((kind.cell, kind.peer), (0, 0))
            is_labelled = lot.truths[row] is not UNKNOWN
            sums[kind.cell, kind.peer] = count + 1, labelled + is_labelled


def _row(lot: Lot) -> tuple[Any, ...]:
    is_plain = lot.answers is lot.predictions
    return (
        lot.number,
        lot.source,
        lot.id,
        lot.digest,
        lot.slot,
        len(lot),
        lot.space,
        as_text(lot.kinds),
        lot.which.tobytes(),
        lot.contexts.tobytes(),
        as_text(lot.predictions if is_plain else _said(lot.predictions)),
        None if is_plain else as_text(_said(lot.answers)),
        as_text(lot.helped) if lot.helped else None,
        1,
    )


def _part(told: Told) -> tuple[Any, ...]:
    rows = np.array(told.rows, np.uint32).tobytes()
    return told.lot, told.part, len(told.rows), rows, as_text(told.truths), bytes(told.right)


def _lot(base: sqlite3.Connection, row: Sequence[Any]) -> Lot:
    number, source, id_, digest, slot, rows, space, kinds, which, points, said, answers = row[:12]
    predictions = _heard(said)
    lot = Lot(
        number=number,
        source=source,
        id=id_,
        digest=digest,
        slot=slot,
        space=space,
        kinds=_kinds(kinds),
        which=np.frombuffer(which, np.uint32),
        contexts=np.frombuffer(points).reshape(rows, -1).copy(),
        predictions=predictions,
        answers=predictions if answers is None else _heard(answers),
        helped={int(k): Helped(*one) for k, one in msgspec.json.decode(row[12] or "{}").items()},
        truths=[UNKNOWN] * rows,
        is_open=bool(row[13]),
        is_stored=True,
    )
    parts = base.execute("SELECT rows, truths FROM lot_labels WHERE lot = ?", (number,))
    for places, truths in parts:
        lot.parts += 1
        labels = msgspec.json.decode(truths)
        for place, truth in zip(np.frombuffer(places, np.uint32).tolist(), labels, strict=True):
            lot.truths[place] = truth
    return lot


def _kinds(text: str) -> list[Kind]:
    return [Kind(*one) for one in msgspec.json.decode(text)]


def _said(labels: Sequence[Any]) -> list[Any]:
    return [None if label is NO_ANSWER else label for label in labels]


def _heard(text: str) -> list[Any]:
    return [NO_ANSWER if label is None else label for label in msgspec.json.decode(text)]


def as_text(value: Any) -> str:
    """Return a value as it is kept."""
    return msgspec.json.encode(value).decode()
