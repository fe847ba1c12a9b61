"""Candidates as one table: what it counts is in the tables of the spaces, and can be undone."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.learner import Learner
from covey.bandit.several import MOST_IDLE
from covey.config import learner_of, load
from covey.errors import ConfigError, DataError
from covey.kernel import NOT_DECIDED, row_of
from support.presets import fitting
from support.snapshots import restore, snapshot_of

PRESETS = pytest.mark.parametrize("preset", ["cos", "dcza"])
BATCH = 7


def learner(preset: str, place: int = 0, *, slices: int = 2) -> Learner:
    config = {
        "data": {"candidates": ["a", ["b", "a"]]},
        "policy": fitting(
            {"preset": preset, "slices": slices, "split-power": 2.0, "pending": True}
        ),
        "learner": [
            {"name": "north", "functions": ["f", "g"], "peers": {"south": 0.1}},
            {"name": "south", "functions": ["h", "i"], "peers": {}},
        ],
    }
    setup = load(config)
    return learner_of(setup, place, setup.context.dimension)


def decide(one: Learner, context: tuple[float, ...], slot: int) -> int:
    code = one.decide(context, slot)
    while code < 0:
        row = -1 - code
        for peer in one.peers_to_query(row, slot):
            one.receive_report(row, peer, (0, 0.0, 1.0, ()), slot)
        code = one.resume(row, context, slot)
    return code


def counters(one: Learner) -> dict[str, Any]:
    """Return all that is counted, by space and cell; cells may be known without a count."""
    return {
        (space, table.cells.cell(row)): (
            table.saved.stored(row)[1:],
            table.saved.pending(row),
        )
        for space, table in one.tables.items()
        if space in one.policies
        for row in range(len(table))
        if any(table.saved.stored(row)[1:]) or any(table.saved.pending(row))
    }


@PRESETS
def test_a_decision_that_is_taken_back_leaves_all_counters_as_they_were(preset: str) -> None:
    one = learner(preset)
    rng = np.random.default_rng(3)
    for slot in range(1, 60):
        context = tuple(rng.random(2).tolist())
        code = decide(one, context, slot)
        one.settle(code, int(rng.integers(2)), context, slot)
    for slot in range(60, 90):
        context = tuple(rng.random(2).tolist())
        code = one.decide(context, slot)
        if code < 0:
            continue
        one.retract(code, context, slot)
        before = counters(one)
        code = one.decide(context, slot)
        assert counters(one) != before
        one.retract(code, context, slot)
        assert counters(one) == before


@PRESETS
def test_a_served_row_that_is_taken_back_leaves_all_counters_as_they_were(preset: str) -> None:
    asker, helper = learner(preset), learner(preset, place=1)
    code = asker.decide((0.2, 0.9), 1)
    cell = asker.known_cell(asker.space, code >> 20)
    helper.open(cell, 1)
    before = counters(helper)

    served = helper.serve(cell, 1, asker.name)
    assert counters(helper) != before
    helper.retract(served, (), 1, cell.space)

    assert counters(helper) == before


def test_a_question_of_a_peer_opens_one_cell_and_its_instance_all_of_them() -> None:
    asker, helper = learner("cos"), learner("cos", place=1)
    cell = asker.known_cell(asker.space, row_of(asker.decide((0.2, 0.9), 1)))
    sizes, rows = [], []
    for ask in (helper.report, helper.serve):
        ask(cell, 1, asker.name)
        sizes.append([len(helper.tables[space]) for space in helper.own_spaces])
        rows.append(helper.table.cells.find(cell))

    assert sizes == [[1, 0], [1, 1]]
    assert rows == [-1, 0]


@PRESETS
def test_rows_are_decided_and_settled_at_once_as_one_by_one(preset: str) -> None:
    rng = np.random.default_rng(5)
    one, many = learner(preset, place=1), learner(preset, place=1)
    slot = 1
    for _ in range(20):
        points = np.ascontiguousarray(rng.random((BATCH, 2)))
        gains = rng.integers(0, 2, BATCH)
        slots = np.arange(slot, slot + BATCH)
        codes = np.full(BATCH, NOT_DECIDED, np.int64)
        assert many.decide_rows(points, slot, codes) == BATCH
        single = [decide(one, tuple(p), slot + k) for k, p in enumerate(points.tolist())]
        assert single == codes.tolist()
        many.settle_rows(points, slots, codes, gains)
        for k, point in enumerate(points.tolist()):
            one.settle(single[k], int(gains[k]), tuple(point), slot + k)
        slot += BATCH
    assert counters(one) == counters(many)
    assert snapshot_of(one) == snapshot_of(many)


@PRESETS
def test_a_snapshot_restores_rows_and_counters(preset: str) -> None:
    one, other = learner(preset), learner(preset)
    rng = np.random.default_rng(9)
    for slot in range(1, 80):
        context = tuple(rng.random(2).tolist())
        one.settle(decide(one, context, slot), int(rng.integers(2)), context, slot)
        one.advance(slot)

    restore(other, snapshot_of(one))

    assert snapshot_of(other) == snapshot_of(one)
    context = tuple(rng.random(2).tolist())
    assert placed(other, decide(other, context, 80)) == placed(one, decide(one, context, 80))


def placed(one: Learner, code: int) -> tuple[Any, Any]:
    return one.choice(code), one.known_cell(one.space, row_of(code))


def test_a_label_is_counted_however_many_cells_came_since_its_decision() -> None:
    one, rng = learner("cos", place=1, slices=99), np.random.default_rng(2)
    code, context = one.decide((0.1, 0.2), 1), (0.1, 0.2)
    for slot in range(2, MOST_IDLE + 3_000):
        other = tuple(rng.random(2).tolist())
        one.settle(one.decide(other, slot), 1, other, slot)
    with pytest.raises(KeyError):  # a row is not kept for ever
        one.known_cell(one.space, 1)
    before = counters(one)

    one.settle(code, 1, context, 1)

    assert counters(one) != before
    assert {name.rpartition("/")[0] for name, _ in snapshot_of(one).cells} == {"a", "b+a"}


@pytest.mark.parametrize(
    "name",
    ["a|b+a/g2:0|g2:1:1@2", "a|b+a/g2:0@0", "a|b+a/g2:0|g2:1@0", "a|b+a/g2:0|g3:1:1@0", "a|b+a/"],
)
def test_a_name_that_is_none_of_the_candidates_is_refused(name: str) -> None:
    one = learner("cos")
    assert one.names.of(one.names.parse("a|b+a/g2:0|g2:1:1@1")) == "a|b+a/g2:0|g2:1:1@1"

    with pytest.raises(DataError):
        one.names.parse(name)


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ({"context-peers": {"south": 0.1}}, ("context-peers", "candidates")),
        ({"supervised": False}, ("supervised", "candidates")),
        ({"free": True}, ("free", "candidates")),
    ],
)
def test_what_cannot_be_combined_with_candidates_is_refused_with_both_keys(
    more: dict[str, Any], keys: tuple[str, str]
) -> None:
    config = {
        "data": {"candidates": ["a", "b"]},
        "policy": {"preset": "cos"},
        "learner": [
            {"name": "north", "functions": ["f"], "peers": {}, **more},
            {"name": "south", "functions": ["g"], "peers": {}},
        ],
    }
    with pytest.raises(ConfigError) as error:
        covey.Network(config, functions={"f": lambda x: 0, "g": lambda x: 1})

    assert all(key in str(error.value) for key in keys)
