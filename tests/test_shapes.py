"""A store is refused if its counters would mean something else, with a sentence that says what."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import sites
from covey.errors import StoreError
from covey.records import differing
from covey.shapes import shape_of
from covey.store import Store
from served import CONSTANTS

SITE = (
    """
[node]
name = "north"
features = { size = "FP64", weight = "FP64", time = "INT64" }
store = "north.store"

[data]
context = [
  { column = "size", scale = "linear", low = 0, high = 10 },
  { column = "time", scale = "hour" },
]

[policy]
slices = 4

[[learner]]
name = "north"
functions = ["zero", "one"]
"""
    + CONSTANTS
)
SIZE = '{ column = "size", scale = "linear", low = 0, high = 10 }'
TIME = '{ column = "time", scale = "hour" }'


def shape(folder: Path, text: str) -> str:
    (folder / "site.toml").write_text(text)
    return sites.load(folder / "site.toml").shape


def refusal(folder: Path, text: str) -> str:
    """Return what is said of a store of `SITE` that is opened as one of `text`."""
    store = Store.memory()
    store.load("north", shape(folder, SITE))
    with pytest.raises(StoreError) as refused:
        store.load("north", shape(folder, text))
    return str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "high = 10",
            "high = 100",
            "context: size (linear, low 0, high 10) before, size (linear, low 0, high 100) now",
        ),
        ('"linear", low', '"log", low', "before, size (log, low 0, high 10) now"),
        ('column = "size"', 'column = "weight"', "before, weight (linear, low 0, high 10) now"),
        (f"{SIZE},\n  {TIME}", f"{TIME},\n  {SIZE}", "context: the same in another order"),
        (f",\n  {TIME}", "", "dimensions: 2 before, 1 now; context: time (hour) before, nothing"),
        ("slices = 4", "slices = 2", "cells: 4 slices per dimension before, 2 slices per"),
        ("slices = 4", "slices = 4\\npreset = 'cos'", "preset: auto before, cos now"),
        ('["zero", "one"]', '["one"]', "arm: zero before, nothing now"),
        (
            "slices = 4",
            "slices = 4\\nforget = { window = 9 }",
            "forgets: nothing before, all but the latest 9 labels of a cell now",
        ),
    ],
)
def test_the_sentence_says_what_differs_and_only_that(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    text = SITE.replace(old, new.replace("\\n", "\n"))
    assert text != SITE

    sentence = refusal(tmp_path, text)

    assert "was written with other settings: " in sentence
    assert said in sentence
    assert "hour" not in sentence or "hour" in said


@pytest.mark.parametrize(
    "text",
    [
        SITE,
        SITE.replace("low = 0, high = 10", "high = 10.0, low = 0.0"),
        SITE.replace("high = 10", "high = 10, clip = true"),
        SITE.replace("slices = 4", "slices = 4\nlabel-wait = 50"),
    ],
)
def test_what_counters_do_not_depend_on_may_change(tmp_path: Path, text: str) -> None:
    assert shape(tmp_path, text) == shape(tmp_path, SITE)


def test_ranks_go_by_their_sample(tmp_path: Path) -> None:
    def ranked(sample: str) -> str:
        return SITE.replace('"linear", low = 0, high = 10', f'"rank", sample = {sample}')

    assert shape(tmp_path, ranked("[1, 2, 3]")) == shape(tmp_path, ranked("[3, 1, 2]"))
    assert shape(tmp_path, ranked("[1, 2, 3]")) != shape(tmp_path, ranked("[1, 2, 4]"))


def test_what_clients_send_has_no_more_than_dimensions(tmp_path: Path) -> None:
    text = SITE.replace('store = "north', 'dimension = 2\nstore = "north')
    text = text[: text.index("[data]")] + text[text.index("[policy]") :]
    (tmp_path / "site.toml").write_text(text)
    served = sites.load(tmp_path / "site.toml")

    assert served.shape == shape_of(served.learner)
    assert "context" not in served.shape


PARTS = st.lists(st.tuples(st.sampled_from(["arm", "cells"]), st.sampled_from("abc")), min_size=1)


@given(old=PARTS, new=PARTS)
def test_shapes_differ_where_there_is_something_to_say(
    old: list[tuple[str, str]], new: list[tuple[str, str]]
) -> None:
    def by_part(shape: list[tuple[str, str]]) -> dict[str, list[str]]:
        parts = {part: [value for one, value in shape if one == part] for part in ("arm", "cells")}
        return {part: values for part, values in parts.items() if values}

    said = differing(*("\n".join(map(": ".join, shape)) for shape in (old, new)))

    assert bool(said) == (by_part(old) != by_part(new))
