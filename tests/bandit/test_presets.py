"""A configuration that names no preset means `auto`, whatever else it has."""

from typing import Any

import pytest

from covey import config
from covey.bandit.policies import PRESETS, Auto, policy_from
from covey.errors import ConfigError

NOT_OF_AUTO: dict[str, Any] = {
    "parameters": "z2",
    "horizon": 1_000,
    "alpha": 0.5,
    "most-functions": 3,
    "explore": {"scale": 1.0, "power": 0.0},
    "train": {"scale": 1.0, "power": 0.0},
    "explore-peers": {"scale": 1.0, "power": 0.0},
    "inherit": True,
    "forget": {"discount": 0.99},
    "reading": "paper",
    "count": "labelled",
    "slices": 4,
}


@pytest.mark.parametrize("table", [{}, {"batch": "slot"}, {"seed": 3}, {"index-scale": 2.0}])
def test_the_default_preset_is_auto(table: dict[str, Any]) -> None:
    assert isinstance(policy_from(table), Auto)


@pytest.mark.parametrize("key", NOT_OF_AUTO)
def test_a_key_of_other_policies_is_refused_and_never_selects_one(key: str) -> None:
    for preset in ({}, {"preset": "auto"}):
        refusal = rf"\[policy\] {key} is a key of .*(cos|dcza).*'auto'"
        with pytest.raises(ConfigError, match=refusal):
            policy_from({**preset, key: NOT_OF_AUTO[key]})


def preset_within(policy: dict[str, Any], **north: Any) -> str:
    """Return the preset of a network in which the first learner has these fields."""
    sites = [{"name": "north", "functions": ["a"], "peers": {}, **north}]
    sites.append({"name": "south", "functions": ["b"], "peers": {}})
    return config.load({"policy": policy, "learner": sites}).settings.preset


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("having", "feature"),
    [
        (("auto", "cos", "dcza"), {"candidates": ["x0", "x1"]}),
        (("auto", "cos", "dcza"), {"context-peers": {"south": 0.1}}),
    ],
)
def test_a_network_is_played_by_the_policy_that_is_named_or_refused(
    preset: str, having: tuple[str, ...], feature: dict[str, Any]
) -> None:
    policies = [{"preset": preset}, *([{}] if preset == "auto" else [])]
    for policy in policies:
        if preset in having:
            assert preset_within(policy, **feature) == preset
            continue
        with pytest.raises(ConfigError, match=f"'{preset}' does not support .*{having[-1]}"):
            preset_within(policy, **feature)
