"""The linear belief against its oracle: exact sums, one order of operations, restarts."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import kernel
from covey.errors import DataError
from covey.kernel import linear
from covey.kernel.linear import Calibration
from reference import linear as reference
from support.effort import effort
from support.tables import plain_kernel

COSINES = 5
LABELS, RENEWALS, REPAIRS, HEAD = 2, 5, 6, 8  # places in the state of a function


class Label(NamedTuple):
    """A label with the context of its decision."""

    context: tuple[float, ...]
    gain: int


def belief_of(dimension: int, *, unit: int = 1, engine: Any = linear, functions: int = 1) -> Any:
    features = engine.FeatureMap(dimension, cosines=COSINES)
    return engine.LinearBelief(features, functions, unit)


def labels_of(dimension: int, count: int, *, unit: int = 1, seed: int = 0) -> list[Label]:
    rng = np.random.default_rng(seed)
    contexts = rng.random((count, dimension)).tolist()
    gains = rng.integers(0, unit + 1, count).tolist()
    return [Label(tuple(contexts[k]), gains[k]) for k in range(count)]


def learn(belief: Any, label: Label, function: int = 0) -> None:
    belief.features.read(label.context)
    belief.learn(function, label.gain, belief.variance(function))


def number_of(belief: Any, place: int) -> int:
    return int(np.frombuffer(belief.state(0), np.int64)[place])


def places_of_sums(belief: Any) -> np.ndarray:
    """Return where a state has what is added up: labels, b and S."""
    width = belief.features.width
    products = HEAD + 2 * width  # the sums since the mark lie between
    end = products + width * (width // 2 + 2)
    return np.r_[LABELS, HEAD : HEAD + width, products:end]


def sums_of(belief: Any) -> np.ndarray:
    return np.frombuffer(belief.state(0), np.int64)[places_of_sums(belief)]


def put_sums(belief: Any, sums: np.ndarray) -> None:
    state = np.frombuffer(belief.state(0), np.int64).copy()
    state[places_of_sums(belief)] = sums
    belief.restore(0, state.tobytes())
    belief.renew(0)


def beliefs_at(belief: Any, labels: list[Label]) -> list[tuple[float, float]]:
    pairs = []
    for label in labels:
        belief.features.read(label.context)
        pairs.append((belief.mean(0), belief.variance(0)))
    return pairs


@settings(max_examples=effort(40, plain=20, long=200), deadline=None)
@given(
    dimension=st.integers(0, 4),
    unit=st.sampled_from([1, 3, 1000]),
    seed=st.integers(0, 2**32),
)
def test_every_bit_is_that_of_the_oracle(dimension: int, unit: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = reference.Features(dimension, COSINES)
    oracle = [reference.Function(features, unit) for _ in range(2)]
    belief = belief_of(dimension, unit=unit, functions=2)
    for _ in range(24):
        context = tuple(rng.choice([0.0, 1.0, *rng.random(4)], dimension).tolist())
        for function in range(2):
            belief.features.read(context)
            phi = features.of(context)

            assert belief.mean(function) == oracle[function].mean(phi)
            assert belief.variance(function) == oracle[function].variance(phi)
            assert belief.features.features() == list(phi)
            if rng.random() < 0.7:
                gain = int(rng.integers(0, unit + 1))
                belief.learn(function, gain, belief.variance(function))
                oracle[function].learn(phi, gain)


@pytest.mark.skipif(not kernel.is_compiled(), reason="it would be compared with itself")
@pytest.mark.parametrize(("dimension", "cosines", "slots"), [(0, 0, 200), (1, 16, 60), (6, -1, 25)])
def test_compiled_and_plain_have_the_same_state(dimension: int, cosines: int, slots: int) -> None:
    rng = np.random.default_rng(dimension)
    engines = (linear, plain_kernel().average)
    beliefs = [
        engine.LinearBelief(engine.FeatureMap(dimension, cosines=cosines), 2, 1)
        for engine in engines
    ]
    for slot in range(slots):
        context, gain = tuple(rng.random(dimension).tolist()), int(rng.integers(2))
        seen = []
        for belief in beliefs:
            belief.features.read(context)
            seen.append((belief.mean(slot % 2), belief.variance(slot % 2)))
            belief.learn(slot % 2, gain, belief.variance(slot % 2))

        assert seen[0] == seen[1]
    assert [beliefs[0].state(k) for k in range(2)] == [beliefs[1].state(k) for k in range(2)]


@settings(max_examples=effort(30, plain=15, long=150), deadline=None)
@given(dimension=st.integers(0, 3), count=st.integers(1, 30), seed=st.integers(0, 2**32))
def test_after_a_mark_the_order_of_labels_does_not_matter(
    dimension: int, count: int, seed: int
) -> None:
    labels = labels_of(dimension, count, unit=2, seed=seed)
    ordered, mixed = (belief_of(dimension, unit=2) for _ in range(2))
    for label in labels:
        learn(ordered, label)
    for k in np.random.default_rng(seed).permutation(count):
        learn(mixed, labels[k])
    ordered.renew(0)
    mixed.renew(0)

    assert beliefs_at(mixed, labels) == beliefs_at(ordered, labels)
    assert number_of(mixed, REPAIRS) == number_of(ordered, REPAIRS) == 0


def test_labels_since_a_mark_may_come_in_any_order() -> None:
    labels = labels_of(2, 200)
    beliefs = [belief_of(2) for _ in range(2)]
    for belief in beliefs:
        for label in labels[:190]:
            learn(belief, label)
        belief.renew(0)
    marks = number_of(beliefs[0], RENEWALS)
    for belief, later in zip(beliefs, (labels[190:], labels[:189:-1]), strict=True):
        for label in later:
            learn(belief, label)

    assert [number_of(belief, RENEWALS) for belief in beliefs] == [marks, marks]
    assert beliefs_at(beliefs[0], labels) == beliefs_at(beliefs[1], labels)


def test_after_a_mark_the_belief_is_the_posterior_of_the_regression() -> None:
    labels = labels_of(3, 120, unit=4)
    belief = belief_of(3, unit=4)
    for label in labels:
        learn(belief, label)
    belief.renew(0)
    features = reference.Features(3, COSINES)
    scales = np.array([2.0**-12] * 4 + [2.0**-14] * COSINES)
    rows = np.array([features.of(label.context) for label in labels]) * scales
    precision = np.diag([4.0, 12, 12, 12] + [2.0 * COSINES] * COSINES) + 4 * rows.T @ rows
    gains = np.array([one.gain / 4 - 0.5 for one in labels])
    weights = np.linalg.solve(precision, 4 * rows.T @ gains)

    for row, (mean, variance) in zip(rows, beliefs_at(belief, labels), strict=True):
        assert mean == pytest.approx(0.5 + row @ weights, abs=5e-6)  # weights are rounded
        assert variance == pytest.approx(row @ np.linalg.solve(precision, row), rel=1e-9)


def test_between_marks_the_mean_is_near_that_of_the_regression() -> None:
    """Variances are those of the mark, and so never too small."""
    labels = labels_of(1, 400)
    belief, renewed = belief_of(1), belief_of(1)
    for label in labels:
        learn(belief, label)
        learn(renewed, label)
        renewed.renew(0)

        assert abs(belief.mean(0) - renewed.mean(0)) < 0.25
        assert belief.variance(0) >= renewed.variance(0) * (1 - 1e-9)
    assert number_of(belief, RENEWALS) < 25


def test_a_saved_belief_continues_with_the_same_bits() -> None:
    labels = labels_of(2, 90)
    belief, restored = belief_of(2, functions=2), belief_of(2, functions=2)
    for label in labels[:70]:
        learn(belief, label, 1)
    state = belief.state(1)
    restored.restore(1, state)
    for label in labels[70:]:
        assert restored.state(1) == belief.state(1)
        learn(belief, label, 1)
        learn(restored, label, 1)

    assert restored.state(1) == belief.state(1)
    assert restored.state(0) == belief_of(2).state(0)


def test_questions_do_not_change_what_is_saved() -> None:
    asked, silent = belief_of(2), belief_of(2)
    for label in labels_of(2, 40):
        learn(asked, label)
        learn(silent, label)
        asked.mean(0)
        asked.variance(0)

    assert asked.state(0) == silent.state(0)


def test_a_forgotten_function_is_as_new_and_others_stay() -> None:
    belief, new = belief_of(1, functions=2), belief_of(1, functions=2)
    for label in labels_of(1, 20):
        learn(belief, label)
        learn(belief, label, 1)
        learn(new, label, 1)
    belief.forget(0)

    assert [belief.state(k) for k in range(2)] == [new.state(k) for k in range(2)]


def test_without_contexts_there_is_the_mean() -> None:
    belief = linear.LinearBelief(linear.FeatureMap(0), 1)
    assert (belief.mean(0), belief.variance(0)) == (0.5, 0.25)
    for k in range(100):
        belief.learn(0, int(k % 4 > 0), belief.variance(0))

    assert belief.features.size == 1
    assert belief.mean(0) == pytest.approx(0.75, abs=0.05)


def test_coordinates_are_cut_at_four_deviations() -> None:
    fine = Calibration((1 << 29,), (1 << 25,))  # mean 1/2, deviation 1/32
    features = linear.FeatureMap(1, cosines=0, calibration=fine)
    inputs = {}
    for x in (0.0, 0.5, 0.5 + 1 / 32, 0.5 - 1 / 64, 1.0):
        features.read((x,))
        inputs[x] = features.features()[1]

    assert list(inputs.values()) == [-16384, 0, 4096, -2048, 16384]


@pytest.mark.parametrize("is_calibrated", [False, True])
def test_a_constant_coordinate_does_no_harm(is_calibrated: bool) -> None:
    contexts = [(0.3, x) for x in np.random.default_rng(3).random(300).tolist()]
    calibration = linear.calibrate(contexts) if is_calibrated else None
    belief = linear.LinearBelief(linear.FeatureMap(2, calibration=calibration), 1)
    for context in contexts:
        belief.features.read(context)
        belief.learn(0, int(context[1] > 0.5), belief.variance(0))
    belief.features.read((0.3, 0.9))
    high = belief.mean(0)
    belief.features.read((0.3, 0.1))

    assert belief.mean(0) < 0.2
    assert high > 0.8
    assert number_of(belief, REPAIRS) == 0
    if is_calibrated:
        assert belief.features.features()[1] == 0


@pytest.mark.parametrize(("unit", "most"), [(1 << 20, (1 << 29) - 1), (1, (1 << 35) - 1)])
@pytest.mark.parametrize("is_right", [False, True])
def test_sums_have_room_for_half_a_billion_labels(unit: int, most: int, is_right: bool) -> None:
    """Features and gains of the largest size; labels after these are not added."""
    belief = belief_of(2, unit=unit)
    label = Label((1.0, 0.0), unit * is_right)
    learn(belief, label)
    belief.renew(0)
    only = sums_of(belief)
    put_sums(belief, only * (most - 1))
    learn(belief, label)
    belief.renew(0)
    full = belief.state(0)
    learn(belief, label)

    assert belief.state(0) == full
    assert (sums_of(belief) == only * most).all()
    assert belief.mean(0) == pytest.approx(int(is_right), abs=1e-4)
    assert 0 < belief.variance(0) < 1e-8


def test_weights_saturate_and_do_not_wrap() -> None:
    """Sums that no labels can have: a weight of 2^31 units is 512 per unit of a coordinate."""
    belief = belief_of(1)
    sums = np.zeros_like(sums_of(belief))
    sums[:2] = 1, 1 << 50
    put_sums(belief, sums)

    assert belief.mean(0) == pytest.approx(512.5)


def test_no_entry_of_the_table_of_cosines_is_near_a_tie() -> None:
    """So every machine has the same table, whatever its cosine rounds to."""
    exact = [math.cos(2 * math.pi * k / 1024) * 16384 for k in range(1024)]

    assert min(abs(value % 1 - 0.5) for value in exact) > 1e-4


def test_maps_that_differ_have_other_fingerprints() -> None:
    maps = [
        linear.FeatureMap(2),
        linear.FeatureMap(2, cosines=8),
        linear.FeatureMap(3),
        linear.FeatureMap(2, calibration=linear.calibrate([(0.1, 0.2), (0.3, 0.9)])),
    ]

    assert len({features.fingerprint for features in maps}) == len(maps)
    assert linear.FeatureMap(2).fingerprint == maps[0].fingerprint


def embeddings(dimension: int) -> list[tuple[float, ...]]:
    """Return contexts that vary in two directions, with some noise."""
    rng = np.random.default_rng(dimension)
    parts = rng.normal(0, [0.05, 0.03], (40, 2))
    rows = 0.5 + parts @ rng.normal(size=(2, dimension)) + rng.normal(0, 0.005, (40, dimension))
    return [tuple(row) for row in rows.clip(0, 1).tolist()]


def test_directions_are_those_in_which_contexts_vary_most() -> None:
    contexts = embeddings(66)
    calibration = linear.calibrate(contexts)
    rows = np.array(contexts)
    spread = rows.std(0)
    _, sizes, axes = np.linalg.svd((rows - rows.mean(0)) / spread, full_matrices=False)
    directions = np.array(calibration.directions, float)
    lengths = np.linalg.norm(directions, axis=1)

    assert sizes[1] > 3 * sizes[2]
    for k in range(2):
        in_plane = axes[:2] @ directions[k] / lengths[k]
        assert np.linalg.norm(in_plane) == pytest.approx(1, abs=0.01)
    assert np.abs(np.array(calibration.directions)).max() == 127
    cosines = directions @ directions.T / np.outer(lengths, lengths)
    assert np.abs(cosines - np.eye(len(cosines))).max() < 0.05


def test_a_projected_context_is_the_same_in_plain_python() -> None:
    contexts = embeddings(66)
    calibration = linear.calibrate(contexts)
    plain = plain_kernel().average
    assert plain.calibrate(contexts) == tuple(calibration)
    maps = [engine.FeatureMap(66, cosines=8, calibration=calibration) for engine in (linear, plain)]
    for context in contexts[:10]:
        for features in maps:
            features.read(context)
        assert maps[0].features() == maps[1].features()
    inputs = []
    for context in contexts:
        maps[0].read(context)
        inputs.append(maps[0].features()[1:33])
    assert np.std(np.array(inputs), axis=0) == pytest.approx(4096, rel=0.15)


def test_too_few_contexts_leave_directions_empty() -> None:
    contexts = embeddings(66)[:5]
    calibration = linear.calibrate(contexts)
    features = linear.FeatureMap(66, calibration=calibration)
    features.read(contexts[0])

    assert (features.inputs, features.cosines) == (32, 0)
    assert calibration.directions[31] == (0,) * 66
    assert features.features()[32] == 0


@pytest.mark.parametrize("other", [belief_of(3), belief_of(2, unit=2)], ids=["map", "unit"])
def test_a_state_of_other_features_or_gains_is_refused(other: Any) -> None:
    belief = belief_of(2)
    before = belief.state(0)
    with pytest.raises(DataError, match="other features or of another unit"):
        belief.restore(0, other.state(0))

    assert belief.state(0) == before
