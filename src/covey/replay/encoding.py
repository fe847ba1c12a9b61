"""Validate the columns of a log and encode them as integer arrays for the kernel."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, cast

import numpy as np

from covey.config import NetworkConfig
from covey.data.logs import CodedColumn, Column, Columns, EncodedLog, rows_left
from covey.data.times import ArrivalTimes
from covey.errors import DataError
from covey.toml import nearest
from covey.types import MILLIONTHS, Label, Loss

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MOST_DELAY = 2**53
_FEW = 1024


class Arrivals(NamedTuple):
    """Per row: label, receiving learner, whether and when the label arrives."""

    labels: np.ndarray  # codes
    at: np.ndarray | None
    revealed: np.ndarray | None
    delay: np.ndarray | None
    batches: np.ndarray | None = None
    waits: np.ndarray | None = None  # rows after which it expires

    @property
    def rows_until_label(self) -> np.ndarray | None:
        """Per row, how many rows later its label is there; None: at once."""
        if self.batches is None:
            return self.delay
        left = rows_left(self.batches)
        return left if self.delay is None else np.maximum(left, self.delay)


class Vocabulary:
    """Maps labels and predictions to codes; either all are numbers, or all are text."""

    def __init__(self, *, is_typed: bool, loss: Loss | None = None) -> None:
        self._loss = loss
        self._gains = np.zeros((0, 0), np.int32)
        self.values: list[Label] = []
        self._codes: dict[Label, int] = {}
        self._memory: dict[Any, int] = {"": -1, None: -1}
        self._reads_numbers = not is_typed
        self._first: tuple[bool, str, int] | None = None

    def encode(
        self, column: Column, *, name: str, first_slot: int, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the codes of a column, in `out` or in a new array; -1 for an empty value.

        Raises `DataError` if numbers and text are mixed.
        """
        codes = np.empty(len(column), np.int32) if out is None else out
        if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
            self._encode_numbers(column, name, first_slot, codes)
            return codes
        if isinstance(column, CodedColumn):
            self._encode_coded(column, name, first_slot, codes)
            return codes
        memory = self._memory
        values = column.tolist() if isinstance(column, np.ndarray) else column
        codes[:] = np.fromiter((memory.get(v, -2) for v in values), np.int32, len(values))
        for place in np.flatnonzero(codes == -2).tolist():
            value = values[place]
            if value not in memory:
                memory[value] = self._code(self._read(value), name, first_slot + place)
            codes[place] = memory[value]
        return codes

    def gains(self, codes: np.ndarray, labels: np.ndarray) -> memoryview | None:
        """Return the gain of each answer; None with the zero-one loss."""
        if self._loss is None:
            return None
        if not self._loss.is_numeric:
            by_class: np.ndarray = self._class_gains(self._loss)[codes, labels]
            return by_class.data
        if any(isinstance(value, str) for value in self.values):
            raise DataError(
                "[data] loss needs numeric labels and predictions, but they are text; use kind = "
                '"classes" for errors by class'
            )
        values = np.array([*self.values, 0.0], np.float64)
        gains = self._loss.gains(np.abs(values[codes] - values[labels]))
        whole: np.ndarray = np.where(codes < 0, 0, gains).astype(np.int32)
        return whole.data

    def _class_gains(self, loss: Loss) -> np.ndarray:
        """Return the gains by the codes of prediction and label; an empty prediction gains 0."""
        if len(self._gains) <= len(self.values):
            if len(self.values) > _FEW:
                raise DataError(
                    f'[data] loss has kind = "classes", but there are more than {_FEW} labels'
                )
            self._gains = np.zeros((len(self.values) + 1,) * 2, np.int32)
            for k, label in enumerate(self.values):
                self._gains[:-1, k] = [loss.gain(value, label) for value in self.values]
        return self._gains

    def _encode_coded(
        self, column: CodedColumn, name: str, first_slot: int, out: np.ndarray
    ) -> None:
        """Encode each distinct value once, in the order of their first rows."""
        firsts = _first_rows(column.codes, len(column.values))
        table = np.full(len(column.values) + 1, -1, np.int32)  # the last is for missing values
        for row, code in sorted((row, code) for code, row in firsts.items()):
            value = column.values[code]
            if value not in self._memory:
                self._memory[value] = self._code(self._read(value), name, first_slot + row)
            table[code] = self._memory[value]
        np.take(table, column.codes, out=out, mode="wrap")

    def _encode_numbers(
        self, column: np.ndarray, name: str, first_slot: int, out: np.ndarray
    ) -> None:
        is_whole = column.dtype.kind != "f" and len(column)
        low, high = (int(column.min()), int(column.max())) if is_whole else (0, _FEW)
        if high - low >= _FEW or not -(2**62) < low < 2**62:
            distinct, places = np.unique(column, return_inverse=True)
            codes = self._code_all(distinct.tolist(), column, name, first_slot)
            np.take(codes, places.reshape(-1), out=out, mode="clip")
            return
        # Integers of a small range: a look-up in a table, or a copy, without sorting.
        values = range(low, high + 1)
        if all(self._codes.get(value) == value for value in values):
            np.copyto(out, column, casting="unsafe")
            return
        above = np.subtract(column, low, dtype=np.intp, casting="unsafe")
        used = np.flatnonzero(np.bincount(above))
        table = np.full(len(values), -1, np.int32)
        table[used] = self._code_all((used + low).tolist(), column, name, first_slot)
        np.take(table, above, out=out, mode="clip")

    def _code_all(
        self, values: Sequence[Any], column: np.ndarray, name: str, first_slot: int
    ) -> np.ndarray:
        codes = np.full(len(values), -1, np.int32)
        for place, value in enumerate(values):
            is_new = value not in self._codes
            slot = first_slot + int(np.argmax(column == value)) if is_new else 0
            codes[place] = self._code(value + 0, name, slot)
        return codes

    def _read(self, value: Any) -> Label:
        if self._reads_numbers and isinstance(value, str) and _NUMBER.fullmatch(value):
            return int(value) if value.lstrip("+-").isdigit() else float(value)
        return cast("Label", value)

    def _code(self, value: Label, name: str, slot: int) -> int:
        if value in self._codes:
            return self._codes[value]
        if isinstance(value, float) and math.isnan(value):
            return -1
        is_number = not isinstance(value, str)
        if is_number and not (isinstance(value, Real) and abs(value) < math.inf):
            raise DataError(f"row {slot}: column {name!r} holds {value}, which is not a label")
        if self._first is None:
            self._first = (is_number, name, slot)
        has_numbers, first_name, first_slot = self._first
        if has_numbers != is_number:
            raise DataError(
                f"row {slot}: column {name!r} holds {value!r}, but column {first_name!r} (row "
                f"{first_slot}) holds {'numbers' if has_numbers else 'text'}; use numbers only, or "
                "text only"
            )
        self._codes[value] = len(self.values)
        self.values.append(value)
        return self._codes[value]


class Luck:
    """Random visibility of labels per learner."""

    def __init__(self, setup: NetworkConfig) -> None:
        self._shares = [site.label_probability for site in setup.sites]
        seed = setup.settings.seed
        # One generator per learner: other learners' probabilities have no effect on its draws.
        self._generators = [np.random.default_rng([seed, k]) for k in range(len(self._shares))]

    def draw(self, rows: int) -> memoryview | None:
        """Return 1 per row and learner if the label is visible; None if all are."""
        if min(self._shares) >= 1:
            return None
        columns = [
            generator.random(rows) < share
            for generator, share in zip(self._generators, self._shares, strict=True)
        ]
        return np.array(columns, np.int8).T.copy().data


def _first_rows(codes: np.ndarray, count: int) -> dict[int, int]:
    """Return the first row of each code that occurs."""
    if count > _FEW:
        distinct, rows = np.unique(codes, return_index=True)
        pairs = zip(distinct.tolist(), rows.tolist(), strict=True)
        return {code: row for code, row in pairs if code >= 0}
    used = np.flatnonzero(np.bincount(codes + 1, minlength=1)[1:]).tolist()
    return {code: int(np.argmax(codes == code)) for code in used}


class Encoder:
    """Validates and encodes consecutive rows of a log."""

    def __init__(self, setup: NetworkConfig, *, is_typed: bool) -> None:
        self.vocabulary = Vocabulary(is_typed=is_typed, loss=setup.data.loss)
        self.first_slot = 1  # of the next rows
        self._setup = setup
        self._luck = Luck(setup)

    def arrivals(
        self, columns: Mapping[str, Column], times: ArrivalTimes | None = None
    ) -> Arrivals:
        """Return label, receiving learner, visibility and delay of the next rows.

        With `times` labels are late by these, in place of a column of slots.
        """
        data = self._setup.data
        labels = self._codes(columns[data.label], data.label)
        revealed = delay = at = batches = None
        if data.revealed == data.label:  # an empty label never comes
            revealed = np.where(labels >= 0, 1, 0)
        elif data.revealed is not None:
            revealed = self._whole(columns[data.revealed], data.revealed, most=1)
        if times is not None:
            revealed = (times.delay >= 0) & (True if revealed is None else revealed > 0)
            delay = np.maximum(times.delay, 0)
        elif data.delay is not None:
            delay = self._whole(columns[data.delay], data.delay, most=_MOST_DELAY)
        if data.at is not None:
            at = self._receivers(columns[data.at], data.at)
        if data.batch is not None:
            batches = runs_of(columns[data.batch])
        for row in _missing(labels, 1 if revealed is None else revealed):
            hint = f"remove the row, or write revealed = {data.label!r}, if it never comes"
            if data.revealed is not None:
                hint = f"it can be empty only if {data.revealed!r} is 0"
            elif data.label_time is not None:
                hint = f"it can be empty only if {data.label_time!r} is, too"
            raise self._error(row, f"the label in {data.label!r} is missing; {hint}")
        waits = None if times is None else times.wait
        return Arrivals(labels, at, revealed, delay, batches, waits)

    def encode(
        self,
        answers: Sequence[tuple[str, Column]],
        arrived: Arrivals,
        points: np.ndarray,
        columns: Mapping[str, Column],
    ) -> EncodedLog:
        """Return the next rows for the kernel.

        `answers` are the functions' names and predictions, by learner; `points` are validated
        contexts; `columns` holds variable costs and answer delays.
        """
        rows = len(arrived.labels)
        predictions = np.empty((len(answers), rows), np.int32)
        for codes, (name, column) in zip(predictions, answers, strict=True):
            self._codes(column, name, out=codes)
            for row in _missing(codes) if self._setup.data.missing is None else ():
                hint = 'if the model had none, set missing = "unavailable" in [data]'
                raise self._error(row, f"the prediction in {name!r} is missing; {hint}")
        gains = self.vocabulary.gains(predictions, arrived.labels)
        log = EncodedLog(
            contexts=np.require(points, np.float64, ["C", "W"]).reshape(-1).data,
            predictions=predictions.data,
            labels=arrived.labels.data,
            at=None if arrived.at is None else arrived.at.data,
            delays=_delays(arrived),
            shown=self._luck.draw(rows),
            gains=gains,
            costs=self._costs(columns),
            busy=self._busy(columns, rows),
            batches=None if arrived.batches is None else arrived.batches.data,
            waits=None if arrived.waits is None else arrived.waits.data,
        )
        self.first_slot += rows
        return log

    def _codes(self, column: Column, name: str, out: np.ndarray | None = None) -> np.ndarray:
        return self.vocabulary.encode(column, name=name, first_slot=self.first_slot, out=out)

    def _costs(self, columns: Mapping[str, Column]) -> memoryview | None:
        costs = [self._millionths(columns[name], name) for name in self._setup.cost_columns]
        return np.array(costs).data if costs else None

    def _busy(self, columns: Mapping[str, Column], rows: int) -> memoryview | None:
        delays = self._setup.answer_delays
        if not any(delays):
            return None
        busy = np.empty((rows, len(delays)), np.int64)
        for k, delay in enumerate(delays):
            if isinstance(delay, str):
                busy[:, k] = self._whole(columns[delay], delay, most=_MOST_DELAY)
            else:
                busy[:, k] = delay
        return busy.data

    def _millionths(self, column: Column, name: str) -> np.ndarray:
        costs = _floats(column)
        self._check(column, name, (costs >= 0) & (costs <= 1), "a cost must lie in [0, 1]")
        whole: np.ndarray = np.rint(costs * MILLIONTHS).astype(np.int32)
        return whole

    def _whole(self, column: Column, name: str, *, most: int) -> np.ndarray:
        is_flags = most > 1 and isinstance(column, np.ndarray) and column.dtype.kind == "b"
        values = np.full(len(column), np.nan) if is_flags else _floats(column)
        is_valid = (values >= 0) & (values <= most) & (values == np.floor(values))
        wanted = "0 or 1"
        if most > 1:
            wanted = (
                "a whole number of slots, 0 or more; for durations name a column of times: time"
            )
        self._check(column, name, is_valid, f"it must be {wanted}")
        return values.astype(np.int64)

    def _check(self, column: Column, name: str, is_valid: np.ndarray, wanted: str) -> None:
        for row in np.flatnonzero(~is_valid)[:1].tolist():
            shown = np.asarray(column, object)[row]
            raise self._error(row, f"column {name!r} is {shown!r}; {wanted}")

    def _receivers(self, column: Column, name: str) -> np.ndarray:
        sites = self._setup.sites
        indices = {site.name: k for k, site in enumerate(sites)}
        values = column.tolist() if isinstance(column, np.ndarray) else column
        distinct = [*column.values, None] if isinstance(column, CodedColumn) else values
        at = np.array([indices.get(str(value), -1) for value in distinct], np.int32)
        if isinstance(column, CodedColumn):
            at = at[column.codes]
        for row in np.flatnonzero(at < 0)[:1].tolist():
            problem = f"is not a learner{nearest(str(values[row]), indices)}"
            raise self._error(row, f"column {name!r} names {values[row]!r}, which {problem}")
        excluded = [k for k, site in enumerate(sites) if not site.receives]
        for row in np.flatnonzero(np.isin(at, excluded))[:1].tolist():
            problem = "has arrivals = false"
            raise self._error(row, f"column {name!r} names {values[row]!r}, which {problem}")
        return at

    def _error(self, row: int, problem: str) -> DataError:
        return DataError(f"row {self.first_slot + row}: {problem}")


def _delays(arrived: Arrivals) -> memoryview | None:
    if arrived.revealed is None and arrived.delay is None:
        return None
    delay = np.zeros(len(arrived.labels), np.int64) if arrived.delay is None else arrived.delay
    if arrived.revealed is not None:
        delay = np.where(arrived.revealed == 0, -1 - delay, delay)
    return np.ascontiguousarray(delay).data


def runs_of(column: Column) -> np.ndarray:
    """Return the number of the run of equal values that each row is in, from 0."""
    values = column.codes if isinstance(column, CodedColumn) else np.asarray(column)
    if not len(values):
        return np.zeros(0, np.int64)
    is_first = np.ones(len(values), bool)
    is_first[1:] = values[1:] != values[:-1]
    return np.cumsum(is_first, dtype=np.int64) - 1


def wanted_rows(chunks: Iterable[Columns], only: str) -> Iterator[Columns]:
    """Yield the rows of chunks in which a column is 1; raise `DataError` if it is not 0 or 1."""
    first = 1
    for columns in chunks:
        values = _floats(columns[only])
        for row in np.flatnonzero((values != 0) & (values != 1))[:1].tolist():
            shown = np.asarray(columns[only], object)[row]
            raise DataError(f"row {first + row}: column {only!r} is {shown!r}; it must be 0 or 1")
        first += len(values)
        is_wanted = values == 1
        if is_wanted.any():
            yield {name: _where(column, is_wanted) for name, column in columns.items()}


def _where(column: Column, is_wanted: np.ndarray) -> Column:
    if isinstance(column, CodedColumn):
        return CodedColumn(column.values, column.codes[is_wanted])
    if isinstance(column, np.ndarray):
        kept: np.ndarray = column[is_wanted]
        return kept
    return [value for value, wanted in zip(column, is_wanted.tolist(), strict=True) if wanted]


def _floats(column: Column) -> np.ndarray:
    """Return a column as floats, NaN for values that are not numbers: times, too."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "mM":
        return np.full(len(column), np.nan)
    try:
        return np.asarray(column, np.float64)
    except (TypeError, ValueError):
        return np.array([_float(value) for value in column])


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _missing(codes: np.ndarray, is_needed: np.ndarray | int = 1) -> list[int]:
    """Return the first row without a code, if any, among those that need one."""
    if codes.min(initial=0) >= 0:
        return []
    rows: list[int] = np.flatnonzero((codes < 0) & (np.asarray(is_needed) != 0))[:1].tolist()
    return rows
