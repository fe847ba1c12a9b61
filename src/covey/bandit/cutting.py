"""Whether the cells of a learner can be divided among processes, and which process has which.

A decision in a grid reads and changes the counters of one cell, and of the rest only the slot. So
the cells can be divided in any way, if each part gets its rows in order, under their own slots.
Some settings couple the cells: then no division gives the decisions of one process.
"""

import hashlib
from collections.abc import Iterable, Sequence

from covey.bandit.policies import Policy

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
