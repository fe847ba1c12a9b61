"""The arm that a learner prefers in each cell, as displays show it."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.learner import CellPreference, preferences
from support.snapshots import snapshot_of

POLICIES: dict[str, dict[str, Any]] = {
    "grid": {"preset": "cos", "slices": 4},
    "zooming": {"preset": "dcza"},
    "auto": {"preset": "auto"},
    "epochs": {"preset": "cos", "horizon": "doubling"},
}
ROWS, WIDTH = 600, 2


def learnt(policy: dict[str, Any], width: int = WIDTH) -> tuple[Any, np.ndarray]:
    """Return a learner whose `a` is right where the first context is low, and its contexts."""
    network = covey.Network(
        {"policy": policy, "learner": [{"name": "north", "functions": ["a", "b"]}]},
        functions={"a": lambda _: 0, "b": lambda _: 1},
        dimension=width,
    )
    contexts = np.random.default_rng(3).random((ROWS, width))
    for context in contexts.tolist():
        answer = network["north"].predict(None, context=tuple(context))
        network["north"].learn(answer.ticket, int(bool(context) and context[0] >= 0.5))
    return network["north"].learner, contexts


def around(cells: list[CellPreference], context: Any) -> list[CellPreference]:
    return [
        cell
        for cell in cells
        if all(
            low <= one < high for low, one, high in zip(cell.low, context, cell.high, strict=True)
        )
    ]


@pytest.mark.parametrize("name", POLICIES)
def test_a_cell_prefers_the_function_that_is_right_there(name: str) -> None:
    learner, contexts = learnt(POLICIES[name])

    cells = preferences(learner, most=10_000)

    assert len(cells) > 3
    assert all(cell.places == (0, 1) and cell.arrivals > 0 for cell in cells)
    sure = [cell for cell in cells if cell.arrivals > 20 and cell.arm]
    wrong = [
        cell for cell in sure if (cell.arm == "b") != (cell.low[0] >= 0.5) and cell.high[0] != 1
    ]
    assert wrong == []
    assert all(len(around(cells, context)) <= 1 for context in contexts.tolist())
    last = contexts.tolist()[-1]
    assert name == "auto" or len(around(cells, last)) == 1


def test_of_many_cells_those_with_the_most_arrivals_are_returned_first() -> None:
    learner, _ = learnt(POLICIES["grid"])
    every, few = preferences(learner, most=100), preferences(learner, most=3)

    assert few == every[:3]
    assert sum(cell.arrivals for cell in every) == ROWS
    arrivals = [cell.arrivals for cell in every]
    assert arrivals == sorted(arrivals, reverse=True)


def test_of_cells_that_were_split_only_the_present_one_is_shown() -> None:
    """The paper's memory: where all contexts lie in one place, one cell is active at a time."""
    network = covey.Network(
        {"policy": POLICIES["zooming"], "learner": [{"name": "north", "functions": ["a"]}]},
        functions={"a": lambda _: 0},
        dimension=1,
    )
    site = network["north"]
    for _ in range(1 + 16 + 256 + 5):  # a cell of level l is split at 2 ** (4 l) arrivals
        site.learn(site.predict(None, (0.3,)).ticket, 0)

    assert preferences(site.learner, most=10) == [CellPreference((0,), (0.25,), (0.375,), 5, "a")]
    assert len(site.learner.table) == 4  # peers may ask about the others


def test_looking_changes_no_decision() -> None:
    seen, blind = (learnt(POLICIES["epochs"])[0] for _ in range(2))
    before = snapshot_of(seen)
    preferences(seen, most=10)

    assert snapshot_of(seen) == before == snapshot_of(blind)


def test_without_contexts_there_is_one_cell_and_without_rows_none() -> None:
    learner, _ = learnt(POLICIES["grid"], width=0)
    (cell,) = preferences(learner, most=10)

    assert cell == CellPreference((), (), (), ROWS, "a")
    network = covey.Network(
        {"policy": POLICIES["epochs"], "learner": [{"name": "north", "functions": ["a"]}]},
        functions={"a": lambda _: 0},
        dimension=1,
    )
    assert preferences(network["north"].learner, most=10) == []


def test_candidates_say_which_contexts_their_cells_divide() -> None:
    network = covey.Network(
        {
            "data": {"candidates": ["x", "y"]},
            "policy": {"preset": "cos", "slices": 2},
            "learner": [{"name": "north", "functions": ["a", "b"]}],
        },
        functions={"a": lambda _: 0, "b": lambda _: 1},
    )
    site = network["north"]
    for x, y in np.random.default_rng(5).random((200, 2)).tolist():
        site.learn(site.predict({"x": x, "y": y}).ticket, int(y < 0.5))

    cells = preferences(site.learner, most=10)

    assert {cell.places for cell in cells} == {(0,), (1,)}
    assert {(cell.low, cell.arm) for cell in cells if cell.places == (1,)} == {
        ((0.0,), "b"),
        ((0.5,), "a"),
    }
