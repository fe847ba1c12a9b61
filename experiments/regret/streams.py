"""Recorded streams -> environments: blocks of Electricity and KDD Cup 1999 (found by COVEY_DATA).

Functions are those of `experiments/paper`, trained on rows before the window.
"""

import csv
import importlib
import importlib.util
import io
import math
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from covey import files
from covey.bandit.partitions import slices_for
from covey.simulation.environment import Environment, environment_from

PAPER = Path(__file__).parents[1] / "paper"
PRICE = 0.02


class Recorded(NamedTuple):
    """A window of a stream, and the contexts that it is played with, one at a time."""

    name: str
    start: int
    rows: int
    contexts: tuple[str, ...]


RECORDED = (
    Recorded("Electricity", 8_000, 37_312, ("hour", "A1", "A3")),
    Recorded("KDD S1", 80_553, 20_000, ("A1", "A3")),
    Recorded("KDD S2", 80_553, 20_000, ("A1", "A3")),
)
WORDS = {"hour": "hour", "A1": "previous label", "A3": "time"}


def environments(
    data: Path | None, folder: Path, wanted: Sequence[Recorded] = RECORDED
) -> dict[str, Environment]:
    """Return an environment for each stream and context; logs are written to `folder` once.

    Empty without the data, or without scikit-learn, which trains the functions.
    """
    if importlib.util.find_spec("sklearn") is None:
        return {}
    sys.path.append(str(PAPER))
    try:
        return dict(_environments(data, folder, wanted))
    finally:
        sys.path.remove(str(PAPER))


def _environments(
    data: Path | None, folder: Path, wanted: Sequence[Recorded]
) -> Iterator[tuple[str, Environment]]:
    source_of = importlib.import_module("reproduction.data")
    for one in wanted:
        source = source_of.ELECTRICITY if one.name == "Electricity" else source_of.KDD
        if source_of.located(source, data) is None:
            continue
        log = folder / f"{one.name}-{one.start}-{one.rows}.csv"
        if not log.exists():
            _write(one, data, log)
        for context in one.contexts:
            name = f"{one.name} {WORDS[context]}"
            yield name, environment_from(_table(name, context, log))


def _write(one: Recorded, data: Path | None, log: Path) -> None:
    """Write the answers of the functions in a window, its labels and contexts."""
    source_of, experiments, models = (
        importlib.import_module(f"reproduction.{name}")
        for name in ("data", "experiments", "models")
    )
    if one.name == "Electricity":
        stream = source_of.load_electricity(data)
        functions = experiments.electricity_trials()[0].functions
    else:
        stream = source_of.load_kdd(data, fetch=None)
        functions = models.SETS[one.name.removeprefix("KDD ")]
    answers = models.PredictionCache(stream).predict(functions, start=one.start, slots=one.rows)
    labels = stream.labels_of(one.start, one.rows)
    columns = {
        **{name: experiments.CONTEXTS[name](stream, one.start, one.rows) for name in one.contexts},
        "label": labels,
        **{f"f{k + 1}": answer for k, answer in enumerate(answers)},
    }
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    log.parent.mkdir(parents=True, exist_ok=True)
    files.replace(log, text.getvalue().encode())


def _table(name: str, context: str, log: Path) -> dict[str, Any]:
    return {
        "name": name,
        "prices": PRICE,
        "learners": 4,
        "functions": 2,
        "environment": "streams:Blocks",
        "options": {"path": str(log), "context": context},
    }


class Rows(NamedTuple):
    """A log in memory."""

    points: np.ndarray  # row, dimension
    right: np.ndarray  # function, row -> 1 where the prediction is the label
    cell: np.ndarray  # row -> cell
    accuracy: np.ndarray  # function, cell -> share of right predictions, over the whole log


@lru_cache(maxsize=4)
def _rows(path: str, context: str) -> Rows:
    with open(path, newline="") as file:
        header, *lines = csv.reader(file)
    columns = dict(zip(header, np.array(lines, float).T, strict=True))
    points = columns[context][:, None]
    right = np.array([columns[f"f{k + 1}"] == columns["label"] for k in range(8)])
    slices = slices_for(len(points), alpha=1.0, dimension=1)
    cell = np.minimum(points[:, 0] * slices, slices - 1).astype(np.int64)
    _, cell = np.unique(cell, return_inverse=True)
    shares = np.array([np.bincount(cell, own) for own in right]) / np.bincount(cell)
    return Rows(points, right, cell, shares)


class Blocks:
    """Blocks of consecutive rows of a log, each from a random row on; the first follows the last.

    So errors depend on each other as in the log, within a block, and every row is equally likely.
    The accuracy of a function is its share of right answers in the cell, over the whole log.
    """

    def __init__(self, rng: np.random.Generator, path: str, context: str) -> None:
        self._rows, self._rng = _rows(path, context), rng
        self._size = math.ceil(len(self._rows.points) ** 0.5)
        self._starts: list[int] = []  # of all blocks so far

    def draw(self, first_slot: int, slots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = self._rows
        block, offset = np.divmod(np.arange(first_slot - 1, first_slot - 1 + slots), self._size)
        fresh = int(block[-1]) + 1 - len(self._starts)
        self._starts += self._rng.integers(0, len(rows.points), fresh).tolist()
        index = (np.array(self._starts)[block] + offset) % len(rows.points)
        return rows.points[index], rows.accuracy[:, rows.cell[index]], rows.right[:, index]
