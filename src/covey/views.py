"""Which columns of an instance an arm gets to see, where the context decides that."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey.errors import ConfigError, DataError
from covey.fields import nearest
from covey.types import Context

ALL = -1  # no view fits: the arm sees the whole instance


class ViewTable(msgspec.Struct, frozen=True, kw_only=True):
    """A `[[learner.view]]` table: what arms see while the context lies within bounds."""

    columns: list[str | int]
    arms: list[str] | None = None  # None: all of them
    where: dict[str, tuple[float, float]] = {}  # context -> from, to


class View(NamedTuple):
    """A view with its contexts found: their places, and the bounds."""

    columns: list[str | int]
    arms: frozenset[str] | None
    where: tuple[tuple[int, float, float], ...]

    def fits(self, arm: str, context: Context) -> bool:
        """Say whether it is this view that `arm` gets of an instance with this context."""
        if self.arms is not None and arm not in self.arms:
            return False
        return all(low <= context[place] <= high for place, low, high in self.where)


def checked_views(
    tables: Sequence[ViewTable], *, who: str, arms: Sequence[str], contexts: Sequence[str]
) -> tuple[View, ...]:
    """Return the checked views of a learner with these arms and contexts."""
    return tuple(
        _view(table, f"{who}: view {k + 1}", arms, contexts) for k, table in enumerate(tables)
    )


def shown(views: Sequence[View], arm: str, context: Context) -> int:
    """Return the number of the first view that fits; `ALL` if none does."""
    return next((k for k, view in enumerate(views) if view.fits(arm, context)), ALL)


def cut(instance: Any, columns: Sequence[str | int]) -> Any:
    """Return only these columns of an instance, which is a mapping or a row."""
    try:
        if isinstance(instance, Mapping):
            return {column: instance[column] for column in columns}
        if isinstance(instance, np.ndarray):
            return instance[np.array(columns)]
        return [instance[column] for column in columns]
    except (LookupError, TypeError):
        raise DataError(
            f"a view shows the columns {list(columns)!r}, which the instance, a "
            f"{type(instance).__name__}, does not have"
        ) from None


def _view(table: ViewTable, where: str, arms: Sequence[str], contexts: Sequence[str]) -> View:
    if not table.columns:
        raise ConfigError(f"{where} shows no columns; list at least one")
    for arm in table.arms or ():
        if arm not in arms:
            raise ConfigError(f"{where} is for {arm!r}, which is no arm{nearest(arm, arms)}")
    bounds = []
    for name, (low, high) in table.where.items():
        if name not in contexts:
            raise ConfigError(
                f"{where} minds context {name!r}, which the learner does not have"
                f"{nearest(name, contexts)}"
            )
        if not 0 <= low <= high <= 1:
            raise ConfigError(f"{where}: {name} runs from {low} to {high}; 0 <= from <= to <= 1")
        bounds.append((list(contexts).index(name), low, high))
    for_arms = None if table.arms is None else frozenset(table.arms)
    return View(table.columns, for_arms, tuple(bounds))
