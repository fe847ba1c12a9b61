"""Contexts in the unit cube, from the columns of a log or from live records, by scales."""

import heapq
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from covey import toml
from covey.data.logs import CodedColumn
from covey.errors import ConfigError, ContextError, DataError
from covey.types import Context, Label

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
            hint = toml.nearest(name, self.columns)
            raise DataError(f"{self.at(0)}: there is no column {name!r}{hint}")
        return self.columns[name]


Fate = Literal["own", "refuse"]  # of values without a place: a cell of their own, or none
Units = float | str  # what a coordinate stands for


class Scale(msgspec.Struct, frozen=True, kw_only=True, eq=False, rename="kebab"):
    """One coordinate, or those of a vector: maps each row to [0, 1]."""

    @property
    def column(self) -> str | None:
        return None

    @property
    def name(self) -> str:
        return self.column or ""

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return 1

    @property
    def names(self) -> list[str]:
        return [self.name]

    def place(self, rows: Rows) -> Floats:
        raise NotImplementedError

    def value_at(self, coordinate: float) -> Units:
        return coordinate

    def ends(self, low: float, high: float) -> tuple[Units, Units]:
        """Return what the ends of a cell stand for."""
        return self.value_at(low), self.value_at(high)

    def ticks(self) -> list[tuple[float, Units]]:
        return [(quarter / 4, self.value_at(quarter / 4)) for quarter in range(5)]


class _OfColumn(Scale, frozen=True, kw_only=True):
    column: Annotated[str, msgspec.Meta(min_length=1)]


class _ColumnScale(_OfColumn, frozen=True, kw_only=True):
    clip: bool = False
    missing: Fate | None = None  # None: refuse


class AsIs(_ColumnScale, frozen=True, kw_only=True):
    """The column itself."""

    def place(self, rows: Rows) -> Floats:
        values = _numbers(rows, self)
        return np.clip(values, 0.0, 1.0) if self.clip else values


class Bounded:
    """Numbers from `low` to `high`."""

    low: float
    high: float
    clip: bool

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise ValueError(
                f"low must be less than high, both finite; got {self.low} and {self.high}"
            )

    def value_at(self, coordinate: float) -> Units:
        return self.low + coordinate * (self.high - self.low)

    def within(self, numbers: Floats, rows: Rows, subject: str) -> Floats:
        """Return numbers that are clipped; raise `ContextError` for the first one outside."""
        if self.clip:
            return np.clip(numbers, self.low, self.high)
        for row, *entry in np.argwhere((numbers < self.low) | (numbers > self.high))[:1].tolist():
            where = "".join(f"entry {k} of " for k in entry)
            raise ContextError(
                f"{rows.at(row)}: {where}{subject} is {show(numbers[row, *entry])}, outside "
                f"[{self.low}, {self.high}]; change low or high, or set clip = true"
            )
        return numbers


class Linear(Bounded, _ColumnScale, frozen=True, kw_only=True):
    """Linear from 0 at `low` to 1 at `high`."""

    low: float
    high: float

    def place(self, rows: Rows) -> Floats:
        numbers = self.within(_numbers(rows, self), rows, f"column {self.column!r}")
        return (numbers - self.low) / (self.high - self.low)


class LogScale(Bounded, _ColumnScale, frozen=True, kw_only=True):
    """Logarithmic from 0 at `low` to 1 at `high`, for heavy-tailed columns."""

    low: float = 0.0
    high: float

    def place(self, rows: Rows) -> Floats:
        numbers = self.within(_numbers(rows, self), rows, f"column {self.column!r}")
        ratio: Floats = np.log1p(numbers - self.low) / np.log1p(self.high - self.low)
        # log1p need not be monotone: just below `high` the ratio can round above 1.
        return np.clip(ratio, 0.0, 1.0)

    def value_at(self, coordinate: float) -> Units:
        return self.low + math.expm1(coordinate * math.log1p(self.high - self.low))


class Rank(_ColumnScale, frozen=True, kw_only=True):
    """The fraction of a sample below the value; equal values count half."""

    sample: list[float]

    def __post_init__(self) -> None:
        if not self.sample or not np.isfinite(self.sample).all():
            raise ValueError("sample must have one or more finite numbers")
        msgspec.structs.force_setattr(self, "sample", np.sort(self.sample))

    def place(self, rows: Rows) -> Floats:
        values = _numbers(rows, self)
        below = np.searchsorted(self.sample, values, side="left")
        not_above = np.searchsorted(self.sample, values, side="right")
        share = (below + not_above) / (2 * len(self.sample))
        return np.asarray(np.where(np.isnan(values), np.nan, share), dtype=np.float64)

    def value_at(self, coordinate: float) -> Units:
        return float(np.quantile(self.sample, coordinate))


class Hour(_ColumnScale, frozen=True, kw_only=True):
    """The elapsed fraction of the day, in UTC."""

    def place(self, rows: Rows) -> Floats:
        return _converted(_day_share, rows, self, TIME)

    def value_at(self, coordinate: float) -> Units:
        minutes = round(coordinate * 24 * 60)
        return f"{minutes // 60}:{minutes % 60:02}"


class Places:
    """Values that are not numbers: each has an equal share of the axis, and lies in its middle."""

    @property
    def places(self) -> Sequence[str]:
        raise NotImplementedError

    def middle(self, place: int) -> float:
        return (place + 0.5) / len(self.places)

    def value_at(self, coordinate: float) -> Units:
        """Return the name of the value to whose share a coordinate belongs."""
        return self.places[min(int(coordinate * len(self.places)), len(self.places) - 1)]

    def ends(self, low: float, high: float) -> tuple[Units, Units]:
        """Return the first and the last value between two coordinates; none: empty text."""
        names = [name for middle, name in self.ticks() if low <= middle < high]
        return (names[0], names[-1]) if names else ("", "")

    def ticks(self) -> list[tuple[float, Units]]:
        return [(self.middle(place), name) for place, name in enumerate(self.places)]


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


class PreviousLabelScale(Scale, frozen=True, kw_only=True):
    """The position of the latest known label among the classes."""

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

    def value_at(self, coordinate: float) -> Units:
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


class Slot(Scale, frozen=True, kw_only=True):
    """The elapsed fraction of the horizon; after it another begins."""

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

    def value_at(self, coordinate: float) -> Units:
        return coordinate * self.horizon


class VectorScale(Scale, frozen=True, kw_only=True):
    """A column with `size` numbers in each row, which are as many coordinates."""

    vector: Annotated[str, msgspec.Meta(min_length=1)]
    size: Annotated[int, msgspec.Meta(ge=1, le=MOST_COORDINATES)]

    @property
    def column(self) -> str:
        return self.vector

    @property
    def names(self) -> list[str]:
        return [f"{self.vector}[{k}]" for k in range(self.size)]


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


class VectorLinear(Bounded, VectorScale, frozen=True, kw_only=True):
    """Linear from 0 at `low` to 1 at `high`, the same for all numbers."""

    low: float
    high: float
    clip: bool = False

    def place(self, rows: Rows) -> Floats:
        numbers = self.within(_entries(rows, self), rows, f"vector {self.vector!r}")
        return (numbers - self.low) / (self.high - self.low)


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


def first_outside(points: np.ndarray) -> tuple[int, int] | None:
    """Return row and coordinate of the first number outside [0, 1], if any."""
    outside = ~((points >= 0.0) & (points <= 1.0))
    if not outside.any():
        return None
    row, place = np.argwhere(outside)[0].tolist()
    return row, place


NO_LABEL = (0, None)


class LatestLabels:
    """The latest arrived label of each learner, across chunks."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, Label]] = {}  # learner -> slot, label
        self._waiting: list[tuple[int, int, int, Label]] = []  # heap of due, slot, learner, label

    def recall(self, rows: Iterable[tuple[Any, ...]], *, first_slot: int) -> list[Label | None]:
        if first_slot == 1:
            self._latest.clear()
            self._waiting.clear()
        previous = []
        for slot, (label, learner, is_revealed, delay) in enumerate(rows, start=first_slot):
            if self._waiting:
                self._settle(slot)
            previous.append(self._latest.get(learner, NO_LABEL)[1])
            if label is None or not is_revealed:
                continue
            if delay == 0:
                self._latest[learner] = (slot, label)
            elif delay > 0:
                heapq.heappush(self._waiting, (slot + delay, slot, learner, label))
            else:
                raise DataError(f"slot {slot}: the delay is {delay}; it must be 0 slots or more")
        return previous

    def _settle(self, slot: int) -> None:
        while self._waiting and self._waiting[0][0] < slot:
            _, row, learner, label = heapq.heappop(self._waiting)
            if row > self._latest.get(learner, NO_LABEL)[0]:
                self._latest[learner] = (row, label)


class Contexts:
    """The coordinates of a configuration, for logs and live records."""

    def __init__(self, scales: Sequence[Scale]) -> None:
        self.scales = list(scales)
        self._memory = LatestLabels()
        self.has_previous = any(isinstance(scale, PreviousLabelScale) for scale in scales)
        self.has_slot = any(isinstance(scale, Slot) for scale in scales)
        self.widths = [scale.size for scale in scales]
        self._owners = np.repeat(np.arange(len(self.widths)), self.widths).tolist()
        self.dimension = len(self._owners)
        self.names = [name for scale in scales for name in scale.names]
        self.vectors = {
            scale.name: scale.size for scale in scales if isinstance(scale, VectorScale)
        }
        self.columns = list(dict.fromkeys(scale.column for scale in scales if scale.column))

    def scales_of(self, coordinates: Iterable[int]) -> list[Scale]:
        """Return the scales of these coordinates, each once; a vector has several."""
        return [self.scales[k] for k in dict.fromkeys(self._owners[c] for c in coordinates)]

    def extract(
        self,
        columns: Mapping[str, Column],
        *,
        first_slot: int,
        labels: Column | None = None,
        at: Column | None = None,
        revealed: Column | None = None,
        delay: Column | None = None,
        slots: npt.NDArray[np.int64] | None = None,
    ) -> Floats:
        """Return one context per row, as a matrix of `dimension` columns.

        Rows are in consecutive slots from `first_slot` on, or in `slots`. Chunks of a log come in
        order; slot 1 starts a new log. Raises `DataError` or `ContextError` for an invalid row.
        """
        optional = {"labels": labels, "at": at, "revealed": revealed, "delay": delay}
        read = {repr(name): columns[name] for name in self.columns if name in columns}
        read |= {name: values for name, values in optional.items() if values is not None}
        count = _row_count(read or columns, first_slot)
        previous = self._recall(read, first_slot, count) if self.has_previous else ()
        return self._place(Rows(columns, first_slot, count, previous, slots=slots))

    def extract_one(
        self, record: Mapping[str, Any], *, slot: int, previous_label: Label | None = None
    ) -> Context:
        """Return the context of one live record; `previous_label` is None if unknown.

        Raises as `extract` does; does not change the state of `extract`.
        """
        columns: dict[str, Column] = {
            name: np.array([value]) if isinstance(value, np.generic) else [value]
            for name, value in record.items()
        }
        (context,) = self._place(Rows(columns, slot, 1, [previous_label])).tolist()
        return tuple(context)

    def extract_rows(
        self,
        columns: Mapping[str, Column],
        *,
        slot: int,
        count: int,
        previous_label: Label | None = None,
        is_one_slot: bool = False,
    ) -> Floats:
        """Return the contexts of a batch of live records, in consecutive slots from `slot`.

        Or all in that slot. Raises as `extract` does; does not change the state of `extract`.
        """
        previous = [previous_label] * count
        slots = np.full(count, slot) if is_one_slot else None
        return self._place(Rows(columns, slot, count, previous, is_request=True, slots=slots))

    def bounds_at(self, low: Sequence[float], high: Sequence[float]) -> list[tuple[Units, Units]]:
        """Return what the ends of a cell stand for, in the units of the columns."""
        ends = zip(self._owners, low, high, strict=True)
        return [self.scales[owner].ends(first, last) for owner, first, last in ends]

    def ticks(self) -> list[list[tuple[float, Units]]]:
        return [self.scales[owner].ticks() for owner in self._owners]

    def check_categories(self, coordinates: Sequence[int], *, slices: int) -> None:
        """Raise `ConfigError` if categories share a cell even of so many slices per dimension."""
        for scale in self.scales_of(coordinates):
            if isinstance(scale, Category | IsMissing) and len(scale.places) > slices:
                raise ConfigError(
                    f"[policy] has {slices} slices per dimension, but the context {scale.name!r} "
                    f"has {len(scale.places)} categories, which need a cell each; join some, or "
                    "raise slices with a preset that has them"
                )

    def check_labels(self, labels: Sequence[Label]) -> None:
        """Raise `DataError` for a label that cannot be a previous label."""
        for scale in self.scales:
            if isinstance(scale, PreviousLabelScale):
                unfit = next((label for label in labels if not scale.has_place_for(label)), None)
                if unfit is not None:
                    raise DataError(f"the label {show(unfit)} is not {scale.wanted}")

    def _recall(self, read: Mapping[str, Column], first_slot: int, count: int) -> Sequence[Label]:
        if "labels" not in read:
            raise DataError(
                f"slot {first_slot}: scale 'previous-label' needs the labels; pass them"
            )
        defaults = {"labels": None, "at": 0, "revealed": 1, "delay": 0}
        rows = (listed(read.get(name, [value] * count)) for name, value in defaults.items())
        return self._memory.recall(zip(*rows, strict=True), first_slot=first_slot)

    def _place(self, rows: Rows) -> Floats:
        contexts = np.empty((rows.count, self.dimension))
        end = 0
        for width, scale in zip(self.widths, self.scales, strict=True):
            # A missing value lies in a cell of its own by another coordinate, `is-missing`.
            places = scale.place(rows)
            if getattr(scale, "missing", None) == "own":
                places = np.where(np.isnan(places), 0.0, places)
            end += width
            contexts[:, end - width : end] = places.reshape(-1, width)
        outside = first_outside(contexts)
        if outside is not None:
            row, place = outside
            raise ContextError(
                f"{rows.at(row)}: context {self.names[place]!r} is {show(contexts[row, place])}; "
                "contexts must lie in [0, 1] (scale the column, or set clip = true)"
            )
        return contexts


def expanded(entries: Sequence[Any]) -> list[Any]:
    """Return the entries, and after them whether a value is missing, where that has own cells.

    Categories have a place for it among their values.
    """
    more = [
        {"column": entry.get("column"), "scale": "is-missing"}
        for entry in entries
        if isinstance(entry, Mapping)
        and entry.get("missing") == "own"
        and entry.get("scale") != "category"
    ]
    return [*entries, *(entry for entry in more if entry not in entries)]


def width_of(entry: Any) -> int:
    size = entry.get("size") if isinstance(entry, Mapping) and "vector" in entry else 1
    return size if isinstance(size, int) and 0 < size <= MOST_COORDINATES else 1


def parse(entries: Sequence[str | Mapping[str, Any]]) -> Contexts:
    """Build the contexts of a configuration; raise `ConfigError` for the first invalid entry."""
    numbered = enumerate(expanded(entries))
    contexts = Contexts([_parse_entry(entry, f"context[{at}]") for at, entry in numbered])
    for scale in contexts.scales:
        size = contexts.vectors.get(scale.column or "")
        if size is not None and size != scale.size:
            raise ConfigError(
                f"context: {scale.column!r} is a vector of {size} numbers, and something else in "
                "another entry; remove one of them"
            )
    if contexts.dimension > MOST_COORDINATES:
        raise ConfigError(
            f"context has {contexts.dimension} coordinates; the limit is {MOST_COORDINATES}, so "
            "use fewer columns or shorter vectors"
        )
    return contexts


def _parse_entry(entry: str | Mapping[str, Any], place: str) -> Scale:
    if isinstance(entry, str):
        entry = {"column": entry}
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{place}: expected a column name or a table, got {show(entry)}")
    options = dict(entry)
    kinds = VECTOR_SCALES if "vector" in options else SCALES
    scale = options.pop("scale", next(iter(kinds)))
    if not isinstance(scale, str) or scale not in kinds:
        what = "scale of a vector" if "vector" in options else "scale"
        raise ConfigError(f"{place}: unknown {what} {show(scale)}{toml.nearest(str(scale), kinds)}")
    built: Scale = toml.read(options, kinds[scale], where=f"{place} (scale {scale!r})")
    return built


def _row_count(read: Mapping[str, Column], first_slot: int) -> int:
    counts = {len(values) for values in read.values()}
    if len(counts) != 1:
        held = ", ".join(f"{name}: {len(values)}" for name, values in read.items())
        raise DataError(
            f"slot {first_slot}: columns and labels differ in length; got {held or 'none of them'}"
        )
    return counts.pop()
