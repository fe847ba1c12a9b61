"""A replay is the same from arrays, CSV and Parquet, in any chunks, and adds up to its trace."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

import covey
from covey.config import load
from covey.data import tables
from covey.replay.replay import replay_file
from golden.configurations import Golden, configurations, log_of
from support.replays import (
    EVERY_KIND,
    LEARNERS,
    NETWORK,
    PATIENT,
    Config,
    play,
    play_arrays,
    stream,
    trace_in,
    write,
)

REPLAYED = [golden for golden in configurations() if "replay" in golden.doors]


@EVERY_KIND
@pytest.mark.parametrize("golden", REPLAYED, ids=lambda golden: golden.name)
def test_every_configuration_decides_a_file_in_chunks_as_a_table(
    golden: Golden, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = log_of(golden.config)
    whole = covey.replay(golden.config, columns)
    monkeypatch.setattr(tables, "ROWS_PER_CHUNK", 7)
    path = write(columns, tmp_path / f"log.{kind}")
    chunked = covey.replay(golden.config, path)

    assert chunked.trace.columns() == whole.trace.columns()
    assert chunked.json() == whole.json()
    if kind == "parquet":  # in CSV, 1.0 is the number 1
        assert chunked.trace.to_arrow().equals(whole.trace.to_arrow())


def test_progress_is_reported_after_every_chunk(tmp_path: Path) -> None:
    path = write(
        {"label": [1] * 70_000, "good": [1] * 70_000, "bad": [0] * 70_000}, tmp_path / "log.parquet"
    )
    told: list[tuple[float, int]] = []
    replay_file(path, load(PATIENT), progress=lambda share, slots: told.append((share, slots)))

    assert told == [(65_536 / 70_000, 65_536), (1.0, 70_000)]


def test_the_summary_equals_the_sums_over_the_trace(tmp_path: Path) -> None:
    outcome = play(stream(400), NETWORK, tmp_path)
    trace = trace_in(tmp_path)
    for learner in outcome.learners:
        numbers = learner.numbers
        rows = [k for k, name in enumerate(trace["learner"]) if name == learner.name]
        phases = Counter(trace["phase"][k] for k in rows)
        correct = Counter(trace["correct"][k] for k in rows)

        assert (numbers.slots, learner.judged) == (len(rows), correct["0"] + correct["1"])
        assert numbers.errors == (correct["0"] if rows else None)
        for phase in ("train", "explore", "exploit"):
            share = 100 * phases[phase] / len(rows) if rows else None
            assert getattr(numbers, f"{phase}_percent") == share
        assert numbers.arms == Counter(trace["arm"][k] for k in rows)
        assert (numbers.cost_total or 0) == sum(float(trace["cost"][k]) for k in rows)


def test_alone_is_the_same_network_without_peers(tmp_path: Path) -> None:
    columns = stream(400)
    outcome = play(columns, NETWORK, tmp_path)
    trace = play_arrays(columns, {**NETWORK, "learner": [{**one, "peers": {}} for one in LEARNERS]})
    errors = Counter(trace.learner[trace.correct == 0].tolist())
    sites = outcome.learners

    alone = [100 * errors[k] / one.judged if one.judged else None for k, one in enumerate(sites)]
    assert [learner.numbers.alone_percent for learner in sites] == alone
    assert sites[1].numbers.alone_percent != sites[1].numbers.error_percent


SCALES = [
    ({"column": "x", "scale": "log", "high": 15}, [0, 1, 3, 15], ["0", "1", "2", "3"]),
    ({"column": "x", "scale": "rank", "sample": [1, 5, 5, 9]}, [5, 1, 5, 9], ["2", "0", "2", "3"]),
    ({"scale": "previous-label", "initial": 0.5}, [0, 0, 0, 0], ["2", "3", "0", "3"]),
    ({"scale": "slot", "horizon": 5}, [0, 0, 0, 0], ["0", "1", "2", "3"]),
]


@EVERY_KIND
@pytest.mark.parametrize(("entry", "x", "places"), SCALES)
def test_contexts_are_made_from_raw_columns(
    tmp_path: Path, kind: str, entry: Config, x: list[int], places: list[str]
) -> None:
    policy = {"preset": "share-ucb", "slices": 4}
    config = {**PATIENT, "data": {"context": [entry]}, "policy": policy}
    columns = {"label": [1, 0, 1, 1], "good": [1, 0, 1, 1], "bad": [0, 1, 0, 0], "x": x}
    play(columns, config, tmp_path, kind)

    assert trace_in(tmp_path, kind)["cell"] == [f"g4:{place}" for place in places]


# Rows that a column leaves out.

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
    whole = log()
    kept = {name: column[whole["used"] == 1] for name, column in whole.items()}
    data: Any = whole if ending == "frame" else write(whole, tmp_path / f"log.{ending}")
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
