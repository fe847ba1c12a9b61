"""A request of many rows decides, counts and settles as its rows would one at a time."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.errors import ConflictingLabel, DataError, LateLabel, UnknownRow, UnknownTicket
from covey.node.node import Node, Question
from covey.site.trust import Trust
from support import virtual
from support.lives import (
    FUNCTIONS,
    GRID,
    POINTS,
    POLICIES,
    ROWS,
    Life,
    SteadyLink,
    known,
    live,
    row_of,
    script_of,
    world_of,
)
from support.presets import INDEXED
from support.virtual import Link, Weather, World

ASKED = Question("", "a", "digest")
EACH_SIZE = pytest.mark.parametrize("count", [1, 8], ids=["1 row", "n rows"])


def run(name: str, trust: Trust, script: list[Any], *, is_batched: bool) -> list[Any]:
    async def main() -> list[Any]:
        world = world_of(POLICIES[name], trust, link=Link if is_batched else SteadyLink)
        return await Life(world, is_batched=is_batched).run(script)

    return virtual.run(main())


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=8)
@given(trust=st.sampled_from(["full", "isolated"]), seed=st.integers(0, 2**31))
def test_a_request_of_many_rows_equals_requests_of_one_row(
    name: str, trust: Trust, seed: int
) -> None:
    script = script_of(seed, restarts=False)

    many, single = (run(name, trust, script, is_batched=one) for one in (True, False))
    assert many == single


@pytest.mark.parametrize("name", ["auto", "grid"])
def test_a_large_request_uses_what_peers_reported_at_its_first_row_of_a_cell(name: str) -> None:
    chance = random.Random(1)  # noqa: S311
    script: list[Any] = []
    for step in range(0, 12, 2):
        script.append(("predict", [chance.random() for _ in range(60)]))
        labels = [int(chance.random() < 0.6) for _ in range(30)]
        script.append(("learn", str(step), chance.sample(range(60), 30), labels))

    many, single = (run(name, "isolated", script, is_batched=one) for one in (True, False))
    assert many == single


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=8)
@given(trust=st.sampled_from(["full", "isolated"]), seed=st.integers(0, 2**31))
def test_restarts_between_requests_change_nothing(name: str, trust: Trust, seed: int) -> None:
    """Cells in which an index knows nothing of a peer need not be known after a start."""
    script = script_of(seed, restarts=True)
    many, single = (run(name, trust, script, is_batched=one) for one in (True, False))
    if POLICIES[name]["preset"] in INDEXED:
        many, single = ([one for one in life if type(one) is not list] for life in (many, single))

    assert many == single


@EACH_SIZE
def test_a_request_is_one_record_and_so_are_labels_that_arrive_together(count: int) -> None:
    async def story(node: Node, world: World) -> None:
        request = await node.answer(ROWS[:count], POINTS[:count])
        await node.learn_rows(request.id, ROWS[:count], [1] * count)

        store = world.stores["north"]
        tables = ("requests", "labels")
        counts = [store._base.execute(f"SELECT COUNT(*) FROM {one}").fetchone() for one in tables]  # noqa: S608
        assert counts == [(1,), (1,)]
        assert store.size() == {"requests": 1, "rows": count, "labels": count, "deliveries": 0}
        assert sum(labels for labels, _ in store.counters().values()) > 0

    live(story)


@EACH_SIZE
def test_the_same_question_again_gets_the_same_request_also_after_a_restart(count: int) -> None:
    rows, points = ROWS[:count], POINTS[:count]

    async def story(node: Node, world: World) -> None:
        first = await node.answer(rows, points, question=ASKED)
        assert await node.answer(rows, points, question=ASKED) is first
        world.crash("north")
        world.boot("north")
        node = world.nodes["north"]
        again = await node.answer(rows, points, question=ASKED)

        assert [row_of(again, k) for k in rows] == [row_of(first, k) for k in rows]
        assert node.learner.slot == count

    live(story)


@EACH_SIZE
def test_the_same_question_twice_at_the_same_time_gets_one_request(count: int) -> None:
    async def story(node: Node, world: World) -> None:
        world.weather = Weather(commit_s=0.01)
        asked = [node.answer(ROWS[:count], POINTS[:count], question=ASKED) for _ in range(2)]
        first, again = await asyncio.gather(*asked)

        assert again is first

    live(story)


def test_an_id_belongs_to_one_question_whatever_its_size() -> None:
    async def story(node: Node, world: World) -> None:
        await node.answer(ROWS, POINTS, question=ASKED)
        await node.predict(1, (0.5,), question=Question("", "b"))

        with pytest.raises(ConflictingLabel, match="'a' was used for another request"):
            await node.answer(ROWS, POINTS, question=Question("", "a", "other"))
        with pytest.raises(ConflictingLabel, match="choose another"):
            await node.predict(1, (0.5,), question=ASKED)
        with pytest.raises(ConflictingLabel):
            await node.answer(ROWS, POINTS, question=Question("", "b"))
        with pytest.raises(DataError, match="has 8 rows; say of which"):
            await node.learn("a", 1)
        with pytest.raises(UnknownRow, match="'b' has one row, which is 0; there is no row 1"):
            await node.learn_rows("b", [0, 1], [1, 1])

    live(story)


@EACH_SIZE
@virtual.timed
async def test_contexts_without_coordinates_are_allowed(count: int) -> None:
    setup = {"policy": GRID, "learner": [{"name": "north", "functions": ["a"]}]}
    world = World(setup, FUNCTIONS, dimension=0)
    request = await world.nodes["north"].answer(ROWS[:count])
    world.crash("north")
    world.boot("north")
    await world.nodes["north"].learn_rows(request.id, ROWS[:count], [1] * count)

    assert world.stores["north"].check() == []
    assert [labels for labels, _ in world.stores["north"].counters().values()] == [count]


def test_the_status_of_a_site_counts_rows_not_requests() -> None:
    script = script_of(7, restarts=False)

    async def status(*, is_batched: bool) -> Any:
        world = world_of(GRID)
        await Life(world, is_batched=is_batched).run(script)
        node = world.nodes["north"]
        one, counted = node.state(), node.counters
        spent = {arm: round(price, 9) for arm, price in counted.spent.items()}
        return one.phases, one.open_tickets, counted.labels, counted.right, counted.waits, spent

    many, single = (virtual.run(status(is_batched=one)) for one in (True, False))
    assert many == single
    assert sum(many[0].values()) > 20


# -- labels of a request are accepted all or none, and a request closes as a whole ----------------


def test_labels_are_accepted_all_or_none() -> None:
    async def story(node: Node, world: World) -> None:
        request = await node.answer(ROWS, POINTS)
        done = await node.learn_rows(request.id, [3, 1], [request.predictions[3], 7])
        assert (done.is_new, done.is_right) == ([True, True], [True, False])
        before = world.stores["north"].counters(), known(node)

        with pytest.raises(ConflictingLabel, match="row 1 of .* has the label 7; the conflicting"):
            await node.learn_rows(request.id, [0, 1], [1, 8])
        with pytest.raises(ConflictingLabel, match="row 0 of .* is given two labels"):
            await node.learn_rows(request.id, [0, 0], [1, 0])
        with pytest.raises(DataError, match="has rows 0 to 7; there is no row"):
            await node.learn_rows(request.id, [0, 8], [1, 1])
        with pytest.raises(DataError, match="has rows 0 to 7; there is no row"):
            await node.learn_rows(request.id, [-1], [1])
        with pytest.raises(DataError, match="2 rows and 1 labels"):
            await node.learn_rows(request.id, [0, 1], [1])
        with pytest.raises(DataError, match="label"):
            await node.learn_rows(request.id, [0], [None])
        with pytest.raises(UnknownTicket):
            await node.learn_rows("x", [0], [1])
        with pytest.raises(UnknownTicket):
            await node.learn_rows(request.id, [0], [1], source="client/other")

        assert (world.stores["north"].counters(), known(node)) == before
        done = await node.learn_rows(request.id, [1, 0, 0], [7, 1, 1])
        assert done.is_new == [False, True]

    live(story)


def test_a_request_closes_as_a_whole_and_its_labels_are_then_late() -> None:
    async def story(node: Node, world: World) -> None:
        request = await node.answer(ROWS, POINTS)
        await node.learn_rows(request.id, [2], [1])
        for _ in range(3):
            await node.predict(1, (0.5,))
        assert (await node.learn_rows(request.id, [3], [1])).is_new == [True]
        await node.predict(1, (0.5,))
        held = node._state.open.held("")

        with pytest.raises(LateLabel, match="row 0"):
            await node.learn_rows(request.id, [2, 0], [1, 1])
        assert (await node.learn_rows(request.id, [2], [1])).is_new == [False]
        with pytest.raises(ConflictingLabel):
            await node.learn_rows(request.id, [2], [0])
        assert held == 4
        before = known(node)
        world.crash("north")
        world.boot("north")
        assert known(world.nodes["north"]) == before
        with pytest.raises(LateLabel):
            await world.nodes["north"].learn_rows(request.id, [0], [1])

    live(story, {**GRID, "label-wait": 3})
