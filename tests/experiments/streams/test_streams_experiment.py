"""Streams with many features: what the default policy is compared with is computed rightly."""

import runpy
from typing import Any

import numpy as np
import pytest

from support.required import ROOT

FOLDER = ROOT / "experiments" / "streams"


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / "run.py"))


@pytest.fixture(scope="module")
def log(run: dict[str, Any]) -> Any:
    return run["log_of"](run["STREAMS"]["wine"], 1)


def test_the_same_draw_gives_the_same_log(run: dict[str, Any], log: Any) -> None:
    again = run["log_of"](run["STREAMS"]["wine"], 1)

    assert all(map(np.array_equal, log, again))
    assert log.answers.shape == (8, len(log.labels))
    assert ((log.contexts >= 0) & (log.contexts <= 1)).all()


def test_the_best_single_function_of_each_site_pays_its_price(
    run: dict[str, Any], log: Any
) -> None:
    lost = 0.0
    for site in range(4):
        rows = [row for row in range(len(log.labels)) if log.at[row] == site]
        lost += min(
            sum(log.answers[k, row] != log.labels[row] for row in rows)
            + (0.05 * len(rows) if k // 2 != site else 0)
            for k in range(8)
        )

    assert run["best_single"](log) == pytest.approx(100 * lost / len(log.labels))


def test_a_linear_bandit_finds_the_function_that_a_feature_tells(run: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    rows = 2_000
    points, labels = rng.random((rows, 5)), rng.integers(0, 2, rows)
    is_first = points[:, 3] < 0.5
    answers = np.tile(1 - labels, (8, 1))
    answers[0], answers[1] = (
        np.where(is_first, labels, 1 - labels),
        np.where(is_first, 1 - labels, labels),
    )
    log = run["Log"](points, answers, labels, np.arange(rows) % 4)

    # Three of four sites pay 5 points for the right answers of the first.
    assert run["lin_ucb"](log) < 16
    assert run["play"](log)["auto"] < 16
    assert run["best_single"](log) == pytest.approx(53.75, abs=4)


def test_the_page_has_a_line_for_each_stream(run: dict[str, Any]) -> None:
    page = (FOLDER / "README.md").read_text()

    assert [name for name in run["STREAMS"] if f"| {name} |" not in page] == []
