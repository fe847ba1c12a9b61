"""A request calls every function and every peer once, and is answered if a peer fails."""

import asyncio
from typing import Any

import numpy as np
import pytest

from covey.errors import FunctionError
from covey.kernel.rules import Cell, Report
from covey.node.node import Node
from covey.site.requests import AskRow, Assistance
from covey.site.trust import Trust
from support import virtual
from support.lives import FUNCTIONS, GRID, POINTS, POLICIES, ROWS, config, live, row_of
from support.presets import fitting
from support.virtual import Link, Weather, World


class CountingLink(Link):
    """Notes how many rows each message asks about."""

    async def ask(self, rows: Any) -> list[Assistance]:
        self._world.counts[f"asked for {len(rows)}"] += 1
        self._world.counts["rows asked"] += len(rows)
        return await super().ask(rows)

    async def report(self, cell: str, slot: int, what: Any = "arrivals") -> Report:
        self._world.counts[f"reports of {cell}"] += 1
        return await super().report(cell, slot, what)


@pytest.mark.parametrize("preset", ["auto", "share-ucb", "cos"])
def test_a_peer_reports_on_a_cell_once_in_a_request_and_again_when_the_slot_doubled(
    preset: str,
) -> None:
    points = np.random.default_rng(0).random((500, 1))
    first, then, known = 9, 2, []  # 9 slots, each more than twice the one before, reach 500

    async def story(node: Node, world: World) -> None:
        for most in (first, then, then, then):
            request = await node.answer([1] * 500, points)
            await node.learn_rows(request.id, range(500), [1] * 500)
            reports = [count for name, count in world.counts.items() if name.startswith("reports")]
            known.append(sum(reports))
            assert max(reports, default=0) <= most
            assert world.counts["rows asked"] == sum(
                bool(request.group(row).peer) for row in range(500)
            )
            world.counts.clear()
        assert node.counters.alone == 0

    live(story, fitting({"preset": preset, "slices": 4, "pending": True}), link=CountingLink)

    assert any(known)


def test_rows_for_which_there_is_no_time_are_decided_without_peers_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(node: Node, world: World) -> None:
        world.weather = Weather(delay_s=0.3)
        for _ in range(3):
            request = await node.answer([1] * 64, np.linspace(0, 1, 64).reshape(64, 1))
            assert len(request) == 64
        assert node.counters.alone > 64
        await asyncio.sleep(60)
        await node.answer([1] * 64, np.linspace(0, 1, 64).reshape(64, 1))

        lines = [
            record.message for record in caplog.records if record.name == "covey.node.functions"
        ]
        assert len(lines) == 2
        assert "rows were decided without peers (peer 'south' gave no answer in time)" in lines[0]
        said = [int(line.split()[0]) for line in lines]
        assert sum(said) == node.counters.alone

    live(story, {"preset": "share-ucb", "slices": 64, "pending": True})


@virtual.timed
async def test_every_function_and_every_peer_is_called_once() -> None:
    sizes: dict[str, list[int]] = {name: [] for name in "abcd"}

    class Counted:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, row: int) -> int:
            sizes[self.name].append(1)
            return 1

        def predict_batch(self, rows: list[int]) -> list[int]:
            sizes[self.name].append(len(rows))
            return [1] * len(rows)

    functions = FUNCTIONS | {name: Counted(name) for name in sizes}
    world = World(config(GRID), functions, dimension=1, trust="full", link=CountingLink)
    request = await world.nodes["north"].answer([0] * 60, np.full((60, 1), 0.1))

    share = sum(request.group(row).peer == "south" for row in range(60))
    assert share > 0
    assert world.counts[f"asked for {share}"] == 1
    assert world.counts["rows asked"] == share
    assert [len(sizes[name]) for name in "ab"] == [1, 1]
    assert sum(sizes["a"] + sizes["b"]) == 60 - share
    assert max(len(sizes[name]) for name in "cd") == 1
    assert sum(sizes["c"] + sizes["d"]) == share
    assert world.stores["south"].size()["requests"] == 1


@pytest.mark.parametrize("name", ["grid", "zooming", "inheriting", "auto"])
@pytest.mark.parametrize("trust", ["full", "isolated"])
@virtual.timed
async def test_a_function_that_fails_leaves_every_counter_as_it_was(
    name: str, trust: Trust
) -> None:
    async def story(node: Node, world: World) -> None:
        await node.for_peers.assist([AskRow("x", cell_of(node), 1, 3)], source="south")
        request = await node.answer(ROWS, POINTS)
        await node.learn_rows(request.id, ROWS, [1] * 8)
        await node.drained()
        before = counted(node)

        with pytest.raises(FunctionError, match="ValueError"):
            await node.answer([*([1] * 40), "no number"] * 2, np.full((82, 1), 0.3))

        assert counted(node) == before
        assert world.stores["north"].size()["rows"] == 9
        rows = [AskRow(f"y:{k}", cell_of(node), 9, one) for k, one in enumerate([1, "no number"])]
        with pytest.raises(FunctionError, match="ValueError"):
            await node.for_peers.assist(rows, source="south")
        assert counted(node) == before
        assert world.stores["north"].size()["rows"] == 9

    functions = dict.fromkeys("abcde", int)

    world = World(config(POLICIES[name]), functions, dimension=1, trust=trust)
    await story(world.nodes["north"], world)


def cell_of(node: Node) -> str:
    partition = node.learner.policies[""].partition
    return str(partition.name(Cell(min(1, len(partition.levels(1)) - 1), (0,))))


def counted(node: Node) -> Any:
    """Return what is counted in cells that are not empty; reports of peers stay known."""
    overlays = [overlay.tables for overlay in node._state.sources._overlays.values()]
    tables = [table for one in [node.learner.tables, *overlays] for table in one.values()]
    arms = range(len(node.learner.arms))
    rows = []
    for k, table in enumerate(tables):
        for row in rows_of(table):
            labels = [count for arm in arms for count in table.record(row, arm)]
            rows.append(
                (
                    k,
                    [
                        table.cells.arrivals(row),
                        table.cells.own(row),
                        *labels,
                        *table.saved.pending(row),
                    ],
                )
            )
    return [row for row in rows if any(row[1])]


def rows_of(table: Any) -> range:
    return range(len(table))


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_request_is_answered_within_the_timeout_if_its_peer_is_down(name: str) -> None:
    async def story(node: Node, world: World) -> None:
        world.down = {"south"}
        clock = asyncio.get_running_loop()
        for _ in range(6):
            before = clock.time()
            request = await node.answer([1] * 40, np.full((40, 1), 0.1))
            assert clock.time() - before <= 1.0 + 1e-9
            assert {request.function(row) for row in range(40)} <= {"a", "b"}
            await node.learn_rows(request.id, range(40), [1] * 40)
        assert world.stores["north"].check() == []
        assert world.stores["north"].size() == {
            "requests": 6,
            "rows": 240,
            "labels": 240,
            "deliveries": 0,
        }
        if POLICIES[name]["pending"]:
            assert not any(pending(node))

    live(story, POLICIES[name])


def pending(node: Node) -> list[int]:
    """Return the pending labels of each cell and arm."""
    table = node.learner.tables[""]
    return [count for row in rows_of(table) for count in table.saved.pending(row)]


class HalfDeadLink(Link):
    """Carries no report of south."""

    async def report(self, cell: str, slot: int, what: Any = "arrivals") -> Report:
        if self._name == "south":
            raise OSError("cut off")
        return await super().report(cell, slot, what)


@pytest.mark.parametrize("preset", ["auto", "share-ucb", "cos"])
@virtual.timed
async def test_a_request_is_decided_with_the_other_peers_where_one_cannot_report(
    preset: str,
) -> None:
    policy = fitting({"preset": preset, "slices": 1, "pending": True})
    learners = [
        {"name": "north", "functions": ["a"], "peers": {"south": 0.0, "east": 0.0}},
        {"name": "south", "functions": ["b"], "peers": {}},
        {"name": "east", "functions": ["c"], "peers": {}},
    ]

    setup = {"policy": policy, "learner": learners}
    world = World(setup, FUNCTIONS, dimension=1, trust="full", link=HalfDeadLink)
    node = world.nodes["north"]
    for _ in range(2):
        request = await node.answer([1] * 40, np.full((40, 1), 0.1))
        await node.learn_rows(request.id, range(40), [FUNCTIONS["c"](1)] * 40)
        assert {request.group(row).peer for row in range(40)} - {""} == {"east"}
    assert node.counters.alone == 0


class FailingLink(Link):
    """Reports, but does not answer."""

    async def ask(self, rows: Any) -> list[Assistance]:
        raise OSError("cut off")


def test_rows_of_a_peer_that_fails_when_asked_are_decided_again() -> None:
    async def story(node: Node, world: World) -> None:
        request = await node.answer([1] * 60, np.full((60, 1), 0.1))
        alone = World(config(GRID), FUNCTIONS, dimension=1, trust="full")
        asked = await alone.nodes["north"].answer([1] * 60, np.full((60, 1), 0.1))

        assert {asked.group(row).peer for row in range(60)} == {"", "south"}
        assert {request.group(row).peer for row in range(60)} == {""}
        for row in range(60):
            if not asked.group(row).peer:
                assert row_of(request, row) == row_of(asked, row)
        await node.learn_rows(request.id, range(60), [1] * 60)
        assert not any(pending(node))
        table = node.learner.tables[""]
        assert [table.cells.arrivals(row) for row in rows_of(table)] == [60]

    live(story, link=FailingLink)


def test_the_best_own_function_answers_where_a_peer_has_no_answer() -> None:
    async def story(node: Node, world: World) -> None:
        east = world.nodes["east"]
        request = await east.answer([5] * 40, np.full((40, 1), 0.1))
        asked = [row for row in range(40) if request.group(row).peer]

        assert asked
        assert {request.function(row) for row in asked} == {"e"}
        assert {request.answers[row] for row in asked} == {FUNCTIONS["e"](5)}
        await east.learn_rows(request.id, range(40), [1] * 40)
        found = world.stores["east"].find("", request.id)
        assert found is not None
        assert [row_of(found[0], k) for k in range(40)] == [row_of(request, k) for k in range(40)]
        rights = [right for _, right in world.stores["east"].counters().values()]
        assert sum(rights) == (40 - len(asked)) * (FUNCTIONS["e"](5) == 1)
        await east.drained()
        assert world.stores["north"].size()["labels"] == len(asked)

    live(story)
