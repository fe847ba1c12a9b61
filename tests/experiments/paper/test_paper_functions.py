"""The functions of the paper: their errors on its stream, and the cache of predictions."""

import io
import os
from pathlib import Path

import numpy as np
import pytest

from flows import flows
from reproduction import data
from reproduction.data import FileText, LabelledStream, Labels
from reproduction.models import (
    KINDS,
    LAST_LABEL,
    SETS,
    SLOTS,
    START,
    PaperFunction,
    PredictionCache,
)

DATA = os.environ.get("COVEY_DATA", "")
TRAINED = [PaperFunction(kind, kind, start=0, rows=100) for kind in KINDS]


def npy(array: np.ndarray) -> bytes:
    """Write an array alone, not as one of an archive."""
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def stream_of(sha256: str = "one") -> LabelledStream:
    labels = np.random.default_rng(3).random(200) < 0.5
    return data.parse_kdd(FileText(flows(labels.tolist()).encode(), sha256, "kdd.gz"))


def asked(answers: PredictionCache, start: int = 100) -> Labels:
    return answers.predict(TRAINED, start=start, slots=50)


@pytest.mark.parametrize("start", [0, 1, 100])
def test_the_last_label_is_the_label_of_the_previous_row(start: int) -> None:
    stream = stream_of()
    (said,) = PredictionCache(stream).predict([LAST_LABEL], start=start, slots=50).tolist()

    assert said == [int(stream.labels[row - 1]) if row else 0 for row in range(start, start + 50)]


def test_cached_predictions_are_not_computed_again(tmp_path: Path) -> None:
    made = asked(PredictionCache(stream_of(), results=tmp_path / "new"))
    kept = sorted((tmp_path / "new").iterdir())
    for path in kept:
        with np.load(path, allow_pickle=False) as file:
            turned = 1 - file["answers"]
        np.savez(path, answers=turned)

    assert len(kept) == len(TRAINED)
    assert np.array_equal(asked(PredictionCache(stream_of(), results=tmp_path / "new")), 1 - made)


@pytest.mark.skipif(
    not (Path(DATA) / data.KDD.file).is_file(),
    reason="COVEY_DATA names no folder with the KDD Cup 1999 data",
)
def test_on_the_paper_s_stream_every_error_is_within_half_a_point_of_the_printed() -> None:
    answers = PredictionCache(data.load_kdd(Path(DATA)))
    errors = {
        name: answers.error_rates(functions, start=START, slots=SLOTS)
        for name, functions in SETS.items()
    }

    assert errors["S1"] == pytest.approx([47, 3, 53, 4, 47, 47, 47, 47], abs=0.5)
    assert errors["S2"] == pytest.approx([47, 50, 53, 50, 47, 47, 47, 47], abs=0.5)
