"""Counting anew the labels that are under way, in a table that has room for them."""

from collections.abc import Iterable

from covey.decisions import Decision
from covey.engine import Table


def with_under_way(old: Table, new: Table, waiting: Iterable[Decision], place: slice) -> Table:
    """Return `new` with all that `old` knows, and the labels of `waiting` as those under way.

    `place` says where rows of `new` have them; rows keep their numbers.
    """
    arms = place.stop - place.start
    under_way = [[0] * arms for _ in range(len(old))]
    for decision in waiting:
        if decision.choice.phase not in ("train", "recall"):
            under_way[decision.code >> 20][decision.code >> 2 & 0x3FFFF] += 1
    # A table that counted them already has room for them.
    room = len(new.counters(0)) - len(old.counters(0))
    for row, counts in enumerate(under_way):
        known = old.counters(row)
        end = place.stop - room
        new.load(old.cell(row), [*known[: place.start], *counts, *known[end:]])
        new.know(row, old.known(row))
    new.take_doubts(old.doubts())
    return new
