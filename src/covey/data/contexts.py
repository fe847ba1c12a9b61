"""Contexts in the unit cube from the columns of a log or from live records."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from covey.data.scales import (
    SCALES,
    Category,
    Column,
    Floats,
    IsMissing,
    Places,
    PreviousLabelScale,
    Rank,
    Rows,
    Scale,
    Slot,
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
        is_one_slot: bool = False,
    ) -> Floats:
        """Return the contexts of a batch of live records, in consecutive slots from `slot`.

        Or all in that slot. Raises as `extract` does; does not change the state of `extract`.
        """
        previous = [previous_label] * count
        rows = Rows(columns, slot, count, previous, is_request=True, is_one_slot=is_one_slot)
        return self._place(rows)

    def bounds_at(
        self, low: Sequence[float], high: Sequence[float]
    ) -> list[tuple[float | str, float | str]]:
        """Return what the ends of a cell stand for, in the units of the columns."""
        return [
            scale.ends(first, last)
            if isinstance(scale, Places)
            else (scale.value_at(first), scale.value_at(last))
            for scale, first, last in zip(self._scales, low, high, strict=True)
        ]

    def ticks(self) -> list[list[tuple[float, float | str]]]:
        """Return places on the axis of each coordinate, with what they stand for."""
        return [
            [(scale.middle(place), name) for place, name in enumerate(scale.places)]
            if isinstance(scale, Places)
            else [(quarter / 4, scale.value_at(quarter / 4)) for quarter in range(5)]
            for scale in self._scales
        ]

    def check_categories(self, coordinates: Sequence[int], *, slices: int) -> None:
        """Raise `ConfigError` if categories share a cell even of so many slices per dimension."""
        for scale in (self._scales[k] for k in coordinates):
            if isinstance(scale, Category | IsMissing) and len(scale.places) > slices:
                raise ConfigError(
                    f"[policy] has {slices} slices per dimension, but the context {scale.name!r} "
                    f"has {len(scale.places)} categories, which need a cell each; raise slices"
                )

    def check_labels(self, labels: Sequence[Label]) -> None:
        """Raise `DataError` for a label that cannot be a previous label."""
        for scale in self._scales:
            if isinstance(scale, PreviousLabelScale):
                unfit = next((label for label in labels if not scale.has_place_for(label)), None)
                if unfit is not None:
                    raise DataError(f"the label {show(unfit)} is not {scale.wanted}")

    def _recall(self, given: Mapping[str, Column], first_slot: int, count: int) -> Sequence[Label]:
        if "labels" not in given:
            raise DataError(
                f"slot {first_slot}: scale 'previous-label' needs the labels; pass them"
            )
        defaults = {"labels": None, "at": 0, "revealed": 1, "delay": 0}
        rows = (listed(given.get(name, [value] * count)) for name, value in defaults.items())
        return self._memory.recall(zip(*rows, strict=True), first_slot=first_slot)

    def _place(self, rows: Rows) -> Floats:
        contexts = np.empty((rows.count, self.dimension))
        for coordinate, scale in enumerate(self._scales):
            # A missing value lies in a cell of its own by another coordinate, `is-missing`.
            places = scale.place(rows)
            may_lack = getattr(scale, "missing", None) == "own"
            contexts[:, coordinate] = (
                np.where(np.isnan(places), 0.0, places) if may_lack else places
            )
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


def parse(entries: Sequence[str | Mapping[str, Any]]) -> Contexts:
    """Build the contexts of a configuration; raise `ConfigError` for the first invalid entry."""
    numbered = enumerate(expanded(entries))
    return Contexts([_parse_entry(entry, f"context[{at}]") for at, entry in numbered])


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
    scale = options.pop("scale", "as-is")
    if not isinstance(scale, str) or scale not in SCALES:
        raise ConfigError(f"{place}: unknown scale {show(scale)}{nearest(str(scale), SCALES)}")
    _check_keys(options, scale, place)
    try:
        built: Scale = msgspec.convert(options, SCALES[scale], dec_hook=_sample)
    except msgspec.ValidationError as error:
        reason, _, key = str(error).partition(" - at `$")
        raise ConfigError(f"{place}{key.rstrip('`')}: {reason}") from None
    return built


_FEW = 3  # scales that a message names


def _check_keys(options: Mapping[str, Any], scale: str, place: str) -> None:
    needed = {field.encode_name: field.required for field in msgspec.structs.fields(SCALES[scale])}
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
