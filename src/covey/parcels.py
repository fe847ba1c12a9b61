"""Instances in messages: one block of numbers if possible, else plain values."""

import math
from array import array
from collections.abc import Mapping, Sequence
from sys import byteorder
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from covey.batches import MOST_WHOLE
from covey.errors import DataError

MOST_FEATURES = 4_096
MOST_DEPTH = 4
CODES: dict[str, Literal["d", "q"]] = {"f8": "d", "i8": "q"}
Key = Annotated[str, Meta(max_length=1_024)]


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Instances that are rows of numbers: eight bytes each, little-endian, row by row."""

    kind: Literal["f8", "i8"]  # numbers, or whole numbers
    width: Annotated[int, Meta(ge=1, le=MOST_FEATURES)]
    numbers: bytes
    keys: Annotated[list[Key], Meta(max_length=MOST_FEATURES)] | None = None  # None: lists

    def rows(self) -> list[Any]:
        """Return the instances, as lists or as records; raise `DataError` if they do not fit."""
        width, keys = self.width, self.keys
        if keys is not None and (len(keys) != width or len(set(keys)) != width):
            raise DataError(f"the block has {len(keys)} keys for {width} columns, or one twice")
        if len(self.numbers) % (8 * width):
            raise DataError(f"the block has {len(self.numbers)} bytes, not rows of {width} numbers")
        numbers = self._unpacked()
        for number in numbers:
            _check_number(number)
        rows = [numbers[k : k + width] for k in range(0, len(numbers), width)]
        return rows if keys is None else [dict(zip(keys, row, strict=True)) for row in rows]

    def _unpacked(self) -> list[Any]:
        numbers: array[Any] = array(CODES[self.kind])
        numbers.frombytes(self.numbers)
        if byteorder == "big":
            numbers.byteswap()
        return numbers.tolist()


def block_of(instances: Sequence[Any]) -> Block | None:
    """Return instances as one block, if they are alike and all their numbers of one type."""
    first = instances[0] if instances else None
    if not first or not isinstance(first, dict | list | tuple) or len(first) > MOST_FEATURES:
        return None
    keys = list(first) if isinstance(first, dict) else None
    if keys is not None and not all(isinstance(key, str) for key in keys):
        return None
    values: list[Any] = []
    for one in instances:
        if type(one) is not type(first) or len(one) != len(first):
            return None
        if keys is not None and list(one) != keys:
            return None
        values += one.values() if isinstance(one, dict) else one
    return _packed(values, len(first), keys)


def check_plain(instances: Sequence[Any]) -> None:
    """Raise `DataError` unless all is text, numbers, true, false, None, in lists and records."""
    layer: list[Any] = list(instances)
    for _ in range(MOST_DEPTH):
        inner: list[Any] = []
        for value in layer:
            inner += _inner(value)
        if not inner:
            return
        layer = inner
    raise DataError(f"an instance is nested more than {MOST_DEPTH} deep")


def _packed(values: list[Any], width: int, keys: list[Any] | None) -> Block | None:
    kinds = {type(value) for value in values}
    if kinds == {float}:
        kind: Literal["f8", "i8"] = "f8"
    elif kinds == {int} and all(abs(value) <= MOST_WHOLE for value in values):
        kind = "i8"
    else:
        return None
    numbers: array[Any] = array(CODES[kind], values)
    if byteorder == "big":
        numbers.byteswap()
    return Block(kind, width, numbers.tobytes(), keys)


def _inner(value: Any) -> Sequence[Any]:
    """Return what a value is made of; nothing, if it is plain itself."""
    if value is None or isinstance(value, str | bool):
        return ()
    if isinstance(value, int | float):
        _check_number(value)
        return ()
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise DataError("an instance has a key that is no text")
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    raise DataError(f"an instance holds a {type(value).__name__}; text and numbers can be sent")


def _check_number(value: float) -> None:
    is_good = abs(value) <= MOST_WHOLE if isinstance(value, int) else math.isfinite(value)
    if not is_good:
        raise DataError("an instance holds a number that is not finite, or beyond 2**53")
