"""Environments: tables, the four cases, and invalid input."""

import math
from typing import Any

import msgspec
import pytest

from covey.errors import ConfigError
from covey.simulation.environment import (
    CASES,
    MOST_SLOTS,
    Drift,
    Environment,
    Process,
    Surface,
    check_horizon,
    environment_from,
)
from support.required import ROOT

pytestmark = pytest.mark.beside_the_kernel

PAGE = ROOT / "docs" / "research" / "environments.md"


def test_the_four_cases_are_those_of_the_paper() -> None:
    assert {
        "C1": Process(arrivals="worst", correlation="worst"),
        "C2": Process(arrivals="worst", correlation="best"),
        "C3": Process(arrivals="best", correlation="worst"),
        "C4": Process(arrivals="best", correlation="best"),
    } == CASES


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
    assert (environment.receivers, environment.streams) == (receivers, streams)


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


def test_prices_are_one_number_or_a_matrix() -> None:
    one = environment_from({"name": "x", "prices": 0.1})
    matrix = environment_from({"name": "x", "learners": 2, "prices": [[0, 0.2], [0.3, 0]]})

    assert (one.price(0, 1), one.price(3, 2)) == (0.1, 0.1)
    assert (matrix.price(0, 1), matrix.price(1, 0)) == (0.2, 0.3)


def test_function_costs_are_one_number_or_one_per_function() -> None:
    one = environment_from({"name": "x", "function-costs": 0.05})
    each = environment_from(
        {"name": "x", "learners": 2, "functions": 1, "function-costs": [[0.1], [0.2]]}
    )

    assert one.function_cost(3, 1) == 0.05
    assert (each.function_cost(0, 0), each.function_cost(1, 0)) == (0.1, 0.2)


SURFACE = {"at": [0.5], "high": 0.9, "low": 0.2}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"high": 1.2}, "environment 'x': high is 1.2; it must be from 0 to 1"),
    ({"low": -0.1}, "environment 'x': low is -0.1; it must be from 0 to 1"),
    ({"low": math.nan}, "environment 'x': low is nan; it must be from 0 to 1"),
    ({"low": 0.9, "high": 0.3}, "environment 'x': low is 0.9, above high, 0.3"),
    ({"lipschitz": 0}, "environment 'x': lipschitz is 0.0; it must be above 0 and finite"),
    ({"alpha": -1}, "environment 'x': alpha is -1.0; it must be above 0 and finite"),
    (
        {"alpha": 1.5},
        "environment 'x': alpha is 1.5; it must be above 0 and at most 1 (only constant accuracies "
        "are smoother)",
    ),
    ({"split-power": 0}, "environment 'x': split-power is 0.0; it must be above 0 and finite"),
    ({"dimension": 9}, "environment 'x': dimension is 9; it must lie from 1 to 8"),
    ({"dimension": 0}, "environment 'x': dimension is 0; it must lie from 1 to 8"),
    ({"learners": 0}, "environment 'x': learners is 0; it must lie from 1 to 100000"),
    ({"functions": 2_000}, "environment 'x': functions is 2000; it must lie from 1 to 1000"),
    ({"delay-slots": -1}, f"environment 'x': delay-slots is -1; it must lie from 0 to {2**53:g}"),
    (
        {"label-probability": 1.1},
        "environment 'x': label-probability is 1.1; it must lie from 0 to 1",
    ),
    ({"correlation": 1.5}, "environment 'x': correlation is 1.5; it must lie from 0 to 1"),
    (
        {"case": "C1", "arrivals": "best"},
        "environment 'x': case = 'C1' sets arrivals and correlation; remove these keys, or case",
    ),
    ({"case": "C5"}, "[[environment]] case: invalid enum value 'C5'; known: C1, C2, C3, C4"),
    ({"lerners": 3}, "unknown key 'lerners' in [[environment]]; did you mean 'learners'?"),
    ({"prices": -0.1}, "environment 'x': prices holds -0.1; it must be 0 or more, and finite"),
    (
        {"prices": [[0, 1], [2]], "learners": 2},
        "environment 'x': prices has rows of [2, 1] numbers; they must have [2, 2], one row per "
        "learner",
    ),
    (
        {"function-costs": [[0.1]], "learners": 1},
        "environment 'x': function-costs has rows of [1] numbers; they must have [2], one row per "
        "learner",
    ),
    (
        {"surfaces": [[]]},
        "environment 'x': surfaces must name at least one function of every learner",
    ),
    (
        {"surfaces": [[SURFACE]], "learners": 1},
        "environment 'x': surfaces set the counts; remove learners and functions",
    ),
    (
        {"surfaces": [[{**SURFACE, "high": 1.5}]]},
        "environment 'x': surface 1 of learner-1: high is 1.5; it must be from 0 to 1",
    ),
    (
        {"surfaces": [[SURFACE, SURFACE]], "dimension": 2},
        "environment 'x': surface 1 of learner-1: at has 1 numbers; it must have 2",
    ),
    (
        {"surfaces": [[{**SURFACE, "at": [1.5]}]]},
        "environment 'x': surface 1 of learner-1: at is 1.5; it must lie from 0 to 1",
    ),
    (
        {"surfaces": [[{**SURFACE, "shape": "ramps"}]]},
        "environment 'x': surface 1 of learner-1: toward has 0 numbers; it must have 1",
    ),
    (
        {"surfaces": [[{**SURFACE, "shape": "steps", "toward": [0.0]}]]},
        "environment 'x': surface 1 of learner-1: toward is [0.0]; it must not be zero",
    ),
    (
        {"surfaces": [[{**SURFACE, "every": 0.0}]]},
        "environment 'x': surface 1 of learner-1: every is 0.0; it must be above 0 and finite",
    ),
    (
        {"surfaces": [[{**SURFACE, "hihg": 0.0}]]},
        "[[environment]] surfaces[0][0]: object contains unknown field hihg",
    ),
    (
        {"drift": {"severity": 0.7, "every-slots": 5}},
        "environment 'x': drift.severity is 0.7, but a switch changes accuracies by at most 0.65 "
        "(high - low); lower it",
    ),
    (
        {"drift": {"severity": 0, "every-slots": 5}},
        "environment 'x': drift.severity is 0.0; it must be above 0 and at most 1",
    ),
    (
        {"drift": {"severity": 0.1, "every-slots": 0}},
        f"environment 'x': drift.every-slots is 0; it must lie from 1 to {2**53:g}",
    ),
    (
        {"drift": {"kind": "recur", "severity": 0.7, "every-slots": 5}},
        "environment 'x': drift.severity is 0.7, but a switch changes accuracies by at most 0.65 "
        "(high - low); lower it",
    ),
    (
        {"drift": {"severity": 0.1, "every-slots": 5, "learners": ["learner-5"]}},
        "environment 'x': drift.learners names unknown learner 'learner-5'; did you mean "
        "'learner-4'?",
    ),
    (
        {"drift": {"severity": 0.1, "every-slots": 5, "region": [[0, 0.5], [0, 1]]}},
        "environment 'x': drift.region has 2 intervals; it must have 1",
    ),
    (
        {"drift": {"severity": 0.1, "every-slots": 5, "region": [[0.5, 0.2]]}},
        "environment 'x': drift.region holds [0.5, 0.2]; it must be an interval of numbers from 0 "
        "to 1",
    ),
    (
        {"drift": {"kind": "gradual", "severity": 0.1, "every-slots": 5, "region": [[0, 1]]}},
        "environment 'x': drift.region has no effect with gradual drift; remove it",
    ),
    ({"dependence": 1}, "environment 'x': dependence is 1.0; it must be 0 or more and below 1"),
    (
        {"delay-slots": 3, "least-delay-slots": 5},
        "environment 'x': least-delay-slots is 5, above delay-slots, 3",
    ),
    (
        {"failing": {"learner-5": 0.1}},
        "environment 'x' names unknown learner 'learner-5'; did you mean 'learner-4'?",
    ),
    (
        {"failing": {"learner-2": 1.5}},
        "environment 'x': failing.learner-2 is 1.5; it must lie from 0 to 1",
    ),
    (
        {"liars": {"elsewhere": "false-labels"}},
        "environment 'x' names unknown learner 'elsewhere'; known: learner-1, learner-2, "
        "learner-3, learner-4",
    ),
]


@pytest.mark.parametrize(("table", "sentence"), WRONG)
def test_an_invalid_environment_is_refused_with_a_message(
    table: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        environment_from({"name": "x", **table})

    assert str(caught.value) == sentence


def test_a_horizon_above_the_maximum_is_refused() -> None:
    environment = Environment(name="x")
    check_horizon(environment, MOST_SLOTS)
    with pytest.raises(ConfigError) as caught:
        check_horizon(environment, 2**53 + 1)

    assert str(caught.value) == f"the horizon is {2**53 + 1}; it must lie from 1 to {2**53:g}"


def test_a_cube_above_the_maximum_level_is_refused() -> None:
    environment = Environment(name="x", arrivals="best", split_power=0.25)
    with pytest.raises(ConfigError) as caught:
        check_horizon(environment, 20_000)

    assert str(caught.value) == (
        "environment 'x': with 20000 slots the best arrivals need a cube of level 59, above the "
        "maximum 52; raise split-power"
    )


def test_every_key_is_documented() -> None:
    page = PAGE.read_text()
    keys = [
        field.encode_name
        for kind in (Environment, Drift, Surface)
        for field in msgspec.structs.fields(kind)
    ]

    assert len(keys) > 25
    assert [key for key in keys if f"`{key}`" not in page] == []
