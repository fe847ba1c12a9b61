"""`kind = "river"`: a River model or pipeline that learns online.

River does not validate instances, so this module does.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey.errors import ConfigError, DataError, MissingExtra
from covey.sources import python
from covey.sources.rows import Columns
from covey.sources.tables import Kind


class River(python.Entry, frozen=True, kw_only=True):
    """An entry that creates a River model."""

    columns: list[str] | None = None


class Model:
    """A River model whose features are finite numbers, text or booleans."""

    def __init__(self, model: Any, columns: Columns) -> None:
        self.model = model
        self.columns = columns

    def predict_one(self, instance: Any) -> Any:
        """Return the model's label; None if it is untrained."""
        return self.model.predict_one(self._features(instance))

    def learn_one(self, instance: Any, label: Any) -> None:
        """Train the model."""
        self.model.learn_one(self._features(instance), label)

    def _features(self, instance: Any) -> dict[str, Any]:
        named = self._selected(instance) if isinstance(instance, Mapping) else self._named(instance)
        return {name: _value(name, value) for name, value in named.items()}

    def _selected(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.columns is None:
            return record
        for column in self.columns:
            if column not in record:
                raise DataError(f"an instance has no {column!r}, which columns names")
        return {column: record[column] for column in self.columns}

    def _named(self, row: Any) -> dict[str, Any]:
        if self.columns is None:
            raise DataError(
                f"an instance is a {type(row).__name__}, but River needs named values; send "
                "mappings, or name the values of a row with columns = [...]"
            )
        if len(row) != len(self.columns):
            raise DataError(
                f"an instance has {len(row)} values, but columns names {len(self.columns)}"
            )
        return dict(zip(self.columns, row, strict=True))


def load(table: River, folder: Path) -> Model:
    """Return the model that the entry creates."""
    _check_river()
    model = python.load(table, folder)
    if not (hasattr(model, "predict_one") and hasattr(model, "learn_one")):
        raise ConfigError(
            f"function {table.name!r}: {table.entry} is a {type(model).__name__} without "
            "predict_one and learn_one; if it is a function that creates the model, add options "
            "= {}"
        )
    return Model(model, table.columns)


def _value(name: str, value: Any) -> Any:
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, float) and not math.isfinite(plain):
        raise DataError(f"an instance has {plain} for {name!r}; omit missing values")
    if not isinstance(plain, str | int | float):
        raise DataError(
            f"an instance has a {type(plain).__name__} for {name!r}; give a number or text"
        )
    return plain


def _check_river() -> None:
    try:
        import river  # noqa: F401 - checks that it is installed
    except ModuleNotFoundError:
        raise MissingExtra(
            'functions of kind river need river; install it with pip install "covey[river]"'
        ) from None


KIND = Kind(River, load)
