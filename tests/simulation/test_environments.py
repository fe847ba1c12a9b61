"""Environments: tables, the four cases, and invalid input."""

from typing import Any

import msgspec
import pytest

from covey.errors import ConfigError
from covey.simulation.environment import (
    MOST_SLOTS,
    Drift,
    Environment,
    Surface,
    check_horizon,
    environment_from,
)
from support.required import ROOT

PAGE = ROOT / "docs" / "research" / "simulation.md"


@pytest.mark.parametrize(
    ("table", "process", "receivers", "streams"),
    [
        ({}, ("uniform", "best"), 4, 1),
        ({"case": "C1"}, ("worst", "worst"), 1, 1),
        ({"case": "C4"}, ("best", "best"), 4, 1),
        ({"arrivals": "best"}, ("best", "best"), 4, 1),
        ({"correlation": "independent"}, ("uniform", "independent"), 4, 4),
        ({"correlation": 0.0}, ("uniform", 0.0), 4, 4),
        ({"correlation": 1, "learners": 3}, ("uniform", 1.0), 3, 3),
    ],
)
def test_a_table_defines_the_receivers(
    table: dict[str, Any], process: tuple[str, str | float], receivers: int, streams: int
) -> None:
    environment = environment_from({"name": "x", **table})

    assert environment.process == process
    assert (len(environment.receiving), environment.streams) == (receivers, streams)


@pytest.mark.parametrize(
    ("table", "horizon", "level"),
    [
        ({"split-power": 4.0}, 20_000, 5),  # log2 of 20,000 is 14.3; 3.6, rounded up, and 1
        ({"split-power": 4.0}, 4_096, 4),  # 12 / 4 is whole
        ({}, 20_000, 6),  # p = 3 alpha
        ({"alpha": 0.5}, 20_000, 11),
        ({}, 1, 1),
    ],
)
def test_the_cube_of_the_best_arrivals_has_the_level_of_the_definition(
    table: dict[str, Any], horizon: int, level: int
) -> None:
    assert environment_from({"name": "x", **table}).cube_level(horizon) == level


def test_configured_surfaces_set_the_numbers_of_learners_and_functions() -> None:
    flat = {"at": [0.5], "high": 0.7, "low": 0.7}
    environment = environment_from({"name": "x", "surfaces": [[flat, flat], [flat]]})

    assert (environment.names, environment.counts) == (("learner-1", "learner-2"), (2, 1))
    assert environment.surfaces is not None
    assert environment.surfaces[1] == (Surface(at=(0.5,), high=0.7, low=0.7),)


def test_a_horizon_above_the_maximum_is_refused() -> None:
    environment = Environment(name="x")
    check_horizon(environment, MOST_SLOTS)
    with pytest.raises(ConfigError, match="the horizon is .*; it must lie from 1"):
        check_horizon(environment, 2**53 + 1)
    with pytest.raises(ConfigError, match="need a cube of level 59.*; raise split-power"):
        check_horizon(Environment(name="x", arrivals="best", split_power=0.25), 20_000)


def test_every_key_is_documented() -> None:
    page = PAGE.read_text()
    keys = [
        field.encode_name
        for kind in (Environment, Drift, Surface)
        for field in msgspec.structs.fields(kind)
    ]

    assert len(keys) > 25
    assert [key for key in keys if f"`{key}`" not in page] == []
