"""The baselines of `experiments/regret` learn, pay the same prices, and know no more."""

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.policies import policy_from
from covey.kernel.rules import CellState
from covey.simulation import run as simulation_run
from covey.simulation.environment import environment_from
from support.required import ROOT

FOLDER = ROOT / "experiments" / "regret"


@pytest.fixture(scope="module")
def baselines() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("baselines")
    sys.path.remove(str(FOLDER))


def constant(*heights: float, **more: Any) -> Any:
    """An environment of learners with one function each, of constant accuracy."""
    surfaces = [[{"at": [0.5], "high": height, "low": height}] for height in heights]
    return environment_from({"name": "x", "surfaces": surfaces, "prices": 0.05, **more})


def lost(baselines: ModuleType, name: str, environment: Any, slots: int = 600) -> list[float]:
    runs = baselines.play(name, environment, seeds=[3], horizon=slots, checkpoints=[slots])
    return [float(run.regret["all"][-1]) / slots / run.learners for run in runs]


def test_every_baseline_finds_the_best_function_and_asks_for_it(baselines: ModuleType) -> None:
    environment = constant(0.2, 0.9, 0.3)
    found = {name: lost(baselines, name, environment, 3_000)[0] for name in baselines.BASELINES}

    # By chance a learner would lose 0.4 in a slot; EXP3.S tries for ever.
    assert len(found) == 8
    assert max(found.values()) == found["EXP3.S"] < 0.3
    assert all(value < 0.15 for name, value in found.items() if name != "EXP3.S")


class AlwaysPeer(covey.CustomPolicy):
    """Asks the peer with the largest number in two slots of three, or uses the first function."""

    def choose(self, cell: CellState) -> int:
        return self.functions + self.peers - 1 if cell.slot % 3 else 0


WORLDS: list[dict[str, Any]] = [
    {
        "surfaces": [
            [{"at": [0.2], "high": 0.9, "low": 0.1}],
            [{"at": [0.7], "high": 0.8, "low": 0}],
        ]
    },
    {"learners": 3, "functions": 1, "correlation": "independent", "function-costs": 0.03},
    {"learners": 3, "functions": 1, "drift": {"severity": 0.3, "every-slots": 50}},
]


@pytest.mark.parametrize("table", WORLDS)
def test_the_same_choices_have_the_regret_that_covey_measures(
    baselines: ModuleType, monkeypatch: pytest.MonkeyPatch, table: dict[str, Any]
) -> None:
    environment = environment_from({"name": "x", "prices": 0.07, **table})
    learners = len(environment.names)

    class Same(baselines.Baseline):  # type: ignore[name-defined, misc]
        def choose(self, slot: int, points: Any, noise: Any) -> tuple[Any, Any]:
            peer = [learners - 1 if k < learners - 1 else learners - 2 for k in range(learners)]
            own = list(range(learners))
            return np.array([peer if slot % 3 else own]), None

        def learn(self, labels: Any) -> None:
            pass

    monkeypatch.setitem(baselines.BASELINES, "same", Same)
    how: dict[str, Any] = {"horizon": 400, "checkpoints": [150, 400]}
    ours = baselines.play("same", environment, seeds=[2], **how)[0]
    settings = policy_from({"preset": AlwaysPeer})
    theirs = simulation_run.play(environment, settings, seed=2, **how)

    total = np.sum(list(theirs.regret.values()), axis=0)
    assert ours.regret["all"] == pytest.approx(total, rel=1e-6)
    assert ours.errors == pytest.approx(theirs.errors)
    assert ours.cost == pytest.approx(theirs.cost)
    assert ours.learners == theirs.learners


def test_labels_teach_when_they_come_and_not_before(baselines: ModuleType) -> None:
    late = constant(0.2, 0.9, **{"delay-slots": 600, "least-delay-slots": 600})
    never = constant(0.2, 0.9, **{"label-probability": 0.0})
    soon = constant(0.2, 0.9, **{"delay-slots": 30, "least-delay-slots": 10})
    for name in baselines.BASELINES:
        assert lost(baselines, name, late) == lost(baselines, name, never)
        assert lost(baselines, name, soon) < lost(baselines, name, never)
