"""Several contexts: candidates, peers that are shown the cell only, and features that are apart."""

import functools
from collections import Counter
from typing import Any

import numpy as np
import pytest

import covey
from covey.config import load
from covey.replay.engine import ReplayEngine
from support.presets import fitting
from support.streams import log_of
from support.two_sites import GRID, NORTH, SOUTH, ZOOMING, answers, late_arms, stream

BOTH = pytest.mark.parametrize("preset", ["grid", "zooming"])
THREE = ["x0", "x1", "x2"]
SLOTS = 20_000


@functools.cache
def found(preset: str, *candidates: str) -> tuple[covey.Trace, np.ndarray]:
    """Return the trace of a learner with these contexts, and its regret up to each slot.

    Of three contexts only x1 says which function is right: regret is against who goes by it.
    """
    rng = np.random.default_rng(1)
    labels, contexts = rng.integers(0, 2, SLOTS), rng.random((SLOTS, 3))
    is_low = contexts[:, 1] < 0.5
    chances = np.array([np.where(is_low, 0.9, 0.5), np.where(is_low, 0.5, 0.9)])
    trace = covey.replay(
        {
            "data": {"candidates": list(candidates)},
            "policy": GRID if preset == "grid" else ZOOMING,
            "learner": [NORTH],
        },
        predictions=answers(labels, *chances),
        labels=labels,
        contexts=contexts[:, [THREE.index(name) for name in candidates]],
    )
    return trace, np.cumsum(chances.max(axis=0) - chances[trace.arm, np.arange(SLOTS)])


@BOTH
def test_of_three_contexts_the_one_that_matters_is_found(preset: str) -> None:
    trace, _ = found(preset, *THREE)
    is_late = (trace.phase == 2) & (trace.slot > SLOTS / 2)
    went_by = Counter(trace.names["cell"][cell].split("/")[0] for cell in trace.cell[is_late])

    assert set(went_by) == set(THREE)
    assert went_by["x1"] > 0.8 * went_by.total()


@BOTH
def test_the_regret_against_the_best_single_context_grows_as_the_theorem_says(preset: str) -> None:
    """With alpha = 1 it is T^(3/4); sixteen times as many slots are then eight times the regret."""
    _, regret = found(preset, *THREE)

    assert regret[-1] < 8 * regret[SLOTS // 16]


@BOTH
def test_not_seeing_the_context_costs_less_than_one_slot_in_fifty(preset: str) -> None:
    _, regret = found(preset, *THREE)
    _, told = found(preset, "x1")

    assert told[-1] < regret[-1] < told[-1] + SLOTS / 50


def test_a_candidate_may_be_a_pair_where_no_single_context_matters() -> None:
    rng = np.random.default_rng(4)
    labels, contexts = rng.integers(0, 2, 20_000), rng.random((20_000, 2))
    is_same = (contexts[:, 0] < 0.5) == (contexts[:, 1] < 0.5)
    given = {
        "predictions": answers(labels, np.where(is_same, 0.9, 0.5), np.where(is_same, 0.5, 0.9)),
        "labels": labels,
        "contexts": contexts,
    }

    def right(candidates: list[Any]) -> float:
        config = {
            "data": {"candidates": candidates},
            "policy": {"preset": "cos", "slices": 2},
            "learner": [NORTH],
        }
        return float(covey.replay(config, **given).correct[-5_000:].mean())

    assert right(["x0", "x1"]) < 0.75
    assert right(["x0", "x1", ["x0", "x1"]]) > 0.87


def explored(reading: str, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return the candidates and the arms of a learner that explores in all slots."""
    often = {"scale": 1_000.0, "power": 0.0}
    config = {
        "data": {"candidates": ["x0", "x1"]},
        "policy": {"preset": "cos", "reading": reading, "seed": seed, "explore": often},
        "learner": [NORTH],
    }
    trace = covey.replay(config, **stream(400, 0.5, 0.5) | {"contexts": np.full((400, 2), 0.5)})
    columns = trace.columns()
    return [cell.split("/")[0] for cell in columns["cell"][1:]], columns["arm"][1:]


def test_by_the_paper_one_of_all_arms_that_need_exploration_is_drawn() -> None:
    cells, arms = explored("paper")
    pairs = Counter(zip(cells, arms, strict=True))

    # Of 399 slots 100 are expected for each pair; 4.5 standard deviations are 39.
    assert {pair: abs(count - 100) < 39 for pair, count in pairs.items()} == dict.fromkeys(
        [("x0", "a"), ("x0", "b"), ("x1", "a"), ("x1", "b")], True
    )
    assert explored("paper") == (cells, arms) != explored("paper", seed=1)
    assert explored("spec") == (["x0"] * 399, ["a"] * 399)


def by_cell(*, is_told_by_the_cell: bool, preset: str = "cos", **north: Any) -> covey.Trace:
    """North's functions are bad; south sees the same contexts, where labels may depend on them."""
    rng = np.random.default_rng(5)
    contexts = rng.random((6_000, 1))
    labels = rng.integers(0, 2, 6_000)
    if is_told_by_the_cell:
        is_usual = rng.random(6_000) < 0.95
        labels = np.where(is_usual, contexts[:, 0] > 0.5, contexts[:, 0] <= 0.5).astype(int)
    policy = fitting({"preset": preset, "slices": 4})
    config = {"policy": policy, "learner": [{**NORTH, **north}, SOUTH]}
    predictions = answers(labels, 0.55, 0.5, 0.95)
    return covey.replay(config, predictions=predictions, labels=labels, contexts=contexts)


def late_of_north(trace: covey.Trace) -> tuple[float, float]:
    mine = (trace.learner == 0) & (trace.slot > 3_000)
    return float(trace.correct[mine].mean()), float(trace.cost[mine].mean())


@pytest.mark.parametrize("preset", ["auto", "cos"])
def test_a_context_peer_beats_bad_functions_and_costs_less_than_data(preset: str) -> None:
    told: dict[str, Any] = {"is_told_by_the_cell": True, "preset": preset}
    alone, _ = late_of_north(by_cell(**told))
    by_data, price = late_of_north(by_cell(**told, peers={"south": 0.2}))
    shown, low_price = late_of_north(by_cell(**told, **{"context-peers": {"south": 0.02}}))

    assert alone < 0.6
    assert shown > 0.92
    assert shown > by_data - 0.03
    assert low_price < price / 5


def test_context_peers_are_not_chosen_if_the_cell_does_not_predict_the_label() -> None:
    trace = by_cell(is_told_by_the_cell=False, **{"context-peers": {"south": 0.02}})

    assert Counter(late_arms(trace))["south (context)"] < 0.05 * len(late_arms(trace))


def test_answers_from_stored_labels_are_marked_in_the_trace() -> None:
    columns = by_cell(is_told_by_the_cell=True, **{"context-peers": {"south": 0.02}}).columns()
    rows = list(zip(*(columns[n] for n in ("arm", "function", "prediction", "cost")), strict=True))

    assert ("south (context)", "(labels seen)", 1, 0.02) in rows
    assert {function for arm, function, *_ in rows if arm == "south (context)"} == {"(labels seen)"}


def test_what_a_context_peer_answered_is_in_the_trace_of_every_epoch() -> None:
    rng = np.random.default_rng(5)
    labels, contexts = rng.integers(0, 2, 600), rng.random((600, 1))
    policy = {"preset": "cos", "horizon": "doubling", "first-epoch": 100}
    north = {**NORTH, "context-peers": {"south": 0.02}}
    trace = covey.replay(
        {"policy": policy, "learner": [north, SOUTH]},
        predictions=answers(labels, 0.55, 0.5, 0.95),
        labels=labels,
        contexts=contexts,
    ).columns()
    rows = [row for row, name in enumerate(trace["function"]) if name == "(labels seen)"]

    assert {trace["slot"][row] > 100 for row in rows} == {True, False}
    assert all(
        trace["correct"][row] == (trace["prediction"][row] == trace["label"][row]) for row in rows
    )


def apart(slots: int, *, south: str, has_arrivals: bool = True) -> tuple[ReplayEngine, covey.Trace]:
    """North goes by x0; south, whom it asks, by a context of its own or by the same."""
    rng = np.random.default_rng(9)
    labels = rng.integers(0, 2, slots)
    config = {
        "data": {"context": ["x0", "x1"]},
        "policy": {"preset": "cos", "slices": 2},
        "learner": [
            {"name": "north", "functions": ["a"], "context": ["x0"], "peers": {"south": 0.05}},
            {
                "name": "south",
                "functions": ["b", "c"],
                "context": [south],
                "peers": {},
                "arrivals": has_arrivals,
            },
        ],
    }
    setup = load(config)
    game = ReplayEngine(setup, setup.sites, 2, [0, 1])
    said = answers(labels, 0.6, 0.5, 0.9)
    return game, game.play(log_of(said, labels, contexts=rng.random(2 * slots)))


def decisions_of_north(trace: covey.Trace) -> list[tuple[int, ...]]:
    mine = trace.learner == 0
    columns = (trace.phase, trace.arm, trace.function, trace.correct)
    return list(zip(*(column[mine].tolist() for column in columns), strict=True))


def test_cells_are_named_by_the_space_they_belong_to() -> None:
    _, trace = apart(200, south="x1")

    assert set(trace.names["cell"]) == {"x0/g2:0", "x0/g2:1", "x1/g2:0", "x1/g2:1"}


def test_in_the_space_of_the_asker_a_helper_counts_requests_only() -> None:
    game, trace = apart(3_000, south="x1")
    asks = (trace.learner == 0) & (trace.arm == trace.names["arm"].index("south"))
    asked_in = Counter(trace.names["cell"][cell] for cell in trace.cell[asks])
    table = game.tables[1][0]
    counted = {
        game.cell_name(0, table.cells.cell(row)): table.cells.arrivals(row)
        for row in range(len(table))
    }

    assert min(counted.values()) > 500
    assert counted == asked_in
    labels = [sum(table.record(row, f)[0] for f in (0, 1)) for row in range(len(table))]
    assert labels == list(counted.values())


def test_what_a_helper_sees_in_contexts_of_its_own_teaches_it_nothing_about_the_askers() -> None:
    """The paper's worst correlation: for the asker it is as if the helper received nothing else."""
    with_stream, without = (
        decisions_of_north(apart(3_000, south="x1", has_arrivals=has)[1]) for has in (True, False)
    )
    shared, alone = (
        decisions_of_north(apart(3_000, south="x0", has_arrivals=has)[1]) for has in (True, False)
    )

    assert with_stream == without
    assert shared != alone
    trained = [sum(phase == 0 for phase, *_ in rows) for rows in (shared, without)]
    assert trained[0] < 0.2 * trained[1]


def test_a_learner_with_an_uninformative_context_still_learns_which_peer_to_ask() -> None:
    _, trace = apart(3_000, south="x1")

    assert set(late_arms(trace)) == {"south"}
    assert trace.correct[trace.learner == 0][-1_000:].mean() > 0.85
