"""The configurations of `configurations.toml`, and the log that all of them are played on."""

import functools
import random
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Table = dict[str, Any]
TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PRESETS = ("auto", "cos", "dcza")
DOORS = ("replay", "network", "node", "simulate")
SITES = ("site0", "site1", "site2")
SLOTS, CHANGE = 150, 90
TEXTS = ("spam, or so", "größer")


class Golden(NamedTuple):
    """A configuration, the environment in place of its log, and the doors that do not take it."""

    name: str
    config: Table
    environment: Table
    without: dict[str, str]  # door -> why
    is_one_slot: bool  # the rows of a batch
    is_served: bool  # over https, too

    @property
    def doors(self) -> list[str]:
        """The doors that take it."""
        return [door for door in DOORS if door not in self.without]


def configurations() -> Iterator[Golden]:
    """Yield the configurations that are played: each extension with each preset that takes it."""
    for title, extension in TABLES["extensions"].items():
        for preset in (*PRESETS, *extension.get("more", ())):
            if preset not in extension.get("refused", {}):
                yield _golden(title, preset, extension)


def refusals() -> Iterator[tuple[Golden, str]]:
    """Yield the configurations that a preset refuses, and the key that it does not have."""
    for title, extension in TABLES["extensions"].items():
        for preset, key in extension.get("refused", {}).items():
            yield _golden(title, preset, extension), key


def _golden(title: str, preset: str, extension: Table) -> Golden:
    return Golden(
        f"{title}, {preset.rpartition(':')[2]}",
        config_of(preset, extension),
        _environment(extension),
        extension.get("without", {}),
        extension.get("one-slot", False),
        preset in extension.get("https", ()),
    )


def config_of(preset: str, extension: Mapping[str, Any]) -> Table:
    """Return the configuration of an extension."""
    dropped = extension.get("drop", ())
    more = extension.get("learner", ({}, {}, {}))
    learners = [
        {
            "name": name,
            "functions": [f"f{2 * k}", f"f{2 * k + 1}"],
            "peers": {other: 0.05 for other in SITES if other != name},
            **more[k],
        }
        for k, name in enumerate(SITES)
    ]
    policy = {"preset": preset, **TABLES["policies"][preset]}
    more_of_policy = {**extension.get("policy", {}), **extension.get("of", {}).get(preset, {})}
    kept = {
        name: extension[name] for name in ("link", "link-change", "ensemble") if name in extension
    }
    return {
        "data": _left({"context": ["x"], "at": "site"}, dropped) | extension.get("data", {}),
        "policy": _left(policy, dropped) | more_of_policy,
        "learner": [_left(learner, dropped) for learner in learners],
        **kept,
    }


def _environment(extension: Table) -> Table:
    more = extension.get("environment", {})
    prices = {} if "link" in more else {"prices": 0.05}
    return {"name": "golden", "learners": 3, "low": 0.4, **prices, **more}


def _left(table: Table, dropped: list[str] | tuple[str, ...]) -> Table:
    return {key: value for key, value in table.items() if key not in dropped}


def log_of(config: Table) -> dict[str, list[Any]]:
    """Return the columns of a configuration's log; where labels are text, answers are, too."""
    columns = {name: [row[name] for row in _rows()] for name in _rows()[0]}
    if config["data"].get("label") == "text":
        columns |= {f"f{k}": [TEXTS[said] for said in columns[f"f{k}"]] for k in range(6)}
    return columns


@functools.cache
def _rows() -> list[Table]:
    """Draw the log with `random.Random.random`, whose numbers no version of Python changes.

    site1 is good where x is low and site2 where it is high, up to a change.
    """
    draw = random.Random("golden").random  # noqa: S311 - repeatable is what counts
    chances = [(0.6, 0.55), (0.5, 0.6), (0.95, 0.5), (0.6, 0.6), (0.4, 0.9), (0.7, 0.5)]
    rows = []
    for slot in range(SLOTS):
        label, x, y = int(draw() < 0.5), round(draw(), 3), round(draw(), 2)
        is_high = (x >= 0.5) ^ (slot >= CHANGE)
        right = [draw() < chance[is_high] for chance in chances]
        row: Table = {f"f{k}": label if said else 1 - label for k, said in enumerate(right)}
        row |= {"label": label, "text": TEXTS[label], "number": label + round(draw(), 2)}
        row |= {"x": x, "y": y, "kind": ("mail", "web")[int(2 * draw())]}
        row |= {"bytes": int(10 ** (4 * draw())), "degrees": int(50 * draw()) - 10}
        row |= {"time": int(1e6 * draw()), "batch": slot // 7, "desk": SITES[slot // 7 % 3]}
        row |= {"site": SITES[int(3 * draw())], "two": SITES[int(2 * draw())]}
        row |= {"seen": int(draw() < 0.6), "late": int(20 * draw() ** 2), "busy": int(4 * draw())}
        row |= {"toll": round(0.2 * draw(), 3), "line": round(0.1 * draw(), 3)}
        rows.append(row)
    return rows
