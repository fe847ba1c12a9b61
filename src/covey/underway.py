"""Counting anew the labels that are under way, in a table that has room for them."""

from collections.abc import Iterable

from covey.decisions import Decision
from covey.engine import Table


def with_under_way(old: Table, new: Table, waiting: Iterable[Decision], place: slice) -> Table:
    """Return `new` with all that `old` knows, and the labels of `waiting` as those under way.

    `place` says where rows of `new` have them; rows keep their numbers.
    """
    none = [0] * (place.stop - place.start)
    # A table that counted them already has room for them.
    room = len(new.counters(0)) - len(old.counters(0))
    for row in range(len(old)):
        known = old.counters(row)
        new.load(old.cell(row), [*known[: place.start], *none, *known[place.stop - room :]])
        new.know(row, old.known(row))
    for decision in waiting:
        if decision.choice.phase != "recall":
            new.expect(decision.code)
    new.take_doubts(old.doubts())
    return new
