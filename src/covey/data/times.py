"""Times of rows and of labels: how many rows later each label is usable, and expires."""

import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from covey.data.contexts import EPOCH, TIME, UNUSABLE, lacks, listed, show, time_of
from covey.data.logs import CodedColumn, Column, Columns
from covey.errors import DataError
from covey.types import Array

MICROSECOND = timedelta(microseconds=1)
UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
FORMS = "500ms, 30s, 90min, 36h, 7d or 2w"
_DURATION = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS)})", re.ASCII)
NEVER = 2**63 - 1  # a label that never comes
UNFIT = -(2**63)
_MOST = 2**60  # microseconds of a duration


def duration_of(text: str) -> int | None:
    """Return the microseconds of a duration; None if the text is none.

    >>> duration_of("36h") == 36 * 3_600 * 1_000_000
    True
    """
    match = _DURATION.fullmatch(text)
    length = float(match[1]) * (UNITS[match[2]] / MICROSECOND) if match else math.inf
    return round(length) if length <= _MOST else None


def moment_of(value: Any) -> int:
    """Return a time in microseconds since the epoch; raise one of `UNUSABLE` if it is none."""
    moment = time_of(value)
    if not isinstance(moment, datetime):
        return round(moment * 1e6)
    return (moment.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


def _lateness_of(value: Any) -> int:
    number = duration_of(value) if isinstance(value, str) else value // MICROSECOND
    return UNFIT if number is None else int(number)


class ArrivalTimes(NamedTuple):
    """By row, how many rows later its label is there, and after how many it expires."""

    delay: Array  # -1: the label never comes
    wait: Array | None  # None: it never expires


class Timing(NamedTuple):
    """The columns of times of a log, and for how long labels are accepted, in microseconds."""

    time: str
    label_time: str | None
    delay: int | str | None  # or a column of durations
    wait: int | None

    def columns(self) -> list[str]:
        """Return the columns that it reads."""
        delay = self.delay if isinstance(self.delay, str) else None
        return [name for name in (self.time, self.label_time, delay) if name is not None]

    def arrivals(self, chunks: Iterable[Columns]) -> Iterator[tuple[Columns, ArrivalTimes]]:
        """Yield each chunk as soon as the times of later rows say when its labels are there.

        A label is usable by the first later row whose time is at or after its own. It expires at
        the first row whose time is more than the wait after that of its row.
        """
        held: list[_Held] = []
        first = 1
        for columns in chunks:
            held.append(self._read(columns, first, held[-1].times[-1] if held else None))
            first += len(held[-1].times)
            latest = held[-1].times[-1]
            while held[0] is not held[-1] and held[0].settled_by(self.wait) <= latest:
                yield self._timed(held)
                del held[0]
        while held:
            yield self._timed(held)
            del held[0]

    def _read(self, columns: Columns, first: int, latest: Any) -> "_Held":
        times = _numbers(columns[self.time], self.time, first, is_time=True, may_lack=False)
        before = np.concatenate([times[:1] if latest is None else [latest], times[:-1]])
        for row in np.flatnonzero(times < before)[:1].tolist():
            raise DataError(
                f"row {first + row}: column {self.time!r} is before that of the row above; sort "
                "the rows by it"
            )
        if self.label_time is not None:
            column = columns[self.label_time]
            due = _numbers(column, self.label_time, first, is_time=True, may_lack=True)
        elif isinstance(self.delay, str):
            late = _numbers(columns[self.delay], self.delay, first, is_time=False, may_lack=True)
            due = np.where(late == NEVER, NEVER, times + np.minimum(late, _MOST))
        else:
            due = times + (self.delay or 0)
        return _Held(columns, times, due)

    def _timed(self, held: "list[_Held]") -> tuple[Columns, ArrivalTimes]:
        times = np.concatenate([chunk.times for chunk in held])
        chunk = held[0]
        rows = np.arange(len(chunk.times))
        usable = np.searchsorted(times, chunk.due)
        # What comes after the last row is not there at its end either.
        delay = np.maximum(usable - (usable < len(times)) - rows, 0)
        delay[chunk.due == NEVER] = -1
        wait = None
        if self.wait is not None:
            expired = np.searchsorted(times, chunk.times + self.wait, side="right")
            wait = expired - (expired < len(times)) - rows
        return chunk.columns, ArrivalTimes(delay, wait)


class _Held(NamedTuple):
    """A chunk that waits for the times of later rows."""

    columns: Columns
    times: Array
    due: Array

    def settled_by(self, wait: int | None) -> int:
        """Return the time of a row by which it is known when its labels are there or expire."""
        if wait is not None:
            return int(self.times[-1]) + wait + 1
        return int(self.due[self.due != NEVER].max(initial=self.times[0]))


def _numbers(column: Column, name: str, first: int, *, is_time: bool, may_lack: bool) -> Array:
    """Return times or durations in microseconds; `NEVER` where one is missing and may be."""
    kind = column.dtype.kind if isinstance(column, np.ndarray) else ""
    if kind == ("M" if is_time else "m"):
        values = np.asarray(column)
        numbers = values.astype(f"{kind}8[us]").astype(np.int64)
        numbers[np.isnat(values)] = NEVER
    elif isinstance(column, CodedColumn):
        table = [_number(value, is_time) for value in [*column.values, None]]
        numbers = np.array(table, np.int64)[column.codes]
    else:
        numbers = np.array([_number(value, is_time) for value in listed(column)], np.int64)
    unfit = (numbers == UNFIT) if is_time else (numbers < 0)
    if not may_lack:
        unfit |= numbers == NEVER
    for row in np.flatnonzero(unfit)[:1].tolist():
        value = show(listed(column[row : row + 1])[0])
        wanted = TIME if is_time else f"a duration such as {FORMS}"
        raise DataError(f"row {first + row}: column {name!r} is {value}, which is not {wanted}")
    return numbers


def _number(value: Any, is_time: bool) -> int:
    if lacks(value):
        return NEVER
    try:
        return moment_of(value) if is_time else _lateness_of(value)
    except UNUSABLE:
        return UNFIT
