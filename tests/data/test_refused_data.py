"""Whatever cannot become a context is refused with its slot, its column and what to do."""

import math
from typing import Any

import pytest

from covey.data import contexts
from covey.errors import ContextError, DataError
from support.refusals import refusals, refuses


def _value(entry: Any, value: Any) -> None:
    reader = contexts.parse([entry])
    reader.extract_one({reader.columns[0]: value}, slot=17)


def _previous(entry: Any, label: Any) -> None:
    contexts.parse([entry]).extract_one({}, slot=17, previous_label=label)


def _chunk(entries: list[Any], columns: dict[str, Any], **more: Any) -> None:
    contexts.parse(entries).extract(columns, first_slot=9, **more)


DOORS = {
    "entry": lambda entry: contexts.parse(["first", entry]),
    "value": _value,
    "previous": _previous,
    "chunk": _chunk,
}
PLACES = {"value": ["slot 17"], "previous": ["slot 17", "previous label"]}


@pytest.mark.parametrize(("door", "given", "says"), refusals(__file__))
def test_what_is_no_context_is_refused(door: str, given: dict[str, Any], says: list[str]) -> None:
    refuses(DOORS, door, given, [*PLACES.get(door, ()), *says])


@pytest.mark.parametrize("value", [1.3, -0.5, math.inf, 1.0000000000000002])
def test_the_first_context_outside_the_cube_is_named(value: float) -> None:
    columns = {"hour": [0.5, 0.5, value], "bytes": [0.5, value, 0.5]}

    with pytest.raises(ContextError, match=f"slot 17: context 'bytes' is {value}; .*scale the"):
        contexts.parse(["hour", "bytes"]).extract(columns, first_slot=16)


def test_messages_about_a_request_name_rows() -> None:
    reader = contexts.parse([{"column": "age", "scale": "linear", "low": 0, "high": 100}, "share"])

    for ages, shares, says in (
        ([1, 140], [0.1, 0.1], r"^row 1: column 'age' is 140"),
        ([1, "x"], [0.1, 0.1], r"^row 1: column 'age' is 'x'"),
        ([1, 2], [1.5, 0.1], r"^row 0: context 'share' is 1.5"),
    ):
        with pytest.raises((ContextError, DataError), match=says):
            reader.extract_rows({"age": ages, "share": shares}, slot=3042, count=2)
