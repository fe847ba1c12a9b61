"""The shape of the code: small files, no effects at import, everything public documented."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import covey

ROOT = Path(covey.__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "covey").glob("**/*.py"))
TESTS = sorted((ROOT / "tests").glob("**/*.py"))
MOST_LINES = 500
MOST_TEST_LINES = 600
# The one compiled file: calls between files are slow in C too (docs/decisions/0002).
MOST_KERNEL_LINES = 2_050


def test_there_are_sources_to_look_at() -> None:
    assert len(SOURCES) > 20
    assert len(TESTS) > 100


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_file_is_small(path: Path) -> None:
    most = MOST_KERNEL_LINES if path.name == "kernel.py" else MOST_LINES

    assert len(path.read_text().splitlines()) <= most


def test_files_of_tests_are_small() -> None:
    frozen = ROOT / "tests" / "frozen" / "kernel.py"  # a copy, which is not worked on
    lines = {path.name: len(path.read_text().splitlines()) for path in TESTS if path != frozen}

    assert {name: count for name, count in lines.items() if count > MOST_TEST_LINES} == {}


def test_documents_name_tests_that_are_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md")]
    named = {name for page in pages for name in re.findall(r"test_\w+\.py", page.read_text())}

    assert len(named) > 15
    assert named - {path.name for path in TESTS} == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_importing_covey_has_no_effect_but_names() -> None:
    code = (
        "import logging, os, signal, sys, threading\n"
        "before = (sys.excepthook, len(logging.root.handlers), dict(os.environ), sys.path[:])\n"
        "import covey, covey.cli\n"
        "after = (sys.excepthook, len(logging.root.handlers), dict(os.environ), sys.path[:])\n"
        "assert before == after\n"
        "assert threading.active_count() == 1\n"
        "optional = {'matplotlib', 'pyarrow', 'sklearn', 'river', 'asyncio', 'cryptography'}\n"
        "optional &= set(sys.modules)\n"
        "assert not optional, optional\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr == ""


def test_public_names_are_documented() -> None:
    assert all(getattr(covey, name).__doc__ for name in covey.__all__)


def test_every_package_stands_in_the_table_of_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    packages = [path.parent.name for path in SOURCES if path.name == "__init__.py"]

    missing = [name for name in packages if f"`{name}`" not in text]
    assert set(missing) <= {"covey", "papers", "sources"}


def test_the_version_is_the_newest_in_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
