"""`covey simulate`: options, output and exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from covey import cli

SCENARIO = """
[scenario]
name = "two policies"
horizon-slots = 300
seeds = 2
workers = 1

[[policy]]
name = "grid"
preset = "cos"
slices = 3

[[policy]]
name = "zoom"
preset = "dcza"

[[environment]]
name = "same for all"
case = "C2"
learners = 2
prices = 0.05
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a scenario, and what its simulation left in `out`."""
    folder = tmp_path_factory.mktemp("simulate")
    (folder / "scenario.toml").write_text(SCENARIO)
    assert simulate(folder, "--html") == 0
    return folder


def simulate(folder: Path, *more: str) -> int:
    out = [] if "--out" in more else ["--out", str(folder / "out")]
    return cli.main(["simulate", str(folder / "scenario.toml"), "--quiet", *out, *more])


def test_the_folder_holds_runs_results_summary_and_page(folder: Path) -> None:
    names = {path.name for path in (folder / "out").iterdir()}

    assert names == {
        *("scenario.json", "runs", "results.parquet", "summary.json"),
        *("report.html", "report.tex", "policies.csv"),
    }
    assert len(list((folder / "out" / "runs").rglob("*.json"))) == 4


def test_json_is_one_object_and_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(folder, "--json") == 0

    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((folder / "out" / "summary.json").read_text())
    assert list(found) == [
        "name", "horizon_slots", "seeds", "policies", "environments", "scores"
    ]  # fmt: skip
    assert [score["policy"] for score in found["scores"]] == ["grid", "zoom"]


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups here")
def test_an_interrupt_prints_how_to_resume_and_leaves_no_process(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "covey", "simulate", "--horizon-slots", "1000000000"]
    running = subprocess.Popen(
        [*command, "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A process in the background is not interrupted by a terminal, nor are its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    while not (out / "scenario.json").exists() or not _has_workers(running.pid):
        assert running.poll() is None

    os.killpg(running.pid, signal.SIGINT)
    told = running.communicate(timeout=60)[1]

    assert running.returncode == 130
    assert told.splitlines()[-2:] == [
        f"covey: {out} keeps finished runs; repeat the command to resume",
        "covey: interrupted; no file is incomplete",
    ]
    assert "Traceback" not in told
    while _is_there(running.pid):  # until the system has removed the process
        pass


def _has_workers(parent: int) -> bool:
    """Say whether processes run for `parent`, where the system tells."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    return not children.exists() or len(children.read_text().split()) > 2  # one keeps track


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
