"""Policies: the default, the paper's parameters computed by hand, explicit values, and readings."""

from typing import Any

import pytest

from covey import config
from covey.bandit.partitions import Dyadic, Uniform, Zooming
from covey.bandit.policies import DCZA, PRESETS, Auto, CoS, Policy, PolicyRecord, policy_from
from covey.errors import ConfigError
from covey.kernel.history import PredictionHistory


def policy_of(settings: PolicyRecord, *, dimension: int = 1, most_functions: int = 2) -> Policy:
    return settings.resolve(dimension=dimension, most_functions=most_functions)


def thresholds_of(policy: Policy) -> list[tuple[float, float]]:
    return list(zip(*policy.curves(), strict=True))


ROOT_17 = 17**0.5


@pytest.mark.parametrize(
    ("record", "power", "partition"),
    [
        (CoS(parameters="z1"), 1 / 8, Uniform(12)),
        (DCZA(parameters="z1"), 1 / 8, Zooming(1.0, 4.0, 0, 40)),
        (CoS(parameters="z2"), 1 / 2, Uniform(12)),
        # The power of the theorem in one dimension: p * p - 3 * p - 2 = 0, so that 2 / p = p - 3.
        (DCZA(parameters="z2"), (ROOT_17 - 3) / 2, Zooming(1.0, (3 + ROOT_17) / 2, 0, 40)),
    ],
)
@pytest.mark.parametrize("dimension", [1, 3])
def test_z1_and_z2_are_those_of_the_paper_in_any_dimension(
    record: PolicyRecord, power: float, partition: Any, dimension: int
) -> None:
    policy = policy_of(record, dimension=dimension, most_functions=5)

    scales, powers = policy.curves()
    assert scales == [1.0, 2.0, 1.0]
    assert powers == pytest.approx([power] * 3)
    assert policy.partition == pytest.approx(partition)


@pytest.mark.parametrize(
    ("record", "dimension", "power", "partition"),
    [
        (CoS(parameters="theorem", horizon=20_000), 1, 0.5, Uniform(12)),
        (CoS(parameters="theorem", horizon=20_000), 2, 0.4, Uniform(8)),
        (CoS(parameters="theorem", horizon=20_000, alpha=0.5), 1, 0.4, Uniform(53)),
        (CoS(parameters="theorem", horizon=20_000), 0, 2 / 3, Uniform(1)),
        # Split powers: (3 + sqrt(9 + 16)) / 2 and (1.5 + sqrt(2.25 + 4)) / 2.
        (DCZA(parameters="theorem"), 2, 0.5, Zooming(1.0, 4.0, 0, 40)),
        (DCZA(parameters="theorem", alpha=0.5), 1, 0.5, Zooming(1.0, 2.0, 0, 40)),
        (DCZA(parameters="theorem"), 0, 2 / 3, Zooming(1.0, 3.0, 0, 40)),
    ],
)
def test_the_parameters_of_the_theorems_are_those_by_hand(
    record: PolicyRecord, dimension: int, power: float, partition: Any
) -> None:
    policy = policy_of(record, dimension=dimension, most_functions=3)

    assert thresholds_of(policy) == [(1.0, power), (3.0, power), (1.0, power)]
    assert policy.partition == partition


def test_most_functions_can_be_set() -> None:
    settings = DCZA(parameters="theorem", most_functions=7)

    assert policy_of(settings, most_functions=2).train.scale == 7.0


def test_a_horizon_gives_slices_with_any_parameters() -> None:
    assert policy_of(CoS(parameters="z1", horizon=10_000)).partition == Uniform(10)


def test_a_horizon_with_too_many_slices_is_rejected() -> None:
    with pytest.raises(ConfigError, match="must be a whole number from 1 to 2"):
        policy_of(CoS(horizon=2**53, alpha=0.001))


@pytest.mark.parametrize("parameters", ["z1", "z2", "theorem"])
@pytest.mark.parametrize("preset", [CoS, DCZA])
def test_explicit_thresholds_override_the_parameters(preset: Any, parameters: str) -> None:
    settings = preset(
        parameters=parameters,
        horizon="doubling",
        explore={"scale": 3, "power": 0},
        train={"scale": 0, "power": 0.25},
        explore_peers={"scale": 0.5, "power": 0.75},
    )

    assert thresholds_of(policy_of(settings)) == [(3.0, 0.0), (0.0, 0.25), (0.5, 0.75)]


def test_an_explicit_split_power_keeps_the_thresholds() -> None:
    policy = policy_of(DCZA(parameters="z2", split_scale=3.0, split_power=2.0))

    assert policy.partition == Zooming(3.0, 2.0, 0, 40)
    assert policy.explore.power == pytest.approx(0.561552812808830)


def test_by_the_papers_reading_cells_are_split_a_level_later() -> None:
    assert policy_of(DCZA(reading="paper")).partition == Zooming(1.0, 4.0, 1, 40)


def test_a_rule_contains_the_settings() -> None:
    settings = DCZA(reading="paper", count="labelled", pending=True, max_cells=9)
    rule = policy_of(settings, dimension=2).rule(functions=2, costs=(0.0, 0.1, 0.5), position=3)

    assert (rule.dimension, rule.functions, rule.costs) == (2, 2, (0.0, 0.1, 0.5))
    assert (rule.is_paper, rule.counts_labelled, rule.is_pending) == (True, True, True)
    assert (rule.most_cells, rule.history) == (9, PredictionHistory)


@pytest.mark.parametrize(
    ("settings", "title"),
    [
        (
            CoS(slices=5, train={"scale": 2.5, "power": 0.5}),
            "CoS (spec): 5 slices per dimension; explore 1 t^0.125 ln t, train 2.5 t^0.5 ln t, "
            "explore peers 1 t^0.125 ln t",
        ),
        (
            DCZA(parameters="z2"),
            "DCZA (spec): cells split at 1 * 2^(3.562 * level) own arrivals; "
            "explore 1 t^0.5616 ln t, train 2 t^0.5616 ln t, explore peers 1 t^0.5616 ln t",
        ),
        (
            DCZA(reading="paper"),
            "DCZA (paper): cells split at 1 * 2^(4 * (level + 1)) own arrivals; "
            "explore 1 t^0.125 ln t, train 2 t^0.125 ln t, explore peers 1 t^0.125 ln t",
        ),
    ],
)
def test_a_title_describes_the_policy(settings: PolicyRecord, title: str) -> None:
    assert policy_of(settings).title == title


@pytest.mark.parametrize(
    ("table", "partition", "alarm"),
    [
        ({}, Dyadic(), 5.0),
        ({"alarm": 3}, Dyadic(), 3.0),
        ({"alarm": 0}, Dyadic(), 0.0),
        ({"preset": "share-ucb"}, Uniform(12), 0.0),
        ({"preset": "share-ucb", "alarm": 7}, Uniform(12), 7.0),
    ],
)
def test_levels_and_the_alarm_of_a_preset_and_given_directly(
    table: dict[str, Any], partition: Any, alarm: float
) -> None:
    policy = policy_of(policy_from(table))

    assert policy.by_index is not None
    assert (policy.partition, policy.by_index.alarm) == (partition, alarm)


def test_python_names_and_toml_keys_are_equivalent() -> None:
    table = {"preset": "dcza", "split-scale": 2.0, "explore-peers": {"scale": 0, "power": 0}}

    assert policy_from(table) == DCZA(split_scale=2.0, explore_peers={"scale": 0, "power": 0})
    with pytest.raises(ConfigError, match="unknown key 'slise' in"):
        CoS(slise=3)


@pytest.mark.parametrize("table", [{}, {"batch": "slot"}, {"seed": 3}, {"index-scale": 2.0}])
def test_the_default_preset_is_auto(table: dict[str, Any]) -> None:
    assert isinstance(policy_from(table), Auto)


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
