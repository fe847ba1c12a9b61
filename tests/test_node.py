"""A node answers whatever its peers do, counts every label once, and loses none it acknowledged."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import pytest

import virtual
from covey.books import Question
from covey.decisions import NO_ANSWER
from covey.desks import Trust
from covey.errors import (
    ConflictingLabel,
    DataError,
    FunctionError,
    LateLabel,
    LimitError,
    StoreError,
    UnknownTicket,
)
from covey.node.node import Limits
from covey.peers import NO_INSTANCE, Help, Patience, Request
from covey.policies import PRESETS
from covey.records import Ticket
from covey.types import MEMORY, Report
from virtual import Crashed, Weather, World

ONE_S = Patience(timeout_s=1.0, failures=3, rest_s=1.0, most_rest_s=60.0)


def config(sites: int = 2, preset: str = "cos", **more: Any) -> dict[str, Any]:
    return {
        "policy": {"preset": preset, "slices": 1, "horizon": 500, **more},
        "learner": [
            {
                "name": f"site{k}",
                "functions": [f"f{k}"],
                "peers": {f"site{other}": 0.05 for other in range(sites) if other != k},
            }
            for k in range(sites)
        ],
    }


def world_of(setup: dict[str, Any] | None = None, **more: Any) -> World:
    setup = config() if setup is None else setup
    names = [name for learner in setup["learner"] for name in learner["functions"]]
    functions = {name: lambda x: x for name in names}
    return World(setup, functions, dimension=1, patience=ONE_S, **more)


async def live(world: World, slots: int, *, at: str = "site0") -> list[Ticket]:
    """Return the answers to a stream whose every label is right and comes at once."""
    tickets = []
    for k in range(slots):
        ticket = await world.nodes[at].predict(k % 2, (0.5,))
        await world.nodes[at].learn(ticket.id, k % 2)
        await world.nodes[at].drained()
        tickets.append(ticket)
    return tickets


def test_the_same_question_again_gets_the_same_ticket() -> None:
    async def main() -> None:
        node = world_of().nodes["site0"]
        asked = Question("", "a", "digest")

        first = await node.predict(1, (0.5,), question=asked)
        again = await node.predict(1, (0.5,), question=asked)

        assert again == first
        assert node.learner.slot == 1

    virtual.run(main())


def test_the_same_question_twice_at_once_gets_one_ticket() -> None:
    async def main() -> None:
        world = world_of()
        world.weather = Weather(commit_s=0.01)
        node, asked = world.nodes["site0"], Question("", "a")

        both = await asyncio.gather(*(node.predict(1, (0.5,), question=asked) for _ in range(2)))

        assert both[0] == both[1]
        assert world.stores["site0"].size()["tickets"] == 1

    virtual.run(main())


def test_another_question_under_the_same_id_is_refused() -> None:
    async def main() -> None:
        node = world_of().nodes["site0"]
        await node.predict(1, (0.5,), question=Question("", "a", "one"))

        with pytest.raises(ConflictingLabel, match="was used for another question"):
            await node.predict(1, (0.5,), question=Question("", "a", "other"))

    virtual.run(main())


def test_a_label_is_new_then_repeated_then_conflicting() -> None:
    async def main() -> None:
        world = world_of()
        node = world.nodes["site0"]
        ticket = await node.predict(1, (0.5,))

        first = await node.learn(ticket.id, 1)
        again = await node.learn(ticket.id, 1)
        with pytest.raises(ConflictingLabel):
            await node.learn(ticket.id, 0)

        assert (first.is_new, again.is_new, again.is_right) == (True, False, True)
        assert list(world.stores["site0"].counters().values()) == [(1, 1)]

    virtual.run(main())


def test_a_label_whose_sender_hung_up_reaches_the_peer_all_the_same() -> None:
    async def main() -> None:
        world = world_of()
        world.weather = Weather(commit_s=0.01)
        node = world.nodes["site0"]
        asked = await node.predict(1, (0.5,))
        while not asked.peer:
            await node.learn(asked.id, 1)
            asked = await node.predict(1, (0.5,))

        sending = asyncio.ensure_future(node.learn(asked.id, 1))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.sleep(1.0)
        await node.drained()

        there = world.stores["site1"].find("site0", str(asked.peer_ticket))
        assert there is not None
        assert there.truth == 1

    virtual.run(main())


def test_a_label_is_refused_only_because_of_one_that_is_on_the_disk() -> None:
    async def main() -> None:
        world = world_of(config(1))
        node = world.nodes["site0"]
        ticket = await node.predict(1, (0.5,))
        world.weather = Weather(commit_s=0.01)

        first = asyncio.ensure_future(node.learn(ticket.id, 1))
        await asyncio.sleep(0)
        with pytest.raises(ConflictingLabel):
            await node.learn(ticket.id, 0)

        kept = world.stores["site0"].find("", ticket.id)
        assert kept is not None
        assert kept.truth == 1
        assert (await first).is_new

    virtual.run(main())


def test_a_label_that_comes_too_late_is_told_from_one_that_is_unknown() -> None:
    async def main() -> None:
        node = world_of(config(**{"label-wait": 3})).nodes["site0"]
        old = await node.predict(1, (0.5,))
        settled = await node.predict(1, (0.5,))
        await node.learn(settled.id, 1)
        for _ in range(6):
            await node.predict(1, (0.5,))

        with pytest.raises(LateLabel):
            await node.learn(old.id, 1)
        with pytest.raises(UnknownTicket, match="there is no ticket 'x'"):
            await node.learn("x", 1)
        assert (await node.learn(settled.id, 1)).is_new is False
        with pytest.raises(ConflictingLabel):
            await node.learn(settled.id, 0)

    virtual.run(main())


def test_nobody_can_label_the_ticket_of_another() -> None:
    async def main() -> None:
        node = world_of().nodes["site0"]
        ticket = await node.predict(1, (0.5,))

        with pytest.raises(UnknownTicket):
            await node.learn(ticket.id, 1, source="site1")

    virtual.run(main())


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_with_every_peer_down_a_node_answers_within_the_timeout(preset: str) -> None:
    async def main() -> None:
        world = world_of(config(3, preset))
        world.down = {"site1", "site2"}
        clock = asyncio.get_running_loop()
        waits = []
        for _ in range(60):
            before = clock.time()
            ticket = await world.nodes["site0"].predict(1, (0.5,))
            waits.append(clock.time() - before)
            await world.nodes["site0"].learn(ticket.id, 1)
            assert ticket.function == "f0"

        assert max(waits) <= ONE_S.timeout_s + 1e-9
        # Either breaker opens after three failures; then nobody waits but in a few trials.
        assert sum(wait > 0 for wait in waits) <= 12

    virtual.run(main())


def test_a_peer_that_comes_back_is_asked_again() -> None:
    async def main() -> None:
        world = world_of()
        world.down = {"site1"}
        await live(world, 40)
        world.down = set()
        await asyncio.sleep(2 * ONE_S.most_rest_s)

        tickets = await live(world, 40)

        assert any(ticket.peer == "site1" for ticket in tickets)

    virtual.run(main())


def test_a_request_is_never_passed_on() -> None:
    async def main() -> None:
        world = world_of(config(3))

        for k in range(50):
            request = Request(str(k), "g1:0", k + 1, 1)
            helped = await world.nodes["site1"].assist(request, source="site0")
            assert helped.function == "f1"

        assert world.counts["messages"] == 0

    virtual.run(main())


def test_asking_twice_under_one_id_counts_once_at_the_peer() -> None:
    async def main() -> None:
        node = world_of(trust="full").nodes["site1"]
        request = Request("r", "g1:0", 1, 1)

        for _ in range(2):
            await node.assist(request, source="site0")
            await node.learn("r", 1, source="site0")

        assert dict(node.learner.snapshot().cells) == {"g1:0": [1, 1, 0, 1, 0, 1, 0, 0]}

    virtual.run(main())


@pytest.mark.parametrize(
    "cell", ["g2:0", "g1:0:0", "g1:1", "z0:0", "else/g1:0", "", "g1:" + "9" * 99]
)
def test_a_cell_that_cannot_be_is_refused_with_a_sentence(cell: str) -> None:
    async def main() -> None:
        node = world_of().nodes["site0"]

        with pytest.raises(DataError, match="cell"):
            await node.report(cell, 1, source="site1")

    virtual.run(main())


def lying(**lies: Callable[[Any], Any]) -> type[virtual.Link]:
    """Return a link behind which a peer says whatever a lie makes of the truth."""

    class Lying(virtual.Link):
        async def report(self, cell: str, slot: int) -> Report:
            told = await super().report(cell, slot)
            return lies.get("report", lambda told: told)(told)

        async def ask(self, requests: Sequence[Request]) -> list[Help]:
            lie = lies.get("help", lambda told: told)
            return [lie(told) for told in await super().ask(requests)]

    return Lying


def test_a_peer_that_hides_its_arrivals_is_trained_no_more_than_an_honest_one() -> None:
    async def trainings(link: type[virtual.Link]) -> int:
        tickets = await live(world_of(link=link), 300)
        return sum(ticket.phase == "train" for ticket in tickets)

    honest = virtual.run(trainings(virtual.Link))
    lied = virtual.run(trainings(lying(report=lambda told: (0, *told[1:]))))

    assert 0 < honest < 100
    assert lied == honest


@pytest.mark.parametrize(
    "reports",
    [(-1, 0.0, 1.0), (2**60, 0.0, 1.0), (True, 0.0, 1.0), (1.5, 0.0, 1.0), (1, float("nan"), 1.0)],
)
def test_a_report_that_makes_no_sense_counts_as_none(reports: Any) -> None:
    async def main() -> None:
        world = world_of(link=lying(report=lambda told: reports))

        tickets = await live(world, 30)

        assert {ticket.function for ticket in tickets} == {"f0"}

    virtual.run(main())


@pytest.mark.parametrize("label", [None, float("nan"), [1], 2**70, object()])
def test_an_answer_that_is_no_label_counts_as_none(label: Any) -> None:
    async def main() -> None:
        world = world_of(link=lying(help=lambda told: Help(label, "f1")))

        tickets = await live(world, 30)

        assert {ticket.function for ticket in tickets} == {"f0"}

    virtual.run(main())


def test_a_peer_that_is_shown_the_cell_never_gets_the_instance() -> None:
    async def main() -> None:
        setup = config()
        for learner, other in zip(setup["learner"], ("site1", "site0"), strict=True):
            learner["peers"] = {}
            learner["context-peers"] = {other: 0.05}
        seen: list[Request] = []

        class Spy(virtual.Link):
            async def ask(self, requests: Sequence[Request]) -> list[Help]:
                seen.extend(requests)
                return await super().ask(requests)

        world = world_of(setup, link=Spy)
        await live(world, 20, at="site1")
        tickets = await live(world, 60)

        asked = [one for one in tickets if one.peer]
        assert seen
        assert {one.instance for one in seen} == {NO_INSTANCE}
        assert {one.function for one in asked} <= {MEMORY, "f0"}
        assert any(one.prediction is not NO_ANSWER for one in asked)

    virtual.run(main())


def test_a_node_without_labels_goes_by_what_others_know() -> None:
    async def main() -> None:
        setup = config()
        setup["learner"][0]["supervised"] = False
        world = World(setup, {"f0": lambda x: 1 - x, "f1": lambda x: x}, dimension=1)
        await live(world, 60, at="site1")

        first = await world.nodes["site0"].predict(1, (0.5,))
        world.down = {"site1"}
        alone = await world.nodes["site0"].predict(1, (0.5,))
        with pytest.raises(DataError, match="takes no labels"):
            await world.nodes["site0"].learn(first.id, 1)

        assert (first.peer, alone.function) == ("site1", "f0")

    virtual.run(main())


def test_a_function_that_fails_leaves_every_counter_as_it_was() -> None:
    async def main() -> None:
        def broken(instance: Any) -> int:
            raise RuntimeError("out of order")

        world = World(config(), {"f0": broken, "f1": broken}, dimension=1)
        node = world.nodes["site0"]

        with pytest.raises(FunctionError, match="out of order"):
            await node.predict(1, (0.5,))

        assert node.learner.open_tickets == 0
        assert dict(node.learner.snapshot().cells) == {"g1:0": [1, 0, 0, 0, 0, 0, 0, 0]}

    virtual.run(main())


def test_many_requests_share_a_commit() -> None:
    async def main() -> None:
        world = world_of(config(1))
        world.weather = Weather(commit_s=0.01)
        commits = 0
        store = world.stores["site0"]
        write = store._write

        def count(batch: Any) -> None:
            nonlocal commits
            commits += 1
            write(batch)

        store._write = count  # type: ignore[method-assign]
        node = world.nodes["site0"]

        await asyncio.gather(*(node.predict(1, (0.5,)) for _ in range(100)))

        assert store.size()["tickets"] == 100
        assert commits <= 2

    virtual.run(main())


def test_a_node_whose_store_fails_stops_and_says_so() -> None:
    async def main() -> None:
        world = world_of(config(1))
        node = world.nodes["site0"]
        ticket = await node.predict(1, (0.5,))
        world.stores["site0"].close()

        for id_ in (ticket.id, ticket.id, "unknown"):
            with pytest.raises(StoreError):
                await node.learn(id_, 1)
        with pytest.raises(StoreError):
            await node.predict(1, (0.5,))

        assert not node.is_ready

    virtual.run(main())


def test_a_node_holds_no_more_than_its_limits() -> None:
    async def main() -> None:
        world = world_of(config(1))
        world.limits = Limits(tickets=3, under_way=2)
        world.crash("site0")
        world.boot("site0")
        node = world.nodes["site0"]
        world.weather = Weather(commit_s=0.01)

        async def tried() -> str:
            try:
                await node.predict(1, (0.5,))
            except LimitError as error:
                return str(error)
            return ""

        said = [await tried() for _ in range(4)]

        assert said == ["", "", "", "3 tickets are held or under way; try again later"]

    virtual.run(main())


@pytest.mark.parametrize("slot", [0, -1, 2**53 + 1])
def test_a_slot_that_cannot_be_is_refused_with_a_sentence(slot: int) -> None:
    async def main() -> None:
        node = world_of().nodes["site0"]

        with pytest.raises(DataError, match="it must lie from 1 to"):
            await node.assist(Request("r", "g1:0", slot, 1), source="site1")

        assert node.learner.slot == 0

    virtual.run(main())


# -- storms -----------------------------------------------------------------------------------


class Oracle:
    """What clients know: the labels that were acknowledged to them."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.answered = 0


async def client(world: World, oracle: Oracle, name: str, number: int, rounds: int) -> None:
    chance = world.chance
    for k in range(rounds):
        id_, truth, context = f"{number}-{k}", chance.randrange(2), (chance.random(),)
        await asyncio.sleep(chance.expovariate(1.0))
        await persistently(partial(world.predict, name, id_, truth, context))
        oracle.answered += 1
        if chance.random() < 0.2:
            continue  # its label never comes
        await asyncio.sleep(chance.expovariate(0.2))
        for _ in range(1 + (chance.random() < 0.2)):
            await persistently(partial(world.learn, name, id_, truth))
            oracle.acknowledged[name, id_] = truth


async def persistently(call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Try until there is an answer; a node that is down or about to be comes back."""
    while True:
        try:
            await call()
        except (Crashed, StoreError):
            await asyncio.sleep(1.0)
        else:
            return


async def keeper(world: World) -> None:
    """Boot whoever is down."""
    while True:
        await asyncio.sleep(world.chance.expovariate(0.5))
        for name in world.stores:
            if name not in world.nodes:
                world.boot(name)


async def storm(seed: int) -> tuple[World, Oracle]:
    trust: Trust = ("full", "isolated", "robust")[seed % 3]
    setup = config(3, **{"label-wait": 100_000})
    world, oracle = world_of(setup, seed=seed, trust=trust), Oracle()
    world.weather = Weather(delay_s=0.05, loss=0.05, repeats=0.1, commit_s=0.005, crash=0.01)
    keeping = asyncio.ensure_future(keeper(world))
    clients = [client(world, oracle, f"site{k % 3}", k, 25) for k in range(9)]
    await asyncio.gather(*clients)
    world.weather = Weather(delay_s=0.05, commit_s=0.005)
    await asyncio.sleep(30)
    keeping.cancel()
    for node in world.nodes.values():
        await node.drained()
        node.stop()
    return world, oracle


@pytest.mark.parametrize("seed", range(12))
def test_in_a_storm_no_acknowledged_label_is_lost_and_none_counts_twice(seed: int) -> None:
    world, oracle = virtual.run(storm(seed))

    assert world.counts["crashes"] > 0
    assert oracle.answered == 225
    for (name, id_), truth in oracle.acknowledged.items():
        kept = world.stores[name].find("", id_)
        assert kept is not None
        assert kept.truth == truth
    for store in world.stores.values():
        assert store.check() == []
        assert store.size()["owed"] == 0


@pytest.mark.parametrize("seed", range(12))
def test_after_a_storm_every_label_has_reached_the_peer_that_answered(seed: int) -> None:
    world, oracle = virtual.run(storm(seed))

    passed_on = 0
    for name, id_ in oracle.acknowledged:
        kept = world.stores[name].find("", id_)
        assert kept is not None
        if kept.peer_ticket is not None:
            there = world.stores[kept.peer].find(name, kept.peer_ticket)
            assert there is not None
            assert there.truth == kept.truth
            passed_on += 1
    assert passed_on > 0


def test_the_same_seed_is_the_same_storm() -> None:
    def told(world: World, oracle: Oracle) -> Any:
        counters = [store.counters() for store in world.stores.values()]
        return dict(world.counts), oracle.acknowledged, counters

    assert told(*virtual.run(storm(5))) == told(*virtual.run(storm(5)))
