"""Data files: where they are searched, which are refused, and why."""

import gzip
import hashlib
from pathlib import Path

import pytest

from covey.errors import DataError
from reproduction.data import FOLDER, DataFile, text_of

CONTENT = b"a,b\n1,0\n2,1\n"
PACKED = gzip.compress(CONTENT, mtime=0)
SOURCE = DataFile(
    title="the little stream",
    file="little.csv.gz",
    sha256=hashlib.sha256(PACKED).hexdigest(),
    text_sha256=hashlib.sha256(CONTENT).hexdigest(),
    rows=2,
    fields=2,
    has_header=True,
    advice="ask for it",
)


@pytest.fixture(autouse=True)
def _no_folder_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)


def written(path: Path, content: bytes = PACKED) -> Path:
    path.write_bytes(content)
    return path


def sentence_of(path: Path | None, **options: bool) -> str:
    with pytest.raises(DataError) as caught:
        text_of(SOURCE, path, **options)
    return str(caught.value)


def test_the_known_file_is_unpacked(tmp_path: Path) -> None:
    text = text_of(SOURCE, written(tmp_path / "little.csv.gz"))

    assert (text.content, text.sha256) == (CONTENT, SOURCE.text_sha256)


@pytest.mark.parametrize(
    "content", [PACKED[:-9], PACKED[:20] + b"\x00" + PACKED[21:], b"", b"not packed"]
)
def test_a_damaged_file_is_refused_even_if_any_file_is_allowed(
    tmp_path: Path, content: bytes
) -> None:
    path = written(tmp_path / "little.csv.gz", content)

    assert "is damaged" in sentence_of(path)
    assert "is damaged" in sentence_of(path, is_any_file=True)


def test_another_file_is_refused_and_the_differences_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "little.csv.gz", gzip.compress(b"a,b\n1,0\n", mtime=0))

    sentence = sentence_of(path)
    assert "it holds 1 rows of 2 fields, not 2 of 2" in sentence
    assert f"not {SOURCE.sha256[:8]}" in sentence
    assert "--any-file" in sentence


def test_a_missing_file_gives_a_sentence_that_says_how_to_get_it() -> None:
    assert sentence_of(None) == (
        "the little stream was not found; put little.csv.gz into a folder and set COVEY_DATA to "
        "it, or give its path; ask for it"
    )
