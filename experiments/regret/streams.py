"""Recorded streams -> environments: blocks of Electricity and KDD Cup 1999 (found by COVEY_DATA).

Functions are those of `experiments/paper`, trained on rows before the window.
"""

import csv
import importlib
import importlib.util
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from covey import files
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
        "log": {
            "path": str(log),
            "functions": [[f"f{2 * k + 1}", f"f{2 * k + 2}"] for k in range(4)],
            "context": [{"column": context, "scale": "linear", "low": 0, "high": 1}],
        },
    }
