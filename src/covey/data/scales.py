"""Scales: how the values of a column become a coordinate of a context, or a vector several."""

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from covey.data.logs import CodedColumn
from covey.errors import ContextError, DataError
from covey.toml import nearest
from covey.types import Label

Floats = npt.NDArray[np.float64]
Column = npt.NDArray[Any] | Sequence[Any]

DAY_S = 86_400
YEAR_10000_S = 253_402_300_800  # in seconds since the epoch
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME = "a time; write 2024-05-01T13:30:00, or seconds since the epoch"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
UNUSABLE = (LookupError, OverflowError, TypeError, ValueError)
MOST_COORDINATES = 4_096  # of a context
CACHED = 1 << 14  # numbers that are worked on at once


class Rows(msgspec.Struct, frozen=True):
    """Consecutive rows of a log, or one record of a live service."""

    columns: Mapping[str, Column]
    first_slot: int
    count: int
    previous: Sequence[Label | None] = ()  # per row the latest label that had arrived
    is_request: bool = False  # messages name rows, not slots
    slots: npt.NDArray[np.int64] | None = None  # of each row; None: consecutive ones

    def at(self, row: int) -> str:
        return f"row {row}" if self.is_request else f"slot {self.first_slot + row}"

    def column(self, name: str) -> Column:
        if name not in self.columns:
            hint = nearest(name, self.columns)
            raise DataError(f"{self.at(0)}: there is no column {name!r}{hint}")
        return self.columns[name]


class Scale(Protocol):
    """One coordinate, or those of a vector: maps each row to [0, 1]."""

    @property
    def name(self) -> str: ...

    @property
    def column(self) -> str | None: ...

    def place(self, rows: Rows) -> Floats: ...

    def value_at(self, coordinate: float) -> float | str: ...


Fate = Literal["own", "refuse"]  # of values without a place: a cell of their own, or none


class _OfColumn(msgspec.Struct, frozen=True, kw_only=True, eq=False, rename="kebab"):
    column: Annotated[str, msgspec.Meta(min_length=1)]

    @property
    def name(self) -> str:
        return self.column


class _ColumnScale(_OfColumn, frozen=True, kw_only=True):
    clip: bool = False
    missing: Fate | None = None  # None: refuse


class AsIs(_ColumnScale, frozen=True, kw_only=True):
    """The column itself."""

    def place(self, rows: Rows) -> Floats:
        values = _numbers(rows, self)
        return np.clip(values, 0.0, 1.0) if self.clip else values

    def value_at(self, coordinate: float) -> float | str:
        return coordinate


class Linear(_ColumnScale, frozen=True, kw_only=True):
    """Linear from 0 at `low` to 1 at `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    def place(self, rows: Rows) -> Floats:
        return (_bounded(rows, self) - self.low) / (self.high - self.low)

    def value_at(self, coordinate: float) -> float | str:
        return self.low + coordinate * (self.high - self.low)


class LogScale(_ColumnScale, frozen=True, kw_only=True):
    """Logarithmic from 0 at `low` to 1 at `high`, for heavy-tailed columns."""

    low: float = 0.0
    high: float

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    def place(self, rows: Rows) -> Floats:
        ratio: Floats = np.log1p(_bounded(rows, self) - self.low) / np.log1p(self.high - self.low)
        # log1p need not be monotone: just below `high` the ratio can round above 1.
        return np.clip(ratio, 0.0, 1.0)

    def value_at(self, coordinate: float) -> float | str:
        return self.low + math.expm1(coordinate * math.log1p(self.high - self.low))


class Rank(_ColumnScale, frozen=True, kw_only=True):
    """The fraction of a sample below the value; equal values count half."""

    sample: np.ndarray[Any, np.dtype[np.float64]]

    def place(self, rows: Rows) -> Floats:
        values = _numbers(rows, self)
        below = np.searchsorted(self.sample, values, side="left")
        not_above = np.searchsorted(self.sample, values, side="right")
        share = (below + not_above) / (2 * self.sample.size)
        return np.asarray(np.where(np.isnan(values), np.nan, share), dtype=np.float64)

    def value_at(self, coordinate: float) -> float | str:
        return float(np.quantile(self.sample, coordinate))


class Hour(_ColumnScale, frozen=True, kw_only=True):
    """The elapsed fraction of the day, in UTC."""

    def place(self, rows: Rows) -> Floats:
        return _converted(_day_share, rows, self, TIME)

    def value_at(self, coordinate: float) -> float | str:
        minutes = round(coordinate * 24 * 60)
        return f"{minutes // 60}:{minutes % 60:02}"


class Places:
    """Values that are not numbers: each has an equal share of the axis, and lies in its middle."""

    @property
    def places(self) -> Sequence[str]:
        raise NotImplementedError

    def middle(self, place: int) -> float:
        return (place + 0.5) / len(self.places)

    def value_at(self, coordinate: float) -> float | str:
        """Return the name of the value to whose share a coordinate belongs."""
        return self.places[min(int(coordinate * len(self.places)), len(self.places) - 1)]

    def ends(self, low: float, high: float) -> tuple[str, str]:
        """Return the first and the last value between two coordinates; none: empty text."""
        names = [name for place, name in enumerate(self.places) if low <= self.middle(place) < high]
        return (names[0], names[-1]) if names else ("", "")


class Weekday(Places, _ColumnScale, frozen=True, kw_only=True):
    """The day of the week, in UTC; the week begins on Monday."""

    places = DAYS

    def place(self, rows: Rows) -> Floats:
        share = [self.middle(day) for day in range(7)]
        return _converted(lambda value: share[_moment(value).weekday()], rows, self, TIME)


class MonthOfYear(Places, _ColumnScale, frozen=True, kw_only=True):
    """The month, in UTC."""

    places = MONTHS

    def place(self, rows: Rows) -> Floats:
        share = [self.middle(month) for month in range(12)]
        return _converted(lambda value: share[_moment(value).month - 1], rows, self, TIME)


Value = str | int | float | bool


class Category(Places, _OfColumn, frozen=True, kw_only=True):
    """One of several values, each in a cell of its own."""

    values: tuple[Value, ...]
    other: Fate | None = None  # values that are not listed; None: refuse
    missing: Fate | None = None

    def __post_init__(self) -> None:
        keys = [*map(_text, self.values)]
        if len(set(keys)) < len(keys):
            raise ValueError("values must differ; remove one that is there twice")
        if len(self.places) < 2:
            raise ValueError("scale 'category' needs two or more values, or other = \"own\"")

    @property
    def places(self) -> Sequence[str]:
        """The names of the values, then of all others and of none, if they have a cell."""
        more = [name for name in ("other", "missing") if getattr(self, name) == "own"]
        return [*map(_text, self.values), *more]

    def place(self, rows: Rows) -> Floats:
        middles = {_text(value): self.middle(place) for place, value in enumerate(self.values)}
        last = len(self.places) - 1
        other = self.middle(last - (self.missing == "own")) if self.other == "own" else math.nan
        missing = self.middle(last) if self.missing == "own" else math.nan

        def share(value: Any) -> float:
            return missing if lacks(value) else middles.get(_text(value), other)

        listed_values = ", ".join(map(_text, self.values))
        wanted = f'one of its values {listed_values}; add it to values, or set other = "own"'
        return _converted(share, rows, self, wanted)


class IsMissing(Places, _OfColumn, frozen=True, kw_only=True):
    """Whether the value of a column is missing."""

    places = ("present", "missing")

    @property
    def name(self) -> str:
        return f"{self.column} is missing"

    def place(self, rows: Rows) -> Floats:
        return np.where(missing_in(rows.column(self.column)), self.middle(1), self.middle(0))


class PreviousLabelScale(msgspec.Struct, frozen=True, kw_only=True):
    """The position of the latest known label among the classes."""

    column: ClassVar[None] = None
    name: ClassVar[str] = "previous label"
    classes: tuple[str | int | float | bool, ...] | None = None
    initial: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0

    def __post_init__(self) -> None:
        if self.classes is not None and not 2 <= len(self.classes) == len(set(self.classes)):
            raise ValueError("classes must be two or more different labels")

    @property
    def wanted(self) -> str:
        if self.classes is None:
            return "a number in [0, 1]; list the labels as classes"
        return f"one of the classes {list(self.classes)}; write them as in the log"

    def has_place_for(self, label: Label) -> bool:
        return not math.isnan(_or_nan(self._share(), label))

    def place(self, rows: Rows) -> Floats:
        share, wanted = self._share(), self.wanted
        return _each(share, rows.previous, rows, subject="the previous label", wanted=wanted)

    def value_at(self, coordinate: float) -> float | str:
        if self.classes is None:
            return coordinate
        place = coordinate * (len(self.classes) - 1)
        return str(self.classes[round(place)]) if place == round(place) else ""

    def _share(self) -> Callable[[Any], float]:
        if self.classes is None:
            return lambda label: self.initial if label is None else _unit_number(label)
        last = len(self.classes) - 1
        shares: dict[Label, float] = {name: place / last for place, name in enumerate(self.classes)}
        return {**shares, None: self.initial}.__getitem__


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The elapsed fraction of the horizon; after it another begins."""

    column: ClassVar[None] = None
    name: ClassVar[str] = "slot / horizon"
    horizon: Annotated[int, msgspec.Meta(gt=0)]
    # What comes after the horizon: epochs of twice the slots each (also None), or the same again.
    after: Literal["doubling", "wrap"] | None = None

    def place(self, rows: Rows) -> Floats:
        slots = rows.first_slot + np.arange(rows.count) if rows.slots is None else rows.slots
        before = slots - 1
        if self.after == "wrap":
            return np.asarray((before % self.horizon + 1) / self.horizon)
        # Epoch k has horizon * 2**k slots and begins after horizon * (2**k - 1) of them.
        epoch = np.frexp(before // self.horizon + 1.0)[1] - 1
        length = self.horizon * (1 << epoch.astype(np.int64))
        return np.asarray((before - (length - self.horizon) + 1) / length)

    def value_at(self, coordinate: float) -> float | str:
        return coordinate * self.horizon


class VectorScale(msgspec.Struct, frozen=True, kw_only=True, eq=False, rename="kebab"):
    """A column with `size` numbers in each row, which are as many coordinates."""

    vector: Annotated[str, msgspec.Meta(min_length=1)]
    size: Annotated[int, msgspec.Meta(ge=1, le=MOST_COORDINATES)]

    @property
    def name(self) -> str:
        return self.vector

    @property
    def column(self) -> str:
        return self.vector

    def value_at(self, coordinate: float) -> float | str:
        return coordinate


class Direction(VectorScale, frozen=True, kw_only=True):
    """Where a vector points: 1/2 + u / (2 sqrt(16 + u^2)), u: a number by the root mean square.

    It needs no constants, so all sites, and a replay of their rows, have the same coordinates.
    """

    def place(self, rows: Rows) -> Floats:
        numbers = _entries(rows, self)
        places = np.empty(numbers.shape)
        step = 1 + CACHED // self.size
        for first in range(0, len(numbers), step):
            places[first : first + step] = self._places(numbers[first : first + step])
        return places

    def _places(self, numbers: Floats) -> Floats:
        largest = np.maximum(numbers.max(axis=1), -numbers.min(axis=1))
        u = numbers / np.where(largest > 0, largest, 1.0)[:, None]  # squares cannot overflow
        square = np.einsum("ij,ij->i", u, u) / self.size
        u /= np.sqrt(np.where(square > 0, square, 1.0))[:, None]
        return np.asarray(0.5 + 0.5 * (u / np.sqrt(16.0 + u * u)))


class VectorLinear(VectorScale, frozen=True, kw_only=True):
    """Linear from 0 at `low` to 1 at `high`, the same for all numbers."""

    low: float
    high: float
    clip: bool = False

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    def place(self, rows: Rows) -> Floats:
        numbers = _entries(rows, self)
        if self.clip:
            numbers = np.clip(numbers, self.low, self.high)
        elif numbers.size and not self.low <= numbers.min() <= numbers.max() <= self.high:
            row, entry = np.argwhere((numbers < self.low) | (numbers > self.high))[0].tolist()
            raise ContextError(
                f"{rows.at(row)}: entry {entry} of vector {self.vector!r} is "
                f"{show(numbers[row, entry])}, outside [{self.low}, {self.high}]; change low or "
                "high, or set clip = true"
            )
        return np.asarray((numbers - self.low) / (self.high - self.low))

    def value_at(self, coordinate: float) -> float | str:
        return self.low + coordinate * (self.high - self.low)


VECTOR_SCALES: dict[str, Any] = {"direction": Direction, "linear": VectorLinear}
SCALES: dict[str, Any] = {
    "as-is": AsIs,
    "linear": Linear,
    "log": LogScale,
    "rank": Rank,
    "hour": Hour,
    "weekday": Weekday,
    "month": MonthOfYear,
    "category": Category,
    "is-missing": IsMissing,
    "previous-label": PreviousLabelScale,
    "slot": Slot,
}


def _check_bounds(low: float, high: float) -> None:
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"low must be less than high, both finite; got {low} and {high}")


def lacks(value: Any) -> bool:
    """Return whether a value is missing: None, empty text, or not a number."""
    if isinstance(value, str):
        return value in ("", "nan", "NaN")
    return value is None or value != value  # noqa: PLR0124 - only nan differs from itself


def missing_in(values: Column) -> npt.NDArray[np.bool_]:
    if isinstance(values, np.ndarray) and values.dtype.kind in "biu":
        return np.zeros(len(values), np.bool_)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return np.isnan(values)
    plain = listed(values)
    return np.fromiter(map(lacks, plain), np.bool_, len(plain))


def _numbers(rows: Rows, scale: _ColumnScale) -> Floats:
    return _converted(float, rows, scale, "a number; correct or remove the row")


def _converted(
    convert: Callable[[Any], float], rows: Rows, scale: _ColumnScale | Category, wanted: str
) -> Floats:
    """Return the coordinates of a column; nan where a value is missing and may be."""
    subject, may_lack = f"column {scale.column!r}", scale.missing == "own"
    values = rows.column(scale.column)
    if isinstance(values, np.ndarray) and values.ndim > 1:
        raise DataError(
            f"{subject} has {values.shape[1]} numbers in each row; write it as "
            f"{{ vector = {scale.column!r}, size = {values.shape[1]} }}"
        )
    return _each(convert, values, rows, subject=subject, wanted=wanted, may_lack=may_lack)


def _entries(rows: Rows, scale: VectorScale) -> Floats:
    values = rows.column(scale.vector)
    subject = f"vector {scale.vector!r}"
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind in "biuf":
        numbers = values.astype(np.float64, copy=False)
        if len(numbers) and numbers.shape[1] != scale.size:
            raise _of_length(rows.at(0), subject, numbers.shape[1], scale.size)
    else:
        numbers = np.empty((len(values), scale.size))
        for row, value in enumerate(values):
            entries = vector_of(value)
            if entries is None or not entries.size:
                wanted = (
                    "missing" if lacks_vector(value) else f"{show(value)}, not a list of numbers"
                )
                hint = "correct or remove the row"
                raise DataError(f"{rows.at(row)}: {subject} is {wanted}; {hint}")
            if len(entries) != scale.size:
                raise _of_length(rows.at(row), subject, len(entries), scale.size)
            numbers[row] = entries
    if not np.isfinite(numbers).all():
        row, entry = np.argwhere(~np.isfinite(numbers))[0].tolist()
        raise DataError(
            f"{rows.at(row)}: entry {entry} of {subject} is {show(numbers[row, entry])}, which is "
            "not a finite number; correct or remove the row"
        )
    return numbers


def _of_length(where: str, subject: str, length: int, size: int) -> DataError:
    return DataError(
        f"{where}: {subject} has {length} numbers, but size is {size}; correct size or the row"
    )


_BETWEEN = str.maketrans("[](),;", "      ")


def vector_of(value: Any) -> Floats | None:
    """Return the numbers of a list, an array or a text; None if it is anything else.

    In a text they are a list of JSON, or have blanks, commas or semicolons between them.
    """
    try:
        entries = np.asarray(_read(value) if isinstance(value, str) else value, np.float64)
    except UNUSABLE:
        return None
    return entries if entries.ndim == 1 else None


def _read(text: str) -> list[float]:
    if not text.startswith("["):
        text = f"[{','.join(text.translate(_BETWEEN).split())}]"
    try:  # seven times as fast as `float` of each part, which reads more forms of numbers
        return msgspec.json.decode(text, type=list[float])
    except (msgspec.DecodeError, UnicodeError):
        return [float(part) for part in text.translate(_BETWEEN).split()]


def lacks_vector(value: Any) -> bool:
    """Return whether a vector is missing: None, not a number, or without entries."""
    if isinstance(value, str):
        return not value.translate(_BETWEEN).strip()
    return not len(value) if isinstance(value, list | tuple | np.ndarray) else lacks(value)


def _bounded(rows: Rows, scale: Linear | LogScale) -> Floats:
    values = _numbers(rows, scale)
    if scale.clip:
        return np.clip(values, scale.low, scale.high)
    outside = np.flatnonzero((values < scale.low) | (values > scale.high))
    if outside.size:
        raise ContextError(
            f"{rows.at(int(outside[0]))}: column {scale.column!r} is "
            f"{show(values[outside[0]])}, outside [{scale.low}, {scale.high}]; "
            "change low or high, or set clip = true"
        )
    return values


def time_of(value: Any) -> datetime | float:
    """Return a time in UTC, or seconds since the epoch where it is a number."""
    if isinstance(value, str) and (value[4:5] == "-" or "T" in value):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone(UTC)
    seconds = float(value)
    # Timestamps in milliseconds are detected: as seconds they are after the year 9999.
    if not abs(seconds) < YEAR_10000_S:
        raise ValueError("not in seconds")
    return seconds


def _day_share(value: Any) -> float:
    moment = time_of(value)
    if not isinstance(moment, datetime):
        return moment % DAY_S / DAY_S
    minutes = moment.hour * 60 + moment.minute
    return (minutes * 60 + moment.second + moment.microsecond / 1e6) / DAY_S


def _moment(value: Any) -> datetime:
    moment = time_of(value)
    return moment if isinstance(moment, datetime) else EPOCH + timedelta(seconds=moment)


def _text(value: Any) -> str:
    """Return a category as text: 3, 3.0 and "3" are the same one, and true is 1."""
    if isinstance(value, bool | float) and value == int(value):
        value = int(value)
    return str(value)


def _unit_number(label: Any) -> float:
    number = float(label)
    return number if 0 <= number <= 1 else math.nan


def _each(
    convert: Callable[[Any], float],
    values: Column,
    rows: Rows,
    *,
    subject: str,
    wanted: str,
    may_lack: bool | None = None,  # None: there is no setting for it
) -> Floats:
    if convert is float and isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        numbers = values.astype(np.float64, copy=False)
    elif isinstance(values, CodedColumn):
        numbers = _numbers_of(convert, [*values.values, None])[values.codes]
    else:
        numbers = _numbers_of(convert, listed(values))
    unusable = np.isnan(numbers)
    if not unusable.any():
        return numbers
    missing = missing_in(values)
    if may_lack:
        unusable &= ~missing
    if unusable.any():
        row = int(unusable.argmax())
        value = show(listed(values[row : row + 1])[0])
        hint = ""
        if may_lack is not None and missing[row]:
            hint = ', or set missing = "own", a cell for such rows'
        raise DataError(f"{rows.at(row)}: {subject} is {value}, which is not {wanted}{hint}")
    return numbers


def _numbers_of(convert: Callable[[Any], float], plain: Sequence[Any]) -> Floats:
    try:
        return np.fromiter(map(convert, plain), dtype=np.float64, count=len(plain))
    except UNUSABLE:
        return np.array([_or_nan(convert, value) for value in plain], dtype=np.float64)


def _or_nan(convert: Callable[[Any], float], value: Any) -> float:
    try:
        return convert(value)
    except UNUSABLE:
        return math.nan


def listed(values: Column) -> Sequence[Any]:
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind in "mM":
        # `tolist` returns integers for nanoseconds, which would be accepted as numbers.
        values = values.astype(f"{values.dtype.kind}8[us]")
    return list(values.tolist())


def show(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return reprlib.repr(value.item() if isinstance(value, np.generic) else value)
