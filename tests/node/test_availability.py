"""An arm that is not available is left out of one decision, and nothing is noted of that."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.policies import PRESETS, policy_from
from covey.kernel import Clock, Table, arm_of, table_of
from support.tables import rows_of

FUNCTIONS = 2
COSTS = (0.0, 0.05, 0.1, 0.0, 0.02)  # two own functions, then two peers, then one by the cell
ARMS = len(COSTS)
READINGS: list[dict[str, Any]] = [
    *({"preset": preset, **more} for preset in sorted(PRESETS) for more in ({}, {"pending": True})),
    {"preset": "dcza", "inherit": True},
    {"preset": "dcza", "inherit": True, "reading": "paper"},
    {"preset": "cos", "forget": {"window": 6}},
]


def table(reading: dict[str, Any], **rule: Any) -> Table:
    policy = policy_from({"seed": 7, **reading}).resolve(dimension=1, most_functions=FUNCTIONS)
    made = policy.rule(functions=FUNCTIONS, costs=COSTS, position=0, context_peers=1, **rule)
    return table_of(Clock(*policy.curves()), made)


def masked(arms: set[int]) -> bytes | None:
    return bytes([arm in arms for arm in range(ARMS)]) if arms else None


class Player:
    """Decides and learns in one table; peers say what a seeded generator says."""

    def __init__(self, table_: Table, *, is_repricing: bool) -> None:
        self.table = table_
        self.is_repricing = is_repricing
        self.queried: list[tuple[int, list[int]]] = []

    def step(self, slot: int, context: tuple[float, ...], closed: set[int]) -> int:
        if not self.is_repricing:
            return self._decide(slot, context, masked(closed))
        for arm in closed:
            self.table.set_cost(arm, float("inf"))
        code = self._decide(slot, context, None)
        for arm in closed:
            self.table.set_cost(arm, COSTS[arm])
        return code

    def _decide(self, slot: int, context: tuple[float, ...], closed: bytes | None) -> int:
        one = self.table
        code = one.decide(context, slot, closed)
        for turn in range(ARMS):
            if code >= 0:
                return code
            row = -1 - code
            peers = one.stale(row, slot, closed)
            self.queried.append((slot, peers))
            for peer in peers:
                high = (slot * 7 + peer * 13 + turn) % 10 / 10
                one.hear(row, peer, (slot * (peer + 1) // 3, high - 0.2, high, ()), slot)
            code = one.resume(row, context, slot, closed)
        raise AssertionError("peers are queried without end")


@settings(max_examples=6, deadline=None)
@pytest.mark.parametrize("reading", READINGS, ids=str)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_closed_arm_is_as_one_of_infinite_cost(reading: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    asking = Player(table(reading), is_repricing=False)
    repricing = Player(table(reading), is_repricing=True)
    waiting = []

    for slot in range(1, 120):
        context = (float(rng.integers(0, 4)) / 4,)
        share = rng.choice([0.0, 0.3, 1.0])
        closed = {arm for arm in range(1, ARMS) if rng.random() < share}
        code = asking.step(slot, context, closed)
        assert code == repricing.step(slot, context, closed)
        assert arm_of(code) not in closed
        waiting.append((code, int(rng.random() < 0.3 + 0.1 * arm_of(code)), context, slot))
        if rng.random() < 0.8:
            label = waiting.pop(int(rng.integers(len(waiting))))
            asking.table.settle(*label)
            repricing.table.settle(*label)

    assert asking.queried == repricing.queried
    assert rows_of(asking.table) == rows_of(repricing.table)


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_a_batch_leaves_closed_arms_out_as_single_rows_do(reading: dict[str, Any]) -> None:
    single, batch = table(reading), table(reading)
    closed = masked({2, 3})
    contexts = np.random.default_rng(4).random((30, 1))
    expected: list[int] = []
    for slot, context in enumerate(contexts.tolist(), 1):
        expected.append(single.decide(tuple(context), slot, closed))
        if expected[-1] < 0:
            break
    codes = np.zeros(30, np.int64)

    done = batch.decide_batch(contexts.reshape(-1).data, 1, codes.data, closed)

    assert codes[: len(expected)].tolist() == expected
    assert done == len([code for code in expected if code >= 0])


def test_what_a_closed_peer_estimates_does_not_count_as_seen() -> None:
    one = table({"preset": "cos"}, is_supervised=False)
    row = -1 - one.decide((0.5,), 1)
    told = [(0.9, 5), (0.8, 0), (0.0, 0)]

    codes = [one.consult(row, (0.5,), told, closed) for closed in (None, masked({2}))]

    assert [arm_of(code) for code in codes] == [2, 3]
    assert one.blind_decisions == 1
