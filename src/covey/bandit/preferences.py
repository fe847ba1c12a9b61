"""Which arm a learner prefers in each of its cells, for displays."""

import heapq
from typing import Any, cast

import msgspec

from covey.bandit.learner import Learner
from covey.bandit.partitions import MOST_DRAWN, EpochCells
from covey.bandit.policies import Policy, used_rows
from covey.bandit.several import Restarted


class CellPreference(msgspec.Struct, frozen=True):
    """A cell in which a learner has decided, and the arm that it prefers there."""

    places: tuple[int, ...]  # of its coordinates in contexts
    low: tuple[float, ...]
    high: tuple[float, ...]
    arrivals: int
    arm: str | None  # with the largest estimate (index policies: most labels); None: no labels


def preferences(learner: Learner, most: int) -> list[CellPreference]:
    """Return the cells with the most own arrivals, of the present epoch; split ones are left out.

    Nothing changes by it, and it takes little time: it can be called between decisions.
    """
    preferences = []
    several = learner.candidates.get(learner.space)
    for number, space in enumerate(learner.own_spaces):
        table, policy = _present(learner.tables[space], learner.policies[space])
        places = tuple(range(policy.dimension)) if several is None else several.columns[number]
        for arrivals, row in heapq.nlargest(most, used_rows(table)):
            cell = table.cells.cell(row)
            if table.cells.is_wide:  # one cell, which has no coordinates
                cell = cell._replace(coordinates=(0,) * policy.dimension)
            side = policy.partition.levels(policy.dimension)[cell.level].side
            sides = cell.coordinates if policy.dimension <= MOST_DRAWN else ()
            low = tuple(coordinate / side for coordinate in sides)
            high = tuple((coordinate + 1) / side for coordinate in sides)
            arm, _, _ = policy.preferred(table, row, learner.arms)
            preferences.append(CellPreference(places[: len(sides)], low, high, arrivals, arm))
    return preferences


def _present(table: Any, policy: Policy) -> tuple[Any, Policy]:
    """Return the table and policy that decide now: of epochs the latest with own arrivals."""
    if not isinstance(table, Restarted):
        return table, policy
    if not table.used:
        return (), policy
    last = max(table.used)
    return table.tables[last], cast("EpochCells", policy.partition).policy_of(last)
