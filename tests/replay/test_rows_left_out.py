"""`only` of [data]: rows in which a column is 0 are as if they were not in the log."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.data import tables

CONFIG: dict[str, Any] = {
    "data": {"context": ["x"], "only": "used", "batch": "call"},
    "policy": {"preset": "cos", "slices": 2},
    "learner": [{"name": "north", "functions": ["nb", "tree"]}],
}


def log(rows: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    labels = np.array(["a", "b"])[rng.integers(0, 2, rows)]
    return {
        "x": rng.random(rows),
        "label": labels,
        "nb": np.where(rng.random(rows) < 0.8, labels, "a"),
        "tree": np.where(rng.random(rows) < 0.6, labels, "b"),
        "call": np.arange(rows) // 3,
        "used": (rng.random(rows) < 0.4).astype(int),
    }


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_a_replay_is_that_of_the_other_rows(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROWS_PER_CHUNK", 64)
    arrow = pytest.importorskip("pyarrow")
    whole = log()
    kept = {name: column[whole["used"] == 1] for name, column in whole.items()}
    data: Any = whole
    if ending != "frame":
        data = tmp_path / f"log.{ending}"
        table = arrow.table(whole)
        if ending == "csv":
            __import__("pyarrow.csv").csv.write_csv(table, data)
        else:
            __import__("pyarrow.parquet").parquet.write_table(table, data, row_group_size=50)
    everything = {**CONFIG, "data": {"context": ["x"], "batch": "call"}}

    assert (
        covey.replay(CONFIG, data).trace.columns() == covey.replay(everything, kept).trace.columns()
    )


def test_empty_predictions_of_rows_left_out_are_no_error() -> None:
    rows = {**log(), "nb": log()["nb"].astype(object)}
    rows["nb"][rows["used"] == 0] = None
    found = covey.replay(CONFIG, rows)

    assert len(found) == int(rows["used"].sum())


def test_other_values_are_refused_with_their_row() -> None:
    rows = log()
    rows["used"][7] = 2
    with pytest.raises(covey.DataError, match="row 8: column 'used' is 2; it must be 0 or 1"):
        covey.replay(CONFIG, rows)
    rows["used"][:] = 0
    with pytest.raises(covey.DataError, match="no rows"):
        covey.replay(CONFIG, rows)
