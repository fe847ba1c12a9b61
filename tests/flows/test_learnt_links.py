"""Unknown costs of links: replay, network, nodes and restarted nodes learn and decide the same."""

from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey.bandit.links import ChangingLinks, LivePrices, PriceState
from covey.config import load
from covey.errors import DataError
from covey.node.node import Question
from support import virtual
from support.flow import (
    NODE_SLOTS,
    SLOTS,
    Row,
    Stream,
    config_of,
    recorded_stream,
)

PRESETS = ["auto", "cos", "dcza"]
SHARED = [  # several sites use each of these
    {"between": ["site0", "site1"], "cost": 0.05},
    {"from": "site1", "to": "site2", "cost-column": "line"},
    {"from": "site0", "to": "site2", "cost-column": "direct", "guess": 0.02},
    {"from": "site2", "to": "site0", "cost-column": "back", "guess": 0.1},
]
OWN = [  # only site0 uses the learnt ones
    {"from": "site0", "to": "site1", "cost-column": "first"},
    {"from": "site0", "to": "site2", "cost-column": "direct", "guess": 0.02},
    {"from": "site1", "to": "site2", "cost": 0.04},
    {"from": "site2", "to": "site1", "cost": 0.03},
]
KEPT = ("phase", "arm", "function", "correct")


@pytest.fixture(scope="module")
def stream() -> Stream:
    return recorded_stream()


def costs() -> dict[str, Any]:
    """Return what each link costs in each slot."""
    rng = np.random.default_rng(5)
    bounds = {"line": (0.0, 0.1), "direct": (0.1, 0.4), "back": (0.0, 0.05), "first": (0.0, 0.2)}
    return {name: rng.uniform(*pair, SLOTS).round(4) for name, pair in bounds.items()}


def with_links(preset: str, links: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    config = config_of(preset, "spec")
    learners = [{key: one[key] for key in one if key != "peers"} for one in config["learner"]]
    policy = {**config["policy"], "relearn-every": 30}
    return {"policy": policy, "learner": learners, "link": links, **more}


def replayed(stream: Stream, config: dict[str, Any], delay: int = 0) -> list[Row]:
    columns = covey.replay(
        config,
        predictions=stream.predictions,
        labels=stream.labels,
        contexts=stream.contexts,
        at=stream.at,
        delay=np.full(SLOTS, delay),
        columns=costs(),
    ).columns()
    return list(zip(*(columns[name] for name in KEPT), strict=True))


def seen_in(config: dict[str, Any], slot: int) -> dict[str, float]:
    """Return all that a client could see of links in a slot, used or not."""
    names = {link["cost-column"] for link in config["link"] if "cost-column" in link}
    return {name: float(column[slot]) for name, column in costs().items() if name in names}


def in_a_network(
    stream: Stream, config: dict[str, Any], *, is_saved: bool = False, tmp_path: Any = None
) -> list[Row]:
    network = covey.Network(config, functions=stream.functions, dimension=2)
    live = []
    for slot in range(SLOTS):
        if is_saved and slot % 100 == 55:
            network.save(tmp_path / "saved")
            network = covey.Network.load(tmp_path / "saved", functions=stream.functions)
        site = network[stream.at[slot]]
        answer = site.predict(slot, tuple(stream.contexts[slot]), slot=slot + 1)
        label, cost = int(stream.labels[slot]), seen_in(config, slot)
        settled = site.learn(answer.ticket, label, cost=cost)
        live.append((answer.phase, answer.arm, answer.function, settled.is_right))
    return live


def test_a_saved_network_goes_on_with_what_it_knows_of_links(stream: Stream, tmp_path: Any) -> None:
    config = with_links("cos", SHARED)

    assert in_a_network(stream, config, is_saved=True, tmp_path=tmp_path) == replayed(
        stream, config
    )


async def in_nodes(
    stream: Stream, config: dict[str, Any], *, restart_every: int, delay: int = 0
) -> list[Row]:
    world = virtual.World(config, stream.functions, dimension=2, trust="full")
    live: list[Row] = []

    async def label(slot: int) -> None:
        node, cost = world.nodes[stream.at[slot]], seen_in(config, slot)
        settled = await node.learn(str(slot), int(stream.labels[slot]), cost=cost)
        await node.drained()
        live[slot] = (*live[slot], settled.is_right)

    for slot in range(NODE_SLOTS):
        name = stream.at[slot]
        if slot % restart_every == restart_every - 1:
            world.crash(name)
            world.boot(name)
        node, context = world.nodes[name], tuple(stream.contexts[slot].tolist())
        ticket = await node.predict(slot, context, question=Question("", str(slot)), slot=slot + 1)
        live.append((ticket.phase, ticket.arm, ticket.function))
        if slot >= delay:
            await label(slot - delay)
    for slot in range(NODE_SLOTS - delay, NODE_SLOTS):
        await label(slot)
    for node in world.nodes.values():
        node.stop()
    return live


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("restart_every", [10, NODE_SLOTS + 1])
def test_nodes_learn_the_costs_of_their_links_as_a_replay_does_restarted_or_not(
    stream: Stream, preset: str, restart_every: int
) -> None:
    """Each node learns from its own requests; so no learnt link is used by two of them here."""
    config = with_links(preset, OWN)
    recorded = replayed(stream, config)[:NODE_SLOTS]

    assert virtual.run(in_nodes(stream, config, restart_every=restart_every)) == recorded
    never = {**config, "policy": {**config["policy"], "relearn-every": 10_000}}
    assert recorded != replayed(stream, never)[:NODE_SLOTS]


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


def test_labels_that_come_after_a_change_of_paths_teach_of_the_links_that_were_used() -> None:
    wiring = load(
        {
            "learner": [{"name": name, "functions": [name[0]]} for name in ("a1", "b1", "c1")],
            "link": [
                {"from": "a1", "to": "c1", "cost-column": "direct"},
                {"from": "a1", "to": "b1", "cost": 0.1},
                {"from": "b1", "to": "c1", "cost-column": "line"},
            ],
        }
    ).wiring
    assert wiring is not None
    prices = LivePrices(ChangingLinks(wiring, 10), "a1", {"b1": 0.0, "c1": 0.0}, label_wait=100)
    seen = {"direct": 0.9, "line": 0.2}

    class Nobody:
        def reprice(self, peer: str, cost: float) -> None:
            paid[peer] = cost

    paid: dict[str, float] = {}
    prices.observe("c1", 3, seen)
    assert prices.apply(Nobody(), 11)
    assert paid == {"c1": 0.1}  # by way of b1, whose link to c1 is not known
    prices.observe("c1", 4, seen)
    prices.observe("c1", 12, seen)
    again = LivePrices(ChangingLinks(wiring, 10), "a1", {"b1": 0.0, "c1": 0.0}, label_wait=100)
    again.restore(msgspec.convert(msgspec.to_builtins(prices.state()), PriceState), Nobody())
    for one in (prices, again):
        one.observe("c1", 5, seen)
        assert sorted(one.state().links.seen) == [
            ("a1", "c1", 1_800_000, 2),
            ("b1", "c1", 200_000, 1),
        ]
        assert one.state().links.counted == [("a1", "c1", 0.9, 1)]


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
