"""The tables of `experiments/regret` can be made, and say what the runs say."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from covey.bandit.policies import PRESETS
from covey.simulation import scenario
from support.required import ROOT

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
FOLDER = ROOT / "experiments" / "regret"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("tables")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("regret")
    make(out)
    return out / "README.md"


def make(out: Path) -> str:
    (out / "policies.md").write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    given = ["--quick", "--out", str(out), "--guide", str(out / "policies.md")]
    command = [sys.executable, str(FOLDER / "run.py"), *given]
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_every_scenario_of_the_folder_is_played(page: Path) -> None:
    named = sorted(path.name for path in FOLDER.glob("*.toml"))

    assert len(named) == 13
    assert [name for name in named if f"({name})" not in page.read_text()] == []


def test_every_preset_has_a_line_between_the_marks_of_the_page_on_policies(page: Path) -> None:
    text = (page.parent / "policies.md").read_text()
    between = text.removeprefix(f"before\n{BEGIN}\n").removesuffix(f"\n{END}\nafter\n")
    told = [line.split("`")[1] for line in between.splitlines()]

    assert sorted(told) == sorted(PRESETS)


def test_the_page_in_the_repository_has_the_tables_that_the_script_makes(page: Path) -> None:
    def heads(text: str) -> list[str]:
        lines = [line.split(" (")[0] for line in text.splitlines()]
        return [line for line in lines if line.startswith("#")]

    assert heads((FOLDER / "README.md").read_text()) == heads(page.read_text())


def test_ratios_are_to_the_one_of_the_two_that_lost_less_on_average(tables: ModuleType) -> None:
    assert tables.better([0.1, 0.3], [0.15, 0.2]) == "dcza"
    assert tables.better([0.1, 0.2], [0.15, 0.2]) == "cos"


def entry(tables: ModuleType, mean: float, high: float) -> object:
    ratio = tables.Interval(mean, 0.1, high)
    return tables.Entry("auto", f"world {mean}", 0.01, "cos", ratio)


def test_a_missed_goal_is_reported_with_its_place(tables: ModuleType) -> None:
    found = [entry(tables, 0.5, 0.7), entry(tables, 0.9, 1.2)]

    assert "**missed** in 1 of 2 (world 0.9 0.90 (0.10" in tables.goal(found, 0.8)
    assert "**met** in 2 of 2; the largest ratio is 0.90" in tables.goal(found, 0.95)
    assert "**missed** in 1 of 2: world 0.9" in tables.no_harm(found, 1.05)
    assert "**met**" in tables.no_harm(found[:1], 1.05)


def test_every_world_kept_apart_has_the_regret_of_both_former_rules() -> None:
    apart = FOLDER / "apart"
    environments = scenario.load(apart / "worlds.toml").environments
    published = json.loads((apart / "published.json").read_text())

    assert [*published] == [*environments]
    assert all({*former} == {"0.1.0", "0.2.0"} for former in published.values())
