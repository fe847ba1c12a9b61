"""The structure of the code: few modules, few lines, one-way imports, no effects at import."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from support.required import ROOT

PACKAGE = ROOT / "src" / "covey"
SOURCES = sorted(PACKAGE.glob("**/*.py"))
DECLARATIONS = sorted(PACKAGE.glob("**/*.pxd"))
TESTS = sorted((ROOT / "tests").glob("**/*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# These numbers only fall. A limit per file is not among them: it cuts files, and shrinks nothing.
MOST_MODULES = 125
MOST_LINES = 46_610
MOST_LINES_OF_TESTS = 51_773
MOST_METHODS = 40  # of a class of the kernel, inherited ones included
MOST_LEVELS = 2  # of inheritance
KERNEL = sorted(path.stem for path in (PACKAGE / "kernel").glob("[a-z]*.py"))


def test_there_are_few_modules() -> None:
    assert 60 < len(SOURCES) <= MOST_MODULES


def test_there_are_few_lines() -> None:
    assert DECLARATIONS
    assert _lines([*SOURCES, *DECLARATIONS]) <= MOST_LINES


def test_tests_have_few_lines() -> None:
    assert _lines(TESTS) <= MOST_LINES_OF_TESTS


def _lines(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def test_classes_of_the_kernel_are_small_and_hardly_inherit() -> None:
    modules = [importlib.import_module(f"covey.kernel.{name}") for name in KERNEL]
    classes = {
        var
        for module in modules
        for var in vars(module).values()
        if isinstance(var, type) and var.__module__.startswith("covey.kernel")
    }

    assert len(classes) > 20
    for one in classes:
        bases = [base for base in one.__mro__ if base.__module__.startswith("covey.kernel")]
        methods = {name for base in bases for name in _methods(base)}
        assert len(bases) - 1 <= MOST_LEVELS, one
        assert len(methods) <= MOST_METHODS, one


def _methods(one: type) -> list[str]:
    """Return the methods of a class in its source: the compiled form does not show all."""
    source = PACKAGE / "kernel" / f"{one.__module__.rpartition('.')[2]}.py"
    for stmt in ast.parse(source.read_text()).body:
        if isinstance(stmt, ast.ClassDef) and stmt.name == one.__name__:
            return [part.name for part in stmt.body if isinstance(part, ast.FunctionDef)]
    raise AssertionError(f"{one} is not in {source}")


def test_the_build_is_short() -> None:
    assert len((ROOT / "setup.py").read_text().splitlines()) <= 40


def test_files_of_tests_have_different_names() -> None:
    names = Counter(path.name for path in TESTS if path.name.startswith("test_"))

    assert [name for name, times in names.items() if times > 1] == []


def test_a_public_class_name_is_defined_once() -> None:
    found = Counter(
        stmt.name
        for path in SOURCES
        for stmt in ast.parse(path.read_text()).body
        if isinstance(stmt, ast.ClassDef) and not stmt.name.startswith("_")
    )

    # River and scikit-learn each have one: users import either.
    assert {name for name, times in found.items() if times > 1} == {"CoveyClassifier"}
    assert len(found) > 200


def test_imports_have_thirteen_layers() -> None:
    layers = PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    listed = {name for layer in layers for name in re.findall(r"\w+", layer)}
    present = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in SOURCES}

    assert len(layers) == 13
    assert listed == present - {"__init__", "__main__"}


def test_documents_name_tests_that_are_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md")]
    named = {name for page in pages for name in re.findall(r"test_\w+\.py", page.read_text())}

    assert len(named) > 15
    assert named - {path.name for path in TESTS} == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_importing_covey_has_no_effect_but_names() -> None:
    code = (
        "import logging, os, signal, sys, threading\n"
        "def now():\n"
        "    return (sys.excepthook, len(logging.root.handlers), dict(os.environ), sys.path[:],\n"
        "            sys.meta_path[:])\n"
        "before = now()\n"
        "import covey, covey.cli\n"
        "assert before == now()\n"
        "assert threading.active_count() == 1\n"
        "optional = {'matplotlib', 'pyarrow', 'sklearn', 'river', 'asyncio', 'cryptography'}\n"
        "optional &= set(sys.modules)\n"
        "assert not optional, optional\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr == ""


def test_every_package_stands_in_the_table_of_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    packages = {path.parent.name for path in SOURCES if path.name == "__init__.py"}

    assert {name for name in packages if f"`{name}`" not in text} == {"covey"}


def test_the_version_is_the_newest_in_the_changelog() -> None:
    version = PYPROJECT["project"]["version"]

    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
