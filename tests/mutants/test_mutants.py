"""A few fixed changes of the code are noticed in every run; `make mutants` draws many more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import covey
from mutants import changes

PATHS = [str(Path(covey.__file__).parents[1]), str(Path(__file__).parents[1])]


def test_planted_bugs_are_noticed_and_a_change_of_nothing_is_not() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mutants", "--planted"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)},
        cwd=PATHS[1],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("return a < b", {"return a <= b"}),
        ("return a == b", {"return a != b"}),
        ("return a + (b)", {"return a - (b)"}),
        ("return a and b", {"return a or b"}),
        ("return not a", {"return a"}),
        ("return a * 2", {"return a / 2", "return a * (2 + 1)"}),
        ("return min(a, b)", {"return max(a, b)"}),
        ("a += b", {"pass"}),
        ("print(a)", {"pass"}),
        ("return a is None or b", {"return a is not None or b", "return a is None and b"}),
        ("raise ValueError(a < b)", set()),
        ("c: Literal[1] = a", set()),
    ],
)
def test_a_line_is_changed_in_every_way(line: str, changed: set[str]) -> None:
    source = f"X = 1 + 1\ndef f(a: int = 1, b: int = 2):\n    {line}\n"
    made = {
        source[: change.start] + change.text + source[change.end :]
        for change in changes.of_source("m.py", source)
    }

    assert made == {source.replace(line, other) for other in changed}
