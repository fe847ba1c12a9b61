"""The files that experiments were made with: found, checked and unpacked, or refused.

A file is taken if its own sha256 is the known one, or that of the text within: packed otherwise,
it is the same stream.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from covey.errors import DataError
from covey.files import replace

FOLDER = "COVEY_DATA"
Fetch = Callable[[], bytes]


class Source(NamedTuple):
    """A file as it is known: its name, what it must be, and how to come by it."""

    title: str
    file: str
    sha256: str  # of the packed file
    text_sha256: str  # of what is in it
    rows: int  # without the header
    fields: int
    has_header: bool
    how: str


class Text(NamedTuple):
    """The text of a file, whole, its lines ending in a line feed."""

    content: bytes
    sha256: str
    name: str


KDD = Source(
    title="the 10 % file of KDD Cup 1999",
    file="kddcup.data_10_percent.gz",
    sha256="8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
    text_sha256="f8c8267ebcd9c0ed1fd7d6277fe5bfff8732e9b7db8e61b873542b2a534b6f9a",
    rows=494_021,
    fields=42,
    has_header=False,
    how="with scikit-learn and internet it is fetched by itself",
)
ELECTRICITY = Source(
    title="the Electricity (Elec2) stream",
    file="elec.csv.gz",
    sha256="e11216766cd120c80030da83347d3b1d2f6d8582502b6dbc67a7fa0866df0e2f",
    text_sha256="ebdfe5480ae25a43a7d054286135e3a9484697a2850d5158a333b1578c28bb97",
    rows=45_312,
    fields=7,
    has_header=True,
    how="its columns are feat_1 to feat_6 and target",
)


def text_of(
    source: Source,
    path: Path | None = None,
    *,
    results: Path | None = None,
    is_any_file: bool = False,
    fetch: Fetch | None = None,
) -> Text:
    """Return the text of `source`: from `path`, from COVEY_DATA, from `results`, or fetched.

    What is fetched is kept in `results`. Raises `DataError` with a sentence for a file that is
    missing, damaged or another one; `is_any_file` lets another one pass.
    """
    found = located(source, path, results=results)
    if found is not None:
        return _checked(source, found, is_any_file=is_any_file)
    text = _fetched(source, fetch)
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        replace(results / source.file, gzip.compress(text.content, mtime=0))
    return text


def located(
    source: Source,
    path: Path | None = None,
    *,
    results: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Path | None:
    """Return where the file of `source` lies, if anywhere; a given `path` must hold it."""
    if path is not None:
        given = path / source.file if path.is_dir() else path
        if not given.is_file():
            raise DataError(f"there is no file at {given}; {_advice(source)}")
        return given
    named = environment.get(FOLDER)
    folders = [Path(named)] if named else []
    folders += [] if results is None else [results]
    return next(
        (folder / source.file for folder in folders if (folder / source.file).is_file()), None
    )


def _fetched(source: Source, fetch: Fetch | None) -> Text:
    try:
        content = None if fetch is None else fetch()
    except OSError:
        content = None
    if content is None:
        raise DataError(f"{source.title} is not here; {_advice(source)}")
    text = _text(content, name=source.file)
    if text.sha256 != source.text_sha256:
        raise DataError(f"what was fetched is not {source.title}; {_advice(source)}")
    return text


def _checked(source: Source, path: Path, *, is_any_file: bool) -> Text:
    packed = _read(path)
    text = _text(_unpacked(packed, path, source), name=path.name)
    is_known = source.sha256 == _sha256(packed) or source.text_sha256 == text.sha256
    if is_known or is_any_file:
        return text
    rows = text.content.count(b"\n") - source.has_header
    fields = 1 + text.content.partition(b"\n")[0].count(b",")
    is_alike = (rows, fields) == (source.rows, source.fields)
    here, there = f"{rows:,} rows of {fields} fields", f"{source.rows:,} of {source.fields}"
    shape = "" if is_alike else f"it holds {here}, not {there}, and "
    raise DataError(
        f"{path} is not the file that the figures were made with: {shape}its sha256 begins with "
        f"{_sha256(packed)[:8]}, not {source.sha256[:8]}; give {source.title}, or say --any-file "
        "to go on with this one"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _unpacked(packed: bytes, path: Path, source: Source) -> bytes:
    if not packed.startswith(b"\x1f\x8b"):
        if path.suffix == ".gz":
            raise DataError(f"{path} is damaged: it is no gzip file; {_advice(source)}")
        return packed
    try:
        return gzip.decompress(packed)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}; {_advice(source)}") from None


def _text(content: bytes, *, name: str) -> Text:
    sha256 = _sha256(content)
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n")
    if content and not content.endswith(b"\n"):
        content += b"\n"
    return Text(content, sha256, name)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _advice(source: Source) -> str:
    return (
        f"put {source.file} into a folder and name that in {FOLDER}, or give its path; {source.how}"
    )
