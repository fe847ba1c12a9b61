"""Contexts: every scale by hand, chunks and records alike, every sentence of complaint."""

import itertools
import math
import re
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import contexts
from covey.errors import ConfigError, ContextError, DataError

repeatable = settings(derandomize=True, deadline=None)

CLASSES = {"scale": "previous-label", "classes": ["normal", "probe", "attack"], "initial": 0.25}
LOG = {"column": "bytes", "scale": "log", "high": 1e6}
LINEAR = {"column": "temp", "scale": "linear", "low": -10, "high": 40}
RANK = {"column": "amount", "scale": "rank", "sample": [5.0, 1.0, 5.0, 9.0]}
HOUR = {"column": "time", "scale": "hour"}
SLOT = {"scale": "slot", "horizon": 8}


def coordinate(entry, values, **told):
    """Place the values of one column on one scale, from slot 1 on."""
    reader = contexts.parse([entry])
    columns = dict.fromkeys(reader.columns, values)
    return reader.extract(columns, first_slot=1, **told)[:, 0].tolist()


def previous(labels, *, entry=CLASSES, **told):
    return contexts.parse([entry]).extract({}, first_slot=1, labels=labels, **told)[:, 0].tolist()


def slow_previous(labels, *, at=None, revealed=None, delay=None):
    """Look back from every row over all earlier ones: the plain meaning of previous-label."""
    found = []
    for row in range(len(labels)):
        latest = None
        for earlier in range(row):
            has_come = earlier + (delay[earlier] if delay else 0) <= row - 1
            is_shown = revealed is None or revealed[earlier] == 1
            is_mine = at is None or at[earlier] == at[row]
            if labels[earlier] is not None and has_come and is_shown and is_mine:
                latest = labels[earlier]
        found.append(latest)
    return [{None: 0.25, "normal": 0.0, "probe": 0.5, "attack": 1.0}[label] for label in found]


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
    "hour": (HOUR, ["2024-05-01T00:00:00", "2024-05-01T13:30:00"], [0.0, 0.5625]),
}


def test_every_scale_that_reads_a_column_has_values_by_hand():
    assert set(BY_HAND) == set(contexts.SCALES) - {"previous-label", "slot"}


@pytest.mark.parametrize(("entry", "values", "places"), BY_HAND.values(), ids=BY_HAND)
def test_a_scale_places_values_as_worked_out_by_hand(entry, values, places):
    found = coordinate(entry, values)

    assert found == pytest.approx(places, abs=1e-15)


@pytest.mark.parametrize(("entry", "values", "places"), BY_HAND.values(), ids=BY_HAND)
def test_a_scale_reads_text_as_it_reads_numbers(entry, values, places):
    found = coordinate(entry, np.array([str(value) for value in values]))

    assert found == pytest.approx(places, abs=1e-15)


def test_a_bare_name_is_the_column_as_it_is():
    assert coordinate("x", [0.0, 0.5]) == coordinate({"column": "x", "scale": "as-is"}, [0.0, 0.5])


def test_a_table_without_a_scale_is_the_column_as_it_is():
    assert coordinate({"column": "x", "clip": True}, [0.5, 2.0]) == [0.5, 1.0]


def test_the_ends_of_a_log_scale_are_exact():
    assert coordinate(LOG, [0, 1e6]) == [0.0, 1.0]


def test_a_log_scale_starts_at_zero_unless_told():
    found = coordinate({"column": "x", "scale": "log", "high": 15}, [0, 1, 3, 15])

    assert found == pytest.approx([0.0, 0.25, 0.5, 1.0])


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


def test_a_sample_is_the_first_rows_of_the_log():
    reader = contexts.parse([{"column": "x", "scale": "rank", "sample-rows": 4}])
    reader.learn_sample({"x": [5, 1, 5, 9, 1000, 1000]})
    found = reader.extract({"x": [0, 1, 3, 5, 9, 10]}, first_slot=1)

    assert found[:, 0].tolist() == [0.0, 0.125, 0.25, 0.5, 0.875, 1.0]


def test_a_log_shorter_than_the_sample_is_ranked_against_what_there_is():
    reader = contexts.parse([{"column": "x", "scale": "rank", "sample-rows": 1000}])
    reader.learn_sample({"x": ["1", "2"]})

    assert reader.extract_one({"x": 1.5}, slot=1) == (0.5,)


def test_a_second_sample_replaces_the_first():
    reader = contexts.parse([{"column": "x", "scale": "rank", "sample-rows": 2}])
    reader.learn_sample({"x": [1, 2]})
    reader.learn_sample({"x": [10, 20]})

    assert reader.extract_one({"x": 5}, slot=1) == (0.0,)


def test_the_longest_sample_is_asked_for():
    two, five = ({"column": "x", "scale": "rank", "sample-rows": rows} for rows in (2, 5))

    assert contexts.parse([two, five, RANK]).sample_rows == 5


def test_no_sample_is_asked_for_when_it_is_configured():
    assert contexts.parse([RANK, "x"]).sample_rows == 0


def test_a_learnt_sample_leaves_a_configured_one_alone():
    reader = contexts.parse([RANK, {"column": "x", "scale": "rank", "sample-rows": 2}])
    reader.learn_sample({"x": [1, 2]})

    assert reader.extract_one({"amount": 1, "x": 1}, slot=1) == (0.125, 0.25)


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


def test_a_date_without_a_time_is_midnight():
    assert coordinate(HOUR, ["2024-05-01"]) == [0.0]


def test_fractions_of_a_second_count():
    assert coordinate(HOUR, ["1970-01-01T00:00:00.864"]) == pytest.approx([1e-5])


def test_slots_are_divided_by_the_horizon():
    reader = contexts.parse([SLOT])

    assert reader.extract({"x": [7, 7, 7]}, first_slot=6)[:, 0].tolist() == [0.75, 0.875, 1.0]


def test_previous_label_is_the_place_of_the_last_class():
    assert previous(["attack", "probe", "normal", "attack"]) == [0.25, 1.0, 0.5, 0.0]


def test_previous_label_without_classes_is_the_label_itself():
    found = previous([1, "0.5", np.float32(0.25), True, 0], entry={"scale": "previous-label"})

    assert found == [0.0, 1.0, 0.5, 0.25, 1.0]


def test_an_array_of_labels_is_read_as_a_list_is():
    assert previous(np.array(["attack", "probe", "normal"])) == [0.25, 1.0, 0.5]


def test_an_empty_label_leaves_the_one_before():
    assert previous(["attack", None, "normal", None]) == [0.25, 1.0, 1.0, 0.0]


def test_a_hidden_label_never_comes():
    assert previous(["attack", "normal", "probe"], revealed=[1, 0, 1]) == [0.25, 1.0, 1.0]


def test_a_delayed_label_comes_that_many_slots_later():
    found = previous(["attack", "normal", None, None, None], delay=[0, 2, 0, 0, 0])

    assert found == [0.25, 1.0, 1.0, 1.0, 0.0]


def test_a_late_label_does_not_replace_that_of_a_later_row():
    assert previous(["attack", "normal", None, None], delay=[2, 0, 0, 0]) == [0.25, 0.25, 0.0, 0.0]


def test_a_learner_knows_its_own_labels_only():
    found = previous(["attack", "normal", "probe", "probe"], at=[3, 5, 3, 5])

    assert found == [0.25, 0.25, 1.0, 0.0]


def test_a_tuple_is_a_label_like_any_other():
    with pytest.raises(DataError, match=r"slot 2: the previous label is \('a', 1\), which is not"):
        previous([("a", 1), ("a", 1)])


def test_two_previous_labels_share_one_memory():
    reader = contexts.parse([CLASSES, {**CLASSES, "classes": ["attack", "normal"]}])
    found = reader.extract({}, first_slot=1, labels=["attack", "normal"])

    assert found.tolist() == [[0.25, 0.25], [1.0, 0.0]]


@st.composite
def histories(draw):
    """Labels with their learners, revelations and delays; each of the three may be left out."""
    size = draw(st.integers(0, 30))

    def column(values):
        return draw(st.lists(values, min_size=size, max_size=size))

    labels = column(st.sampled_from(["normal", "probe", "attack", None]))
    told = {
        "at": column(st.integers(0, 2)),
        "revealed": column(st.integers(0, 1)),
        "delay": column(st.integers(0, 6)),
    }
    return labels, {name: told[name] for name in told if draw(st.booleans())}


@repeatable
@given(histories())
def test_previous_label_is_what_a_plain_look_back_finds(history):
    labels, told = history

    assert previous(labels, **told) == slow_previous(labels, **told)


def whole_log(rows):
    """Draw a log that has something for every scale."""
    generator = np.random.default_rng(rows)
    return {
        "share": generator.random(rows),
        "bytes": generator.integers(0, 1_000_000, rows),
        "temp": [f"{value:.2f}" for value in generator.uniform(-10, 40, rows)],
        "amount": generator.normal(5, 3, rows),
        "time": np.datetime64("2024-05-01") + generator.integers(0, 10**9, rows).astype("m8[us]"),
    }


EVERY_SCALE = ["share", LOG, LINEAR, RANK, HOUR, CLASSES, {"scale": "slot", "horizon": 30}]


@repeatable
@given(history=histories(), cuts=st.sets(st.integers(0, 30)))
def test_chunks_of_a_log_give_what_the_whole_gives(history, cuts):
    labels, told = history
    log = whole_log(len(labels))
    reader = contexts.parse(EVERY_SCALE)
    edges = [0, *sorted(cut for cut in cuts if cut < len(labels)), len(labels)]
    chunks = [
        reader.extract(
            {name: values[start:end] for name, values in log.items()},
            first_slot=start + 1,
            labels=labels[start:end],
            **{name: values[start:end] for name, values in told.items()},
        )
        for start, end in itertools.pairwise(edges)
    ]
    whole = contexts.parse(EVERY_SCALE).extract(log, first_slot=1, labels=labels, **told)

    assert np.array_equal(np.concatenate(chunks), whole)


def test_delays_of_one_chunk_reach_into_chunks_without_delays():
    reader = contexts.parse([CLASSES])
    reader.extract({}, first_slot=1, labels=["attack"], delay=[2])
    found = reader.extract({}, first_slot=2, labels=[None, None, None])

    assert found[:, 0].tolist() == [0.25, 0.25, 1.0]


def test_slot_one_begins_a_new_log():
    reader = contexts.parse([CLASSES])
    reader.extract({}, first_slot=1, labels=["attack", "probe"], delay=[0, 5])
    found = reader.extract({}, first_slot=1, labels=[None] * 9)

    assert found[:, 0].tolist() == [0.25] * 9


def test_a_log_may_be_entered_in_the_middle():
    reader = contexts.parse([CLASSES])

    assert reader.extract({}, first_slot=50, labels=["attack", None])[:, 0].tolist() == [0.25, 1.0]


def test_one_record_gives_what_its_row_gives():
    log, labels = whole_log(30), (["attack", "normal", "probe"] * 10)
    reader = contexts.parse(EVERY_SCALE)
    rows = [
        reader.extract_one(
            {name: values[row] for name, values in log.items()},
            slot=row + 1,
            previous_label=labels[row - 1] if row else None,
        )
        for row in range(30)
    ]

    assert rows == [tuple(row) for row in reader.extract(log, first_slot=1, labels=labels).tolist()]


def test_one_record_leaves_the_memory_of_a_log_alone():
    reader = contexts.parse([CLASSES])
    reader.extract({}, first_slot=1, labels=["attack"])
    reader.extract_one({}, slot=1, previous_label="probe")

    assert reader.extract({}, first_slot=2, labels=[None]).tolist() == [[1.0]]


def test_one_record_is_a_tuple_of_plain_floats():
    (value,) = contexts.parse(["x"]).extract_one({"x": np.float32(0.5)}, slot=1)

    assert type(value) is float


def test_contexts_are_a_contiguous_matrix_of_doubles():
    found = contexts.parse(["x", "y"]).extract({"x": [0, 1, 0], "y": [1, 1, 1]}, first_slot=1)

    assert (found.dtype, found.shape, found.flags.c_contiguous) == (np.float64, (3, 2), True)


def test_a_reader_tells_its_axes():
    reader = contexts.parse(["share", CLASSES, SLOT, LOG, "share"])

    assert reader.names == ["share", "previous label", "slot / horizon", "bytes", "share"]


def test_a_reader_tells_the_columns_it_needs_once_each_and_in_order():
    assert contexts.parse(["b", CLASSES, "a", SLOT, "b"]).columns == ["b", "a"]


def test_no_entries_make_contexts_without_coordinates():
    reader = contexts.parse([])

    assert (reader.dimension, reader.extract({"x": [1, 2]}, first_slot=1).shape) == (0, (2, 0))


@repeatable
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

    assert places == sorted(places)


WRONG_ENTRIES = [
    (3, "context[1]: write a column's name or a table, not 3"),
    ("", "context[1].column: Expected `str` of length >= 1"),
    ({"colum": "x"}, "context[1]: scale 'as-is' takes no key 'colum'; did you mean 'column'?"),
    ({"scale": "log", "high": 5}, "context[1]: scale 'log' needs the key 'column'"),
    ({"column": 3}, "context[1].column: Expected `str`, got `int`"),
    ({"column": "x", "clip": 1}, "context[1].clip: Expected `bool`, got `int`"),
    (
        {"column": "x", "scale": "lienar"},
        "context[1]: there is no scale 'lienar'; did you mean 'linear'?",
    ),
    (
        {"column": "x", "scale": [3]},
        "context[1]: there is no scale [3]; known: as-is, hour, linear, log, "
        "previous-label, rank, slot",
    ),
    (
        {**LOG, "hihg": 3},
        "context[1]: scale 'log' takes no key 'hihg'; did you mean 'high'?",
    ),
    (
        {**SLOT, "clip": True},
        "context[1]: scale 'slot' takes no key 'clip'; known: horizon",
    ),
    ({"column": "x", "scale": "log"}, "context[1]: scale 'log' needs the key 'high'"),
    ({**LOG, "high": "big"}, "context[1].high: Expected `float`, got `str`"),
    (
        {**LINEAR, "low": 40},
        "context[1]: low must be less than high, both finite; got 40.0 and 40.0",
    ),
    (
        {**LOG, "high": math.inf},
        "context[1]: low must be less than high, both finite; got 0.0 and inf",
    ),
    (
        {**LINEAR, "low": math.nan},
        "context[1]: low must be less than high, both finite; got nan and 40.0",
    ),
    (
        {"column": "x", "scale": "rank"},
        "context[1]: scale 'rank' needs one of 'sample-rows' and 'sample'",
    ),
    (
        {**RANK, "sample-rows": 9},
        "context[1]: scale 'rank' needs one of 'sample-rows' and 'sample'",
    ),
    (
        {**RANK, "sample_rows": 9},
        "context[1]: scale 'rank' takes no key 'sample_rows'; did you mean 'sample-rows'?",
    ),
    (
        {"column": "x", "scale": "rank", "sample-rows": 0},
        "context[1].sample-rows: Expected `int` >= 1",
    ),
    ({**RANK, "sample": []}, "context[1].sample: give one or more finite numbers"),
    ({**RANK, "sample": [1.0, math.nan]}, "context[1].sample: give one or more finite numbers"),
    ({**RANK, "sample": ["a"]}, "context[1].sample: give one or more finite numbers"),
    ({**RANK, "sample": 3}, "context[1].sample: give one or more finite numbers"),
    ({"scale": "slot"}, "context[1]: scale 'slot' needs the key 'horizon'"),
    ({"scale": "slot", "horizon": 0}, "context[1].horizon: Expected `int` >= 1"),
    ({"scale": "slot", "horizon": 2.5}, "context[1].horizon: Expected `int`, got `float`"),
    ({**CLASSES, "classes": ["a"]}, "context[1]: classes must be two or more, all different"),
    ({**CLASSES, "classes": ["a", "a"]}, "context[1]: classes must be two or more, all different"),
    ({**CLASSES, "initial": 2}, "context[1].initial: Expected `float` <= 1.0"),
]


@pytest.mark.parametrize(("entry", "sentence"), WRONG_ENTRIES)
def test_a_wrong_entry_is_named(entry, sentence):
    with pytest.raises(ConfigError) as caught:
        contexts.parse(["first", entry])

    assert str(caught.value) == sentence


NOT_A_NUMBER = "which is not a number; correct the row or leave it out"
NOT_A_TIME = "which is not a time; write 2024-05-01T13:30:00, or seconds since the epoch"
UNUSABLE_VALUES = [
    ("x", "abc", f"column 'x' is 'abc', {NOT_A_NUMBER}"),
    ("x", "", f"column 'x' is '', {NOT_A_NUMBER}"),
    ("x", "nan", f"column 'x' is 'nan', {NOT_A_NUMBER}"),
    ("x", None, f"column 'x' is None, {NOT_A_NUMBER}"),
    ("x", [1], f"column 'x' is [1], {NOT_A_NUMBER}"),
    ("x", np.datetime64("2024-05-01", "ns"), f"column 'x' is 2024-05-01T00:00:00, {NOT_A_NUMBER}"),
    ("x", "a" * 99, f"column 'x' is 'aaaaaaaaaaaa...aaaaaaaaaaaaa', {NOT_A_NUMBER}"),
    ({"column": "x", "clip": True}, math.nan, f"column 'x' is nan, {NOT_A_NUMBER}"),
    ({**LINEAR, "clip": True}, math.nan, f"column 'temp' is nan, {NOT_A_NUMBER}"),
    ({**LOG, "clip": True}, None, f"column 'bytes' is None, {NOT_A_NUMBER}"),
    (RANK, math.nan, f"column 'amount' is nan, {NOT_A_NUMBER}"),
    (LOG, 10**400, f"column 'bytes' is 100000000000000000...0000000000000000000, {NOT_A_NUMBER}"),
    (HOUR, "now", f"column 'time' is 'now', {NOT_A_TIME}"),
    (HOUR, "2024-13-01", f"column 'time' is '2024-13-01', {NOT_A_TIME}"),
    (HOUR, None, f"column 'time' is None, {NOT_A_TIME}"),
    (HOUR, math.nan, f"column 'time' is nan, {NOT_A_TIME}"),
    (HOUR, np.datetime64("NaT", "s"), f"column 'time' is None, {NOT_A_TIME}"),
    (HOUR, 1_714_570_200_000, f"column 'time' is 1714570200000, {NOT_A_TIME}"),
]


@pytest.mark.parametrize(("entry", "value", "sentence"), UNUSABLE_VALUES)
def test_a_value_that_cannot_be_read_is_named(entry, value, sentence):
    reader = contexts.parse([entry])
    with pytest.raises(DataError) as caught:
        reader.extract_one({reader.columns[0]: value}, slot=17)

    assert str(caught.value) == f"slot 17: {sentence}"


OUTSIDE = "contexts must lie in [0, 1] (scale the column, or ask for clip = true)"
BOUNDS = "move low or high, or ask for clip = true"
OUTSIDE_VALUES = [
    ("x", 1.3, f"context 'x' is 1.3; {OUTSIDE}"),
    ("x", -0.001, f"context 'x' is -0.001; {OUTSIDE}"),
    ("x", math.inf, f"context 'x' is inf; {OUTSIDE}"),
    (LINEAR, 45, f"column 'temp' is 45.0, outside [-10.0, 40.0]; {BOUNDS}"),
    (LOG, -1, f"column 'bytes' is -1.0, outside [0.0, 1000000.0]; {BOUNDS}"),
    (LOG, 1e9, f"column 'bytes' is 1000000000.0, outside [0.0, 1000000.0]; {BOUNDS}"),
]


@pytest.mark.parametrize(("entry", "value", "sentence"), OUTSIDE_VALUES)
def test_a_value_outside_is_named_unless_clipping_is_asked_for(entry, value, sentence):
    with pytest.raises(ContextError) as caught:
        coordinate(entry, np.array([0.0, value, value]))

    assert str(caught.value) == f"slot 2: {sentence}"


UNPLACED_LABELS = [
    (
        CLASSES,
        "worm",
        "is 'worm', which is not one of the classes ['normal', 'probe', 'attack']; write",
    ),
    (
        CLASSES,
        ["worm"],
        "is ['worm'], which is not one of the classes ['normal', 'probe', 'attack']; write",
    ),
    ({"scale": "previous-label"}, 2, "is 2, which is not a number in [0, 1]; list the labels as "),
    ({"scale": "previous-label"}, "a", "is 'a', which is not a number in [0, 1]; list the labels "),
]


@pytest.mark.parametrize(("entry", "label", "sentence"), UNPLACED_LABELS)
def test_a_label_without_a_place_is_named(entry, label, sentence):
    reader = contexts.parse([entry])
    with pytest.raises(DataError, match=re.escape(f"slot 17: the previous label {sentence}")):
        reader.extract_one({}, slot=17, previous_label=label)


def test_a_label_that_nobody_looks_at_need_not_have_a_place():
    assert previous(["worm", "probe", "worm"], revealed=[0, 1, 1]) == [0.25, 0.25, 0.5]


def sentence_of(call, *arguments, **told):
    with pytest.raises(DataError) as caught:
        call(*arguments, **told)
    return str(caught.value)


def test_a_column_that_the_log_lacks_is_named_with_the_nearest():
    sentence = sentence_of(contexts.parse([LOG]).extract, {"byte": [1], "x": [1]}, first_slot=9)

    assert sentence == "slot 9: there is no column 'bytes'; did you mean 'byte'?"


def test_a_field_that_the_record_lacks_is_named_with_what_there_is():
    sentence = sentence_of(contexts.parse([LOG]).extract_one, {"x": 1, "y": 2}, slot=9)

    assert sentence == "slot 9: there is no column 'bytes'; known: x, y"


def test_columns_of_unequal_length_are_refused():
    sentence = sentence_of(
        contexts.parse(["x"]).extract, {"x": [0, 1]}, first_slot=9, labels=["a", "b", "c"]
    )

    assert sentence == "slot 9: columns and labels must be equally long; got 'x': 2, labels: 3"


def test_rows_that_nothing_counts_are_refused():
    sentence = sentence_of(contexts.parse([SLOT]).extract, {}, first_slot=1)

    assert sentence == "slot 1: columns and labels must be equally long; got none of them"


def test_previous_label_asks_for_labels():
    sentence = sentence_of(contexts.parse([CLASSES]).extract, {"x": [1]}, first_slot=1)

    assert sentence == "slot 1: scale 'previous-label' needs the labels; pass them"


def test_previous_label_refuses_chunks_out_of_order():
    reader = contexts.parse([CLASSES])
    reader.extract({}, first_slot=1, labels=["attack", "normal"])
    sentence = sentence_of(reader.extract, {}, first_slot=7, labels=["attack"])

    assert sentence == (
        "slot 7: slot 3 was to come next; scale 'previous-label' needs the chunks of a log in order"
    )


@pytest.mark.parametrize("delay", [-1, math.nan])
def test_a_delay_below_zero_is_refused(delay):
    sentence = sentence_of(previous, ["attack", "normal"], delay=[0, delay])

    assert sentence == f"slot 2: the delay is {delay}; give 0 slots or more"


def test_slots_past_the_horizon_are_refused():
    reader = contexts.parse([SLOT])
    with pytest.raises(ContextError) as caught:
        reader.extract({"x": [0, 0, 0]}, first_slot=7)

    assert str(caught.value) == "slot 9: the horizon ends at slot 8; give a longer horizon"


def test_an_empty_chunk_past_the_horizon_is_harmless():
    assert contexts.parse([SLOT]).extract({"x": []}, first_slot=9).shape == (0, 1)


def test_ranks_ask_for_their_sample():
    reader = contexts.parse([{"column": "x", "scale": "rank", "sample-rows": 50}])

    assert sentence_of(reader.extract_one, {"x": 1}, slot=4) == (
        "slot 4: column 'x' has no sample to rank against; "
        "show learn_sample the first 50 rows, or configure a sample"
    )


def test_an_empty_log_is_no_sample():
    reader = contexts.parse([{"column": "x", "scale": "rank", "sample-rows": 50}])

    assert sentence_of(reader.learn_sample, {"x": []}) == (
        "column 'x' has no rows to rank against; show it some"
    )


def test_a_bad_value_in_a_sample_is_named():
    reader = contexts.parse([{"column": "x", "scale": "rank", "sample-rows": 50}])

    assert sentence_of(reader.learn_sample, {"x": [1, "z"]}) == (
        f"slot 2: column 'x' is 'z', {NOT_A_NUMBER}"
    )


def test_the_corners_of_the_cube_belong_to_it():
    contexts.check_unit(np.array([[0.0, 1.0], [-0.0, 1.0]]), names=["a", "b"], first_slot=1)


@pytest.mark.parametrize("value", [1.3, -0.5, math.nan, math.inf, 1.0000000000000002])
def test_the_first_context_outside_the_cube_is_named(value):
    points = np.array([[0.5, 0.5], [0.5, value], [value, 0.5]])
    with pytest.raises(ContextError) as caught:
        contexts.check_unit(points, names=["hour", "bytes"], first_slot=16)

    assert str(caught.value) == f"slot 17: context 'bytes' is {value}; {OUTSIDE}"


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_contexts_of_another_length_than_the_names_are_refused(shape):
    with pytest.raises(ContextError) as caught:
        contexts.check_unit(np.zeros(shape), names=["hour", "bytes"], first_slot=1)

    assert str(caught.value) == (
        f"slot 1: 2 contexts per row wanted, not an array of shape {shape}"
    )
