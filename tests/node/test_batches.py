"""A batch decides as its rows would one by one, and calls each function once."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import covey
from covey.bandit.policies import ALARMED, INDEXED, PRESETS
from support.batched import CONTEXTS, ROWS, Counted, network, tickets


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
    assert [request.slot_of(row) for request, row in sites["north"].state.pending()] == [
        5,
        6,
        7,
        8,
        9,
        10,
        11,
        12,
    ]
    assert sites["north"].learner.slot == 12


def test_a_slot_that_has_passed_is_taken_as_the_latest() -> None:
    south = network()["south"]
    south.predict_batch(ROWS, CONTEXTS, slot=5)

    south.predict([0.0], (0.5,), slot=3)
    south.predict_batch(ROWS[:2], CONTEXTS[:2], slot=3)

    assert [request.slot_of(row) for request, row in south.state.pending()][-3:] == [12, 12, 13]


@pytest.mark.parametrize("pending", [False, True])
def test_a_batch_spreads_its_exploration_for_every_setting_of_pending(pending: bool) -> None:
    sites = network(pending=pending, train={"scale": 0.0, "power": 0.0})

    answers = sites["south"].predict_batch(ROWS, CONTEXTS)

    assert [answer.arm for answer in answers if answer.phase == "explore"] == 4 * ["c", "d"]


def test_a_learner_without_batches_does_not_count_pending_labels() -> None:
    south = network()["south"]

    arms = [south.predict([0.0], (0.5,)).arm for _ in range(3)]

    assert arms == ["c", "c", "c"]


def test_labels_pending_before_the_first_batch_count_in_it() -> None:
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


def test_an_empty_batch_has_no_answers() -> None:
    sites = network()

    assert sites["north"].predict_batch([], []) == []
    assert sites["north"].learn_batch([], []) == []
    assert sites["north"].learner.slot == 0


def test_contexts_can_be_left_out_where_there_are_none() -> None:
    config = {"learner": [{"name": "north", "functions": ["a"], "peers": {}}]}
    sites = covey.Network(config, functions={"a": Counted()}, dimension=0)

    assert len(sites["north"].predict_batch(ROWS)) == 8


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
        "reading": {
            "order": draw(st.sampled_from(["own-train-peers", "train-own-peers"])),
            "helper": draw(st.sampled_from(["explore-first", "greedy"])),
            "count": draw(st.sampled_from(["arrivals", "labelled", "uses"])),
            "ties": draw(st.sampled_from(["lowest", "random"])),
        },
        "inherit": draw(st.booleans()),
        "forget": draw(st.sampled_from([{}, {"window": 5}, {"discount": 0.9}])),
        "pending": True,
    }
    if policy["preset"] in INDEXED:
        policy.pop("forget")
        policy["alarm"] = draw(st.sampled_from([0.0, 1.0, 9.0]))
        if policy["preset"] not in ALARMED:
            policy.pop("alarm")
        if draw(st.booleans()):
            policy.pop("slices")
    batches = draw(
        st.lists(
            st.tuples(st.sampled_from(names), st.sampled_from([0, 1, 7, 40])),
            min_size=1,
            max_size=6,
        )
    )
    return {"policy": policy, "learner": learners}, batches, draw(st.integers(0, 2**32))


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
    reading = config["policy"]["reading"]
    batch_policy = {**config["policy"], "pending": pending or reading["ties"] == "random"}
    ours = covey.Network({**config, "policy": batch_policy}, functions=functions, dimension=2)
    plain = covey.Network(config, functions=functions, dimension=2)

    for site, size in batches:
        rows = rng.integers(0, 400, size).tolist()
        contexts = rng.random((size, 2)) ** 2
        labels = rng.integers(0, 2, size)
        answers = ours[site].predict_batch(rows, contexts)
        expected = map(plain[site].predict, rows, contexts)
        # A row of a batch says how unsure the peer was, too; what comes of it is compared below.
        assert answers == list(expected)
        # Not all labels come, and not in order.
        chosen = rng.permutation(size)[: size * 3 // 4].tolist()
        settled = ours[site].learn_batch([answers[k].ticket for k in chosen], labels[chosen])
        expected = {k: plain[site].learn(answers[k].ticket, labels[k]) for k in chosen}
        assert dict(zip(chosen, settled, strict=True)) == expected

    # A learner that counts pending labels later knows less of how many of them came.
    assert [one.learner.snapshot().cells for one in ours.values()] == [
        one.learner.snapshot().cells for one in plain.values()
    ]
