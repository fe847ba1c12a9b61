"""Replay of data frames against the same rows as arrays: `python benchmarks/frames.py`.

Each form makes a `Result` of the same rows by turns, in CPU time; the last column is the best of
its rounds over the best of the arrays.
"""

import argparse
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import network
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from timing import interleave, pin

import covey

CLASSES = np.array(["normal", "attack"])
GOAL = 1.2


def main() -> None:
    """Measure, and print one line per form."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--presets", default="cos,auto")
    chosen = options.parse_args()
    print(pin())
    recorded = network.draw(chosen.rows)
    for labels in ("numbers", "text"):
        forms = _forms(recorded, is_text=labels == "text")
        for preset in chosen.presets.split(","):
            runs = {name: partial(_timed, preset, run) for name, run in forms.items()}
            timings = interleave(chosen.rounds, runs)
            for name, timing in timings.items():
                ratio = timing.best / timings["arrays"].best
                line = f"{labels:8} {preset:5} {name:22} {timing.best:6.3f} s  {ratio:.2f}"
                print(line if ratio <= GOAL else f"{line}  above {GOAL}")


def _timed(preset: str, run: Callable[[dict[str, Any]], covey.Result]) -> float:
    config = network.config(preset=preset, slices=12)
    config["data"] = {"context": ["x"]}
    begin = process_time()
    assert len(run(config).trace)
    return process_time() - begin


def _forms(recorded: network.Recorded, *, is_text: bool) -> dict[str, Any]:
    """Return a function from a configuration to a result, by the name of the form."""
    predictions, labels = np.asarray(recorded.predictions), np.asarray(recorded.labels)
    points = np.asarray(recorded.contexts)
    if is_text:
        predictions, labels = CLASSES[predictions], CLASSES[labels]
    names = [name for site in network.config(preset="cos")["learner"] for name in site["functions"]]
    columns = {"x": points[:, 0], "label": labels, **dict(zip(names, predictions, strict=True))}
    table = pa.table(columns)
    arrays = {"predictions": predictions, "labels": labels, "contexts": points[:, :1]}
    frames = {
        "dict of arrays": columns,
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(table),
        "pyarrow": table,
    }
    if is_text:
        frame = pd.DataFrame(columns)
        text = frame.select_dtypes(exclude="number").columns
        frames["pandas categories"] = frame.astype(dict.fromkeys(text, "category"))
    forms: dict[str, Any] = {"arrays": lambda config: covey.replay(config, **arrays)}
    forms |= {name: partial(_replay, data=data) for name, data in frames.items()}
    return forms


def _replay(config: dict[str, Any], data: Any) -> covey.Result:
    return covey.replay(config, data)


if __name__ == "__main__":
    main()
