"""`kind = "constant"`: the same label for every instance."""

from pathlib import Path
from typing import Any, ClassVar

from covey.sources.tables import Kind, Named, Scalar


class Constant(Named, frozen=True, kw_only=True):
    """A function that ignores the instance."""

    is_instant: ClassVar[bool] = True
    label: Scalar

    def predict(self, rows: Any) -> list[Scalar]:
        """Return the label, once per row."""
        return [self.label] * len(rows)


def load(table: Constant, folder: Path) -> Constant:
    """Return the table, which is the function."""
    return table


KIND = Kind(Constant, load)
