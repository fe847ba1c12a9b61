"""Drawing imports matplotlib late, reports if it is missing, and does not change its state."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from covey.errors import MissingExtra
from covey.report import replay as replay_report
from covey.report.results import Result
from support.outcomes import make_outcome


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_drawing_leaves_the_settings_of_matplotlib_as_they_were() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    replay_report.html(make_outcome(["north"]), title="A replay")

    assert dict(matplotlib.rcParams) == before


def test_the_settings_of_a_user_do_not_change_the_page() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    plain = replay_report.html(make_outcome(["north"]), title="A replay")
    with matplotlib.rc_context({"axes.facecolor": "black", "lines.linewidth": 9}):
        styled = replay_report.html(make_outcome(["north"]), title="A replay")

    assert styled == plain


WITHOUT_MATPLOTLIB = """
import sys
sys.modules["matplotlib"] = None
from covey.report import replay as report
from covey.report.summary import summarise
from covey.replay.outcome import LearnerOutcome, Outcome, Timeline
learner = LearnerOutcome(
    "a", ["f"], 1, 1, 0, 0, 0, 1, 0.0, {"f": 1}, 0, Timeline(1, [1], [1], [0], [0], [0]), []
)
outcome = Outcome(1, 0, [], "CoS", [learner], {"f": 0.0})
"""


def test_numbers_and_text_need_no_matplotlib() -> None:
    code = WITHOUT_MATPLOTLIB + "print(summarise(outcome), report.text(outcome))"
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


def test_importing_the_report_does_not_import_matplotlib() -> None:
    done = run_python("import sys, covey.report.replay; print('matplotlib' in sys.modules)")

    assert done.stdout == "False\n"
