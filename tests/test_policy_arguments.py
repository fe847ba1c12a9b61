"""Policies as Python objects: accepted wherever a preset is, with the same decisions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.policies import PRESETS, PolicyRecord, policy_from, policy_table
from covey.errors import ConfigError
from support.own_policies import EpsilonGreedy

RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 2, 400)
COLUMNS = {
    "label": LABELS,
    "load": RNG.random(400),
    "nb": np.where(RNG.random(400) < 0.6, LABELS, 1 - LABELS),
    "rules": np.where(RNG.random(400) < 0.9, LABELS, 1 - LABELS),
}
CONFIG = {
    "data": {"context": ["load"]},
    "learner": [
        {"name": "north", "functions": ["nb"], "peers": {"south": 0.1}},
        {"name": "south", "functions": ["rules"]},
    ],
}
SETTINGS = [
    covey.CoS(slices=3),
    covey.CoS(reading="paper", slices=2, batch="slots"),
    covey.CoS(explore={"scale": 1.0, "power": 0.2}, forget={"window": 50}),
    covey.DCZA(parameters="z2", inherit=True),
    covey.Auto(alarm=0),
    *(policy_from({"preset": name}) for name in PRESETS),
]


def arms(config: Any, **more: Any) -> list[str]:
    return list(covey.replay(config, COLUMNS, **more).trace.columns()["arm"])


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings_as_a_table_are_the_same_settings(settings: PolicyRecord) -> None:
    assert policy_from(policy_table(settings)) == settings


@pytest.mark.parametrize(
    ("policy", "table"),
    [
        (covey.CoS(slices=3), {"preset": "cos", "slices": 3}),
        (covey.Auto(alarm=0), {"preset": "auto", "alarm": 0}),
        ("share-ucb", {"preset": "share-ucb"}),
        ({"preset": "dcza"}, {"preset": "dcza"}),
        (EpsilonGreedy, {"preset": EpsilonGreedy}),
    ],
)
def test_a_policy_given_to_replay_replaces_the_table(policy: Any, table: dict[str, Any]) -> None:
    other = {**CONFIG, "policy": {"preset": "dcza", "parameters": "z2"}}

    assert arms(other, policy=policy) == arms({**CONFIG, "policy": table})


def test_a_configuration_may_hold_settings_as_its_policy() -> None:
    by_name = arms({**CONFIG, "policy": {"preset": "cos", "slices": 3}})

    assert arms({**CONFIG, "policy": covey.CoS(slices=3)}) == by_name
    assert arms({**CONFIG, "policy": {"preset": covey.CoS(slices=3)}}) == by_name
    assert arms({**CONFIG, "policy": {"preset": covey.CoS(slices=9), "slices": 3}}) == by_name


def test_a_network_with_settings_is_saved_and_continues(tmp_path: Path) -> None:
    functions = {"nb": lambda x: 0, "rules": lambda x: 1}
    learners = {"learner": CONFIG["learner"]}
    network = covey.Network(learners, functions=functions, dimension=1, policy=covey.CoS(slices=3))
    for k in range(20):
        north = network["north"]
        north.learn(north.predict(k, context=(k / 20,)).ticket, 1)
    network.save(tmp_path / "saved")
    again = covey.Network.load(tmp_path / "saved", functions=functions)

    said = [member["north"].predict(0, context=(0.5,)) for member in (network, again)]
    assert said[0] == said[1]


def test_a_scenario_takes_tables_and_settings(tmp_path: Path) -> None:
    def scenario(preset: Any) -> dict[str, Any]:
        return {
            "scenario": {"horizon-slots": 300, "seeds": 1, "workers": 1},
            "policy": [{"name": "CoS", "preset": preset, "slices": 4}],
            "environment": [{"name": "shared", "case": "C2", "prices": 0.05}],
        }

    (by_settings,) = covey.simulate(scenario(covey.CoS()), tmp_path / "settings")
    (by_name,) = covey.simulate(scenario("cos"), str(tmp_path / "name"))

    assert by_settings.regret == by_name.regret


def test_a_policy_that_is_none_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="preset"):
        arms(CONFIG, policy=5)
    with pytest.raises(ConfigError, match=r"\[policy\]"):
        arms({**CONFIG, "policy": "cos"})
