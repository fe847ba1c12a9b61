"""Scale raw columns to contexts in the unit cube."""

import heapq
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from covey.errors import ConfigError, ContextError, DataError
from covey.toml import nearest
from covey.types import Context, Label


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
        self._next_slot: int | None = None

    def recall(self, rows: Iterable[tuple[Any, ...]], *, first_slot: int) -> list[Label | None]:
        """Return the latest label at each row, and record the labels of these rows."""
        if first_slot == 1:
            self._latest.clear()
            self._waiting.clear()
        elif self._next_slot not in (None, first_slot):
            raise DataError(
                f"slot {first_slot}: expected slot {self._next_slot} next; scale "
                "'previous-label' needs the chunks of a log in order"
            )
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
        self._next_slot = first_slot + len(previous)
        return previous

    def _settle(self, slot: int) -> None:
        while self._waiting and self._waiting[0][0] < slot:
            _, row, learner, label = heapq.heappop(self._waiting)
            if row > self._latest.get(learner, NO_LABEL)[0]:
                self._latest[learner] = (row, label)


Floats = npt.NDArray[np.float64]
Column = npt.NDArray[Any] | Sequence[Any]

DAY_S = 86_400
YEAR_10000_S = 253_402_300_800  # in seconds since the epoch
UNUSABLE = (LookupError, OverflowError, TypeError, ValueError)


class Rows(msgspec.Struct, frozen=True):
    """Consecutive rows of a log, or one record of a live service."""

    columns: Mapping[str, Column]
    first_slot: int
    count: int
    previous: Sequence[Label | None] = ()  # per row the latest label that had arrived
    is_request: bool = False  # messages name rows, not slots

    def at(self, row: int) -> str:
        """Return the name of a row in messages."""
        return f"row {row}" if self.is_request else f"slot {self.first_slot + row}"

    def column(self, name: str) -> Column:
        if name not in self.columns:
            hint = nearest(name, self.columns)
            raise DataError(f"{self.at(0)}: there is no column {name!r}{hint}")
        return self.columns[name]


class Scale(Protocol):
    """One coordinate: maps each row to [0, 1]."""

    @property
    def name(self) -> str: ...

    @property
    def column(self) -> str | None: ...

    def place(self, rows: Rows) -> Floats: ...

    def value_at(self, coordinate: float) -> float | str:
        """Return what the coordinate stands for, in the unit of the column."""
        ...


class Contexts:
    """The coordinates of a configuration, for logs and live records."""

    def __init__(self, scales: Sequence[Scale]) -> None:
        self.scales = self._scales = list(scales)
        self._memory = LatestLabels()
        self.has_previous = any(isinstance(scale, PreviousLabelScale) for scale in scales)
        self.has_slot = any(isinstance(scale, Slot) for scale in scales)
        self.dimension = len(self._scales)
        self.names = [scale.name for scale in scales]
        self.columns = list(dict.fromkeys(scale.column for scale in scales if scale.column))
        self.sample_rows = max((getattr(scale, "sample_rows", 0) for scale in scales), default=0)

    def learn_sample(self, columns: Mapping[str, Column]) -> None:
        """Take the samples of rank scales from the first rows of a log.

        If there are fewer than `sample_rows` rows, all are used; zero rows raise `DataError`.
        """
        rows = Rows(columns, first_slot=1, count=0)
        self._scales = [
            scale.learnt(rows) if isinstance(scale, Rank) and scale.sample_rows else scale
            for scale in self.scales
        ]

    def extract(
        self,
        columns: Mapping[str, Column],
        *,
        first_slot: int,
        labels: Column | None = None,
        at: Column | None = None,
        revealed: Column | None = None,
        delay: Column | None = None,
    ) -> Floats:
        """Return one context per row, as a matrix of `dimension` columns.

        Chunks of a log must come in order; slot 1 starts a new log. Raises `DataError` or
        `ContextError` for an invalid row.
        """
        optional = {"labels": labels, "at": at, "revealed": revealed, "delay": delay}
        given = {repr(name): columns[name] for name in self.columns if name in columns}
        given |= {name: values for name, values in optional.items() if values is not None}
        count = _row_count(given or columns, first_slot)
        previous = self._recall(given, first_slot, count) if self.has_previous else ()
        return self._place(Rows(columns, first_slot, count, previous))

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
    ) -> Floats:
        """Return the contexts of a batch of live records, in consecutive slots from `slot`.

        Raises as `extract` does; does not change the state of `extract`.
        """
        return self._place(Rows(columns, slot, count, [previous_label] * count, is_request=True))

    def values_at(self, context: Sequence[float]) -> list[float | str]:
        """Return what a context stands for, in the units of the columns."""
        pairs = zip(self._scales, context, strict=True)
        return [scale.value_at(coordinate) for scale, coordinate in pairs]

    def check_labels(self, labels: Sequence[Label]) -> None:
        """Raise `DataError` for a label that cannot be a previous label."""
        for scale in self._scales:
            if isinstance(scale, PreviousLabelScale):
                unfit = next((label for label in labels if not scale.has_place_for(label)), None)
                if unfit is not None:
                    raise DataError(f"the label {_show(unfit)} is not {scale.wanted}")

    def _recall(self, given: Mapping[str, Column], first_slot: int, count: int) -> Sequence[Label]:
        if "labels" not in given:
            raise DataError(
                f"slot {first_slot}: scale 'previous-label' needs the labels; pass them"
            )
        defaults = {"labels": None, "at": 0, "revealed": 1, "delay": 0}
        rows = (_listed(given.get(name, [value] * count)) for name, value in defaults.items())
        return self._memory.recall(zip(*rows, strict=True), first_slot=first_slot)

    def _place(self, rows: Rows) -> Floats:
        contexts = np.empty((rows.count, self.dimension))
        for coordinate, scale in enumerate(self._scales):
            contexts[:, coordinate] = scale.place(rows)
        check_unit(contexts, names=self.names, at=rows.at)
        return contexts


def parse(entries: Sequence[str | Mapping[str, Any]]) -> Contexts:
    """Build the contexts of a configuration; raise `ConfigError` for the first invalid entry."""
    return Contexts([_parse_entry(entry, f"context[{at}]") for at, entry in enumerate(entries)])


def check_unit(
    contexts: npt.NDArray[Any],
    *,
    names: Sequence[str],
    at: Callable[[int], str] = lambda row: f"slot {row + 1}",
) -> None:
    """Raise `ContextError` for the first context outside the unit cube; `at` names a row."""
    if contexts.ndim != 2 or contexts.shape[1] != len(names):
        raise ContextError(
            f"{at(0)}: expected {len(names)} contexts per row, got shape {contexts.shape}"
        )
    outside = first_outside(contexts)
    if outside is not None:
        raise ContextError(
            f"{at(outside[0])}: context {names[outside[1]]!r} is {_show(contexts[outside])}; "
            "contexts must lie in [0, 1] (scale the column, or set clip = true)"
        )


class _ColumnScale(msgspec.Struct, frozen=True, kw_only=True, eq=False, rename="kebab"):
    column: Annotated[str, msgspec.Meta(min_length=1)]
    clip: bool = False

    @property
    def name(self) -> str:
        return self.column


class AsIs(_ColumnScale, frozen=True, kw_only=True):
    """The column itself."""

    def place(self, rows: Rows) -> Floats:
        values = _numbers(rows, self.column)
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

    sample_rows: Annotated[int, msgspec.Meta(gt=0)] = 0
    sample: np.ndarray[Any, np.dtype[np.float64]] | None = None

    def __post_init__(self) -> None:
        if (self.sample_rows == 0) == (self.sample is None):
            raise ValueError("scale 'rank' needs one of 'sample-rows' and 'sample'")

    def learnt(self, rows: Rows) -> "Rank":
        sample = _numbers(rows, self.column)[: self.sample_rows]
        if not sample.size:
            raise DataError(f"column {self.column!r} has no rows for a sample; pass at least one")
        return Rank(column=self.column, clip=self.clip, sample=np.sort(sample))

    def place(self, rows: Rows) -> Floats:
        values = _numbers(rows, self.column)
        if self.sample is None:
            raise DataError(
                f"slot {rows.first_slot}: column {self.column!r} has no sample; "
                f"pass the first {self.sample_rows} rows to learn_sample, or configure a sample"
            )
        below = np.searchsorted(self.sample, values, side="left")
        not_above = np.searchsorted(self.sample, values, side="right")
        return np.asarray((below + not_above) / (2 * self.sample.size), dtype=np.float64)

    def value_at(self, coordinate: float) -> float | str:
        if self.sample is None:
            return f"{100 * coordinate:.3g} %"
        return float(np.quantile(self.sample, coordinate))


class Hour(_ColumnScale, frozen=True, kw_only=True):
    """The elapsed fraction of the day, in UTC."""

    def place(self, rows: Rows) -> Floats:
        wanted = "a time; write 2024-05-01T13:30:00, or seconds since the epoch"
        return _converted(_day_share, rows, self.column, wanted)

    def value_at(self, coordinate: float) -> float | str:
        minutes = round(coordinate * 24 * 60)
        return f"{minutes // 60}:{minutes % 60:02}"


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
        """The valid labels, as text."""
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

    @property
    def sequel(self) -> str:
        """What happens after the horizon, as text."""
        if self.after == "wrap":
            return f"after slot {self.horizon} the clock begins again, every {self.horizon} slots"
        again = f"{2 * self.horizon} slots, then {4 * self.horizon}, and so on"
        return f"after slot {self.horizon} the clock begins again with epochs of {again}"

    def place(self, rows: Rows) -> Floats:
        before = np.arange(rows.first_slot, rows.first_slot + rows.count) - 1
        if self.after == "wrap":
            return np.asarray((before % self.horizon + 1) / self.horizon)
        # Epoch k has horizon * 2**k slots and begins after horizon * (2**k - 1) of them.
        epoch = np.frexp(before // self.horizon + 1.0)[1] - 1
        length = self.horizon * (1 << epoch.astype(np.int64))
        return np.asarray((before - (length - self.horizon) + 1) / length)

    def value_at(self, coordinate: float) -> float | str:
        return coordinate * self.horizon


SCALES: dict[str, Any] = {
    "as-is": AsIs,
    "linear": Linear,
    "log": LogScale,
    "rank": Rank,
    "hour": Hour,
    "previous-label": PreviousLabelScale,
    "slot": Slot,
}


def _parse_entry(entry: str | Mapping[str, Any], place: str) -> Scale:
    if isinstance(entry, str):
        entry = {"column": entry}
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{place}: expected a column name or a table, got {_show(entry)}")
    options = dict(entry)
    scale = options.pop("scale", "as-is")
    if not isinstance(scale, str) or scale not in SCALES:
        raise ConfigError(f"{place}: unknown scale {_show(scale)}{nearest(str(scale), SCALES)}")
    _check_keys(options, scale, place)
    try:
        built: Scale = msgspec.convert(options, SCALES[scale], dec_hook=_sample)
    except msgspec.ValidationError as error:
        reason, _, key = str(error).partition(" - at `$")
        raise ConfigError(f"{place}{key.rstrip('`')}: {reason}") from None
    return built


def _check_keys(options: Mapping[str, Any], scale: str, place: str) -> None:
    needed = {field.encode_name: field.required for field in msgspec.structs.fields(SCALES[scale])}
    for key in options:
        if key not in needed:
            hint = nearest(str(key), needed)
            raise ConfigError(f"{place}: unknown key {key!r} of scale {scale!r}{hint}")
    for key, is_required in needed.items():
        if is_required and key not in options:
            raise ConfigError(f"{place}: scale {scale!r} needs the key {key!r}")


def _sample(_: type, values: Any) -> Floats:
    try:
        sample = np.array(msgspec.convert(values, list[float]), dtype=np.float64)
    except msgspec.ValidationError:
        sample = np.empty(0)
    if not sample.size or not np.isfinite(sample).all():
        raise ValueError("expected one or more finite numbers")
    return np.sort(sample)


def _check_bounds(low: float, high: float) -> None:
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"low must be less than high, both finite; got {low} and {high}")


def _row_count(read: Mapping[str, Column], first_slot: int) -> int:
    counts = {len(values) for values in read.values()}
    if len(counts) != 1:
        held = ", ".join(f"{name}: {len(values)}" for name, values in read.items())
        raise DataError(
            f"slot {first_slot}: columns and labels differ in length; got {held or 'none of them'}"
        )
    return counts.pop()


def _numbers(rows: Rows, name: str) -> Floats:
    return _converted(float, rows, name, "a number; correct or remove the row")


def _converted(convert: Callable[[Any], float], rows: Rows, name: str, wanted: str) -> Floats:
    return _each(convert, rows.column(name), rows, subject=f"column {name!r}", wanted=wanted)


def _bounded(rows: Rows, scale: Linear | LogScale) -> Floats:
    values = _numbers(rows, scale.column)
    if scale.clip:
        return np.clip(values, scale.low, scale.high)
    outside = np.flatnonzero((values < scale.low) | (values > scale.high))
    if outside.size:
        raise ContextError(
            f"{rows.at(int(outside[0]))}: column {scale.column!r} is "
            f"{_show(values[outside[0]])}, outside [{scale.low}, {scale.high}]; "
            "change low or high, or set clip = true"
        )
    return values


def _day_share(value: Any) -> float:
    if isinstance(value, str) and (value[4:5] == "-" or "T" in value):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        seconds = float(value)
        # Timestamps in milliseconds are detected: as seconds they are after the year 9999.
        return seconds % DAY_S / DAY_S if abs(seconds) < YEAR_10000_S else math.nan
    moment = value if value.tzinfo is None else value.astimezone(UTC)
    minutes = moment.hour * 60 + moment.minute
    return (minutes * 60 + moment.second + moment.microsecond / 1e6) / DAY_S


def _unit_number(label: Any) -> float:
    number = float(label)
    return number if 0 <= number <= 1 else math.nan


def _each(
    convert: Callable[[Any], float], values: Column, rows: Rows, *, subject: str, wanted: str
) -> Floats:
    listed = _listed(values)
    try:
        numbers = np.fromiter(map(convert, listed), dtype=np.float64, count=len(listed))
    except UNUSABLE:
        numbers = np.array([_or_nan(convert, value) for value in listed], dtype=np.float64)
    missing = np.isnan(numbers)
    if missing.any():
        row = int(missing.argmax())
        value = _show(listed[row])
        raise DataError(f"{rows.at(row)}: {subject} is {value}, which is not {wanted}")
    return numbers


def _or_nan(convert: Callable[[Any], float], value: Any) -> float:
    try:
        return convert(value)
    except UNUSABLE:
        return math.nan


def _listed(values: Column) -> Sequence[Any]:
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind in "mM":
        # `tolist` returns integers for nanoseconds, which would be accepted as numbers.
        values = values.astype(f"{values.dtype.kind}8[us]")
    return list(values.tolist())


def _show(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return reprlib.repr(value.item() if isinstance(value, np.generic) else value)
