"""A network that votes: tickets, labels, failures and contexts of its learners."""

from typing import Any

import pytest

import covey
from covey.config import load
from covey.errors import ConfigError, ConflictingLabel, DataError, FunctionError, UnknownTicket

LEARNERS = [{"name": name, "functions": [name[0]]} for name in ("north", "south", "west")]


def fail(x: Any) -> int:
    raise ValueError("no")


def network(rule: str = "majority", wait: int = 5, **functions: Any) -> covey.Network:
    config = {
        "policy": {"label-wait": wait},
        "ensemble": {"update": rule, "base": 0},
        "learner": LEARNERS,
    }
    given = {"n": lambda x: 0, "s": lambda x: 1, "w": lambda x: 1, **functions}
    return covey.Network(config, functions=given, dimension=1)


def test_a_label_counts_once_and_another_one_is_refused() -> None:
    ensemble = network().ensemble
    vote = ensemble.predict("mail", (0.3,))

    first, again = (ensemble.learn(vote.ticket, 0) for _ in range(2))

    assert (vote.label, vote.votes) == (1, {"north": 0, "south": 1, "west": 1})
    assert (first.is_new, first.is_right, again.is_new) == (True, False, False)
    assert ensemble.weights() == {"north": 0.5, "south": 0.25, "west": 0.25}
    with pytest.raises(ConflictingLabel):
        ensemble.learn(vote.ticket, 1)


def test_a_ticket_expires_and_one_that_was_never_issued_is_unknown() -> None:
    ensemble = network(wait=2).ensemble
    tickets = [ensemble.predict("mail", (0.3,)).ticket for _ in range(4)]

    assert ensemble.learn(tickets[1], 0).is_new
    for ticket in (tickets[0], 99, "x"):
        with pytest.raises(UnknownTicket):
            ensemble.learn(ticket, 0)  # type: ignore[arg-type]


def test_a_learner_whose_function_fails_does_not_vote_and_keeps_its_weight() -> None:
    voting = network(w=fail)
    vote = voting.ensemble.predict("mail", (0.3,))
    voting.ensemble.learn(vote.ticket, 0)

    weights = voting.ensemble.weights()
    assert set(vote.votes) == {"north", "south"}
    assert weights["west"] == weights["north"] > weights["south"]
    with pytest.raises(FunctionError):
        network(n=fail, s=fail, w=fail).ensemble.predict("mail", (0.3,))


def test_a_cost_of_no_learner_is_refused() -> None:
    ensemble = network().ensemble
    vote = ensemble.predict("mail", (0.3,))

    with pytest.raises(DataError, match="no learner has the cost column 'toll'"):
        ensemble.learn(vote.ticket, 1, {"toll": 0.5})


def test_numbers_are_not_voted_on() -> None:
    config = {"data": {"loss": {"kind": "squared", "bound": 1.0}}, "ensemble": {"base": 0}}

    with pytest.raises(ConfigError, match="votes for classes, .*loss of numbers"):
        load({**config, "learner": LEARNERS})
