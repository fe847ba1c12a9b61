"""Theoretical bounds of a policy in an environment, compared with a run."""

from typing import Any

import numpy as np
import pytest

from covey.bandit.bounds import Problem, bound
from covey.replay.engine import start
from covey.simulation import comparison, scenario
from covey.simulation.comparison import exploits_from, regret_limit
from covey.simulation.run import Run, log_of, network
from covey.simulation.world import World

T = 10_000
THEOREM: dict[str, Any] = {"name": "p", "preset": "cos", "parameters": "theorem", "horizon": T}
ZOOM: dict[str, Any] = {"name": "p", "preset": "dcza", "parameters": "theorem"}


def chosen(
    policy: dict[str, Any], world: dict[str, Any], *, slots: int = T, **plan: Any
) -> scenario.Scenario:
    return scenario.load(
        {
            "scenario": {"horizon-slots": slots, "seeds": 1, "workers": 1, **plan},
            "policy": [policy],
            "environment": [{"name": "w", **world}],
        }
    )


@pytest.mark.parametrize("case", ["C1", "C2", "C3", "C4"])
def test_cos_has_t1_and_dcza_its_case(case: str) -> None:
    world = {"case": case, "lipschitz": 1.5, "prices": 0.2, "dimension": 2, "functions": 3}
    told = Problem(horizon=T, dimension=2, lipschitz=1.5, functions=3, split_power=(3 + 5) / 2)
    grid, zoom = chosen(THEOREM, world), chosen(ZOOM, world)

    assert regret_limit(grid, "p", "w") == bound("T1", told).value
    assert regret_limit(zoom, "p", "w") == bound(case, told).value


def test_a_grid_for_a_longer_horizon_has_the_bound_of_that_horizon() -> None:
    patient = chosen({**THEOREM, "horizon": 50 * T}, {})

    assert regret_limit(patient, "p", "w") == bound("T1", Problem(horizon=50 * T)).value


@pytest.mark.parametrize(
    ("policy", "world"),
    [
        ({"name": "p"}, {}),
        ({**THEOREM, "slices": 3}, {}),
        ({**THEOREM, "explore": {"scale": 0.1, "power": 0.5}}, {}),
        ({**THEOREM, "reading": "paper"}, {}),
        ({**THEOREM, "forget": {"window": 50}}, {}),
        ({**THEOREM, "horizon": "doubling"}, {}),
        ({**THEOREM, "alpha": 0.5}, {}),
        (THEOREM, {"drift": {"severity": 0.1, "every-slots": 100}}),
        (THEOREM, {"dependence": 0.5}),
        (THEOREM, {"delay-slots": 1}),
        (THEOREM, {"label-probability": 0.9}),
        (ZOOM, {}),
        (ZOOM, {"arrivals": "worst", "correlation": "independent"}),
        (ZOOM, {"case": "C3", "split-power": 4.0}),
        ({**ZOOM, "split-power": 4.0}, {"case": "C1"}),
        ({**ZOOM, "split-scale": 0.5}, {"case": "C1"}),
        (ZOOM, {"case": "C2", "surfaces": [
            [{"at": [0.5], "high": 0.9, "low": 0.5}],
            [{"at": [0.5], "high": 0.9, "low": 0.5}, {"at": [0.1], "high": 0.9, "low": 0.5}],
        ]}),
    ],
)  # fmt: skip
def test_there_is_no_bound_without_a_theorem(policy: dict[str, Any], world: dict[str, Any]) -> None:
    assert regret_limit(chosen(policy, world), "p", "w") is None


def test_a_score_has_the_bound_where_it_is_below_one_per_slot() -> None:
    far = 10**13
    # The theorems' parameters on a grid; the run is made up, too long to be played.
    plan = chosen(
        {**THEOREM, "horizon": far},
        {},
        slots=far,
        checkpoints=[10**6],
    )
    run = Run(
        policy="p", environment="w", seed=0, slots=[10**6, far], regret={"training": [1.0, 2.0]},
        learners=4, errors=0.1, cost=0.0, phases={}, messages={}, seconds=1.0,
    )  # fmt: skip

    (score,) = comparison.compare(plan, [run]).scores

    value = bound("T1", Problem(horizon=far)).value
    assert 10**6 < value < far
    assert score.bound == [None, value]
    assert score.exploits_from == exploits_from(plan, "p", "w")


@pytest.mark.parametrize(
    "policy",
    [{"preset": "cos", "slices": 1}, {"preset": "dcza"}, {"preset": "dcza", "split-power": 5.0}],
)
def test_with_all_contexts_in_one_cell_a_run_exploits_from_just_that_slot(
    policy: dict[str, Any],
) -> None:
    alone, together = (
        chosen({"name": "p", **policy}, {"case": case, "learners": 3}) for case in ("C3", "C4")
    )

    assert first_exploits(alone) == [exploits_from(alone, "p", "w")]
    # Where all receive instances, functions are explored for others, too.
    assert max(first_exploits(together)) <= (exploits_from(together, "p", "w") or 0)


def first_exploits(plan: scenario.Scenario) -> list[int]:
    """Return the slot in which each receiving learner first exploits, in a run."""
    setup = network(plan.environments["w"], plan.policies["p"])
    stretch = World(plan.environments["w"], seed=2, horizon=T).draw(T)
    trace = start(setup, setup.sites, 1, [0, 1]).play(log_of(stretch))
    return [
        int(trace.slot[(trace.phase == 2) & (trace.learner == place)][0])
        for place in np.unique(trace.learner)
    ]


def test_a_peer_beyond_reach_is_not_waited_for() -> None:
    dear, cheap = (
        exploits_from(chosen({"name": "p", "preset": "cos"}, {"prices": price}), "p", "w")
        for price in (1.5, 0.5)
    )

    assert dear is not None
    assert cheap is not None
    assert dear < cheap


@pytest.mark.parametrize(
    ("policy", "world"),
    [
        ({"name": "p", "preset": "cos"}, {"delay-slots": 1}),
        ({"name": "p", "preset": "cos"}, {"label-probability": 0.5}),
        ({"name": "p", "preset": "cos", "horizon": "doubling"}, {}),
        ({"name": "p"}, {}),  # auto has no phases
        ({"name": "p", "preset": "share-ucb"}, {}),
        (
            {"name": "p", "preset": "cos", "explore": {"scale": 5.0, "power": 0.99}},
            {"dimension": 4},
        ),
    ],
)
def test_the_start_of_exploitation_is_none_if_unknown(
    policy: dict[str, Any], world: dict[str, Any]
) -> None:
    assert exploits_from(chosen(policy, world), "p", "w") is None
