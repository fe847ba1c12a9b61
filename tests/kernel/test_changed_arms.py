"""A table of other arms takes the rows of another one, arm by arm."""

import random
from typing import Any

import pytest

from covey.bandit.learner import Learner
from covey.bandit.policies import policy_from
from covey.kernel import Table, undecided_row
from covey.kernel.saved import renumbered
from support.lives import POLICIES

EVERY_POLICY = pytest.mark.parametrize("table", POLICIES.values(), ids=POLICIES)


def learner_of(table: dict[str, Any], functions: str, peers: str) -> Learner:
    policy = policy_from(table).resolve(dimension=1, most_functions=3)
    return Learner(
        "north",
        functions=tuple(functions),
        peers=tuple(peers),
        costs=(0.0,) * len(functions) + (0.1,) * len(peers),
        policy=policy,
    )


def played(table: dict[str, Any], functions: str = "ab", peers: str = "st") -> Learner:
    """Return a learner that has decided 200 rows and has got most of their labels."""
    learner, chance = learner_of(table, functions, peers), random.Random(3)  # noqa: S311
    for slot in range(1, 201):
        context = (chance.random(),)
        code = learner.decide(context, slot)
        while code < 0:
            row = undecided_row(code)
            for peer in learner.peers_to_query(row, slot):
                learner.receive_report(row, peer, (slot, 0.0, chance.random(), ()), slot)
            code = learner.resume(row, context, slot)
        learner.advance(slot)
        if chance.random() < 0.9:
            learner.settle(code, int(chance.random() < 0.7), context, slot, 300_000)
        else:
            learner.forget_rows([code])
    return learner


def taken(learner: Learner, old: Table, arms: list[int], more: Table | None = None) -> Table:
    """Return a table of other arms: arm `k` is `arms[k]` there, or `k` of another table."""
    table, numbers = learner.empty_table(""), {there: k for k, there in enumerate(arms)}
    for row in range(len(old)):
        own, counters = old.saved.parts(old.saved.stored(row))
        parts = {k: counters[there] for k, there in enumerate(arms) if there >= 0}
        for k in (set(range(len(arms))) - set(parts)) if more else ():
            parts[k] = more.saved.arm_counters(row, k)
        known = old.saved.known(row)
        assert (
            table.saved.load_parts(old.cells.cell(row), renumbered(own, numbers), parts, known)
            == row
        )
    return table


def rows_of(table: Table) -> list[list[int]]:
    """Return all rows."""
    return [table.saved.stored(row) for row in range(len(table))]


@EVERY_POLICY
def test_a_table_of_the_same_arms_has_the_same_rows(table: dict[str, Any]) -> None:
    learner = played(table)
    old = learner.tables[""]

    assert len(old) > 0
    assert rows_of(taken(learner, old, [0, 1, 2, 3])) == rows_of(old)


@EVERY_POLICY
def test_arms_that_come_and_go_leave_the_others_as_they_were(table: dict[str, Any]) -> None:
    learner = played(table)
    old = learner.tables[""]
    more = taken(learner_of(table, "axb", "stu"), old, [0, -1, 1, 2, 3, -1])
    again = taken(learner, more, [0, 2, 3, 4])

    assert rows_of(again) == rows_of(old)
    assert [more.saved.arm_counters(0, arm)[:9] for arm in (1, 5)] == [[0] * 9] * 2


@EVERY_POLICY
def test_an_arm_that_was_left_out_can_be_put_back(table: dict[str, Any]) -> None:
    learner = played(table)
    old = learner.tables[""]
    less = taken(learner_of(table, "b", "t"), old, [1, 3])
    again = taken(learner, less, [-1, 0, -1, 1], old)

    if "forget" in table:  # labels of a window are not put back
        assert [again.record(0, arm) for arm in range(4)] == [
            old.record(0, arm) for arm in range(4)
        ]
    else:
        assert rows_of(again) == rows_of(old)


@EVERY_POLICY
def test_a_table_with_other_arms_decides_on(table: dict[str, Any]) -> None:
    old = played(table).tables[""]
    learner = learner_of(table, "cb", "ut")
    learner.tables[""] = learner._table = taken(learner, old, [-1, 1, -1, 3])
    learner.slot = 200
    for slot in range(201, 221):
        code = learner.decide((slot % 7 / 7,), slot, closed=b"\0\0\1\1")
        if code < 0:
            code = learner.resume(undecided_row(code), (slot % 7 / 7,), slot, closed=b"\0\0\1\1")
        assert learner.choice(code).arm in ("b", "c")
