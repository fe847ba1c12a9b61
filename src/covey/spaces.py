"""Whose contexts are which: the coordinates of a configuration, and the spaces made of them.

Everybody may have the same contexts, or each learner its own; a learner with several candidates
finds out per instance which of them to go by.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from covey.errors import ConfigError

Entry = str | dict[str, Any]
Candidates = list[Entry | list[Entry]]
Space = tuple[int, ...]  # places among the coordinates


class Plan(NamedTuple):
    """All coordinates by first mention, the spaces made of them, and whose spaces are which."""

    entries: list[Entry]
    spaces: tuple[Space, ...]
    own: tuple[tuple[int, ...], ...]  # per learner, its candidates among the spaces

    def of_width(self, width: int) -> tuple[Space, ...]:
        """Return the spaces where contexts have `width` coordinates: all, if none were named."""
        return self.spaces if self.entries else (tuple(range(width)),)


class Wish(NamedTuple):
    """What `[data]` or a learner says of its contexts."""

    where: str
    context: list[Entry] | None
    candidates: Candidates | None

    def listed(self) -> list[list[Entry]] | None:
        """Return the candidates, each a list of coordinates; None if nothing is said."""
        if self.context and self.candidates:
            raise ConfigError(f"{self.where} has context and candidates; choose one of them")
        if self.candidates is not None:
            if not self.candidates:
                raise ConfigError(f"{self.where} candidates is empty; list contexts to choose from")
            return [one if isinstance(one, list) else [one] for one in self.candidates]
        return None if self.context is None else [self.context]


def plan(common: Wish, learners: Sequence[Wish]) -> Plan:
    """Return the coordinates and spaces that a configuration asks for."""
    shared = common.listed() or [[]]
    entries: list[Entry] = []
    spaces: list[Space] = []
    wished = [wish.listed() or shared for wish in learners]
    # What is common to all comes first, so that its columns do, even if nobody goes by it.
    for candidate in [*shared, *(one for listed in wished for one in listed)]:
        entries += [entry for entry in _once(candidate) if entry not in entries]
    own = [[_number(_space(one, entries), spaces) for one in listed] for listed in wished]
    for places, wish in zip(own, learners, strict=True):
        if len(set(places)) < len(places):
            raise ConfigError(f"{wish.where} has the same candidate twice; keep one")
    return Plan(entries, tuple(spaces), tuple(map(tuple, own)))


def space_name(space: Space, names: Sequence[str]) -> str:
    """Return the name of a space: those of its coordinates."""
    return "+".join(names[place] for place in space)


def cell_name(space: Space, names: Sequence[str], cell: str) -> str:
    """Return the name of a cell where there are several spaces."""
    return f"{space_name(space, names)}/{cell}"


def space_of(cell: str) -> str:
    """Return the name of the space that a cell with such a name belongs to."""
    return cell.rpartition("/")[0]


def _once(candidate: list[Entry]) -> list[Entry]:
    return [entry for k, entry in enumerate(candidate) if entry not in candidate[:k]]


def _space(candidate: list[Entry], entries: list[Entry]) -> Space:
    return tuple(entries.index(entry) for entry in candidate)


def _number(space: Space, spaces: list[Space]) -> int:
    if space not in spaces:
        spaces.append(space)
    return spaces.index(space)
