"""Common keys of `[[function]]` tables, and the record of a kind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

Scalar = str | int | float | bool  # a label in TOML and JSON


class Named(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The keys of every kind."""

    name: str
    kind: str


class Taught(Named, frozen=True, kw_only=True, rename="kebab"):
    """The keys of every kind that can learn."""

    learns: bool = True
    classes: list[Scalar] = []  # of an untrained function
    lessons: str | None = None  # path of the training log
    lessons_kept: int = 10_000  # labelled instances


class Kind(NamedTuple):
    """A kind of table, and its loader, which returns an object for `as_function`.

    Paths in the table are relative to the loader's `folder` argument.
    """

    table: type[Named]
    load: Callable[[Any, Path], Any]
