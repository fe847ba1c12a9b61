"""Convert instances to the rows of a model, and scores to labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from covey.errors import DataError
from covey.sources.tables import Scalar

Columns = list[str] | None


def picked(instances: Any, columns: Columns) -> Any:
    """Return the instances with mappings converted to rows, in the order of `columns`."""
    if isinstance(instances, np.ndarray):
        return instances
    return [
        _row(index, instance, columns) if isinstance(instance, Mapping) else instance
        for index, instance in enumerate(instances)
    ]


def numbers(instances: Any, columns: Columns, *, width: int | None, kind: Any) -> np.ndarray:
    """Return the instances as an array of rows of `kind`.

    Raises `DataError` for another width, and for values that are not finite numbers of that kind.
    """
    rows = _table(picked(instances, columns))
    if width is not None and rows.shape[1] != width:
        raise DataError(f"an instance has {rows.shape[1]} values, but the model takes {width}")
    with np.errstate(over="ignore", invalid="ignore"):
        exact = rows.astype(kind)
    # A float may be rounded, an integer may not.
    is_lost = ~np.isfinite(exact) if exact.dtype.kind == "f" else exact != rows
    if is_lost.any():
        row, column = np.argwhere(is_lost)[0].tolist()
        name = columns[column] if columns else column
        raise DataError(
            f"row {row} has {rows[row, column]} in column {name!r}; the model needs finite numbers "
            f"of type {exact.dtype}"
        )
    return exact


def winners(scores: np.ndarray, classes: Sequence[Scalar]) -> list[Scalar]:
    """Return the class with the highest score in each row; ties: the first."""
    if scores.ndim != 2 or scores.shape[1] != len(classes):
        shape = " x ".join(map(str, scores.shape))
        raise DataError(
            f"the model returned scores of shape {shape} for {len(classes)} classes; it must "
            "return one per row and class"
        )
    is_bad = ~np.isfinite(scores).all(axis=1)
    if is_bad.any():
        row = int(np.flatnonzero(is_bad)[0])
        raise DataError(f"the model returned scores {scores[row].tolist()} for row {row}")
    return [classes[index] for index in scores.argmax(axis=1).tolist()]


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


def _table(rows: Any) -> np.ndarray:
    try:
        table = np.asarray(rows)
    except ValueError:
        raise DataError("rows of a batch must have one width") from None
    if table.ndim != 2:
        raise DataError(f"an instance has {table.ndim - 1} dimensions; give a row of numbers")
    if table.dtype.kind not in "fiub":
        value = next(value for row in rows for value in row if not _is_number(value))
        raise DataError(f"an instance has {value!r}, which is not a number")
    return table


def _is_number(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "fiub"
