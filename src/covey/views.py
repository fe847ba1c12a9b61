"""Views: the columns of an instance that an arm receives, depending on the context."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey.errors import ConfigError, DataError
from covey.fields import nearest
from covey.types import Context

ALL = -1  # no view matches: the arm receives the whole instance


class ViewTable(msgspec.Struct, frozen=True, kw_only=True):
    """A `[[learner.view]]` table: columns that arms receive for contexts within bounds."""

    columns: list[str | int]
    arms: list[str] | None = None  # None: all
    where: dict[str, tuple[float, float]] = {}  # context -> from, to


class View(NamedTuple):
    """A view with resolved context coordinates: index, low, high."""

    columns: list[str | int]
    arms: frozenset[str] | None
    where: tuple[tuple[int, float, float], ...]

    def fits(self, arm: str, context: Context) -> bool:
        """Return whether this view applies to `arm` and this context."""
        if self.arms is not None and arm not in self.arms:
            return False
        return all(low <= context[k] <= high for k, low, high in self.where)


def checked_views(
    tables: Sequence[ViewTable], *, owner: str, arms: Sequence[str], contexts: Sequence[str]
) -> tuple[View, ...]:
    """Return the validated views of a learner with these arms and contexts."""
    return tuple(
        _view(table, f"{owner}: view {k + 1}", arms, contexts) for k, table in enumerate(tables)
    )


def shown(views: Sequence[View], arm: str, context: Context) -> int:
    """Return the index of the first matching view; `ALL` if none matches."""
    return next((k for k, view in enumerate(views) if view.fits(arm, context)), ALL)


def cut(instance: Any, columns: Sequence[str | int]) -> Any:
    """Return these columns of an instance (a mapping or a row)."""
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


def _view(table: ViewTable, where: str, arms: Sequence[str], contexts: Sequence[str]) -> View:
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
    return View(table.columns, for_arms, tuple(bounds))
