"""Command line: options, output and exit codes."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from covey import cli
from covey.cli import demo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    demo.write(tmp_path, slots=60)
    return tmp_path


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
    assert set(summary["functions"]) == {function.name for function in demo.FUNCTIONS}
    assert set(summary["learners"]["bank"]) == {
        "slots", "errors", "error_percent", "train_percent", "explore_percent",
        "exploit_percent", "cost_total", "arms", "alone_percent", "best_own",
        "best_own_percent", "net_gain_points", "pairs", "alarms", "buyer_gain_points", "account",
    }  # fmt: skip


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
