"""What the report of a file says of several contexts and of peers that see the cell only."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey import cli
from support.replays import write
from support.two_sites import answers

COLUMNS = ("x0", "x1", "label", "a", "b", "c", "fee", "late")
TOML = """
[data]
{data}

[policy]
preset = "cos"
slices = 2

[[learner]]
name = "north"
functions = ["a", "b"]
peers = {{ south = 0.05 }}
{north}

[[learner]]
name = "south"
functions = ["c"]
peers = {{}}
{south}
"""
FEATURES = {
    "candidates": ('candidates = ["x0", "x1", ["x0", "x1"]]', "", ""),
    "context only": ('context = ["x0"]', "context-peers = { south = 0.02 }", ""),
}


@functools.cache
def log_columns(slots: int = 1_500) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(12)
    contexts = rng.random((2, slots)).round(4)
    labels = (contexts[0] > 0.5).astype(int) ^ (rng.random(slots) < 0.1)
    said = answers(labels, 0.6, 0.5, 0.9)
    fee, late = rng.random(slots).round(3) / 4, rng.integers(0, 4, slots)
    return dict(zip(COLUMNS, (*contexts, labels, *said, fee, late), strict=True))


def run(folder: Path, *more: str) -> int:
    log, toml = str(folder / "log.csv"), str(folder / "sites.toml")
    return cli.main(["replay", log, "--config", toml, "--quiet", *more])


def reported(folder: Path, feature: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, Any]:
    """Return the page of a replay with a feature on, and the summary."""
    data, north, south = FEATURES[feature]
    (folder / "sites.toml").write_text(TOML.format(data=data, north=north, south=south))
    write(log_columns(), folder / "log.csv")
    assert run(folder, "--json", "--report", str(folder / "out")) == 0
    return (folder / "out" / "report.html").read_text(), json.loads(capsys.readouterr().out)


def test_the_page_has_a_map_for_every_candidate_and_names_the_one_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, summary = reported(tmp_path, "candidates", capsys)
    went_by = summary["learners"]["north"]["candidates"]

    for contexts in ("x0", "x1", "x0 and x1"):
        assert page.count(f'aria-label="arms that north prefers by {contexts}"') == 1
    assert set(went_by) == {"x0", "x1", "x0+x1"}
    assert sum(went_by.values()) == 1_500
    assert "3 context spaces" in page
    assert f"by x0: {100 * went_by['x0'] / 1_500:.0f}% of slots" in page


def test_the_page_marks_peers_that_saw_the_cell_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, summary = reported(tmp_path, "context only", capsys)

    assert summary["learners"]["north"]["arms"]["south (context)"] > 500
    assert '<span class="key" title="south (context)">' in page
    assert "A pale hue is a peer that receives only the cell." in page


def test_contexts_that_cannot_be_drawn_are_left_to_the_trace(tmp_path: Path) -> None:
    given = {**log_columns(), "x2": log_columns()["fee"]}
    write(given, tmp_path / "log.csv")
    toml = TOML.format(data='candidates = ["x0", ["x0", "x1", "x2"], []]', north="", south="")
    (tmp_path / "sites.toml").write_text(toml)

    assert run(tmp_path, "--report", str(tmp_path / "out")) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count('aria-label="arms that north prefers by x0"') == 1
    assert "more than two contexts" in page
