"""Contexts in the unit cube from the columns of a log or from live records."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from covey.data.scales import (
    MOST_COORDINATES,
    SCALES,
    VECTOR_SCALES,
    Category,
    Column,
    Floats,
    IsMissing,
    Places,
    PreviousLabelScale,
    Rows,
    Scale,
    Slot,
    VectorScale,
    listed,
    show,
)
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


class Contexts:
    """The coordinates of a configuration, for logs and live records."""

    def __init__(self, scales: Sequence[Scale]) -> None:
        self.scales = list(scales)
        self._memory = LatestLabels()
        self.has_previous = any(isinstance(scale, PreviousLabelScale) for scale in scales)
        self.has_slot = any(isinstance(scale, Slot) for scale in scales)
        self.widths = [getattr(scale, "size", 1) for scale in scales]
        self._owners = np.repeat(np.arange(len(self.widths)), self.widths).tolist()
        self.dimension = len(self._owners)
        self.names = [
            name
            for scale in scales
            for name in (
                [f"{scale.name}[{k}]" for k in range(scale.size)]
                if isinstance(scale, VectorScale)
                else [scale.name]
            )
        ]
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

        Rows are in consecutive slots from `first_slot` on, or in `slots`. Chunks of a log must come
        in order; slot 1 starts a new log. Raises `DataError` or `ContextError` for an invalid row.
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

    def bounds_at(
        self, low: Sequence[float], high: Sequence[float]
    ) -> list[tuple[float | str, float | str]]:
        """Return what the ends of a cell stand for, in the units of the columns."""
        scales = (self.scales[owner] for owner in self._owners)
        return [
            scale.ends(first, last)
            if isinstance(scale, Places)
            else (scale.value_at(first), scale.value_at(last))
            for scale, first, last in zip(scales, low, high, strict=True)
        ]

    def ticks(self) -> list[list[tuple[float, float | str]]]:
        return [
            [(scale.middle(place), name) for place, name in enumerate(scale.places)]
            if isinstance(scale, Places)
            else [(quarter / 4, scale.value_at(quarter / 4)) for quarter in range(5)]
            for scale in (self.scales[owner] for owner in self._owners)
        ]

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
        check_unit(contexts, names=self.names, at=rows.at)
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
        if size is not None and size != getattr(scale, "size", 1):
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
            f"{at(outside[0])}: context {names[outside[1]]!r} is {show(contexts[outside])}; "
            "contexts must lie in [0, 1] (scale the column, or set clip = true)"
        )


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
        raise ConfigError(f"{place}: unknown {what} {show(scale)}{nearest(str(scale), kinds)}")
    if "vector" in options and "size" not in options:
        raise ConfigError(
            f"{place}: vector {show(options['vector'])} needs the key 'size', how many numbers "
            "each row of it has"
        )
    _check_keys(options, kinds[scale], scale, place)
    try:
        built: Scale = msgspec.convert(options, kinds[scale], dec_hook=_sample)
    except msgspec.ValidationError as error:
        reason, _, key = str(error).partition(" - at `$")
        raise ConfigError(f"{place}{key.rstrip('`')}: {reason}") from None
    return built


_FEW = 3  # scales that a message names


def _check_keys(options: Mapping[str, Any], kind: Any, scale: str, place: str) -> None:
    needed = {field.encode_name: field.required for field in msgspec.structs.fields(kind)}
    for key in options:
        if key not in needed:
            others = [name for name, kind in SCALES.items() if key in _keys(kind)]
            hint = nearest(str(key), needed)
            if 0 < len(others) <= _FEW:
                hint = f"; it is a key of scale {' or '.join(map(repr, others))}"
            raise ConfigError(f"{place}: unknown key {key!r} of scale {scale!r}{hint}")
    for key, is_required in needed.items():
        if is_required and key not in options:
            raise ConfigError(f"{place}: scale {scale!r} needs the key {key!r}")


def _keys(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _sample(_: type, values: Any) -> Floats:
    try:
        sample = np.array(msgspec.convert(values, list[float]), dtype=np.float64)
    except msgspec.ValidationError:
        sample = np.empty(0)
    if not sample.size or not np.isfinite(sample).all():
        raise ValueError("expected one or more finite numbers")
    return np.sort(sample)


def _row_count(read: Mapping[str, Column], first_slot: int) -> int:
    counts = {len(values) for values in read.values()}
    if len(counts) != 1:
        held = ", ".join(f"{name}: {len(values)}" for name, values in read.items())
        raise DataError(
            f"slot {first_slot}: columns and labels differ in length; got {held or 'none of them'}"
        )
    return counts.pop()
