"""The runner: tables by name, resuming and refusals on synthetic data; goals on the real data."""

import gzip
import json
import os
import runpy
from pathlib import Path

import pytest

from covey import kernel, replay
from reproduction import data as paper_data
from reproduction import tables
from reproduction.data import KDD
from reproduction.experiments import (
    RIVER,
    Case,
    PreparedWindow,
    config,
    load_window,
    paper_trials,
    prepare_window,
    window_path,
)
from reproduction.findings import goals
from reproduction.models import PredictionCache
from reproduction.run import Options, reproduce, run_case
from reproduction.tables import NAMES
from standin import write_standin
from support.required import ROOT

REAL = os.environ.get("COVEY_DATA", "")
SCRIPT = ROOT / "experiments" / "paper" / "run.py"
main = runpy.run_path(str(SCRIPT))["main"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_standin(folder)
    return folder


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the finished table `weights`, made with two seeds."""
    folder = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "SEEDS", 2)
        assert run(folder, data, "weights", "sim_setup") == 0
    return folder


def window_file(folder: Path, trial: str, slots: int) -> bytes:
    return window_path(folder, trial, slots).read_bytes()


def run(folder: Path, data: Path, *names: str) -> int:
    where = ["--data", str(data), "--out", str(folder)]
    code: int = main([*names, *where, "--any-file", "--quiet", "--json", "--workers", "1"])
    return code


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "runs").iterdir()}


def test_only_the_requested_tables_are_made(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_bytes())
    text = (finished / "README.md").read_text()

    assert list(summary["tables"]) == ["sim_setup", "weights"]
    assert "(weights)" in text
    assert "(callcost)" not in text
    assert (finished / "report.html").read_text().startswith("<!doctype html>")


def test_finished_cases_are_kept_and_damaged_ones_run_again(
    finished: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "SEEDS", 2)
    before = contents(finished)
    lost, damaged, *_ = sorted(before)
    (finished / "runs" / lost).unlink()
    (finished / "runs" / damaged).write_bytes(b'{"case"')
    marked = finished / "runs" / sorted(before)[2]
    os.utime(marked, (1, 1))

    assert run(finished, data, "weights", "sim_setup") == 0
    assert contents(finished) == before
    assert marked.stat().st_mtime == 1
    assert "Traceback" not in capsys.readouterr().err


def test_a_folder_of_another_version_is_refused_and_the_reason_named(
    finished: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = json.loads((finished / "identity.json").read_bytes())
    (tmp_path / "identity.json").write_text(json.dumps(identity | {"figures": "0"}))

    assert run(tmp_path, data, "weights") == 2
    error = capsys.readouterr().err
    assert "holds figures of another version: figures is '0' there and '4' here" in error
    assert "Traceback" not in error


def test_a_window_beyond_the_end_is_refused_before_a_folder_is_created(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = gzip.decompress((data / KDD.file).read_bytes())
    rows = text.splitlines(keepends=True)[:90_000]
    (tmp_path / KDD.file).write_bytes(gzip.compress(b"".join(rows), compresslevel=1))

    assert run(tmp_path / "out", tmp_path, "callcost") == 2
    error = capsys.readouterr().err
    assert "goes from row 80,553 to 100,552" in error
    assert f"{KDD.file} ends with row 89,999" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sim_result"], "unknown table 'sim_result'; did you mean 'sim_results'?"),
        (["callcost", "--data", "nowhere"], "there is no file at nowhere"),
        (["electricity", "--data", "."], "the Electricity (Elec2) stream was not found"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COVEY_DATA", raising=False)

    assert main([*arguments, "--out", "out", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_another_file_is_refused_without_any_file(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["callcost", "--data", str(data), "--out", str(tmp_path / "out")]

    assert main([*arguments, "--quiet"]) == 2
    assert "use --any-file to accept this one" in capsys.readouterr().err


def test_a_case_gives_the_numbers_of_its_replay(finished: Path) -> None:
    case = Case(trial="S1", context="A3", policy={"preset": "cos", "reading": "paper"}, price=0.1)
    window = load_window(window_file(finished, "S1", 20_000), 20_000)
    trace = replayed(case, window)
    rows = zip(trace["learner"], trace["correct"], trace["phase"], trace["arm"], strict=True)
    mine = [(right, phase, arm) for learner, right, phase, arm in rows if learner == "1"]
    exploited = [arm for _, phase, arm in mine if phase == "exploit"]

    numbers = run_case(case, window_file(finished, "S1", 20_000)).numbers
    assert numbers["error"] == pytest.approx(100 * sum(not m[0] for m in mine) / len(mine))
    assert numbers["training 2"] == pytest.approx(
        100 * sum(m[1:] == ("train", "2") for m in mine) / len(mine)
    )
    right = sum(bool(m[0]) for m in mine)
    paid = 0.1 * sum(m[2] in ("2", "3", "4") for m in mine)
    assert numbers["net reward"] == pytest.approx(100 * (right - paid) / len(mine))
    own = sum(arm in ("1.1", "1.2") for arm in exploited)
    assert numbers["selection 1"] == pytest.approx(100 * own / len(exploited))


def replayed(case: Case, window: PreparedWindow) -> dict[str, list[object]]:
    return replay(
        config(case),
        predictions=window.predictions(0, 8),
        labels=window.labels,
        contexts=window.contexts["A3"],
    ).columns()


def test_river_runs_without_the_rows_before_the_window(finished: Path, data: Path) -> None:
    stream = paper_data.load_kdd(data, is_any_file=True)
    answers = PredictionCache(stream, results=finished / "windows")
    for trial in paper_trials():
        prepare_window(trial, stream, answers, finished, slots=300)

    numbers = run_case(
        Case(trial="S1", does="river", slots=300), window_file(finished, "S1", 300)
    ).numbers
    assert set(numbers) == set(RIVER)
    assert all(0 <= error <= 100 for error in numbers.values())
    assert len(set(numbers.values())) > 1


LONG = ("electricity", "further", "horizon", "nlearn", "river", "stationary")  # make paper has them
MOST_TABLES = [name for name in NAMES if name not in LONG]
FEW_TABLES = ["sim_setup", "prices"]  # what the plain kernel plays in a minute


@pytest.mark.skipif(not REAL, reason="COVEY_DATA names no folder with the data")
def test_the_goals_are_met_on_the_real_data_except_two_that_depend_on_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SEEDS", 1)
    names = MOST_TABLES if kernel.is_compiled() else FEW_TABLES
    found = reproduce(Options(names, Path(REAL), tmp_path, workers=2))

    groups = goals(found.tables)
    counts = [len(group) for group in groups.values()]
    assert counts == ([16, 17, 28, 17, 4, 2] if kernel.is_compiled() else [16, 2])
    missed = {goal.name for group in groups.values() for goal in group if not goal.is_met}
    # At this price a peer and the own coin earn the same, so that the coins of a seed decide. With
    # two labels in 200 rows, after a change in the middle, which labels come decides (7 to 32 %).
    few = "0.01 of the labels, arrivals at learner 1 only"
    assert missed <= {"callcost: price 0.5", few}
