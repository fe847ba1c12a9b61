"""A learner's counters, without pending labels."""

from typing import Any, NamedTuple

from covey.bandit.learner import Learner
from covey.kernel import doubts_of, take_doubts


class Snapshot(NamedTuple):
    """The counters, cell by cell."""

    slot: int
    cells: list[tuple[str, list[int]]]
    seen: list[tuple[str, list[tuple[Any, int]]]]  # labels, of peers that may be asked by cell
    doubts: dict[str, list[int]]  # of what is known, by context space


def snapshot_of(learner: Learner) -> Snapshot:
    tables = learner.tables
    rows = [(space, row) for space in tables for row in range(len(tables[space]))]
    names = [learner.name_at(space, row) for space, row in rows]
    cells = [tables[space].saved.stored(row) for space, row in rows]
    seen = [tables[space].saved.known(row) for space, row in rows]
    cells = list(zip(names, cells, strict=True))
    seen = list(zip(names, seen, strict=True)) if learner.remembers else []
    return Snapshot(learner.slot, cells, seen, doubts_of(tables))


def restore(learner: Learner, snapshot: Snapshot) -> None:
    """Let a learner that has not begun take over the counters; nothing is pending then."""
    learner.slot = snapshot.slot
    seen = dict(snapshot.seen)
    for name, counters in snapshot.cells:
        cell = learner.names.parse(name)
        learner.tables[cell.space].saved.load_stored(cell, counters, seen.get(name, []))
    take_doubts(learner.tables, snapshot.doubts)
