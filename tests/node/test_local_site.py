"""Functions are taught by the labels of what they answered; a busy peer may answer late."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import covey
from covey.errors import ConflictingLabel, FunctionError, UnknownTicket
from covey.functions.function import Later, frozen
from covey.network.local_site import LocalSite
from support.snapshots import snapshot_of

ONCE = {"scale": 0, "power": 0}  # an arm is known well enough with its first label
CONFIG: dict[str, Any] = {
    "policy": {"preset": "cos", "slices": 1, "explore": ONCE, "explore-peers": ONCE, "train": ONCE},
    "learner": [
        {"name": "north", "functions": ["guess", "other"], "peers": {"south": 0.2}},
        {"name": "south", "functions": ["sign"], "peers": {}},
    ],
}


class Pupil:
    """Answers 1, and notes its lessons; fails while it is told to."""

    def __init__(self) -> None:
        self.lessons: list[tuple[object, object]] = []
        self.is_refusing = False

    def predict(self, instance: object) -> int:
        return 1

    def learn(self, instance: object, label: object) -> None:
        if self.is_refusing:
            raise ValueError("not today")
        self.lessons.append((instance, label))


def network(wait: Callable[[Later], object] | None = None, **functions: object) -> covey.Network:
    given: dict[str, Any] = {"guess": lambda x: 0, "other": lambda x: 0, "sign": lambda x: 1}
    return covey.Network(CONFIG, functions={**given, **functions}, dimension=1, wait=wait)


def counters(sites: covey.Network) -> list[object]:
    return [snapshot_of(site.learner).cells for site in sites.values()]


def go_on_until_south_is_asked(north: LocalSite) -> None:
    """Give each own function of north a label: the first one is right."""
    for label in (0, 1):
        north.learn(north.predict("early", (0.5,)).ticket, label)


# -- lessons ----------------------------------------------------------------------------------


def test_a_function_is_taught_once_the_instance_that_it_answered_with_its_true_label() -> None:
    pupil = Pupil()
    north = network(guess=pupil)["north"]
    ticket = north.predict("mail", (0.5,)).ticket

    before = list(pupil.lessons)
    for _ in range(2):
        north.learn(ticket, 0)

    assert (before, pupil.lessons) == ([], [("mail", 0)])


def test_a_label_that_contradicts_or_comes_too_late_does_not_teach() -> None:
    pupil = Pupil()
    config = {**CONFIG, "policy": {**CONFIG["policy"], "label-wait": 0}}
    functions = {"guess": pupil, "other": Pupil(), "sign": Pupil()}
    north = covey.Network(config, functions=functions, dimension=1)["north"]
    first = north.predict("x", (0.5,)).ticket
    second = north.predict("y", (0.5,)).ticket
    north.learn(second, 1)

    with pytest.raises(UnknownTicket):
        north.learn(first, 1)
    with pytest.raises(ConflictingLabel):
        north.learn(second, 0)
    assert pupil.lessons == [("y", 1)]


def test_a_frozen_function_is_not_taught() -> None:
    pupil = Pupil()
    north = network(guess=frozen(pupil))["north"]

    north.learn(north.predict("mail", (0.5,)).ticket, 0)

    assert pupil.lessons == []


def test_a_network_logs_that_a_function_which_failed_three_times_is_trained_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pupil = Pupil()
    north = network(guess=pupil)["north"]
    ticket, pupil.is_refusing = north.predict("mail", (0.5,)).ticket, True

    for _ in range(3):
        assert caplog.messages == []
        with pytest.raises(FunctionError, match="not today"):
            north.learn(ticket, 0)
    north.learn(ticket, 0)

    (line,) = caplog.messages
    assert "raised ValueError" in line
    assert "training failed 3 times in a row and stops until the next start" in line


def test_an_instance_is_held_no_longer_than_its_label_is_waited_for() -> None:
    config = {**CONFIG, "policy": {**CONFIG["policy"], "label-wait": 5}}
    functions = {"guess": Pupil(), "other": Pupil(), "sign": Pupil()}
    north = covey.Network(config, functions=functions, dimension=1)["north"]

    for k in range(40):
        north.predict(k, (0.5,))

    assert [request.training[row] for request, row in north.state.open.pending()] == [
        ("guess", k) for k in range(34, 40)
    ]


@pytest.mark.parametrize(
    ("name", "owner", "goes_on"), [("guess", "north", False), ("sign", "south", True)]
)
def test_a_function_that_cannot_learn_is_named_and_the_label_can_be_sent_again(
    name: str, owner: str, goes_on: bool
) -> None:
    pupil = Pupil()
    sites = network(**{name: pupil})
    north = sites["north"]
    if goes_on:
        go_on_until_south_is_asked(north)
    ticket = north.predict("mail", (0.5,)).ticket
    before = counters(sites)
    pupil.is_refusing = True

    with pytest.raises(
        FunctionError, match=f"function '{name}' of learner '{owner}' raised ValueError in training"
    ):
        north.learn(ticket, 0)
    assert counters(sites) == before
    assert north.state.open.pending_rows == 1

    pupil.is_refusing = False
    assert north.learn(ticket, 0).is_new
    assert pupil.lessons == [("mail", 0)]


# -- a busy peer --------------------------------------------------------------------------------


def asked_while_busy(
    wait: Callable[[Later], object] | None = None, **functions: object
) -> tuple[covey.Network, Any, "Future[object]"]:
    """Return a network, an answer that north got while south was busy, and south's handle."""
    future: Future[object] = Future()
    sites = network(wait, **{"sign": lambda x: future, **functions})
    go_on_until_south_is_asked(sites["north"])
    return sites, sites["north"].predict("mail", (0.5,)), future


def test_a_learner_that_asks_a_busy_peer_falls_back_to_its_own_best_function() -> None:
    _, answer, _ = asked_while_busy(other=lambda x: "never")

    assert (answer.label, answer.function) == (0, "guess")
    assert (answer.phase, answer.arm, answer.price) == ("train", "south", 0.2)


def test_the_own_best_is_the_most_accurate_less_its_cost() -> None:
    learners = [{**CONFIG["learner"][0], "function-costs": [0.5, 0.0]}, CONFIG["learner"][1]]
    functions = {"guess": lambda x: 0, "other": lambda x: 0, "sign": lambda x: Future()}
    north = covey.Network({**CONFIG, "learner": learners}, functions=functions, dimension=1)[
        "north"
    ]
    for _ in range(2):
        north.learn(north.predict("early", (0.5,)).ticket, 0)

    # Both have been right once.
    assert north.predict("mail", (0.5,)).function == "other"


def test_an_answer_that_comes_within_the_wait_is_the_peers() -> None:
    _, answer, _ = asked_while_busy(lambda later: later.set_result(5))  # type: ignore[attr-defined]

    assert (answer.label, answer.function) == (5, "sign")


def test_a_late_answer_that_came_before_the_label_joins_it_at_both() -> None:
    sites, answer, future = asked_while_busy()
    future.set_result(1)

    settlement = sites["north"].learn(answer.ticket, 1)

    assert (settlement.is_new, settlement.is_right) == (True, True)
    # since, arrivals, own arrivals; labels and right of `sign`
    assert snapshot_of(sites["south"].learner).cells == [("g1:0", [3, 1, 0, 1, 1])]


def test_a_label_that_comes_before_the_late_answer_is_kept_for_it() -> None:
    sites, answer, future = asked_while_busy()
    north = sites["north"]
    before = counters(sites)

    kept = north.learn(answer.ticket, 1)
    still_nothing = (north.join(), counters(sites))
    future.set_result(0)
    joined = north.join()

    assert (kept.is_kept, kept.is_new) == (True, False)
    assert still_nothing == ([], before)
    assert [(s.is_new, s.is_right) for s in joined] == [(True, False)]
    assert snapshot_of(sites["south"].learner).cells == [("g1:0", [3, 1, 0, 1, 0])]
    assert north.join() == []


def test_another_label_than_the_kept_one_is_a_contradiction() -> None:
    sites, answer, _ = asked_while_busy()
    sites["north"].learn(answer.ticket, 1)

    with pytest.raises(
        ConflictingLabel, match="it contradicts 1, which is kept until function 'sign'"
    ):
        sites["north"].learn(answer.ticket, 0)


def test_a_late_answer_that_fails_is_named_and_moves_nothing() -> None:
    sites, answer, future = asked_while_busy()
    sites["north"].learn(answer.ticket, 1)
    before = counters(sites)
    future.set_exception(OSError("gone"))

    with pytest.raises(FunctionError, match="function 'sign' of learner 'south' raised OSError"):
        sites["north"].join()
    assert counters(sites) == before
    assert sites["north"].join() == []


def test_if_no_arm_can_answer_all_counters_are_as_before() -> None:
    is_broken = [False]
    future: Future[object] = Future()
    sites = network(sign=lambda x: future, guess=lambda x: None if is_broken[0] else 0)
    go_on_until_south_is_asked(sites["north"])
    is_broken[0] = True
    before = counters(sites)[0]

    with pytest.raises(FunctionError, match="function 'guess' of learner 'north' answered None"):
        sites["north"].predict("mail", (0.5,))
    # The cell was asked about, so south knows it.
    assert counters(sites) == [before, [("g1:0", [3, 0, 0, 0, 0])]]
    assert sites["south"].state.open.pending_rows == 0


def test_the_own_function_that_stepped_in_is_taught_too() -> None:
    pupil, stand_in = Pupil(), Pupil()
    future: Future[object] = Future()
    pupil.predict = lambda instance: future  # type: ignore[assignment, method-assign]
    sites, answer, _ = asked_while_busy(sign=pupil, guess=stand_in)
    future.set_result(1)

    sites["north"].learn(answer.ticket, 1)

    assert (pupil.lessons, stand_in.lessons[1:]) == ([("mail", 1)], [("mail", 1)])


def test_a_site_waits_for_its_own_function_which_no_peer_can_replace() -> None:
    future: Future[object] = Future()
    future.set_result(4)
    south = network(sign=lambda x: future)["south"]

    assert south.predict("mail", (0.5,)).label == 4
