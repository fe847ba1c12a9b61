"""Whatever cannot become a context is named, with its slot and what to do."""

import math
import re

import numpy as np
import pytest

from covey.data import contexts
from covey.errors import ConfigError, ContextError, DataError
from support.coordinates import CLASSES, HOUR, LINEAR, LOG, RANK, SLOT, coordinate, previous

WRONG_ENTRIES = [
    (3, "context[1]: expected a column name or a table, got 3"),
    ("", "context[1].column: Expected `str` of length >= 1"),
    ({"colum": "x"}, "context[1]: unknown key 'colum' of scale 'as-is'; did you mean 'column'?"),
    (
        {"column": "x", "low": 0},
        "context[1]: unknown key 'low' of scale 'as-is'; it is a key of scale 'linear' or 'log'",
    ),
    ({"scale": "log", "high": 5}, "context[1]: scale 'log' needs the key 'column'"),
    ({"column": 3}, "context[1].column: Expected `str`, got `int`"),
    ({"column": "x", "clip": 1}, "context[1].clip: Expected `bool`, got `int`"),
    (
        {"column": "x", "scale": "lienar"},
        "context[1]: unknown scale 'lienar'; did you mean 'linear'?",
    ),
    (
        {"column": "x", "scale": [3]},
        "context[1]: unknown scale [3]; known: as-is, category, day-of-year, hour, is-missing, "
        "linear, log, month, previous-label, rank, slot, weekday",
    ),
    (
        {**LOG, "hihg": 3},
        "context[1]: unknown key 'hihg' of scale 'log'; did you mean 'high'?",
    ),
    (
        {**SLOT, "clip": True},
        "context[1]: unknown key 'clip' of scale 'slot'; known: after, horizon",
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
        "context[1]: unknown key 'sample_rows' of scale 'rank'; did you mean 'sample-rows'?",
    ),
    (
        {"column": "x", "scale": "rank", "sample-rows": 0},
        "context[1].sample-rows: Expected `int` >= 1",
    ),
    ({**RANK, "sample": []}, "context[1].sample: expected one or more finite numbers"),
    ({**RANK, "sample": [1.0, math.nan]}, "context[1].sample: expected one or more finite numbers"),
    ({**RANK, "sample": ["a"]}, "context[1].sample: expected one or more finite numbers"),
    ({**RANK, "sample": 3}, "context[1].sample: expected one or more finite numbers"),
    ({"scale": "slot"}, "context[1]: scale 'slot' needs the key 'horizon'"),
    ({"scale": "slot", "horizon": 0}, "context[1].horizon: Expected `int` >= 1"),
    (
        {"scale": "slot", "horizon": 2, "after": "stop"},
        "context[1].after: Invalid enum value 'stop'",
    ),
    ({"scale": "slot", "horizon": 2.5}, "context[1].horizon: Expected `int`, got `float`"),
    ({**CLASSES, "classes": ["a"]}, "context[1]: classes must be two or more different labels"),
    (
        {**CLASSES, "classes": ["a", "a"]},
        "context[1]: classes must be two or more different labels",
    ),
    ({**CLASSES, "initial": 2}, "context[1].initial: Expected `float` <= 1.0"),
]


@pytest.mark.parametrize(("entry", "sentence"), WRONG_ENTRIES)
def test_a_wrong_entry_is_named(entry, sentence):
    with pytest.raises(ConfigError) as caught:
        contexts.parse(["first", entry])

    assert str(caught.value) == sentence


NOT_A_NUMBER = "which is not a number; correct or remove the row"
NOT_A_TIME = "which is not a time; write 2024-05-01T13:30:00, or seconds since the epoch"
OWN = ', or set missing = "own", a cell for such rows'
UNUSABLE_VALUES = [
    ("x", "abc", f"column 'x' is 'abc', {NOT_A_NUMBER}"),
    ("x", "", f"column 'x' is '', {NOT_A_NUMBER}{OWN}"),
    ("x", "nan", f"column 'x' is 'nan', {NOT_A_NUMBER}{OWN}"),
    ("x", None, f"column 'x' is None, {NOT_A_NUMBER}{OWN}"),
    ("x", [1], f"column 'x' is [1], {NOT_A_NUMBER}"),
    ("x", np.datetime64("2024-05-01", "ns"), f"column 'x' is 2024-05-01T00:00:00, {NOT_A_NUMBER}"),
    ("x", "a" * 99, f"column 'x' is 'aaaaaaaaaaaa...aaaaaaaaaaaaa', {NOT_A_NUMBER}"),
    ({"column": "x", "clip": True}, math.nan, f"column 'x' is nan, {NOT_A_NUMBER}{OWN}"),
    ({**LINEAR, "clip": True}, math.nan, f"column 'temp' is nan, {NOT_A_NUMBER}{OWN}"),
    ({**LOG, "clip": True}, None, f"column 'bytes' is None, {NOT_A_NUMBER}{OWN}"),
    (RANK, math.nan, f"column 'amount' is nan, {NOT_A_NUMBER}{OWN}"),
    (LOG, 10**400, f"column 'bytes' is 100000000000000000...0000000000000000000, {NOT_A_NUMBER}"),
    (HOUR, "now", f"column 'time' is 'now', {NOT_A_TIME}"),
    (HOUR, "2024-13-01", f"column 'time' is '2024-13-01', {NOT_A_TIME}"),
    (HOUR, None, f"column 'time' is None, {NOT_A_TIME}{OWN}"),
    (HOUR, math.nan, f"column 'time' is nan, {NOT_A_TIME}{OWN}"),
    (HOUR, np.datetime64("NaT", "s"), f"column 'time' is None, {NOT_A_TIME}{OWN}"),
    (HOUR, 1_714_570_200_000, f"column 'time' is 1714570200000, {NOT_A_TIME}"),
]


@pytest.mark.parametrize(("entry", "value", "sentence"), UNUSABLE_VALUES)
def test_a_value_that_cannot_be_read_is_named(entry, value, sentence):
    reader = contexts.parse([entry])
    with pytest.raises(DataError) as caught:
        reader.extract_one({reader.columns[0]: value}, slot=17)

    assert str(caught.value) == f"slot 17: {sentence}"


OUTSIDE = "contexts must lie in [0, 1] (scale the column, or set clip = true)"
BOUNDS = "change low or high, or set clip = true"
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
def test_an_invalid_previous_label_is_named(entry, label, sentence):
    reader = contexts.parse([entry])
    with pytest.raises(DataError, match=re.escape(f"slot 17: the previous label {sentence}")):
        reader.extract_one({}, slot=17, previous_label=label)


def test_a_tuple_is_a_label_like_any_other():
    with pytest.raises(DataError, match=r"slot 2: the previous label is \('a', 1\), which is not"):
        previous([("a", 1), ("a", 1)])


def sentence_of(call, *arguments, **told):
    with pytest.raises(DataError) as caught:
        call(*arguments, **told)
    return str(caught.value)


def test_a_column_that_the_log_lacks_is_named_with_the_nearest():
    sentence = sentence_of(contexts.parse([LOG]).extract, {"byte": [1], "x": [1]}, first_slot=9)

    assert sentence == "slot 9: there is no column 'bytes'; did you mean 'byte'?"


def test_a_missing_field_of_a_record_is_named_with_the_known_ones():
    sentence = sentence_of(contexts.parse([LOG]).extract_one, {"x": 1, "y": 2}, slot=9)

    assert sentence == "slot 9: there is no column 'bytes'; known: x, y"


def test_columns_of_unequal_length_are_refused():
    sentence = sentence_of(
        contexts.parse(["x"]).extract, {"x": [0, 1]}, first_slot=9, labels=["a", "b", "c"]
    )

    assert sentence == "slot 9: columns and labels differ in length; got 'x': 2, labels: 3"


def test_rows_without_columns_are_rejected():
    sentence = sentence_of(contexts.parse([SLOT]).extract, {}, first_slot=1)

    assert sentence == "slot 1: columns and labels differ in length; got none of them"


def test_previous_label_needs_labels():
    sentence = sentence_of(contexts.parse([CLASSES]).extract, {"x": [1]}, first_slot=1)

    assert sentence == "slot 1: scale 'previous-label' needs the labels; pass them"


def test_previous_label_refuses_chunks_out_of_order():
    reader = contexts.parse([CLASSES])
    reader.extract({}, first_slot=1, labels=["attack", "normal"])
    sentence = sentence_of(reader.extract, {}, first_slot=7, labels=["attack"])

    assert sentence == (
        "slot 7: expected slot 3 next; scale 'previous-label' needs the chunks of a log in order"
    )


@pytest.mark.parametrize("delay", [-1, math.nan])
def test_a_delay_below_zero_is_refused(delay):
    sentence = sentence_of(previous, ["attack", "normal"], delay=[0, delay])

    assert sentence == f"slot 2: the delay is {delay}; it must be 0 slots or more"


def test_ranks_need_a_sample():
    reader = contexts.parse([{"column": "x", "scale": "rank", "sample-rows": 50}])

    assert sentence_of(reader.extract_one, {"x": 1}, slot=4) == (
        "slot 4: column 'x' has no sample; "
        "pass the first 50 rows to learn_sample, or configure a sample"
    )


def test_an_empty_log_is_rejected_as_a_sample():
    reader = contexts.parse([{"column": "x", "scale": "rank", "sample-rows": 50}])

    assert sentence_of(reader.learn_sample, {"x": []}) == (
        "column 'x' has no rows for a sample; pass at least one"
    )


def test_a_bad_value_in_a_sample_is_named():
    reader = contexts.parse([{"column": "x", "scale": "rank", "sample-rows": 50}])

    assert sentence_of(reader.learn_sample, {"x": [1, "z"]}) == (
        f"slot 2: column 'x' is 'z', {NOT_A_NUMBER}"
    )


@pytest.mark.parametrize("value", [1.3, -0.5, math.nan, math.inf, 1.0000000000000002])
def test_the_first_context_outside_the_cube_is_named(value):
    points = np.array([[0.5, 0.5], [0.5, value], [value, 0.5]])
    with pytest.raises(ContextError) as caught:
        contexts.check_unit(points, names=["hour", "bytes"], at=lambda row: f"slot {16 + row}")

    assert str(caught.value) == f"slot 17: context 'bytes' is {value}; {OUTSIDE}"


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_contexts_of_another_length_than_the_names_are_refused(shape):
    with pytest.raises(ContextError) as caught:
        contexts.check_unit(np.zeros(shape), names=["hour", "bytes"])

    assert str(caught.value) == (f"slot 1: expected 2 contexts per row, got shape {shape}")


def test_messages_about_a_request_name_rows() -> None:
    reader = contexts.parse([{"column": "age", "scale": "linear", "low": 0, "high": 100}, "share"])

    for ages, shares, says in (
        ([1, 140], [0.1, 0.1], r"^row 1: column 'age' is 140"),
        ([1, "x"], [0.1, 0.1], r"^row 1: column 'age' is 'x'"),
        ([1, 2], [1.5, 0.1], r"^row 0: context 'share' is 1.5"),
    ):
        with pytest.raises((ContextError, DataError), match=says):
            reader.extract_rows({"age": ages, "share": shares}, slot=3042, count=2)
