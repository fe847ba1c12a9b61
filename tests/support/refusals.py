"""What is refused, as tables: `refusals.toml` of a package, which one test of the package runs.

Each table is named after the door that refuses it. `says` are words that the sentence must have:
the key, and what to do; all other keys are what is given to the door.
"""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from covey.errors import CoveyError

Door = Callable[..., Any]


def refusals(test_file: str) -> list[Any]:
    """Return the parameters of the test in this file: a door, what it is given, and the words."""
    text = Path(test_file).with_name("refusals.toml").read_text(encoding="utf-8")
    return [
        pytest.param(
            door,
            {key: value for key, value in table.items() if key != "says"},
            table["says"],
            id=f"{door} {number}",
        )
        for door, tables in tomllib.loads(text).items()
        for number, table in enumerate(tables, 1)
    ]


def refuses(doors: Mapping[str, Door], door: str, given: dict[str, Any], says: list[str]) -> None:
    """Require that a door refuses what it is given with one sentence, which has these words."""
    with pytest.raises(CoveyError) as refused:
        doors[door](**{key.replace("-", "_"): value for key, value in given.items()})

    sentence = str(refused.value)
    assert [word for word in says if word not in sentence] == [], sentence
    assert "\n" not in sentence
