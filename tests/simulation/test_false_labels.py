"""Learners that tell peers false labels, in simulation: as a slow reference decides."""

from typing import Any

import numpy as np
import pytest

import reference
from covey.bandit.partitions import Threshold
from covey.bandit.policies import Auto, CoS, PolicyRecord
from covey.replay.engine import ReplayEngine
from covey.simulation.environment import environment_from
from covey.simulation.run import CAUSES, log_of, network, play
from covey.simulation.world import World
from reference import Setup, Site

SLOTS = 600
PRICE = 0.05
LIMIT = (1.0, 0.2)
TABLE: dict[str, Any] = {
    "name": "world",
    "learners": 3,
    "functions": 2,
    "prices": PRICE,
    "lipschitz": 1.2,
}
LIE = {"liars": {"learner-3": "false-labels"}}
SETTINGS = CoS(
    slices=2,
    explore=Threshold(*LIMIT),
    train=Threshold(*LIMIT),
    explore_peers=Threshold(*LIMIT),
    check_claims=False,
)


def by_reference(table: dict[str, Any], delay: int = 0) -> list[int]:
    """Return the functions that the slow reference uses."""
    chunk = World(environment_from(table), seed=3, horizon=SLOTS).draw(SLOTS)
    sites = [
        Site(
            f"learner-{k + 1}",
            2,
            (0.0, 0.0),
            True,
            tuple((other, PRICE) for other in range(3) if other != k),
            misleads=f"learner-{k + 1}" in table.get("liars", {}),
            free=(0, 1) if table.get("free") else (),
        )
        for k in range(3)
    ]
    setup = Setup(
        tuple(sites),
        zooming=False,
        slices=2,
        split_scale=1.0,
        split_power=1.0,
        explore=LIMIT,
        train=LIMIT,
        explore_peers=LIMIT,
    )
    rows = reference.replay(
        setup,
        contexts=[tuple(point) for point in chunk.points[:, 0].tolist()],
        predictions=np.asarray(chunk.right[0]).tolist(),
        labels=[1] * SLOTS,
        delay=[delay] * SLOTS,
    )
    return [row.function for row in rows]


def decided(table: dict[str, Any], settings: PolicyRecord = SETTINGS) -> list[int]:
    environment = environment_from(table)
    setup = network(environment, settings)
    chunk = World(environment, seed=3, horizon=SLOTS).draw(SLOTS)
    trace = ReplayEngine(setup, setup.sites, 1, [0, 1]).play(log_of(chunk, environment, setup))
    return list(trace.function.tolist())


@pytest.mark.parametrize(
    "more",
    [{}, {"delay-slots": 7, "least-delay-slots": 7}, {"free": True}],
    ids=["at once", "late", "free functions"],
)
def test_decisions_with_false_labels_are_those_of_the_reference(more: dict[str, Any]) -> None:
    table, delay = {**TABLE, **LIE, **more}, more.get("delay-slots", 0)

    assert decided(table) == by_reference(table, delay)
    assert decided(table) != by_reference({**TABLE, **more}, delay)


def test_false_labels_cost_the_learners_that_are_asked() -> None:
    """The liar is not harmed itself: it learns from the true labels."""
    honest, lying = (
        play(
            environment_from({**TABLE, **lie, "measured": ["learner-1", "learner-2"]}),
            SETTINGS,
            seed=3,
            horizon=20_000,
            checkpoints=[20_000],
        )
        for lie in ({}, LIE)
    )

    regret = [sum(run.regret[cause][-1] for cause in CAUSES) for run in (honest, lying)]
    assert regret[1] > 1.2 * regret[0]


def test_the_default_policy_plays_with_false_labels_too() -> None:
    assert decided({**TABLE, **LIE}, Auto()) != decided(TABLE, Auto())
