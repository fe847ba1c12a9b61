"""Labels of a batch are taken all or none, kept as they are, and taught once."""

from typing import Any

import pytest

import virtual
from covey.errors import (
    ConflictingLabel,
    DataError,
    FunctionError,
    LateLabel,
    StoreError,
    UnknownTicket,
)
from covey.node.node import Node
from lives import GRID, POINTS, ROWS, counters, live
from virtual import World


def test_labels_are_taken_all_or_none() -> None:
    async def story(node: Node, world: World) -> None:
        lot = await node.predict_batch(ROWS, POINTS)
        done = await node.learn_many(lot.id, [3, 1], [lot.predictions[3], "x"])
        assert (done.is_new, done.is_right) == ([True, True], [True, False])
        before = world.stores["north"].counters(), counters(node.learner)

        with pytest.raises(ConflictingLabel, match="row 1 of .* was settled with 'x'"):
            await node.learn_many(lot.id, [0, 1], [1, "y"])
        with pytest.raises(ConflictingLabel, match="row 0 of .* is given two labels"):
            await node.learn_many(lot.id, [0, 0], [1, 0])
        with pytest.raises(DataError, match="rows from 0 to 7"):
            await node.learn_many(lot.id, [0, 8], [1, 1])
        with pytest.raises(DataError, match="rows from 0 to 7"):
            await node.learn_many(lot.id, [-1], [1])
        with pytest.raises(DataError, match="2 rows and 1 labels"):
            await node.learn_many(lot.id, [0, 1], [1])
        with pytest.raises(DataError, match="label"):
            await node.learn_many(lot.id, [0], [None])
        with pytest.raises(UnknownTicket):
            await node.learn_many("x", [0], [1])
        with pytest.raises(UnknownTicket):
            await node.learn_many(lot.id, [0], [1], source="client/other")

        assert (world.stores["north"].counters(), counters(node.learner)) == before
        done = await node.learn_many(lot.id, [1, 0, 0], ["x", 1, 1])
        assert done.is_new == [False, True]

    live(story)


def test_labels_keep_their_type_through_a_restart() -> None:
    told = [1, True, 1.5, "1", "ä", 0, False, -2.0]

    async def story(node: Node, world: World) -> None:
        lot = await node.predict_batch(ROWS, POINTS)
        await node.learn_many(lot.id, ROWS, told)
        kept = world.stores["north"].find("", lot.id)

        assert [(type(one), one) for one in kept.truths] == [(type(one), one) for one in told]

    live(story)


def test_a_lot_ends_as_a_whole_and_its_labels_are_then_late() -> None:
    async def story(node: Node, world: World) -> None:
        lot = await node.predict_batch(ROWS, POINTS)
        await node.learn_many(lot.id, [2], [1])
        for _ in range(3):
            await node.predict(1, (0.5,))
        assert (await node.learn_many(lot.id, [3], [1])).is_new == [True]
        await node.predict(1, (0.5,))
        held = node._book.held("")

        with pytest.raises(LateLabel, match="row 0"):
            await node.learn_many(lot.id, [2, 0], [1, 1])
        assert (await node.learn_many(lot.id, [2], [1])).is_new == [False]
        with pytest.raises(ConflictingLabel):
            await node.learn_many(lot.id, [2], [0])
        assert held == 4
        before = counters(node.learner)
        world.crash("north")
        world.boot("north")
        assert counters(world.nodes["north"].learner) == before
        with pytest.raises(LateLabel):
            await world.nodes["north"].learn_many(lot.id, [0], [1])

    live(story, {**GRID, "label-wait": 3})


@pytest.mark.parametrize("teaches_many", [True, False])
def test_labels_of_rows_teach_once_what_answered_them(teaches_many: bool) -> None:
    taught: list[tuple[Any, Any]] = []

    class Pupil:
        def predict(self, rows: Any) -> list[int]:
            return [1 for _ in rows]

        def partial_fit(self, rows: Any, labels: Any) -> None:
            if 9 in labels:
                raise ValueError("nine")
            taught.extend(zip(rows, labels, strict=True))

    def learn(row: Any, label: Any) -> None:
        Pupil().partial_fit([row], [label])

    pupil = Pupil() if teaches_many else (lambda row: 1, learn)

    async def main() -> None:
        setup = {"policy": GRID, "learner": [{"name": "north", "functions": ["pupil"]}]}
        world = World(setup, {"pupil": pupil}, dimension=1)
        node = world.nodes["north"]
        lot = await node.predict_batch(ROWS, POINTS)
        await node.learn_many(lot.id, [2, 0], [1, 0])
        await node.learn_many(lot.id, [2, 5], [1, 0])
        before = world.stores["north"].counters()
        with pytest.raises(FunctionError, match="nine"):
            await node.learn_many(lot.id, [6, 7], [1, 9])
        assert world.stores["north"].counters() == before
        await node.learn_many(lot.id, [6, 7], [1, 1])
        world.crash("north")
        world.boot("north")
        await world.nodes["north"].learn_many(lot.id, [1], [1])

    virtual.run(main())
    assert taught == [(2, 1), (0, 0), (5, 0), (6, 1), (7, 1)]


def test_a_label_that_was_tampered_with_is_found() -> None:
    async def story(node: Node, world: World) -> None:
        lot = await node.predict_batch(ROWS, POINTS)
        await node.learn_many(lot.id, ROWS, [1] * 8)
        store = world.stores["north"]
        assert store.check() == []

        store._base.execute("UPDATE lot_labels SET right = zeroblob(8)")
        assert any("labelled tickets have 0" in one for one in store.check())
        store._base.execute(
            "INSERT INTO lot_labels VALUES (?, 9, 1, zeroblob(4), '[1]', zeroblob(1))",
            (lot.number,),
        )
        with pytest.raises(StoreError, match="two labels"):
            store.check()

    live(story)
