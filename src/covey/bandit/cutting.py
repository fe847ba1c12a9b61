"""Whether the cells of a learner can be divided among processes, and which process has which.

A decision in a grid reads and changes the counters of one cell, and of the rest only the slot. So
the cells can be divided in any way, if each part gets its rows in order, under their own slots.
Some settings couple the cells: then no division gives the decisions of one process.
"""

import hashlib
import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from covey.bandit.policies import Policy
from covey.types import Array

WHY = "couples all cells, so they cannot be divided among processes"


def why_coupled(
    policies: Iterable[Policy],
    *,
    has_candidates: bool = False,
    has_ensemble: bool = False,
    learns_link_costs: bool = False,
) -> str | None:
    """Return which key couples the cells, and what to write instead; None: they can be divided.

    `policies` are those of all context spaces. The other arguments say what a network has besides:
    learners with several candidate contexts, an `[ensemble]`, links with a cost column.
    """
    if has_candidates:
        return f"candidates {WHY}; set context to one of them"
    if has_ensemble:
        return f"[ensemble] {WHY}; remove it"
    if learns_link_costs:
        return f"cost-column of [[link]] {WHY}; set cost instead"
    found = (_why(policy) for policy in policies)
    return next((why for why in found if why is not None), None)


def _why(policy: Policy) -> str | None:
    settings = policy.settings
    if policy.custom is not None:
        return (
            f"[policy] preset {settings.preset!r} is one of your own, which may keep something for "
            "all cells; use preset cos"
        )
    if policy.tree is not None:
        return (
            f"[policy] preset {settings.preset!r} {WHY}: it learns runs of errors and changes from "
            "all of them; use preset cos or share-ucb"
        )
    for is_there, key, remedy in (
        (settings.horizon == "doubling", '[policy] horizon = "doubling"', "set slots, or slices"),
        (settings.reading.ties == "random", '[policy.reading] ties = "random"', "remove it"),
        # It measures the share of labels that arrive.
        (settings.pending and policy.by_index is None, "[policy] pending", "set it to false"),
    ):
        if is_there:
            return f"{key} {WHY}; {remedy}"
    return _why_by_cells(policy)


def _why_by_cells(policy: Policy) -> str | None:
    preset = policy.settings.preset
    if len(policy.partition.levels(policy.dimension)) > 1:
        also = " and alarm = 0" if policy.detects_changes else ""
        grid = "use preset cos" if preset == "dcza" else f"set slices{also}"
        return f"[policy] preset {preset!r} without slices {WHY}; {grid}"
    if policy.detects_changes:
        return f"[policy] alarm of preset {preset!r} {WHY}; set alarm = 0"
    return None


def owner_of(cell: str, owners: Sequence[str]) -> int:
    """Return the place of the owner of a cell among `owners`, by rendezvous hashing.

    It depends on the names only, so all processes agree; one more owner takes its cells from all
    others, and moves no other cell.

    >>> [owner_of(f"g4:{k}", ["1", "2"]) for k in range(4)]
    [0, 0, 0, 1]
    """
    weights = [hashlib.blake2b(f"{cell} {one}".encode(), digest_size=8).digest() for one in owners]
    return weights.index(max(weights))


_FEW = 1 << 16  # cells of a grid that is looked up in a table


def cell_codes(points: Array, slices: int) -> Array:
    """Return a number for each context, the same for contexts in the same cell of a grid.

    In very large grids two cells may have the same number; then they belong to the same part.
    """
    codes = np.zeros(len(points), np.uint64)
    for column in points.T:
        places = np.minimum((column * float(slices)).astype(np.int64), slices - 1)
        codes = codes * np.uint64(slices) + places.astype(np.uint64)
    return codes


class Division(NamedTuple):
    """Which part has which cells of a grid."""

    slices: int
    parts: int
    codes: Array  # of the cells that were counted, ascending
    owners: Array  # their parts

    def parts_of(self, points: Array) -> Array:
        """Return the part of each context; cells that were not counted are spread evenly."""
        codes = cell_codes(points, self.slices)
        cells = self.slices ** points.shape[1]
        if cells <= _FEW:
            table = np.arange(cells) % self.parts
            table[self.codes.astype(np.int64)] = self.owners
            known: Array = table[codes.astype(np.int64)]
            return known
        place = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        others = (codes % np.uint64(self.parts)).astype(np.int64)
        return np.where(self.codes[place] == codes, self.owners[place], others)


class CellWeights(NamedTuple):
    """How many rows of a sample lie in each cell of a grid."""

    slices: int
    codes: Array  # ascending
    rows: Array

    @property
    def most_parts(self) -> float:
        """The largest useful number of parts: the rows of one cell stay together."""
        return float(self.rows.sum() / max(1, self.rows.max(initial=0)))

    def divided(self, parts: int) -> Division:
        """Divide the cells so that parts have about as many rows each: the largest cells first.

        >>> weights = CellWeights(3, np.array([0, 1, 2], np.uint64), np.array([3, 5, 3]))
        >>> weights.divided(2).owners.tolist()
        [1, 0, 1]
        """
        loads = [(0, part) for part in range(parts)]
        owners = np.zeros(len(self.codes), np.int64)
        for cell in np.argsort(-self.rows, kind="stable").tolist():
            load, part = loads[0]
            owners[cell] = part
            heapq.heapreplace(loads, (load + int(self.rows[cell]), part))
        return Division(self.slices, parts, self.codes, owners)


def weights_of(samples: Iterable[Array], slices: int) -> CellWeights:
    """Count the contexts of samples by their cells."""
    found = [cell_codes(points, slices) for points in samples]
    codes, rows = np.unique(np.concatenate(found), return_counts=True)
    return CellWeights(slices, codes, rows)
