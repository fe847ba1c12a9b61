"""Surfaces have the configured smoothness and drift."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.simulation.environment import Drift, Environment, Surface
from covey.simulation.surfaces import AccuracyField, drawn_surfaces

# Accuracies are float32, and rounded to multiples of 2**-22 where they are drawn.
ROUNDING = 1e-6


@st.composite
def environments(draw: st.DrawFn) -> Environment:
    low, high = sorted(draw(st.tuples(st.floats(0, 1), st.floats(0, 1))))
    return Environment(
        name="x",
        dimension=draw(st.integers(1, 4)),
        learners=2,
        shape=draw(st.sampled_from(["bumps", "ramps", "steps"])),
        lipschitz=draw(st.floats(0.1, 20)),
        alpha=draw(st.floats(0.2, 1)),
        low=low,
        high=high,
    )


def accuracy_at(
    surface: Surface, points: np.ndarray, *, lipschitz: float = 1.0, alpha: float = 1.0
) -> np.ndarray:
    """Return the accuracy of a function with this surface at `points` (point, dimension)."""
    environment = Environment(
        name="x",
        dimension=points.shape[1],
        surfaces=((surface,),),
        lipschitz=lipschitz,
        alpha=alpha,
    )
    heights: np.ndarray = AccuracyField(environment, seed=0).measure(points[:, None], 1)[0, 0]
    return heights.astype(np.float64)


def pairs(at: tuple[float, ...], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points in pairs, some very close together, half of them beginning at `at`."""
    first = rng.random((400, len(at)))
    first[:200] = at
    shift = rng.uniform(-1, 1, first.shape) * 10.0 ** rng.uniform(-9, 0, (400, 1))
    return first, np.clip(first + shift, 0, 1)


@given(environments(), st.integers(0, 1000))
def test_no_surface_exceeds_its_lipschitz_constant(environment: Environment, seed: int) -> None:
    smoothness = {"lipschitz": environment.lipschitz, "alpha": environment.alpha}
    for surface in drawn_surfaces(environment, seed):
        first, second = pairs(surface.at, np.random.default_rng(seed))
        here, there = (accuracy_at(surface, points, **smoothness) for points in (first, second))
        distance = np.linalg.norm(first - second, axis=1)
        most = environment.lipschitz * distance**environment.alpha

        assert (np.abs(here - there) <= most * (1 + ROUNDING) + ROUNDING).all()
        assert environment.low - ROUNDING <= here.min()
        assert here.max() <= environment.high + ROUNDING


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("shape", ["bumps", "ramps", "steps"])
def test_a_surface_attains_its_lipschitz_constant(shape: Any, alpha: float) -> None:
    environment = Environment(name="x", shape=shape, lipschitz=2.0, alpha=alpha, low=0.0)
    points = np.linspace(0, 1, 2001)[:, None]
    steepest = []
    for surface in drawn_surfaces(environment, 3):
        heights = accuracy_at(surface, points, lipschitz=2.0, alpha=alpha)
        steepest.append(np.abs(np.diff(heights)).max() / (2.0 * (1 / 2000) ** alpha))

    # Between points of a lattice, not at the edge of the field itself, a root is less steep.
    assert max(steepest) > (0.99 if alpha == 1 else 0.4)


def test_a_bump_falls_from_its_point() -> None:
    bump = Surface(at=(0.25, 0.5), high=0.9, low=0.5)
    heights = accuracy_at(bump, np.array([[0.25, 0.5], [0.55, 0.1], [0.25, 0.6]]), lipschitz=0.4)

    assert heights == pytest.approx([0.9, 0.7, 0.86], abs=ROUNDING)


def test_a_ramp_falls_from_its_plane_and_is_level_beyond() -> None:
    ramp = Surface(shape="ramps", at=(0.5, 0.5), toward=(3.0, 4.0), high=0.9, low=0.5)
    heights = accuracy_at(ramp, np.array([[1.0, 1.0], [0.5, 0.5], [0.2, 0.1]]), lipschitz=0.4)

    assert heights == pytest.approx([0.9, 0.9, 0.7], abs=ROUNDING)


def test_steps_are_level_in_every_other_band() -> None:
    steps = Surface(shape="steps", at=(0.25,), toward=(1.0,), every=0.25, high=0.9, low=0.5)
    points = np.array([[0.25], [0.5], [0.55], [0.625], [0.7], [0.75], [1.0], [0.125]])
    heights = accuracy_at(steps, points, lipschitz=2.0)

    assert heights == pytest.approx([0.9, 0.9, 0.8, 0.65, 0.8, 0.9, 0.9, 0.65], abs=ROUNDING)


def flat(*heights: float) -> tuple[Surface, ...]:
    return tuple(Surface(at=(0.5,), high=height, low=height) for height in heights)


@given(environments(), st.integers(0, 100), st.floats(0.02, 1.0), st.integers(1, 40))
def test_a_switch_changes_no_accuracy_by_more_than_its_severity(
    environment: Environment, seed: int, share: float, every: int
) -> None:
    severity = share * environment.spread
    if severity < 1e-3:
        return
    drift = Drift(severity=severity, every_slots=every)
    changed = _with(environment, drift=drift)
    accuracy = AccuracyField(changed, seed).measure(
        np.full((120, 1, environment.dimension), 0.4), 1
    )
    steps = np.abs(np.diff(accuracy[0]))

    assert steps.max() <= severity + ROUNDING
    assert (steps[:, [k for k in range(119) if (k + 1) % every]] == 0).all()


@given(environments(), st.integers(0, 100), st.floats(0.01, 1.0), st.integers(1, 40))
def test_gradual_drift_changes_no_accuracy_by_more_than_its_severity_in_its_time(
    environment: Environment, seed: int, severity: float, every: int
) -> None:
    drift = Drift(kind="gradual", severity=severity, every_slots=every)
    changed = _with(environment, drift=drift)
    accuracy = AccuracyField(changed, seed).measure(
        np.full((120, 1, environment.dimension), 0.4), 1
    )
    first = AccuracyField(environment, seed).measure(np.full((1, 1, environment.dimension), 0.4), 1)

    assert accuracy[:, :, :1].tolist() == first.tolist()
    for lag in range(1, every + 1):
        steps = np.abs(accuracy[0, :, lag:] - accuracy[0, :, :-lag])
        assert steps.max(initial=0) <= severity * (lag / every) ** environment.alpha + ROUNDING


def changed(drift: Drift, slots: int = 7, **more: Any) -> list[list[float]]:
    """The accuracies of functions of two learners, constant at first: .75 and .25."""
    surfaces = (flat(0.75), flat(0.25))
    environment = Environment(name="x", surfaces=surfaces, drift=drift, **more)
    found: list[list[float]] = (
        AccuracyField(environment, 1).measure(np.full((slots, 1, 1), 0.4), 1)[0].tolist()
    )
    return found


def test_recurring_concepts_are_two_in_turn() -> None:
    heights = [k / 16 for k in range(1, 9)]
    drift = Drift(kind="recur", severity=7 / 16, every_slots=2)
    environment = Environment(name="x", surfaces=(flat(*heights),), drift=drift)
    accuracy = AccuracyField(environment, 3).measure(np.full((12, 1, 1), 0.4), 1)[0].T.tolist()

    assert accuracy[0] == accuracy[1] == heights
    assert sorted(accuracy[2]) == heights
    assert all(one != other for one, other in zip(accuracy[0], accuracy[2], strict=True))
    assert accuracy[:4] * 3 == accuracy


def test_a_rise_or_fall_comes_once_and_stays_within_0_and_1() -> None:
    risen = changed(Drift(kind="rise", severity=0.5, every_slots=3, learners=("learner-2",)))
    fallen = changed(Drift(kind="fall", severity=0.5, every_slots=3))

    assert risen == [[0.75] * 7, [0.25] * 3 + [0.75] * 4]
    assert fallen == [[0.75] * 3 + [0.25] * 4, [0.25] * 3 + [0.0] * 4]


def test_improving_functions_reach_their_surfaces_evenly() -> None:
    drift = Drift(kind="improve", severity=0.5, every_slots=4, learners=("learner-1",))

    assert changed(drift) == [[0.25, 0.375, 0.5, 0.625, 0.75, 0.75, 0.75], [0.25] * 7]


def test_only_contexts_in_the_region_of_a_drift_change() -> None:
    drift = Drift(severity=0.5, every_slots=1, region=((0.25, 0.5), (0.0, 0.5)))
    surfaces = tuple((Surface(at=(0.5, 0.5), high=h, low=h),) for h in (0.75, 0.25))
    environment = Environment(name="x", dimension=2, surfaces=surfaces, drift=drift)
    points = np.array([[0.3, 0.3], [0.3, 0.3], [0.2, 0.3], [0.3, 0.3], [0.3, 0.6], [0.3, 0.5]])
    accuracy = AccuracyField(environment, 1).measure(points[:, None], 1)[0, 0]

    # Exchanged in every second slot, unless the context lies outside.
    assert accuracy.tolist() == [0.75, 0.25, 0.75, 0.25, 0.75, 0.25]


def test_learners_that_a_drift_does_not_name_keep_their_surfaces() -> None:
    learners = ("learner-1", "learner-3")
    switch = Drift(severity=0.5, every_slots=1, learners=learners)
    move = Drift(kind="gradual", severity=0.3, every_slots=5, learners=learners)
    points = np.full((9, 1, 1), 0.4)
    calm = AccuracyField(Environment(name="x"), 2).measure(points, 1)[0]
    for drift in (switch, move):
        accuracy = AccuracyField(Environment(name="x", drift=drift), 2).measure(points, 1)[0]
        is_changed = (accuracy != calm).any(axis=1)

        assert is_changed.reshape(4, 2).any(axis=1).tolist() == [True, False, True, False]


def test_gradual_drift_is_reflected_at_the_walls() -> None:
    drift = Drift(kind="gradual", severity=0.1, every_slots=100)
    bump = Surface(at=(0.5,), high=0.9, low=0.1)
    environment = Environment(
        name="x", surfaces=((bump,),), drift=drift, low=0.1, high=0.9, lipschitz=1.0
    )
    accuracy = AccuracyField(environment, 0).measure(np.full((4001, 1, 1), 0.5), 1)[0, 0]

    # Half the cube away after 500 slots, back after 1,000, on the other side after 1,500.
    assert accuracy[::500] == pytest.approx([0.9, 0.4] * 4 + [0.9], abs=1e-5)


def _with(environment: Environment, **changes: Any) -> Environment:
    fields = {name: getattr(environment, name) for name in environment.__struct_fields__}
    return Environment(**{**fields, **changes})
