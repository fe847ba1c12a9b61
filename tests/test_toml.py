"""A table becomes a record, or is refused with the key and what to do; so do configurations."""

from typing import Any

import msgspec
import pytest

from covey import toml
from covey.config import load
from support.refusals import refusals, refuses


class Wheel(msgspec.Struct, frozen=True):
    size: float
    spokes: int = 32


class Bicycle(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    frame_number: int
    front: Wheel | None = None
    owners: list[str] = []
    prices: dict[str, float] | None = None


DOORS = {
    "config": load,
    "table": lambda table: toml.read(table, Bicycle, where="[bicycle]"),
}


@pytest.mark.parametrize(("door", "given", "says"), refusals(__file__))
def test_a_wrong_table_is_refused(door: str, given: dict[str, Any], says: list[str]) -> None:
    refuses(DOORS, door, given, says)


def test_a_table_becomes_a_record() -> None:
    record = toml.read({"frame-number": 7, "front": {"size": 28}}, Bicycle, where="[bicycle]")

    assert record == Bicycle(frame_number=7, front=Wheel(28.0, 32))


def test_the_table_is_not_modified() -> None:
    table = {"frame-number": 7, "owners": ["ann"]}
    toml.read(table, Bicycle, where="[bicycle]")

    assert table == {"frame-number": 7, "owners": ["ann"]}


def test_a_similar_known_name_is_suggested() -> None:
    assert toml.nearest("slises", ["alpha", "slices"]) == "; did you mean 'slices'?"


def test_only_one_name_is_suggested() -> None:
    assert toml.nearest("north", ["north1", "north2"]) == "; did you mean 'north2'?"


def test_known_names_are_listed_in_order_without_a_similar_one() -> None:
    assert toml.nearest("xyz", ["south", "east"]) == "; known: east, south"


def test_without_known_names_nothing_is_suggested() -> None:
    assert toml.nearest("xyz", []) == ""
