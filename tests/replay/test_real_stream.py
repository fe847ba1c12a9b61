"""On the stream of the paper, its second set of functions: what it prints comes out.

Needs the KDD Cup 1999 data in the folder that COVEY_DATA names. Rows 80,553 to 100,552 have the
share of attacks that the paper's test data had; which rows it used it does not say. On these rows
five of its eight functions say "normal" always, one "attack" always, and two are coin tosses.
"""

import gzip
import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import covey
from covey.replay.baselines import BaselineRun, make
from support.streams import log_of

FOLDER = os.environ.get("COVEY_DATA", "")
FILE = Path(FOLDER) / "kddcup.data_10_percent.gz"
SLOTS = 20_000
pytestmark = [
    pytest.mark.skipif(
        not FOLDER or not FILE.is_file(),
        reason="COVEY_DATA names no folder with the KDD Cup 1999 data",
    ),
]


@pytest.fixture(scope="module")
def is_attack() -> np.ndarray:
    with gzip.open(FILE, "rt") as file:
        rows = islice(file, 80_552, 80_553 + SLOTS)
        return np.array([not row.rstrip().endswith("normal.") for row in rows], int)


def said() -> list[np.ndarray]:
    tosses = np.random.default_rng(1).integers(0, 2, (2, SLOTS))
    normal, attack = np.zeros(SLOTS, int), np.ones(SLOTS, int)
    return [normal, tosses[0], attack, tosses[1], normal, normal, normal, normal]


def replayed(is_attack: np.ndarray, context: str, *, is_worst: bool) -> list[float]:
    """Return percent of errors, training and exploration of the first learner."""
    labels = is_attack[1:]
    contexts = {"previous": is_attack[:-1], "time": np.arange(1, SLOTS + 1) / SLOTS}[context]
    config = {
        "policy": {"preset": "cos", "reading": "paper", "horizon": SLOTS},
        "learner": [
            {"name": f"l{k}", "functions": [f"l{k}a", f"l{k}b"], "arrivals": k == 1 or not is_worst}
            for k in (1, 2, 3, 4)
        ],
    }
    trace = covey.replay(
        config, predictions=said(), labels=labels, contexts=contexts[:, None].astype(float)
    )
    first = trace.learner == 0
    shares = [trace.correct[first] == 0, trace.phase[first] == 0, trace.phase[first] == 1]
    return [100.0 * float(share.mean()) for share in shares]


@pytest.mark.parametrize(
    ("context", "printed"), [("previous", (0.9, 0.3, 1.5)), ("time", (10.0, 2.8, 8.6))]
)
def test_with_the_same_stream_everywhere_the_printed_figures_come_out(
    is_attack: np.ndarray, context: str, printed: tuple[float, float, float]
) -> None:
    error, train, explore = replayed(is_attack, context, is_worst=False)

    assert error == pytest.approx(printed[0], abs=max(0.3, 0.25 * printed[0]))
    assert train == pytest.approx(printed[1], abs=max(0.15, 0.15 * printed[1]))
    assert explore == pytest.approx(printed[2], abs=max(0.15, 0.15 * printed[2]))


def test_helpers_that_explore_first_do_far_better_than_the_printed_figures(
    is_attack: np.ndarray,
) -> None:
    assert replayed(is_attack, "previous", is_worst=True)[0] < 3.0
    assert replayed(is_attack, "time", is_worst=True)[0] < 16.0


def test_a_low_error_proves_little_here_as_plain_rules_have_one_too(is_attack: np.ndarray) -> None:
    names = ["previous-label", "sliding-adaboost-100", "sliding-adaboost-1000"]
    contest = BaselineRun(make(names, functions=8))
    contest.add(log_of(said(), is_attack[1:]))
    found = contest.outcome()

    assert found["previous-label"].errors == 31
    # After each of 31 switches, about half a window is wrong, or what there was of the window.
    assert found["sliding-adaboost-100"].error_percent == pytest.approx(2.2, abs=0.1)
    assert found["sliding-adaboost-1000"].error_percent == pytest.approx(4.7, abs=0.1)
