"""Peers that are shown the cell only say what its labels were, and cost less than data."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import covey
from support.presets import fitting
from support.two_sites import NORTH, SOUTH, answers, late_arms


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
