"""Logs with all that one may hold, replayed from files and from arrays."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

import covey
from covey.config import load
from covey.data.logs import Trace, TraceFile
from covey.replay.outcome import Outcome
from covey.replay.replay import replay_file

Config = dict[str, Any]
Columns = dict[str, Any]

LEARNERS = [
    {"name": "north", "functions": ["nb", "tree"], "function-costs": [0.0, 0.125]},
    {"name": "south", "functions": ["svm"], "peers": {"west": 0.5, "north": 0.25}},
    {"name": "west", "functions": ["knn"], "arrivals": False},
]
NETWORK: Config = {
    "data": {"context": ["hour", "load"], "at": "site", "revealed": "seen", "delay": "late"},
    "policy": {"preset": "cos", "slices": 3, "train": {"scale": 1.0, "power": 0.0}},
    "learner": LEARNERS,
}
# One cell, and an arm is known well enough once a single label has come for it.
PATIENT: Config = {
    "policy": {"preset": "cos", "explore": {"scale": 0.0, "power": 0.0}},
    "learner": [{"name": "north", "functions": ["good", "bad"]}],
}
ONE_CONTEXT = {**PATIENT, "data": {"context": ["hour"]}}
RIGHT: Columns = {"predictions": [[1, 1], [0, 0]], "labels": [1, 1], "contexts": [[0.1], [0.9]]}
EVERY_KIND = pytest.mark.parametrize("kind", ["csv", "parquet"])


def stream(slots: int) -> Columns:
    """Make a log with all that one may hold: late, hidden and empty labels, rows for one site."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 3, slots)
    wrong = rng.random((4, slots)) < np.array([[0.4], [0.3], [0.2], [0.1]])
    seen = rng.random(slots) < 0.8
    is_empty = ~seen & (rng.random(slots) < 0.5)
    return {
        "label": [None if empty else int(v) for v, empty in zip(labels, is_empty, strict=True)],
        **dict(zip(["nb", "tree", "svm", "knn"], (labels + wrong) % 3, strict=True)),
        "hour": rng.random(slots),
        "load": rng.integers(0, 5, slots) / 4,
        "site": rng.choice(["north", "south"], slots),
        "seen": seen.astype(int),
        "late": rng.choice([0, 0, 1, 50], slots),
    }


def write(columns: Columns, path: Path) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(arrow.table(columns), path)
        return path
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def play(columns: Columns, config: Config, folder: Path, kind: str = "csv") -> Outcome:
    """Replay the columns as a file, and write the trace beside it."""
    path = write(columns, folder / f"log.{kind}")
    with TraceFile(folder / f"trace.{kind}") as trace:
        return replay_file(path, load(config), trace=trace)


def trace_in(folder: Path, kind: str = "csv") -> Columns:
    """Return the columns of the trace that `play` wrote; those of CSV are text."""
    path = folder / f"trace.{kind}"
    if kind == "parquet":
        return parquet.read_table(path).to_pydict()
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def play_arrays(columns: Columns, config: Config = NETWORK) -> Trace:
    data = config["data"]
    return covey.replay(
        config,
        predictions=[columns[name] for one in config["learner"] for name in one["functions"]],
        labels=columns["label"],
        contexts=np.column_stack([columns[name] for name in data["context"]]),
        **{name: columns[data[name]] for name in ("at", "revealed", "delay")},
    )
