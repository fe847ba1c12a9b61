"""`kind = "skops"`: a scikit-learn model in a file; the one file that names skops."""

from pathlib import Path
from typing import Any

import msgspec

from covey.errors import ConfigError, MissingExtra
from covey.sources.pinned import content_of
from covey.sources.rows import Columns, picked
from covey.sources.tables import Kind, Taught


class Skops(Taught, frozen=True, kw_only=True):
    """A model whose file says which types it is made of; unknown ones must be trusted by name."""

    file: str
    sha256: str
    trusted: list[str] = msgspec.field(default_factory=list)
    columns: list[str] | None = None
    learns: bool = False  # a file that is pinned is expected to stay what it is


class Rows:
    """A model that takes rows, given rows or mappings."""

    def __init__(self, model: Any, columns: Columns) -> None:
        self.model = model
        self.columns = columns

    def predict(self, rows: Any) -> Any:
        """Return the model's labels."""
        return self.model.predict(picked(rows, self.columns)) if len(rows) else []


class LearningRows(Rows):
    """One that can be taught as well."""

    @property
    def classes_(self) -> Any:
        """What the model knows of its labels, if it was fitted."""
        return self.model.classes_

    def partial_fit(self, rows: Any, labels: Any, **more: Any) -> None:
        """Teach the model."""
        self.model.partial_fit(picked(rows, self.columns), labels, **more)


def load(table: Skops, folder: Path) -> Rows:
    """Return the model in the file, made of trusted types only."""
    skops = _skops()
    content = content_of(table, folder)
    who = f"function {table.name!r}"
    try:
        unknown = skops.get_untrusted_types(data=content)
        refused = sorted(set(unknown) - set(table.trusted))
        model = None if refused else skops.loads(content, trusted=table.trusted)
    except Exception as error:
        raise ConfigError(
            f"{who}: {table.file} cannot be read as a skops file: {type(error).__name__}: {error}"
        ) from error
    if refused:
        raise ConfigError(
            f"{who}: {table.file} holds types that are not trusted: {', '.join(refused)}; if you "
            "know them all, list them in trusted"
        )
    if not hasattr(model, "predict"):
        raise ConfigError(f"{who}: {table.file} holds a {type(model).__name__}, without predict")
    is_teachable = table.learns and hasattr(model, "partial_fit")
    if table.learns and not is_teachable:
        raise ConfigError(
            f"{who}: a {type(model).__name__} cannot be taught, as it has no partial_fit; leave "
            "out learns"
        )
    return (LearningRows if is_teachable else Rows)(model, table.columns)


def _skops() -> Any:
    try:
        import sklearn  # noqa: F401 - what skops files are made of
        import skops.io
    except ModuleNotFoundError:
        raise MissingExtra(
            "functions of kind skops need scikit-learn and skops; install them with "
            'pip install "covey[sklearn]"'
        ) from None
    return skops.io


KIND = Kind(Skops, load)
