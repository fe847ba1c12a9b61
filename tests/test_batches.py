"""A batch decides as its rows would one by one, calls everybody once, and fails as a whole."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB

import covey
from covey.errors import (
    ConflictingLabel,
    ContextError,
    DataError,
    FunctionError,
    UnknownTicket,
)
from covey.member import Answer

ONCE = {"scale": 0.0, "power": 0.0}  # an arm is known well enough with its first label
TWO_SITES = [
    {"name": "north", "functions": ["a", "b"], "peers": {"south": 0.1}},
    {"name": "south", "functions": ["c", "d"], "peers": {}},
]


class Counted:
    """Answers a constant for a batch, and remembers the sizes of what it was called with."""

    def __init__(self, label: object = 1) -> None:
        self.label = label
        self.sizes: list[int] = []

    def predict(self, rows: Sequence[object]) -> list[object]:
        self.sizes.append(len(rows))
        return [self.label] * len(rows)


def network(functions: dict[str, Any] | None = None, **policy: object) -> covey.Network:
    config = {"policy": {"slices": 1, "explore": ONCE, **policy}, "learner": TWO_SITES}
    defaults = {name: Counted() for name in "abcd"}
    return covey.Network(config, functions={**defaults, **(functions or {})}, dimension=1)


def tickets(answers: list[Answer]) -> list[int]:
    return [answer.ticket for answer in answers]


def counters(sites: covey.Network) -> dict[str, Any]:
    return {name: site.learner.snapshot().cells for name, site in sites.items()}


CONTEXTS = [(0.5,)] * 8
ROWS = np.zeros((8, 2))


def test_every_function_and_every_peer_is_called_once_with_its_rows() -> None:
    functions = {name: Counted() for name in "abcd"}
    sites = network(functions, train={"scale": 3.0, "power": 0.0})

    answers = sites["north"].predict_batch(ROWS, CONTEXTS)

    shares = Counter(answer.function for answer in answers)
    assert {name: one.sizes for name, one in functions.items()} == {
        name: [shares[name]] for name in "abcd"
    }
    assert Counter(answer.arm for answer in answers)["south"] > 1


def test_tickets_come_in_order_and_slots_are_consecutive() -> None:
    sites = network()

    answers = sites["north"].predict_batch(ROWS, CONTEXTS, slot=5)

    assert tickets(answers) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [d.slot for d in sites["north"].learner.waiting()] == [5, 6, 7, 8, 9, 10, 11, 12]
    assert sites["north"].learner.slot == 12


def test_a_slot_that_has_passed_is_taken_as_the_latest() -> None:
    south = network()["south"]
    south.predict_batch(ROWS, CONTEXTS, slot=5)

    south.predict([0.0], (0.5,), slot=3)
    south.predict_batch(ROWS[:2], CONTEXTS[:2], slot=3)

    assert [decision.slot for decision in south.learner.waiting()][-3:] == [12, 12, 13]


@pytest.mark.parametrize("pending", [False, True])
def test_a_batch_spreads_what_it_explores_whatever_the_policy_says(pending: bool) -> None:
    sites = network(pending=pending, train={"scale": 0.0, "power": 0.0})

    answers = sites["south"].predict_batch(ROWS, CONTEXTS)

    assert [answer.arm for answer in answers if answer.phase == "explore"] == ["c", "d"]


def test_a_learner_that_takes_no_batch_does_not_count_labels_under_way() -> None:
    south = network()["south"]

    arms = [south.predict([0.0], (0.5,)).arm for _ in range(3)]

    assert arms == ["c", "c", "c"]


def test_labels_under_way_before_the_first_batch_count_in_it() -> None:
    south = network()["south"]
    early = south.predict([0.0], (0.5,))

    answers = south.predict_batch(ROWS[:2], CONTEXTS[:2])

    assert (early.arm, [answer.arm for answer in answers]) == ("c", ["d", "c"])


def test_a_label_from_before_the_first_batch_is_settled_once_after_it() -> None:
    south = network()["south"]
    early = south.predict([0.0], (0.5,))
    batch = south.predict_batch(ROWS[:2], CONTEXTS[:2])

    south.learn(early.ticket, 1)
    south.learn_batch(tickets(batch), [1, 0])

    # since, arrivals, own arrivals; labels of c, d; right of c, d
    assert south.learner.snapshot().cells == [("g1:0", [1, 3, 3, 2, 1, 1, 1])]


def test_a_peer_gets_its_labels_and_its_functions_move() -> None:
    sites = network(train={"scale": 3.0, "power": 0.0})
    answers = sites["north"].predict_batch(ROWS, CONTEXTS)
    asked = sum(answer.arm == "south" for answer in answers)

    sites["north"].learn_batch(tickets(answers), np.ones(8, int))

    _, known = sites["south"].learner.snapshot().cells[0]
    assert known[1] == asked
    assert known[3] + known[4] == asked


def test_plain_callables_are_called_row_by_row() -> None:
    seen = []
    sites = network({"c": lambda row: seen.append(row) or 1, "d": lambda row: 1})

    sites["south"].predict_batch(["x", "yy", "zzz"], CONTEXTS[:3])

    assert seen == ["x", "zzz"]


def test_no_rows_are_no_answers() -> None:
    sites = network()

    assert sites["north"].predict_batch([], []) == []
    assert sites["north"].learn_batch([], []) == []
    assert sites["north"].learner.slot == 0


def test_contexts_can_be_left_out_where_there_are_none() -> None:
    config = {"learner": [{"name": "north", "functions": ["a"], "peers": {}}]}
    sites = covey.Network(config, functions={"a": Counted()}, dimension=0)

    assert len(sites["north"].predict_batch(ROWS)) == 8


# -- what does not fit ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instances", "contexts", "message"),
    [
        ([[1, 2], [1]], CONTEXTS[:2], "row 1 of the batch has 1 values and row 0 has 2 values"),
        ([[1], 3], CONTEXTS[:2], "row 1 of the batch has no values to count and row 0 has 1"),
        (ROWS, CONTEXTS[:3], "the batch has 8 instances and 3 contexts"),
        ("spam", CONTEXTS[:4], "the instances of a batch are a str; give a list or an array"),
        (iter([1]), CONTEXTS[:1], "the instances of a batch are a list_iterator"),
        (ROWS[:2], [(0.5,), (1.5,)], "row 1 of the batch: context coordinate 0 is 1.5"),
        (ROWS[:2], [(0.5,), ()], "row 1 of the batch: the context has 0 coordinates"),
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused_and_moves_nothing(
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

    with pytest.raises(DataError, match="the batch has 8 rows, but learner 'north' waits 6 slots"):
        sites["north"].predict_batch(ROWS, CONTEXTS)
    assert len(sites["north"].predict_batch(ROWS[:7], CONTEXTS[:7])) == 7


def test_every_label_of_a_batch_as_long_as_the_wait_is_taken_and_then_no_more() -> None:
    south = network(**{"label-wait": 7})["south"]
    first = south.predict_batch(ROWS, CONTEXTS)
    south.learn_batch(tickets(first)[:1], [1])

    south.predict_batch(ROWS[:1], CONTEXTS[:1])

    assert south.learn(first[1].ticket, 1).is_new
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
        (lambda rows: [1] * (len(rows) + 1), r"gave \d+ labels for \d+ rows"),
        (lambda rows: 1 / 0, "raised ZeroDivisionError"),
        (lambda rows: [None] * len(rows), "answered None, which is not a label"),
        (lambda rows: np.zeros((len(rows), 2)), "answered a list, which is not a label"),
        (lambda rows: 1.5, "raised TypeError"),
        (lambda rows: np.float64(1.5), "raised TypeError"),
        (lambda rows: "x" * len(rows), "gave one text for"),
    ],
)
def test_a_function_that_fails_is_named_and_the_whole_batch_is_taken_back(
    preset: str, name: str, answer: Any, message: str
) -> None:
    """Both are the most accurate of their owner by then, and north still trains south."""
    curve = {"scale": 0.5, "power": 0.3}
    policy = {"preset": preset, "split-power": 2.0, "order": "train-own-peers", "train": curve}
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


def test_a_peer_that_has_answered_takes_it_back_if_another_peer_fails() -> None:
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
    assert sites["south"].learner.open_tickets == asked


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


# -- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_tickets", "labels", "error", "message"),
    [
        ([1, 2], [1], DataError, "the batch has 2 tickets and 1 labels"),
        ([1, 2], [1, None], DataError, "label 1 of the batch is None, which is not a label"),
        ([1, 99], [1, 1], UnknownTicket, "does not know ticket 99"),
        ([1, 2, 1], [1, 1, 0], ConflictingLabel, "ticket 1 stands twice in the batch"),
        ([1, 8], [1, 0], ConflictingLabel, "ticket 8 of learner 'north' was settled with 1"),
    ],
)
def test_labels_that_do_not_fit_are_refused_and_none_is_taken(
    given_tickets: list[int], labels: list[object], error: type[Exception], message: str
) -> None:
    sites = network()
    sites["north"].predict_batch(ROWS, CONTEXTS)
    sites["north"].learn(8, 1)
    before = counters(sites)

    with pytest.raises(error, match=message):
        sites["north"].learn_batch(given_tickets, labels)
    assert counters(sites) == before


def test_a_ticket_that_stands_twice_is_settled_once() -> None:
    sites = network()
    sites["north"].predict_batch(ROWS, CONTEXTS)

    settlements = sites["north"].learn_batch([1, 2, 1], [1, 0, 1])

    assert [(s.is_new, s.is_right) for s in settlements] == [
        (True, True),
        (True, False),
        (False, True),
    ]


def test_a_batch_of_labels_may_hold_some_that_were_settled_before() -> None:
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


def test_a_function_is_taught_all_its_rows_in_one_call() -> None:
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


def test_if_a_function_cannot_learn_no_label_is_taken_and_nobody_is_taught_twice() -> None:
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


def test_who_was_taught_in_one_call_is_not_taught_again_either() -> None:
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

    assert lessons == [7]


def test_if_a_peers_function_cannot_learn_no_label_is_taken_anywhere() -> None:
    def refuse(row: object, label: object) -> None:
        raise ValueError("never")

    sites = network({"d": (lambda row: 1, refuse)}, train={"scale": 3.0, "power": 0.0})
    answers = sites["north"].predict_batch(ROWS, CONTEXTS)
    before = counters(sites)

    with pytest.raises(FunctionError, match="function 'd' of learner 'south' raised ValueError"):
        sites["north"].learn_batch(tickets(answers), [1] * 8)
    assert counters(sites) == before


# -- a batch equals one at a time -------------------------------------------------------------


@st.composite
def plays(draw: st.DrawFn) -> tuple[dict[str, Any], list[tuple[str, int]], int]:
    """A network of up to three sites, batches of its sites, and a seed."""
    count = draw(st.integers(1, 3))
    names = [f"site{k}" for k in range(count)]
    prices = st.sampled_from([0.0, 0.2])
    learners = [
        {
            "name": name,
            "functions": [f"{name}-{k}" for k in range(draw(st.integers(1, 3)))],
            "peers": {peer: draw(prices) for peer in names if peer != name},
        }
        for name in names
    ]
    curves = st.fixed_dictionaries(
        {"scale": st.sampled_from([0.0, 0.3, 1.0]), "power": st.sampled_from([0.0, 0.3])}
    )
    policy = {
        "preset": draw(st.sampled_from(["cos", "dcza"])),
        "slices": draw(st.integers(1, 3)),
        "split-power": draw(st.sampled_from([1.0, 3.0])),
        "explore": draw(curves),
        "train": draw(curves),
        "explore-peers": draw(curves),
        "order": draw(st.sampled_from(["own-train-peers", "train-own-peers"])),
        "helper": draw(st.sampled_from(["explore-first", "greedy"])),
        "count": draw(st.sampled_from(["arrivals", "labelled", "uses"])),
        "ties": draw(st.sampled_from(["lowest", "random"])),
        "inherit": draw(st.booleans()),
        "forget": draw(st.sampled_from([{}, {"window": 5}, {"discount": 0.9}])),
        "pending": True,
    }
    batches = draw(
        st.lists(
            st.tuples(st.sampled_from(names), st.sampled_from([0, 1, 7, 40])),
            min_size=1,
            max_size=6,
        )
    )
    return {"policy": policy, "learner": learners}, batches, draw(st.integers(0, 2**32))


@settings(max_examples=150, deadline=None)
@given(play=plays(), pending=st.booleans())
def test_a_batch_equals_one_at_a_time_when_labels_come_after_the_batch(
    play: tuple[dict[str, Any], list[tuple[str, int]], int], pending: bool
) -> None:
    """One at a time needs `pending` for that, a batch does not; no wait for labels ends here."""
    config, batches, seed = play
    rng = np.random.default_rng(seed)
    names = [name for learner in config["learner"] for name in learner["functions"]]
    said = rng.integers(0, 2, (len(names), 400))
    functions = {name: (lambda row, k=k: int(said[k, row])) for k, name in enumerate(names)}
    batch_policy = {**config["policy"], "pending": pending or config["policy"]["ties"] == "random"}
    ours = covey.Network({**config, "policy": batch_policy}, functions=functions, dimension=2)
    plain = covey.Network(config, functions=functions, dimension=2)

    for site, size in batches:
        rows = rng.integers(0, 400, size).tolist()
        contexts = rng.random((size, 2)) ** 2
        labels = rng.integers(0, 2, size)
        answers = ours[site].predict_batch(rows, contexts)
        expected = map(plain[site].predict, rows, contexts)
        assert answers == list(expected)
        # Not all labels come, and not in order.
        chosen = rng.permutation(size)[: size * 3 // 4].tolist()
        settled = ours[site].learn_batch([answers[k].ticket for k in chosen], labels[chosen])
        expected = {k: plain[site].learn(answers[k].ticket, labels[k]) for k in chosen}
        assert dict(zip(chosen, settled, strict=True)) == expected

    assert [one.learner.snapshot() for one in ours.values()] == [
        one.learner.snapshot() for one in plain.values()
    ]
