"""Command line: options, output and exit codes."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from covey import cli

CONFIG = """
[data]
label = "label"
context = ["hour"]

[policy]
preset = "cos"
slices = 2

[[learner]]
name = "north"
functions = ["nb", "tree"]
peers = { south = 0.1 }

[[learner]]
name = "south"
functions = ["rules"]
"""

LOG = "hour,label,nb,tree,rules\n" + "".join(
    f"{k % 10 / 10},{k % 2},{k % 2},{(k + 1) % 2},{k % 3 % 2}\n" for k in range(60)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sites.toml").write_text(CONFIG)
    (tmp_path / "log.csv").write_text(LOG)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def replay(folder: Path, *more: str) -> int:
    return cli.main(
        ["replay", str(folder / "log.csv"), "--config", str(folder / "sites.toml"), *more]
    )


def test_json_is_one_object_on_standard_output_and_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replay(folder, "--json")

    summary = json.loads(capsys.readouterr().out)
    names = {"version", "policy", "slots", "total", "learners", "functions", "contexts"}
    assert set(summary) == names
    assert summary["functions"]["nb"] == 0.0
    assert set(summary["learners"]["north"]) == {
        "slots", "errors", "error_percent", "train_percent", "explore_percent",
        "exploit_percent", "cost_total", "arms", "alone_percent", "best_own",
        "best_own_percent", "net_gain_points", "pairs", "alarms", "buyer_gain_points", "account",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("log.csv", "hour,label,nb", "hour,label,nbb", "has no column 'nb'; did you mean 'nbb'?"),
        ("log.csv", "\n0.3,1,", "\n1.3,1,", "slot 4: context 'hour' is 1.3"),
        ("sites.toml", "slices = 2", "horizon = 20", "more rows than the horizon of 20 slots"),
        ("sites.toml", "slices = 2", "slices = 2 2", "is not valid TOML"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_exit_code_2_and_no_trace(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, sentence: str
) -> None:
    edit(folder / file, old, new)

    code = replay(folder, "--quiet", "--trace", str(folder / "trace.csv"))

    printed = capsys.readouterr()
    assert code == 2
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert sorted(p.name for p in folder.iterdir()) == ["log.csv", "sites.toml"]


def test_a_report_over_a_file_is_refused_before_the_replay(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "taken").write_text("")

    assert replay(folder, "--report", str(folder / "taken")) == 2
    assert capsys.readouterr() == (
        "",
        f"covey: {folder / 'taken'} is a file; name another folder for the report, or move it\n",
    )


def test_version_names_the_kernel() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "covey", "--version"],
        env={**os.environ, "COVEY_KERNEL": "plain"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith(f"covey {version('covey')} (kernel: plain")


def test_covey_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "replay a log of predictions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["relpay"], "did you mean 'replay'"),
        (["replay", "log.csv", "--confg", "x"], "did you mean '--config'"),
        (["keys", "nwe"], "did you mean 'new'"),
    ],
)
def test_a_misspelt_command_or_option_is_named_with_the_nearest(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)

    assert exit_.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["replay"], ["replay", "x.csv"], ["nonsense"]])
def test_a_wrong_command_line_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)

    assert stopped.value.code == 2
    assert "usage: covey" in capsys.readouterr().err


def test_an_unexpected_failure_exits_with_1_and_hints_at_debug(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = replay(folder, "--quiet", "--report", str(folder / ("long" * 100)))

    assert code == 1
    assert "--debug shows where" in capsys.readouterr().err
