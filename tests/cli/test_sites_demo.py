"""The example of four sites, in short: it runs, and it would notice if something were missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.site_processes import SRC

EXAMPLE = SRC.parent / "examples" / "sites"


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """The folder of a short run, its exit code, and its output."""
    folder = tmp_path_factory.mktemp("four")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py"), "--flows", "60", "--folder", str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        check=False,
    )
    return folder, done.returncode, done.stdout + done.stderr


def test_a_killed_and_restarted_site_loses_no_label(finished_run: tuple[Path, int, str]) -> None:
    folder, code, output = finished_run

    assert code == 0, output
    assert "west is killed (SIGKILL)" in output
    assert "missing: 0, not delivered to a peer: 0, counted twice: 0" in output
    assert str(folder) in output
