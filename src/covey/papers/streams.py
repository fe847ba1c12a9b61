"""Real streams as arrays: labels of all rows, and the features of those that are asked for.

Rows are counted from 0. The text stays packed together as it was read; a stretch of it becomes
numbers when somebody wants them.
"""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.errors import DataError
from covey.papers import files, scikit
from covey.papers.files import Fetch, Source, Text
from covey.papers.scikit import Floats, Labels, Rows

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


class Stream:
    """A labelled stream; `labels` are 0 or 1, and `sha256` is that of its text."""

    def __init__(
        self, text: Text, labels: Labels, *, starts: npt.NDArray[np.int64], names: Iterable[str]
    ) -> None:
        self.sha256 = text.sha256
        self.file = text.name
        self.labels = labels
        self.names = tuple(names)
        self._content = text.content
        self._starts = starts  # of each row in the text, and of what follows the last

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, start: int, slots: int) -> Rows:
        """Return the features of `slots` rows; raises `DataError` for what is not there."""
        words = [name for name in self.names if name in KDD_WORDS]
        numbers = [name for name in self.names if name not in words]
        return Rows(
            self._columns(numbers, start, slots, np.dtype(np.float64)),
            self._columns(words, start, slots, np.dtype("U16")),
        )

    def column(self, name: str, start: int, slots: int) -> Floats:
        """Return the numbers of one column in `slots` rows."""
        return self._columns([name], start, slots, np.dtype(np.float64))[:, 0]

    def labels_of(self, start: int, slots: int) -> Labels:
        """Return the labels of `slots` rows; raises `DataError` for what is not there."""
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
                f"rows {start:,} to {start + slots - 1:,} are wanted, but {self.file} holds rows "
                f"0 to {len(self) - 1:,}"
            )


def kdd(
    path: Path | None = None,
    *,
    results: Path | None = None,
    is_any_file: bool = False,
    fetch: Fetch | None = scikit.fetch_kdd,
) -> Stream:
    """Return the 10 % file of KDD Cup 1999; label 1 is an attack."""
    return kdd_from(
        files.text_of(files.KDD, path, results=results, is_any_file=is_any_file, fetch=fetch)
    )


def kdd_from(text: Text) -> Stream:
    """Return the stream of a text in the form of that file."""
    content, starts = _lines(text, files.KDD)
    return Stream(text, _attacks(content, starts, text), starts=starts, names=KDD_NAMES)


def electricity(path: Path | None = None, *, is_any_file: bool = False) -> Stream:
    """Return the Electricity stream; label 1 is as the file has it."""
    return electricity_from(files.text_of(files.ELECTRICITY, path, is_any_file=is_any_file))


def electricity_from(text: Text) -> Stream:
    """Return the stream of a text in the form of that file."""
    _, starts = _lines(text, files.ELECTRICITY)
    rows = text.content[starts[0] :]
    last = [len(ELECTRICITY_NAMES)]
    where = f"{text.name}, below its header"
    labels = _table(rows, last, np.dtype(np.float64), where=where)[:, 0]
    for row in np.flatnonzero((labels != 0) & (labels != 1))[:1]:
        raise DataError(f"{text.name}, row {row}: the label is {labels[row]:g}; it must be 0 or 1")
    return Stream(text, labels.astype(np.int8), starts=starts, names=ELECTRICITY_NAMES)


def _lines(text: Text, source: Source) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
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


def _attacks(content: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], text: Text) -> Labels:
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
