"""Policies: the paper's parameters by hand and what they come to, the switches, every range."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey import config
from covey.errors import ConfigError
from covey.partitions import Layered, Uniform, Zooming
from covey.policies import DCZA, INDEXED, PRESETS, CoS, Policy, resolve, settings_from
from covey.settings import MODES, Settings, Switches, Threshold


def policy_of(settings: Settings, *, dimension: int = 1, most_functions: int = 2) -> Policy:
    return resolve(settings, dimension=dimension, most_functions=most_functions)


def thresholds_of(policy: Policy) -> list[tuple[float, float]]:
    return list(zip(policy.scales(), policy.powers(), strict=True))


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("preset", [CoS, DCZA])
def test_z1_grows_with_the_eighth_root_whatever_the_preset(preset: Any, dimension: int) -> None:
    policy = policy_of(preset(parameters="z1"), dimension=dimension, most_functions=5)

    assert thresholds_of(policy) == [(1.0, 0.125), (2.0, 0.125), (1.0, 0.125)]


def test_z1_cuts_cos_into_twelve_slices() -> None:
    assert policy_of(CoS(parameters="z1")).partition == Uniform(12)


def test_z1_splits_dcza_at_two_to_four_times_the_level() -> None:
    assert policy_of(DCZA(parameters="z1")).partition == Zooming(1.0, 4.0, 0, 40)


def test_z2_of_cos_grows_with_the_square_root() -> None:
    policy = policy_of(CoS(parameters="z2"), most_functions=5)

    assert thresholds_of(policy) == [(1.0, 0.5), (2.0, 0.5), (1.0, 0.5)]


def test_z2_of_dcza_has_the_power_that_solves_the_theorem_in_one_dimension() -> None:
    policy = policy_of(DCZA(parameters="z2"), dimension=3)

    # p * p - 3 * p - 2 = 0, so that 2 / p = p - 3.
    assert policy.partition.power == pytest.approx(3.561552812808830)
    assert policy.powers() == pytest.approx([0.561552812808830] * 3)


def test_z2_of_dcza_trains_twice_as_much_as_it_explores() -> None:
    assert policy_of(DCZA(parameters="z2"), most_functions=5).scales() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("alpha", "dimension", "power", "slices"),
    [
        (1.0, 1, 0.5, 12),
        (1.0, 2, 0.4, 8),
        (0.5, 1, 0.4, 53),
        (1.0, 0, 2 / 3, 1),
    ],
)
def test_the_theorem_of_cos(alpha: float, dimension: int, power: float, slices: int) -> None:
    settings = CoS(parameters="theorem", horizon=20_000, alpha=alpha)
    policy = policy_of(settings, dimension=dimension, most_functions=3)

    assert thresholds_of(policy) == [(1.0, power), (3.0, power), (1.0, power)]
    assert policy.partition == Uniform(slices)


@pytest.mark.parametrize(
    ("alpha", "dimension", "split", "power"),
    [
        (1.0, 2, 4.0, 0.5),  # (3 + sqrt(9 + 16)) / 2
        (0.5, 1, 2.0, 0.5),  # (1.5 + sqrt(2.25 + 4)) / 2
        (1.0, 0, 3.0, 2 / 3),
    ],
)
def test_the_theorem_of_dcza(alpha: float, dimension: int, split: float, power: float) -> None:
    settings = DCZA(parameters="theorem", alpha=alpha)
    policy = policy_of(settings, dimension=dimension, most_functions=3)

    assert thresholds_of(policy) == [(1.0, power), (3.0, power), (1.0, power)]
    assert policy.partition.power == split


def test_most_functions_may_be_told() -> None:
    settings = DCZA(parameters="theorem", most_functions=7)

    assert policy_of(settings, most_functions=2).train.scale == 7.0


def test_the_theorem_of_cos_asks_for_a_horizon() -> None:
    with pytest.raises(ConfigError) as caught:
        policy_of(CoS(parameters="theorem"))

    assert str(caught.value) == (
        "the theorem's parameters for cos need a horizon (in slots), or slices"
    )


@pytest.mark.parametrize("parameters", ["z1", "theorem"])
def test_slices_given_directly_need_no_horizon(parameters: str) -> None:
    assert policy_of(CoS(parameters=parameters, slices=5)).partition == Uniform(5)


def test_slices_given_directly_win_over_the_horizon() -> None:
    assert policy_of(CoS(horizon=20_000, slices=5)).partition == Uniform(5)


def test_a_horizon_gives_slices_with_any_parameters() -> None:
    assert policy_of(CoS(parameters="z1", horizon=10_000)).partition == Uniform(10)


def test_a_horizon_that_asks_for_too_many_slices_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be a whole number from 1 to 2"):
        policy_of(CoS(horizon=2**53, alpha=0.001))


@pytest.mark.parametrize("parameters", ["z1", "z2", "theorem"])
@pytest.mark.parametrize("preset", [CoS, DCZA])
def test_thresholds_given_directly_win_over_the_parameters(preset: Any, parameters: str) -> None:
    settings = preset(
        parameters=parameters,
        horizon=100,
        explore={"scale": 3, "power": 0},
        train={"scale": 0, "power": 0.25},
        explore_peers={"scale": 0.5, "power": 0.75},
    )

    assert thresholds_of(policy_of(settings)) == [(3.0, 0.0), (0.0, 0.25), (0.5, 0.75)]


def test_one_threshold_given_directly_leaves_the_others() -> None:
    policy = policy_of(CoS(parameters="z2", train={"scale": 9.0, "power": 0.0}))

    assert policy.explore == policy.explore_peers == Threshold(1.0, 0.5)


def test_a_split_given_directly_wins_and_leaves_the_thresholds() -> None:
    policy = policy_of(DCZA(parameters="z2", split_scale=3.0, split_power=2.0))

    assert policy.partition == Zooming(3.0, 2.0, 0, 40)
    assert policy.explore.power == pytest.approx(0.561552812808830)


def test_spec_is_the_pseudocode_as_it_stands() -> None:
    assert policy_of(CoS()).switches == Switches(
        order="own-train-peers",
        helper="explore-first",
        count="arrivals",
        level_offset=0,
        ties="lowest",
        pending=False,
        askers="all",
        hidden_from="all",
    )


def test_paper_is_what_fits_the_published_tables() -> None:
    assert policy_of(CoS(mode="paper")).switches == Switches(
        order="train-own-peers",
        helper="explore-first",
        count="arrivals",
        level_offset=1,
        ties="lowest",
        pending=False,
        askers="first",
        hidden_from="first",
    )


OTHER_READINGS = {
    "order": ["own-train-peers", "train-own-peers"],
    "helper": ["explore-first", "greedy"],
    "count": ["arrivals", "labelled", "uses"],
    "level_offset": [0, 1],
    "ties": ["lowest", "random"],
    "pending": [False, True],
    "askers": ["all", "first"],
    "hidden_from": ["all", "first"],
}


def test_every_switch_has_its_readings_here() -> None:
    assert tuple(OTHER_READINGS) == Switches.__struct_fields__


@pytest.mark.parametrize("mode", ["spec", "paper"])
@pytest.mark.parametrize(
    ("switch", "reading"),
    [(switch, reading) for switch, readings in OTHER_READINGS.items() for reading in readings],
)
def test_a_switch_given_directly_wins_over_the_mode(mode: str, switch: str, reading: Any) -> None:
    policy = policy_of(CoS(mode=mode, **{switch: reading}))

    assert policy.switches == msgspec.structs.replace(MODES[mode], **{switch: reading})


def test_the_level_offset_reaches_the_partition() -> None:
    assert policy_of(DCZA(mode="paper")).partition == Zooming(1.0, 4.0, 1, 40)


def test_a_rule_tells_the_kernel_the_switches() -> None:
    settings = DCZA(mode="paper", helper="greedy", count="uses", pending=True, max_cells=9)
    rule = policy_of(settings, dimension=2).rule(functions=2, costs=(0.0, 0.1, 0.5), position=3)

    assert (rule.dimension, rule.functions, rule.costs) == (2, 2, (0.0, 0.1, 0.5))
    assert (rule.trains_first, rule.explores_to_help, rule.is_pending) == (True, False, True)
    assert (rule.counted, rule.most_cells, rule.seed) == (2, 9, None)


def test_random_ties_have_another_seed_at_every_learner() -> None:
    policy = policy_of(CoS(ties="random", seed=5))
    seeds = [policy.rule(functions=1, costs=(0.0,), position=k).seed for k in range(3)]

    assert seeds == [5_000_015, 5_000_016, 5_000_017]


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
            DCZA(mode="paper"),
            "DCZA (paper): cells split at 1 * 2^(4 * (level + 1)) own arrivals; "
            "explore 1 t^0.125 ln t, train 2 t^0.125 ln t, explore peers 1 t^0.125 ln t",
        ),
    ],
)
def test_a_title_says_what_is_run(settings: Settings, title: str) -> None:
    assert policy_of(settings).title == title


def test_python_names_and_toml_keys_say_the_same() -> None:
    table = {"preset": "dcza", "split-scale": 2.0, "explore-peers": {"scale": 1, "power": 0}}

    assert settings_from(table) == DCZA(split_scale=2.0, explore_peers={"scale": 1, "power": 0})


@pytest.mark.parametrize(
    "table",
    [{}, {"slices": 4}, {"seed": 3}, {"index-scale": 2.0}, {"mode": "spec", "parameters": "z1"}],
)
def test_who_names_no_preset_gets_auto(table: dict[str, Any]) -> None:
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
    "order": "train-own-peers",
    "helper": "greedy",
    "count": "uses",
    "level-offset": 1,
    "ties": "random",
    "pending": True,
    "inherit": True,
    "forget": {"discount": 0.99},
}


@pytest.mark.parametrize("key", PHASES_ONLY)
def test_who_asks_for_what_only_the_three_phases_know_gets_cos(key: str) -> None:
    table = {key: PHASES_ONLY[key]}

    assert settings_from(table) == settings_from({"preset": "cos", **table})


@pytest.mark.parametrize("key", PHASES_ONLY)
def test_a_preset_that_is_named_stays_whatever_else_is_asked_for(key: str) -> None:
    assert settings_from({"preset": "auto", key: PHASES_ONLY[key]}).preset == "auto"


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
    with pytest.raises(ConfigError) as caught:
        preset_within({"preset": preset}, **NEEDS_PHASES[what])

    assert str(caught.value) == (
        f"[policy] preset '{preset}' does not go with {what}; use cos, dcza or cos-ce"
    )


@pytest.mark.parametrize("preset", ["cos", "dcza", "cos-ce", "discounted", "balance"])
@pytest.mark.parametrize("alarm", [0, 9.0])
def test_an_alarm_is_refused_where_nothing_would_go_off(preset: str, alarm: float) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from({"preset": preset, "alarm": alarm})

    assert str(caught.value) == (
        f"[policy] alarm does not go with {preset}; use auto, multi-resolution or share-ucb"
    )


@pytest.mark.parametrize("key", PHASES_ONLY)
def test_an_alarm_and_what_only_the_three_phases_know_do_not_go_together(key: str) -> None:
    with pytest.raises(ConfigError, match="alarm does not go with cos"):
        settings_from({key: PHASES_ONLY[key], "alarm": 9.0})


@pytest.mark.parametrize("what", NEEDS_PHASES)
def test_an_alarm_is_refused_in_a_network_that_only_the_three_phases_serve(what: str) -> None:
    with pytest.raises(ConfigError, match="alarm does not go with cos"):
        preset_within({"alarm": 9.0}, **NEEDS_PHASES[what])


@pytest.mark.parametrize(
    ("table", "partition", "alarm"),
    [
        ({}, Layered(3, step=2), 9.0),
        ({"finest-level": 4, "alarm": 3}, Layered(4, step=2), 3.0),
        ({"slices": 4}, Uniform(4), 9.0),
        ({"alarm": 0}, Layered(3, step=2), 0.0),
        ({"preset": "share-ucb"}, Uniform(12), 0.0),
        ({"preset": "share-ucb", "alarm": 7}, Uniform(12), 7.0),
        ({"preset": "multi-resolution"}, Layered(6), 0.0),
        ({"preset": "multi-resolution", "alarm": 7, "finest-level": 2}, Layered(2), 7.0),
    ],
)
def test_levels_and_the_alarm_of_a_preset_and_given_directly(
    table: dict[str, Any], partition: Any, alarm: float
) -> None:
    policy = policy_of(settings_from(table))

    assert policy.by_index is not None
    assert (policy.partition, policy.by_index.alarm) == (partition, alarm)


def test_slices_and_a_finest_level_are_one_too_many() -> None:
    with pytest.raises(ConfigError) as caught:
        policy_of(settings_from({"slices": 4, "finest-level": 3}))

    assert str(caught.value) == "[policy] has slices and finest-level; choose one"


RANGES = [
    ("horizon", 0, 2**53 + 1, "1 to 9.0072e+15"),
    ("alpha", 0.0, 1.5, "0.001 to 1"),
    ("most-functions", 0, 10**6 + 1, "1 to 1e+06"),
    ("split-scale", 0.0, 1e19, "1e-09 to 1e+18"),
    ("split-power", -0.5, 65.0, "0 to 64"),
    ("seed", -1, 2**40 + 1, "0 to 1.09951e+12"),
    ("label-wait", -1, 2**53 + 1, "0 to 9.0072e+15"),
    ("finest-level", -1, 31, "0 to 30"),
    ("alarm", -0.5, 1e7, "0 to 1e+06"),
    ("max-level", -1, 53, "0 to 52"),
    ("max-cells", 0, 2**31 - 1, "1 to 2.14748e+09"),
]


@pytest.mark.parametrize(
    ("key", "value", "span"),
    [(key, value, span) for key, low, high, span in RANGES for value in (low, high)],
)
def test_a_value_out_of_range_is_named(key: str, value: float, span: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from({key: value})

    assert str(caught.value) == f"[policy] {key} is {value}; it must lie from {span}"


@pytest.mark.parametrize("key", ["alpha", "split-scale", "split-power", "alarm"])
def test_not_a_number_is_out_of_every_range(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[policy\] {key} is nan; it must lie from"):
        settings_from({key: math.nan})


@pytest.mark.parametrize("key", ["explore", "train", "explore-peers"])
@pytest.mark.parametrize("scale", [-1.0, math.inf, math.nan])
def test_a_scale_below_zero_or_without_end_is_named(key: str, scale: float) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from({key: {"scale": scale, "power": 0.5}})

    assert str(caught.value) == f"[policy] {key}.scale is {scale}; it must be 0 or more"


@pytest.mark.parametrize("key", ["explore", "train", "explore-peers"])
@pytest.mark.parametrize("power", [-0.5, 1.0, math.nan])
def test_a_power_outside_zero_to_one_is_named(key: str, power: float) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from({key: {"scale": 1.0, "power": power}})

    assert str(caught.value) == f"[policy] {key}.power is {power}; it must lie in [0, 1)"


def test_a_scale_and_a_power_of_zero_are_allowed() -> None:
    settings = settings_from({"explore": {"scale": 0, "power": 0}})

    assert settings.explore == Threshold(0.0, 0.0)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"preset": "cso"}, "unknown preset 'cso' in [policy]; did you mean 'cos'?"),
        (
            {"preset": "ucb"},
            "unknown preset 'ucb' in [policy]; known: " + ", ".join(sorted(PRESETS)),
        ),
        ({"slises": 3}, "unknown key 'slises' in [policy]; did you mean 'slices'?"),
        ({"max_level": 3}, "unknown key 'max_level' in [policy]; did you mean 'max-level'?"),
        (
            {"train": {"scale": 1, "pwer": 0}},
            "unknown key 'pwer' in [policy] train; did you mean 'power'?",
        ),
        ({"train": {"scale": 1}}, "[policy] train: missing required field power"),
        ({"train": 3}, "[policy] train: expected object, got int"),
        ({"slices": 0}, "slices is 0; it must be a whole number from 1 to 2**31"),
        ({"slices": 1.5}, "[policy] slices: expected int, got float"),
        ({"mode": "papr"}, "[policy] mode: invalid enum value 'papr'"),
        ({"parameters": "z3"}, "[policy] parameters: invalid enum value 'z3'"),
        ({"level-offset": 2}, "[policy] level-offset: invalid enum value 2"),
        ({"pending": 1}, "[policy] pending: expected bool, got int"),
    ],
)
def test_a_wrong_setting_is_one_sentence(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from(table)

    assert str(caught.value) == sentence


def test_a_misspelt_setting_in_python_is_named_too() -> None:
    with pytest.raises(ConfigError, match="unknown key 'slise' in"):
        CoS(slise=3)


HORIZON = 20_000
PUBLISHED: dict[str, Any] = {
    "policy": {"parameters": "z1", "horizon": HORIZON},
    "learner": [
        {"name": name, "functions": [f"{name}1", f"{name}2"], "arrivals": name == "a"}
        for name in "abcd"
    ],
}


def phase_percents(right: np.ndarray, contexts: np.ndarray) -> list[float]:
    """Return the shares of training and exploration at the only learner with arrivals."""
    trace = covey.replay(
        PUBLISHED,
        predictions=right,
        labels=np.ones(HORIZON, np.int64),
        contexts=contexts[:, np.newaxis],
    )
    return (100 * np.bincount(trace.phase, minlength=3)[:2] / HORIZON).tolist()


def random_answers(rng: np.random.Generator) -> np.ndarray:
    return (rng.random((8, HORIZON)) < rng.random((8, 1))).astype(np.int64)


def test_the_time_context_trains_and_explores_as_published_when_all_are_right() -> None:
    time = np.arange(1, HORIZON + 1) / HORIZON

    # The paper prints 10.3 and 8.5.
    assert phase_percents(np.ones((8, HORIZON), np.int64), time) == [10.365, 8.61]


@pytest.mark.parametrize("seed", range(4))
def test_the_time_context_trains_as_published_whatever_the_functions_do(seed: int) -> None:
    answers = random_answers(np.random.default_rng(seed))
    train, explore = phase_percents(answers, np.arange(1, HORIZON + 1) / HORIZON)

    assert train == 10.365
    assert 8.3 <= explore <= 8.61


@pytest.mark.parametrize("seed", range(4))
def test_a_context_of_two_values_trains_and_explores_as_published(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers = random_answers(rng)
    train, explore = phase_percents(answers, rng.integers(0, 2, HORIZON).astype(float))

    # The paper prints 2 and 1.4, one digit after the point.
    assert 1.9 <= round(train, 1) <= 2.1
    assert 1.1 <= round(explore, 1) <= 1.5
