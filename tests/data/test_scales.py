"""Every scale by hand, at its ends, and however its values are written."""

import math
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.data import contexts
from support.coordinates import HOUR, LINEAR, LOG, RANK, SLOT, coordinate

# One row per scale, so that a scale added without a test is noticed.
BY_HAND = {
    "as-is": ({"column": "x", "scale": "as-is"}, [0, 0.25, 1], [0.0, 0.25, 1.0]),
    "linear": (LINEAR, [-10, 0, 15, 40], [0.0, 0.2, 0.5, 1.0]),
    "log": (
        {"column": "x", "scale": "log", "low": 2, "high": 17},
        [2, 3, 5, 17],
        [0, 0.25, 0.5, 1],
    ),
    "rank": (RANK, [0, 1, 3, 5, 9, 10], [0.0, 0.125, 0.25, 0.5, 0.875, 1.0]),
    "hour": (
        HOUR,
        ["2024-05-01T00:00:00", "2024-05-01T00:00:21.600", "2024-05-01T13:30:00"],
        [0.0, 0.00025, 0.5625],
    ),
    "weekday": (  # a Monday, a Sunday, the first day of the epoch (a Thursday) in seconds
        {"column": "x", "scale": "weekday"},
        ["2024-04-29", "2024-05-05T23:59:59", 3600],
        [1 / 14, 13 / 14, 1 / 2],
    ),
    "month": (
        {"column": "x", "scale": "month"},
        ["2024-01-31", "2024-12-01T00:00:00+02:00", 0],
        [1 / 24, 21 / 24, 1 / 24],
    ),
    "category": (
        {"column": "x", "scale": "category", "values": ["tcp", 3]},
        ["tcp", 3, 3.0],
        [0.25, 0.75, 0.75],
    ),
    "is-missing": ({"column": "x", "scale": "is-missing"}, [1, ""], [0.25, 0.75]),
}


@pytest.mark.parametrize(("entry", "values", "places"), BY_HAND.values(), ids=BY_HAND)
def test_a_scale_places_values_as_worked_out_by_hand(entry, values, places):
    found = coordinate(entry, values)

    assert found == pytest.approx(places, abs=1e-15)


@pytest.mark.parametrize(("entry", "values", "places"), BY_HAND.values(), ids=BY_HAND)
def test_a_scale_reads_text_as_it_reads_numbers(entry, values, places):
    if entry.get("scale") == "category":
        values = values[:2]  # the text "3.0" is another category than 3
    found = coordinate(entry, np.array([str(value) for value in values]))

    assert found == pytest.approx(places[: len(values)], abs=1e-15)


@pytest.mark.parametrize("entry", ["x", LINEAR, LOG, RANK], ids=str)
@pytest.mark.parametrize("kind", ["int8", "uint64", "float32", "bool"])
def test_numeric_arrays_of_any_kind_are_read(entry, kind):
    assert coordinate(entry, np.array([0, 1], dtype=kind)) == coordinate(entry, [0.0, 1.0])


@pytest.mark.parametrize("entry", [{"column": "x"}, LINEAR, LOG], ids=str)
def test_clipping_moves_what_lies_outside_to_the_nearer_end(entry):
    found = coordinate({**entry, "clip": True}, [-1e9, -math.inf, 1e9, math.inf])

    assert found == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("entry", [RANK, HOUR], ids=str)
def test_scales_that_cannot_leave_the_cube_take_clip_too(entry):
    assert coordinate({**entry, "clip": True}, [5.0]) == coordinate(entry, [5.0])


MOMENTS = {
    "seconds since the epoch": 1_714_570_200,
    "seconds as text": "1714570200",
    "seconds before the epoch": -37_800,
    "ISO text": "2024-05-01T13:30:00",
    "ISO text with a space": "2024-05-01 13:30",
    "ISO text in UTC": "2024-05-01T13:30:00Z",
    "ISO text two hours ahead": "2024-05-01T15:30:00+02:00",
    "ISO text without dashes": "20240501T133000",
    "a datetime": datetime(2024, 5, 1, 13, 30),
    "a datetime ahead of UTC": datetime(2024, 5, 1, 15, 30, tzinfo=timezone(timedelta(hours=2))),
    "a datetime64": np.datetime64("2024-05-01T13:30", "ns"),
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_half_past_one_is_the_same_hour_however_it_is_written(moment):
    assert contexts.parse([HOUR]).extract_one({"time": moment}, slot=1) == (0.5625,)


@pytest.mark.parametrize("unit", ["m", "s", "ms", "us", "ns"])
def test_datetime64_columns_give_the_hour_in_any_unit(unit):
    times = np.array(["2024-05-01T00:00", "1969-12-31T18:00"], dtype=f"datetime64[{unit}]")

    assert coordinate(HOUR, times) == [0.0, 0.75]


def test_after_the_horizon_slots_are_divided_by_epochs_of_twice_the_length_each():
    reader = contexts.parse([SLOT])

    found = reader.extract({"x": [0] * 60}, first_slot=1)[:, 0].tolist()

    assert found == [
        k / length for length in (8, 16, 32, 64) for k in range(1, min(length, 4 + length % 64) + 1)
    ]


def test_a_clock_that_wraps_begins_again_after_the_horizon():
    reader = contexts.parse([{**SLOT, "after": "wrap"}])

    found = reader.extract({"x": [0] * 20}, first_slot=5)[:, 0].tolist()

    assert found == [((slot - 1) % 8 + 1) / 8 for slot in range(5, 25)]


@pytest.mark.parametrize("after", ["doubling", "wrap"])
def test_a_slot_at_any_distance_from_the_horizon_has_a_place(after):
    reader = contexts.parse([{"scale": "slot", "horizon": 1000, "after": after}])

    for slot in (1, 1000, 1001, 3000, 3001, 10**9, 2**52):
        (place,) = reader.extract_one({}, slot=slot)
        assert 0 < place <= 1


@given(
    low=st.floats(-1e6, 1e6),
    width=st.floats(1e-6, 1e9),
    share=st.floats(0, 1),
    scale=st.sampled_from(["linear", "log"]),
)
def test_values_between_low_and_high_never_leave_the_cube(low, width, share, scale):
    high = low + width
    value = min(max(low + share * width, low), high)
    entry = {"column": "x", "scale": scale, "low": low, "high": high}
    places = coordinate(entry, [low, value, high])

    assert [0.0, *places, 1.0] == sorted([0.0, *places, 1.0])


@pytest.mark.parametrize(
    "entry",
    [
        "x",
        {"column": "x", "scale": "linear", "low": -5.0, "high": 15.0},
        {"column": "x", "scale": "log", "high": 1e6},
        {"column": "x", "scale": "rank", "sample": [float(n) for n in range(201)]},
    ],
)
def test_a_value_at_a_coordinate_has_that_coordinate(entry: Any) -> None:
    context = contexts.parse([entry])
    for at in (0.25, 0.5, 0.75):
        value = context.scales[0].value_at(at)
        (found,) = context.extract_one({"x": value}, slot=1)
        assert found == pytest.approx(at, abs=0.005)


def test_values_of_hours_slots_and_labels_are_readable() -> None:
    context = contexts.parse(
        [
            {"column": "t", "scale": "hour"},
            {"scale": "slot", "horizon": 1000},
            {"scale": "previous-label", "classes": ["no", "maybe", "yes"]},
        ]
    )

    hour, slot, label = context.scales
    assert (hour.value_at(0.75), slot.value_at(0.5)) == ("18:00", 500.0)
    assert (label.value_at(0.5), label.value_at(0.25)) == ("maybe", "")
