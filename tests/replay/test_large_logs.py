"""A replay of a streamed log takes no more memory for more rows."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

GROUP = 100_000  # rows of a row group
FEW, MANY = 4, 16  # row groups
# What is read of the rows between takes 38 MB, and their decisions take as much again.
MOST_MB = 20
CONTEXTS, FUNCTIONS = ["w", "x", "y", "z"], ["f", "g"]
SITES = f"""
[data]
context = {CONTEXTS}
[policy]
preset = "cos"
slices = 2
[[learner]]
name = "a"
functions = ["f"]
[[learner]]
name = "b"
functions = ["g"]
"""
REPLAY = """
import pathlib
from covey.config import load
from covey.replay.replay import replay_file
print(replay_file(pathlib.Path("log.parquet"), load("sites.toml")).slots)
print(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


def peak_mb(folder: Path, groups: int) -> float:
    """Return the peak memory of a process that replays so many row groups."""
    rng = np.random.default_rng(1)
    contexts = {name: rng.random(GROUP) for name in CONTEXTS}
    answers = {name: rng.integers(0, 2, GROUP) for name in ["label", *FUNCTIONS]}
    group = arrow.table({**contexts, **answers})
    with parquet.ParquetWriter(folder / "log.parquet", group.schema) as writer:
        for _ in range(groups):
            writer.write_table(group)
    (folder / "sites.toml").write_text(SITES)
    done = subprocess.run(
        [sys.executable, "-c", REPLAY], cwd=folder, capture_output=True, text=True, check=True
    )
    slots, peak_kib = map(int, done.stdout.split())
    assert slots == groups * GROUP
    return peak_kib / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_the_peak_memory_of_a_streamed_replay_does_not_grow_with_its_rows(tmp_path: Path) -> None:
    assert peak_mb(tmp_path, MANY) - peak_mb(tmp_path, FEW) < MOST_MB
