"""Labels of a batch are taken all or none, and no function learns twice."""

from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import covey
from covey.errors import ConflictingLabel, DataError, FunctionError, UnknownTicket
from support.batched import CONTEXTS, ROWS, counters, network, tickets


@pytest.mark.parametrize(
    ("given_tickets", "labels", "error", "message"),
    [
        ([1, 2], [1], DataError, "the batch has 2 tickets and 1 labels"),
        ([1, 2], [1, None], DataError, "label 1 of the batch is None, which is not a label"),
        ([1, 99], [1, 1], UnknownTicket, "unknown ticket 99"),
        ([1, 2, 1], [1, 1, 0], ConflictingLabel, "duplicate ticket 1 in the batch"),
        ([1, 8], [1, 0], ConflictingLabel, "ticket 8 of learner 'north' has the label 1"),
    ],
)
def test_invalid_labels_reject_the_whole_batch(
    given_tickets: list[int], labels: list[object], error: type[Exception], message: str
) -> None:
    sites = network()
    sites["north"].predict_batch(ROWS, CONTEXTS)
    sites["north"].learn(8, 1)
    before = counters(sites)

    with pytest.raises(error, match=message):
        sites["north"].learn_batch(given_tickets, labels)
    assert counters(sites) == before


def test_a_duplicate_ticket_is_settled_once() -> None:
    sites = network()
    sites["north"].predict_batch(ROWS, CONTEXTS)

    settlements = sites["north"].learn_batch([1, 2, 1], [1, 0, 1])

    assert [(s.is_new, s.is_right) for s in settlements] == [
        (True, True),
        (True, False),
        (False, True),
    ]


def test_a_batch_can_repeat_settled_labels() -> None:
    sites = network(train={"scale": 3.0, "power": 0.0})
    answers = sites["north"].predict_batch(ROWS, CONTEXTS)
    first = sites["north"].learn_batch(tickets(answers)[:6], [1] * 6)
    before = counters(sites)

    again = sites["north"].learn_batch(tickets(answers)[:6], [1] * 6)

    assert ({s.is_new for s in first}, {s.is_new for s in again}) == ({True}, {False})
    assert counters(sites) == before


def test_a_peer_that_waits_no_longer_is_left_out() -> None:
    sites = network(train={"scale": 3.0, "power": 0.0}, **{"label-wait": 20})
    answers = sites["north"].predict_batch(ROWS, CONTEXTS)
    sites["south"].predict([0.0], (0.5,), slot=1_000)
    before = counters(sites)["south"]

    settlements = sites["north"].learn_batch(tickets(answers), [1] * 8)

    assert any(answer.arm == "south" for answer in answers)
    assert all(settlement.is_new for settlement in settlements)
    assert counters(sites)["south"] == before


def test_a_function_learns_all_its_rows_in_one_call() -> None:
    lessons = []

    class Model(GaussianNB):
        def partial_fit(self, rows: Any, labels: Any, classes: Any = None) -> "Model":
            lessons.append((len(rows), list(labels)))
            return self

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(8, 2))
    model = Model().fit(rows, [0, 1] * 4)
    config = {"policy": {"slices": 1}, "learner": [{"name": "north", "functions": ["a"]}]}
    sites = covey.Network(config, functions={"a": model}, dimension=1)
    answers = sites["north"].predict_batch(rows, CONTEXTS)

    sites["north"].learn_batch(tickets(answers)[2:], [0, 1, 0, 1, 0, 0])

    assert lessons == [(6, [0, 1, 0, 1, 0, 0])]


def test_if_a_function_fails_to_learn_the_batch_is_rejected_and_a_retry_teaches_once() -> None:
    lessons: list[tuple[str, object]] = []
    is_broken = [True]

    def refuse(row: object, label: object) -> None:
        if is_broken[0]:
            raise ValueError("not today")
        lessons.append(("d", row))

    sites = network(
        {
            "c": (lambda row: 1, lambda row, label: lessons.append(("c", row))),
            "d": (lambda row: 1, refuse),
        }
    )
    answers = sites["south"].predict_batch(["x", "y"], CONTEXTS[:2])
    before = counters(sites)

    with pytest.raises(FunctionError, match="function 'd' of learner 'south' raised ValueError"):
        sites["south"].learn_batch(tickets(answers), [1, 1])
    assert counters(sites) == before
    is_broken[0] = False
    assert all(s.is_new for s in sites["south"].learn_batch(tickets(answers), [1, 1]))
    assert lessons == [("c", "x"), ("d", "y")]


def test_a_function_trained_in_one_call_is_not_trained_again() -> None:
    lessons = []
    is_broken = [True]

    class Model(GaussianNB):
        def partial_fit(self, rows: Any, labels: Any, classes: Any = None) -> "Model":
            lessons.append(len(rows))
            return self

    def refuse(row: object, label: object) -> None:
        if is_broken[0]:
            raise ValueError("not today")

    model = Model().fit([[0.0, 0.0], [1.0, 1.0]], [0, 1])
    south = network({"c": model, "d": (lambda row: 1, refuse)})["south"]
    answers = south.predict_batch(ROWS, CONTEXTS)
    with pytest.raises(FunctionError, match="function 'd'"):
        south.learn_batch(tickets(answers), [1] * 8)
    is_broken[0] = False

    south.learn_batch(tickets(answers), [1] * 8)

    assert lessons == [4]  # of the eight rows; a first batch spreads them over both functions


def test_if_a_peers_function_fails_to_learn_the_batch_is_rejected_everywhere() -> None:
    def refuse(row: object, label: object) -> None:
        raise ValueError("never")

    sites = network({"d": (lambda row: 1, refuse)}, train={"scale": 3.0, "power": 0.0})
    answers = sites["north"].predict_batch(ROWS, CONTEXTS)
    before = counters(sites)

    with pytest.raises(FunctionError, match="function 'd' of learner 'south' raised ValueError"):
        sites["north"].learn_batch(tickets(answers), [1] * 8)
    assert counters(sites) == before
