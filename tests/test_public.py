"""The public names: what `import covey` offers, how it is typed and described, what it costs."""

import ast
import importlib.util
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import covey
from covey import errors
from covey.cli.parser import COMMANDS
from support.required import ROOT

PAGE = ROOT / "docs" / "reference" / "python-api.md"
ERRORS = [
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and value.__module__ == "covey.errors"
]
PUBLIC = {
    *("replay", "Result", "Summary", "Trace", "compare", "ReplayComparison", "advise", "Advice"),
    *("simulate", "SimulationResult", "open_store", "bound", "Problem"),
    *("Network", "LocalSite", "Prediction", "Settlement", "Ensemble", "Links"),
    *("columns", "frozen", "untrained", "functions_from"),
    *("Auto", "CoS", "DCZA", "Own", "ShareUCB", "CustomPolicy", "CellState"),
    *ERRORS,
}
IMPORTS = re.compile(r"^ *(?:from (covey[\w.]*) import (.+)|import (covey\.[\w.]+))$", re.MULTILINE)
HEAVY = {"numpy", "msgspec", "asyncio", "matplotlib", "pyarrow", "sklearn", "river"}


def python(code: str) -> str:
    """Run code in a new interpreter and return what it prints."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_the_public_names_are_these() -> None:
    assert len(ERRORS) == 25
    assert {name for name in dir(covey) if not name.startswith("__")} == PUBLIC
    assert all(getattr(covey, name).__doc__ for name in PUBLIC)


def test_the_page_on_python_lists_every_public_name() -> None:
    page = PAGE.read_text()

    assert {name for name in PUBLIC if not re.search(rf"`(covey\.)?{name}`", page)} == set()


def test_the_reference_of_the_site_has_every_public_name() -> None:
    made = pydoc.importfile(str(ROOT / "docs" / "make_site.py")).signatures()

    assert set(re.findall(r"^::: covey\.(?:[\w.]+\.)?(\w+)$", made, re.MULTILINE)) == PUBLIC


def test_documents_use_public_names_and_documented_modules_only() -> None:
    table = PAGE.read_text().split("## Documented modules")[1]
    documented = set(re.findall(r"`(covey\.[\w.]+)`", table))
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]
    used = {
        module
        for page in pages
        for first, names, whole in IMPORTS.findall(page.read_text())
        for module in ([whole] if whole else modules_of(first, names))
    }

    assert len(used) > 15
    assert {module for module in used if module not in documented} == set()


def modules_of(package: str, names: str) -> list[str]:
    """Return what a statement imports from: modules if all names are modules, else the package."""
    found = [f"{package}.{name.split()[0]}" for name in names.split(", ")]
    is_package = hasattr(importlib.import_module(package), "__path__")
    if is_package and all(importlib.util.find_spec(name) for name in found):
        return found
    return [] if package == "covey" else [package]


def test_type_checkers_see_the_names_that_are_imported_on_use() -> None:
    tree = ast.parse(Path(covey.__file__).read_text())
    typed = {
        (node.module, name.name, name.asname)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).count(".")
        for name in node.names
        if name.asname
    }

    assert typed == {(f"covey.{covey._SOURCES.get(name, 'errors')}", name, name) for name in PUBLIC}


@pytest.mark.parametrize("first", ["import covey.replay.outcome", "import covey.simulation.run"])
def test_the_function_replay_is_not_hidden_by_its_package(first: str) -> None:
    assert python(f"{first}\nimport covey\nprint(covey.replay.__name__)") == "replay\n"


def test_a_documented_module_is_an_attribute_after_one_import() -> None:
    print_it = "import covey\nprint(covey.errors.ConfigError.__name__, covey.config.__name__)"

    assert python(print_it) == "ConfigError covey.config\n"


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'covey' has no attribute 'nothing'"):
        _ = covey.nothing  # type: ignore[attr-defined]


def test_the_help_of_the_package_is_short_and_names_what_is_public() -> None:
    text = pydoc.plain(pydoc.render_doc(covey))
    functions_and_classes = PUBLIC - set(ERRORS)

    assert len(text.splitlines()) < 70
    assert {name for name in functions_and_classes if name not in text} == set()


@pytest.mark.parametrize("code", ["import covey", "from covey.cli import main\nmain(['--help'])"])
def test_what_was_not_asked_for_is_not_imported(code: str) -> None:
    tried = f"try:\n    exec({code!r})\nexcept SystemExit: pass\n"
    found = python(f"import sys\n{tried}print('loaded:', *sys.modules)")

    assert set(found.split("loaded:")[1].split()) & HEAVY == set()


def test_a_replay_needs_no_node_store_or_event_loop() -> None:
    config = {"learner": [{"name": "a", "functions": ["f"]}]}
    played = f"import covey, sys\ncovey.replay({config}, {{'label': [1], 'f': [1]}}).table()"
    loaded = python(f"{played}\nprint(*sys.modules)").split()

    assert {"asyncio", "sqlite3", "ssl", "covey.node"} & set(loaded) == set()


def test_every_command_has_a_function_and_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, module in COMMANDS.items():
        assert hasattr(importlib.import_module(f"covey.cli.{module}"), f"run_{name}")
        with pytest.raises(SystemExit):
            covey.cli.main([name, "--help"])
        assert f"usage: covey {name}" in (shown := capsys.readouterr().out)
        assert "example" in shown
