"""Logs of predictions and labels that are read, and traces of decisions that are written."""

import csv
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from covey.errors import ConfigError, DataError, need_of, optional_module
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
    batches: memoryview | None = None  # row -> its batch; consecutive rows, whole batches
    waits: memoryview | None = None  # slot -> slots after which its label expires

    def cut(self, first: int, end: int) -> "EncodedLog":
        width = len(self.contexts) // max(1, len(self.labels))
        pieces = {"contexts": np.asarray(self.contexts)[first * width : end * width].data}
        for name, column in self._asdict().items():
            if column is not None and name != "contexts":
                rows = (slice(None), slice(first, end))[name not in _BY_FUNCTION :]
                pieces[name] = np.ascontiguousarray(np.asarray(column)[rows]).data
        return self._replace(**pieces)

    @classmethod
    def join(cls, logs: "Sequence[EncodedLog]") -> "EncodedLog":
        whole = {}
        for name in cls._fields:
            parts = [np.asarray(getattr(log, name)) for log in logs]
            if getattr(logs[0], name) is None:
                continue
            if name == "batches":  # they get different numbers
                counts = [int(part[-1]) + 1 for part in parts]
                firsts = np.cumsum([0, *counts[:-1]])
                parts = [part + first for part, first in zip(parts, firsts, strict=True)]
            whole[name] = np.concatenate(parts, axis=int(name in _BY_FUNCTION)).data
        return logs[0]._replace(**whole)


_BY_FUNCTION = ("predictions", "gains", "costs")  # columns whose rows are the second axis


def until_end_of_batch(log: EncodedLog) -> EncodedLog:
    """Return a log whose labels come no earlier than the end of their batch, in rows."""
    if log.batches is None:
        return log
    left = rows_left(np.asarray(log.batches))
    stated = np.zeros(len(left), np.int64) if log.delays is None else np.asarray(log.delays)
    delays = np.where(stated >= 0, np.maximum(stated, left), np.minimum(stated, -1 - left))
    return log._replace(delays=np.ascontiguousarray(delays, np.int64).data)


def label_delays(log: EncodedLog, wait: int | None) -> Array:
    """Return the delay of each label in rows; -1: it never arrives, or later than `wait`."""
    log = until_end_of_batch(log)
    labels = np.asarray(log.labels)
    delays = np.zeros(len(labels), np.int64) if log.delays is None else np.asarray(log.delays)
    is_lost = (delays < 0) | (labels < 0)
    if log.waits is not None:
        is_lost |= delays > np.asarray(log.waits)
    elif wait is not None:
        is_lost |= delays > wait
    return np.where(is_lost, -1, delays)


def rows_left(batches: Array) -> Array:
    rows = np.arange(len(batches))
    last = np.flatnonzero(np.diff(batches, append=batches[-1:] + 1))  # row of each batch
    left: Array = last[np.searchsorted(last, rows)] - rows
    return left


def slot_starts(log: EncodedLog, *, are_shared: bool) -> Sequence[int]:
    """Return the first row of each slot, and the number of rows; `are_shared` by a batch."""
    if log.batches is None or not are_shared:
        return range(len(log.labels) + 1)
    numbers = np.asarray(log.batches)
    starts: list[int] = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    return [*starts, len(numbers)]


class CodedColumn(Sequence[Any]):
    """A column of text as its distinct values and the index of each row's value; -1: missing."""

    def __init__(self, values: Sequence[Any], codes: Array) -> None:
        self.values, self.codes = values, codes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return CodedColumn(self.values, self.codes[place])
        code = int(self.codes[place])
        return None if code < 0 else self.values[code]

    def __iter__(self) -> Iterator[Any]:
        return iter(named(self.values, self.codes))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array: Array = np.array([*self.values, None], dtype or object)[self.codes]
        return array


Column = np.ndarray | Sequence[Any]
Rows = Array | slice  # an index of columns
Columns = dict[str, Column]


def parquet_module() -> Any:
    """Return pyarrow's Parquet module; raise `MissingExtra` if it is not installed."""
    return arrow_module("pyarrow.parquet", what="Parquet files")


def arrow_module(name: str, *, what: str) -> Any:
    return optional_module(name, missing=need_of(what, "pyarrow", extra="parquet"))


class DecisionColumns(NamedTuple):
    """Output arrays of the kernel: one entry per decision, by slot and then by learner."""

    cell: Any
    phase: Any
    arm: Any
    function: Any
    correct: Any
    paid: Any = ()  # variable costs in millionths; empty if all costs are fixed
    recalled: Any = ()  # learner, row -> answer from stored labels; empty if there are none


class ArmTable:
    """The costs of all arms, by learner; memory grows with the arms that there are.

    Codes are those of a trace: own functions, then learners that are asked, then learners that are
    asked for the cell only. They ascend for each learner.
    """

    def __init__(self, codes: Sequence[Sequence[int]], costs: Sequence[Sequence[float]]) -> None:
        self._width = 1 + max((own[-1] for own in codes if own), default=0)
        keys = [place * self._width + code for place, own in enumerate(codes) for code in own]
        self._keys = np.array(keys, np.int64)
        self._costs = np.array([*itertools.chain(*costs)], np.float64)

    @classmethod
    def full(cls, costs: Array) -> Self:
        return cls([range(costs.shape[1])] * len(costs), costs.tolist())

    def costs(self, learner: Array, code: Array) -> Array:
        keys = learner.astype(np.int64) * self._width + code
        costs: Array = self._costs[np.searchsorted(self._keys, keys)]
        return costs


class Frame:
    """Columns that data frame libraries take, by their Arrow table."""

    def to_arrow(self) -> Any:
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """Return a pandas frame; dictionaries of text are categoricals."""
        optional_module("pandas", missing="to_pandas needs pandas; install pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        missing = "to_polars needs polars; install polars"
        return optional_module("polars", missing=missing).from_arrow(self.to_arrow())


class Trace(Frame):
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
        arms: ArmTable,
        receivers: Sequence[int],
        names: Mapping[str, Sequence[Label]],
        unit: int = 1,
        are_slots_shared: bool = False,
        streams: Array | None = None,
    ) -> None:
        """`streams` has the first row of predictions of each learner; None: all have the same."""
        self.decided = decided
        columns = map(np.asarray, decided)
        self.cell, self.phase, self.arm, self.function, gained, self.paid, self.recalled = columns
        # 0 or 1; a number from 0 to 1 if answers can be partly correct.
        self.correct: Array = gained if unit == 1 else np.where(gained < 0, -1.0, gained / unit)
        self.names = names
        self._log = log
        self._first_slot = first_slot
        self._arms = arms
        self._streams = streams
        self._receivers = receivers
        self._are_slots_shared = are_slots_shared  # by the rows of a batch
        self._unit = unit

    def __len__(self) -> int:
        return len(self.arm)

    @cached_property
    def slot(self) -> Array:
        """The slots, counted from 1."""
        if self._log.batches is None or not self._are_slots_shared:
            return self._first_slot + self.row
        starts = np.diff(np.asarray(self._log.batches), prepend=-1) != 0
        slots: Array = self._first_slot - 1 + np.cumsum(starts)
        return slots[self.row]

    @cached_property
    def row(self) -> Array:
        """The rows of the log, counted from 0."""
        rows = np.arange(len(self._log.labels))
        return rows if self._log.at is not None else np.repeat(rows, len(self._receivers))

    @cached_property
    def learner(self) -> Array:
        if self._log.at is not None:
            return np.asarray(self._log.at)
        return np.tile(np.array(self._receivers, np.int32), len(self._log.labels))

    def rows_of(self, learner: int) -> Rows:
        if self._log.at is not None:
            return np.flatnonzero(self.learner == learner)
        if learner not in self._receivers:
            return slice(0, 0)
        return slice(self._receivers.index(learner), None, len(self._receivers))

    @cached_property
    def prediction(self) -> Array:
        place = self.function
        if self._streams is not None:
            place = place + self._streams[self.learner]
        if not len(self.recalled):
            answers: Array = np.asarray(self._log.predictions)[place, self.row]
            return answers
        is_recalled = self.function >= len(self.names["function"]) - len(self.recalled)
        answers = np.asarray(self._log.predictions)[np.where(is_recalled, 0, place), self.row]
        return np.where(is_recalled, self.recalled[self.learner, self.row], answers)

    @cached_property
    def label(self) -> Array:
        """The true labels, -1: none in the log."""
        labels: Array = np.asarray(self._log.labels)[self.row]
        return labels

    @cached_property
    def cost(self) -> Array:
        paid = self._arms.costs(self.learner, self.arm)
        return paid + self.paid / MILLIONTHS if len(self.paid) else paid

    @cached_property
    def alarm(self) -> Array:
        """1 where the labels of the slot raised an alarm of the learner's change detection."""
        return np.zeros(len(self), np.int8)

    def correct_by(self, function: int, rows: Rows) -> Array:
        logged = self.row[rows]
        labels = np.asarray(self._log.labels)[logged]
        if self._log.gains is not None:
            right: Array = np.asarray(self._log.gains)[function, logged] / self._unit
        else:
            right = np.asarray(self._log.predictions)[function, logged] == labels
        return np.where(labels < 0, -1, right)

    def columns(self) -> dict[str, list[Any]]:
        return {
            "slot": self.slot.tolist(),
            **{name: named(*_present(self.names[name], getattr(self, name))) for name in _NAMED},
            "correct": [None if right < 0 else right for right in self.correct.tolist()],
            "cost": self.cost.tolist(),
            "alarm": self.alarm.tolist(),
        }

    def __repr__(self) -> str:
        learners = ", ".join(map(str, self.names["learner"]))
        return f"<Trace of {len(self):,} decisions by {learners}>"

    def to_arrow(self) -> Any:
        """Return the same columns as a `pyarrow.Table`: text as dictionaries, narrow integers.

        Raises `MissingExtra` without pyarrow, and `DataError` for labels that Arrow cannot hold.
        """
        arrow = arrow_module("pyarrow", what="Arrow tables")
        slot, correct = self.slot, self.correct
        columns = {"slot": slot.astype(np.int32) if slot.max(initial=0) < 2**31 else slot}
        for name in _NAMED:
            names, codes = _present(self.names[name], getattr(self, name))
            # Tables that grow with the log have one type of index in all chunks.
            kind = np.int32 if name in _GROWING else np.min_scalar_type(-1 - len(names))
            try:
                values = arrow.array(names)
            except (arrow.ArrowException, OverflowError) as error:
                hint = "write the trace as CSV, or use other labels"
                raise DataError(f"Arrow cannot hold column {name!r} ({error}); {hint}") from None
            indices = arrow.array(codes.astype(kind), mask=codes < 0)
            coded = arrow.DictionaryArray.from_arrays(indices, values)
            is_text = arrow.types.is_string(values.type)
            columns[name] = coded if is_text else coded.dictionary_decode()
        whole = correct.astype(np.int8) if correct.dtype.kind == "i" else correct
        columns["correct"] = arrow.array(whole, mask=correct < 0)
        return arrow.table({**columns, "cost": self.cost, "alarm": self.alarm})


def joined(pieces: Sequence[Trace], log: EncodedLog, *, first_slot: int) -> Trace:
    numbers: dict[Label, int] = {}
    cells = []
    for piece in pieces:
        codes = [numbers.setdefault(name, len(numbers)) for name in piece.names["cell"]]
        cells.append(np.array(codes, np.int32)[piece.cell])
    others = [
        np.concatenate([getattr(piece, name) for piece in pieces], axis=-1)  # rows are the last
        for name in DecisionColumns._fields[1:]
    ]
    trace = Trace(
        DecisionColumns(np.concatenate(cells), *others),
        log,
        first_slot=first_slot,
        arms=pieces[-1]._arms,
        receivers=pieces[-1]._receivers,
        are_slots_shared=pieces[-1]._are_slots_shared,
        streams=pieces[-1]._streams,
        names={**pieces[-1].names, "cell": list(numbers)},
    )
    trace.cost = np.concatenate([piece.cost for piece in pieces])
    trace.alarm = np.concatenate([piece.alarm for piece in pieces])
    trace._unit = pieces[-1]._unit
    return trace


def concatenated(pieces: Sequence[Trace]) -> Trace:
    log = EncodedLog.join([piece._log for piece in pieces])
    return joined(pieces, log, first_slot=pieces[0]._first_slot)


_NAMED = ("learner", "cell", "phase", "arm", "function", "prediction", "label")
_GROWING = ("cell", "prediction", "label")
TRACED = ("slot", *_NAMED, "correct", "cost", "alarm")  # columns of a trace file
_FEW = 1024


def named(values: Sequence[Any], codes: Array) -> list[Any]:
    """Return the value of each code, None for -1."""
    return np.array([*values, None], object)[codes].tolist()  # type: ignore[no-any-return]


def _present(names: Sequence[Label], codes: Array) -> tuple[list[Label], Array]:
    """Return distinct names and their codes; of a long table only the names that occur."""
    used: Sequence[int] = range(len(names))
    if len(names) > _FEW:
        used = np.flatnonzero(np.bincount(codes + 1, minlength=len(names) + 1)[1:]).tolist()
    places: dict[Label, int] = {}
    table = np.full(len(names) + 1, -1, np.int32)  # the last entry is for -1
    table[used] = [places.setdefault(names[place], len(places)) for place in used]
    return list(places), table[codes]


class TraceFile:
    """Writes a trace to a temporary file, which is renamed when it is complete."""

    def __init__(self, path: Path, *, what: str = "trace") -> None:
        """Raise `ConfigError` if the file cannot be written; `what` is its name there."""
        if path.suffix not in (".csv", ".parquet", ".pq"):
            raise ConfigError(f"the {what} {path.name} must end in .csv or .parquet")
        if not path.parent.is_dir():
            raise ConfigError(f"folder {path.parent} of the {what} does not exist; create it")
        if path.suffix != ".csv":
            parquet_module()  # fail now if it is missing, not after the first rows
        self._path = path
        self._partial = path.with_name(f".{path.name}.partial")
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def write(self, rows: Trace | Mapping[str, Sequence[Any]]) -> None:
        """Append a trace, or columns; the first call sets their names."""
        if self._path.suffix == ".csv":
            self._to_csv(rows)
        else:
            self._to_parquet(rows)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            for opened in (self._writer, self._file):
                if hasattr(opened, "close"):
                    opened.close()
            if kind is None and self._writer is not None:
                os.replace(self._partial, self._path)
        finally:
            self._partial.unlink(missing_ok=True)

    def _to_csv(self, rows: Trace | Mapping[str, Sequence[Any]]) -> None:
        if self._file is None:
            self._file = self._partial.open("w", encoding="utf-8", newline="")
            self._writer = csv.writer(self._file, lineterminator="\n")
            self._writer.writerow(TRACED if isinstance(rows, Trace) else rows)
        columns = rows.columns() if isinstance(rows, Trace) else rows
        self._writer.writerows(zip(*columns.values(), strict=True))

    def _to_parquet(self, rows: Trace | Mapping[str, Sequence[Any]]) -> None:
        arrow = arrow_module("pyarrow", what="Parquet files")
        table = rows.to_arrow() if isinstance(rows, Trace) else arrow.table(dict(rows))
        if self._writer is None:
            self._open(table.schema)
        schemas = [self._writer.schema, table.schema]
        schema = arrow.unify_schemas(schemas, promote_options="permissive")
        if schema != self._writer.schema:
            self._widen(schema)
        self._writer.write_table(table.cast(schema))

    def _open(self, schema: Any) -> None:
        # Slots ascend: their differences are smaller than a dictionary of them.
        rest = [name for name in schema.names if name != "slot"]
        encoding = {"slot": "DELTA_BINARY_PACKED"} if "slot" in schema.names else None
        self._writer = parquet_module().ParquetWriter(
            self._partial, schema, use_dictionary=rest, column_encoding=encoding
        )

    def _widen(self, schema: Any) -> None:
        """Rewrite all rows with a wider schema: integers became floats, or nulls became labels."""
        parquet = parquet_module()
        narrow = self._partial.with_suffix(".narrow")
        self._writer.close()
        os.replace(self._partial, narrow)
        try:
            self._open(schema)
            with parquet.ParquetFile(narrow) as written:
                for group in range(written.num_row_groups):
                    self._writer.write_table(written.read_row_group(group).cast(schema))
        finally:
            narrow.unlink()
