"""Logs that are read: CSV and Parquet files, data frames, Arrow streams, mappings of columns."""

import contextlib
import csv
import gzip
import importlib
import io
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
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
_CHUNK_BYTES, _FEWEST_ROWS = 1 << 24, 256  # of a chunk of a Parquet log with wide rows
_BLOCK_BYTES = 1 << 20  # of a CSV log, at once
_SMALL_BYTES = 1 << 20  # of a CSV log that is read before pyarrow is imported
_SAMPLE_ROWS = 512  # that tell whether values of a column recur


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
    return open_log(path, []).header()


SEPARATORS = ",;\t|"
_UNREADABLE = (OSError, EOFError, zlib.error)


class CsvLog:
    """A CSV log with a header; columns are separated by a comma, semicolon, tab or bar."""

    is_typed = False  # numbers are text
    rows_total: int | None = None  # unknown before the end

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self._path = path
        self._wanted = wanted
        self._bytes = max(1, path.stat().st_size)
        self._raw: io.BufferedReader | None = None
        self._separator = ","

    def share_read(self) -> float:
        if self._raw is None:
            return 0.0
        return 1.0 if self._raw.closed else self._raw.tell() / self._bytes

    def header(self) -> list[str]:
        with contextlib.closing(self._rows()) as rows:
            return next(rows, [])

    def chunks(self) -> Generator[Columns, None, None]:
        header = self.header()
        check_columns(self._wanted, header, self._path.name)
        read = 0
        if self._bytes > _SMALL_BYTES and len(header) > 1 and self._wanted:
            # What pyarrow refuses is read again, for a sentence about the row.
            with contextlib.suppress(ImportError, *_UNREADABLE, ValueError, LookupError):
                for columns in self._by_arrow(header):
                    yield columns
                    read += len(columns[self._wanted[0]])
                return
        yield from self._by_row(len(header), read)

    def _by_arrow(self, header: list[str]) -> Generator[Columns, None, None]:
        arrow, reading = map(importlib.import_module, ("pyarrow", "pyarrow.csv"))
        names = [*self._wanted]
        parse = reading.ParseOptions(delimiter=self._separator, newlines_in_values=True)
        convert = reading.ConvertOptions(
            column_types=dict.fromkeys(names, arrow.string()), include_columns=names
        )

        def batches() -> Iterator[Any]:
            # Each block is in memory: a reader of a Python file needs a thread, which may wait for
            # the interpreter's lock.
            for number, block in enumerate(_blocks(self._unpacked(raw), self._separator)):
                read = reading.ReadOptions(
                    use_threads=False,
                    block_size=len(block) + 1,
                    column_names=header,
                    skip_rows=int(number == 0),
                )
                source = arrow.BufferReader(block)
                yield from reading.read_csv(source, read, parse, convert).to_batches()

        with self._path.open("rb") as self._raw:
            raw = self._raw
            for table in _cut(batches(), arrow.Table.from_batches):
                yield {name: _text(table.column(name).combine_chunks()) for name in names}

    def _by_row(self, width: int, read: int) -> Generator[Columns, None, None]:
        with contextlib.closing(self._rows()) as rows:
            header = next(rows, [])
            filled = islice(_without_blank_end(rows), read, None)
            slot = read + 1
            while chunk := list(islice(filled, ROWS_PER_CHUNK)):
                _check_widths(chunk, width, slot)
                columns = list(zip(*chunk, strict=True))
                yield {name: columns[header.index(name)] for name in self._wanted}
                slot += len(chunk)

    def _unpacked(self, raw: io.BufferedReader) -> Any:
        return gzip.GzipFile(fileobj=raw) if self._path.suffix == ".gz" else raw

    def _rows(self) -> Generator[list[str], None, None]:
        try:
            with self._path.open("rb") as self._raw:
                plain = self._unpacked(self._raw)
                text = io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")
                first = text.readline()
                self._separator = max(SEPARATORS, key=first.count)  # a comma if there is none
                rows = csv.reader(chain([first], text), strict=True, delimiter=self._separator)
                yield from rows if first else ()
        except csv.Error as error:
            where = f"{self._path.name}, line {rows.line_num}"
            raise DataError(f"{where}: invalid CSV ({error})") from None
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            usual = "utf-16" if byte in (0xFE, 0xFF) else "latin1"
            raise DataError(
                f"{self._path.name} cannot be read as CSV: it is not UTF-8, it has a byte "
                f"{byte:#x}; save it as UTF-8, for example by `iconv -f {usual} -t utf-8`"
            ) from None
        except _UNREADABLE as error:
            raise DataError(f"{self._path.name} cannot be read as CSV: {error}") from None


def _blocks(file: Any, separator: str) -> Iterator[bytes]:
    """Yield whole lines of a CSV file, without the last end of a line.

    Raises `ValueError` for what pyarrow reads, but should not: blank lines before the end, text
    beside a quoted field, and a quote without an end.
    """
    end = re.escape(separator).encode() + rb"\r\n"
    stray = re.compile(rb'[^%b]"[^%b"]' % (end, end))
    new = left = b"\n" + file.read(_BLOCK_BYTES).removeprefix(b"\xef\xbb\xbf")
    while new or left:
        lines = left[: _end_of_line(left)] if new else left
        body = lines.rstrip(b"\r\n")  # the file may end with blank lines
        left = left[len(body) :]
        body = body[2 if body.startswith(b"\r\n") else 1 :]
        if body:
            if body[:1] in b"\r\n" or any(blank in body for blank in _BLANK):
                raise ValueError("a line is blank")
            quotes = body.count(b'"')
            if quotes % 2 or (quotes and stray.search(body.replace(b'""', b""))):
                raise ValueError("a quoted field does not end, or text stands beside it")
            yield body
        if not new:
            return
        if len(left) > _MOST_BLOCKS * _BLOCK_BYTES:
            raise ValueError("a line is too long")
        new = file.read(_BLOCK_BYTES)
        left += new


_BLANK = (b"\n\n", b"\n\r", b"\r\r")
_MOST_BLOCKS = 16  # of one line


def _end_of_line(text: bytes) -> int:
    """Return where the last line ends that ends outside of quotes."""
    place = text.rfind(b"\n")
    while place >= 0 and text.count(b'"', 0, place) % 2:
        place = text.rfind(b"\n", 0, place)
    return place + 1


def _cut(batches: Iterable[Any], table_of: Callable[[list[Any]], Any]) -> Iterator[Any]:
    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        rows = sum(part.num_rows for part in held)
        while rows >= ROWS_PER_CHUNK:
            table = table_of(held)
            yield table.slice(0, ROWS_PER_CHUNK)
            held = table.slice(ROWS_PER_CHUNK).to_batches()
            rows -= ROWS_PER_CHUNK
    if any(part.num_rows for part in held):
        yield table_of(held)


def _text(column: Any) -> Column:
    sample = column.slice(0, _SAMPLE_ROWS)
    if 2 * len(sample.unique()) > len(sample):
        return cast("Column", column.to_pylist())
    return _coded(column.dictionary_encode())


class _Counted:
    """A log whose rows are counted before they are read."""

    is_typed = True
    rows_total: int | None
    _read = 0

    def share_read(self) -> float:
        return self._read / max(1, self.rows_total or 1)


class ParquetLog(_Counted):
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
        return list(self._file.schema_arrow.names)

    def chunks(self) -> Generator[Columns, None, None]:
        """Yield the wanted columns as arrays or lists of text, some rows at a time."""
        import pyarrow as arrow

        try:
            # Threads take more time in all than they save: several processes may read the file.
            batches = self._file.iter_batches(
                self._rows_at_once(), columns=self._wanted, use_threads=False
            )
            for batch in batches:
                self._read += batch.num_rows
                yield {name: plain(batch.column(name), name) for name in self._wanted}
        except (OSError, arrow.ArrowException) as error:
            raise _unreadable(self._path, error) from None

    def _rows_at_once(self) -> int:
        """Return the rows of a chunk, fewer of wide rows: memory does not grow with the width."""
        if not self.rows_total:
            return ROWS_PER_CHUNK
        group = self._file.metadata.row_group(0)
        columns = (group.column(k) for k in range(group.num_columns))
        sizes = [
            column.total_uncompressed_size
            for column in columns
            if column.path_in_schema.partition(".")[0] in self._wanted
        ]
        width: int = max(1, sum(sizes) // max(1, group.num_rows))
        return max(_FEWEST_ROWS, min(ROWS_PER_CHUNK, _CHUNK_BYTES // width))


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
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return [value for part in parts for value in part]


def _array(values: Any, name: str) -> Any:
    if isinstance(values, CodedColumn):
        return values
    try:
        column = np.asarray(values)
    except (TypeError, ValueError):
        column = np.empty(())
        if all(value is None or isinstance(value, list | tuple | np.ndarray) for value in values):
            return [() if value is None else value for value in values]  # of several lengths
    if column.ndim != 1 and not (column.ndim == 2 and column.dtype.kind in "biuf"):
        raise DataError(
            f"column {name!r} must have one value per row, or as many numbers in each; pass a list "
            "or an array"
        )
    return column if column.dtype.kind in "biufmMU" else column.tolist()


def check_flat(column: Column, name: str) -> None:
    """Raise `DataError` for a column of vectors that is used as one of single values."""
    first = column[0] if len(column) else None
    if isinstance(first, np.ndarray | list | tuple):
        raise DataError(
            f"column {name!r} has a list in each row; only contexts can be vectors, written as "
            f"{{ vector = {name!r}, size = {len(first)} }}"
        )


def _unreadable(path: Path, error: Exception) -> DataError:
    first_line = str(error).partition("\n")[0]
    return DataError(f"{path.name} cannot be read as Parquet: {first_line}")


def plain(column: Any, name: str) -> Column:
    import pyarrow as arrow

    kind = column.type
    if arrow.types.is_dictionary(kind):
        if _is_text(kind.value_type):
            return _coded(column)
        column, kind = column.dictionary_decode(), kind.value_type
    if arrow.types.is_string_view(kind):
        column, kind = column.cast(arrow.string()), arrow.string()
    is_list = (arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list)
    if any(is_it(kind) for is_it in is_list):
        return _lists(column, name)
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


def _lists(column: Any, name: str) -> Column:
    """Return an Arrow column of lists as a row of numbers each; arrays if they differ in length."""
    import pyarrow as arrow
    from pyarrow import compute

    if not arrow.types.is_primitive(column.type.value_type):
        raise DataError(f"column {name!r} is of type {column.type}; its lists must hold numbers")
    numbers = column.flatten().to_numpy(zero_copy_only=False)
    lengths = compute.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    if len(lengths) and (lengths == lengths[0]).all():
        return cast("Column", numbers.reshape(len(lengths), -1))
    return np.split(numbers, np.cumsum(lengths)[:-1]) if len(lengths) else []


def _is_text(kind: Any) -> bool:
    import pyarrow as arrow

    types = arrow.types
    kinds = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_it(kind) for is_it in kinds)


def _coded(column: Any) -> CodedColumn:
    # Not by `to_numpy`, which imports pandas where it is installed: that takes longer than a log.
    codes = column.indices.cast("int64")
    if codes.null_count:
        codes = codes.fill_null(-1)
    return CodedColumn(column.dictionary.to_pylist(), np.from_dlpack(codes))


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
