"""Sites that see a part of a context: R^sb of candidate contexts, and separate features."""

import itertools
from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.policies import DCZA, CoS, PolicyRecord
from covey.errors import ConfigError
from covey.simulation.environment import environment_from
from covey.simulation.oracle import Marginals
from covey.simulation.run import CAUSES, Run, play
from covey.simulation.world import World

SLOTS = 2_000
HEIGHTS = [  # learner, function -> where it is best, and how good
    [((0.2, 0.3), 0.95), ((0.8, 0.4), 0.9)],
    [((0.5, 0.9), 0.97)],
    [((0.1, 0.7), 0.85), ((0.9, 0.1), 0.92)],
]
LOW, STEEP, PRICE = 0.35, 0.8, 0.05
FLAT = [height for own in HEIGHTS for height in own]
OWNER = [place for place, own in enumerate(HEIGHTS) for _ in own]
TABLE: dict[str, Any] = {
    "name": "two coordinates",
    "dimension": 2,
    "lipschitz": STEEP,
    "prices": PRICE,
    "surfaces": [[{"at": [*at], "high": high, "low": LOW} for at, high in own] for own in HEIGHTS],
}
NAMES = ["learner-1", "learner-2", "learner-3"]
FUNCTIONS = [
    f"{NAMES[place]}.{k + 1}" for place, own in enumerate(HEIGHTS) for k in range(len(own))
]


def accuracy(function: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Its accuracy at these places, from the definition of a bump."""
    (a, b), high = FLAT[function]
    return np.maximum(LOW, high - STEEP * np.hypot(x - a, y - b))


def given(function: int, coordinate: int, values: np.ndarray) -> np.ndarray:
    """Its mean accuracy given one coordinate, by a sum over the other one."""
    other = (np.arange(2_000) + 0.5) / 2_000
    total = np.empty(len(values))
    for k, value in enumerate(values):
        x, y = (value, other) if coordinate == 0 else (other, value)
        total[k] = accuracy(function, x, y).mean()
    return total


def lost(spaces: list[list[int]], config: dict[str, Any], settings: PolicyRecord) -> np.ndarray:
    """What each learner lost against the best arm given any one of its coordinates: slot, learner.

    `spaces` lists the coordinates that each learner may choose from.
    """
    chunk = World(environment_from(TABLE), seed=2, horizon=SLOTS).draw(SLOTS)
    points = chunk.points[:, 0]
    means = {
        (function, coordinate): given(function, coordinate, points[:, coordinate])
        for function, coordinate in itertools.product(range(len(FLAT)), (0, 1))
    }
    learners = []
    for place, name in enumerate(NAMES):
        own = [one for one, owner in zip(FUNCTIONS, OWNER, strict=True) if owner == place]
        peers = {other: PRICE for other in NAMES if other != name}
        learners.append({"name": name, "functions": own, "peers": peers, **config.get(name, {})})
    trace = covey.replay(
        {"data": config["data"], "policy": settings, "learner": learners},
        predictions=chunk.right[0],
        labels=np.ones(SLOTS, np.int64),
        contexts=points,
    )
    found = []
    for row, function in enumerate(trace.function.tolist()):
        slot, learner = divmod(row, 3)
        price = [0.0 if owner == learner else PRICE for owner in OWNER]
        best = max(
            means[other, coordinate][slot] - price[other]
            for other, coordinate in itertools.product(range(len(FLAT)), spaces[learner])
        )
        here = accuracy(function, *points[slot]) - price[function]
        found.append(best - float(here))
    return np.array(found).reshape(SLOTS, 3)


def total(run: Run) -> np.ndarray:
    return np.array([run.regret[cause] for cause in CAUSES]).sum(axis=0)


by_preset = pytest.mark.parametrize("settings", [CoS(slices=4), DCZA()], ids=["cos", "dcza"])
HOW: dict[str, Any] = {"seed": 2, "horizon": SLOTS, "checkpoints": [800, SLOTS]}


@by_preset
def test_regret_of_candidates_is_against_the_best_single_context(settings: PolicyRecord) -> None:
    candidates = ["x1", "x2"]
    expected = lost([[0, 1]] * 3, {"data": {"candidates": candidates}}, settings).sum(axis=1)
    run = play(environment_from({**TABLE, "candidates": candidates}), settings, **HOW)

    assert total(run) == pytest.approx([expected[:800].sum(), expected.sum()], rel=2e-3)
    assert expected.sum() > 10


@by_preset
def test_regret_of_separate_features_is_against_the_best_choice_by_own_features(
    settings: PolicyRecord,
) -> None:
    own = {"learner-1": {"context": ["x1"]}, "learner-2": {"context": ["x2"]}}
    config = {"data": {"context": ["x1", "x2"]}, **own}
    tables = [{"name": name, **keys} for name, keys in own.items()]
    expected = lost([[0], [1], [0, 1]], config, settings)
    measured = {"learner": tables, "measured": ["learner-1", "learner-2"]}
    run = play(environment_from({**TABLE, **measured}), settings, **HOW)

    sums = expected[:, :2].sum(axis=1)
    assert total(run) == pytest.approx([sums[:800].sum(), sums.sum()], rel=2e-3)


@pytest.mark.parametrize("coordinate", [0, 1])
def test_marginals_equal_a_sum_over_the_other_coordinate(coordinate: int) -> None:
    points = np.random.default_rng(1).random((50, 2))
    found = Marginals(environment_from(TABLE), seed=1).at((coordinate,), points)
    expected = [given(k, coordinate, points[:, coordinate]) for k in range(len(FLAT))]

    assert np.abs(found - np.array(expected)).max() < 1e-3


def test_marginals_of_two_of_three_coordinates_are_means_over_the_third() -> None:
    surfaces = [[{"at": [0.3, 0.6, 0.2], "high": 0.9, "low": 0.1}]]
    world = environment_from({"name": "x", "dimension": 3, "surfaces": surfaces})
    points = np.random.default_rng(1).random((20, 3))
    found = Marginals(world, seed=1).at((0, 2), points)[0]
    other = (np.arange(4_000) + 0.5) / 4_000
    expected = [
        np.maximum(0.1, 0.9 - np.sqrt((x - 0.3) ** 2 + (other - 0.6) ** 2 + (z - 0.2) ** 2)).mean()
        for x, _, z in points
    ]

    assert np.abs(found - np.array(expected)).max() < 3e-3


def test_without_any_coordinate_the_oracle_knows_the_mean_only() -> None:
    points = np.random.default_rng(1).random((3, 2))
    found = Marginals(environment_from(TABLE), seed=1).at((), points)
    x, y = np.meshgrid((np.arange(400) + 0.5) / 400, (np.arange(400) + 0.5) / 400)
    expected = [accuracy(k, x, y).mean() for k in range(len(FLAT))]

    assert found == pytest.approx(np.array([expected] * 3).T, abs=2e-3)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"drift": {"severity": 0.2, "every-slots": 9}}, "and drift; remove one of them"),
        ({"case": "C2"}, "and case; remove one of them"),
        ({"arrivals": "best"}, "and arrivals; remove one of them"),
    ],
)  # fmt: skip
def test_parts_need_accuracies_that_are_known_given_them(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        play(environment_from({**TABLE, "candidates": ["x1", "x2"], **keys}), CoS(), **HOW)


def test_slopes_of_rewards_do_not_go_with_candidates() -> None:
    settings = CoS(slices=4, reward={"context": (1.0,)})
    world = environment_from({**TABLE, "candidates": ["x1", "x2"]})

    with pytest.raises(
        ConfigError, match=r"reward.context, or a function\) cannot be combined with candid"
    ):
        play(world, settings, **HOW)
