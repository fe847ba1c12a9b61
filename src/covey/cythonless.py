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


def exceptval(*_: object, **__: object) -> Callable[[T], T]:
    """Say how C code signals an exception; nothing to do here."""
    return _unchanged


def cast(kind: Any, value: Any) -> Any:
    """Convert `value` as C would; an object of the kind is left alone."""
    return value if isinstance(kind, type) and isinstance(value, kind) else kind(value)


def declare(_: object, value: T) -> T:
    """Give a C type to a variable of the module; nothing to do here."""
    return value
