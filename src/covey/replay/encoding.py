"""Validate the columns of a log and encode them as integer arrays for the kernel."""

import math
import re
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, cast

import numpy as np

from covey.config import NetworkConfig
from covey.data.logs import Column, EncodedLog
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


class Vocabulary:
    """Maps labels and predictions to codes; either all are numbers, or all are text."""

    def __init__(self, *, is_typed: bool, loss: Loss | None = None) -> None:
        self._loss = loss
        self.values: list[Label] = []
        self._codes: dict[Label, int] = {}
        self._memory: dict[Any, int] = {"": -1, None: -1}
        self._reads_numbers = not is_typed
        self._first: tuple[bool, str, int] | None = None

    def encode(self, column: Column, *, name: str, first_slot: int) -> np.ndarray:
        """Return the codes of a column, -1 for an empty value.

        Raises `DataError` if numbers and text are mixed.
        """
        if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
            return self._encode_numbers(column, name, first_slot)
        memory = self._memory
        values = column.tolist() if isinstance(column, np.ndarray) else column
        codes = np.fromiter((memory.get(v, -2) for v in values), np.int32, len(values))
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
        if any(isinstance(value, str) for value in self.values):
            raise DataError("[data] loss needs numeric labels and predictions, but they are text")
        values = np.array([*self.values, 0.0], np.float64)
        gains = self._loss.gains(np.abs(values[codes] - values[labels]))
        whole: np.ndarray = gains.astype(np.int32)
        return whole.data

    def _encode_numbers(self, column: np.ndarray, name: str, first_slot: int) -> np.ndarray:
        if column.dtype.kind != "f" and _is_dense(column):
            return self._encode_small(column, name, first_slot)
        distinct, places = np.unique(column, return_inverse=True)
        codes = self._code_all(distinct.tolist(), column, name, first_slot)
        return codes[places.reshape(-1)]

    def _encode_small(self, column: np.ndarray, name: str, first_slot: int) -> np.ndarray:
        """Encode integers of a small range by table look-up, without sorting."""
        low, high = int(column.min()), int(column.max())
        values: Sequence[int] = range(low, high + 1)
        if not all(value in self._codes for value in values):
            values = (np.flatnonzero(np.bincount(column.astype(np.int64) - low)) + low).tolist()
        codes = np.full(high - low + 1, -1, np.int32)
        codes[np.array(values) - low] = self._code_all(values, column, name, first_slot)
        if low == 0 and np.array_equal(codes, np.arange(high + 1)):
            return column.astype(np.int32, copy=False)
        return codes[column.astype(np.int64) - low]

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
        elif self._first[0] != is_number:
            raise DataError(self._mixture(value, name, slot))
        self._codes[value] = len(self.values)
        self.values.append(value)
        return self._codes[value]

    def _mixture(self, value: Label, name: str, slot: int) -> str:
        assert self._first is not None
        kind = "numbers" if self._first[0] else "text"
        return (
            f"row {slot}: column {name!r} holds {value!r}, but column {self._first[1]!r} (row "
            f"{self._first[2]}) holds {kind}; use numbers only, or text only"
        )


def arrivals(
    setup: NetworkConfig, columns: Mapping[str, Column], vocabulary: Vocabulary, first_slot: int
) -> Arrivals:
    """Return label, receiving learner, visibility and delay per row."""
    data = setup.data
    labels = vocabulary.encode(columns[data.label], name=data.label, first_slot=first_slot)
    revealed = delay = at = None
    if data.revealed is not None:
        revealed = _whole(columns[data.revealed], data.revealed, first_slot, most=1)
    if data.delay is not None:
        delay = _whole(columns[data.delay], data.delay, first_slot, most=_MOST_DELAY)
    if data.at is not None:
        at = _receivers(setup, columns[data.at], first_slot)
    may_miss = np.zeros(len(labels), bool) if revealed is None else revealed == 0
    missing = np.flatnonzero((labels < 0) & ~may_miss)
    if len(missing):
        hint = "" if data.revealed is None else f"; it can be empty only if {data.revealed!r} is 0"
        raise DataError(
            f"row {first_slot + missing[0]}: the label in {data.label!r} is missing{hint}"
        )
    return Arrivals(labels, at, revealed, delay)


def encode(
    answers: Sequence[tuple[str, Column]],
    arrived: Arrivals,
    points: np.ndarray,
    vocabulary: Vocabulary,
    first_slot: int,
    luck: "Luck",
) -> EncodedLog:
    """Return rows of a log for the kernel.

    `answers` are the functions' names and predictions, by learner; `points` are validated contexts.
    """
    codes = [_predictions(column, name, vocabulary, first_slot) for name, column in answers]
    return EncodedLog(
        contexts=np.require(points, np.float64, ["C", "W"]).reshape(-1).data,
        predictions=np.array(codes, np.int32).data,
        labels=np.array(arrived.labels).data,
        at=None if arrived.at is None else arrived.at.data,
        delays=_delays(arrived),
        shown=luck.draw(len(arrived.labels)),
        gains=vocabulary.gains(np.array(codes, np.int32), arrived.labels),
    )


def furnish(
    log: EncodedLog, setup: NetworkConfig, columns: Mapping[str, Column], first_slot: int
) -> EncodedLog:
    """Return the log with optional arrays: costs, answer delays, space for stored-label answers."""
    costs = [_millionths(columns[name], name, first_slot) for name in setup.cost_columns]
    predictions = log.predictions
    if any(site.context_peers for site in setup.sites):
        # The kernel writes answers from stored labels here, one row per learner.
        room = np.full((len(setup.sites), len(log.labels)), -1, np.int32)
        predictions = np.concatenate([np.asarray(predictions), room]).data
    return log._replace(
        predictions=predictions,
        costs=np.array(costs, np.int32).data if costs else None,
        busy=_busy(setup.answer_delays, columns, len(log.labels), first_slot),
    )


def _busy(
    delays: Sequence[int | str], columns: Mapping[str, Column], rows: int, first_slot: int
) -> memoryview | None:
    if not any(delays):
        return None
    busy = np.empty((rows, len(delays)), np.int64)
    for k, delay in enumerate(delays):
        if isinstance(delay, str):
            busy[:, k] = _whole(columns[delay], delay, first_slot, most=_MOST_DELAY)
        else:
            busy[:, k] = delay
    return busy.data


def _millionths(column: Column, name: str, first_slot: int) -> np.ndarray:
    costs = _numbers(column)
    bad = np.flatnonzero(~((costs >= 0) & (costs <= 1)))
    if len(bad):
        shown = np.asarray(column, object)[bad[0]]
        raise DataError(
            f"row {first_slot + bad[0]}: column {name!r} is {shown!r}; a cost must lie in [0, 1]"
        )
    whole: np.ndarray = np.rint(costs * MILLIONTHS).astype(np.int32)
    return whole


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


def _predictions(column: Column, name: str, vocabulary: Vocabulary, first_slot: int) -> np.ndarray:
    codes = vocabulary.encode(column, name=name, first_slot=first_slot)
    missing = np.flatnonzero(codes < 0)
    if len(missing):
        raise DataError(f"row {first_slot + missing[0]}: the prediction in {name!r} is missing")
    return codes


def _delays(arrived: Arrivals) -> memoryview | None:
    if arrived.revealed is None and arrived.delay is None:
        return None
    delay = np.zeros(len(arrived.labels), np.int64) if arrived.delay is None else arrived.delay
    if arrived.revealed is not None:
        delay = np.where(arrived.revealed == 0, -1 - delay, delay)
    return np.ascontiguousarray(delay).data


def _whole(column: Column, name: str, first_slot: int, *, most: int) -> np.ndarray:
    values = _numbers(column)
    bad = np.flatnonzero(~((values >= 0) & (values <= most) & (values == np.floor(values))))
    if len(bad):
        kind = "0 or 1" if most == 1 else "a whole number of slots, 0 or more"
        shown = np.asarray(column, object)[bad[0]]
        raise DataError(
            f"row {first_slot + bad[0]}: column {name!r} is {shown!r}; it must be {kind}"
        )
    return values.astype(np.int64)


def _numbers(column: Column) -> np.ndarray:
    """Return a column as floats, NaN for values that are not numbers."""
    try:
        return np.asarray(column).astype(np.float64)
    except (TypeError, ValueError):
        return np.array([_number(value) for value in column])


def _is_dense(column: np.ndarray) -> bool:
    """Return whether the range of integers is small enough for a look-up table."""
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, _FEW)
    return high - low < _FEW and -(2**62) < low < 2**62


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _receivers(setup: NetworkConfig, column: Column, first_slot: int) -> np.ndarray:
    indices = {site.name: k for k, site in enumerate(setup.sites)}
    values = column.tolist() if isinstance(column, np.ndarray) else column
    at = np.array([indices.get(str(value), -1) for value in values], np.int32)
    for row in np.flatnonzero(at < 0)[:1].tolist():
        raise DataError(
            f"row {first_slot + row}: column {setup.data.at!r} names {values[row]!r}, which is not "
            f"a learner{nearest(str(values[row]), indices)}"
        )
    excluded = [k for k, site in enumerate(setup.sites) if not site.receives]
    for row in np.flatnonzero(np.isin(at, excluded))[:1].tolist():
        raise DataError(
            f"row {first_slot + row}: column {setup.data.at!r} names {values[row]!r}, which has "
            "arrivals = false"
        )
    return at
