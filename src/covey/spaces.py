"""Context spaces of a configuration: one for all learners, or per learner.

A learner with several candidate spaces selects one of them for each instance.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from covey.errors import ConfigError

Entry = str | dict[str, Any]
Candidates = list[Entry | list[Entry]]
Space = tuple[int, ...]  # indices of coordinates


class Plan(NamedTuple):
    """All coordinates in order of first use, the spaces, and the spaces of each learner."""

    entries: list[Entry]
    spaces: tuple[Space, ...]
    own: tuple[tuple[int, ...], ...]  # per learner, the indices of its candidate spaces

    def of_width(self, width: int) -> tuple[Space, ...]:
        """Return the spaces for contexts of `width` coordinates; unnamed ones form one space."""
        return self.spaces if self.entries else (tuple(range(width)),)


class Wish(NamedTuple):
    """The context keys of `[data]` or of a learner."""

    where: str
    context: list[Entry] | None
    candidates: Candidates | None

    def listed(self) -> list[list[Entry]] | None:
        """Return the candidates, each a list of coordinates; None if neither key is set."""
        if self.context and self.candidates:
            raise ConfigError(f"{self.where} has context and candidates; remove one of them")
        if self.candidates is not None:
            if not self.candidates:
                raise ConfigError(f"{self.where} candidates is empty; list contexts to choose from")
            return [entry if isinstance(entry, list) else [entry] for entry in self.candidates]
        return None if self.context is None else [self.context]


def plan(common: Wish, learners: Sequence[Wish]) -> Plan:
    """Return the coordinates and spaces of a configuration."""
    shared = common.listed() or [[]]
    entries: list[Entry] = []
    spaces: list[Space] = []
    wished = [wish.listed() or shared for wish in learners]
    # The shared columns come first, also when no learner uses them.
    for candidate in [*shared, *(space for listed in wished for space in listed)]:
        for entry in candidate:
            if entry not in entries:
                entries.append(entry)
    own = [[_index(candidate, entries, spaces) for candidate in listed] for listed in wished]
    for indices, wish in zip(own, learners, strict=True):
        if len(set(indices)) < len(indices):
            raise ConfigError(f"{wish.where} has a duplicate candidate; remove one")
    return Plan(entries, tuple(spaces), tuple(map(tuple, own)))


def space_name(space: Space, names: Sequence[str]) -> str:
    """Return the name of a space: the names of its coordinates."""
    return "+".join(names[k] for k in space)


def cell_name(space: Space, names: Sequence[str], cell: str) -> str:
    """Return the name of a cell when there are several spaces."""
    return f"{space_name(space, names)}/{cell}"


def space_of(cell: str) -> str:
    """Return the name of the space in the name of a cell."""
    return cell.rpartition("/")[0]


def _index(candidate: list[Entry], entries: list[Entry], spaces: list[Space]) -> int:
    space = tuple(entries.index(entry) for entry in candidate)
    if space not in spaces:
        spaces.append(space)
    return spaces.index(space)
