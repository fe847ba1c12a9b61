"""An unknown horizon: the slots of epochs, their policies, and replays that restart."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey.bandit.partitions import Doubling
from covey.bandit.policies import DCZA, CoS


@given(st.integers(1, 50), st.integers(1, 5_000))
def test_epochs_contain_every_slot_exactly_once(first: int, slot: int) -> None:
    doubling = Doubling(first, 1.0)
    number = doubling.number_at(slot)

    assert doubling.before(number) < slot <= doubling.before(number + 1)
    assert doubling.before(number + 1) - doubling.before(number) == doubling.slots(number)
    assert doubling.slots(number) == first * 2**number


def test_each_epoch_counts_its_slots_from_one() -> None:
    doubling, slots = Doubling(16, 1.0), [1, 16, 17, 48, 49, 112, 113]

    assert [doubling.number_at(slot) for slot in slots] == [0, 0, 1, 1, 2, 2, 3]
    inside = [doubling.slot_in(doubling.number_at(slot), slot) for slot in slots]
    assert inside == [1, 16, 1, 32, 1, 64, 1]
    assert doubling.slot_in(3, 5) == 1  # an asker that is behind


SITES = [
    {"name": "north", "functions": ["nb", "tree"], "peers": {"south": 0.1}},
    {"name": "south", "functions": ["svm"]},
]


def stream(slots: int) -> dict[str, Any]:
    rng = np.random.default_rng(9)
    labels = rng.integers(0, 2, slots)
    x = rng.random((slots, 1))
    accuracy = np.stack([0.55 + 0 * x[:, 0], 0.5 + 0.4 * x[:, 0], 0.95 - 0.4 * x[:, 0]])
    predictions = np.where(rng.random((3, slots)) < accuracy, labels, 1 - labels)
    return {
        "predictions": predictions,
        "labels": labels,
        "contexts": x,
        "at": rng.choice(["north", "south"], slots),
        "revealed": (rng.random(slots) < 0.9).astype(int),
        "delay": rng.choice([0, 0, 3], slots),
    }


def part(columns: dict[str, Any], first: int, end: int) -> dict[str, Any]:
    cut = {name: column[first:end] for name, column in columns.items() if name != "predictions"}
    return {**cut, "predictions": columns["predictions"][:, first:end]}


def told(trace: Any) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = trace.columns()
    del columns["slot"]
    return columns


@pytest.mark.parametrize("preset", ["cos", "dcza"])
def test_a_doubling_replay_is_its_epochs_replayed_one_by_one(preset: str) -> None:
    columns = stream(1_000)
    policy = {"preset": preset, "parameters": "theorem"}

    def horizon(slots: int) -> dict[str, int]:
        return {"horizon": slots} if preset == "cos" else {}

    doubling = {**policy, "horizon": "doubling", "first-epoch": 100}
    whole = covey.replay({"policy": doubling, "learner": SITES}, **columns)
    pieces = [
        covey.replay(
            {"policy": {**policy, **horizon(slots)}, "learner": SITES},
            **part(columns, slots - 100, 2 * slots - 100),
        )
        for slots in (100, 200, 400, 800)
    ]

    assert told(whole) == {
        name: [value for piece in pieces for value in told(piece)[name]] for name in told(whole)
    }
    assert whole.slot.tolist() == list(range(1, 1_001))


@pytest.mark.parametrize("preset", [CoS, DCZA])
def test_a_doubling_horizon_has_the_policy_of_each_epoch(preset: Any) -> None:
    settings = preset(parameters="theorem", horizon="doubling", first_epoch=100)
    policy = settings.resolve(dimension=1, most_functions=2)

    for number in range(3):
        in_epoch = settings.in_epoch(100 * 2**number).resolve(dimension=1, most_functions=2)
        assert policy.partition.policy_of(number) == in_epoch
    assert policy.title.endswith("; epochs of 100 slots, doubled")
