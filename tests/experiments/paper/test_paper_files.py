"""Data files: where they are searched, which are refused, and why."""

import gzip
import hashlib
from pathlib import Path

import pytest

from covey.errors import DataError
from reproduction.data import FOLDER, DataFile, located, text_of

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


def test_a_path_may_be_the_file_or_its_folder(tmp_path: Path) -> None:
    path = written(tmp_path / "little.csv.gz")

    assert located(SOURCE, path) == located(SOURCE, tmp_path) == path


def test_without_a_path_the_folder_of_the_environment_comes_first(tmp_path: Path) -> None:
    named, results = tmp_path / "named", tmp_path / "results"
    for folder in (named, results):
        folder.mkdir()
        written(folder / "little.csv.gz")

    assert located(SOURCE, results=results, environment={FOLDER: str(named)}) == (
        named / "little.csv.gz"
    )
    assert located(SOURCE, results=results, environment={}) == results / "little.csv.gz"
    assert located(SOURCE, environment={FOLDER: str(tmp_path)}) is None


def test_the_known_file_is_unpacked(tmp_path: Path) -> None:
    text = text_of(SOURCE, written(tmp_path / "little.csv.gz"))

    assert (text.content, text.sha256) == (CONTENT, SOURCE.text_sha256)


@pytest.mark.parametrize(
    ("name", "content"),
    [("little.csv", CONTENT), ("tight.gz", gzip.compress(CONTENT, 1, mtime=7))],
)
def test_the_same_text_with_another_compression_is_accepted(
    tmp_path: Path, name: str, content: bytes
) -> None:
    assert text_of(SOURCE, written(tmp_path / name, content)).content == CONTENT


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


def test_another_file_is_accepted_if_any_file_is_allowed(tmp_path: Path) -> None:
    other = written(tmp_path / "other.gz", gzip.compress(b"a,b\r\n1,0", mtime=0))

    assert text_of(SOURCE, other, is_any_file=True).content == b"a,b\n1,0\n"


def test_a_missing_file_gives_a_sentence_that_says_how_to_get_it() -> None:
    assert sentence_of(None) == (
        "the little stream was not found; put little.csv.gz into a folder and set COVEY_DATA to "
        "it, or give its path; ask for it"
    )


def test_a_path_without_a_file_is_named(tmp_path: Path) -> None:
    assert sentence_of(tmp_path / "gone.gz").startswith(f"there is no file at {tmp_path}/gone.gz")


def test_a_fetched_file_is_kept_and_not_fetched_again(tmp_path: Path) -> None:
    fetched = text_of(SOURCE, results=tmp_path / "new", fetch=lambda: CONTENT)

    assert text_of(SOURCE, results=tmp_path / "new") == fetched


def test_without_internet_the_file_is_reported_as_missing() -> None:
    def fetch() -> bytes:
        raise TimeoutError

    with pytest.raises(DataError, match="was not found; put little.csv.gz"):
        text_of(SOURCE, fetch=fetch)


def test_a_wrong_fetched_file_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the fetched file is not the little stream"):
        text_of(SOURCE, results=tmp_path, fetch=lambda: b"x\n")

    assert list(tmp_path.iterdir()) == []
