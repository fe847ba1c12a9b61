"""The alarm by hand: when it goes off, what it leaves, and how a wary learner decides."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_index_policies import crowded_case

from covey.bandit.policies import policy_from
from covey.kernel import Clock, Table, table_of
from covey.kernel.rules import Cell
from support.networks import Case, kernel_rows, turned

EXPLOIT = 2
NOWHERE = ()  # the context of a space without coordinates, which is one cell


def table(costs: tuple[float, ...] = (0.0,), *, unit: int = 1, **policy: Any) -> Table:
    """Return a learner with one function; all but the first cost are prices of peers."""
    made = policy_from({"preset": "share-ucb", **policy}).resolve(dimension=0, most_functions=1)
    rule = made.rule(functions=1, costs=costs, position=0, unit=unit)
    one = table_of(Clock(*made.curves()), rule)
    one.cells.meet(Cell(0, NOWHERE), 1)
    return one


def teach(one: Table, arm: int, gains: list[int], first_slot: int = 1) -> list[tuple[int, int]]:
    """Let the learner use the arm slot by slot; return its labels and gains after each."""
    seen = []
    for slot, gain in enumerate(gains, first_slot):
        one.settle(arm << 2 | EXPLOIT, gain, NOWHERE, slot)
        seen.append(one.record(0, arm))
    return seen


def serve(one: Table, gains: list[int], first_slot: int) -> None:
    for slot, gain in enumerate(gains, first_slot):
        one.settle(one.serve(0, slot), gain, NOWHERE, slot)


def arm_at(one: Table, slot: int) -> int | None:
    """Return the arm that is chosen; None: somebody must be asked first."""
    decision = one.decide(NOWHERE, slot)
    return decision >> 2 & 0x3FFFF if decision >= 0 else None


# -- when it goes off --------------------------------------------------------------------------


@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize(
    ("right", "alarm", "wrong"),
    [
        # After n right answers the j-th wrong one in a row adds ln((n + 4j + 1) / 4j).
        (1_000, 9.0, 2),  # 5.53 and 4.84
        (100, 9.0, 4),  # 3.27, 2.61 and 2.24 come to 8.12; then 1.99
        (20, 9.0, 12),  # 8.65 after eleven, 9.02 after twelve
        (20, 1.8, 1),  # ln(25 / 4) = 1.83
        (4, 2.0, 5),  # 1.92 after four, 2.14 after five
        (3, 0.5, 3),  # three labels are no grounds; then 0.41 and 0.29
    ],
)
def test_so_many_wrong_answers_in_a_row_set_the_alarm_off(
    right: int, alarm: float, wrong: int, arm: int
) -> None:
    seen = teach(table((0.0, 0.0), alarm=alarm), arm, [1] * right + [0] * wrong)

    assert seen[-2:] == [(right + wrong - 1, right), (0, 0)]


def test_answers_that_are_half_right_raise_half_the_doubt_less_half_the_relief() -> None:
    # After 20 right ones 0.77, 0.62, 0.52 and 0.45: three come to 1.91, four to 2.35.
    seen = teach(table(alarm=2.0, unit=10), 0, [10] * 20 + [5] * 4)

    assert seen[-2:] == [(23, 215), (0, 0)]


def test_the_slots_of_alarms_are_kept_and_the_latest_ten_are_stored() -> None:
    one = table(alarm=1.8)
    for first in range(1, 12 * 21, 21):
        teach(one, 0, [1] * 20 + [0], first)
    again = table(alarm=1.8)
    again.policy.restore(one.policy.state())

    assert one.policy.alarms == list(range(21, 12 * 21 + 1, 21))
    assert (again.policy.alarm_count, again.policy.alarms) == (12, one.policy.alarms[-10:])


# -- what it leaves ----------------------------------------------------------------------------


def test_what_was_decided_before_the_alarm_teaches_nothing_any_more() -> None:
    one = table((0.0, 0.0), alarm=1.8)
    teach(one, 0, [1] * 20)
    served = one.serve(0, 23)
    teach(one, 0, [0], 24)
    teach(one, 0, [1, 0], 20)
    teach(one, 1, [1, 1, 1], 22)
    one.settle(served, 1, NOWHERE, 23)
    forgotten = [one.record(0, arm) for arm in (0, 1)]
    teach(one, 1, [1], 25)

    assert forgotten == [(0, 0), (0, 0)]
    assert one.record(0, 1) == (1, 1)


def test_an_alarm_by_serving_forgets_own_functions_and_no_peers() -> None:
    one = table((0.0, 0.0), alarm=1.8)
    teach(one, 1, [1, 0, 1])
    serve(one, [1] * 20 + [0], 4)

    assert [one.record(0, arm) for arm in (0, 1)] == [(0, 0), (3, 2)]


def test_an_alarm_by_serving_keeps_the_reports_of_peers_and_the_trust_in_them() -> None:
    one = table((0.0, 0.0), alarm=1.8)
    one.hear(0, 0, (0, 0.0, 0.25, ()), 15)
    serve(one, [1] * 20 + [0], 1)
    holds = arm_at(one, 30)
    teach(one, 0, [0] * 20, 31)

    assert holds == 0
    assert arm_at(one, 60) is None


@pytest.mark.parametrize(("policy", "left", "alarms"), [(1.8, (0, 0), [7]), (0, (3, 2), [])])
def test_an_alarm_from_outside_does_what_one_by_serving_does(
    policy: float, left: tuple[int, int], alarms: list[int]
) -> None:
    """Where there is no change detection, it does nothing."""
    one = table((0.0, 0.0), alarm=policy)
    teach(one, 0, [1, 0, 1])
    teach(one, 1, [1, 0, 1])

    one.raise_alarm(7)
    one.settle(0 << 2 | EXPLOIT, 1, NOWHERE, 7)

    count, right = left
    assert one.record(0, 0) == ((count, right) if alarms else (count + 1, right + 1))
    assert one.record(0, 1) == (3, 2)
    assert (one.policy.alarms, one.policy.alarm_count) == (alarms, len(alarms))


def test_an_alarm_leaves_arrivals_and_cells() -> None:
    one = table(alarm=1.8)
    for slot in range(1, 22):
        one.settle(one.decide(NOWHERE, slot), int(slot < 21), NOWHERE, slot)

    assert (len(one), one.record(0, 0), one.cells.arrivals(0)) == (1, (0, 0), 21)


# -- none --------------------------------------------------------------------------------------


def rows_with(case: Case, **changes: Any) -> list[Any]:
    return kernel_rows(replace(case, setup=replace(case.setup, **changes)))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("preset", ["auto", "share-ucb"])
def test_an_alarm_that_never_goes_off_changes_nothing(preset: str, seed: int) -> None:
    case = turned(crowded_case(preset, seed))
    rng = np.random.default_rng(seed)
    sites = tuple(replace(site, cost_columns=(0, 1, 0, 1, None)) for site in case.setup.sites)
    case = replace(case, paid=rng.integers(0, 5, (2, len(case.labels))) / 8)

    silent = rows_with(case, sites=sites, alarm=0.0)
    assert rows_with(case, sites=sites, alarm=1e6) == silent
    if preset == "share-ucb":  # the other one has few alarms in so few slots
        assert rows_with(case, sites=sites, alarm=0.3) != silent


def test_a_report_of_a_peer_counts_until_the_slot_has_doubled() -> None:
    one = table((0.0, 0.0), alarm=0.0)
    one.hear(0, 0, (0, 0.0, 0.25, ()), 15)

    assert [arm_at(one, slot) for slot in (30, 31)] == [0, None]
