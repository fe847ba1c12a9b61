"""What `[[function]]` tables have in common, and what makes one kind of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

Scalar = str | int | float | bool  # a label as TOML and JSON can write it


class Named(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The keys of every kind."""

    name: str
    kind: str


class Taught(Named, frozen=True, kw_only=True, rename="kebab"):
    """The keys of every kind that can learn."""

    learns: bool = True
    classes: list[Scalar] = []  # of a function that has learnt nothing yet
    lessons: str | None = None  # the file of what it is taught
    lessons_kept: int = 10_000  # labelled instances


class Kind(NamedTuple):
    """A kind of table, and what makes an object out of one that `as_function` takes.

    Paths in the table are relative to the folder that `load` is given.
    """

    table: type[Named]
    load: Callable[[Any, Path], Any]
