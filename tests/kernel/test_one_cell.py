"""The default policy uses one cell where contexts say nothing, and the tree where they matter."""

from typing import Any

import numpy as np
import pytest

from covey.bandit.policies import policy_from
from covey.kernel import Clock, Table, arm_of, table_of

ONE_CELL = 35  # where the state of a table says whether it uses one cell


def played_alone(accuracy: Any, slots: int, alarm: float = 5.0) -> Table:
    """Return a table without peers, after labels of two functions by context."""
    policy = policy_from({"alarm": alarm}).resolve(dimension=3, most_functions=2)
    rule = policy.rule(functions=2, costs=(0.0, 0.0), position=0)
    table = table_of(Clock(policy.scales(), policy.powers()), rule)
    rng = np.random.default_rng(1)
    for slot in range(1, slots + 1):
        context = tuple(rng.random(3).tolist())
        code = table.decide(context, slot)
        gain = int(rng.random() < accuracy(arm_of(code), context[0]))
        table.settle(code, gain, context, slot)
    return table


@pytest.mark.parametrize("alarm", [0.0, 5.0])
def test_one_cell_is_used_where_contexts_say_nothing(alarm: float) -> None:
    table = played_alone(lambda arm, x: (0.5, 0.8)[arm], 3_000, alarm)

    assert table.doubts()[ONE_CELL] == 1


def test_the_tree_is_used_where_contexts_matter() -> None:
    table = played_alone(lambda arm, x: x if arm else 1 - x, 3_000)

    assert table.doubts()[ONE_CELL] == 0
