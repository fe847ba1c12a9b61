"""A log can say in which slots its rows are: the rows of a cell decide as in the whole log."""

from typing import Any

import numpy as np
import pytest

from covey.config import load
from covey.data.logs import EncodedLog, Trace
from covey.replay.engine import ReplayEngine
from covey.types import Array

SLICES = 3
LEARNERS = [
    {"name": "a", "functions": ["f", "g"], "peers": {"b": 0.1}},
    {"name": "b", "functions": ["h"], "peers": {"a": 0.0}},
]
POLICIES: list[dict[str, Any]] = [
    {"preset": "cos", "slices": SLICES},
    {"preset": "cos", "slices": SLICES, "mode": "paper", "label-wait": 40},
    {"preset": "share-ucb", "slices": SLICES, "pending": True, "label-wait": 40},
    {"preset": "discounted", "slices": SLICES},
]


def engine(policy: dict[str, Any]) -> ReplayEngine:
    setup = load({"policy": policy, "learner": LEARNERS, "data": {"context": ["x"]}})
    return ReplayEngine(setup, setup.sites, 1, [0, 1])


def columns(seed: int, rows: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, rows, np.int32)
    right = rng.random((3, rows)) < np.array([[0.9], [0.6], [0.75]])
    return {
        "contexts": rng.random(rows),
        "predictions": np.where(right, labels, 1 - labels).astype(np.int32),
        "labels": labels,
        "delays": rng.integers(-30, 60, rows),
        "slots": np.arange(1, rows + 1),
    }


def log_of(found: dict[str, Array], rows: Array) -> EncodedLog:
    part = {name: np.ascontiguousarray(column[..., rows]).data for name, column in found.items()}
    return EncodedLog(at=None, **part)


def decisions(trace: Trace) -> list[tuple[Any, ...]]:
    shown = zip(
        *(trace.columns()[name] for name in ("slot", "learner", "cell", "arm")), strict=True
    )
    return list(shown)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_cells_decide_as_in_the_whole_log_also_with_late_labels(policy: dict[str, Any]) -> None:
    rows = 400
    found = columns(3, rows)
    cell = np.minimum(found["contexts"] * SLICES, SLICES - 1).astype(int)
    whole = engine(policy)
    everything = {**found, "slots": found["slots"]}
    log = log_of({k: v for k, v in everything.items() if k != "slots"}, np.arange(rows))
    expected = decisions(whole.play(log))
    whole.catch_up(rows)

    parts, cells = [], [[], []]  # type: ignore[var-annotated]
    for own in ([0, 2], [1]):
        part = engine(policy)
        mine = np.flatnonzero(np.isin(cell, own))
        for some in np.array_split(mine, 3):
            parts += decisions(part.play(log_of(found, some)))
        part.catch_up(rows)
        for place in range(2):
            cells[place] += part.cells(place)

    assert sorted(parts) == sorted(expected)
    assert len(expected) == 2 * rows
    for place in range(2):
        final = {view.name: view for view in whole.cells(place)}
        assert {view.name: view for view in cells[place]} == final
        assert len(final) == SLICES
