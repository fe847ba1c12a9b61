"""A limit of harm: what it allows, what it guarantees, and what it refuses."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.harm import most_accurate
from covey.errors import ConfigError

OWN, PRICE, POINTS = 0.8, 0.05, 4.0


def played(preset: str, peer: float, *, seed: int, slots: int, **policy: Any) -> covey.Trace:
    """Replay a site whose own function is right by `OWN`; return the trace of its rows."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, slots)
    is_right = rng.random((2, slots)) < np.array([[OWN], [peer]])
    config = {
        "policy": {"preset": preset, **policy},
        "data": {"context": []},
        "learner": [
            {"name": "north", "functions": ["tree"], "peers": {"south": PRICE}},
            {"name": "south", "functions": ["knn"], "peers": {}, "arrivals": False},
        ],
    }
    predictions = np.where(is_right, labels, 1 - labels)
    return covey.replay(
        config, contexts=np.zeros((slots, 0)), predictions=predictions, labels=labels
    )


def lost(trace: covey.Trace) -> np.ndarray:
    """Return after each row by how much the rows of the policy are below the own function so far.

    It is what the limit allows for, per row so far, in points.
    """
    is_free = trace.phase < trace.names["phase"].index("own")
    lost = np.where(is_free, OWN - trace.correct + trace.cost, 0.0)
    harm: np.ndarray = 100 * lost.cumsum() / np.arange(1, len(lost) + 1)
    return harm


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
def test_in_nearly_all_worlds_the_limit_holds_after_every_row(preset: str) -> None:
    """Peers of all kinds; at 80 % confidence at most one world in five may break it."""
    harm = {"points": POINTS, "confidence": 0.8}
    worlds = [
        lost(played(preset, peer, seed=seed, slots=400, harm=harm)).max()
        for seed in range(12)
        for peer in (0.0, 0.5, 0.78, 0.95)
    ]

    assert np.mean(np.array(worlds) > POINTS + 1e-9) <= 0.2


def test_without_the_limit_a_bad_peer_harms_more() -> None:
    """Otherwise the claim above would hold of a policy that is careful by itself."""
    worlds = [lost(played("cos", 0.5, seed=seed, slots=400)).max() for seed in range(12)]

    assert np.mean(np.array(worlds) > POINTS) > 0.9


def test_a_good_peer_is_asked_at_last_for_nearly_all_rows() -> None:
    harm = {"points": POINTS, "confidence": 0.95}
    trace = played("auto", 1.0, seed=1, slots=4_000, harm=harm)
    is_asked = trace.cost > 0

    assert is_asked[:50].mean() < 0.1
    assert is_asked[-1_000:].mean() > 0.9


def test_a_useless_peer_is_asked_for_a_small_share_of_rows() -> None:
    """It loses 0.85 per row, and the limit is 0.04."""
    trace = played("cos", 0.0, seed=1, slots=2_000, harm={"points": POINTS}, slices=1)

    assert 0 < (trace.cost > 0).mean() <= 0.05


def test_labels_after_a_peer_has_gone_cost_what_its_answers_did() -> None:
    """The last answers of the peer have no labels yet when its link is removed."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 400)
    is_right = rng.random((2, 400)) < np.array([[OWN], [1.0]])
    policy = {"preset": "cos", "slices": 1, "harm": {"points": 20.0}}
    config = {
        "policy": policy,
        "data": {"context": []},
        "learner": [
            {"name": "north", "functions": ["tree"]},
            {"name": "south", "functions": ["knn"]},
        ],
        "link": [{"between": ["north", "south"], "cost": PRICE}],
        "link-change": [
            {"between": ["north", "south"], "cost": "gone", "slot": 200},
            {"between": ["north", "south"], "cost": PRICE, "slot": 300},
        ],
    }
    trace = covey.replay(
        config,
        contexts=np.zeros((400, 0)),
        predictions=np.where(is_right, labels, 1 - labels),
        labels=labels,
        delay=np.full(400, 10),
        at=["north"] * 400,
    )
    is_asked = trace.cost > 0

    assert is_asked[190:199].any()
    assert not is_asked[200:299].any()
    assert is_asked[300:].any()


def test_learners_without_peers_decide_as_without_a_limit() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 200)
    given = {"predictions": rng.integers(0, 2, (2, 200)), "labels": labels}
    learner = [{"name": "north", "functions": ["tree", "knn"], "peers": {}}]

    with_limit, without = (
        covey.replay({"policy": policy, "learner": learner}, **given, contexts=rng.random((200, 1)))
        for policy in ({"harm": {"points": 1.0}}, {})
    )

    assert len(with_limit) == len(without)
    assert (with_limit.phase < 3).all()


@pytest.mark.parametrize("accuracy", [0.5, 0.9, 0.99])
def test_the_bound_of_an_accuracy_holds_for_all_numbers_of_labels_at_once(accuracy: float) -> None:
    rng = np.random.default_rng(2)
    level = float(np.log(np.pi**2 / 6 / 0.1))
    right = (rng.random((100, 500)) < accuracy).cumsum(axis=1)
    is_below = [
        any(most_accurate(n, float(right[k, n - 1]), level) < accuracy * 1e6 for n in range(1, 500))
        for k in range(100)
    ]

    assert np.mean(is_below) <= 0.1


def test_the_bound_is_narrow_after_many_labels() -> None:
    level = float(np.log(np.pi**2 / 6 / 0.05))

    assert most_accurate(0, 0.0, level) == 1_000_000
    assert 900_000 < most_accurate(10_000, 9_000.0, level) < 920_000
    assert most_accurate(100_000, 0.0, level) < 500


@pytest.mark.parametrize(
    ("learner", "tables", "says"),
    [
        ({"supervised": False}, {}, "it sees no label"),
        ({"rewards": {"knn": {"accuracy": 2.0}}}, {}, "right answers minus costs"),
        ({"cost-columns": {"tree": "fee"}}, {}, "cost-columns of own functions"),
        ({"peers": {}}, {"ensemble": {}}, "nobody asks"),
    ],
)
def test_where_a_limit_has_no_meaning_it_is_refused(
    learner: dict[str, Any], tables: dict[str, Any], says: str
) -> None:
    north = {"name": "north", "functions": ["tree", "knn"], "peers": {"south": 0.1}, **learner}
    south = {"name": "south", "functions": ["bayes"], "peers": {}}
    config = {"policy": {"harm": {"points": 1.0}}, "learner": [north, south], **tables}

    with pytest.raises(ConfigError, match="harm") as refused:
        covey.Network(config, functions=dict.fromkeys(("tree", "knn", "bayes"), bool))

    assert says in str(refused.value)
