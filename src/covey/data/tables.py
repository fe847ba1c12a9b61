"""Logs that are read: CSV and Parquet files, data frames, Arrow streams, mappings of columns."""

import contextlib
import csv
import gzip
import io
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from covey import kernel, toml
from covey.data.logs import CodedColumn, Column, Columns, arrow_module, parquet_module
from covey.errors import DataError

# Progress is said after each chunk: of the plain kernel's, too, every few seconds.
ROWS_PER_CHUNK = 65_536 if kernel.is_compiled() else 4_096
_READ_BYTES = 1 << 18  # of a column of a Parquet log, at once


def open_log(path: Path, wanted: Sequence[str]) -> "CsvLog | ParquetLog":
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


def header(path: Path) -> list[str]:
    """Return the names of the columns of a log."""
    reader = open_log(path, [])
    return reader.header()


SEPARATORS = ",;\t|"


class CsvLog:
    """A CSV log with a header; columns are separated by a comma, semicolon, tab or bar."""

    is_typed = False  # numbers are text
    rows_total: int | None = None  # unknown before the end

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self._path = path
        self._wanted = wanted
        self._bytes = max(1, path.stat().st_size)
        self._raw: io.BufferedReader | None = None

    def share_read(self) -> float:
        if self._raw is None:
            return 0.0
        return 1.0 if self._raw.closed else self._raw.tell() / self._bytes

    def header(self) -> list[str]:
        """Return the names of the columns."""
        with contextlib.closing(self._rows()) as rows:
            return next(rows, [])

    def chunks(self) -> Generator[Columns, None, None]:
        """Yield the wanted columns as lists of text, `ROWS_PER_CHUNK` rows at a time."""
        slot = 1
        with contextlib.closing(self._rows()) as rows:
            header = next(rows, [])
            check_columns(self._wanted, header, self._path.name)
            filled = _without_blank_end(rows)
            while chunk := list(islice(filled, ROWS_PER_CHUNK)):
                _check_widths(chunk, len(header), slot)
                columns = list(zip(*chunk, strict=True))
                yield {name: columns[header.index(name)] for name in self._wanted}
                slot += len(chunk)

    def _rows(self) -> Generator[list[str], None, None]:
        """Yield the header and the rows as lists of text."""
        try:
            with self._path.open("rb") as self._raw:
                is_packed = self._path.suffix == ".gz"
                plain = gzip.GzipFile(fileobj=self._raw) if is_packed else self._raw
                text = io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")
                first = text.readline()
                separator = max(SEPARATORS, key=first.count)  # a comma if there is none
                rows = csv.reader(chain([first], text), strict=True, delimiter=separator)
                yield from rows if first else ()
        except csv.Error as error:
            where = f"{self._path.name}, line {rows.line_num}"
            raise DataError(f"{where}: invalid CSV ({error})") from None
        except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self._path.name} cannot be read as CSV: {error}") from None


class _Counted:
    """A log whose rows are counted before they are read."""

    is_typed = True
    rows_total: int | None
    _read = 0

    def share_read(self) -> float:
        return self._read / max(1, self.rows_total or 1)


class ParquetLog(_Counted):
    """A Parquet log."""

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        parquet = parquet_module()
        try:
            # Else Arrow keeps what it has read: memory would grow with the rows.
            self._file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BYTES)
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from None
        self._path = path
        self._wanted = list(wanted)
        check_columns(wanted, self._file.schema_arrow.names, path.name)
        self.rows_total = self._file.metadata.num_rows

    def header(self) -> list[str]:
        """Return the names of the columns."""
        return list(self._file.schema_arrow.names)

    def chunks(self) -> Generator[Columns, None, None]:
        """Yield the wanted columns as arrays or lists of text, some rows at a time."""
        import pyarrow as arrow

        try:
            # Threads take more time in all than they save: several processes may read the file.
            batches = self._file.iter_batches(
                ROWS_PER_CHUNK, columns=self._wanted, use_threads=False
            )
            for batch in batches:
                self._read += batch.num_rows
                yield {name: plain(batch.column(name), name) for name in self._wanted}
        except (OSError, arrow.ArrowException) as error:
            raise _unreadable(self._path, error) from None


def open_table(data: Any, wanted: Sequence[str]) -> "Reader":
    """Return a reader of the `wanted` columns of a path, a frame or a mapping.

    Frames are those that hand out an Arrow stream: pandas, polars, pyarrow, DuckDB and others.
    Raises `DataError` for anything else, and for a missing column.
    """
    if isinstance(data, str | Path):
        return open_log(Path(data), wanted)
    if hasattr(data, "collect") and not hasattr(data, "__arrow_c_stream__"):
        data = data.collect()  # a lazy frame
    if isinstance(data, Mapping):
        return MappingLog(data, wanted)
    if hasattr(data, "__arrow_c_stream__"):
        return MappingLog(_columns_of(data, wanted), wanted)
    raise DataError(
        f"data is a {type(data).__name__}; pass the path of a log, a data frame, a pyarrow table, "
        "or a dict of columns"
    )


def _columns_of(frame: Any, wanted: Sequence[str]) -> Columns:
    """Return the wanted columns of a table that hands out an Arrow stream."""
    arrow = arrow_module("pyarrow", what="Data frames")
    try:
        table = arrow.table(frame)
    except (arrow.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"the table cannot be read as Arrow: {error}") from None
    check_columns(wanted, table.column_names, "the table")
    return {name: plain(table.column(name).combine_chunks(), name) for name in wanted}


class MappingLog(_Counted):
    """A mapping of column names to sequences or arrays."""

    def __init__(self, columns: Mapping[str, Any], wanted: Sequence[str]) -> None:
        check_columns(wanted, list(columns), "the table")
        self._columns = {name: _array(columns[name], name) for name in wanted}
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            (first, rows), *others = lengths.items()
            name, other = next(pair for pair in others if pair[1] != rows)
            raise DataError(f"column {first!r} has {rows} rows, but {name!r} has {other}")
        self.rows_total = next(iter(lengths.values()), 0)

    def chunks(self) -> Generator[Columns, None, None]:
        """Yield the wanted columns, all rows at once: they are in memory already."""
        if self.rows_total:
            self._read = self.rows_total
            yield self._columns


Reader = CsvLog | ParquetLog | MappingLog


def joined(parts: Sequence[Column]) -> Column:
    """Return consecutive parts of a column as one."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return [value for part in parts for value in part]


def _array(values: Any, name: str) -> Any:
    """Return a column as an array of numbers, or as a list if it holds anything else."""
    if isinstance(values, CodedColumn):
        return values
    try:
        column = np.asarray(values)
    except (TypeError, ValueError):
        column = np.empty(())
    if column.ndim != 1:
        raise DataError(f"column {name!r} must have one value per row; pass a list or an array")
    return column if column.dtype.kind in "biufmMU" else column.tolist()


def _unreadable(path: Path, error: Exception) -> DataError:
    first_line = str(error).partition("\n")[0]
    return DataError(f"{path.name} cannot be read as Parquet: {first_line}")


def plain(column: Any, name: str) -> Column:
    """Return an Arrow column as an array of numbers or a list of text."""
    import pyarrow as arrow

    kind = column.type
    if arrow.types.is_dictionary(kind):
        if _is_text(kind.value_type):
            return _coded(column)
        column, kind = column.dictionary_decode(), kind.value_type
    if arrow.types.is_string_view(kind):
        column, kind = column.cast(arrow.string()), arrow.string()
    if arrow.types.is_boolean(kind):
        column = column.cast(arrow.int8())
    elif arrow.types.is_decimal(kind):
        column = column.cast(arrow.float64())
    elif arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        return _coded(column.dictionary_encode())
    elif not (arrow.types.is_primitive(kind) or arrow.types.is_null(kind)):
        raise DataError(f"column {name!r} is of type {kind}; it must hold numbers or text")
    if arrow.types.is_integer(column.type) and column.null_count:
        return cast("Column", column.to_pylist())
    return cast("Column", column.to_numpy(zero_copy_only=False))


def _is_text(kind: Any) -> bool:
    import pyarrow as arrow

    types = arrow.types
    kinds = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_it(kind) for is_it in kinds)


def _coded(column: Any) -> CodedColumn:
    """Return a dictionary of text as values and codes."""
    codes = column.indices.cast("int64").fill_null(-1)
    return CodedColumn(column.dictionary.to_pylist(), codes.to_numpy(zero_copy_only=False))


def check_columns(wanted: Sequence[str], header: Sequence[str], source: str) -> None:
    """Raise `DataError` for a column that is missing or not unique; `source` names the log."""
    for name in wanted:
        if name not in header:
            raise DataError(f"{source} has no column {name!r}{toml.nearest(name, header)}")
        if list(header).count(name) > 1:
            raise DataError(f"{source} has duplicate columns {name!r}; rename one")


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
