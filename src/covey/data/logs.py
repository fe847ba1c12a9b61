"""Logs of predictions and labels that are read, and traces of decisions that are written."""

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np

from covey import toml
from covey.errors import ConfigError, DataError, optional_module
from covey.types import MILLIONTHS, Array, Label


class EncodedLog(NamedTuple):
    """Rows of a log, encoded for the kernel."""

    contexts: memoryview  # coordinates, flat
    predictions: memoryview  # function, slot -> code
    labels: memoryview  # slot -> code, -1: none
    at: memoryview | None  # slot -> receiving learner
    delays: memoryview | None  # slot -> delay; -1 - delay for a hidden label
    shown: memoryview | None = None  # slot, learner -> 0 if the learner never sees the label
    gains: memoryview | None = None  # function, slot -> gain, if answers can be partly correct
    busy: memoryview | None = None  # slot, learner -> delay of its answers to peers
    costs: memoryview | None = None  # column, slot -> variable cost in millionths


Column = np.ndarray | Sequence[Any]
Columns = dict[str, Column]

ROWS_PER_CHUNK = 65_536


def open_log(path: Path, wanted: Sequence[str]) -> "Reader":
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

    is_typed = False  # numbers are text
    rows_total: int | None = None  # unknown before the end

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self._path = path
        self._wanted = wanted
        self._bytes = max(1, path.stat().st_size)
        self._raw: io.BufferedReader | None = None

    def share_read(self) -> float:
        return 0.0 if self._raw is None or self._raw.closed else self._raw.tell() / self._bytes

    def chunks(self) -> Iterator[Columns]:
        """Yield the wanted columns as lists of text, `ROWS_PER_CHUNK` rows at a time."""
        try:
            with self._path.open("rb") as self._raw:
                is_packed = self._path.suffix == ".gz"
                plain = gzip.GzipFile(fileobj=self._raw) if is_packed else self._raw
                text = io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")
                rows = csv.reader(text, strict=True)
                yield from self._chunks(rows)
        except csv.Error as error:
            where = f"{self._path.name}, line {rows.line_num}"
            raise DataError(f"{where}: invalid CSV ({error})") from None
        except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self._path.name} cannot be read as CSV: {error}") from None

    def _chunks(self, rows: Iterator[list[str]]) -> Iterator[Columns]:
        header = next(rows, [])
        _check_columns(self._wanted, header, self._path)
        filled = _without_blank_end(rows)
        slot = 1
        while chunk := list(islice(filled, ROWS_PER_CHUNK)):
            _check_widths(chunk, len(header), slot)
            columns = list(zip(*chunk, strict=True))
            yield {name: columns[header.index(name)] for name in self._wanted}
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
        return self._read / max(1, self.rows_total or 1)

    def chunks(self) -> Iterator[Columns]:
        """Yield the wanted columns as arrays or lists of text, `ROWS_PER_CHUNK` rows at a time."""
        import pyarrow as arrow

        try:
            for batch in self._file.iter_batches(ROWS_PER_CHUNK, columns=self._wanted):
                self._read += batch.num_rows
                yield {name: _plain(batch.column(name), name) for name in self._wanted}
        except (OSError, arrow.ArrowException) as error:
            raise _unreadable(self._path, error) from None


Reader = CsvLog | ParquetLog


def parquet_module() -> Any:
    """Return pyarrow's Parquet module; raise `MissingExtra` if it is not installed."""
    missing = 'Parquet files need pyarrow; install it with pip install "covey[parquet]"'
    return optional_module("pyarrow.parquet", missing=missing)


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
            raise DataError(f"{path.name} has no column {name!r}{toml.nearest(name, header)}")
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


class DecisionColumns(NamedTuple):
    """Output arrays of the kernel: one entry per decision, by slot and then by learner."""

    cell: Any
    phase: Any
    arm: Any
    function: Any
    correct: Any
    paid: Any = ()  # variable costs in millionths; empty if all costs are fixed


class Trace:
    """Integer-coded decisions, by slot and then by learner.

    `names` has a table for each of learner, cell, phase, arm, function, prediction and label;
    `correct` is 1, 0, or -1 without a label in the log. Derived columns are computed on first use.
    """

    def __init__(
        self,
        decided: DecisionColumns,
        log: EncodedLog,
        *,
        first_slot: int,
        costs: Array,
        receivers: Sequence[int],
        names: Mapping[str, Sequence[Label]],
        unit: int = 1,
        blocks: Sequence[int] = (),
    ) -> None:
        self.cell, self.phase, self.arm, self.function, gained, self.paid = map(np.asarray, decided)
        # 0 or 1; a number from 0 to 1 if answers can be partly correct.
        self.correct: Array = gained if unit == 1 else np.where(gained < 0, -1.0, gained / unit)
        self.names = names
        self._log = log
        self._first_slot = first_slot
        self._costs = costs
        self._receivers = receivers
        self._blocks = blocks  # learner -> its first row of predictions, if they are not shared

    def __len__(self) -> int:
        return len(self.arm)

    @cached_property
    def slot(self) -> Array:
        """The slots, counted from 1."""
        slots = np.arange(self._first_slot, self._first_slot + len(self._log.labels))
        return slots if self._log.at is not None else np.repeat(slots, len(self._receivers))

    @cached_property
    def learner(self) -> Array:
        """The learners that received the instances."""
        if self._log.at is not None:
            return np.asarray(self._log.at)
        return np.tile(np.array(self._receivers, np.int32), len(self._log.labels))

    @cached_property
    def prediction(self) -> Array:
        """The answered labels."""
        row = self.function
        if len(self._blocks):
            row = row + np.asarray(self._blocks)[self.learner]
        answers: Array = np.asarray(self._log.predictions)[row, self.slot - self._first_slot]
        return answers

    @cached_property
    def label(self) -> Array:
        """The true labels, -1: none in the log."""
        labels: Array = np.asarray(self._log.labels)[self.slot - self._first_slot]
        return labels

    @cached_property
    def cost(self) -> Array:
        """The cost of each decision, in units of reward."""
        paid: Array = self._costs[self.learner, self.arm]
        return paid + self.paid / MILLIONTHS if len(self.paid) else paid

    def columns(self) -> dict[str, list[Any]]:
        """Return the trace as columns of names and numbers, as in a trace file."""
        return {
            "slot": self.slot.tolist(),
            **{name: _named(self.names[name], getattr(self, name)) for name in _NAMED},
            "correct": [None if value < 0 else value for value in self.correct.tolist()],
            "cost": self.cost.tolist(),
        }


def joined(pieces: Sequence[Trace], log: EncodedLog, *, first_slot: int) -> Trace:
    """Return the trace of `log`, replayed in pieces with different cells and costs."""
    numbers: dict[Label, int] = {}
    cells = []
    for piece in pieces:
        known = [numbers.setdefault(name, len(numbers)) for name in piece.names["cell"]]
        cells.append(np.array(known, np.int32)[piece.cell])
    others = [
        np.concatenate([getattr(piece, name) for piece in pieces])
        for name in DecisionColumns._fields[1:]
    ]
    trace = Trace(
        DecisionColumns(np.concatenate(cells), *others),
        log,
        first_slot=first_slot,
        costs=pieces[-1]._costs,
        receivers=pieces[-1]._receivers,
        blocks=pieces[-1]._blocks,
        names={**pieces[-1].names, "cell": list(numbers)},
    )
    trace.cost = np.concatenate([piece.cost for piece in pieces])
    return trace


_NAMED = ("learner", "cell", "phase", "arm", "function", "prediction", "label")


def _named(names: Sequence[Label], places: Array) -> list[Any]:
    # The last entry: index -1 (no label) is None.
    table = np.array([*names, None], dtype=object)
    return table[places].tolist()  # type: ignore[no-any-return]


class TraceFile:
    """Writes a trace to a temporary file, which is renamed when it is complete."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in (".csv", ".parquet", ".pq"):
            raise ConfigError(f"the trace {path.name} must end in .csv or .parquet")
        if not path.parent.is_dir():
            raise ConfigError(f"folder {path.parent} of the trace does not exist; create it")
        self._path = path
        self._partial = path.with_name(f".{path.name}.partial")
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def write(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append rows; the first call sets the columns."""
        if self._path.suffix == ".csv":
            self._to_csv(columns)
        else:
            self._to_parquet(columns)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            for opened in (self._writer, self._file):
                if hasattr(opened, "close"):
                    opened.close()
            if kind is None and self._writer is not None:
                os.replace(self._partial, self._path)
        finally:
            self._partial.unlink(missing_ok=True)

    def _to_csv(self, columns: Mapping[str, Sequence[Any]]) -> None:
        if self._file is None:
            self._file = self._partial.open("w", encoding="utf-8", newline="")
            self._writer = csv.writer(self._file, lineterminator="\n")
            self._writer.writerow(columns)
        self._writer.writerows(zip(*columns.values(), strict=True))

    def _to_parquet(self, columns: Mapping[str, Sequence[Any]]) -> None:
        parquet = parquet_module()
        import pyarrow as arrow

        table = arrow.table(dict(columns))
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._partial, table.schema)
        schemas = [self._writer.schema, table.schema]
        schema = arrow.unify_schemas(schemas, promote_options="permissive")
        if schema != self._writer.schema:
            self._widen(schema)
        self._writer.write_table(table.cast(schema))

    def _widen(self, schema: Any) -> None:
        """Rewrite all rows with a wider schema: integers became floats, or nulls became labels."""
        parquet = parquet_module()
        narrow = self._partial.with_suffix(".narrow")
        self._writer.close()
        os.replace(self._partial, narrow)
        try:
            self._writer = parquet.ParquetWriter(self._partial, schema)
            with parquet.ParquetFile(narrow) as written:
                for group in range(written.num_row_groups):
                    self._writer.write_table(written.read_row_group(group).cast(schema))
        finally:
            narrow.unlink()
