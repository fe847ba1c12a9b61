"""What contexts were worth is what a replay without them says, and noise tells nothing apart."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.replay.replay import MOST_ROWS, _Sample
from covey.types import Interval
from support.streams import log_of

ROWS = 2_000
RNG = np.random.default_rng(11)
LABELS = RNG.integers(0, 2, ROWS)
LOAD, NOISE = 200 * RNG.random(ROWS), RNG.random(ROWS)
LOW = LOAD < 100


def answers(chance: np.ndarray) -> np.ndarray:
    return np.where(RNG.random(ROWS) < chance, LABELS, 1 - LABELS)


COLUMNS = {
    "label": LABELS,
    "load": LOAD,
    "noise": NOISE,
    "a": answers(np.where(LOW, 0.95, 0.5)),
    "b": answers(np.where(LOW, 0.5, 0.9)),
    "c": answers(np.full(ROWS, 0.7)),
}
LOADS = {"column": "load", "scale": "linear", "low": 0, "high": 200}


def config(*context: Any, preset: str = "auto") -> dict[str, Any]:
    return {
        "data": {"context": [*context]},
        "policy": {"preset": preset, **({"slices": 4} if preset == "cos" else {})},
        "learner": [
            {"name": "north", "functions": ["a", "c"], "peers": {"south": 0.05}},
            {"name": "south", "functions": ["b"], "peers": {}},
        ],
    }


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
def test_the_points_are_those_of_two_replays(preset: str) -> None:
    result = covey.replay(config(LOADS, preset=preset), COLUMNS)
    bare = covey.replay(config(preset=preset), COLUMNS)

    worth = result.outcome.contexts
    assert worth is not None
    assert bare.outcome.contexts is None
    for numbers, points in ((result, "given_points"), (bare, "none_points")):
        for name, learner in numbers.summary().learners.items():
            assert learner.error_percent is not None
            total = learner.error_percent + 100 * (learner.cost_total or 0) / learner.slots
            assert getattr(worth.learners[name], points) == pytest.approx(total)
    gain = worth.total.gain_points
    assert isinstance(gain, Interval)
    assert gain.mean == pytest.approx(worth.total.none_points - worth.total.given_points)
    own = result.summary().total.best_own_percent
    assert worth.total.best_own_points == pytest.approx(own)


def test_the_context_that_tells_functions_apart_is_found_with_its_border_in_its_units() -> None:
    worth = covey.replay(config("noise", LOADS), COLUMNS).outcome.contexts

    assert worth is not None
    (telling,) = worth.telling
    assert telling.context == "load"
    # In hindsight: .925 of the rows by its halves, .725 by the best function for all.
    assert telling.gain_points.mean == pytest.approx(20, abs=4)
    (low, high) = telling.best
    assert (low.function, low.low, high.function, high.high) == ("a", 0.0, "b", 200.0)
    assert low.high == high.low
    assert high.low == pytest.approx(100, abs=5)


def test_a_category_that_tells_functions_apart_is_named() -> None:
    names = np.where(LOAD < 50, "ES", np.where(LOW, "FR", "PT"))
    scale = {"column": "country", "scale": "category", "values": ["ES", "FR", "PT"]}
    worth = covey.replay(config(scale), {**COLUMNS, "country": names}).outcome.contexts

    assert worth is not None
    (telling,) = worth.telling
    assert [(best.low, best.high, best.function) for best in telling.best] == [
        ("ES", "FR", "a"),
        ("PT", "PT", "b"),
    ]


def test_contexts_that_tell_nothing_are_said_to_gain_nothing() -> None:
    result = covey.replay(config("noise"), COLUMNS)
    worth = result.outcome.contexts

    assert worth is not None
    assert worth.telling == []
    gain = worth.total.gain_points
    assert gain is not None
    assert gain.low is not None
    assert gain.low <= 0


def test_chunks_of_any_size_rank_contexts_alike() -> None:
    rows = 5 * MOST_ROWS
    rng = np.random.default_rng(3)
    points, labels = rng.random((rows, 2)), rng.integers(-1, 2, rows).astype(np.int32)
    said = rng.integers(0, 2, (3, rows)).astype(np.int32)
    samples = []
    for size in (rows, 1_000, 77):
        sample = _Sample(1)
        for first in range(0, rows, size):
            part = slice(first, first + size)
            sample.add(log_of(said[:, part], labels[part], contexts=points[part]))
        samples.append(sample)

    for sample in samples[1:]:
        assert MOST_ROWS / 3 < len(sample.rows) <= MOST_ROWS
        assert np.array_equal(sample.points, samples[0].points)
        assert np.array_equal(sample.right, samples[0].right)
