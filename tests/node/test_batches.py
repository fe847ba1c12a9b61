"""A batch decides as its rows would one by one, and calls each function once."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB

import covey
from covey.bandit.policies import PRESETS
from covey.errors import DataError, FunctionError, UnknownTicket
from support.batched import CONTEXTS, ONCE, ROWS, Counted, counters, network, tickets
from support.presets import INDEXED, fitting
from support.snapshots import snapshot_of


def test_every_function_and_every_peer_is_called_once_with_its_rows() -> None:
    functions = {name: Counted() for name in "abcd"}
    sites = network(functions, train={"scale": 3.0, "power": 0.0})

    answers = sites["north"].predict_batch(ROWS, CONTEXTS)

    shares = Counter(answer.function for answer in answers)
    assert {name: one.sizes for name, one in functions.items()} == {
        name: [shares[name]] for name in "abcd"
    }
    assert Counter(answer.arm for answer in answers)["south"] > 1


@pytest.mark.parametrize("pending", [False, True])
def test_a_batch_spreads_its_exploration_for_every_setting_of_pending(pending: bool) -> None:
    sites = network(pending=pending, train={"scale": 0.0, "power": 0.0})

    answers = sites["south"].predict_batch(ROWS, CONTEXTS)

    assert [answer.arm for answer in answers if answer.phase == "explore"] == 4 * ["c", "d"]


def test_a_label_from_before_the_first_batch_is_settled_once_after_it() -> None:
    south = network()["south"]
    early = south.predict([0.0], (0.5,))
    batch = south.predict_batch(ROWS[:2], CONTEXTS[:2])

    south.learn(early.ticket, 1)
    south.learn_batch(tickets(batch), [1, 0])

    # since, arrivals, own arrivals; labels of c, d; right of c, d
    assert snapshot_of(south.learner).cells == [("g1:0", [1, 3, 3, 2, 1, 1, 1])]


def test_an_empty_batch_has_no_answers() -> None:
    sites = network()

    assert sites["north"].predict_batch([], []) == []
    assert sites["north"].learn_batch([], []) == []
    assert sites["north"].learner.slot == 0


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
        "preset": draw(st.sampled_from(["cos", "dcza", *sorted(PRESETS)])),
        "slices": draw(st.integers(1, 3)),
        "split-power": draw(st.sampled_from([1.0, 3.0])),
        "explore": draw(curves),
        "train": draw(curves),
        "explore-peers": draw(curves),
        "reading": draw(st.sampled_from(["spec", "paper"])),
        "count": draw(st.sampled_from(["arrivals", "labelled"])),
        "batch": "slots",
        "inherit": draw(st.booleans()),
        "forget": draw(st.sampled_from([{}, {"window": 5}, {"discount": 0.9}])),
        "pending": True,
    }
    # With `auto`, peers hear of an alarm after all labels of a batch.
    alarms = [0.0] if policy["preset"] == "auto" else [0.0, 1.0, 9.0]
    policy["alarm"] = draw(st.sampled_from(alarms))
    if policy["preset"] in INDEXED and draw(st.booleans()):
        policy.pop("slices")
    batches = draw(
        st.lists(
            st.tuples(st.sampled_from(names), st.sampled_from([0, 1, 7, 40])),
            min_size=1,
            max_size=6,
        )
    )
    return {"policy": fitting(policy), "learner": learners}, batches, draw(st.integers(0, 2**32))


@settings(max_examples=150)
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
    batch_policy = {**config["policy"], "pending": pending}
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

    # A learner that counts pending labels later knows less of how many of them came.
    assert [snapshot_of(site.learner).cells for site in ours.values()] == [
        snapshot_of(one.learner).cells for one in plain.values()
    ]


# -- labels of a batch are taken all or none, and no function learns twice ------------------------


def test_a_duplicate_ticket_is_settled_once() -> None:
    sites = network()
    sites["north"].predict_batch(ROWS, CONTEXTS)

    settlements = sites["north"].learn_batch([1, 2, 1], [1, 0, 1])

    assert [(s.is_new, s.is_right) for s in settlements] == [
        (True, True),
        (True, False),
        (False, True),
    ]


def test_a_function_learns_all_its_rows_in_one_call() -> None:
    lessons = []

    class Model(GaussianNB):
        def partial_fit(self, rows: Any, labels: Any, classes: Any = None) -> "Model":
            lessons.append((len(rows), list(labels)))
            return self

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(8, 2))
    model = Model().fit(rows, [0, 1] * 4)
    config = {"policy": {}, "learner": [{"name": "north", "functions": ["a"]}]}
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


def test_if_a_peers_function_fails_to_learn_the_batch_is_rejected_everywhere() -> None:
    def refuse(row: object, label: object) -> None:
        raise ValueError("never")

    sites = network({"d": (lambda row: 1, refuse)}, train={"scale": 3.0, "power": 0.0})
    answers = sites["north"].predict_batch(ROWS, CONTEXTS)
    before = counters(sites)

    with pytest.raises(FunctionError, match="function 'd' of learner 'south' raised ValueError"):
        sites["north"].learn_batch(tickets(answers), [1] * 8)
    assert counters(sites) == before


# -- a batch that does not fit, or that a function fails, is refused as a whole and moves nothing -


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
    keys = {"reading": "paper", "batch": "slots"}
    policy = {"preset": preset, "split-power": 2.0, "train": curve, **keys}
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
    policy = {"preset": "cos", "slices": 1, "explore": ONCE, "train": ONCE}
    sites = covey.Network({"policy": policy, "learner": learners}, functions=functions, dimension=1)

    with pytest.raises(FunctionError, match="function 'c' of learner 'west' raised"):
        sites["north"].predict_batch(ROWS, CONTEXTS)
    assert len(functions["b"].sizes) == 1
    assert _without_empty(counters(sites)) == {"north": [], "south": [], "west": []}
    functions["c"].answer = lambda rows: [1] * len(rows)
    answers = sites["north"].predict_batch(ROWS, CONTEXTS)
    assert tickets(answers) == [1, 2, 3, 4, 5, 6, 7, 8]
    asked = Counter(answer.arm for answer in answers)["south"]
    assert sites["south"].state.open.pending_rows == asked
