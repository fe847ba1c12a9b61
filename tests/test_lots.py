"""A batch through a node decides, counts and settles as its rows would one at a time."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import virtual
from covey.books import Question
from covey.desks import Trust
from covey.errors import (
    ConflictingLabel,
    ContextError,
    DataError,
    FunctionError,
    LateLabel,
    LimitError,
    StoreError,
    UnknownTicket,
)
from covey.lots import Lot
from covey.node import Limits, Node
from covey.peers import Help, Patience, Request
from covey.policies import INDEXED
from covey.types import Cell
from virtual import Link, Weather, World

SOON: dict[str, Any] = {  # an arm is known well enough with a few labels
    "explore": {"scale": 1.0, "power": 0.1},
    "train": {"scale": 1.0, "power": 0.1},
    "pending": True,
}
GRID: dict[str, Any] = {"preset": "cos", "slices": 2, **SOON}
ZOOM: dict[str, Any] = {"preset": "dcza", "split-power": 2.0, **SOON}
POLICIES: dict[str, dict[str, Any]] = {
    "grid": GRID,
    "slow grid": {"preset": "cos", "slices": 2, "pending": True},
    "not pending": {**GRID, "pending": False},
    "zooming": ZOOM,
    "inheriting": {**ZOOM, "inherit": True},
    "window": {**GRID, "forget": {"window": 3}},
    "labelled": {**GRID, "count": "labelled"},
    "layered": {"preset": "multi-resolution", "finest-level": 2, "pending": True},
    "auto": {"preset": "auto", "horizon": 300, "pending": True},
    "eliminating": {"preset": "cos-ce", "horizon": 300, "pending": True},
}
BY_PHASE = sorted(set(POLICIES) - {"auto", "eliminating", "layered"})


def config(policy: dict[str, Any]) -> dict[str, Any]:
    """North asks south; east shows north the cell only, so that north remembers labels."""
    sites: list[dict[str, Any]] = [
        {"name": "north", "functions": ["a", "b"], "peers": {"south": 0.01}},
        {"name": "south", "functions": ["c", "d"], "peers": {}},
    ]
    if policy["preset"] not in INDEXED:
        asks = {"peers": {}, "context-peers": {"north": 0.0}}
        sites.append({"name": "east", "functions": ["e"], **asks})
    return {"policy": policy, "learner": sites}


def says(name: str) -> Callable[[int], int]:
    """Return a function that is right as often as its letter is late in the alphabet."""
    return lambda x: int(random.Random(f"{name}{x}").random() < (ord(name) - 96) / 6)  # noqa: S311


FUNCTIONS = {name: says(name) for name in "abcde"}


def world_of(policy: dict[str, Any], trust: Trust = "full", **more: Any) -> World:
    return World(config(policy), FUNCTIONS, dimension=1, trust=trust, **more)


class Life:
    """A site that gets rows, labels and questions of a peer, by a script."""

    def __init__(self, world: World, *, is_batched: bool) -> None:
        self.world, self.is_batched = world, is_batched
        self.said: list[Any] = []

    @property
    def node(self) -> Node:
        return self.world.nodes["north"]

    async def run(self, script: list[Any]) -> list[Any]:
        for step, (verb, *told) in enumerate(script):
            await getattr(self, verb)(str(step), *told)
            self.said.append(self._state())
        return self.said

    async def predict(self, id_: str, contexts: list[float]) -> None:
        points = [(x,) for x in contexts]
        rows = [int(id_) * 100 + k for k in range(len(points))]
        if self.is_batched:
            lot = await self.node.predict_batch(rows, points, question=Question("", id_))
            self.said += [row_of(lot, k) for k in range(len(lot))]
            return
        for k, (row, point) in enumerate(zip(rows, points, strict=True)):
            one = await self.node.predict(row, point, question=Question("", f"{id_}:{k}"))
            self.said.append(
                (one.phase, one.arm, one.cell, one.slot, one.price, one.function, one.answer)
            )

    async def learn(self, step: str, id_: str, rows: list[int], labels: list[int]) -> None:
        if self.is_batched:
            done = await self.node.learn_many(id_, rows, labels)
            self.said += zip(done.is_new, done.is_right, strict=True)
        else:
            for row, label in zip(rows, labels, strict=True):
                one = await self.node.learn(f"{id_}:{row}", label)
                self.said.append((one.is_new, one.is_right))
        await self.node.drained()

    async def serve(self, step: str, place: int) -> None:
        partition = self.node.learner.policies[""].partition
        level = min(1, len(partition.levels(1)) - 1)
        cell = partition.name(Cell(level, (place,)))
        slot = self.node.learner.slot + 1
        helped = await self.node.assist(Request(step, cell, slot, 3), source="south")
        self.said.append(helped)
        await self.node.learn(step, 1, source="south")

    async def restart(self, step: str, name: str) -> None:
        if self.is_batched:
            self.world.crash(name)
            self.world.boot(name)

    def _state(self) -> Any:
        return [
            [counters(learner) for learner in node._book.learners.values()]
            for _, node in sorted(self.world.nodes.items())
        ] + [store.counters() for _, store in sorted(self.world.stores.items())]


def row_of(lot: Lot, row: int) -> tuple[Any, ...]:
    _, cell, phase, arm, price, _ = lot.kind(row)
    return (phase, arm, cell, lot.slot + row, price, lot.function(row), lot.answers[row])


def counters(learner: Any) -> Any:
    """Return all that is counted. A peer need not have heard of the latest slots."""
    known = learner.snapshot()
    rows = [table.counters(row) for table in learner.tables.values() for row in range(len(table))]
    return known.cells, known.seen, rows


def script_of(seed: int, *, restarts: bool) -> list[Any]:
    chance = random.Random(seed)  # noqa: S311
    script: list[Any] = []
    open_: list[tuple[str, int]] = []
    for step in range(20):
        verb = chance.choice(["predict", "learn", "learn", "serve", "restart"])
        if verb == "predict" or not open_:
            count = chance.randint(1, 9)
            script.append(("predict", [chance.random() for _ in range(count)]))
            open_ += [(str(step), row) for row in range(count)]
        elif verb == "learn":
            id_ = chance.choice(open_)[0]
            rows = [row for one, row in open_ if one == id_]
            rows = chance.sample(rows, chance.randint(1, len(rows)))
            open_ = [(one, row) for one, row in open_ if one != id_ or row not in rows]
            script.append(("learn", id_, rows, [chance.randrange(2) for _ in rows]))
        elif verb == "serve":
            script.append(("serve", chance.randrange(2)))
        else:
            name = chance.choice(["north", "south"]) if restarts else "north"
            script.append(("restart", name) if restarts else ("serve", 0))
    return script


def lived(name: str, trust: Trust, script: list[Any], *, is_batched: bool) -> list[Any]:
    async def main() -> list[Any]:
        world = world_of(POLICIES[name], trust)
        return await Life(world, is_batched=is_batched).run(script)

    return virtual.run(main())


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=8, deadline=None)
@given(trust=st.sampled_from(["full", "isolated", "robust"]), seed=st.integers(0, 2**31))
def test_a_batch_is_its_rows_one_at_a_time(name: str, trust: Trust, seed: int) -> None:
    script = script_of(seed, restarts=False)

    assert lived(name, trust, script, is_batched=True) == lived(
        name, trust, script, is_batched=False
    )


@pytest.mark.parametrize("name", BY_PHASE)
@settings(max_examples=8, deadline=None)
@given(trust=st.sampled_from(["full", "isolated", "robust"]), seed=st.integers(0, 2**31))
def test_restarts_between_batches_change_nothing(name: str, trust: Trust, seed: int) -> None:
    script = script_of(seed, restarts=True)

    assert lived(name, trust, script, is_batched=True) == lived(
        name, trust, script, is_batched=False
    )


# -- one story each ---------------------------------------------------------------------------


def live(
    story: Callable[[Node, World], Any],
    policy: dict[str, Any] = GRID,
    kind: type[World] = World,
    **more: Any,
) -> None:
    async def main() -> None:
        patience = Patience(timeout_s=1.0, failures=3, rest_s=1.0, most_rest_s=60.0)
        given = {"trust": "full", "patience": patience, **more}
        world = kind(config(policy), FUNCTIONS, dimension=1, **given)
        await story(world.nodes["north"], world)

    virtual.run(main())


ROWS = list(range(8))
POINTS = np.linspace(0.0, 1.0, 8).reshape(8, 1)
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


class CountingLink(Link):
    """Notes how many rows each letter asks about."""

    async def ask(self, requests: Any) -> list[Help]:
        self._world.counts[f"asked for {len(requests)}"] += 1
        self._world.counts["rows asked"] += len(requests)
        return await super().ask(requests)


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
        with pytest.raises(DataError, match="is one row"):
            await node.learn_many("b", [0], [1])

    live(story)


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


def test_more_rows_than_there_is_room_for_are_refused() -> None:
    class Small(World):
        limits = Limits(tickets=15)

    async def story(node: Node, world: World) -> None:
        await node.predict_batch(ROWS, POINTS)
        with pytest.raises(LimitError, match="8 tickets are held"):
            await node.predict_batch(ROWS, POINTS)
        await node.predict_batch(ROWS[:7], POINTS[:7])

    live(story, kind=Small)


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


def test_a_label_that_was_tampered_with_is_found(tmp_path: Any) -> None:
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
