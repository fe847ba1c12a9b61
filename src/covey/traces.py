"""The trace of a replay: integer-coded decisions with name tables, and trace files."""

import csv
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from covey.encoding import Log
from covey.errors import ConfigError
from covey.logs import parquet_module
from covey.types import MILLIONTHS, Array, Label


class Decided(NamedTuple):
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
        decided: Decided,
        log: Log,
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
        said: Array = np.asarray(self._log.predictions)[row, self.slot - self._first_slot]
        return said

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


def joined(pieces: Sequence[Trace], log: Log, *, first_slot: int) -> Trace:
    """Return the trace of `log`, replayed in pieces with different cells and costs."""
    numbers: dict[Label, int] = {}
    cells = []
    for piece in pieces:
        known = [numbers.setdefault(name, len(numbers)) for name in piece.names["cell"]]
        cells.append(np.array(known, np.int32)[piece.cell])
    others = [
        np.concatenate([getattr(piece, name) for piece in pieces]) for name in Decided._fields[1:]
    ]
    trace = Trace(
        Decided(np.concatenate(cells), *others),
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
        self._write = self._to_csv if path.suffix == ".csv" else self._to_parquet
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def write(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append rows; the first call sets the columns."""
        self._write(columns)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
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
