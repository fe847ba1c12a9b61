"""Anything that classifies, as a function from an instance to a label."""

import math
from collections.abc import Callable
from typing import Any

from covey.errors import ConfigError, FunctionError
from covey.types import Label

Function = Callable[[Any], Label]


def as_function(name: str, given: Any) -> Function:
    """Return `given` as a function of one instance.

    Takes an object with `predict_one` (River), one with `predict` for a batch (scikit-learn), or
    any callable.
    """
    if hasattr(given, "predict_one"):
        return given.predict_one  # type: ignore[no-any-return]
    if hasattr(given, "predict"):
        return lambda instance: given.predict([instance])[0]
    if callable(given):
        return given  # type: ignore[no-any-return]
    raise ConfigError(
        f"function {name!r} is a {type(given).__name__}; give a callable or an object with predict"
    )


def run(function: Function, instance: Any, *, name: str, owner: str) -> Label:
    """Return the function's label for `instance`.

    Raises `FunctionError`, naming the function, if it raises or its answer is not a label.
    """
    try:
        answer = function(instance)
    except Exception as error:
        raise FunctionError(
            f"function {name!r} of learner {owner!r} raised {type(error).__name__}: {error}"
        ) from error
    kind = type(answer)
    if kind is str or kind is int or kind is bool:
        return answer
    try:
        return as_label(answer)
    except ValueError as error:
        raise FunctionError(f"function {name!r} of learner {owner!r} answered {error}") from None


def as_label(value: Any) -> Label:
    """Return `value` as a label: hashable, not None, not NaN; a NumPy scalar as Python's own.

    Raises `ValueError` saying what it is instead.
    """
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{value!r}, which is not a label")
    try:
        hash(value)
    except TypeError:
        raise ValueError(f"a {type(value).__name__}, which is not a label") from None
    return value  # type: ignore[no-any-return]
