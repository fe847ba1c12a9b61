"""What is shipped: the source distribution, the wheels, the files beside the code."""

import re
import subprocess
import tomllib
from pathlib import Path

from support.required import ROOT, program, require

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LEFT_OUT = (".ci/run", ".gitignore")
BY_THEMSELVES = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")


def test_the_source_distribution_has_every_file_that_its_tests_need() -> None:
    require((ROOT / ".git").exists(), "needs a clone: a source distribution has no list of files")
    git = [program("git"), "-C", str(ROOT), "ls-files"]
    tracked = subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
    rules = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines()]
    grafted = {f"{folder}/" for rule in rules if rule[:1] == ["graft"] for folder in rule[1:]}
    included = {name for rule in rules if rule[:1] == ["include"] for name in rule[1:]}

    held = {name for name in tracked if name.startswith(tuple(grafted))} | included
    assert len(held) > 500
    assert set(tracked) - held == {*LEFT_OUT, *BY_THEMSELVES}
    assert included <= set(tracked)


def test_the_wheels_are_those_of_the_supported_versions_of_python() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
    built = [f"3.{tag[3:-2]}" for tag in PYPROJECT["tool"]["cibuildwheel"]["build"]]

    assert PYPROJECT["project"]["requires-python"] == f">={named[0]}"
    assert built[: len(named)] == named


def test_the_citation_has_the_version_of_the_package() -> None:
    text = (ROOT / "CITATION.cff").read_text()

    assert re.findall(r"^version: (.*)$", text, re.MULTILINE) == [PYPROJECT["project"]["version"]]


def test_the_hooks_of_commits_run_the_tools_of_make_check() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    recipe = (ROOT / "Makefile").read_text().split("\ncheck:")[1].split("\n\n")[0]
    run = {
        line.replace(" --force-exclude", "") for line in re.findall(r"entry: .venv/bin/(.*)", hooks)
    }

    assert run == {line.removesuffix(" .") for line in re.findall(r"\$\(BIN\)/(.*)", recipe)}
    assert re.findall(r"repo: (.*)", hooks) == ["local"]  # no code from elsewhere


def test_the_demo_of_a_new_clone_needs_no_compiler(tmp_path: Path) -> None:
    make = [program("make"), "--no-print-directory", "-n", f"VENV={tmp_path}/venv", "demo"]
    text = subprocess.run(make, capture_output=True, text=True, check=True, cwd=ROOT).stdout

    installed = [line for line in text.splitlines() if "--editable" in line]
    assert [line.split()[0] for line in installed] == ["COVEY_BUILD=plain"]
    assert not re.search(r"pyarrow|parquet|Cython|--upgrade", text)
    assert text.splitlines()[-1].startswith(f"{tmp_path}/venv/bin/covey demo")
