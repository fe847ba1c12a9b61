"""Tables in memory as logs: data frames, Arrow streams, mappings of columns."""

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from covey.data import logs
from covey.data.logs import ROWS_PER_CHUNK, Columns, CsvLog, ParquetLog
from covey.errors import DataError


def open_table(data: Any, wanted: Sequence[str]) -> "Reader":
    """Return a reader of the `wanted` columns of a path, a frame or a mapping.

    Frames are those that hand out an Arrow stream: pandas, polars, pyarrow, DuckDB and others.
    Raises `DataError` for anything else, and for a missing column.
    """
    if isinstance(data, str | Path):
        return logs.open_log(Path(data), wanted)
    if hasattr(data, "collect") and not hasattr(data, "__arrow_c_stream__"):
        data = data.collect()  # a lazy frame
    if isinstance(data, Mapping):
        return MappingLog(data, wanted)
    if hasattr(data, "__arrow_c_stream__"):
        return FrameLog(data, wanted)
    raise DataError(
        f"data is a {type(data).__name__}; pass the path of a log, a data frame, a pyarrow table, "
        "or a dict of columns"
    )


class FrameLog:
    """A table that hands out an Arrow stream."""

    is_typed = True

    def __init__(self, frame: Any, wanted: Sequence[str]) -> None:
        arrow = logs.arrow_module("pyarrow", what="Data frames")
        try:
            table = arrow.table(frame)
        except (arrow.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"the table cannot be read as Arrow: {error}") from None
        logs.check_columns(wanted, table.column_names, "the table")
        self._table = table.select(list(wanted))
        self.rows_total: int | None = table.num_rows
        self._read = 0

    def share_read(self) -> float:
        return self._read / max(1, self.rows_total or 1)

    def chunks(self) -> Generator[Columns, None, None]:
        """Yield the wanted columns, `ROWS_PER_CHUNK` rows at a time."""
        for first in range(0, self._table.num_rows, ROWS_PER_CHUNK):
            rows = self._table.slice(first, ROWS_PER_CHUNK)
            self._read += rows.num_rows
            yield {
                name: logs.plain(rows.column(name).combine_chunks(), name)
                for name in self._table.column_names
            }


class MappingLog:
    """A mapping of column names to sequences or arrays."""

    is_typed = True

    def __init__(self, columns: Mapping[str, Any], wanted: Sequence[str]) -> None:
        logs.check_columns(wanted, list(columns), "the table")
        self._columns = {name: _array(columns[name], name) for name in wanted}
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            (first, rows), *others = lengths.items()
            name, other = next(pair for pair in others if pair[1] != rows)
            raise DataError(f"column {first!r} has {rows} rows, but {name!r} has {other}")
        self.rows_total: int | None = next(iter(lengths.values()), 0)
        self._read = 0

    def share_read(self) -> float:
        return self._read / max(1, self.rows_total or 1)

    def chunks(self) -> Generator[Columns, None, None]:
        """Yield the wanted columns, `ROWS_PER_CHUNK` rows at a time."""
        for first in range(0, self.rows_total or 0, ROWS_PER_CHUNK):
            rows = slice(first, first + ROWS_PER_CHUNK)
            self._read = min(rows.stop, self.rows_total or 0)
            yield {name: column[rows] for name, column in self._columns.items()}


Reader = CsvLog | ParquetLog | FrameLog | MappingLog


def _array(values: Any, name: str) -> Any:
    """Return a column as an array of numbers, or as a list if it holds anything else."""
    try:
        column = np.asarray(values)
    except (TypeError, ValueError):
        column = np.empty(())
    if column.ndim != 1:
        raise DataError(f"column {name!r} must have one value per row; pass a list or an array")
    return column if column.dtype.kind in "biufmM" else column.tolist()
