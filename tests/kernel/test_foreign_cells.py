"""Cells that only isolated sources spoke of take own labels, and change no own decision."""

from typing import Any

import numpy as np
import pytest

from covey.bandit.policies import PRESETS
from covey.errors import LimitError
from covey.kernel import Clock, Table, arm_of, phase_of, row_of, table_of
from covey.kernel.rules import Cell
from support.presets import policy_of, sides, with_seeds
from support.tables import Row, rows_of

FUNCTIONS, PEERS = 2, 1
ARMS = FUNCTIONS + PEERS
READINGS: list[dict[str, Any]] = [
    {"preset": preset, **more} for preset in sorted(PRESETS) for more in ({}, {"pending": True})
] + [
    {"preset": "dcza", "inherit": True, "split-power": 0.5},
    {"preset": "dcza", "count": "labelled", "split-power": 0.5},
    {"preset": "auto", "alarm": 1.0},
]


def table(reading: dict[str, Any], **rule: Any) -> Table:
    policy = policy_of(reading, functions=FUNCTIONS)
    costs = (0.0, 0.05, 0.02)[: FUNCTIONS + PEERS]
    made = policy.rule(
        functions=FUNCTIONS,
        costs=costs,
        position=0,
        remembers=True,
        **rule,
    )
    return table_of(Clock(*policy.curves()), made)


def step(one: Table, slot: int, context: tuple[float, ...]) -> int:
    code = one.decide(context, slot)
    while code < 0:
        for peer in one.stale(-1 - code, slot):
            high = slot * 7 % 10 / 10
            one.hear(-1 - code, peer, (slot // 2, high - 0.2, high, ()), slot)
        code = one.resume(-1 - code, context, slot)
    return code


def own_cells(one: Table) -> list[Row]:
    rows = [row for place, row in enumerate(rows_of(one)) if not one.cells.is_foreign(place)]
    return sorted(rows, key=lambda row: row.cell)


@with_seeds("reading", READINGS)
def test_own_decisions_and_counters_are_the_same_with_foreign_cells(
    reading: dict[str, Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    with_, without = table(reading), table(reading)
    levels = sides(policy_of(reading, functions=FUNCTIONS))[:5]
    waiting = []

    for slot in range(1, 150):
        if rng.random() < 0.3:
            level = int(rng.integers(len(levels)))
            with_.cells.meet(Cell(level, (int(rng.integers(levels[level])),)), -1 - slot)
        if rng.random() < 0.05:  # a pooled source speaks of a cell, and is served
            cell = Cell(0, (int(rng.integers(levels[0])),))
            served = [one.serve(one.cells.meet(cell, slot), slot) for one in (with_, without)]
            waiting.append((*served, 1, (), slot))
        context = (float(rng.integers(0, 8)) / 8,)
        a, b = step(with_, slot, context), step(without, slot, context)
        assert (arm_of(a), phase_of(a)) == (arm_of(b), phase_of(b))
        assert with_.cells.cell(row_of(a)) == without.cells.cell(row_of(b))
        if rng.random() < 0.1:
            with_.retract(a, context, slot)
            without.retract(b, context, slot)
        else:
            waiting.append((a, b, int(rng.random() < 0.3 + 0.1 * arm_of(a)), context, slot))
        if waiting and rng.random() < 0.8:
            a, b, gain, context, decided = waiting.pop(int(rng.integers(len(waiting))))
            for one, code in ((with_, a), (without, b)):
                one.settle(code, gain, context, decided)
                one.remember(code, gain, context, decided)

    assert own_cells(with_) == own_cells(without)
    assert len(with_) - with_.cells.foreign == len(without)
    assert without.cells.foreign == 0


def test_own_labels_count_in_a_finer_foreign_cell_from_its_slot_on() -> None:
    one = table({"preset": "dcza", "split-power": 0.9})
    codes = [step(one, slot, (0.1,)) for slot in (1, 2)]
    row = one.cells.meet(Cell(2, (0,)), -3)
    codes.append(step(one, 3, (0.1,)))

    for slot, code in enumerate(codes, 1):
        one.settle(code, 1, (0.1,), slot)

    labels = sum(one.record(row, function)[0] for function in range(FUNCTIONS))
    assert one.cells.is_foreign(row)
    assert (labels, one.cells.arrivals(row)) == (2, 1)


@pytest.mark.parametrize("way", ["decide", "meet"])
def test_a_foreign_cell_begins_anew_once_it_is_own(way: str) -> None:
    one = table({"preset": "dcza", "split-power": 0.01, "split-scale": 1.0})
    row = one.cells.meet(Cell(1, (0,)), -2)
    one.settle(step(one, 1, (0.1,)), 1, (0.1,), 1)
    assert one.cells.arrivals(row) == 1

    met = one.cells.meet(Cell(1, (0,)), 5) if way == "meet" else row_of(step(one, 5, (0.1,)))

    assert met == row
    assert (one.cells.is_foreign(row), one.cells.foreign, one.saved.stored(row)[0]) == (False, 0, 5)
    assert one.record(row, 0) == (0, 0)
    assert one.saved.known(row) == []


def test_foreign_cells_do_not_count_as_own_ones() -> None:
    one = table({"preset": "cos", "slices": 8, "max-cells": 2})
    for place in range(6):
        one.cells.meet(Cell(0, (place,)), -2)
    for place in (0, 1):
        one.decide((place / 8,), 2)

    for x in (0.3, 0.9):
        with pytest.raises(LimitError, match="2 cells are in use, which is .*; raise max-cells"):
            one.decide((x,), 3)
    assert (len(one), one.cells.foreign) == (6, 4)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_foreign_rows_are_loaded_as_they_were(preset: str) -> None:
    one, other = table({"preset": preset}), table({"preset": preset})
    levels = sides(policy_of({"preset": preset}, functions=FUNCTIONS))[:3]
    for slot in range(1, 40):
        one.cells.meet(Cell(slot % len(levels), (slot % levels[slot % len(levels)],)), -1 - slot)
        one.settle(step(one, slot, (0.1,)), slot % 2, (0.1,), slot)

    for row in range(len(one)):
        assert other.saved.load_stored(one.cells.cell(row), one.saved.stored(row), []) == row

    assert one.cells.foreign == other.cells.foreign > 0
    assert [row.counters[:-ARMS] for row in rows_of(other)] == [
        row.counters[:-ARMS] for row in rows_of(one)
    ]
    assert [other.cells.is_foreign(row) for row in range(len(other))] == [
        one.cells.is_foreign(row) for row in range(len(one))
    ]


def test_the_cells_around_contexts_are_those_that_are_known() -> None:
    one = table({"preset": "dcza", "split-power": 0.9})
    for slot, x in enumerate((0.1, 0.9), 1):
        step(one, slot, (x,))
    fine = one.cells.meet(Cell(3, (0,)), -4)

    near, far = one.cells.around((0.1,)), one.cells.around((0.9,))
    assert (near[0], near[-1], far[0]) == (0, fine, 0)
    assert fine not in far
    assert one.cells.around_batch(np.array([0.1, 0.9, 0.1]).data, 3) == {*near, *far}
