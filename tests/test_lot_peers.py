"""A batch asks every function and every peer once, and is answered whoever fails."""

import asyncio
from typing import Any

import numpy as np
import pytest

import virtual
from covey.desks import Trust
from covey.errors import FunctionError
from covey.node.node import Node
from covey.peers import Help, Request
from covey.types import Cell, Report
from lives import FUNCTIONS, GRID, POINTS, POLICIES, ROWS, config, live, row_of
from virtual import Link, Weather, World


class CountingLink(Link):
    """Notes how many rows each letter asks about."""

    async def ask(self, requests: Any) -> list[Help]:
        self._world.counts[f"asked for {len(requests)}"] += 1
        self._world.counts["rows asked"] += len(requests)
        return await super().ask(requests)

    async def report(self, cell: str, slot: int) -> Report:
        self._world.counts[f"reports of {cell}"] += 1
        return await super().report(cell, slot)


@pytest.mark.parametrize("preset", ["auto", "share-ucb", "cos-ce", "cos"])
def test_a_peer_is_asked_about_a_cell_once_in_a_batch_and_again_when_the_slot_doubled(
    preset: str,
) -> None:
    points = np.random.default_rng(0).random((500, 1))
    first, then, known = 9, 2, []  # 9 slots, each more than twice the one before, reach 500

    async def story(node: Node, world: World) -> None:
        for most in (first, then, then, then):
            lot = await node.predict_batch([1] * 500, points)
            await node.learn_many(lot.id, range(500), [1] * 500)
            reports = [count for name, count in world.counts.items() if name.startswith("reports")]
            known.append(sum(reports))
            assert max(reports, default=0) <= most
            assert world.counts["rows asked"] == sum(bool(lot.kind(row).peer) for row in range(500))
            world.counts.clear()
        assert node.ledger.alone == 0

    live(story, {"preset": preset, "slices": 4, "pending": True}, link=CountingLink)

    assert any(known)


def test_the_rest_of_a_batch_for_which_there_is_no_time_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(node: Node, world: World) -> None:
        world.weather = Weather(delay_s=0.3)
        for _ in range(3):
            lot = await node.predict_batch([1] * 64, np.linspace(0, 1, 64).reshape(64, 1))
            assert len(lot) == 64
        assert node.ledger.alone > 64
        await asyncio.sleep(60)
        await node.predict_batch([1] * 64, np.linspace(0, 1, 64).reshape(64, 1))

        lines = [one.message for one in caplog.records if one.name == "covey.counsel"]
        assert len(lines) == 2
        assert "rows were decided without peers: peer 'south' gave nothing in time" in lines[0]
        said = [int(line.split()[0]) for line in lines]
        assert sum(said) == node.ledger.alone

    live(story, {"preset": "share-ucb", "slices": 64, "pending": True})


def test_every_function_and_every_peer_is_called_once() -> None:
    sizes: dict[str, list[int]] = {"a": [], "b": []}

    class Counted:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, row: int) -> int:
            return 1

        def predict_batch(self, rows: list[int]) -> list[int]:
            sizes[self.name].append(len(rows))
            return [1] * len(rows)

    async def main() -> None:
        functions = FUNCTIONS | {name: Counted(name) for name in sizes}
        world = World(config(GRID), functions, dimension=1, trust="full", link=CountingLink)
        lot = await world.nodes["north"].predict_batch([0] * 60, np.full((60, 1), 0.1))

        share = sum(lot.kind(row).peer == "south" for row in range(60))
        assert share > 0
        assert world.counts[f"asked for {share}"] == 1
        assert world.counts["rows asked"] == share
        assert [len(calls) for calls in sizes.values()] == [1, 1]
        assert sum(map(sum, sizes.values())) == 60 - share

    virtual.run(main())


@pytest.mark.parametrize("name", ["grid", "zooming", "inheriting", "layered", "auto"])
@pytest.mark.parametrize("trust", ["full", "isolated"])
def test_a_function_that_fails_leaves_every_counter_as_it_was(name: str, trust: Trust) -> None:
    async def story(node: Node, world: World) -> None:
        await node.assist(Request("x", cell_of(node), 1, 3), source="south")
        lot = await node.predict_batch(ROWS, POINTS)
        await node.learn_many(lot.id, ROWS, [1] * 8)
        await node.drained()
        before = [known(one) for one in node._book.learners.values()]

        with pytest.raises(FunctionError, match="ValueError"):
            await node.predict_batch([*([1] * 40), "no number"] * 2, np.full((82, 1), 0.3))

        assert [known(one) for one in node._book.learners.values()] == before
        assert world.stores["north"].size()["tickets"] == 9

    functions = dict.fromkeys("abcde", int)

    async def main() -> None:
        world = World(config(POLICIES[name]), functions, dimension=1, trust=trust)
        await story(world.nodes["north"], world)

    virtual.run(main())


def cell_of(node: Node) -> str:
    partition = node.learner.policies[""].partition
    return str(partition.name(Cell(min(1, len(partition.levels(1)) - 1), (0,))))


def known(learner: Any) -> Any:
    """Return what is counted in cells that are not empty; what peers said stays heard."""
    tables, end = learner.tables.values(), learner._under_way.stop
    rows = [table.counters(row)[:end] for table in tables for row in range(len(table))]
    return [row for row in rows if any(row[1:])]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_with_its_peer_down_a_batch_is_answered_within_the_timeout(name: str) -> None:
    async def story(node: Node, world: World) -> None:
        world.down = {"south"}
        clock = asyncio.get_running_loop()
        for _ in range(6):
            before = clock.time()
            lot = await node.predict_batch([1] * 40, np.full((40, 1), 0.1))
            assert clock.time() - before <= 1.0 + 1e-9
            assert {lot.function(row) for row in range(40)} <= {"a", "b"}
            await node.learn_many(lot.id, range(40), [1] * 40)
        assert world.stores["north"].check() == []
        assert world.stores["north"].size() == {"tickets": 240, "labels": 240, "owed": 0}
        if POLICIES[name]["pending"]:
            (learner,) = node._book.learners.values()
            assert not any(any(under_way(learner, row)) for row in range(learner.known_cells))

    live(story, POLICIES[name])


def under_way(learner: Any, row: int) -> list[int]:
    return learner.tables[""].counters(row)[learner._under_way]


class FailingLink(Link):
    """Reports, but does not answer."""

    async def ask(self, requests: Any) -> list[Help]:
        raise OSError("cut off")


def test_rows_of_a_peer_that_fails_when_asked_are_decided_anew() -> None:
    async def story(node: Node, world: World) -> None:
        lot = await node.predict_batch([1] * 60, np.full((60, 1), 0.1))
        alone = World(config(GRID), FUNCTIONS, dimension=1, trust="full")
        asked = await alone.nodes["north"].predict_batch([1] * 60, np.full((60, 1), 0.1))

        assert {asked.kind(row).peer for row in range(60)} == {"", "south"}
        assert {lot.kind(row).peer for row in range(60)} == {""}
        for row in range(60):
            if not asked.kind(row).peer:
                assert row_of(lot, row) == row_of(asked, row)
        await node.learn_many(lot.id, range(60), [1] * 60)
        rows = range(node.learner.known_cells)
        assert not any(any(under_way(node.learner, row)) for row in rows)
        (arrivals,) = [node.learner.tables[""].arrivals(row) for row in rows]
        assert arrivals == 60

    live(story, link=FailingLink)


def test_where_a_peer_has_no_answer_the_own_best_function_has_one() -> None:
    async def story(node: Node, world: World) -> None:
        east = world.nodes["east"]
        lot = await east.predict_batch([5] * 40, np.full((40, 1), 0.1))
        asked = [row for row in range(40) if lot.kind(row).peer]

        assert asked
        assert {lot.function(row) for row in asked} == {"e"}
        assert {lot.answers[row] for row in asked} == {FUNCTIONS["e"](5)}
        await east.learn_many(lot.id, range(40), [1] * 40)
        kept = world.stores["east"].find("", lot.id)
        assert [row_of(kept, row) for row in range(40)] == [row_of(lot, row) for row in range(40)]
        rights = [right for _, right in world.stores["east"].counters().values()]
        assert sum(rights) == (40 - len(asked)) * (FUNCTIONS["e"](5) == 1)
        await east.drained()
        assert world.stores["north"].size()["labels"] == len(asked)

    live(story)


def test_labels_owed_for_rows_reach_the_peer_after_a_restart_too() -> None:
    async def story(node: Node, world: World) -> None:
        lot = await node.predict_batch([1] * 60, np.full((60, 1), 0.1))
        asked = sum(kind.peer == "south" for kind in map(lot.kind, range(60)))
        world.down = {"south"}
        await node.learn_many(lot.id, range(60), [1] * 60)
        assert world.stores["north"].size()["owed"] == asked > 0
        world.crash("north")
        world.down = set()
        world.boot("north")
        await world.nodes["north"].drained()

        assert world.stores["south"].size() == {"tickets": asked, "labels": asked, "owed": 0}
        assert world.nodes["north"]._book.asked(lot.kind(59).cell, "south") == asked

    live(story)
