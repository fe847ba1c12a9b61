"""Replay streamed Parquet logs of up to 10^8 rows: rows a second, CPU time and peak memory.

python benchmarks/large_log.py --rows 100000000
python benchmarks/large_log.py --rows 1000000 --kind csv

Each log is written in row groups and replayed by `covey replay` in a process of its own, with the
default policy and with `cos`. Writes LARGE.md, but for CSV logs, of which it prints the table only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as arrow
from command import COVEY, METER, Used
from pyarrow import csv, parquet

PAGE = Path(__file__).with_name("LARGE.md")
SMALLEST = 1_000_000  # rows; every next log has ten times as many
GROUP = 250_000  # rows of a row group
SITES, FUNCTIONS = 4, 2  # functions of each site
POLICIES = {"cos": 'preset = "cos"\nslices = 12', "auto": 'preset = "auto"'}
METHOD = f"""\
`covey replay LOG --config FILE --json` in a process of its own, interpreter start included.
{SITES} sites with {FUNCTIONS} functions each, two contexts, row groups of {GROUP:,} rows; `cos`
has 12 slices. The command also plays every site alone, and all without contexts. CPU
time is that of all threads."""


def write_log(path: Path, rows: int) -> None:
    """Write a log of functions whose accuracies differ over two contexts, group by group."""
    rng = np.random.default_rng(1)
    names = ["x", "y", "label", *(f"f{k}" for k in range(SITES * FUNCTIONS))]
    kinds = [arrow.float64()] * 2 + [arrow.int8()] * (len(names) - 2)
    schema = arrow.schema(list(zip(names, kinds, strict=True)))
    writing = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
    with writing(path, schema) as writer:
        for first in range(0, rows, GROUP):
            writer.write_table(arrow.table(_group(rng, min(GROUP, rows - first)), schema))


def _group(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    columns = {"x": rng.random(rows), "y": rng.random(rows)}
    labels = columns["label"] = rng.integers(0, 2, rows, np.int8)
    for k in range(SITES * FUNCTIONS):
        accuracy = 0.55 + 0.4 * np.abs(np.sin(3 * columns["x"] + k) * np.cos(columns["y"] + k))
        columns[f"f{k}"] = np.where(rng.random(rows) < accuracy, labels, 1 - labels)
    return columns


def write_config(path: Path, policy: str) -> None:
    """Write the configuration of a replay."""
    peers = [
        ", ".join(f'"site {peer}" = 0' for peer in range(SITES) if peer != k) for k in range(SITES)
    ]
    sites = "".join(
        f'[[learner]]\nname = "site {k}"\npeers = {{ {peers[k]} }}\n'
        f"functions = {[f'f{FUNCTIONS * k + j}' for j in range(FUNCTIONS)]}\n"
        for k in range(SITES)
    )
    path.write_text(f'[data]\ncontext = ["x", "y"]\n[policy]\n{policy}\n{sites}', encoding="utf-8")


def replay(folder: Path, log: str, rows: int) -> Used:
    """Replay the log of a folder in a process of its own."""
    covey = [*COVEY, "replay", log, "--config", "sites.toml", "--json"]
    command = [sys.executable, "-I", "-S", str(METER), "summary.json", *covey]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["slots"] == rows
    return Used(**json.loads(done.stdout))


def measure(sizes: Sequence[int], log: str) -> Iterator[tuple[str, int, Used]]:
    """Replay a log of each size with each policy."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in sizes:
            write_log(folder / log, rows)
            for policy, text in POLICIES.items():
                write_config(folder / "sites.toml", text)
                print(f"{policy}: {rows:,} rows", file=sys.stderr, flush=True)
                yield policy, rows, replay(folder, log, rows)


def table(runs: Sequence[tuple[str, int, Used]]) -> str:
    """Return the table of all replays."""
    lines = ["| policy | rows | rows a second | CPU minutes | CPU us a row | peak memory, MB |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for policy, rows, used in sorted(runs, key=lambda run: list(POLICIES).index(run[0])):
        cells = (policy, f"{rows:,}", f"{rows / used.wall_s:,.0f}", f"{used.cpu_s / 60:.2f}")
        by_row = f"{1e6 * used.cpu_s / rows:.2f}"
        lines.append(f"| {' | '.join(cells)} | {by_row} | {used.peak_bytes / 1e6:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table and write it after each replay."""
    parser = argparse.ArgumentParser(description="Replay streamed logs of growing size.")
    parser.add_argument("--rows", type=int, default=100_000_000, help="of the largest log")
    parser.add_argument("--kind", choices=["parquet", "csv"], default="parquet")
    options = parser.parse_args()
    rows = options.rows
    sizes = [rows]
    while sizes[0] // 10 >= SMALLEST:
        sizes.insert(0, sizes[0] // 10)
    runs = []
    for run in measure(sizes, f"log.{options.kind}"):
        runs.append(run)
        if options.kind == "csv":
            continue
        lines = f"{METHOD}\n\n{table(runs)}\n"
        page = f"# Large logs\n\nMade by `make large`; do not edit by hand.\n\n{lines}"
        PAGE.write_text(page, encoding="utf-8")
    print(table(runs))


if __name__ == "__main__":
    main()
