"""`covey replay` from the command line: wall time and peak memory of the whole process."""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import network
import numpy as np
from figures import Figure, Row, Verdict, skipped

NAME = "command"
TITLE = "`covey replay` from the command line"
GOAL_S = 10.0
GOAL_MB = 500.0
ROWS = 1_000_000
ROUNDS = {"full": 5, "quick": 1}
PARQUET = "Parquet, --json"
METHOD = (
    "Wall time and peak resident memory of a process of its own, interpreter start included; "
    f"{ROWS:,} rows, 4 learners x 2 functions, 1 context, numeric labels, CoS with 12 slices, Z1. "
    "The command also plays every learner alone, which the summary holds. The trace has one row "
    "per slot and learner."
)
METER = Path(__file__).with_name("meter.py")
COVEY = [sys.executable, "-c", "from covey.cli import main; raise SystemExit(main())"]


class Used(NamedTuple):
    """What one run of the command took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def measure(effort: str) -> Figure:
    """Write the log, then run the command on it, the variants interleaved."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        return skipped(NAME, TITLE, 'pyarrow is not installed: pip install ".[parquet]"')
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        columns = _columns(ROWS)
        parquet.write_table(arrow.table(columns), folder / "log.parquet")
        _write_csv(columns, folder / "log.csv")
        (folder / "sites.toml").write_text(_toml(), encoding="utf-8")
        variants = {
            PARQUET: ["log.parquet"],
            "Parquet, --json --trace t.parquet": ["log.parquet", "--trace", "t.parquet"],
            "CSV, --json": ["log.csv"],
        }
        used: dict[str, list[Used]] = {variant: [] for variant in variants}
        for _ in range(ROUNDS[effort]):
            for variant, arguments in variants.items():
                used[variant].append(_run(arguments, folder))
    rows = [row for variant, runs in used.items() for row in _rows(variant, runs)]
    return Figure(NAME, TITLE, METHOD, rows, [_verdict(used[PARQUET])])


def _columns(rows: int) -> dict[str, np.ndarray]:
    recorded = network.draw(rows)
    predictions = dict(zip(network.FUNCTIONS, recorded.predictions, strict=True))
    return {"x": recorded.contexts[:, 0], "label": recorded.labels, **predictions}


def _write_csv(columns: dict[str, np.ndarray], path: Path) -> None:
    lines = zip(*(column.tolist() for column in columns.values()), strict=True)
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(columns) + "\n")
        file.writelines(",".join(map(str, line)) + "\n" for line in lines)


def _toml() -> str:
    sites = [
        f'[[learner]]\nname = "{site["name"]}"\nfunctions = {json.dumps(site["functions"])}\n'
        for site in network.config()["learner"]
    ]
    return "\n".join(
        ['[data]\nlabel = "label"\ncontext = ["x"]\n', '[policy]\npreset = "cos"\n', *sites]
    )


def _run(arguments: list[str], folder: Path) -> Used:
    covey = [*COVEY, "replay", *arguments, "--config", "sites.toml", "--json"]
    command = [sys.executable, "-I", "-S", str(METER), "summary.json", *covey]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert all(learner["slots"] == ROWS for learner in summary["learners"].values())
    return Used(**json.loads(done.stdout))


def _rows(variant: str, runs: list[Used]) -> list[Row]:
    wall = [run.wall_s for run in runs]
    peak = [run.peak_bytes / 1e6 for run in runs]
    cpu = min(run.cpu_s for run in runs)
    return [
        Row(variant, min(wall), "s", _over_best(wall), note=f"wall; {cpu:.2f} s of CPU"),
        Row(variant, min(peak), "MB", _over_best(peak), note="peak resident memory"),
    ]


def _over_best(values: list[float]) -> float:
    return statistics.median(values) / min(values) - 1


def _verdict(runs: list[Used]) -> Verdict:
    wall = min(run.wall_s for run in runs)
    peak = max(run.peak_bytes for run in runs) / 1e6
    return Verdict(
        wall <= GOAL_S and peak <= GOAL_MB,
        f"the Parquet log takes {wall:.1f} s and at most {peak:.0f} MB; the goals are at most "
        f"{GOAL_S:.0f} s and {GOAL_MB:.0f} MB.",
    )
