"""A store whose counters mean something else is refused, with a sentence that says what."""

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import StoreError
from covey.server import config
from covey.store.change import Plan, adopt, wanted_arms
from covey.store.fingerprint import differences
from covey.store.store import Store
from support import virtual
from support.served import CONSTANTS

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
preset = "share-ucb"
slices = 4

[[learner]]
name = "north"
functions = ["zero", "one"]
"""
    + CONSTANTS
)
SIZE = '{ column = "size", scale = "linear", low = 0, high = 10 }'
TIME = '{ column = "time", scale = "hour" }'


def fingerprint(folder: Path, text: str) -> str:
    (folder / "site.toml").write_text(text)
    return config.load(folder / "site.toml").fingerprint


def opened(folder: Path, text: str, *, before: str = SITE) -> Plan:
    """Return what a store of the site of `before` becomes for that of `text`."""
    store = Store.memory()
    for one in (before, text):
        (folder / "site.toml").write_text(one)
        site = config.load(folder / "site.toml")
        wanted = wanted_arms(site.learner, site.functions)
        loaded = store.load("north", site.fingerprint)
        plan, _ = adopt(store, loaded, site.learner, wanted, site.fingerprint, {})
    return plan


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
    ],
)
def test_other_contexts_are_refused_with_a_sentence_that_names_what_differs(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    text = SITE.replace(old, new)
    assert text != SITE

    with pytest.raises(StoreError) as refused:
        opened(tmp_path, text)

    assert "was written with other settings: " in str(refused.value)
    assert said in str(refused.value)
    assert "hour" not in str(refused.value) or "hour" in said


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (
            "preset = 'share-ucb'\nslices = 2",
            "cells: 4 slices per dimension before, 2 slices per dimension now",
        ),
        ("preset = 'cos'\nslices = 4", "preset: share-ucb before, cos now"),
        (
            "preset = 'cos'\nslices = 4\nforget = { window = 9 }",
            "forgets: nothing before, all but the latest 9 labels of a cell now",
        ),
    ],
)
def test_other_counters_of_the_same_contexts_are_counted_again(
    tmp_path: Path, new: str, said: str
) -> None:
    old = 'preset = "share-ucb"\nslices = 4'
    assert said in opened(tmp_path, SITE.replace(old, new)).settings


@pytest.mark.parametrize(
    "text",
    [
        SITE,
        SITE.replace("low = 0, high = 10", "high = 10.0, low = 0.0"),
        SITE.replace("high = 10", "high = 10, clip = true"),
        SITE.replace("slices = 4", "slices = 4\nlabel-wait = 50"),
    ],
)
def test_settings_that_counters_do_not_depend_on_may_change(tmp_path: Path, text: str) -> None:
    assert fingerprint(tmp_path, text) == fingerprint(tmp_path, SITE)


PARTS = st.lists(st.tuples(st.sampled_from(["arm", "cells"]), st.sampled_from("abc")), min_size=1)


@given(old=PARTS, new=PARTS)
def test_fingerprints_differ_if_and_only_if_a_part_does(
    old: list[tuple[str, str]], new: list[tuple[str, str]]
) -> None:
    def by_part(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
        parts = {part: [value for one, value in pairs if one == part] for part in ("arm", "cells")}
        return {part: values for part, values in parts.items() if values}

    said = differences(*("\n".join(map(": ".join, parts)) for parts in (old, new)))

    assert bool(said) == (by_part(old) != by_part(new))


# -- the horizon of a policy ----------------------------------------------------------------------

SHORT_SIGHTED = {
    "policy": {"preset": "cos", "parameters": "theorem", "horizon": 20},
    "learner": [{"name": "north", "functions": ["a"]}],
}


async def lived(slots: int) -> list[Any]:
    """Return the state after each slot."""
    world = virtual.World(SHORT_SIGHTED, {"a": lambda x: 0}, dimension=1)
    node, states = world.nodes["north"], []
    for _ in range(slots):
        await node.predict(0, (0.5,))
        states.append(node.state())
    node.stop()
    return states


def test_a_passed_horizon_is_logged_once_and_stands_in_the_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        states = virtual.run(lived(30))

    lines = [record.message for record in caplog.records if "horizon" in record.message]
    assert lines == [
        "slot 21: [policy] horizon is 20 slots; after them cells and thresholds stay as they are, "
        "and the bounds no longer hold; raise it (what is stored is counted again)"
    ]
    assert (states[-1].slot, states[-1].horizon) == (30, 20)
