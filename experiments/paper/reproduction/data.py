"""The data of the experiments: files, streams as arrays, and the numbers that the paper prints.

A data file is accepted if the sha256 of the file or of the text in it is the known one: a file that
is packed in another way is the same stream. Instances are counted from 0.
"""

import gzip
import hashlib
import io
import math
import os
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from covey.errors import DataError, MissingExtra, need_of
from covey.files import replace

Key = tuple[str, ...]
Data = TypeVar("Data")


Floats = npt.NDArray[np.float64]


Words = npt.NDArray[np.str_]


Labels = npt.NDArray[np.int8]


class Instances(NamedTuple):
    """Instances as functions see them: numbers, and words that are not numbers."""

    numbers: Floats  # row, column
    words: Words  # row, column


FOLDER = "COVEY_DATA"
Fetch = Callable[[], bytes]


class DataFile(NamedTuple):
    """A known file: its name, its checksums and its shape, and where to get it."""

    title: str
    file: str
    sha256: str  # of the packed file
    text_sha256: str  # of what is in it
    rows: int  # without the header
    fields: int
    has_header: bool
    advice: str


class FileText(NamedTuple):
    """The text of a file, whole, its lines ending in a line feed."""

    content: bytes
    sha256: str
    name: str


KDD = DataFile(
    title="the 10 % file of KDD Cup 1999",
    file="kddcup.data_10_percent.gz",
    sha256="8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
    text_sha256="f8c8267ebcd9c0ed1fd7d6277fe5bfff8732e9b7db8e61b873542b2a534b6f9a",
    rows=494_021,
    fields=42,
    has_header=False,
    advice="with scikit-learn and internet access it is downloaded",
)
ELECTRICITY = DataFile(
    title="the Electricity (Elec2) stream",
    file="elec.csv.gz",
    sha256="e11216766cd120c80030da83347d3b1d2f6d8582502b6dbc67a7fa0866df0e2f",
    text_sha256="ebdfe5480ae25a43a7d054286135e3a9484697a2850d5158a333b1578c28bb97",
    rows=45_312,
    fields=7,
    has_header=True,
    advice="its columns are feat_1 to feat_6 and target",
)


def text_of(
    source: DataFile,
    path: Path | None = None,
    *,
    results: Path | None = None,
    is_any_file: bool = False,
    fetch: Fetch | None = None,
) -> FileText:
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
    source: DataFile,
    path: Path | None = None,
    *,
    results: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Path | None:
    """Return the path of the file of `source`, if found; a given `path` must hold it."""
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


def _fetched(source: DataFile, fetch: Fetch | None) -> FileText:
    try:
        content = None if fetch is None else fetch()
    except OSError:
        content = None
    if content is None:
        raise DataError(f"{source.title} was not found; {_advice(source)}")
    text = _text(content, name=source.file)
    if text.sha256 != source.text_sha256:
        raise DataError(f"the fetched file is not {source.title}; {_advice(source)}")
    return text


def _checked(source: DataFile, path: Path, *, is_any_file: bool) -> FileText:
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
        f"{_sha256(packed)[:8]}, not {source.sha256[:8]}; give {source.title}, or use --any-file "
        "to accept this one"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _unpacked(packed: bytes, path: Path, source: DataFile) -> bytes:
    if not packed.startswith(b"\x1f\x8b"):
        if path.suffix == ".gz":
            raise DataError(f"{path} is damaged: it is not a gzip file; {_advice(source)}")
        return packed
    try:
        return gzip.decompress(packed)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}; {_advice(source)}") from None


def _text(content: bytes, *, name: str) -> FileText:
    sha256 = _sha256(content)
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n")
    if content and not content.endswith(b"\n"):
        content += b"\n"
    return FileText(content, sha256, name)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _advice(source: DataFile) -> str:
    return (
        f"put {source.file} into a folder and set {FOLDER} to it, or give its path; {source.advice}"
    )


def sklearn_version() -> str:
    """Return which release of scikit-learn is installed, or say which extra brings it."""
    try:
        import sklearn
    except ModuleNotFoundError:
        raise MissingExtra(
            need_of("the paper's functions", "scikit-learn", extra="sklearn")
        ) from None
    return str(sklearn.__version__)


def fetch_kdd() -> bytes:
    """Return the text of the 10 % file of KDD Cup 1999, fetched from the internet.

    scikit-learn keeps what it fetches as a pickle, so it is given a folder that is gone afterwards.
    Raises `OSError` where there is no internet.
    """
    sklearn_version()
    from sklearn.datasets import fetch_kddcup99

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fetch_kddcup99(data_home=folder, percent10=True, n_retries=1, delay=0.1)
    return text_from(found.data, found.target)


def text_from(data: npt.NDArray[Any], labels: npt.NDArray[Any]) -> bytes:
    """Return the text that scikit-learn read such a table from: rates have two decimals."""
    columns = [_written(column) for column in (*data.T, labels)]
    return b"".join(b",".join(row) + b"\n" for row in zip(*columns, strict=True))


def _written(column: Iterable[Any]) -> list[bytes]:
    return [
        value
        if isinstance(value, bytes)
        else (b"%.2f" if isinstance(value, float) else b"%d") % value
        for value in column
    ]


_KDD_HEADER = (
    "duration protocol_type service flag src_bytes dst_bytes land wrong_fragment urgent hot "
    "num_failed_logins logged_in num_compromised root_shell su_attempted num_root "
    "num_file_creations num_shells num_access_files num_outbound_cmds is_host_login "
    "is_guest_login count srv_count serror_rate srv_serror_rate rerror_rate srv_rerror_rate "
    "same_srv_rate diff_srv_rate srv_diff_host_rate dst_host_count dst_host_srv_count "
    "dst_host_same_srv_rate dst_host_diff_srv_rate dst_host_same_src_port_rate "
    "dst_host_srv_diff_host_rate dst_host_serror_rate dst_host_srv_serror_rate "
    "dst_host_rerror_rate dst_host_srv_rerror_rate"
)
KDD_NAMES = tuple(_KDD_HEADER.split())
KDD_WORDS = ("protocol_type", "service", "flag")
# The half-hour of the day comes first; what the others are, the file does not say.
ELECTRICITY_NAMES = ("hour", "feat_2", "feat_3", "feat_4", "feat_5", "feat_6")

_COMMA, _LINE_FEED, _STOP = b",\n."
_NORMAL = np.frombuffer(b",normal.", np.uint8)


class LabelledStream:
    """A labelled stream; `labels` are 0 or 1, and `sha256` is the checksum of its text."""

    def __init__(
        self, text: FileText, labels: Labels, *, starts: npt.NDArray[np.int64], names: Iterable[str]
    ) -> None:
        self.sha256 = text.sha256
        self.file = text.name
        self.labels = labels
        self.names = tuple(names)
        self._content = text.content
        self._starts = starts  # of each row in the text, and of what follows the last

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, start: int, slots: int) -> Instances:
        """Return the features of `slots` rows; raises `DataError` for rows that do not exist."""
        words = [name for name in self.names if name in KDD_WORDS]
        numbers = [name for name in self.names if name not in words]
        return Instances(
            self._columns(numbers, start, slots, np.dtype(np.float64)),
            self._columns(words, start, slots, np.dtype("U16")),
        )

    def column(self, name: str, start: int, slots: int) -> Floats:
        """Return the numbers of one column in `slots` rows."""
        return self._columns([name], start, slots, np.dtype(np.float64))[:, 0]

    def labels_of(self, start: int, slots: int) -> Labels:
        """Return the labels of `slots` rows; raises `DataError` for rows that do not exist."""
        self._check(start, slots)
        return self.labels[start : start + slots]

    def _columns(
        self, names: list[str], start: int, slots: int, kind: np.dtype
    ) -> npt.NDArray[Any]:
        self._check(start, slots)
        text = self._content[self._starts[start] : self._starts[start + slots]]
        places = [self.names.index(name) for name in names]
        if not places:
            return np.empty((slots, 0), kind)
        return _table(text, places, kind, where=f"{self.file}, from row {start} on")

    def _check(self, start: int, slots: int) -> None:
        if start < 0 or slots < 1 or start + slots > len(self):
            raise DataError(
                f"rows {start:,} to {start + slots - 1:,} were requested, but {self.file} has rows "
                f"0 to {len(self) - 1:,}"
            )


def load_kdd(
    path: Path | None = None,
    *,
    results: Path | None = None,
    is_any_file: bool = False,
    fetch: Fetch | None = fetch_kdd,
) -> LabelledStream:
    """Return the 10 % file of KDD Cup 1999; label 1 is an attack."""
    return parse_kdd(text_of(KDD, path, results=results, is_any_file=is_any_file, fetch=fetch))


def parse_kdd(text: FileText) -> LabelledStream:
    """Return the stream of a text in the form of that file."""
    content, starts = _lines(text, KDD)
    return LabelledStream(text, _attacks(content, starts, text), starts=starts, names=KDD_NAMES)


def load_electricity(path: Path | None = None, *, is_any_file: bool = False) -> LabelledStream:
    """Return the Electricity stream; label 1 is as the file has it."""
    return parse_electricity(text_of(ELECTRICITY, path, is_any_file=is_any_file))


def parse_electricity(text: FileText) -> LabelledStream:
    """Return the stream of a text in the form of that file."""
    _, starts = _lines(text, ELECTRICITY)
    rows = text.content[starts[0] :]
    last = [len(ELECTRICITY_NAMES)]
    where = f"{text.name}, below its header"
    labels = _table(rows, last, np.dtype(np.float64), where=where)[:, 0]
    for row in np.flatnonzero((labels != 0) & (labels != 1))[:1]:
        raise DataError(f"{text.name}, row {row}: the label is {labels[row]:g}; it must be 0 or 1")
    return LabelledStream(text, labels.astype(np.int8), starts=starts, names=ELECTRICITY_NAMES)


def _lines(text: FileText, source: DataFile) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the text as numbers, and where its rows start, every row of the right width."""
    content = np.frombuffer(text.content, np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(content == _LINE_FEED) + 1])
    if len(starts) < 2 + source.has_header:
        raise DataError(f"{text.name} holds no row")
    fields = 1 + np.diff(np.searchsorted(np.flatnonzero(content == _COMMA), starts))
    for line in np.flatnonzero(fields != source.fields)[:1]:
        raise DataError(
            f"{text.name}, line {line + 1} holds {fields[line]} fields; {source.title} has "
            f"{source.fields} in each"
        )
    return content, starts[1:] if source.has_header else starts


def _attacks(
    content: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], text: FileText
) -> Labels:
    ends = starts[1:] - 1
    for row in np.flatnonzero(content[ends - 1] != _STOP)[:1]:
        raise DataError(
            f"{text.name}, line {row + 1}: the label must end in a full stop, as 'normal.' does"
        )
    tails = content[ends[:, None] + np.arange(-len(_NORMAL), 0)]
    is_attack: Labels = (tails != _NORMAL).any(axis=1).astype(np.int8)
    return is_attack


def _table(text: bytes, places: list[int], kind: np.dtype, *, where: str) -> npt.NDArray[Any]:
    try:
        table = np.loadtxt(
            io.BytesIO(text), kind, delimiter=",", usecols=places, ndmin=2, comments=None
        )
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None
    if kind.kind == "f" and not np.isfinite(table).all():
        raise DataError(f"{where}: a number is not finite")
    return table


class PrintedNumber(NamedTuple):
    """A number of a table of the paper, and the line of the LaTeX source that holds it."""

    key: Key
    text: str
    line: int

    @property
    def table(self) -> str:
        """The name of its table."""
        return self.key[0]

    @property
    def value(self) -> float:
        """The number itself."""
        return _IRRATIONAL.get(self.text) or float(Fraction(self.text))

    @property
    def rounding(self) -> float:
        """Half a unit of its last decimal."""
        decimals = len(self.text.partition(".")[2])
        return 0.5 * 10.0**-decimals


_IRRATIONAL = {"(3+sqrt(17))/2": (3 + math.sqrt(17)) / 2, "2/p": 4 / (3 + math.sqrt(17))}


class PrintedRow(msgspec.Struct, forbid_unknown_fields=True):
    """A row of a printed table."""

    line: int
    key: str
    numbers: str


class PrintedTable(msgspec.Struct, forbid_unknown_fields=True):
    """A printed table."""

    name: str
    columns: list[str]
    rows: list[PrintedRow]


class _PrintedFile(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    table: list[PrintedTable]
    left_out: list[PrintedTable]


def read_data(name: str, kind: type[Data]) -> Data:
    """Return the content of a TOML file of this folder, checked against its type."""
    path = Path(__file__).with_name(name)
    try:
        return msgspec.toml.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: {error}") from None


def key_of(text: str) -> Key:
    """Return the key that is written with slashes."""
    return tuple(text.split("/"))


def printed_numbers(tables: Iterable[PrintedTable]) -> dict[Key, PrintedNumber]:
    """Return the numbers of these tables by their keys; raises `DataError` for a bad row."""
    numbers: dict[Key, PrintedNumber] = {}
    for table in tables:
        for row in table.rows:
            texts = row.numbers.split()
            if len(texts) != len(table.columns):
                raise DataError(
                    f"table {table.name}, row {row.key!r}: {len(texts)} numbers for "
                    f"{len(table.columns)} columns"
                )
            for column, text in zip(table.columns, texts, strict=True):
                key = key_of(f"{table.name}/{row.key}/{column}")
                if key in numbers:
                    raise DataError(f"table {table.name}: duplicate key {'/'.join(key)!r}")
                if text != "-":
                    numbers[key] = _checked_number(PrintedNumber(key, text, row.line))
    return numbers


def _checked_number(number: PrintedNumber) -> PrintedNumber:
    try:
        number.value  # noqa: B018 - it raises if the text is no number
    except (ValueError, ZeroDivisionError):
        raise DataError(f"{'/'.join(number.key)}: {number.text!r} is not a number") from None
    return number


_FILE = read_data("printed.toml", _PrintedFile)
TABLES = tuple(table.name for table in _FILE.table)
PRINTED = printed_numbers(_FILE.table)
LEFT_OUT = printed_numbers(_FILE.left_out)


def printed_figures() -> dict[Key, float]:
    """Return the printed numbers as floats."""
    return {key: number.value for key, number in PRINTED.items()}
