"""A batch that does not fit, or that a function fails, is refused as a whole and moves nothing."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import covey
from covey.errors import ContextError, DataError, FunctionError, UnknownTicket
from support.batched import CONTEXTS, ONCE, ROWS, Counted, counters, network, tickets


@pytest.mark.parametrize(
    ("instances", "contexts", "message"),
    [
        ([[1, 2], [1]], CONTEXTS[:2], "row 1 of the batch has 1 values and row 0 has 2 values"),
        ([[1], 3], CONTEXTS[:2], "row 1 of the batch has no values to count and row 0 has 1"),
        (ROWS, CONTEXTS[:3], "the batch has 8 instances and 3 contexts"),
        ("spam", CONTEXTS[:4], "the instances of a batch are a str; pass a list or an array"),
        (iter([1]), CONTEXTS[:1], "the instances of a batch are a list_iterator"),
        (ROWS[:2], [(0.5,), (1.5,)], "row 1 of the batch: context coordinate 0 is 1.5"),
        (ROWS[:2], [(0.5,), ()], "contexts are not 1 numbers in every row"),
    ],
)
def test_an_inconsistent_batch_is_rejected_without_effect(
    instances: Any, contexts: Any, message: str
) -> None:
    sites = network()
    sites["north"].predict_batch(ROWS, CONTEXTS)
    before = counters(sites)

    with pytest.raises(DataError, match=message):
        sites["north"].predict_batch(instances, contexts)
    assert counters(sites) == before


def test_a_bad_context_in_a_batch_is_a_context_error() -> None:
    with pytest.raises(ContextError):
        network()["north"].predict_batch([1], [(2.0,)])


def test_a_batch_longer_than_the_wait_for_labels_is_refused() -> None:
    sites = network(**{"label-wait": 6})

    with pytest.raises(
        DataError, match="the batch has 8 rows, but label-wait of learner 'north' is 6 slots"
    ):
        sites["north"].predict_batch(ROWS, CONTEXTS)
    assert len(sites["north"].predict_batch(ROWS[:7], CONTEXTS[:7])) == 7


def test_every_label_of_a_batch_as_long_as_the_wait_is_taken_and_then_no_more() -> None:
    south = network(**{"label-wait": 7})["south"]
    first = south.predict_batch(ROWS, CONTEXTS)
    south.learn_batch(tickets(first)[:1], [1])

    south.predict_batch(ROWS[:1], CONTEXTS[:1])

    assert south.learn(first[1].ticket, 1).is_new
    south.predict_batch(ROWS, CONTEXTS)
    with pytest.raises(UnknownTicket):
        south.learn(first[0].ticket, 1)


class Broken:
    """Answers whatever it is told to, in place of one label per row."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def predict(self, rows: Sequence[object]) -> Any:
        return self.answer(rows)


@pytest.mark.parametrize("preset", ["cos", "dcza"])
@pytest.mark.parametrize("name", ["a", "d"])
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda rows: [1] * (len(rows) + 1), r"returned \d+ labels for \d+ rows"),
        (lambda rows: 1 / 0, "raised ZeroDivisionError"),
        (lambda rows: [None] * len(rows), "answered None, which is not a label"),
        (lambda rows: np.zeros((len(rows), 2)), "answered a list, which is not a label"),
        (lambda rows: 1.5, "raised TypeError"),
        (lambda rows: np.float64(1.5), "raised TypeError"),
        (lambda rows: "x" * len(rows), "returned one string for"),
    ],
)
def test_a_failing_function_is_named_and_the_batch_is_rolled_back(
    preset: str, name: str, answer: Any, message: str
) -> None:
    """Both are the most accurate of their owner by then, and north still trains south."""
    curve = {"scale": 0.5, "power": 0.3}
    reading = {"order": "train-own-peers"}
    policy = {"preset": preset, "split-power": 2.0, "reading": reading, "train": curve}
    broken = Broken(lambda rows: [1] * len(rows))
    sites = network({"b": Counted(0), "c": Counted(0), name: broken}, **policy)
    points = np.full((24, 1), 0.1)
    warm = sites["north"].predict_batch(np.zeros((24, 2)), points)
    sites["north"].learn_batch(tickets(warm), [1] * 24)
    before = counters(sites)
    broken.answer = answer

    owner = {"a": "north", "d": "south"}[name]
    with pytest.raises(FunctionError, match=f"function '{name}' of learner '{owner}' {message}"):
        sites["north"].predict_batch(np.zeros((24, 2)), points)
    assert _without_empty(counters(sites)) == before


def _without_empty(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out the cells that an abandoned batch made known, in which nothing is counted."""
    return {
        site: [(name, known) for name, known in cells if any(known[1:])]
        for site, cells in found.items()
    }


def test_answers_of_peers_are_rolled_back_if_another_peer_fails() -> None:
    learners = [
        {"name": "north", "functions": ["a"], "peers": {"south": 0.1, "west": 0.1}},
        {"name": "south", "functions": ["b"], "peers": {}},
        {"name": "west", "functions": ["c"], "peers": {}},
    ]
    functions = {"a": Counted(), "b": Counted(), "c": Broken(lambda rows: 1 / 0)}
    policy = {"slices": 1, "explore": ONCE, "train": ONCE}
    sites = covey.Network({"policy": policy, "learner": learners}, functions=functions, dimension=1)

    with pytest.raises(FunctionError, match="function 'c' of learner 'west' raised"):
        sites["north"].predict_batch(ROWS, CONTEXTS)
    assert len(functions["b"].sizes) == 1
    assert _without_empty(counters(sites)) == {"north": [], "south": [], "west": []}
    functions["c"].answer = lambda rows: [1] * len(rows)
    answers = sites["north"].predict_batch(ROWS, CONTEXTS)
    assert tickets(answers) == [1, 2, 3, 4, 5, 6, 7, 8]
    asked = Counter(answer.arm for answer in answers)["south"]
    assert sites["south"].state.pending_rows == asked


def test_cells_that_an_abandoned_batch_opened_are_empty_and_used_again() -> None:
    broken = Broken(lambda rows: 1 / 0)
    sites = network({"c": broken}, preset="dcza", **{"split-power": 1.0})
    points = np.full((12, 1), 0.1)
    with pytest.raises(FunctionError):
        sites["south"].predict_batch(np.zeros((12, 2)), points)
    opened = counters(sites)["south"]
    broken.answer = lambda rows: [1] * len(rows)

    sites["south"].predict_batch(np.zeros((12, 2)), points)

    assert len(opened) > 1
    assert not any(any(known[1:]) for _, known in opened)
    assert dict(counters(sites)["south"])["z0:0"][1] == 12
