"""A node answers whatever its peers do, counts every label once, and loses none it accepted."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from chaos.states import picture
from covey.errors import ConflictingLabel, DataError, FunctionError, LimitError
from covey.kernel.rules import Report
from covey.node.node import Question
from covey.node.peers import PeerTimeouts
from covey.site.requests import (
    AskRow,
    Assistance,
    CellLine,
    Commit,
    CountedArm,
    Request,
)
from covey.store.store import Store
from support import virtual
from support.presets import fitting
from support.snapshots import snapshot_of
from support.virtual import Weather, World

ONE_S = PeerTimeouts(timeout_s=1.0, failures=3, open_s=1.0, most_open_s=60.0)


def config(sites: int = 2, preset: str = "cos", **more: Any) -> dict[str, Any]:
    return {
        "policy": fitting({"preset": preset, "slices": 1, **more}),
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
    return World(setup, functions, dimension=1, timeouts=ONE_S, **more)


async def live(world: World, slots: int, *, at: str = "site0") -> list[Request]:
    """Return the requests of a stream of single rows whose true labels come at once."""
    requests = []
    for k in range(slots):
        request = await world.nodes[at].answer([k % 2], [(0.5,)])
        await world.nodes[at].learn(request.id, k % 2)
        await world.nodes[at].drained()
        requests.append(request)
    return requests


def truth(store: Store, source: str, id_: str) -> Any:
    """Return the label that a store has for a row."""
    found = store.find(source, id_)
    assert found is not None
    request, row = found
    return request.truths[row or 0]


@virtual.timed
async def test_a_label_of_a_cancelled_call_is_still_delivered_to_the_peer() -> None:
    world = world_of()
    world.weather = Weather(commit_s=0.01)
    node = world.nodes["site0"]
    asked = await node.answer([1], [(0.5,)])
    while not asked.group(0).peer:
        await node.learn(asked.id, 1)
        asked = await node.answer([1], [(0.5,)])

    sending = asyncio.ensure_future(node.learn(asked.id, 1))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.sleep(1.0)
    await node.drained()

    assert truth(world.stores["site1"], "site0", asked.peer_answers[0].id) == 1


@virtual.timed
async def test_a_label_is_refused_only_because_of_one_in_the_store() -> None:
    world = world_of(config(1))
    node = world.nodes["site0"]
    answer = await node.predict(1, (0.5,))
    world.weather = Weather(commit_s=0.01)

    first = asyncio.ensure_future(node.learn(answer.ticket, 1))
    await asyncio.sleep(0)
    with pytest.raises(ConflictingLabel):
        await node.learn(answer.ticket, 0)

    assert truth(world.stores["site0"], "", answer.ticket) == 1
    assert (await first).is_new


@virtual.timed
async def test_two_labels_of_a_row_that_a_peer_delivers_at_once_are_one_taken_and_a_conflict() -> (
    None
):
    world = world_of()
    node = world.nodes["site0"]
    world.weather = Weather(commit_s=0.1)
    rows = [AskRow("a", "g1:0", 1, 1), AskRow("b", "g1:0", 2, 1)]
    await node.for_peers.assist(rows, source="site1")

    # The unknown id lets both wait for the disk after their labels were checked.
    deliveries = [[("a", label), ("unknown", 1), ("b", 1)] for label in (1, 0)]
    first, second = await asyncio.gather(
        *(node.for_peers.take_labels(labels, source="site1") for labels in deliveries)
    )

    assert first == ["taken", "unknown", "taken"]
    assert second == ["conflict", "unknown", "repeated"]


@virtual.timed
async def test_a_request_of_a_peer_is_never_passed_on() -> None:
    world = world_of(config(3))

    for k in range(50):
        row = AskRow(str(k), "g1:0", k + 1, 1)
        (answer,) = await world.nodes["site1"].for_peers.assist([row], source="site0")
        assert answer.function == "f1"

    assert world.counts["messages"] == 0


@virtual.timed
async def test_asking_twice_under_one_id_counts_once_at_the_peer() -> None:
    node = world_of(trust="full").nodes["site1"]
    for _ in range(2):
        await node.for_peers.assist([AskRow("r", "g1:0", 1, 1)], source="site0")
        await node.learn("r", 1, source="site0")

    assert dict(snapshot_of(node.learner).cells) == {"g1:0": [1, 1, 0, 1, 0, 1, 0, 0]}


def lying(**lies: Callable[[Any], Any]) -> type[virtual.Link]:
    """Return a link to a peer whose reports or answers are changed by a function."""

    class Lying(virtual.Link):
        async def report(self, cell: str, slot: int, what: Any = "arrivals") -> Report:
            report = await super().report(cell, slot)
            return lies.get("report", lambda report: report)(report)

        async def ask(self, rows: Sequence[AskRow]) -> list[Assistance]:
            lie = lies.get("answer", lambda answer: answer)
            return [lie(answer) for answer in await super().ask(rows)]

    return Lying


def test_a_peer_that_hides_its_arrivals_is_trained_no_more_than_an_honest_one() -> None:
    async def trainings(link: type[virtual.Link]) -> int:
        requests = await live(world_of(link=link), 300)
        return sum(request.group(0).phase == "train" for request in requests)

    honest = virtual.run(trainings(virtual.Link))
    lied = virtual.run(trainings(lying(report=lambda report: (0, *report[1:]))))

    assert 0 < honest < 100
    assert lied == honest


@pytest.mark.parametrize(
    "reports",
    [(-1, 0.0, 1.0), (2**60, 0.0, 1.0), (True, 0.0, 1.0), (1.5, 0.0, 1.0), (1, float("nan"), 1.0)],
)
@virtual.timed
async def test_an_invalid_report_is_a_failure_of_the_peer(reports: Any) -> None:
    world = world_of(link=lying(report=lambda _: (*reports, ())))

    requests = await live(world, 30)

    assert {request.function(0) for request in requests} == {"f0"}


@pytest.mark.parametrize("label", [None, float("nan"), [1], 2**70, object()])
@virtual.timed
async def test_an_answer_that_is_no_label_is_a_failure_of_the_peer(label: Any) -> None:
    world = world_of(link=lying(answer=lambda _: Assistance(label, "f1")))

    requests = await live(world, 30)

    assert {request.function(0) for request in requests} == {"f0"}


@virtual.timed
async def test_a_node_without_labels_decides_by_the_estimates_of_peers() -> None:
    setup = config()
    setup["learner"][0]["supervised"] = False
    world = World(setup, {"f0": lambda x: 1 - x, "f1": lambda x: x}, dimension=1)
    await live(world, 60, at="site1")

    first = await world.nodes["site0"].predict(1, (0.5,))
    world.down = {"site1"}
    alone = await world.nodes["site0"].predict(1, (0.5,))
    with pytest.raises(DataError, match="takes no labels"):
        await world.nodes["site0"].learn(first.ticket, 1)

    assert (first.arm, alone.function) == ("site1", "f0")


@pytest.mark.parametrize(("preset", "cells"), [("auto", 20), ("cos", 2)])
@virtual.timed
async def test_a_refusal_while_deciding_without_peers_leaves_all_peers_available(
    preset: str, cells: int
) -> None:
    """The first row cannot query the peer; the last one needs a cell more than allowed."""
    world = world_of(config(preset=preset, slices=4, **{"max-cells": cells}))
    node = world.nodes["site0"]
    costs = node.learner.costs
    world.down = {"site1"}

    with pytest.raises(LimitError):
        await node.answer([1, 1, 1], [(0.1,), (0.4,), (0.9,)])

    assert node.learner.costs == costs
    assert (node.learner.slot, node.state().open_tickets) == (0, 0)
    assert all(known[1] == 0 for _, known in snapshot_of(node.learner).cells)
    world.down = set()
    arms = set()
    for _ in range(40):
        request = await node.answer([1], [(0.1,)])
        await node.learn(request.id, 0)
        arms.add(request.group(0).arm)
    assert "site1" in arms


@virtual.timed
async def test_contexts_are_made_for_the_slot_that_the_request_gets() -> None:
    """Requests that wait for peers, fail or come with a slot of their own move the others."""
    world = world_of(config(slices=4))
    world.weather = Weather(delay_s=0.05, commit_s=0.01)
    node, made = world.nodes["site0"], list[tuple[str, int]]()

    def contexts(id_: str, rows: int) -> Callable[[int], list[tuple[float]]]:
        def of_slot(slot: int) -> list[tuple[float]]:
            made.append((id_, slot))
            return [((slot + row) / 1000,) for row in range(rows)]

        return of_slot

    async def answered(number: int, slot: int | None) -> Request | None:
        rows, asked = number % 3 + 1, Question("", str(number))
        instances = [None] * rows if number % 7 == 6 else [1] * rows
        await asyncio.sleep(number // 4 / 100)
        try:
            return await node.answer(instances, contexts(asked.id, rows), question=asked, slot=slot)
        except FunctionError:
            return None

    slots = [300 if number == 20 else None for number in range(40)]
    found = await asyncio.gather(*map(answered, range(40), slots))
    again = await answered(1, None)

    requests = [request for request in found if request is not None]
    assert 30 < len(requests) < 40
    assert len(made) == 40
    for request in requests:
        assert (request.id, request.slot) in made
        expected = [request.slot_of(row) / 1000 for row in range(len(request))]
        assert [request.context(row)[0] for row in range(len(request))] == expected
    assert again is found[1]
    assert max(request.slot for request in requests) >= 300


@pytest.mark.parametrize("preset", ["auto", "cos", "share-ucb"])
@virtual.timed
async def test_after_a_cancelled_request_a_restarted_node_has_the_counters_of_this_one(
    preset: str,
) -> None:
    world = world_of(config(3, preset, slices=4), seed=2)
    world.weather = Weather(delay_s=0.05, commit_s=0.01)
    chance = random.Random(2)  # noqa: S311
    for _ in range(40):
        node = world.nodes["site0"]
        asked = [asyncio.ensure_future(node.answer([1], [(chance.random(),)])) for _ in "abc"]
        await asyncio.sleep(0.2 * chance.random())
        for one in asked[:2]:
            one.cancel()
        await asyncio.wait(asked)
        await node.learn(asked[2].result().id, 1)
        before = picture(node._state)
        world.crash("site0")
        world.boot("site0")

        assert picture(world.nodes["site0"]._state) == before


class NotedCells(Store):
    """Has the latest cell and counters of each key, and those that were written unchanged."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.latest: dict[tuple[Any, ...], Any] = {}
        self.unchanged: list[Any] = []

    def write(self, commit: Commit) -> None:
        for record in commit.records:
            if isinstance(record, CellLine | CountedArm):
                key = (type(record), record.source, *msgspec.structs.astuple(record)[1:3])
                self.unchanged += [record] if self.latest.get(key) == record else []
                self.latest[key] = record
        super().write(commit)


class Noted(World):
    def store(self, name: str) -> Store:
        return self.stores.get(name) or NotedCells()


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
@virtual.timed
async def test_a_commit_writes_only_cells_that_are_new_or_changed(preset: str) -> None:
    setup = config(preset=preset)
    for learner in setup["learner"]:  # what labels were seen is stored, too
        learner["context-peers"] = learner["peers"]
        learner["peers"] = {}
    functions = {f"f{k}": lambda x: x for k in range(2)}
    world = Noted(setup, functions, dimension=1, timeouts=ONE_S)

    await live(world, 60)

    stores = [store for store in world.stores.values() if isinstance(store, NotedCells)]
    assert sum(len(store.latest) for store in stores) > 3
    assert [store.unchanged for store in stores] == [[], []]
