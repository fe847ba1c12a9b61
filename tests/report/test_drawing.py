"""Drawing imports matplotlib late, reports if it is missing, and does not change its state."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from covey.errors import MissingExtra
from covey.report.page import replay_page
from covey.report.results import Result
from support.outcomes import make_outcome


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_drawing_leaves_the_settings_of_matplotlib_as_they_were() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    replay_page(make_outcome(["north"]), title="A replay")

    assert dict(matplotlib.rcParams) == before


WITHOUT_EXTRAS = """
import sys
sys.modules["matplotlib"] = None
sys.modules["jinja2"] = None
import covey
config = {"learner": [{"name": "a", "functions": ["f"]}]}
result = covey.replay(config, {"label": [1], "f": [1]})
"""


def test_numbers_and_text_need_neither_matplotlib_nor_jinja2() -> None:
    code = WITHOUT_EXTRAS + "print(result.summary(), result.table())"
    done = run_python(code)

    assert done.returncode == 0, done.stderr
    assert "error_percent" in done.stdout


def test_a_page_without_matplotlib_names_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=re.escape('pip install ".[report]"')):
        Result(make_outcome(["north"])).report(tmp_path / "out")

    assert not (tmp_path / "out").exists()
