"""`covey compare`: the same object as in Python, exit codes, resumed replays, help."""

import json
from pathlib import Path

import msgspec
import pytest

import covey
from covey import cli
from covey.cli import demo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The log and the configuration of the demo."""
    demo.write(tmp_path, slots=600, seed=2)
    return tmp_path


def compare(folder: Path, *more: str) -> int:
    files = [str(folder / "log.csv"), "--config", str(folder / "sites.toml")]
    return cli.main(["compare", *files, "--workers", "1", *more])


def test_the_numbers_are_those_of_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = compare(folder, "--presets", "share-ucb, cos", "--slices", "2,3", "--json", "--quiet")
    printed = capsys.readouterr()
    found = covey.compare(
        folder / "sites.toml", folder / "log.csv", presets=["share-ucb", "cos"], slices=[2, 3]
    )

    assert code == 0
    assert json.loads(printed.out) == msgspec.to_builtins(found.summary())
    assert printed.err == ""


def test_a_table_with_its_conclusion_fits_a_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = compare(folder, "--report", str(folder / "out"))
    printed = capsys.readouterr()

    assert code == 0
    assert " does best: " in printed.out
    assert max(map(len, printed.out.splitlines())) <= 100
    assert "compare: 2,400 slots in " in printed.err
    assert (folder / "out" / "comparison.html").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--presets", "cso"], "covey: policy 'cso': unknown preset 'cso' in [policy]"),
        (["--policies", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    code = compare(folder, "--quiet", *options)

    assert code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("has_folder", [True, False])
def test_an_interrupt_says_how_to_resume_if_replays_are_kept(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    has_folder: bool,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("covey.report.comparison.replay_file", interrupted)
    out = ["--out", str(folder / "kept")] if has_folder else []
    code = compare(folder, "--quiet", "--presets", "cos", "--slices", "2", *out)

    assert code == 130
    told = capsys.readouterr().err
    assert ("keeps finished replays; repeat the command to resume" in told) == has_folder
