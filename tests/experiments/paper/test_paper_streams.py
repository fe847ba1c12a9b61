"""Streams: labels and features are read from text, and rows that do not exist are refused."""

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import DataError
from flows import flows
from reproduction import data
from reproduction.data import KDD_NAMES, KDD_WORDS, LabelledStream

DATA = os.environ.get("COVEY_DATA", "")
has_data = pytest.mark.skipif(
    not all((Path(DATA) / source.file).is_file() for source in (data.KDD, data.ELECTRICITY)),
    reason="COVEY_DATA names no folder with the real streams",
)


def kdd_of(folder: Path, text: str) -> LabelledStream:
    path = folder / "kdd.gz"
    path.write_bytes(gzip.compress(text.encode()))
    return data.load_kdd(path, is_any_file=True)


def electricity_of(folder: Path, *rows: str) -> LabelledStream:
    path = folder / "elec.csv"
    path.write_text("\n".join(["feat_1,feat_2,feat_3,feat_4,feat_5,feat_6,target", *rows]))
    return data.load_electricity(path, is_any_file=True)


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.data())
def test_any_range_of_rows_has_the_values_of_its_lines(
    labels: list[bool], draws: st.DataObject
) -> None:
    text = flows(labels)
    start = draws.draw(st.integers(0, len(labels) - 1))
    slots = draws.draw(st.integers(1, len(labels) - start))
    stream = data.parse_kdd(data.FileText(text.encode(), "sha256", "kdd.gz"))

    rows = stream.rows(start, slots)
    lines = list(csv.reader(text.splitlines()))[start : start + slots]
    named = [dict(zip([*KDD_NAMES, "label"], line, strict=True)) for line in lines]
    assert rows.words.tolist() == [[row[name] for name in KDD_WORDS] for row in named]
    assert rows.numbers.tolist() == [
        [float(row[name]) for name in KDD_NAMES if name not in KDD_WORDS] for row in named
    ]
    assert stream.column("src_bytes", start, slots).tolist() == [
        float(row["src_bytes"]) for row in named
    ]
    assert stream.labels_of(start, slots).tolist() == [row["label"] != "normal." for row in named]


@pytest.mark.parametrize(("start", "slots"), [(0, 6), (5, 1), (-1, 2), (2, 0)])
def test_a_window_beyond_the_end_is_refused(tmp_path: Path, start: int, slots: int) -> None:
    stream = kdd_of(tmp_path, flows([True] * 5))

    with pytest.raises(DataError, match="were requested, but kdd.gz has rows 0 to 4"):
        stream.rows(start, slots)
    with pytest.raises(DataError, match="were requested, but kdd.gz has rows 0 to 4"):
        stream.labels_of(start, slots)


def test_electricity_has_a_header_and_the_hour_first(tmp_path: Path) -> None:
    stream = electricity_of(tmp_path, "0,.1,.2,.3,.4,.5,1", "0.5,.1,.2,.3,.4,.6,0")

    assert stream.labels.tolist() == [1, 0]
    assert stream.column("hour", 0, 2).tolist() == [0.0, 0.5]
    assert stream.rows(1, 1).numbers.tolist() == [[0.5, 0.1, 0.2, 0.3, 0.4, 0.6]]
    assert stream.rows(1, 1).words.shape == (1, 0)


@has_data
def test_the_real_streams_have_the_known_sizes() -> None:
    kdd, electricity = data.load_kdd(Path(DATA)), data.load_electricity(Path(DATA))

    assert (len(kdd), len(electricity)) == (494_021, 45_312)
    assert kdd.labels_of(80_553, 20_000).mean() == 0.47
    assert np.mean(np.diff(electricity.labels) != 0) == pytest.approx(0.147, abs=5e-4)
