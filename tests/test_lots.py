"""A batch through a node decides, counts and settles as its rows would one at a time."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import virtual
from covey.books import Question
from covey.desks import Trust
from covey.errors import ConflictingLabel, ContextError, DataError, LimitError, UnknownRow
from covey.node.node import Limits, Node
from covey.policies import INDEXED
from lives import (
    FUNCTIONS,
    GRID,
    POINTS,
    POLICIES,
    ROWS,
    Life,
    SteadyLink,
    live,
    row_of,
    script_of,
    world_of,
)
from virtual import Link, Weather, World

BY_INDEX = sorted(name for name, policy in POLICIES.items() if policy["preset"] in INDEXED)
BY_PHASE = sorted(set(POLICIES) - {"eliminating", *BY_INDEX})


def lived(name: str, trust: Trust, script: list[Any], *, is_batched: bool) -> list[Any]:
    async def main() -> list[Any]:
        world = world_of(POLICIES[name], trust, link=Link if is_batched else SteadyLink)
        return await Life(world, is_batched=is_batched).run(script)

    return virtual.run(main())


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=8)
@given(trust=st.sampled_from(["full", "isolated", "robust"]), seed=st.integers(0, 2**31))
def test_a_batch_is_its_rows_one_at_a_time(name: str, trust: Trust, seed: int) -> None:
    script = script_of(seed, restarts=False)

    assert lived(name, trust, script, is_batched=True) == lived(
        name, trust, script, is_batched=False
    )


@pytest.mark.parametrize("name", ["auto", "eliminating", "layered", "grid"])
def test_a_large_batch_goes_by_what_peers_said_at_its_first_row_of_a_cell(name: str) -> None:
    chance = random.Random(1)  # noqa: S311
    script: list[Any] = []
    for step in range(0, 12, 2):
        script.append(("predict", [chance.random() for _ in range(60)]))
        labels = [int(chance.random() < 0.6) for _ in range(30)]
        script.append(("learn", str(step), chance.sample(range(60), 30), labels))

    assert lived(name, "isolated", script, is_batched=True) == lived(
        name, "isolated", script, is_batched=False
    )


@pytest.mark.parametrize("name", BY_PHASE)
@settings(max_examples=8)
@given(trust=st.sampled_from(["full", "isolated", "robust"]), seed=st.integers(0, 2**31))
def test_restarts_between_batches_change_nothing(name: str, trust: Trust, seed: int) -> None:
    script = script_of(seed, restarts=True)

    assert lived(name, trust, script, is_batched=True) == lived(
        name, trust, script, is_batched=False
    )


@pytest.mark.parametrize("name", BY_INDEX)
@settings(max_examples=8)
@given(trust=st.sampled_from(["full", "isolated", "robust"]), seed=st.integers(0, 2**31))
def test_restarts_between_batches_change_nothing_that_an_index_decides(
    name: str, trust: Trust, seed: int
) -> None:
    """Cells that a peer was asked about and knows nothing of need not be known after a start."""
    script = script_of(seed, restarts=True)
    lives = [lived(name, trust, script, is_batched=is_batched) for is_batched in (True, False)]

    one, other = ([said for said in life if not isinstance(said, list)] for life in lives)
    assert one == other


ASKED = Question("", "a", "digest")


def test_a_batch_is_one_record_and_so_are_labels_that_come_together() -> None:
    async def story(node: Node, world: World) -> None:
        lot = await node.predict_batch(ROWS, POINTS)
        await node.learn_many(lot.id, ROWS, [1] * 8)

        base = world.stores["north"]._base
        tables = ("tickets", "lots", "lot_labels")
        counts = [base.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in tables]  # noqa: S608
        assert counts == [0, 1, 1]
        assert world.stores["north"].size() == {"tickets": 8, "labels": 8, "owed": 0}
        assert sum(labels for labels, _ in world.stores["north"].counters().values()) > 0

    live(story)


def test_the_same_batch_again_gets_the_same_lot_also_after_a_restart() -> None:
    async def story(node: Node, world: World) -> None:
        first = await node.predict_batch(ROWS, POINTS, question=ASKED)
        assert await node.predict_batch(ROWS, POINTS, question=ASKED) is first
        world.crash("north")
        world.boot("north")
        node = world.nodes["north"]
        again = await node.predict_batch(ROWS, POINTS, question=ASKED)

        assert [row_of(again, k) for k in ROWS] == [row_of(first, k) for k in ROWS]
        assert node.learner.slot == 8

    live(story)


def test_the_same_batch_twice_at_once_gets_one_lot() -> None:
    async def story(node: Node, world: World) -> None:
        world.weather = Weather(commit_s=0.01)
        asked = [node.predict_batch(ROWS, POINTS, question=ASKED) for _ in range(2)]
        first, again = await asyncio.gather(*asked)

        assert again is first

    live(story)


def test_an_id_stands_for_one_question_whatever_its_form() -> None:
    async def story(node: Node, world: World) -> None:
        await node.predict_batch(ROWS, POINTS, question=ASKED)
        await node.predict(1, (0.5,), question=Question("", "b"))

        with pytest.raises(ConflictingLabel, match="was used for another question"):
            await node.predict_batch(ROWS, POINTS, question=Question("", "a", "other"))
        with pytest.raises(ConflictingLabel):
            await node.predict(1, (0.5,), question=ASKED)
        with pytest.raises(ConflictingLabel):
            await node.predict_batch(ROWS, POINTS, question=Question("", "b"))
        with pytest.raises(DataError, match="has 8 rows; say of which"):
            await node.learn("a", 1)
        with pytest.raises(UnknownRow, match="'b' has one row, which is 0; speak of no other"):
            await node.learn_many("b", [0, 1], [1, 1])

    live(story)


def test_more_rows_than_there_is_room_for_are_refused() -> None:
    class Small(World):
        limits = Limits(tickets=15)

    async def story(node: Node, world: World) -> None:
        await node.predict_batch(ROWS, POINTS)
        with pytest.raises(LimitError, match="8 tickets are held"):
            await node.predict_batch(ROWS, POINTS)
        await node.predict_batch(ROWS[:7], POINTS[:7])

    live(story, kind=Small)


@pytest.mark.parametrize(
    ("rows", "points", "sentence"),
    [
        ([], [], "no rows"),
        ([1, 2], [(0.5,)], "2 instances and 1 contexts"),
        ([1, 2], [(0.5,), (1.5,)], "row 1 of the batch: context coordinate 0 is 1.5"),
        ([1, 2], [(0.5,), (float("nan"),)], "row 1 of the batch"),
        ([1, 2], [(0.5,), ()], "not 1 numbers in every row"),
        ([1, 2], [(0.5, 0.5), (0.5, 0.5)], "2 coordinates; this learner's have 1"),
        ([1, 2], None, "0 coordinates"),
    ],
)
def test_rows_that_do_not_fit_get_a_sentence(rows: Any, points: Any, sentence: str) -> None:
    async def story(node: Node, world: World) -> None:
        with pytest.raises((DataError, ContextError), match=sentence):
            await node.predict_batch(rows, points)
        assert node.learner.slot == 0

    live(story)


def test_contexts_without_coordinates_are_fine() -> None:
    async def main() -> None:
        setup = {"policy": GRID, "learner": [{"name": "north", "functions": ["a"]}]}
        world = World(setup, FUNCTIONS, dimension=0)
        lot = await world.nodes["north"].predict_batch([1, 2, 3])
        world.crash("north")
        world.boot("north")
        await world.nodes["north"].learn_many(lot.id, [0, 1, 2], [1, 1, 1])

        assert world.stores["north"].check() == []
        assert [labels for labels, _ in world.stores["north"].counters().values()] == [3]

    virtual.run(main())


def test_a_batch_stands_in_the_state_of_a_site_as_its_rows_would() -> None:
    script = script_of(7, restarts=False)

    async def state(*, is_batched: bool) -> Any:
        world = world_of(GRID)
        await Life(world, is_batched=is_batched).run(script)
        node = world.nodes["north"]
        one, ledger = node.state(), node.ledger
        spent = {arm: round(price, 9) for arm, price in ledger.spent.items()}
        return one.phases, one.open_tickets, ledger.labels, ledger.right, ledger.waits, spent

    batched, single = (virtual.run(state(is_batched=one)) for one in (True, False))
    assert batched == single
    assert sum(batched[0].values()) > 20
