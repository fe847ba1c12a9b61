"""What a test needs beyond the packages of the project: skip without it, or fail where CI runs."""

import os
from pathlib import Path
from shutil import which

import pytest

ROOT = Path(__file__).parents[2]
NO_SKIPS = "COVEY_NO_SKIPS"  # set by .ci/run, after it has made all that tests need


def require(is_there: object, reason: str) -> None:
    """Skip the test that runs if something is absent; fail if `COVEY_NO_SKIPS` is set."""
    if not is_there:
        (pytest.fail if os.environ.get(NO_SKIPS) else pytest.skip)(reason)


def program(name: str) -> str:
    """Return the path of a program of the system; skip or fail the test without it."""
    found = which(name)
    require(found, f"needs {name}: make ci-tools")
    return str(found)


def environment(name: str) -> Path:
    """Return the Python of the environment of a foreign client."""
    folder = ROOT / ".clients" / name
    require((folder / ".made").exists(), f"needs the environment {folder}: make clients")
    return folder / "bin" / "python"
