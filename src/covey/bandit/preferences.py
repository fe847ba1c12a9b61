"""Which arm a learner prefers in each of its cells, for displays."""

import heapq
from typing import Any, NamedTuple, cast

from covey.bandit.epochs import EpochCells, EpochTable
from covey.bandit.learner import Learner
from covey.bandit.policies import Policy


class CellPreference(NamedTuple):
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
    found = []
    several = learner.candidates.get(learner.space)
    for number, space in enumerate(learner.own_spaces):
        table, policy = _present(learner.tables[space], learner.policies[space])
        places = tuple(range(policy.dimension)) if several is None else several.columns[number]
        used = [(table.own(row), row) for row in range(len(table)) if not table.is_split(row)]
        for arrivals, row in heapq.nlargest(most, (one for one in used if one[0])):
            found.append(_preference(learner, table, policy, row, arrivals, places))
    return found


def _present(table: Any, policy: Policy) -> tuple[Any, Policy]:
    """Return the table and policy that decide now: of epochs the latest with own arrivals."""
    if not isinstance(table, EpochTable):
        return table, policy
    used = [
        key for key, one in table.tables.items() if any(one.own(row) for row in range(len(one)))
    ]
    if not used:
        return (), policy
    key = max(used)
    return table.tables[key], cast("EpochCells", policy.partition).policy_of(key)


def _preference(
    learner: Learner, table: Any, policy: Policy, row: int, arrivals: int, places: tuple[int, ...]
) -> CellPreference:
    cell = table.cell(row)
    side = policy.partition.levels(policy.dimension)[cell.level].side
    best = table.best(row)
    if policy.has_index:  # an index ignores a high mean of few labels
        best = max(range(len(learner.arms)), key=lambda arm: table.record(row, arm)[0])
    labels, _ = table.record(row, best)
    return CellPreference(
        places,
        tuple(coordinate / side for coordinate in cell.coordinates),
        tuple((coordinate + 1) / side for coordinate in cell.coordinates),
        arrivals,
        learner.arms[best] if labels else None,
    )
