"""The trace of a replay, written as Parquet and as CSV, against pyarrow's writers alone."""

import copy
import csv
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import network
import numpy as np
from figures import Figure, Row, Verdict, skipped
from timing import interleave

from covey.config import load
from covey.data.logs import EncodedLog, Trace, TraceFile
from covey.data.tables import ROWS_PER_CHUNK
from covey.replay.engine import ReplayEngine

NAME = "trace"
TITLE = "The trace of a replay, written to a file"
GOAL_US = 0.35  # CPU per decision
SLOTS = {"full": 1_000_000, "quick": 200_000}
ROUNDS = {"full": 7, "quick": 3}
PARQUET, CSV = "covey, Parquet", "covey, CSV"
PEERS = {
    PARQUET: "pyarrow, the finished table to Parquet",
    CSV: "pyarrow, the finished table to CSV",
}


def measure(effort: str) -> Figure:
    """Replay once, then write the trace in turns."""
    try:
        from pyarrow import csv as arrow_csv
        from pyarrow import parquet
    except ModuleNotFoundError:
        return skipped(NAME, TITLE, 'pyarrow is not installed: pip install ".[parquet]"')
    chunks = _chunks(SLOTS[effort])
    tables = [copy.copy(chunk).to_arrow() for chunk in chunks]
    plain = [_decoded(table) for table in tables]
    columns = [table.to_pydict() for table in tables[:2]]
    decisions = sum(map(len, chunks))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        open_parquet = partial(parquet.ParquetWriter, folder / "alone.parquet", tables[0].schema)
        open_csv = partial(arrow_csv.CSVWriter, folder / "alone.csv", plain[0].schema)
        candidates = {
            PARQUET: partial(_write, chunks, folder / "trace.parquet"),
            PEERS[PARQUET]: partial(_write_tables, tables, open_parquet),
            "covey, Trace.to_arrow": partial(_convert, chunks),
            CSV: partial(_write, chunks, folder / "trace.csv"),
            PEERS[CSV]: partial(_write_tables, plain, open_csv),
            "Python's csv.writer, finished lists": partial(
                _write_lists, columns, folder / "lists.csv", decisions
            ),
        }
        timings = interleave(ROUNDS[effort], candidates)
        sizes = {name: (folder / f"trace.{name}").stat().st_size for name in ("parquet", "csv")}
    rows = []
    for name, timing in timings.items():
        peer = timings[PEERS[CSV if "csv" in name.lower() else PARQUET]]
        microseconds = 1e6 * timing.best / decisions
        rows.append(Row(name, microseconds, "us", timing.over_best, timing.best / peer.best))
    each = {name: size / decisions for name, size in sizes.items()}
    best = 1e6 * timings[PARQUET].best / decisions
    verdict = Verdict(
        best <= GOAL_US,
        f"a decision of the Parquet trace costs {best:.2f} us of CPU; the goal is at most "
        f"{GOAL_US} us. It takes {each['parquet']:.1f} bytes, {each['csv']:.1f} in CSV.",
    )
    return Figure(NAME, TITLE, _method(effort), rows, [verdict])


def _chunks(slots: int) -> list[Trace]:
    recorded = network.draw(slots)
    setup = load(network.config(preset="cos", slices=12))
    engine = ReplayEngine(setup, setup.sites, 1, [0, 1])
    chunks = []
    for first in range(0, slots, ROWS_PER_CHUNK):
        rows = slice(first, first + ROWS_PER_CHUNK)
        log = EncodedLog(
            contexts=recorded.contexts[rows].reshape(-1).data,
            predictions=recorded.predictions[:, rows].astype(np.int32, "C").data,
            labels=recorded.labels[rows].astype(np.int32).data,
            at=None,
            delays=None,
        )
        chunks.append(engine.play(log))
    return chunks


def _decoded(table: Any) -> Any:
    """Return a table without dictionaries, which pyarrow does not write as CSV."""
    for place, field in enumerate(table.schema):
        if hasattr(field.type, "value_type"):
            table = table.set_column(place, field.name, table[place].cast(field.type.value_type))
    return table


def _write(chunks: Sequence[Trace], path: Path) -> float:
    fresh = [copy.copy(chunk) for chunk in chunks]  # derived columns are computed anew
    begin = process_time()
    with TraceFile(path) as file:
        for chunk in fresh:
            file.write(chunk)
    return process_time() - begin


def _convert(chunks: Sequence[Trace]) -> float:
    fresh = [copy.copy(chunk) for chunk in chunks]
    begin = process_time()
    for chunk in fresh:
        chunk.to_arrow()
    return process_time() - begin


def _write_tables(tables: Sequence[Any], open_writer: Callable[[], Any]) -> float:
    begin = process_time()
    with open_writer() as writer:
        for table in tables:
            writer.write_table(table)
    return process_time() - begin


def _write_lists(columns: Sequence[dict[str, list[Any]]], path: Path, decisions: int) -> float:
    """Time the first chunks, whose lists fit into memory; return the seconds of all decisions."""
    begin = process_time()
    with path.open("w", encoding="utf-8", newline="") as file:
        for chunk in columns:
            csv.writer(file, lineterminator="\n").writerows(zip(*chunk.values(), strict=True))
    written = sum(len(chunk["slot"]) for chunk in columns)
    return (process_time() - begin) * decisions / written


def _method(effort: str) -> str:
    return (
        f"CPU time per decision of {SLOTS[effort]:,} slots at {network.SITES} learners with 2 "
        f"functions each, CoS with 12 slices, in chunks of {ROWS_PER_CHUNK:,} slots; ten columns. "
        "covey begins with the integers that the kernel wrote: it computes slots, predictions, "
        "labels and costs, names the values, and writes and closes the file. The finished tables "
        "and lists hold all of that when the clock starts. Ratios are to pyarrow's writer of the "
        "same format, which for CSV quotes all text."
    )
