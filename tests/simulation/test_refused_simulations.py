"""Scenarios and environments that cannot be simulated are refused before anything is drawn."""

from typing import Any

import pytest
from test_scenario import changed

from covey.bandit.policies import CoS
from covey.simulation import scenario
from covey.simulation.environment import environment_from
from covey.simulation.run import play
from support.refusals import refusals, refuses

WORLD = {"name": "world", "learners": 3, "functions": 2, "lipschitz": 0.8}


def _extension(table: dict[str, Any]) -> None:
    is_network = {"link", "link-change", "ensemble", "batch"} & table.keys()
    policy = CoS(slices=3, batch="slot") if is_network else CoS(slices=3)
    how = {"seed": 1, "horizon": 1_500, "checkpoints": [750, 1_500]}
    play(environment_from({**WORLD, **table}), policy, **how)


DOORS = {
    "scenario": lambda table, key, value: scenario.load(changed(table, key, value)),
    "environment": lambda table: environment_from({"name": "x", **table}),
    "extension": _extension,
}


@pytest.mark.parametrize(("door", "given", "says"), refusals(__file__))
def test_what_cannot_be_simulated_is_refused(
    door: str, given: dict[str, Any], says: list[str]
) -> None:
    refuses(DOORS, door, given, says)
