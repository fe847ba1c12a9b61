"""Estimate the memory need of a run."""

from covey.environments import Environment
from covey.policies import Policy
from covey.runs import lengths

_PROCESS = 60e6  # bytes of an idle worker
_PER_ARM = 2 * 49  # bytes of a cell in use, twice while its table grows
_PER_CELL = 500  # bytes of its name and index entries
_PER_ANSWER = 64  # bytes of a chunk per slot and function, or slot and decision


def most_bytes(policy: Policy, environment: Environment, slots: int) -> float:
    """Return the largest memory need of one worker for so many slots."""
    learners, functions = len(environment.names), sum(environment.counts)
    arms = max(environment.counts) + learners - 1
    # A learner also keeps the cells of the learners that ask it.
    cells = min(most_cells(policy, slots * learners), policy.settings.max_cells)
    answers = environment.streams * functions + environment.receivers
    tables = cells * (learners * arms * _PER_ARM + _PER_CELL)
    return _PROCESS + tables + next(lengths(environment, slots)) * answers * _PER_ANSWER


def most_cells(policy: Policy, arrivals: int) -> float:
    """Return how many cells so many arrivals can create: at most all of a level, or one each."""
    cells, split_at = 0.0, 1.0
    for level in policy.partition.levels(policy.dimension):
        opened = arrivals / max(1.0, split_at) * 2.0**policy.dimension
        cells += min(float(level.side) ** policy.dimension, arrivals, opened)
        split_at = level.split_at
    return cells
