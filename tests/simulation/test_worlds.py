"""Worlds are reproducible, with the configured arrivals and accuracies."""

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import ConfigError
from covey.simulation.environment import Classes, DrawnColumn, Drift, Environment, Surface
from covey.simulation.world import World, WorldChunk
from covey.types import WHOLE, Loss

KINDS: list[dict[str, Any]] = [
    {},
    {"case": "C1"},
    {"case": "C2", "dimension": 2},
    {"case": "C4", "dimension": 3, "shape": "ramps"},
    {"correlation": "independent", "shape": "steps", "alpha": 0.5},
    {"correlation": 0.4, "arrivals": "worst"},
    {"drift": Drift(severity=0.3, every_slots=7), "correlation": "independent"},
    {"drift": Drift(kind="gradual", severity=0.3, every_slots=7), "correlation": 0.7},
    {"delay_slots": 5, "label_probability": 0.6, "failing": {"learner-2": 0.5}},
    {"drift": Drift(kind="recur", severity=0.3, every_slots=7, learners=("learner-1",))},
    {"drift": Drift(kind="fall", severity=0.3, every_slots=7, region=((0.2, 0.6),))},
    {"drift": Drift(kind="improve", severity=0.3, every_slots=90), "dependence": 0.6},
    {"correlation": 0.5, "dependence": 0.9, "delay_slots": 9, "least_delay_slots": 7},
    {"classes": Classes(number=3, usual=0.6), "dimension": 2},
    {"loss": Loss("absolute", 2.0)},
    {"loss": Loss("squared", 3.0), "columns": {"fee": DrawnColumn(high=1.0)},
     "learner": [{"name": "learner-1", "cost-columns": {"learner-2": "fee"}}]},
]  # fmt: skip


def parts(stretch: WorldChunk) -> list[np.ndarray | None]:
    classes = stretch.labelled or (None, None, None)
    return [*stretch[1:6], *classes, stretch.columns.get("fee")]


def arrays(stretches: list[WorldChunk]) -> list[np.ndarray | None]:
    """Everything that the stretches hold, put together along the slots."""
    along = (0, 2, 2, 0, 0, 0, 0, 2, 0)
    columns = zip(*map(parts, stretches), strict=True)
    return [
        None if column[0] is None else np.concatenate(column, axis=axis)
        for column, axis in zip(columns, along, strict=True)
    ]


@given(st.sampled_from(KINDS), st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_a_world_does_not_depend_on_the_chunk_lengths(
    kind: dict[str, Any], lengths: list[int]
) -> None:
    environment = Environment(name="x", learners=3, **kind)
    horizon = sum(lengths)
    whole = World(environment, seed=4, horizon=horizon)
    pieces = World(environment, seed=4, horizon=horizon)

    expected = arrays([whole.draw(horizon)])
    found = arrays([pieces.draw(length) for length in lengths])
    for one, other in zip(expected, found, strict=True):
        assert (one is None) == (other is None)
        assert one is None or np.array_equal(one, other)


# Some 30 sums are looked at; beyond 4.5 standard deviations lies one in 150,000 of honest ones.
FAR = 4.5


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_right_with_the_given_accuracy(kind: dict[str, Any]) -> None:
    stretch = World(Environment(name="x", **kind), seed=11, horizon=20_000).draw(20_000)
    accuracy = stretch.accuracy.astype(np.float64)
    deviation = np.sqrt((accuracy * (1 - accuracy)).sum(axis=2))
    runs = kind.get("dependence", 0.0)
    deviation *= np.sqrt((1 + runs) / (1 - runs))

    right = stretch.right / (WHOLE if "loss" in kind else 1)
    assert 0 <= right.min() < right.max() <= 1
    assert (np.abs((right - accuracy).sum(axis=2)) < FAR * deviation).all()


@given(st.floats(0, 0.95), st.floats(0.05, 0.95), st.integers(0, 1_000))
def test_answers_in_runs_have_their_accuracy_and_the_given_correlation(
    dependence: float, height: float, seed: int
) -> None:
    surface = Surface(at=(0.5,), high=height, low=height)
    environment = Environment(name="x", surfaces=((surface,),), dependence=dependence)
    slots = 20_000
    right = World(environment, seed=seed, horizon=slots).draw(slots).right[0, 0]
    noise = (right - height) / np.sqrt(height * (1 - height))
    # 4.5 deviations of the mean of such a chain, and a bound on those of a product with its lag.
    reach = FAR * np.sqrt((1 + dependence) / (1 - dependence) / slots)

    assert abs(noise.mean()) < reach
    for lag in (1, 2):
        found = (noise[lag:] * noise[:-lag]).mean()
        assert abs(found - dependence**lag) < reach * max(1.0, np.abs(noise).max())


def test_runs_change_neither_contexts_nor_accuracies_nor_the_other_functions() -> None:
    plain, runs = (
        World(Environment(name="x", dependence=share), seed=3, horizon=900).draw(900)
        for share in (0.0, 0.5)
    )

    assert np.array_equal(plain.points, runs.points)
    assert np.array_equal(plain.accuracy, runs.accuracy)
    noise = (runs.right - runs.accuracy)[0]
    noise /= noise.std(axis=1, keepdims=True)
    assert abs((noise[:-1] * noise[1:]).mean()) < 0.05


# The first bytes of the worlds of some kinds, drawn once: a change of them is a change for all.
FROZEN = {
    "runs": ({"dependence": 0.5}, "8dea820eaff32e6a"),
    "recurring": ({"drift": Drift(kind="recur", severity=0.3, every_slots=7)}, "17f21278b4b6da2a"),
    "improving": (
        {"drift": Drift(kind="improve", severity=0.3, every_slots=90)},
        "bbb63a42d714876f",
    ),
    "switching": ({"drift": Drift(severity=0.3, every_slots=7)}, "25db351a41dd8776"),
    "moving": ({"drift": Drift(kind="gradual", severity=0.3, every_slots=7)}, "86356a8165c671df"),
    "calm": ({}, "517e3dcdbdd0ee13"),
}


@pytest.mark.parametrize("name", FROZEN)
def test_a_world_is_the_same_on_every_machine_and_in_every_version(name: str) -> None:
    kind, expected = FROZEN[name]
    chunk = World(Environment(name="x", **kind), seed=5, horizon=300).draw(300)
    drawn = b"".join(part.tobytes() for part in chunk[1:4])

    assert hashlib.sha256(drawn).hexdigest()[:16] == expected


def test_of_a_failing_learner_a_share_of_all_answers_is_wrong() -> None:
    kept = World(Environment(name="x"), seed=1, horizon=100).draw(100)
    failing = World(Environment(name="x", failing={"learner-2": 0.25}), seed=1, horizon=100)
    accuracy = failing.draw(100).accuracy[0]

    assert np.array_equal(accuracy[[0, 1, 4, 5, 6, 7]], kept.accuracy[0, [0, 1, 4, 5, 6, 7]])
    assert accuracy[2:4] == pytest.approx(0.75 * kept.accuracy[0, 2:4], abs=1e-6)


def least_distance(points: np.ndarray) -> float:
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2)
    return float(gaps[np.triu_indices(len(points), 1)].min())


@given(st.integers(1, 8), st.integers(2, 400), st.integers(0, 5))
def test_the_worst_arrivals_keep_the_distance_of_the_definition(
    dimension: int, horizon: int, seed: int
) -> None:
    environment = Environment(name="x", dimension=dimension, case="C2")
    points = World(environment, seed=seed, horizon=horizon).draw(horizon).points[:, 0]

    assert least_distance(points) >= horizon ** (-1 / dimension) * (1 - 1e-9)
    assert points.min() >= 0
    assert points.max() <= 1


@pytest.mark.parametrize(("dimension", "horizon"), [(1, 1_000), (2, 10_000), (3, 8_000)])
def test_the_worst_arrivals_fill_the_space_evenly(dimension: int, horizon: int) -> None:
    environment = Environment(name="x", dimension=dimension, case="C1")
    points = World(environment, seed=1, horizon=horizon).draw(horizon).points[:, 0]
    cells = (points * 10).astype(int) @ 10 ** np.arange(dimension)

    assert np.bincount(cells, minlength=10**dimension).tolist() == (
        [horizon // 10**dimension] * 10**dimension
    )


def test_the_worst_arrivals_are_shuffled() -> None:
    world = World(Environment(name="x", case="C1"), seed=1, horizon=100_000)
    points = world.draw(10_000).points[:, 0, 0]
    quarters = np.bincount((points * 4).astype(int)) / 10_000
    steps = np.corrcoef(points[1:], points[:-1])[0, 1]

    assert np.abs(quarters - 0.25).max() < FAR * np.sqrt(0.25 * 0.75 / 10_000)
    assert abs(steps) < FAR / np.sqrt(10_000)


@pytest.mark.parametrize("case", ["C3", "C4"])
@pytest.mark.parametrize("dimension", [1, 3])
def test_the_best_arrivals_lie_in_one_cube(case: Any, dimension: int) -> None:
    environment = Environment(name="x", case=case, dimension=dimension, split_power=4.0)
    points = World(environment, seed=3, horizon=20_000).draw(2_000).points[:, 0]
    cubes = np.floor(points * 2**5)  # 20,000 slots: level 5

    assert (cubes == cubes[0]).all()
    # They are spread over it, not over one of its parts.
    assert len(np.unique(np.floor(points * 2**6), axis=0)) == 2**dimension


def test_independent_learners_share_the_cube_of_the_best_arrivals_but_no_context() -> None:
    environment = Environment(name="x", arrivals="best", correlation="independent")
    points = World(environment, seed=3, horizon=20_000).draw(1_000).points
    level = environment.cube_level(20_000)

    assert len(np.unique(np.floor(points * 2**level))) == 1
    assert len(np.unique(points)) == 4_000


@pytest.mark.parametrize(("share", "common"), [(0.0, 0.0), (0.5, 0.25), (1.0, 1.0)])
def test_learners_get_the_common_instance_in_their_share_of_slots(
    share: float, common: float
) -> None:
    environment = Environment(name="x", correlation=share)
    stretch = World(environment, seed=3, horizon=4_000).draw(4_000)
    is_same = (stretch.points[:, 0] == stretch.points[:, 1]).all(axis=1)
    far = FAR * np.sqrt(common * (1 - common) / 4_000)

    assert abs(is_same.mean() - common) <= far
    assert np.array_equal(stretch.accuracy[0][:, is_same], stretch.accuracy[1][:, is_same])
    assert np.array_equal(stretch.right[0][:, is_same], stretch.right[1][:, is_same])


@pytest.mark.parametrize("least", [0, 7])
def test_delays_are_uniform_from_the_least_to_the_most(least: int) -> None:
    environment = Environment(name="x", delay_slots=least + 3, least_delay_slots=least)
    stretch = World(environment, seed=2, horizon=8_000).draw(8_000)
    assert stretch.delays is not None
    counts = np.bincount(stretch.delays - least)

    assert len(counts) == 4
    assert np.abs(counts - 2_000).max() < FAR * np.sqrt(8_000 * 0.25 * 0.75)


def test_each_learner_misses_labels_on_its_own() -> None:
    environment = Environment(name="x", learners=2, label_probability=0.7)
    shown = World(environment, seed=2, horizon=8_000).draw(8_000).shown
    assert shown is not None
    both = (shown.sum(axis=1) == 2).mean()

    assert np.abs(shown.mean(axis=0) - 0.7).max() < FAR * np.sqrt(0.21 / 8_000)
    assert abs(both - 0.49) < FAR * np.sqrt(0.25 / 8_000)


def test_a_world_ends_at_its_horizon() -> None:
    world = World(Environment(name="x"), seed=1, horizon=10)
    world.draw(10)
    with pytest.raises(ConfigError) as caught:
        world.draw(1)

    assert str(caught.value) == (
        "slot 11 is beyond the horizon of 10 slots; create the world with a larger horizon"
    )
