"""Every setting has a range, and an invalid one gives a one-line message."""

import math
from typing import Any, get_args

import msgspec
import pytest

from covey.bandit.policies import DCZA, CoS, settings_from
from covey.bandit.settings import Settings, Threshold
from covey.errors import ConfigError

pytestmark = pytest.mark.beside_the_kernel


def test_python_names_and_toml_keys_are_equivalent() -> None:
    table = {"preset": "dcza", "split-scale": 2.0, "explore-peers": {"scale": 1, "power": 0}}

    assert settings_from(table) == DCZA(split_scale=2.0, explore_peers={"scale": 1, "power": 0})


RANGES = [
    ("horizon", 0, 2**53 + 1, "1 to 9.0072e+15"),
    ("first-epoch", 0, 2**53 + 1, "1 to 9.0072e+15"),
    ("alpha", 0.0, 1.5, "0.001 to 1"),
    ("most-functions", 0, 10**6 + 1, "1 to 1e+06"),
    ("split-scale", 0.0, 1e19, "1e-09 to 1e+18"),
    ("split-power", -0.5, 65.0, "0 to 64"),
    ("seed", -1, 2**40 + 1, "0 to 1.09951e+12"),
    ("label-wait", -1, 2**53 + 1, "0 to 9.0072e+15"),
    ("index-scale", 0.0, 1e7, "1e-06 to 1e+06"),
    ("lipschitz", 0.0, 1e10, "1e-09 to 1e+09"),
    ("finest-level", -1, 31, "0 to 30"),
    ("spread", 0.0, 11.0, "1e-06 to 10"),
    ("alarm", -0.5, 1e7, "0 to 1e+06"),
    ("relearn-every", 0, 2**53 + 1, "1 to 9.0072e+15"),
    ("max-level", -1, 53, "0 to 52"),
    ("max-cells", 0, 2**31 - 1, "1 to 2.14748e+09"),
]


def test_every_numeric_setting_has_a_range() -> None:
    numbers = [
        field.encode_name
        for field in msgspec.structs.fields(Settings)
        if {int, float} & {field.type, *get_args(field.type)}
    ]

    # How many slices there may be depends on the partition, which says so itself.
    assert [key for key in numbers if key != "slices"] == [key for key, *_ in RANGES]


@pytest.mark.parametrize(
    ("key", "value", "span"),
    [(key, value, span) for key, low, high, span in RANGES for value in (low, high)],
)
def test_a_value_out_of_range_is_named(key: str, value: float, span: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from({key: value})

    assert str(caught.value) == f"[policy] {key} is {value}; it must lie from {span}"


@pytest.mark.parametrize("key", ["alpha", "split-scale", "split-power", "alarm"])
def test_nan_is_out_of_every_range(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[policy\] {key} is nan; it must lie from"):
        settings_from({key: math.nan})


@pytest.mark.parametrize("key", ["explore", "train", "explore-peers"])
@pytest.mark.parametrize("scale", [-1.0, math.inf, math.nan])
def test_a_negative_or_infinite_scale_is_named(key: str, scale: float) -> None:
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
            "unknown preset 'ucb' in [policy]; known: auto, cos, dcza, share-ucb; experimental: "
            "two-sizes, discounted, multi-resolution, cos-ce, balance",
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
        ({"mode": "papr"}, "[policy] mode: invalid enum value 'papr'; did you mean 'paper'?"),
        (
            {"parameters": "z3"},
            "[policy] parameters: invalid enum value 'z3'; known: theorem, z1, z2",
        ),
        (
            {"reading": {"level-offset": 2}},
            "[policy] reading.level-offset: invalid enum value 2; known: 0, 1",
        ),
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
