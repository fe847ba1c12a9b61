"""Fields: a table becomes a record, or a message names the invalid key and a suggestion."""

import msgspec
import pytest

from covey import toml
from covey.errors import ConfigError

pytestmark = pytest.mark.beside_the_kernel


class Wheel(msgspec.Struct, frozen=True):
    size: float
    spokes: int = 32


class Bicycle(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    frame_number: int
    front: Wheel | None = None
    owners: list[str] = []
    prices: dict[str, float] | None = None


def sentence_of(table: object) -> str:
    with pytest.raises(ConfigError) as caught:
        toml.read(table, Bicycle, where="[bicycle]")
    return str(caught.value)


def test_a_table_becomes_a_record() -> None:
    record = toml.read({"frame-number": 7, "front": {"size": 28}}, Bicycle, where="[bicycle]")

    assert record == Bicycle(frame_number=7, front=Wheel(28.0, 32))


def test_the_table_is_not_modified() -> None:
    table = {"frame-number": 7, "owners": ["ann"]}
    toml.read(table, Bicycle, where="[bicycle]")

    assert table == {"frame-number": 7, "owners": ["ann"]}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            {"frame-numbr": 7},
            "unknown key 'frame-numbr' in [bicycle]; did you mean 'frame-number'?",
        ),
        (
            {"frame_number": 7},
            "unknown key 'frame_number' in [bicycle]; did you mean 'frame-number'?",
        ),
        (
            {"frame-number": 7, "zzz": 1},
            "unknown key 'zzz' in [bicycle]; known: frame-number, front, owners, prices",
        ),
        (
            {"frame-number": 7, "front": {"size": 28, "spoke": 1}},
            "unknown key 'spoke' in [bicycle] front; did you mean 'spokes'?",
        ),
        (
            {"frame-numbr": 7, "front": {"spoke": 1}},
            "unknown key 'frame-numbr' in [bicycle]; did you mean 'frame-number'?; "
            "unknown key 'spoke' in [bicycle] front; did you mean 'spokes'?",
        ),
        (
            {"owners": "ann", "front": {"size": "28"}},
            "[bicycle]: missing required field frame-number; [bicycle] front.size: expected "
            "float, got str; [bicycle] owners: expected array, got str",
        ),
        ({3: 7}, "unknown key 3 in [bicycle]; known: frame-number, front, owners, prices"),
        ({}, "[bicycle]: missing required field frame-number"),
        ({"frame-number": "7"}, "[bicycle] frame-number: expected int, got str"),
        ({"frame-number": 7.0}, "[bicycle] frame-number: expected int, got float"),
        ({"frame-number": True}, "[bicycle] frame-number: expected int, got bool"),
        (
            {"frame-number": 7, "front": {"spokes": 3}},
            "[bicycle] front: missing required field size",
        ),
        (
            {"frame-number": 7, "front": {"size": "big"}},
            "[bicycle] front.size: expected float, got str",
        ),
        ({"frame-number": 7, "front": 28}, "[bicycle] front: expected object, got int"),
        ({"frame-number": 7, "owners": ["ann", 3]}, "[bicycle] owners[1]: expected str, got int"),
        ({"frame-number": 7, "owners": "ann"}, "[bicycle] owners: expected array, got str"),
        (
            {"frame-number": 7, "prices": {"ann": "low"}},
            "[bicycle] prices[...]: expected float, got str",
        ),
        (3, "[bicycle] is not a table of keys and values"),
        ([("frame-number", 7)], "[bicycle] is not a table of keys and values"),
    ],
)
def test_a_wrong_table_is_one_sentence(table: object, sentence: str) -> None:
    assert sentence_of(table) == sentence


def test_a_similar_known_name_is_suggested() -> None:
    assert toml.nearest("slises", ["alpha", "slices"]) == "; did you mean 'slices'?"


def test_only_one_name_is_suggested() -> None:
    assert toml.nearest("north", ["north1", "north2"]) == "; did you mean 'north2'?"


def test_known_names_are_listed_in_order_without_a_similar_one() -> None:
    assert toml.nearest("xyz", ["south", "east"]) == "; known: east, south"


def test_without_known_names_nothing_is_suggested() -> None:
    assert toml.nearest("xyz", []) == ""
