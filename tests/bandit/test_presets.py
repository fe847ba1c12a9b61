"""The default preset is auto, or cos if a key needs the three phases."""

from typing import Any

import pytest

from covey import config
from covey.bandit.policies import INDEXED, settings_from
from covey.errors import ConfigError


@pytest.mark.parametrize(
    "table",
    [{}, {"slices": 4}, {"seed": 3}, {"index-scale": 2.0}, {"mode": "spec", "parameters": "z1"}],
)
def test_the_default_preset_is_auto(table: dict[str, Any]) -> None:
    assert settings_from(table).preset == "auto"


PHASES_ONLY: dict[str, Any] = {
    "mode": "paper",
    "parameters": "z2",
    "horizon": 1_000,
    "alpha": 0.5,
    "most-functions": 3,
    "explore": {"scale": 1.0, "power": 0.0},
    "train": {"scale": 1.0, "power": 0.0},
    "explore-peers": {"scale": 1.0, "power": 0.0},
    "reading.order": {"order": "train-own-peers"},
    "reading.helper": {"helper": "greedy"},
    "reading.count": {"count": "uses"},
    "reading.level-offset": {"level-offset": 1},
    "reading.ties": {"ties": "lowest"},  # the default, but given explicitly
    "inherit": True,
    "forget": {"discount": 0.99},
}


def phases_only(key: str) -> dict[str, Any]:
    return {key.partition(".")[0]: PHASES_ONLY[key]}


@pytest.mark.parametrize("key", PHASES_ONLY)
def test_a_key_that_only_the_three_phases_have_implies_cos(key: str) -> None:
    table = phases_only(key)

    assert settings_from(table) == settings_from({"preset": "cos", **table})


@pytest.mark.parametrize("key", ["askers", "hidden-from"])
def test_a_reading_that_concerns_every_preset_implies_none(key: str) -> None:
    assert settings_from({"reading": {key: "first"}}).preset == "auto"


@pytest.mark.parametrize("key", PHASES_ONLY)
def test_a_preset_that_is_named_stays_whatever_else_is_asked_for(key: str) -> None:
    assert settings_from({"preset": "auto", **phases_only(key)}).preset == "auto"


NEEDS_PHASES = {
    "several candidates": {"candidates": ["x0", "x1"]},
    "context-peers": {"context-peers": {"south": 0.1}},
}


def preset_within(policy: dict[str, Any], **north: Any) -> str:
    """Return the preset that a network comes to in which the first learner has these fields."""
    sites = [{"name": "north", "functions": ["a"], "peers": {}, **north}]
    sites.append({"name": "south", "functions": ["b"], "peers": {}})
    return config.load({"policy": policy, "learner": sites}).settings.preset


def test_a_network_without_candidates_or_context_peers_keeps_auto() -> None:
    assert preset_within({}) == preset_within({}, candidates=["x0"]) == "auto"


@pytest.mark.parametrize("what", NEEDS_PHASES)
def test_a_network_that_only_the_three_phases_serve_gets_cos(what: str) -> None:
    assert preset_within({}, **NEEDS_PHASES[what]) == "cos"


@pytest.mark.parametrize("what", NEEDS_PHASES)
@pytest.mark.parametrize("preset", ["cos", "dcza", "cos-ce"])
def test_phases_that_are_named_stay_in_such_a_network(preset: str, what: str) -> None:
    assert preset_within({"preset": preset}, **NEEDS_PHASES[what]) == preset


@pytest.mark.parametrize("what", NEEDS_PHASES)
@pytest.mark.parametrize("preset", INDEXED)
def test_an_index_that_is_named_is_refused_in_such_a_network(preset: str, what: str) -> None:
    if (preset, what) == ("auto", "context-peers"):
        assert preset_within({"preset": preset}, **NEEDS_PHASES[what]) == "auto"
        return
    with pytest.raises(ConfigError) as caught:
        preset_within({"preset": preset}, **NEEDS_PHASES[what])

    others = "auto, cos" if what == "context-peers" else "cos"
    assert str(caught.value) == (
        f"[policy] preset '{preset}' does not support {what}; use {others}, dcza or cos-ce"
    )


@pytest.mark.parametrize("preset", ["cos", "dcza", "cos-ce", "discounted", "balance"])
@pytest.mark.parametrize("alarm", [0, 9.0])
def test_an_alarm_is_refused_where_nothing_would_go_off(preset: str, alarm: float) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from({"preset": preset, "alarm": alarm})

    assert str(caught.value) == (
        f"[policy] preset {preset!r} does not support alarm; use auto, two-sizes, "
        "multi-resolution or share-ucb"
    )


@pytest.mark.parametrize("key", PHASES_ONLY)
def test_an_alarm_and_what_only_the_three_phases_know_do_not_go_together(key: str) -> None:
    with pytest.raises(ConfigError, match="'cos' does not support alarm"):
        settings_from({**phases_only(key), "alarm": 9.0})


@pytest.mark.parametrize("what", NEEDS_PHASES)
def test_an_alarm_is_refused_in_a_network_that_only_the_three_phases_serve(what: str) -> None:
    with pytest.raises(ConfigError, match="'cos' does not support alarm"):
        preset_within({"alarm": 9.0}, **NEEDS_PHASES[what])
