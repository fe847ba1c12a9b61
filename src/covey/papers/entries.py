"""The numbers of a table, and the cases that give them.

A line of a table is played in several readings: `paper`, the reading that the published figures
fit; `spec`, the published algorithm; and `default`, the policy that covey recommends.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from covey.papers.cases import Case
from covey.papers.printed import Key

READINGS = ("paper", "spec", "default")
HERE = "here"  # a number that does not depend on how the paper is read
CONTEXTS = {
    "A1": "previous label",
    "A2": "src_bytes",
    "A2 log": "src_bytes (log)",
    "A3": "time",
    "hour": "hour",
    "none": "no context",
}
TIMED = ("A1", "A2", "A2 log", "A3")
SEEDS = 10
PRICES = ("0", "0.5", "0.7")  # of asking a peer
YARDSTICKS = ("previous-label", "win-stay", "best single function")
QUANTITIES = ("error", "training", "exploration")
BY_INDEX = "by its index"
_PRESETS: dict[str, dict[str, Any]] = {
    "CoS": {"preset": "cos"},
    "DCZA": {"preset": "dcza"},
    "DCZA inherit": {"preset": "dcza", "inherit": True},
}


class Entry(NamedTuple):
    """The numbers of one line of a table in one reading, and the cases that give them."""

    table: str
    line: str
    reading: str
    keys: Mapping[str, Key]  # quantity -> where the number stands
    cases: tuple[Case, ...]
    helper: str = "explore-first"  # how a peer that is asked chooses
    decides: bool = True  # whether claims go by it; several lines may read the same numbers
    statistic: Literal["median", "mean"] = "median"


def policy(algorithm: str, parameters: str, reading: str, **more: Any) -> dict[str, Any]:
    """Return the `[policy]` of an algorithm in a reading; the default is the same for all."""
    if reading == "default":
        return {"preset": "auto"}
    return {**_PRESETS[algorithm], "mode": reading, "parameters": parameters.lower(), **more}


def seeds(trial: str) -> range:
    """Return the seeds of a trial: one where nothing in it is left to chance."""
    return range(1 if trial.startswith("S1") else SEEDS)


def printed_key(key: Key) -> Key:
    """Return where the paper prints a number: it has one scale of src_bytes, not two."""
    return tuple("A2" if word == "A2 log" else word for word in key)


def several(case: Case) -> tuple[Case, ...]:
    """Return the case with every seed of its trial."""
    return tuple(msgspec.structs.replace(case, seed=seed) for seed in seeds(case.trial))


def keyed(start: Key, quantities: Sequence[str] = QUANTITIES) -> dict[str, Key]:
    """Return keys that begin alike and end in the quantity."""
    return {quantity: (*start, quantity) for quantity in quantities}


def yardsticks(table: str, lines: dict[str, Case]) -> list[Entry]:
    """Return what needs no learning, beside each line of a table."""
    return [
        Entry(table, line, "yardsticks", keyed((table, "yardsticks", line), YARDSTICKS), cases)
        for line, case in lines.items()
        for cases in [several(msgspec.structs.replace(case, does="yardsticks"))]
    ]


def by_set(table: str, sets: Sequence[str] = ("S1", "S2")) -> list[Entry]:
    """Return the yardsticks of the paper's sets of functions."""
    return yardsticks(table, {name: Case(trial=name) for name in sets})


def entry(
    table: str, line: str, reading: str, keys: Mapping[str, Key], case: Case, **more: Any
) -> Entry:
    """Return an entry over all seeds; the default policy has a rule for helpers of its own."""
    helper = more.pop("helper", "explore-first")
    return Entry(
        table,
        line,
        reading,
        keys,
        several(case),
        helper=BY_INDEX if reading == "default" else helper,
        **more,
    )
