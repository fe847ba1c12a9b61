"""The experiment on trust can be run, and finds a liar in a short run."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.modules import module_at
from support.required import ROOT

FOLDER = ROOT / "experiments" / "trust"


@pytest.fixture(scope="module")
def sites() -> ModuleType:
    return module_at(FOLDER / "sites.py", "sites_of_trust")


def test_a_short_run_writes_a_line_for_every_scene(tmp_path: Path, sites: ModuleType) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured: begin -->\nold\n<!-- measured: end -->\nafter\n")
    command = [sys.executable, str(FOLDER / "run.py"), "--quick", "--out", str(page)]
    subprocess.run(
        [*command, "--processes", "1"],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    text = page.read_text()
    scenes = {**sites.HONEST, **sites.CHANGING, **sites.FALSE}
    assert [name for name in scenes if f"\n| {name} |" not in text] == []
    assert "200 slots, 2 seeds." in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")


def test_a_liar_is_parted_and_honest_sources_are_not(sites: ModuleType) -> None:
    lies = sites.play(sites.FALSE["every label false"], "earned", 1, 300)
    honest = sites.play(sites.HONEST["honest, other instances in the cells"], "earned", 1, 300)

    assert (lies.parted, lies.at_end) == ({"south": 0, "east": 0, "west": 1}, ["west"])
    assert honest.at_end == []


def test_full_trust_is_harmed_by_what_earned_trust_parts(sites: ModuleType) -> None:
    losses = {
        trust: sites.play(sites.Scene(sites.BEST_WRONG, rows=4), trust, 2, 900).loss
        for trust in ("full", "earned", "isolated")
    }

    assert losses["full"] > 1.3 * losses["isolated"]
    assert losses["earned"] < 1.1 * losses["isolated"]
