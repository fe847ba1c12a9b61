"""Checks of what callers pass in: rows, contexts and labels; feature views; label sets."""

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from covey.data.contexts import Contexts, first_outside
from covey.errors import ConfigError, ConflictingLabel, ContextError, DataError, UnfitLabel
from covey.toml import nearest
from covey.types import Context, Cost, Label

Rows = Sequence[Any] | np.ndarray
Key = tuple[str, Label]
PLAIN = (str, int, bool)  # types that are always valid labels
PLAIN_KINDS = (str, int, float)
MOST_WHOLE = 2**53  # largest integer that is exact as a float
# How data frames give their rows: of polars, pyarrow, pandas.
RECORDS: dict[str, tuple[str, ...]] = {"to_dicts": (), "to_pylist": (), "to_dict": ("records",)}
MOST_TEXT = 1_000  # characters of a stored or sent label


def record_of(instance: Any) -> Any:
    """Return a row of a data frame as a mapping, and any other instance as it is."""
    is_series = hasattr(instance, "to_dict") and hasattr(instance, "index")
    return instance.to_dict() if is_series else instance


def rows_of(instances: Any) -> Rows:
    """Return the instances of a batch; those of a data frame are mappings.

    Raises `DataError` if they are none of a list, an array and a frame, or if rows differ in width.
    """
    if isinstance(instances, np.ndarray) and instances.ndim > 0:
        return instances
    for method, arguments in RECORDS.items():
        if hasattr(instances, "columns") and hasattr(instances, method):
            return list(getattr(instances, method)(*arguments))
    if not isinstance(instances, Sequence) or isinstance(instances, str):
        raise DataError(
            f"the instances of a batch are a {type(instances).__name__}; pass a list, an array or "
            "a data frame"
        )
    widths = [len(row) if isinstance(row, list | tuple | np.ndarray) else -1 for row in instances]
    for place, width in enumerate(widths):
        if width != widths[0]:
            raise DataError(
                f"row {place} of the batch has {_values(width)} and row 0 has "
                f"{_values(widths[0])}; all rows need the same width"
            )
    return instances


def context_of(context: Any) -> Context:
    """Return one context; raise `ContextError` for what is not a sequence of numbers."""
    try:
        return () if context is None else tuple(map(float, context))
    except (TypeError, ValueError):
        raise ContextError(
            f"the context is {reprlib.repr(context)}; give one number per coordinate, as in (0.5,)"
        ) from None


def contexts_of(contexts: Any, rows: Rows) -> list[Context]:
    if contexts is None:
        return [()] * len(rows)
    points = list(map(tuple, contexts.tolist() if isinstance(contexts, np.ndarray) else contexts))
    _check_lengths(len(rows), "instances", len(points), "contexts")
    return points


def points_of(contexts: Any, rows: Rows, *, dimension: int) -> np.ndarray:
    coordinates = np.empty((len(rows), 0)) if contexts is None else contexts
    try:
        points = np.ascontiguousarray(coordinates, np.float64)
    except (TypeError, ValueError):
        raise ContextError(f"contexts are not {dimension} numbers in every row") from None
    if points.ndim:
        _check_lengths(len(rows), "instances", len(points), "contexts")
    if not points.size:
        points = points.reshape(len(points), 0)
    if points.ndim != 2 or points.shape[1] != dimension:
        width = points.shape[-1] if points.ndim == 2 else "no"
        raise ContextError(f"contexts have {width} coordinates; this learner's have {dimension}")
    outside = first_outside(points)
    if outside is not None:
        row, place = outside
        raise ContextError(
            f"row {row} of the batch: context coordinate {place} is {points[row, place]}; it must "
            "lie in [0, 1]"
        )
    return points


def as_label(value: Any) -> Label:
    """Return `value` as a label: hashable, not None, finite; NumPy scalars are converted.

    Raises `ValueError` for an invalid label.
    """
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{value!r}, which is not a label")
    try:
        hash(value)
    except TypeError:
        raise ValueError(f"a {type(value).__name__}, which is not a label") from None
    return cast("Label", value)


def plain_label(label: Any) -> Label:
    """Return a label that can be stored and sent: text, a number or a boolean.

    Raises `DataError` for any other.
    """
    try:
        plain = as_label(label)
    except ValueError as error:
        raise DataError(f"the label is {error}") from None
    if isinstance(plain, str):
        if len(plain) > MOST_TEXT:
            raise DataError(f"the label has {len(plain)} characters; the limit is {MOST_TEXT}")
        try:
            plain.encode()
        except UnicodeEncodeError:
            raise DataError(f"the label is {plain!r}, which is not valid UTF-8") from None
    is_large = isinstance(plain, int) and abs(plain) > MOST_WHOLE
    if is_large or not isinstance(plain, str | int | float):
        raise DataError(f"the label is {reprlib.repr(plain)}; a node accepts text and numbers")
    return plain


def key_of(label: Label) -> Key:
    """Return a label with its JSON type: 1 and 1.0 are equal, 1 and true differ."""
    if isinstance(label, bool):
        return "truth value", label
    return ("text" if isinstance(label, str) else "number"), label


def check_kind(label: Any, answer: Any, what: str) -> None:
    """Raise `UnfitLabel` if a label is text and the answer to `what` a number, or the reverse."""
    kinds = {isinstance(value, str) for value in (label, answer) if isinstance(value, PLAIN_KINDS)}
    if len(kinds) > 1:
        raise UnfitLabel(
            f"{what}: the label is {label!r}, but the answer is {answer!r}; use numbers only, or "
            "text only"
        )


def truths_of(tickets: Sequence[int], labels: Any) -> dict[int, Label]:
    """Return the label of each ticket; duplicate tickets must have the same label."""
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    _check_lengths(len(tickets), "tickets", len(values), "labels")
    truths: dict[int, Label] = {}
    for place, (ticket, value) in enumerate(zip(tickets, values, strict=True)):
        try:
            label = value if type(value) in PLAIN else as_label(value)
        except ValueError as error:
            raise DataError(f"label {place} of the batch is {error}") from None
        if truths.setdefault(ticket, label) != label:
            raise ConflictingLabel(
                f"duplicate ticket {ticket!r} in the batch, with the labels "
                f"{truths[ticket]!r} and {label!r}; the batch was rejected"
            )
    return truths


def costs_of(tickets: Sequence[int], costs: Sequence[Cost] | None) -> dict[int, Cost]:
    if costs is None:
        return {}
    _check_lengths(len(tickets), "tickets", len(costs), "costs")
    return dict(zip(tickets, costs, strict=True))


def share_of(rows: Rows, places: list[int]) -> Rows:
    if isinstance(rows, np.ndarray):
        return rows[places]
    return [rows[place] for place in places]


def grouped(keys: Iterable[Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    return groups


def _values(width: int) -> str:
    return "no values to count" if width < 0 else f"{width} values"


def _check_lengths(count: int, what: str, other: int, others: str) -> None:
    if count != other:
        raise DataError(
            f"the batch has {count} {what} and {other} {others}; the numbers must be equal"
        )


ALL = -1  # no view matches: the arm receives the whole instance


class ViewTable(msgspec.Struct, frozen=True, kw_only=True):
    """A `[[learner.view]]` table: columns that arms receive for contexts within bounds."""

    columns: list[str | int]
    arms: list[str] | None = None  # None: all
    where: dict[str, tuple[float, float]] = {}  # context -> from, to


class FeatureView(NamedTuple):
    """A view with resolved context coordinates: index, low, high."""

    columns: list[str | int]
    arms: frozenset[str] | None
    where: tuple[tuple[int, float, float], ...]

    def fits(self, arm: str, context: Context) -> bool:
        if self.arms is not None and arm not in self.arms:
            return False
        return all(low <= context[k] <= high for k, low, high in self.where)


def checked_views(
    tables: Sequence[ViewTable], owner: str, arms: Sequence[str], contexts: Sequence[str]
) -> tuple[FeatureView, ...]:
    numbered = enumerate(tables, 1)
    return tuple(_view(table, f"{owner}: view {k}", arms, contexts) for k, table in numbered)


def shown(views: Sequence[FeatureView], arm: str, context: Context) -> int:
    """Return the index of the first matching view; `ALL` if none matches."""
    return next((k for k, view in enumerate(views) if view.fits(arm, context)), ALL)


def cut(instance: Any, columns: Sequence[str | int]) -> Any:
    try:
        if isinstance(instance, Mapping):
            return {column: instance[column] for column in columns}
        if isinstance(instance, np.ndarray):
            return instance[np.array(columns)]
        return [instance[column] for column in columns]
    except (LookupError, TypeError):
        raise DataError(
            f"a view needs the columns {list(columns)!r}, which are missing in the instance "
            f"({type(instance).__name__})"
        ) from None


Columns = list[str] | None


def picked(instances: Any, columns: Columns) -> Any:
    if isinstance(instances, np.ndarray):
        return instances
    instances = map(record_of, instances)
    return [
        _row(index, instance, columns) if isinstance(instance, Mapping) else instance
        for index, instance in enumerate(instances)
    ]


def named(instance: Any, columns: Columns) -> Mapping[str, Any]:
    """Return an instance by name; `columns` name the values of one that is a row."""
    instance = record_of(instance)
    if isinstance(instance, Mapping):
        return instance
    if columns is None:
        raise DataError(
            f"an instance is a {type(instance).__name__}, but the model needs named values; send "
            "mappings, or name the values of a row with columns = [...]"
        )
    if len(instance) != len(columns):
        raise DataError(f"an instance has {len(instance)} values, but columns names {len(columns)}")
    return dict(zip(columns, instance, strict=True))


def _row(index: int, instance: Mapping[str, Any], columns: Columns) -> list[Any]:
    if columns is None:
        raise DataError(
            "an instance is a mapping, but the model needs rows; list the names of a row in order "
            "with columns = [...]"
        )
    for column in columns:
        if column not in instance:
            raise DataError(f"row {index} has no {column!r}, which columns names")
    return [instance[column] for column in columns]


def _view(
    table: ViewTable, where: str, arms: Sequence[str], contexts: Sequence[str]
) -> FeatureView:
    if not table.columns:
        raise ConfigError(f"{where} has no columns; list at least one")
    for arm in table.arms or ():
        if arm not in arms:
            raise ConfigError(f"{where}: unknown arm {arm!r}{nearest(arm, arms)}")
    bounds = []
    for name, (low, high) in table.where.items():
        if name not in contexts:
            raise ConfigError(f"{where}: unknown context {name!r}{nearest(name, contexts)}")
        if not 0 <= low <= high <= 1:
            raise ConfigError(
                f"{where}: {name} is [{low}, {high}]; it must be an interval in [0, 1]"
            )
        bounds.append((list(contexts).index(name), low, high))
    for_arms = None if table.arms is None else frozenset(table.arms)
    return FeatureView(table.columns, for_arms, tuple(bounds))


SHOWN = 5  # classes in a message


class LabelSet:
    """The valid labels. Text, numbers and booleans are distinct: 1 is not true."""

    def __init__(self, classes: Sequence[Label] = (), contexts: Contexts | None = None) -> None:
        """Without `classes` any label is valid; `contexts` can use it as the previous label."""
        self.classes = tuple(classes)
        self._contexts = contexts
        self._keys = frozenset(map(key_of, classes))

    def check(self, labels: Sequence[Label]) -> None:
        """Raise `UnfitLabel` for a label that is not one of the classes."""
        if "" in labels:
            raise UnfitLabel("truth is an empty text, which is not a label")
        for label in self.unfit(labels):
            raise UnfitLabel(f"truth is {reprlib.repr(label)}, which is not {self.wanted}")

    def check_own(self, labels: Sequence[Label]) -> None:
        """Raise `UnfitLabel` for an invalid label of an own instance."""
        self.check(labels)
        if self._contexts is not None:
            try:
                self._contexts.check_labels(labels)
            except DataError as error:
                raise UnfitLabel(f"truth: {error}") from None

    @property
    def wanted(self) -> str:
        few = ", ".join(map(reprlib.repr, self.classes[:SHOWN]))
        more = len(self.classes) - SHOWN
        return f"one of the classes {few}" + (f" and {more} more" if more > 0 else "")

    def unfit(self, labels: Sequence[Label]) -> list[Label]:
        distinct = set(zip(map(type, labels), labels, strict=True))  # 1 and True are not the same
        return [label for _, label in distinct if not self.has(label)]

    def has(self, label: Label) -> bool:
        """Return whether a label is one of the classes; true without classes."""
        return not self._keys or key_of(label) in self._keys


class NumberSet(LabelSet):
    """The valid labels of a site with a loss: numbers."""

    @property
    def wanted(self) -> str:
        return "a number, as the loss of the site needs"

    def has(self, label: Label) -> bool:
        return isinstance(label, int | float) and not isinstance(label, bool)


ANY = LabelSet()


def check_plain(labels: list[Any]) -> None:
    """Replace labels by plain ones; raise `DataError` for what cannot be stored."""
    if set(map(type, labels)) <= set(PLAIN):
        for label in set(labels):
            plain_label(label)
    else:
        labels[:] = map(plain_label, labels)
