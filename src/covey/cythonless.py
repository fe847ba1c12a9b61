"""Stand-in for the `cython` module where Cython is not installed: the same names, no effect.

Cython is needed only to build the compiled kernel; the plain one runs through this file.
"""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

compiled = False
double = float
longlong = int


def _unchanged(subject: T) -> T:
    return subject


cclass = cfunc = final = inline = _unchanged


def cast(kind: Callable[[Any], T], value: Any) -> T:
    """Convert `value` as C would."""
    return kind(value)


def declare(_: object, value: T) -> T:
    """Give a C type to a variable of the module; nothing to do here."""
    return value
