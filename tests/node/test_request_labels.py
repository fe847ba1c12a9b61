"""Labels of a request are accepted all or none, kept as they are, and train once."""

from typing import Any

import pytest

from covey.errors import (
    ConflictingLabel,
    DataError,
    FunctionError,
    LateLabel,
    StoreError,
    UnknownTicket,
)
from covey.node.node import Node
from covey.node.tables import sealed
from support import virtual
from support.lives import GRID, POINTS, ROWS, known, live
from support.virtual import World


def test_labels_are_accepted_all_or_none() -> None:
    async def story(node: Node, world: World) -> None:
        request = await node.answer(ROWS, POINTS)
        done = await node.learn_rows(request.id, [3, 1], [request.predictions[3], "x"])
        assert (done.is_new, done.is_right) == ([True, True], [True, False])
        before = world.stores["north"].counters(), known(node)

        with pytest.raises(
            ConflictingLabel, match="row 1 of .* has the label 'x'; the conflicting label 'y'"
        ):
            await node.learn_rows(request.id, [0, 1], [1, "y"])
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
        done = await node.learn_rows(request.id, [1, 0, 0], ["x", 1, 1])
        assert done.is_new == [False, True]

    live(story)


def test_labels_keep_their_type_through_a_restart() -> None:
    given = [1, True, 1.5, "1", "ä", 0, False, -2.0]

    async def story(node: Node, world: World) -> None:
        request = await node.answer(ROWS, POINTS)
        await node.learn_rows(request.id, ROWS, given)
        found = world.stores["north"].find("", request.id)

        assert found is not None
        assert [(type(one), one) for one in found[0].truths] == [(type(one), one) for one in given]

    live(story)


def test_a_request_closes_as_a_whole_and_its_labels_are_then_late() -> None:
    async def story(node: Node, world: World) -> None:
        request = await node.answer(ROWS, POINTS)
        await node.learn_rows(request.id, [2], [1])
        for _ in range(3):
            await node.predict(1, (0.5,))
        assert (await node.learn_rows(request.id, [3], [1])).is_new == [True]
        await node.predict(1, (0.5,))
        held = node._state.held("")

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


@pytest.mark.parametrize("trains_many", [True, False])
def test_labels_train_once_the_function_that_answered(trains_many: bool) -> None:
    trained: list[tuple[Any, Any]] = []

    class Model:
        def predict(self, rows: Any) -> list[int]:
            return [1 for _ in rows]

        def partial_fit(self, rows: Any, labels: Any) -> None:
            if 9 in labels:
                raise ValueError("nine")
            trained.extend(zip(rows, labels, strict=True))

    def learn(row: Any, label: Any) -> None:
        Model().partial_fit([row], [label])

    model = Model() if trains_many else (lambda row: 1, learn)

    async def main() -> None:
        setup = {"policy": GRID, "learner": [{"name": "north", "functions": ["model"]}]}
        world = World(setup, {"model": model}, dimension=1)
        node = world.nodes["north"]
        request = await node.answer(ROWS, POINTS)
        await node.learn_rows(request.id, [2, 0], [1, 0])
        await node.learn_rows(request.id, [2, 5], [1, 0])
        await node.learn(f"{request.id}:5", 0)
        before = world.stores["north"].counters()
        with pytest.raises(FunctionError, match="nine"):
            await node.learn_rows(request.id, [6, 7], [1, 9])
        with pytest.raises(FunctionError, match="nine"):
            await node.learn(f"{request.id}:7", 9)
        assert world.stores["north"].counters() == before
        await node.learn_rows(request.id, [6, 7], [1, 1])
        world.crash("north")
        world.boot("north")
        await world.nodes["north"].learn_rows(request.id, [1], [1])

    virtual.run(main())
    assert trained == [(2, 1), (0, 0), (5, 0), (6, 1), (7, 1)]


def test_check_finds_labels_that_were_changed_in_the_file() -> None:
    async def story(node: Node, world: World) -> None:
        request = await node.answer(ROWS, POINTS)
        await node.learn_rows(request.id, ROWS, [1] * 8)
        store = world.stores["north"]
        assert store.check() == []

        store._base.execute("UPDATE labels SET right = zeroblob(8)")
        assert any("does not fit its checksum" in one for one in store.check())
        (row,) = store._base.execute("SELECT * FROM labels").fetchall()
        store._base.execute("DELETE FROM labels")
        store._base.execute("INSERT INTO labels VALUES (?, ?, ?, ?, ?, ?, ?)", sealed(row[:-1]))
        assert any("labels of the requests have 0" in one for one in store.check())
        twice = (request.number, 9, 1, bytes(4), "[1]", bytes(1))
        store._base.execute("INSERT INTO labels VALUES (?, ?, ?, ?, ?, ?, ?)", sealed(twice))
        with pytest.raises(StoreError, match="two labels"):
            store.check()

    live(story)
