"""A site that relays: payments at every hop, labels that reach the end, failures, and routes."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from covey.errors import DataError, PeerDeclined, PeerError, StoreError
from covey.node.node import Question
from covey.node.peers import MOST_HOPS, Budgets, PeerTimeouts, RelayRoute
from covey.site.requests import AskRow, DayPayments
from support import virtual
from support.virtual import Crashed, Weather, World

NOON_S = 1_794_916_800.0  # 2026-11-17 12:00 UTC
NEAR, FAR = 0.05, 0.04
ROW = AskRow("a", "g1:0", 1, 0, 90_000)


def config(**south: Any) -> dict[str, Any]:
    """Return a chain in which only west is right, and north reaches it through south."""
    return {
        "policy": {"preset": "cos", "slices": 1},
        "learner": [
            {"name": "north", "functions": ["n"], "peers": {"south": NEAR}},
            {
                "name": "south",
                "functions": ["s"],
                "peers": {"west": FAR},
                "relay": True,
                "arrivals": False,
                **south,
            },
            {"name": "west", "functions": ["w"], "peers": {}},
        ],
    }


def world_of(
    *, budgets: Mapping[str, Budgets] | None = None, trust: Any = "full", **south: Any
) -> World:
    class Paying(World):
        noon_s = NOON_S

    Paying.budgets = budgets or {}
    functions = {"n": lambda x: 1 - x, "s": lambda x: 1 - x, "w": lambda x: x}
    return Paying(
        config(**south), functions, dimension=1, trust=trust, timeouts=PeerTimeouts(failures=2)
    )


async def asked(world: World, times: int) -> list[str]:
    """Send instances with their labels to north; return the arms that it chose."""
    arms = []
    for k in range(times):
        node, id_ = world.nodes["north"], f"{len(arms)}-{k}-{world.nodes['north'].starts}"
        ticket = await node.predict(k % 2, (0.5,), question=Question("", id_))
        await node.learn(id_, k % 2)
        arms.append(ticket.arm)
    while any(node.undelivered for node in world.nodes.values()):
        for node in world.nodes.values():
            await node.drained()
    return arms


def payments(world: World, site: str, *, is_ours: bool) -> dict[str, tuple[int, int]]:
    """Return rows and amounts that a site paid, or earned, by peer."""
    days = [one for one in world.stores[site].all(DayPayments) if one.is_ours == is_ours]
    return {day.peer: (day.rows, day.amount) for day in days}


def labels_of(world: World, site: str) -> int:
    return world.nodes[site].state().for_peers.labels


@virtual.timed
async def test_every_site_pays_the_next_and_both_ends_count_the_same() -> None:
    world = world_of()
    arms = await asked(world, 60)
    far, near = arms.count("west"), arms.count("south")
    rows = {"south": (far + near, 90_000 * far + 50_000 * near)}

    assert far > 20
    assert payments(world, "north", is_ours=True) == rows
    assert payments(world, "south", is_ours=False) == {"north": rows["south"]}
    assert payments(world, "south", is_ours=True) == {"west": (far, 40_000 * far)}
    assert payments(world, "west", is_ours=False) == {"south": (far, 40_000 * far)}


@virtual.timed
async def test_the_budget_of_the_relay_and_that_of_the_asker_hold_for_relayed_answers() -> None:
    relay = world_of(budgets={"south": Budgets({}, 240_000)})
    arms = await asked(relay, 60)
    state = relay.nodes["south"].state()

    assert arms.count("west") == 3
    assert (state.spent_today, state.budget) == (0.12, 0.24)  # half is for its own clients
    assert relay.nodes["north"].counters.alone > 0

    asker = world_of(budgets={"north": Budgets({"south": 2_000_000}, None)})
    arms = await asked(asker, 60)
    ((_, paid),) = payments(asker, "north", is_ours=True).values()

    assert 5 < arms.count("west") < 20
    assert 1_910_000 < paid <= 2_000_000


@virtual.timed
async def test_a_peer_spends_only_its_part_of_a_budget_of_the_relay_and_only_if_it_pays() -> None:
    world = world_of(budgets={"south": Budgets({}, 1_000_000, askers=2)})
    south = world.nodes["south"]
    route = RelayRoute("west", ("north",))

    async def forwarded(price: int) -> int:
        before = south.state().spent_today
        for k in range(25):
            row = AskRow(f"{price}-{k}", "g1:0", 1, k % 2, price)
            with contextlib.suppress(PeerError):
                await south.for_peers.assist([row], source="north", route=route)
        return round((south.state().spent_today - before) / FAR)

    unpaid = msgspec.structs.replace(ROW, price=0)
    with pytest.raises(PeerDeclined, match=r"pays 0.04 for an answer of 'west', .* correct"):
        await south.for_peers.assist([unpaid], source="north", route=route)
    assert [await forwarded(39_999), await forwarded(40_000)] == [0, 6]
    for k in range(40):  # its own clients have the rest
        id_ = (await south.predict(k % 2, (0.5,))).ticket
        await south.learn(id_, k % 2)
    assert south.state().spent_today > 0.9


@pytest.mark.parametrize("trust", ["full", "isolated", "earned"])
@virtual.timed
async def test_labels_reach_the_site_that_answered_and_change_nothing_at_the_relay(
    trust: str,
) -> None:
    world = world_of(trust=trust)
    arms = await asked(world, 60)
    south = world.nodes["south"].state()

    assert south.phases["relay"] == arms.count("west") > 20
    assert labels_of(world, "west") == arms.count("west")
    assert labels_of(world, "south") == arms.count("south")
    assert south.cells <= 1


@virtual.timed
async def test_a_label_that_the_relay_has_taken_is_delivered_after_a_crash() -> None:
    world = world_of()
    arms = await asked(world, 60)
    node = world.nodes["north"]
    ticket = await node.predict(1, (0.5,), question=Question("", "last"))
    world.down.add("west")
    await node.learn("last", 1)
    await node.drained()  # the relay has the label, and cannot pass it on
    before = labels_of(world, "west")
    world.crash("south")
    world.boot("south")
    world.down.discard("west")
    await asyncio.sleep(120)

    assert ticket.arm == "west"
    assert before == arms.count("west")
    assert labels_of(world, "west") == before + 1


@pytest.mark.parametrize("lost", ["south", "west"])
@virtual.timed
async def test_a_site_that_is_lost_on_the_way_is_a_peer_that_is_not_available(lost: str) -> None:
    world = world_of()
    await asked(world, 30)
    world.down.add(lost)
    node = world.nodes["north"]
    tickets = [await node.predict(0, (0.5,)) for _ in range(10)]
    states = {peer.name: peer.state for peer in node.state().peers}

    assert "west" not in {ticket.arm for ticket in tickets}
    assert node.counters.alone > 0
    assert states["west"] == "resting"
    assert states["south"] == ("resting" if lost == "south" else "open")


@virtual.timed
async def test_the_same_question_again_gets_the_same_answer_and_is_not_forwarded_again() -> None:
    world = world_of()
    south = world.nodes["south"]
    rows = [ROW, AskRow("b", "g1:0", 2, 1, ROW.price)]
    route = RelayRoute("west", ("north",))
    first = await south.for_peers.assist(rows, source="north", route=route)
    messages = world.counts["messages"]
    again = await south.for_peers.assist(rows, source="north", route=route)

    assert [one.label for one in first] == [0, 1]
    assert again == first
    assert world.counts["messages"] == messages
    assert await south.for_peers.take_labels([("a", 0), ("b", 1)], source="north") == ["taken"] * 2
    await south.drained()
    assert labels_of(world, "west") == 2


TO_EAST = RelayRoute("east", ("north",))
ROUTES = {
    "leads in a circle": [("west", ("south", "north")), ("west", ("west", "north"))],
    "does not end with 'north'": [("west", ()), ("west", ("north", "east"))],
    "at most 8 may": [("west", (*(f"s{k}" for k in range(MOST_HOPS)), "north"))],
}


@pytest.mark.parametrize("sentence", ROUTES)
@virtual.timed
async def test_a_route_in_a_circle_or_too_long_is_refused(sentence: str) -> None:
    world = world_of()
    south = world.nodes["south"]
    for to, via in ROUTES[sentence]:
        with pytest.raises(DataError, match=sentence):
            await south.for_peers.assist([ROW], source="north", route=RelayRoute(to, via))
        with pytest.raises(DataError, match=sentence):
            await south.for_peers.report("g1:0", 1, source="north", route=RelayRoute(to, via))


@virtual.timed
async def test_two_relays_that_lead_to_each_other_do_not_forward_for_ever() -> None:
    """Each of them believes that the other one reaches east."""

    class Lost(World):
        def hop(self, name: str, peer: str) -> str:
            return {("north", "east"): "south", ("south", "east"): "north"}.get((name, peer), peer)

    functions = {name[0]: lambda x: 0 for name in ("north", "south", "east")}
    table = {
        "learner": [
            {"name": "north", "functions": ["n"], "peers": {"south": 0.1}, "relay": True},
            {
                "name": "south",
                "functions": ["s"],
                "peers": {"north": 0.1, "east": 0},
                "relay": True,
            },
            {"name": "east", "functions": ["e"], "peers": {}},
        ]
    }

    world = Lost(table, functions, dimension=1)
    for k in range(20):
        ticket = await world.nodes["north"].predict(k, (0.5,))
        assert ticket.arm != "east"
    assert world.counts["messages"] < 200


@virtual.timed
async def test_a_site_forwards_only_to_peers_that_it_asks_itself() -> None:
    world = world_of()
    south = world.nodes["south"]
    with pytest.raises(PeerDeclined, match="'south' does not ask 'east'"):
        await south.for_peers.assist([ROW], source="north", route=TO_EAST)
    with pytest.raises(PeerDeclined, match="has no relay = true"):
        await world.nodes["west"].for_peers.assist([ROW], source="north", route=TO_EAST)


@virtual.timed
async def test_forwarded_rows_wait_for_their_labels_also_when_the_relay_gets_another_function() -> (
    None
):
    world = world_of()
    south = world.nodes["south"]
    await south.for_peers.assist([ROW], source="north", route=RelayRoute("west", ("north",)))
    world.crash("south")
    world.setup = virtual.load(config(functions=["s", "n"]))
    world.boot("south")
    south = world.nodes["south"]

    assert await south.for_peers.take_labels([("a", 0)], source="north") == ["taken"]
    await south.drained()
    assert labels_of(world, "west") == 1


def revive(world: World) -> None:
    for name in world.names:
        if name not in world.nodes:
            world.boot(name)


async def stubborn(world: World, id_: str, label: int) -> str:
    """Send an instance and its label to north until both are taken; return the arm."""
    while True:
        revive(world)
        try:
            ticket = await world.predict("north", id_, label, (0.5,))
            await world.learn("north", id_, label)
        except (Crashed, StoreError):
            continue
        return str(ticket.arm)


@pytest.mark.parametrize("seed", range(4))
@virtual.timed
async def test_with_faults_and_crashes_each_label_arrives_once_at_every_hop_and_is_paid_for(
    seed: int,
) -> None:
    world = world_of()
    world.chance.seed(seed)
    world.weather = Weather(delay_s=0.02, loss=0.01, repeats=0.2, commit_s=0.005, crash=0.01)
    arms = [await stubborn(world, str(k), k % 2) for k in range(150)]
    world.weather = Weather()
    revive(world)
    await asyncio.sleep(5_000)  # until all is delivered

    assert world.counts["crashes"] > 5
    assert arms.count("west") > 20
    counted = world.stores["west"].counters()
    assert {source for _, source, _ in counted} == {"south"}
    assert sum(labels for labels, _ in counted.values()) == arms.count("west")
    for payer, payee in (("north", "south"), ("south", "west")):
        paid = payments(world, payer, is_ours=True)[payee]
        assert paid <= payments(world, payee, is_ours=False)[payer]  # some came too late
    # South also pays for answers that north did not hear in time.
    assert payments(world, "south", is_ours=True)["west"][0] >= arms.count("west")
    assert all(node.undelivered == 0 for node in world.nodes.values())
