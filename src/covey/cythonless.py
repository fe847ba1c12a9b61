"""Stand-in for the `cython` module where Cython is not installed: the same names, no effect.

Cython is needed only to build the compiled kernel; the plain one runs through this file.
"""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

compiled = False


class _CType:
    """A C type that is only ever written in annotations, or called as a conversion."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert

    def __getitem__(self, _: object) -> "_CType":
        return self

    def __call__(self, value: Any) -> Any:
        return self._convert(value)


bint = _CType(bool)
schar = int = longlong = ulonglong = _CType(int)
double = _CType(float)


def _unchanged(subject: T) -> T:
    return subject


def cast(kind: Callable[[Any], T], value: Any) -> T:
    """Convert `value` as C would."""
    return kind(value)


def declare(_: object, value: T) -> T:
    """Give a C type to a variable of the module; nothing to do here."""
    return value
