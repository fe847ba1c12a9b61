"""Optional packages that are missing: found before the work begins, and named in a sentence."""

import re
import sys
from pathlib import Path

import pytest

from covey import cli
from covey.cli import demo
from support.required import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    demo.write(tmp_path, slots=50)
    return tmp_path


@pytest.mark.parametrize(
    ("option", "package", "need"),
    [
        ("--report=out", "matplotlib.figure", "figures need matplotlib; "),
        ("--trace=trace.parquet", "pyarrow", "Parquet files need pyarrow; "),
        ("--baselines=river-ucb", "river", "baselines from River need river; "),
    ],
)
def test_a_missing_extra_is_found_before_the_replay(
    option: str,
    package: str,
    need: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())

    assert cli.main(["replay", "log.csv", "--config", "sites.toml", option]) == 2
    printed = capsys.readouterr()

    assert printed.out == ""
    assert printed.err.startswith(f"covey: {need}install the extra in a clone of covey: pip ")
    assert sorted(folder.iterdir()) == before


def test_the_demo_without_matplotlib_leaves_the_report_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    assert cli.main(["demo", "--out", str(tmp_path / "demo"), "--slots", "500"]) == 0
    printed = capsys.readouterr()

    assert "Over all sites, the best own function" in printed.out
    assert "report: left out; figures need matplotlib; " in printed.err
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {"log.csv", "sites.toml"}


def test_no_document_and_no_message_installs_covey_from_an_index() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("benchmarks/*.py")]
    found = re.compile(r"pip install [^`\n]*\bcovey\b|\bcovey\[")

    assert len(pages) > 30
    assert [str(path) for path in pages + sources if found.search(path.read_text())] == []
