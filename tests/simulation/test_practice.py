"""Functions that improve with their use, in simulation."""

from typing import Any

import numpy as np
import pytest

from covey.bandit.policies import CoS
from covey.bandit.settings import Settings
from covey.errors import ConfigError
from covey.replay.engine import start
from covey.simulation.environment import environment_from
from covey.simulation.run import CAUSES, log_of, network, play
from covey.simulation.world import PRACTICE_SLOTS, World

SEVERITY, USES, PRICE, SLOTS = 0.4, 300, 0.05, 1_000
TABLE: dict[str, Any] = {"name": "practice", "learners": 2, "prices": PRICE}
DRIFT = {"kind": "use", "severity": SEVERITY, "every-slots": USES}
POLICIES = [CoS(slices=2), Settings(preset="auto")]


@pytest.mark.parametrize("settings", POLICIES, ids=lambda one: one.preset)
def test_regret_is_against_the_functions_as_they_are_after_their_uses(settings: Settings) -> None:
    environment = environment_from({**TABLE, "drift": DRIFT})
    finished = World(environment_from(TABLE), seed=5, horizon=SLOTS).draw(SLOTS).accuracy[0]
    setup = network(environment, settings)
    game = start(setup, setup.sites, 1, [0, 1])
    world = World(environment, seed=5, horizon=SLOTS)
    uses, lost = np.zeros(4), []
    for first in range(0, SLOTS, PRACTICE_SLOTS):
        chunk = world.draw(min(PRACTICE_SLOTS, SLOTS - first))
        trace = game.play(log_of(chunk))
        world.record(trace.function)
        for row, function in enumerate(trace.function.tolist()):
            slot, learner = divmod(row, 2)
            now = finished[:, first + slot] - SEVERITY * np.maximum(0, 1 - uses / USES)
            worth = np.clip(now, 0, 1) - [PRICE * (k // 2 != learner) for k in range(4)]
            lost.append(worth.max() - worth[function])
        uses += np.bincount(trace.function, minlength=4)
    run = play(environment, settings, seed=5, horizon=SLOTS, checkpoints=[70, 300, SLOTS])
    found = np.array([run.regret[cause] for cause in CAUSES]).sum(axis=0)

    assert found == pytest.approx([sum(lost[: 2 * slot]) for slot in (70, 300, SLOTS)], abs=1e-3)
    assert uses.max() > USES


def test_checkpoints_do_not_change_when_functions_improve() -> None:
    environment = environment_from({**TABLE, "drift": DRIFT})
    few = play(environment, CoS(slices=2), seed=1, horizon=500, checkpoints=[500])
    many = play(environment, CoS(slices=2), seed=1, horizon=500, checkpoints=[*range(10, 501, 10)])

    assert {cause: curve[-1] for cause, curve in many.regret.items()} == {
        cause: curve[-1] for cause, curve in few.regret.items()
    }


def test_use_of_some_learners_improves_only_these() -> None:
    table = {**TABLE, "drift": {**DRIFT, "learners": ["learner-2"]}}
    world = World(environment_from(table), seed=5, horizon=2 * PRACTICE_SLOTS)
    world.draw(PRACTICE_SLOTS)
    world.record(np.array([0, 0, 2, 2, 3]))
    found = world.draw(PRACTICE_SLOTS).accuracy[0]
    finished = World(environment_from(TABLE), seed=5, horizon=2 * PRACTICE_SLOTS)
    gap = (finished.draw(2 * PRACTICE_SLOTS).accuracy[0][:, PRACTICE_SLOTS:] - found).max(axis=1)

    assert gap[:2].tolist() == [0, 0]
    assert (gap[2:] <= [SEVERITY * (1 - 2 / USES) + 1e-6, SEVERITY * (1 - 1 / USES) + 1e-6]).all()


def test_practice_and_batches_are_refused_together() -> None:
    with pytest.raises(ConfigError, match=r"batch cannot be combined with drift.kind = .use."):
        environment_from({**TABLE, "drift": DRIFT, "batch": 4})
