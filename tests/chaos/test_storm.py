"""In every storm the promises hold; and the same seed is the same storm."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chaos.runs import play
from support.effort import effort

SEEDS = effort(30, long=200)
FIRST, CHUNK = 15, 5
HERE = Path(__file__).parents[1]
# What must come up in a few seeds, or the storms are none.
KINDS = {
    "FunctionError",
    "asks by cell",
    "crashes after a commit",
    "crashes at a send",
    "crashes at any time",
    "crashes before a commit",
    "damaged messages",
    "damaged responses",
    "disconnects",
    "failed boots",
    "failed commits",
    "full disks",
    "greetings",
    "labels, conflicting",
    "labels, late",
    "labels, new",
    "labels, not wanted",
    "labels, repeated",
    "labels together",
    "lost",
    "messages with an instance",
    "partitions",
    "pauses",
    "power losses",
    "refused asks",
    "repeated",
    "responses to others",
    "batches",
    "trainings",
}


@pytest.mark.parametrize(
    ("first", "options", "counted", "least"),
    [
        *((first, {}, "acknowledged", 250) for first in range(FIRST, SEEDS, CHUNK)),
        (0, {"is_free": True}, "acknowledged", 250),
        (0, {"shadow": 0.5}, "rows in the shadow", 100),
    ],
)
def test_every_guarantee_holds_under_any_fault(
    first: int, options: dict[str, Any], counted: str, least: int
) -> None:
    verdicts = [play(seed, **options) for seed in range(first, first + CHUNK)]

    assert {verdict.seed: verdict.found for verdict in verdicts if verdict.found} == {}
    assert sum(verdict.counts[counted] for verdict in verdicts) > least


def test_every_kind_of_trouble_comes_up_and_every_guarantee_holds() -> None:
    verdicts = [play(seed) for seed in range(FIRST)]
    counts: Counter[str] = Counter()
    for verdict in verdicts:
        counts.update(verdict.counts)

    assert {one.seed: one.found for one in verdicts if one.found} == {}
    assert {kind for kind in KINDS if counts[kind] == 0} == set()


def test_the_same_seed_is_the_same_storm() -> None:
    assert [play(seed) for seed in (3, 13)] == [play(seed) for seed in (3, 13)]


@pytest.mark.parametrize("hash_seed", ["0", "7"])
def test_the_same_seed_is_the_same_storm_in_another_process(hash_seed: str) -> None:
    code = "from chaos.runs import play; print(play(3).trace)"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=HERE,
        capture_output=True,
        text=True,
        check=True,
    )

    assert told.stdout.strip() == play(3).trace
