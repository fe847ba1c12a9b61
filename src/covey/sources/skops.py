"""`kind = "skops"`: a scikit-learn model in a skops file."""

from pathlib import Path
from typing import Any

import msgspec

from covey.errors import ConfigError, MissingExtra
from covey.sources.pinned import content_of
from covey.sources.rows import Columns, picked
from covey.sources.tables import Kind, Taught


class Skops(Taught, frozen=True, kw_only=True):
    """A model whose file lists its types; unknown types must be named in `trusted`."""

    file: str
    sha256: str
    trusted: list[str] = msgspec.field(default_factory=list)
    columns: list[str] | None = None
    learns: bool = False  # a pinned model is expected not to change


class Rows:
    """A model that takes rows or mappings."""

    def __init__(self, model: Any, columns: Columns) -> None:
        self.model = model
        self.columns = columns

    def predict(self, rows: Any) -> Any:
        """Return the model's labels."""
        return self.model.predict(picked(rows, self.columns)) if len(rows) else []


class LearningRows(Rows):
    """A model that can also learn."""

    @property
    def classes_(self) -> Any:
        """The labels of a fitted model."""
        return self.model.classes_

    def partial_fit(self, rows: Any, labels: Any, **more: Any) -> None:
        """Train the model."""
        self.model.partial_fit(picked(rows, self.columns), labels, **more)


def load(table: Skops, folder: Path) -> Rows:
    """Return the model in the file if it has trusted types only."""
    skops = _skops()
    content = content_of(table, folder)
    where = f"function {table.name!r}"
    try:
        unknown = skops.get_untrusted_types(data=content)
        refused = sorted(set(unknown) - set(table.trusted))
        model = None if refused else skops.loads(content, trusted=table.trusted)
    except Exception as error:
        raise ConfigError(
            f"{where}: {table.file} cannot be read as a skops file: {type(error).__name__}: {error}"
        ) from error
    if refused:
        raise ConfigError(
            f"{where}: {table.file} contains types that are not trusted: {', '.join(refused)}; if "
            "you know them all, list them in trusted"
        )
    if not hasattr(model, "predict"):
        raise ConfigError(
            f"{where}: {table.file} contains a {type(model).__name__} without predict"
        )
    if table.learns and not hasattr(model, "partial_fit"):
        raise ConfigError(
            f"{where}: a {type(model).__name__} cannot learn, it has no partial_fit; remove learns"
        )
    return (LearningRows if table.learns else Rows)(model, table.columns)


def _skops() -> Any:
    try:
        import sklearn  # noqa: F401 - needed to load skops files
        import skops.io
    except ModuleNotFoundError:
        raise MissingExtra(
            "functions of kind skops need scikit-learn and skops; install them with "
            'pip install "covey[sklearn]"'
        ) from None
    return skops.io


KIND = Kind(Skops, load)
