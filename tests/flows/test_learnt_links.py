"""Unknown costs of links: replay, network, nodes and restarted nodes learn and decide the same."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.config import load
from covey.errors import DataError
from support import virtual
from support.flow import (
    SLOTS,
)


def costs() -> dict[str, Any]:
    """Return what each link costs in each slot."""
    rng = np.random.default_rng(5)
    bounds = {"line": (0.0, 0.1), "direct": (0.1, 0.4), "back": (0.0, 0.05), "first": (0.0, 0.2)}
    return {name: rng.uniform(*pair, SLOTS).round(4) for name, pair in bounds.items()}


def chain(**more: Any) -> dict[str, Any]:
    """Return two learners, one of which asks the other over a link of unknown cost."""
    return {
        "policy": {"preset": "cos", "slices": 1, "relearn-every": 10},
        "learner": [
            {"name": "north", "functions": ["n"], **more},
            {"name": "south", "functions": ["s"]},
        ],
        "link": [{"from": "north", "to": "south", "cost-column": "line", "guess": 0.25}],
    }


FUNCTIONS = {"n": lambda x: 0, "s": lambda x: 1}


def test_a_cost_counts_once_for_the_path_on_which_the_peer_was_asked() -> None:
    network = covey.Network(chain(), functions=FUNCTIONS, dimension=0)
    north = network["north"]
    asked = []
    for slot in range(1, 41):
        answer = north.predict(slot, slot=slot)
        if answer.arm == "south":
            asked.append((slot, answer.price))
        for _ in range(2):  # the second has no effect
            north.learn(answer.ticket, 1, cost={"line": 0.5})

    assert [price for slot, price in asked if slot <= 10] == [0.25] * sum(
        slot <= 10 for slot, _ in asked
    )
    assert {price for slot, price in asked if slot > 20} == {0.5}
    assert north.learner.prices is not None
    (line,) = north.learner.prices.state().links.counted
    uses = sum(slot <= 30 for slot, _ in asked)
    assert line == ("north", "south", 0.5 * uses, uses)


def test_a_label_without_costs_teaches_nothing_of_links() -> None:
    network = covey.Network(chain(), functions=FUNCTIONS, dimension=0)
    for slot in range(1, 31):
        answer = network["north"].predict(slot, slot=slot)
        network["north"].learn(answer.ticket, 1)

    assert network["north"].learner.costs == (0.0, 0.25)


@pytest.mark.parametrize(
    ("cost", "sentence"),
    [
        ({"lime": 0.1}, r"'north' has no cost column 'lime'; did you mean 'line'\?"),
        ({"line": 1.5}, r"the cost of 'line' is 1.5; it must lie in \[0, 1\]"),
        ({"line": "dear"}, "the cost of 'line' is 'dear'"),
        (0.1, 'send costs of links by column, like {"line": 0.1}'),
    ],
)
def test_costs_that_no_link_has_are_refused_and_the_label_can_be_sent_again(
    cost: Any, sentence: str
) -> None:
    network = covey.Network(chain(), functions=FUNCTIONS, dimension=0)
    answer = network["north"].predict("x")

    with pytest.raises(DataError, match=sentence):
        network["north"].learn(answer.ticket, 1, cost=cost)
    assert network["north"].learn(answer.ticket, 1, cost={"line": 0.1}).is_new


def test_random_costs_of_arms_may_be_given_beside_those_of_links() -> None:
    config = chain(**{"cost-columns": {"south": "fee"}})
    network = covey.Network(config, functions=FUNCTIONS, dimension=0)
    north = network["north"]
    for slot in range(1, 61):
        answer = north.predict(slot, slot=slot)
        north.learn(answer.ticket, 1, cost={"line": 0.5, "fee": 0.75})

    assert north.learner.costs == (0.0, 0.5)
    assert north.predict(61, slot=61).arm == "n"  # 0.5 + 0.75 is more than a right label is worth


def test_what_would_be_decided_knows_the_prices_of_its_slot_and_changes_none() -> None:
    network = covey.Network(chain(), functions=FUNCTIONS, dimension=0)
    north = network["north"]
    for slot in range(1, 121):
        told = north.peek(slot, slot=slot)
        before = north.learner.costs
        answer = north.predict(slot, slot=slot)
        assert (told.arm, told.price) == (answer.arm, answer.price)
        assert before == north.learner.costs or (slot - 1) % 10 == 0
        north.learn(answer.ticket, 1, cost={"line": 0.5 + 0.001 * (slot % 7)})

    assert 0.5 < north.learner.costs[1] < 0.51


@pytest.mark.parametrize("changed", [{"functions": ["n", "m"]}, {"slices": 2}])
@virtual.timed
async def test_a_node_keeps_what_it_knows_of_links_when_its_file_changes(
    changed: dict[str, Any],
) -> None:
    functions = {**FUNCTIONS, "m": lambda x: 0}
    world = virtual.World(chain(), functions, dimension=1)
    for slot in range(1, 31):
        node = world.nodes["north"]
        ticket = await node.predict(slot, (0.5,), slot=slot)
        await node.learn(ticket.ticket, 1, cost={"line": 0.5})
    assert world.nodes["north"].learner.costs[-1] == 0.5
    other = chain(**{key: changed[key] for key in changed if key == "functions"})
    other["policy"] |= {key: changed[key] for key in changed if key == "slices"}
    world.crash("north")
    world.setup = load(other)
    world.boot("north")

    assert world.nodes["north"].learner.costs[-1] == 0.5
    world.setup = load({**other, "link": [{**other["link"][0], "guess": 0.125}]})
    world.crash("north")
    world.boot("north")
    assert world.nodes["north"].learner.costs[-1] == 0.5  # a guess is for links not used yet
