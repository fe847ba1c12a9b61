"""A table becomes a record, or is refused with the key and what to do; so do configurations."""

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import covey
from covey import toml
from covey.config import load
from support.refusals import refusals, refuses


class Wheel(msgspec.Struct, frozen=True):
    size: float
    spokes: int = 32


class Bicycle(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    frame_number: Annotated[int, msgspec.Meta(ge=1)]
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


def test_a_module_beside_a_file_is_imported_and_the_path_is_as_before(tmp_path: Path) -> None:
    (tmp_path / "beside_sites.py").write_text("def worth(accuracy, cost, context): return accuracy")
    learner = '[[learner]]\nname = "a"\nfunctions = ["f"]\nrewards = { f = "beside_sites:worth" }\n'
    (tmp_path / "sites.toml").write_text(learner)
    before = sys.path[:]
    setup = load(tmp_path / "sites.toml")

    assert sys.path == before
    assert setup.sites[0].rewards[0].name == "beside_sites:worth"
    assert covey.replay(tmp_path / "sites.toml", {"label": [1], "f": [1]}).summary().slots == 1


def test_lambdas_of_one_place_have_one_name_and_are_told_apart() -> None:
    first, second = (toml.named(lambda: None) for _ in range(2))

    assert str(first) == str(second)
    assert first != second
    assert toml.imported(first, where="x") is not toml.imported(second, where="x")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b c": [1, 2]}, '{ a = 1, "b c" = [1,2] }'),
        ({}, "{}"),
        ([{"a": True}, 2], "[{ a = true }, 2]"),
        ('say "x"', '"say \\"x\\""'),
        (0.5, "0.5"),
        (float("inf"), "inf"),
    ],
)
def test_a_value_is_written_as_toml_that_is_read_back(value: Any, text: str) -> None:
    assert toml.text_of(value) == text
    assert tomllib.loads(f"value = {text}") == {"value": value}


def test_a_name_says_what_every_process_finds_by_it() -> None:
    class Local:
        pass

    assert toml.named(Path) == "pathlib:Path"
    assert toml.imported(toml.named(Local), where="x") is Local
    names = ["pathlib:Path", "pathlib:Pat", "nowhere:Path", toml.named(Local)]
    assert [toml.is_importable(name) for name in names] == [True, False, False, False]


@pytest.mark.parametrize("values", [{"size": 28}, {"size": 28.5, "spokes": 12}])
def test_a_record_that_python_made_has_the_types_of_its_fields(values: dict[str, Any]) -> None:
    toml.check(Wheel(**values))
    with pytest.raises(covey.ConfigError, match="^spokes is 2.5; expected int, got float$"):
        toml.check(Wheel(**values | {"spokes": 2.5}))
