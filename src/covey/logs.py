"""Readers of prediction logs, in chunks.

A log is CSV (optionally gzipped) or Parquet, one row per slot; rows and slots start at 1.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from covey import fields
from covey.errors import DataError, MissingExtra

Column = np.ndarray | Sequence[Any]
Columns = dict[str, Column]

ROWS_PER_CHUNK = 65_536


class Reader(Protocol):
    """Reads the wanted columns of a log in chunks."""

    is_typed: bool  # False: numbers are text
    rows_total: int | None  # None: unknown before the end

    def chunks(self) -> Iterator[Columns]:
        """Yield the rows in order, `ROWS_PER_CHUNK` at a time."""

    def share_read(self) -> float:
        """Return the fraction of the log read so far."""


def open_log(path: Path, wanted: Sequence[str]) -> Reader:
    """Return a reader of the `wanted` columns of the log at `path`.

    Raises `DataError` if the file cannot be read or lacks a column.
    """
    if not path.is_file():
        raise DataError(f"log {path} does not exist")
    if path.suffix in (".parquet", ".pq"):
        return ParquetLog(path, wanted)
    if path.name.endswith((".csv", ".csv.gz")):
        return CsvLog(path, wanted)
    raise DataError(f"log {path.name} must be .csv, .csv.gz or .parquet; convert it")


class CsvLog:
    """A CSV log with a header."""

    is_typed = False
    rows_total: int | None = None

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self._path = path
        self._wanted = wanted
        self._bytes = max(1, path.stat().st_size)
        self._raw: io.BufferedReader | None = None

    def share_read(self) -> float:
        """Return the fraction of bytes read."""
        return 0.0 if self._raw is None or self._raw.closed else self._raw.tell() / self._bytes

    def chunks(self) -> Iterator[Columns]:
        """Yield the wanted columns as lists of text."""
        try:
            with self._path.open("rb") as self._raw:
                is_packed = self._path.suffix == ".gz"
                plain = gzip.GzipFile(fileobj=self._raw) if is_packed else self._raw
                text = io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")
                rows = csv.reader(text, strict=True)
                yield from self._rows(rows)
        except csv.Error as error:
            where = f"{self._path.name}, line {rows.line_num}"
            raise DataError(f"{where}: invalid CSV ({error})") from None
        except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self._path.name} cannot be read as CSV: {error}") from None

    def _rows(self, rows: Iterator[list[str]]) -> Iterator[Columns]:
        header = next(rows, [])
        _check_columns(self._wanted, header, self._path)
        places = [header.index(name) for name in self._wanted]
        filled = _without_blank_end(rows)
        slot = 1
        while chunk := list(islice(filled, ROWS_PER_CHUNK)):
            _check_widths(chunk, len(header), slot)
            columns = list(zip(*chunk, strict=True))
            yield {name: columns[place] for name, place in zip(self._wanted, places, strict=True)}
            slot += len(chunk)


class ParquetLog:
    """A Parquet log."""

    is_typed = True

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        parquet = parquet_module()
        try:
            self._file = parquet.ParquetFile(path)
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from None
        self._path = path
        self._wanted = list(wanted)
        _check_columns(wanted, self._file.schema_arrow.names, path)
        self.rows_total: int | None = self._file.metadata.num_rows
        self._read = 0

    def share_read(self) -> float:
        """Return the fraction of rows read."""
        return self._read / max(1, self.rows_total or 1)

    def chunks(self) -> Iterator[Columns]:
        """Yield the wanted columns as arrays of numbers or lists of text."""
        import pyarrow as arrow

        try:
            for batch in self._file.iter_batches(ROWS_PER_CHUNK, columns=self._wanted):
                self._read += batch.num_rows
                yield {name: _plain(batch.column(name), name) for name in self._wanted}
        except (OSError, arrow.ArrowException) as error:
            raise _unreadable(self._path, error) from None


def parquet_module() -> Any:
    """Return pyarrow's Parquet module; raise `MissingExtra` if it is not installed."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise MissingExtra(
            'Parquet files need pyarrow; install it with pip install "covey[parquet]"'
        ) from None
    return parquet


def _unreadable(path: Path, error: Exception) -> DataError:
    first_line = str(error).partition("\n")[0]
    return DataError(f"{path.name} cannot be read as Parquet: {first_line}")


def _plain(column: Any, name: str) -> Column:
    import pyarrow as arrow

    kind = column.type
    if arrow.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if arrow.types.is_boolean(kind):
        column = column.cast(arrow.int8())
    elif arrow.types.is_decimal(kind):
        column = column.cast(arrow.float64())
    elif arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        return cast("Column", column.to_pylist())
    elif not (arrow.types.is_primitive(kind) or arrow.types.is_null(kind)):
        raise DataError(f"column {name!r} is of type {kind}; it must hold numbers or text")
    if arrow.types.is_integer(column.type) and column.null_count:
        return cast("Column", column.to_pylist())
    return cast("Column", column.to_numpy(zero_copy_only=False))


def _check_columns(wanted: Sequence[str], header: Sequence[str], path: Path) -> None:
    for name in wanted:
        if name not in header:
            raise DataError(f"{path.name} has no column {name!r}{fields.nearest(name, header)}")
        if list(header).count(name) > 1:
            raise DataError(f"{path.name} has duplicate columns {name!r}; rename one")


def _without_blank_end(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    blank = 0
    for row in rows:
        if row:
            yield from ([] for _ in range(blank))
            blank = 0
            yield row
        else:
            blank += 1


def _check_widths(rows: list[list[str]], width: int, first_slot: int) -> None:
    for place, row in enumerate(rows):
        if len(row) != width:
            raise DataError(
                f"row {first_slot + place} has {len(row)} fields, but the header has {width}"
            )
