"""Peers are paid for answers that arrived, never beyond a budget, and both ends know the price."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

import covey
from covey.errors import CoveyError, FunctionError
from covey.node.node import Node
from covey.node.peers import DAY_S, Budgets
from covey.site.requests import NO_PEERS, AskRow, DayPayments, Request
from support import virtual
from support.virtual import Crashed, Weather, World

PRICE = 0.05
NOON_S = 1_794_916_800.0  # 2026-11-17 12:00 UTC


def config(sites: int, slices: int) -> dict[str, Any]:
    """Return a network in which only the answers of peers are right."""
    return {
        "policy": {"preset": "cos", "slices": slices},
        "learner": [
            {
                "name": f"site{k}",
                "functions": [f"f{k}"],
                "peers": {f"site{other}": PRICE for other in range(sites) if other != k},
            }
            for k in range(sites)
        ],
    }


def world_of(
    sites: int = 2,
    *,
    peer: float | None = None,
    total: float | None = None,
    slices: int = 1,
    own: Callable[[int], int] = lambda x: 1 - x,
) -> World:
    functions = {f"f{k}": own if k == 0 else (lambda x: x) for k in range(sites)}
    peers = {} if peer is None else {"site1": round(peer * 1e6)}
    allowed = Budgets(peers, None if total is None else round(total * 1e6))

    class Paying(World):
        budgets: ClassVar = {"site0": allowed}
        noon_s = NOON_S

    return Paying(config(sites, slices), functions, dimension=1)


async def answered(node: Node, rows: int = 1) -> Request:
    request = await node.answer([k % 2 for k in range(rows)], [(0.5,)] * rows)
    await node.learn_rows(request.id, range(rows), [k % 2 for k in range(rows)])
    return request


def peers_of(requests: Sequence[Request]) -> list[str]:
    return [request.group(row).peer for request in requests for row in range(len(request))]


def amount(world: World, site: str, *, is_ours: bool) -> int:
    """Return what a site paid, or earned, in millionths."""
    days = [day for day in world.stores[site].all(DayPayments) if day.peer not in NO_PEERS]
    return sum(day.amount for day in days if day.is_ours == is_ours)


@virtual.timed
async def test_a_peer_whose_budget_is_spent_is_not_asked_until_the_next_day() -> None:
    world = world_of(peer=0.5)
    node = world.nodes["site0"]
    today = [await answered(node) for _ in range(60)]
    state = node.state()
    await asyncio.sleep(DAY_S / 2)
    tomorrow = [await answered(node) for _ in range(30)]

    assert peers_of(today).count("site1") == 10
    assert (state.peers[0].state, state.peers[0].spent_today) == ("over_budget", 0.5)
    assert state.peers[0].budget == 0.5
    assert peers_of(tomorrow).count("site1") == 10


@virtual.timed
async def test_the_budget_of_a_site_holds_for_all_peers_together() -> None:
    world = world_of(3, total=0.4)
    node = world.nodes["site0"]
    today = [await answered(node) for _ in range(60)]
    state = node.state()

    assert sum(map(bool, peers_of(today))) == 8
    assert (state.spent_today, state.budget) == (0.4, 0.4)
    assert {peer.state for peer in state.peers} == {"over_budget"}


@virtual.timed
async def test_what_was_spent_today_is_known_after_a_crash() -> None:
    world = world_of(peer=0.5)
    before = [await answered(world.nodes["site0"]) for _ in range(12)]
    world.crash("site0")
    world.boot("site0")
    after = [await answered(world.nodes["site0"]) for _ in range(40)]

    assert 0 < peers_of(before).count("site1") < 10
    assert peers_of([*before, *after]).count("site1") == 10


def test_requests_at_the_same_time_and_batches_stay_within_the_budget_together() -> None:
    async def spent(budget: float) -> tuple[float, float]:
        world = world_of(peer=budget)
        node = world.nodes["site0"]
        for _ in range(60):
            await answered(node)
        before = node.state().peers[0].spent_today
        world.weather = Weather(delay_s=0.01)
        together = await asyncio.gather(*(answered(node, rows) for rows in (1, 3, 2) * 8))
        found = node.state().peers[0].spent_today

        assert all(len(one.answers) == len(one) for one in together)
        assert amount(world, "site0", is_ours=True) == round(found * 1e6)
        return before, found

    before, free = virtual.run(spent(99.0))
    _, limited = virtual.run(spent(before + PRICE))

    assert free > before + 3 * PRICE
    assert limited == pytest.approx(before + PRICE)


@virtual.timed
async def test_a_call_without_an_answer_costs_nothing() -> None:
    world = world_of(peer=0.5)
    node = world.nodes["site0"]
    world.down.add("site1")
    for _ in range(20):
        await answered(node)
    spent, paid = node.state().peers[0].spent_today, amount(world, "site0", is_ours=True)
    world.down.clear()
    await asyncio.sleep(120)
    later = [await answered(node) for _ in range(40)]

    assert (spent, paid) == (0.0, 0)
    assert peers_of(later).count("site1") == 10


@virtual.timed
async def test_a_request_that_fails_after_a_peer_answered_is_not_paid_for() -> None:
    is_broken = False

    def own(x: int) -> int:
        if is_broken:
            raise ValueError
        return x if x > 1 else 1 - x  # so this cell has its own function, the other one the peer

    world = world_of(slices=2, own=own)
    node = world.nodes["site0"]
    for k in range(60):
        request = await node.answer([k % 2, 2], [(0.1,), (0.9,)])
        await node.learn_rows(request.id, [0, 1], [k % 2, 2])
    is_broken, failures = True, 0
    before = node.state().peers[0].spent_today
    for _ in range(20):
        with contextlib.suppress(FunctionError):
            await node.answer([1, 2], [(0.1,), (0.9,)])
            failures -= 1
        failures += 1

    assert failures == 20
    assert node.state().peers[0].spent_today == before > 0
    assert amount(world, "site0", is_ours=True) == round(before * 1e6)


@pytest.mark.parametrize("seed", range(6))
@virtual.timed
async def test_both_ends_have_the_same_price_of_every_answer_after_losses_and_crashes(
    seed: int,
) -> None:
    world = world_of()
    world.chance.seed(seed)
    world.weather = Weather(delay_s=0.2, loss=0.2, repeats=0.1, commit_s=0.01, crash=0.01)
    for k in range(150):
        for site in ("site0", "site1"):
            if site not in world.nodes:
                world.boot(site)
        with contextlib.suppress(Crashed, CoveyError):
            await world.predict("site0", f"r{k}", k % 2, (0.5,))
            await world.learn("site0", f"r{k}", k % 2)
    world.weather = Weather()
    for site in ("site0", "site1"):
        if site not in world.nodes:
            world.boot(site)
    asked = list(world.stores["site0"].requests())
    ids = [answer.id for one in asked for answer in one.peer_answers.values() if answer.id]
    answered = world.stores["site1"].find_many("site0", ids)
    price = round(PRICE * 1e6)

    assert world.counts["crashes"] > 3
    assert len(ids) > 5
    assert [answered[id_][0].price for id_ in ids] == [price] * len(ids)
    assert amount(world, "site0", is_ours=True) == price * len(ids)
    given = [request for request in world.stores["site1"].requests() if request.source == "site0"]
    assert amount(world, "site1", is_ours=False) == price * len(given)


@virtual.timed
async def test_an_answer_is_earned_once_at_the_price_that_was_offered_first() -> None:
    world = world_of()
    node = world.nodes["site1"]
    for price in (100, 100, 10**9):
        await node.for_peers.assist([AskRow("x", "g1:0", 1, 1, price)], source="site0")
    await node.for_peers.assist([AskRow("y", "g1:0", 2, 1)], source="site0")
    world.crash("site1")
    world.boot("site1")
    await world.nodes["site1"].for_peers.assist([AskRow("z", "g1:0", 3, 1, 50)], source="site0")
    (found,) = world.stores["site1"].all(DayPayments)

    assert (found.is_ours, found.peer) == (False, "site0")
    assert (found.requests, found.rows, found.amount) == (3, 3, 150)  # one was free


@virtual.timed
async def test_payments_and_budgets_follow_prices_that_are_learnt() -> None:
    table = config(2, 1)
    learners = [{key: one[key] for key in one if key != "peers"} for one in table["learner"]]
    link = {"from": "site0", "to": "site1", "cost-column": "line", "guess": PRICE}
    learnt = {**table, "learner": learners, "link": [link]}
    learnt["policy"] = {**table["policy"], "relearn-every": 10}
    functions = {"f0": lambda x: 1 - x, "f1": lambda x: x}

    world = World(learnt, functions, dimension=1)
    node, prices = world.nodes["site0"], list[float]()
    for slot in range(1, 41):
        ticket = await node.predict(slot % 2, (0.5,), slot=slot)
        await node.learn(ticket.ticket, slot % 2, cost={"line": 0.25})
        prices += [ticket.price] if ticket.arm == "site1" else []

    assert sorted(set(prices)) == [PRICE, 0.25]
    assert amount(world, "site0", is_ours=True) == sum(round(1e6 * price) for price in prices)
    assert node.state().spent_today == pytest.approx(sum(prices))


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
@virtual.timed
async def test_a_peer_that_is_shown_data_or_its_cell_is_two_arms_and_is_paid_for_either(
    preset: str,
) -> None:
    rng = random.Random(4)  # noqa: S311
    rows = [
        (rng.randrange(99), (rng.random(),), rng.choice(["north", "south"])) for _ in range(300)
    ]
    table = {
        "policy": {"preset": preset},
        "learner": [
            {
                "name": "north",
                "functions": ["a"],
                "peers": {"south": 0.1},
                "context-peers": {"south": 0.02},
            },
            {"name": "south", "functions": ["b"], "peers": {}},
        ],
    }
    functions = {"a": lambda x: 0, "b": lambda x: x % 2}
    network = covey.Network(table, functions=functions, dimension=1)

    world, found = World(table, functions, dimension=1, trust="full"), []
    for x, context, name in rows:
        label = x % 2 if context[0] > 0.5 else 0
        pair = network[name].predict(x, context), await world.nodes[name].predict(x, context)
        found.append([(one.arm, one.phase, one.function, one.price) for one in pair])
        network[name].learn(pair[0].ticket, label)
        await world.nodes[name].learn(pair[1].ticket, label)
        await world.nodes["north"].drained()
    paid = amount(world, "north", is_ours=True)
    answered = [one for _, one in found if one[2] != "a"]  # the cell was answered from memory
    assert paid == round(1e6 * sum(price for *_, price in answered))
    assert [one for one, _ in found] == [other for _, other in found]
    assert {"south", "south (context)"} & {one[0] for one, _ in found}
