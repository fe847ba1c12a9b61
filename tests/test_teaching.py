"""Functions that learn, in a node: taught once for each label, and by those only who may."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from river import naive_bayes

import virtual
from covey.books import Question
from covey.desks import Trust
from covey.errors import ConflictingLabel, FunctionError, LateLabel
from covey.node.node import Node
from covey.peers import NO_INSTANCE, Request
from covey.store import Store
from covey.teaching import Work
from served import FEEDBACK, INFER, Client, run
from virtual import Disk, World


class Pupil:
    """Says 1, and notes what it is taught; it cannot learn 9."""

    def __init__(self) -> None:
        self.lessons: list[tuple[Any, Any]] = []

    def predict(self, instance: Any) -> int:
        return 1

    def learn(self, instance: Any, label: Any) -> None:
        if label == 9:
            raise ValueError("nine")
        self.lessons.append((instance, label))


def config(**more: Any) -> dict[str, Any]:
    return {
        "policy": {"preset": "cos", "slices": 1, **more},
        "learner": [
            {"name": "north", "functions": ["pupil"], "peers": {}},
            {"name": "south", "functions": ["other"], "peers": {"north": 0.0}},
        ],
    }


class Slow(Disk):
    """Takes a second for everything that blocks."""

    async def __call__(self, run: Callable[..., Any], /, *given: Any) -> Any:
        await asyncio.sleep(1)
        return run(*given)


class SlowWorld(World):
    def disk(self, name: str) -> Work:
        return Slow(self, name)


def lived(
    story: Callable[[Node, World], Any],
    *,
    trust: Trust = "isolated",
    kind: type[World] = World,
    **more: Any,
) -> Pupil:
    """Return what a function was taught in a story."""
    pupil = Pupil()

    async def main() -> None:
        functions = {"pupil": pupil, "other": int}
        world = kind(config(**more), functions, dimension=1, trust=trust)
        await story(world.nodes["north"], world)

    virtual.run(main())
    return pupil


def test_a_label_teaches_what_answered_and_teaches_it_once() -> None:
    async def story(node: Node, world: World) -> None:
        ticket = await node.predict("x", (0.5,))
        assert (await node.learn(ticket.id, 0)).is_new
        assert not (await node.learn(ticket.id, 0)).is_new
        with pytest.raises(ConflictingLabel):
            await node.learn(ticket.id, 1)

    assert lived(story).lessons == [("x", 0)]


def test_the_same_label_twice_at_once_teaches_once_and_another_not_at_all() -> None:
    async def story(node: Node, world: World) -> None:
        ticket = await node.predict("x", (0.5,))
        told = [node.learn(ticket.id, label) for label in (0, 0, 1)]
        first, again, other = await asyncio.gather(*told, return_exceptions=True)

        assert not isinstance(first, BaseException)
        assert not isinstance(again, BaseException)
        assert (first.is_new, again.is_new) == (True, False)
        assert isinstance(other, ConflictingLabel)

    assert lived(story, kind=SlowWorld).lessons == [("x", 0)]


def test_a_lesson_that_fails_after_its_sender_hung_up_is_given_with_the_label_sent_again() -> None:
    async def story(node: Node, world: World) -> None:
        ticket = await node.predict("x", (0.5,))
        hasty = asyncio.ensure_future(node.learn(ticket.id, 9))
        await asyncio.sleep(0.5)
        hasty.cancel()
        assert (await node.learn(ticket.id, 0)).is_new

    assert lived(story, kind=SlowWorld).lessons == [("x", 0)]


def test_rows_whose_lesson_fails_after_their_sender_hung_up_are_taught_again() -> None:
    async def story(node: Node, world: World) -> None:
        lot = await node.predict_batch(["x", "y"], [(0.5,), (0.5,)])
        hasty = asyncio.ensure_future(node.learn_many(lot.id, [0, 1], [0, 9]))
        await asyncio.sleep(0.5)
        hasty.cancel()
        await node.learn_many(lot.id, [0, 1], [0, 1])

    assert lived(story, kind=SlowWorld).lessons == [("x", 0), ("y", 1)]


def test_who_hangs_up_while_a_function_is_taught_does_not_teach_it_again() -> None:
    async def story(node: Node, world: World) -> None:
        ticket = await node.predict("x", (0.5,))
        hasty = asyncio.ensure_future(node.learn(ticket.id, 0))
        await asyncio.sleep(0.5)
        hasty.cancel()
        await asyncio.sleep(5)

        assert (await node.learn(ticket.id, 0)).is_new

    assert lived(story, kind=SlowWorld).lessons == [("x", 0)]


def test_a_label_that_cannot_be_learnt_counts_nowhere_and_can_be_sent_again() -> None:
    async def story(node: Node, world: World) -> None:
        ticket = await node.predict("x", (0.5,))
        before = node.learner.snapshot()

        with pytest.raises(FunctionError, match="raised ValueError in training: nine"):
            await node.learn(ticket.id, 9)
        assert node.learner.snapshot() == before
        assert world.stores["north"].counters() == {}
        assert (await node.learn(ticket.id, 0)).is_new

    assert lived(story).lessons == [("x", 0)]


def test_after_three_lessons_in_a_row_that_failed_labels_count_without_teaching(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(node: Node, world: World) -> None:
        tickets = [await node.predict(k, (0.5,)) for k in range(4)]
        for _ in range(3):
            with pytest.raises(FunctionError, match="nine"):
                await node.learn(tickets[0].id, 9)
        assert (await node.learn(tickets[0].id, 9)).is_new
        for ticket in tickets[1:]:
            assert (await node.learn(ticket.id, 0)).is_new
        lot = await node.predict_batch(["y", "z"], [(0.5,)] * 2)
        assert (await node.learn_many(lot.id, [0, 1], [9, 0])).is_new == [True, True]
        assert list(world.stores["north"].counters().values()) == [(6, 0)]

    assert lived(story).lessons == []
    (line,) = [one.getMessage() for one in caplog.records]
    assert line.startswith("function 'pupil' of learner 'north' raised ValueError at ")
    assert "taught no more until the site is started again" in line


def test_a_restart_begins_to_teach_anew() -> None:
    async def story(node: Node, world: World) -> None:
        ticket = await node.predict("x", (0.5,))
        for _ in range(3):
            with pytest.raises(FunctionError):
                await node.learn(ticket.id, 9)
        world.crash("north")
        world.boot("north")
        node = world.nodes["north"]
        await node.learn((await node.predict("y", (0.5,))).id, 0)

    assert lived(story).lessons == [("y", 0)]


def test_a_lesson_that_is_learnt_begins_the_count_anew() -> None:
    async def story(node: Node, world: World) -> None:
        for k in range(4):
            ticket = await node.predict(k, (0.5,))
            lot = await node.predict_batch(["y", "z"], [(0.5,)] * 2)
            with pytest.raises(FunctionError):
                await node.learn(ticket.id, 9)
            with pytest.raises(FunctionError):
                await node.learn_many(lot.id, [0, 1], [9, 0])
            await node.learn(ticket.id, 0)
            with pytest.raises(FunctionError):
                await node.learn_many(lot.id, [0, 1], [0, 9])  # the first of them is learnt
            await node.learn_many(lot.id, [0, 1], [0, 1])

    taught = [lesson for k in range(4) for lesson in ((k, 0), ("y", 0), ("z", 1))]
    assert lived(story).lessons == taught


def test_three_batches_that_teach_nothing_are_enough_to_give_up() -> None:
    async def story(node: Node, world: World) -> None:
        lot = await node.predict_batch(["y", "z"], [(0.5,)] * 2)
        for _ in range(3):
            with pytest.raises(FunctionError):
                await node.learn_many(lot.id, [0, 1], [9, 0])
        assert (await node.learn_many(lot.id, [0, 1], [9, 0])).is_new == [True, True]

    assert lived(story).lessons == []


@pytest.mark.parametrize(("trust", "taught"), [("isolated", []), ("robust", []), ("full", ["x"])])
def test_only_peers_with_full_trust_teach(trust: Trust, taught: list[str]) -> None:
    async def story(node: Node, world: World) -> None:
        await node.assist(Request("a", "g1:0", 1, "x"), source="south")
        await node.learn("a", 0, source="south")
        await node.assist(Request("b", "g1:0", 2, NO_INSTANCE), source="south")
        await node.learn("b", 0, source="south")

    assert [instance for instance, _ in lived(story, trust=trust).lessons] == taught


def test_a_ticket_from_before_a_restart_counts_but_does_not_teach() -> None:
    async def story(node: Node, world: World) -> None:
        ticket = await node.predict("x", (0.5,))
        world.crash("north")
        world.boot("north")

        assert (await world.nodes["north"].learn(ticket.id, 0)).is_new
        assert list(world.stores["north"].counters().values()) == [(1, 0)]

    assert lived(story).lessons == []


def test_a_label_that_comes_too_late_does_not_teach() -> None:
    async def story(node: Node, world: World) -> None:
        ticket = await node.predict("x", (0.5,))
        for _ in range(6):
            await node.predict("y", (0.5,))
        with pytest.raises(LateLabel):
            await node.learn(ticket.id, 0)

    assert lived(story, **{"label-wait": 3}).lessons == []


def test_who_stands_in_for_a_peer_without_an_answer_is_taught() -> None:
    """South may show north the cell only, where nothing was seen; its own function answers."""
    pupil = Pupil()
    setup = config()
    setup["learner"][1] = {
        "name": "south",
        "functions": ["pupil"],
        "peers": {},
        "context-peers": {"north": 0.0},
    }
    setup["learner"][0]["functions"] = ["other"]

    async def main() -> None:
        world = World(setup, {"pupil": pupil, "other": int}, dimension=1)
        for k in range(30):
            ticket = await world.nodes["south"].predict(k, (0.5,), question=Question("", str(k)))
            await world.nodes["south"].learn(str(k), 0)
            if ticket.function == "pupil":
                answered.append(k)
                arms.add(ticket.arm)

    answered: list[int] = []
    arms: set[str] = set()
    virtual.run(main())
    assert len(arms) == 2
    assert [instance for instance, _ in pupil.lessons] == answered


SITE = """
[node]
name = "north"
features = { size = "FP64" }
store = "north.store"
address = "127.0.0.1:0"

[[learner]]
name = "north"
functions = ["bayes"]

[[function]]
name = "bayes"
kind = "river"
entry = "river.naive_bayes:GaussianNB"
classes = ["small", "large"]
lessons = "bayes.jsonl"
"""


def test_a_model_of_river_learns_in_a_served_site_and_goes_on_after_a_restart(
    tmp_path: Path,
) -> None:
    model, said, expected = naive_bayes.GaussianNB(), [], []

    async def story(client: Client) -> None:
        start = len(said)
        for k in range(start, start + 20):
            size = float((7 * k) % 10)
            expected.append(model.predict_one({"size": size}) or "small")
            truth = "large" if size > 4 else "small"
            model.learn_one({"size": size}, truth)
            inputs = [{"name": "size", "shape": [1], "datatype": "FP64", "data": [size]}]
            _, told = await client.post(INFER, {"id": str(k), "inputs": inputs})
            said.append(told["outputs"][0]["data"][0])
            assert (await client.post(FEEDBACK, {"id": str(k), "truth": truth}))[0] == 202

    run(tmp_path, story, SITE)
    run(tmp_path, story, SITE)

    assert said == expected
    assert set(said[20:]) == {"small", "large"}
    assert Store(tmp_path / "north.store").check() == []
