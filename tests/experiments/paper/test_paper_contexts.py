"""Contexts of the experiments: between 0 and 1, and independent of future labels."""

import numpy as np
import pytest

from covey.errors import DataError
from flows import flows
from reproduction import data
from reproduction.data import FileText, LabelledStream
from reproduction.experiments import CONTEXTS

LABELS = [False, True, True, False, True, False]


def stream_of(*sizes: int) -> LabelledStream:
    lines = flows(LABELS).splitlines()
    for place, size in enumerate(sizes):
        fields = lines[place].split(",")
        lines[place] = ",".join([*fields[:4], str(size), *fields[5:]])
    text = "".join(line + "\n" for line in lines).encode()
    return data.parse_kdd(FileText(text, "sha256", "kdd.gz"))


def test_there_are_five_contexts() -> None:
    assert list(CONTEXTS) == ["A1", "A2", "A2 log", "A3", "hour"]


def test_the_previous_label_is_0_in_the_first_slot() -> None:
    assert CONTEXTS["A1"](stream_of(), 1, 5).tolist() == [0, 1, 1, 0, 1]


def test_source_bytes_are_scaled_to_the_range_of_the_window() -> None:
    stream = stream_of(99, 10, 0, 5, 7, 99)

    assert CONTEXTS["A2"](stream, 1, 4).tolist() == [1.0, 0.0, 0.5, 0.7]


def test_logarithms_spread_small_numbers_beside_few_large_ones() -> None:
    stream = stream_of(0, 9, 99, 999_999, 0, 0)

    assert CONTEXTS["A2 log"](stream, 0, 4) == pytest.approx([0, 1 / 6, 1 / 3, 1])
    assert (CONTEXTS["A2"](stream, 0, 4)[:3] < 1e-3).all()


@pytest.mark.parametrize("name", ["A2", "A2 log"])
def test_constant_source_bytes_become_0(name: str) -> None:
    assert CONTEXTS[name](stream_of(7, 7, 7), 0, 3).tolist() == [0.0, 0.0, 0.0]


def test_time_ends_at_1() -> None:
    assert CONTEXTS["A3"](stream_of(), 1, 4).tolist() == [0.25, 0.5, 0.75, 1.0]


def test_the_hour_is_a_column_of_the_stream() -> None:
    rows = "feat_1,feat_2,feat_3,feat_4,feat_5,feat_6,target\n0.25,0,0,0,0,0,1\n0.5,0,0,0,0,0,0\n"
    stream = data.parse_electricity(FileText(rows.encode(), "sha256", "elec.csv"))

    assert CONTEXTS["hour"](stream, 0, 2).tolist() == [0.25, 0.5]


@pytest.mark.parametrize("name", ["A1", "A2", "A2 log", "A3"])
def test_a_window_beyond_the_end_has_no_context(name: str) -> None:
    with pytest.raises(DataError, match="rows 2 to 7 were requested"):
        CONTEXTS[name](stream_of(), 2, 6)


@pytest.mark.parametrize("name", ["A1", "A3"])
def test_no_context_depends_on_future_labels(name: str) -> None:
    turned = data.parse_kdd(
        FileText(flows([*LABELS[:4], False, True]).encode(), "sha256", "kdd.gz")
    )

    assert np.array_equal(CONTEXTS[name](stream_of(), 0, 5), CONTEXTS[name](turned, 0, 5))
