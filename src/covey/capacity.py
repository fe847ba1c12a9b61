"""How much memory a run may need, told before it starts."""

from covey.environments import Environment
from covey.policies import Policy
from covey.runs import lengths

_PROCESS = 60e6  # bytes of a worker that has not played yet
_PER_ARM = 2 * 49  # bytes of a cell in use, twice while its table grows
_PER_CELL = 500  # bytes of its name and what goes by it
_PER_ANSWER = 64  # bytes that a stretch holds per slot and function, or slot and decision


def most_bytes(policy: Policy, environment: Environment, slots: int) -> float:
    """Return what one worker may need at most to play so many slots."""
    learners, functions = len(environment.names), sum(environment.counts)
    arms = max(environment.counts) + learners - 1
    # A learner also keeps the cells of those who ask it.
    cells = min(most_cells(policy, slots * learners), policy.settings.max_cells)
    answers = environment.streams * functions + environment.receivers
    stretch = next(lengths(environment, slots))
    tables = cells * (learners * arms * _PER_ARM + _PER_CELL)
    return _PROCESS + tables + stretch * answers * _PER_ANSWER


def most_cells(policy: Policy, arrivals: int) -> float:
    """Return how many cells so many arrivals can open: at most all of a level, or one each."""
    cells, split_at = 0.0, 1.0
    for level in policy.partition.levels(policy.dimension):
        opened = arrivals / max(1.0, split_at) * 2.0**policy.dimension
        cells += min(float(level.side) ** policy.dimension, arrivals, opened)
        split_at = level.split_at
    return cells
