"""Completion scripts: a shell that reads them completes commands, options and values."""

import shlex
import subprocess

import pytest

from covey import cli
from covey.cli.completion import script
from covey.cli.parser import COMMANDS
from support.required import program

pytestmark = pytest.mark.beside_the_kernel


def completed(line: str) -> list[str]:
    """Return what bash proposes for the last word of a line."""
    words = line.split(" ")
    code = (
        f"{script('bash')}\n"
        f"COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}\n"
        '_covey; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        [program("bash"), "--norc", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "proposed"),
    [
        ("covey re", ["replay", "report", "reproduce"]),
        ("covey replay --tr", ["--trace"]),
        ("covey keys re", ["request", "renew"]),
        ("covey keys sign --d", ["--days", "--debug"]),
        ("covey bounds --form ", ["printed", "corrected", "cautious"]),
        ("covey bounds --form c", ["corrected", "cautious"]),
        ("covey completion ", ["bash", "zsh"]),
        ("covey replay lo", []),  # a file: the shell's own completion takes over
        ("covey replay ", []),
    ],
)
def test_bash_proposes(line: str, proposed: list[str]) -> None:
    assert completed(line) == proposed


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_has_every_command_and_its_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out

    assert {name for name in COMMANDS if f"'{name}') " not in text} == set()
    assert "--horizon-slots" in text


def test_descriptions_for_zsh_are_escaped() -> None:
    lines = script("zsh").splitlines()
    (replay,) = [line for line in lines if line.strip().startswith("'replay')")]

    assert r"'--config:TOML\: columns, policy, sites'" in replay
