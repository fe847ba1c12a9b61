"""Encoding: labels as codes, who receives what and when, and every value that is refused."""

import math
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.config import NetworkConfig, load
from covey.data.logs import CodedColumn, Column, EncodedLog
from covey.errors import DataError
from covey.replay.encoding import Arrivals, Encoder, Vocabulary

LEARNERS = [
    {"name": "north", "functions": ["nb", "tree"]},
    {"name": "south", "functions": ["nb"]},
    {"name": "west", "functions": ["svm"], "arrivals": False},
]
PREDICTIONS: dict[str, Any] = {"nb": [1, 0], "tree": [0, 0], "svm": [1, 1]}
TYPED = [True, False]


def setup_with(**data: Any) -> NetworkConfig:
    return load({"data": data, "learner": LEARNERS})


def arrive(columns: dict[str, Column], *, first_slot: int = 1, **data: Any) -> Arrivals:
    encoder = Encoder(setup_with(**data), is_typed=True)
    encoder.first_slot = first_slot
    return encoder.arrivals(columns)


def log_of(columns: dict[str, Column], **data: Any) -> EncodedLog:
    setup = setup_with(**data)
    encoder = Encoder(setup, is_typed=True)
    columns = {**PREDICTIONS, **columns}
    arrived = encoder.arrivals(columns)
    answers = [(name, columns[name]) for site in setup.sites for name in site.functions]
    return encoder.encode(answers, arrived, np.array([[0.25], [0.75]]), {})


def codes_of(column: Column, *, is_typed: bool = True) -> tuple[list[int], list[Any]]:
    vocabulary = Vocabulary(is_typed=is_typed)
    return vocabulary.encode(column, name="x", first_slot=1).tolist(), vocabulary.values


def sentence_of(call: Any, *arguments: Any, **told: Any) -> str:
    with pytest.raises(DataError) as caught:
        call(*arguments, **told)
    return str(caught.value)


def test_coded_text_has_the_codes_of_a_list_and_names_the_first_bad_row() -> None:
    values = ["b", None, "a", "b", "c"]
    coded = CodedColumn(["c", "a", "unused", "b"], np.array([3, -1, 1, 3, 0]))
    of_list, of_codes = (Vocabulary(is_typed=True) for _ in range(2))

    assert list(coded) == values
    assert (list(coded[1:4]), coded[1], coded[2]) == (values[1:4], None, "a")
    assert np.asarray(coded).tolist() == values
    assert (
        of_codes.encode(coded, name="x", first_slot=1).tolist()
        == of_list.encode(values, name="x", first_slot=1).tolist()
        == [0, -1, 1, 0, 2]
    )
    assert of_codes.values == of_list.values == ["b", "a", "c"]
    numbers = Vocabulary(is_typed=True)
    numbers.encode(np.array([1, 0]), name="y", first_slot=1)
    with pytest.raises(DataError, match="row 7: column 'x' holds 'b'"):
        numbers.encode(coded, name="x", first_slot=7)


def test_numbers_in_csv_are_equal_by_value() -> None:
    codes, values = codes_of(["1", "1.0", "+1", "01", "1e0", "0.1e1", "2"], is_typed=False)

    assert (codes, values) == ([0, 0, 0, 0, 0, 0, 1], [1, 2])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("-0", 0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1.5E-3", -0.0015),
        ("12345678901234567890", 12345678901234567890),
    ],
)
def test_a_number_in_csv_may_be_written_in_any_usual_way(text: str, number: float) -> None:
    assert codes_of([text], is_typed=False)[1] == [number]


@pytest.mark.parametrize(
    "text", ["nan", "inf", "1_0", " 1", "0x1", "1e", "e1", "1,5", "\u0661", "-"]
)
def test_csv_values_that_are_not_plain_numbers_are_text(text: str) -> None:
    assert codes_of([text, "a"], is_typed=False)[1] == [text, "a"]


@pytest.mark.parametrize("is_typed", TYPED)
def test_text_is_exact(is_typed: bool) -> None:
    assert codes_of(["a", " a", "A", "a "], is_typed=is_typed)[0] == [0, 1, 2, 3]


@pytest.mark.parametrize("missing", ["", None, math.nan])
def test_an_empty_field_has_no_code(missing: Any) -> None:
    assert codes_of(["a", missing, "b"]) == ([0, -1, 1], ["a", "b"])


@pytest.mark.parametrize(
    "kind", ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float32", "float64"]
)
def test_numeric_arrays_of_any_kind_are_read(kind: str) -> None:
    codes, values = codes_of(np.array([0, 1, 1, 0], dtype=kind))

    assert (codes, values) == ([0, 1, 1, 0], [0, 1])


@pytest.mark.parametrize(
    "column",
    [
        np.array([5, -128, 127], np.int8),
        np.array([5, -(2**63), 2**63 - 1], np.int64),
        np.array([5, 2**64 - 1, 2**63], np.uint64),
        np.array([2**64 - 3, 2**64 - 1, 2**64 - 2], np.uint64),
        np.array([5, 10**6, -(10**6)]),
        np.array([1000, 1002, 1001]),
    ],
    ids=str,
)
def test_distant_integers_have_different_codes(column: np.ndarray) -> None:
    codes, values = codes_of(column)

    assert [values[code] for code in codes] == column.tolist()


@given(
    chunks=st.lists(st.lists(st.integers(-5, 1500), min_size=1), min_size=1, max_size=4),
    kind=st.sampled_from(["int16", "int32", "int64", "float64"]),
)
def test_codes_map_back_to_their_values(chunks: list[list[int]], kind: str) -> None:
    vocabulary = Vocabulary(is_typed=True)
    codes = [
        vocabulary.encode(np.array(chunk, kind), name="x", first_slot=1).tolist()
        for chunk in chunks
    ]

    assert [[vocabulary.values[code] for code in chunk] for chunk in codes] == chunks
    assert len(set(vocabulary.values)) == len(vocabulary.values)


@pytest.mark.parametrize(
    ("column", "is_typed", "shown"),
    [
        (np.array([1.0, math.inf]), True, "inf"),
        (np.array([1.0, -math.inf], np.float32), True, "-inf"),
        (["1", "1e999"], False, "inf"),
        ([1, datetime(2024, 5, 1)], True, "2024-05-01 00:00:00"),
        (np.array(["a", b"b"], object), True, "b'b'"),
    ],
)
def test_an_invalid_label_is_named(column: Column, is_typed: Any, shown: str) -> None:
    sentence = sentence_of(codes_of, column, is_typed=is_typed)

    assert sentence == f"row 2: column 'x' holds {shown}, which is not a label"


@pytest.mark.parametrize(
    ("key", "column", "read"),
    [
        ("delay", ["0", "2"], [0, 2]),
        ("delay", ["0.0", "2.0"], [0, 2]),
        ("delay", [0, 2], [0, 2]),
        ("delay", np.array([0.0, 2.0]), [0, 2]),
        ("revealed", ["1", "0"], [1, 0]),
        ("revealed", [True, False], [1, 0]),
        ("revealed", np.array([1, 0], np.int8), [1, 0]),
        ("at", ["north", "south"], [0, 1]),
        ("at", np.array(["north", "south"]), [0, 1]),
    ],
)
def test_what_arrives_is_read_from_text_and_numbers(
    key: str, column: Column, read: list[int]
) -> None:
    arrived = arrive({"label": ["a", "b"], "x": column}, **{key: "x"})

    assert getattr(arrived, key).tolist() == read


def test_a_hidden_label_can_be_empty() -> None:
    arrived = arrive({"label": ["", "a"], "seen": ["0", "1"]}, revealed="seen")

    assert arrived.labels.tolist() == [-1, 0]


@pytest.mark.parametrize(
    ("told", "delays"),
    [
        ({"delay": [0, 3]}, [0, 3]),
        ({"revealed": [0, 1]}, [-1, 0]),
        ({"delay": [4, 3], "revealed": [0, 1]}, [-5, 3]),
    ],
)
def test_a_hidden_label_is_a_delay_below_zero(told: dict[str, Any], delays: list[int]) -> None:
    log = log_of({"label": [0, 1], **told}, **{name: name for name in told})

    assert log.delays is not None
    assert log.delays.tolist() == delays
