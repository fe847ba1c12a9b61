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
    ALWAYS_0,
    ALWAYS_1,
    KINDS,
    LAST_LABEL,
    RANDOM,
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


ALONE = npy(np.zeros(50, np.int8))


def stream_of(sha256: str = "one") -> LabelledStream:
    labels = np.random.default_rng(3).random(200) < 0.5
    return data.parse_kdd(FileText(flows(labels.tolist()).encode(), sha256, "kdd.gz"))


def asked(answers: PredictionCache, start: int = 100) -> Labels:
    return answers.predict(TRAINED, start=start, slots=50)


def test_constant_functions_predict_their_constant() -> None:
    answers = PredictionCache(stream_of()).predict([ALWAYS_1, ALWAYS_0], start=100, slots=50)

    assert answers.dtype == np.int8
    assert answers.tolist() == [[1] * 50, [0] * 50]


@pytest.mark.parametrize("start", [0, 1, 100])
def test_the_last_label_is_the_label_of_the_previous_row(start: int) -> None:
    stream = stream_of()
    (said,) = PredictionCache(stream).predict([LAST_LABEL], start=start, slots=50).tolist()

    assert said == [int(stream.labels[row - 1]) if row else 0 for row in range(start, start + 50)]


def test_random_functions_are_independent_and_repeat_with_the_seed() -> None:
    def tosses(seed: int) -> Labels:
        return PredictionCache(stream_of(), seed=seed).predict(
            [RANDOM, ALWAYS_0, RANDOM], start=0, slots=200
        )

    first, _, second = tosses(1)
    assert np.array_equal(tosses(1)[[0, 2]], [first, second])
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, tosses(2)[0])
    assert 60 < first.sum() < 140


def test_trained_functions_are_accurate_on_a_learnable_stream() -> None:
    errors = PredictionCache(stream_of()).error_rates(TRAINED, start=100, slots=100)

    assert max(errors) < 20.0


def test_cached_predictions_are_not_computed_again(tmp_path: Path) -> None:
    made = asked(PredictionCache(stream_of(), results=tmp_path / "new"))
    kept = sorted((tmp_path / "new").iterdir())
    for path in kept:
        with np.load(path, allow_pickle=False) as file:
            turned = 1 - file["answers"]
        np.savez(path, answers=turned)

    assert len(kept) == len(TRAINED)
    assert np.array_equal(asked(PredictionCache(stream_of(), results=tmp_path / "new")), 1 - made)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a file", b"no archive", ALONE])
def test_damaged_cached_predictions_are_computed_again(tmp_path: Path, content: bytes) -> None:
    made = asked(PredictionCache(stream_of(), results=tmp_path))
    whole = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path in whole:
        path.write_bytes(content)

    assert np.array_equal(asked(PredictionCache(stream_of(), results=tmp_path)), made)
    assert all(path.read_bytes() != content for path in whole)


@pytest.mark.parametrize(
    "other",
    [np.zeros(49, np.int8), np.zeros((1, 50), np.int8), np.zeros(50), np.array([{}] * 50)],
    ids=["short", "flat", "floats", "pickled"],
)
def test_cached_predictions_of_another_shape_are_computed_again(
    tmp_path: Path, other: np.ndarray
) -> None:
    made = asked(PredictionCache(stream_of(), results=tmp_path))
    for path in list(tmp_path.iterdir()):
        np.savez(path, answers=other)

    assert np.array_equal(asked(PredictionCache(stream_of(), results=tmp_path)), made)


def test_another_stream_window_or_training_has_its_own_cache_file(tmp_path: Path) -> None:
    asked(PredictionCache(stream_of(), results=tmp_path))
    asked(PredictionCache(stream_of("two"), results=tmp_path))
    asked(PredictionCache(stream_of(), results=tmp_path), start=120)
    PredictionCache(stream_of(), results=tmp_path).predict(
        [function._replace(rows=90) for function in TRAINED], start=100, slots=50
    )

    assert len(list(tmp_path.iterdir())) == 4 * len(TRAINED)


def test_nothing_is_cached_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked(PredictionCache(stream_of()))

    assert list(tmp_path.iterdir()) == []


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
