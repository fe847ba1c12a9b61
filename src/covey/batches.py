"""A batch as it is handed in -> checked rows, contexts and labels, or a sentence."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from covey.classifiers import PLAIN, as_label
from covey.errors import ConflictingLabel, ContextError, DataError
from covey.types import Context, Label

Rows = Sequence[Any] | np.ndarray


def rows_of(instances: Any) -> Rows:
    """Return the instances of a batch.

    Raises `DataError` if they are no list or array, or if they are rows of different widths.
    """
    if isinstance(instances, np.ndarray) and instances.ndim > 0:
        return instances
    if not isinstance(instances, Sequence) or isinstance(instances, str):
        raise DataError(
            f"the instances of a batch are a {type(instances).__name__}; give a list or an array"
        )
    widths = [len(row) if isinstance(row, list | tuple | np.ndarray) else -1 for row in instances]
    for place, width in enumerate(widths):
        if width != widths[0]:
            raise DataError(
                f"row {place} of the batch has {_values(width)} and row 0 has "
                f"{_values(widths[0])}; rows of a batch must have one width"
            )
    return instances


def contexts_of(contexts: Any, rows: Rows) -> list[Context]:
    """Return one context per row."""
    if contexts is None:
        return [()] * len(rows)
    points = list(map(tuple, contexts.tolist() if isinstance(contexts, np.ndarray) else contexts))
    _check_lengths(len(rows), "instances", len(points), "contexts")
    return points


def points_of(contexts: Any, rows: Rows, *, dimension: int) -> np.ndarray:
    """Return the contexts of rows as one array, each within the unit cube."""
    given = np.empty((len(rows), 0)) if contexts is None else contexts
    try:
        points = np.ascontiguousarray(given, np.float64)
    except (TypeError, ValueError):
        raise ContextError(f"contexts are not {dimension} numbers in every row") from None
    if not points.size:
        points = points.reshape(len(points), -1)
    if points.ndim != 2 or points.shape[1] != dimension:
        width = points.shape[-1] if points.ndim == 2 else "no"
        raise ContextError(f"contexts have {width} coordinates; this learner's have {dimension}")
    _check_lengths(len(rows), "instances", len(points), "contexts")
    outside = ~((points >= 0.0) & (points <= 1.0))
    if outside.any():
        row, place = np.argwhere(outside)[0].tolist()
        raise ContextError(
            f"row {row} of the batch: context coordinate {place} is {points[row, place]}; it must "
            "lie in [0, 1]"
        )
    return points


def truths_of(tickets: Sequence[int], labels: Any) -> dict[int, Label]:
    """Return the label of each ticket; a ticket that stands twice must have the same label."""
    given = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    _check_lengths(len(tickets), "tickets", len(given), "labels")
    truths: dict[int, Label] = {}
    for place, (ticket, value) in enumerate(zip(tickets, given, strict=True)):
        try:
            label = value if type(value) in PLAIN else as_label(value)
        except ValueError as error:
            raise DataError(f"label {place} of the batch is {error}") from None
        if truths.setdefault(ticket, label) != label:
            raise ConflictingLabel(
                f"ticket {ticket!r} stands twice in the batch, with the labels "
                f"{truths[ticket]!r} and {label!r}; none of the batch was taken"
            )
    return truths


def costs_of(
    tickets: Sequence[int], costs: Sequence[float | None] | None
) -> dict[int, float | None]:
    """Return what each ticket cost, where costs are given."""
    if costs is None:
        return {}
    _check_lengths(len(tickets), "tickets", len(costs), "costs")
    return dict(zip(tickets, costs, strict=True))


def share_of(rows: Rows, places: list[int]) -> Rows:
    """Return the rows at `places`."""
    if isinstance(rows, np.ndarray):
        return rows[places]
    return [rows[place] for place in places]


def grouped(keys: Iterable[Any]) -> dict[Any, list[int]]:
    """Return the places of each key, in order."""
    groups: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    return groups


def _values(width: int) -> str:
    return "no values to count" if width < 0 else f"{width} values"


def _check_lengths(count: int, what: str, other: int, others: str) -> None:
    if count != other:
        raise DataError(
            f"the batch has {count} {what} and {other} {others}; give as many of the one as of "
            "the other"
        )
