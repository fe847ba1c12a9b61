"""Policies that inherit, forget or begin anew, in simulation: regret as a slow oracle counts it.

Decisions are those of a replay of the same instances; where cells begin anew, those of a replay of
each epoch alone. Regret is counted decision by decision from the accuracies of the world.
"""

from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey.bandit.policies import DCZA, CoS
from covey.bandit.settings import Forget, Reading, Settings, Threshold
from covey.simulation.environment import environment_from
from covey.simulation.run import CAUSES, Run, play
from covey.simulation.world import World, WorldChunk
from reference import choices

SLOTS = 3_000
NAMES = [f"learner-{k}" for k in (1, 2, 3)]
PRICE, COST = 0.1, 0.02
TABLE: dict[str, Any] = {
    "name": "world",
    "learners": 3,
    "functions": 2,
    "lipschitz": 1.2,
    "prices": PRICE,
    "function-costs": COST,
}
LEARNERS = [
    {
        "name": name,
        "functions": [f"{name}.1", f"{name}.2"],
        "function-costs": [COST, COST],
        "peers": {other: PRICE for other in NAMES if other != name},
    }
    for name in NAMES
]


def drawn(table: dict[str, Any], slots: int = SLOTS) -> WorldChunk:
    return World(environment_from(table), seed=3, horizon=slots).draw(slots)


def played(table: dict[str, Any], settings: Settings, slots: int = SLOTS) -> Run:
    environment = environment_from(table)
    return play(environment, settings, seed=3, horizon=slots, checkpoints=[slots // 2, slots])


def lost_in(chunk: WorldChunk, settings: Settings, rows: slice = slice(None)) -> np.ndarray:
    """Return what each decision of a replay of some slots lost, slot by slot."""
    right, points = chunk.right[0][:, rows], chunk.points[rows, 0]
    trace = covey.replay(
        {"policy": msgspec.to_builtins(settings), "learner": LEARNERS},
        predictions=right,
        labels=np.ones(len(points), np.int64),
        contexts=points,
    )
    return choices.regret(choices.World(LEARNERS, chunk.accuracy[:, :, rows]), trace)


def total(run: Run) -> np.ndarray:
    return np.array([run.regret[cause] for cause in CAUSES]).sum(axis=0)


def assert_same(run: Run, lost: np.ndarray) -> None:
    """The run lost what the oracle of the tests counts, at both checkpoints."""
    half = len(lost) // 2
    assert total(run) == pytest.approx([lost[:half].sum(), lost.sum()], abs=5e-3)
    assert lost.sum() > 1


@pytest.mark.parametrize("children", ["pooled", "averaged"])
def test_regret_with_cells_that_inherit_is_that_of_the_oracle(children: Any) -> None:
    chunk = drawn(TABLE)
    settings = DCZA(inherit=True, reading=Reading(children=children))
    run, plain = played(TABLE, settings), played(TABLE, DCZA())

    assert_same(run, lost_in(chunk, settings))
    explored, as_usual = (
        sum(one.regret[cause][-1] for cause in ("training", "exploration")) for one in (run, plain)
    )
    assert explored < 0.9 * as_usual  # that is what cells inherit for


@pytest.mark.parametrize(
    "forget", [Forget(window=60), Forget(discount=0.97)], ids=["window", "discount"]
)
@pytest.mark.parametrize("kind", ["switch", "gradual"])
def test_regret_under_drift_is_against_the_accuracies_of_each_slot(
    forget: Forget, kind: str
) -> None:
    drift = {"kind": kind, "severity": 0.3, "every-slots": 500}
    table = {**TABLE, "drift": drift}
    chunk, settings = drawn(table), CoS(slices=3, forget=forget)

    assert_same(played(table, settings), lost_in(chunk, settings))
    assert np.ptp(chunk.accuracy[0, 0] - drawn(TABLE).accuracy[0, 0]) > 0.1  # it does drift
    assert total(played(table, settings))[-1] != total(played(table, CoS(slices=3)))[-1]


def test_a_policy_that_forgets_loses_less_after_a_switch() -> None:
    """Accuracies of the functions change places once, at half of the slots."""
    table = {**TABLE, "drift": {"kind": "switch", "severity": 0.4, "every-slots": SLOTS // 2}}
    after = []
    for forget in (Forget(), Forget(window=100)):
        first, both = total(played(table, CoS(slices=1, forget=forget)))
        after.append(both - first)

    assert after[1] < 0.9 * after[0]


def test_regret_with_an_unknown_horizon_is_that_of_its_epochs_one_by_one() -> None:
    settings = CoS(horizon="doubling", first_epoch=200)
    chunk, lost, first, length = drawn(TABLE), [], 0, 200
    while first < SLOTS:
        one = CoS(horizon=length)
        lost.append(lost_in(chunk, one, slice(first, min(SLOTS, first + length))))
        first, length = first + length, 2 * length

    assert_same(played(TABLE, settings), np.concatenate(lost))


def test_regret_with_an_unknown_alpha_is_that_of_the_oracle() -> None:
    slots, rough = 6_000, {**TABLE, "shape": "ramps", "alpha": 0.5, "lipschitz": 2.0}
    often, once = Threshold(0.01, 0.8), Threshold(0.5, 0.0)
    settings = DCZA(
        horizon="doubling",
        first_epoch=4_000,
        alpha="estimated",
        parameters="theorem",
        split_scale=0.01,
        explore=often,
        train=once,
        explore_peers=once,
    )
    run = played(rough, settings, slots)

    assert_same(run, lost_in(drawn(rough, slots), settings))
    smooth = played(rough, msgspec.structs.replace(settings, alpha=1.0), slots)
    assert total(run)[0] == total(smooth)[0]  # nothing is known of it in the first epoch
    assert total(run)[1] != total(smooth)[1]
