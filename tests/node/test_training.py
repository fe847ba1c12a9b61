"""Functions that learn: trained once per label, and only with labels of trusted sources."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from river import naive_bayes

from covey.errors import ConflictingLabel, FunctionError
from covey.node.functions import Workers
from covey.node.node import Node
from covey.site.requests import NO_INSTANCE, AskRow
from covey.site.trust import Trust
from covey.store.store import Store
from support import virtual
from support.served import FEEDBACK, INFER, Client, run
from support.snapshots import snapshot_of
from support.virtual import Disk, World


class Trainee:
    """Answers 1, and records its training; it cannot learn 9."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []

    def predict(self, instance: Any) -> int:
        return 1

    def learn(self, instance: Any, label: Any) -> None:
        if label == 9:
            raise ValueError("nine")
        self.seen.append((instance, label))


def config(**more: Any) -> dict[str, Any]:
    return {
        "policy": {"preset": "cos", "slices": 1, **more},
        "learner": [
            {"name": "north", "functions": ["trainee"], "peers": {}},
            {"name": "south", "functions": ["other"], "peers": {"north": 0.0}},
        ],
    }


class SlowDisk(Disk):
    """Takes a second for everything that blocks."""

    async def run(self, function: Any, call: Callable[..., Any], **how: Any) -> Any:
        await asyncio.sleep(1)
        return call()

    async def commit(self, commit: Any) -> None:
        await asyncio.sleep(1)
        await super().commit(commit)


class SlowWorld(World):
    def disk(self, name: str) -> Workers:
        return SlowDisk(self, name)


def lived(
    story: Callable[[Node, World], Any],
    *,
    trust: Trust = "isolated",
    kind: type[World] = World,
    **more: Any,
) -> Trainee:
    """Return the function after a story, with what it was trained with."""
    trainee = Trainee()

    async def main() -> None:
        functions = {"trainee": trainee, "other": int}
        world = kind(config(**more), functions, dimension=1, trust=trust)
        await story(world.nodes["north"], world)

    virtual.run(main())
    return trainee


def test_the_same_label_twice_at_once_trains_once_and_a_conflicting_one_never() -> None:
    async def story(node: Node, world: World) -> None:
        answer = await node.predict("x", (0.5,))
        calls = [node.learn(answer.ticket, label) for label in (0, 0, 1)]
        first, again, other = await asyncio.gather(*calls, return_exceptions=True)

        assert not isinstance(first, BaseException)
        assert not isinstance(again, BaseException)
        assert (first.is_new, again.is_new) == (True, False)
        assert isinstance(other, ConflictingLabel)

    assert lived(story, kind=SlowWorld).seen == [("x", 0)]


@pytest.mark.parametrize("label", [9, 0], ids=["training fails", "training succeeds"])
def test_a_label_after_a_call_that_was_cancelled_in_training_trains_once(label: int) -> None:
    async def story(node: Node, world: World) -> None:
        answer = await node.predict("x", (0.5,))
        cancelled = asyncio.ensure_future(node.learn(answer.ticket, label))
        await asyncio.sleep(0.5)
        cancelled.cancel()
        if label == 0:
            await asyncio.sleep(5)  # its training is over

        assert (await node.learn(answer.ticket, 0)).is_new

    assert lived(story, kind=SlowWorld).seen == [("x", 0)]


def test_a_label_that_cannot_be_learnt_is_not_counted_and_can_be_sent_again() -> None:
    async def story(node: Node, world: World) -> None:
        answer = await node.predict("x", (0.5,))
        before = snapshot_of(node.learner)

        with pytest.raises(FunctionError, match="raised ValueError in training: nine"):
            await node.learn(answer.ticket, 9)
        assert snapshot_of(node.learner) == before
        assert world.stores["north"].counters() == {}
        assert (await node.learn(answer.ticket, 0)).is_new

    assert lived(story).seen == [("x", 0)]


def test_after_three_failures_in_a_row_labels_count_without_training(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(node: Node, world: World) -> None:
        answers = [await node.predict(k, (0.5,)) for k in range(4)]
        for _ in range(3):
            with pytest.raises(FunctionError, match="nine"):
                await node.learn(answers[0].ticket, 9)
        assert (await node.learn(answers[0].ticket, 9)).is_new
        for answer in answers[1:]:
            assert (await node.learn(answer.ticket, 0)).is_new
        batch = await node.answer(["y", "z"], [(0.5,)] * 2)
        assert (await node.learn_rows(batch.id, [0, 1], [9, 0])).is_new == [True, True]
        assert list(world.stores["north"].counters().values()) == [(6, 0)]

    assert lived(story).seen == []
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("function 'trainee' of learner 'north' raised ValueError at ")
    assert "training failed 3 times in a row and stops until the next start" in line


@pytest.mark.parametrize(
    ("trust", "trained"), [("isolated", []), ("earned", ["x"]), ("full", ["x"])]
)
def test_only_labels_that_count_for_the_site_train(trust: Trust, trained: list[str]) -> None:
    async def story(node: Node, world: World) -> None:
        await node.for_peers.assist([AskRow("a", "g1:0", 1, "x")], source="south")
        await node.learn("a", 0, source="south")
        await node.for_peers.assist([AskRow("b", "g1:0", 2, NO_INSTANCE)], source="south")
        await node.learn("b", 0, source="south")

    assert [instance for instance, _ in lived(story, trust=trust).seen] == trained


def test_a_label_of_a_request_before_a_restart_counts_without_training() -> None:
    async def story(node: Node, world: World) -> None:
        answer = await node.predict("x", (0.5,))
        world.crash("north")
        world.boot("north")

        assert (await world.nodes["north"].learn(answer.ticket, 0)).is_new
        assert list(world.stores["north"].counters().values()) == [(1, 0)]

    assert lived(story).seen == []


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


def test_a_river_model_learns_in_a_served_site_and_continues_after_a_restart(
    tmp_path: Path,
) -> None:
    model, answers, expected = naive_bayes.GaussianNB(), [], []

    async def story(client: Client) -> None:
        start = len(answers)
        for k in range(start, start + 20):
            size = float((7 * k) % 10)
            expected.append(model.predict_one({"size": size}) or "small")
            truth = "large" if size > 4 else "small"
            model.learn_one({"size": size}, truth)
            inputs = [{"name": "size", "shape": [1], "datatype": "FP64", "data": [size]}]
            _, response = await client.post(INFER, {"id": str(k), "inputs": inputs})
            answers.append(response["outputs"][0]["data"][0])
            assert (await client.post(FEEDBACK, {"id": str(k), "truth": truth}))[0] == 202

    run(tmp_path, story, SITE)
    run(tmp_path, story, SITE)

    assert answers == expected
    assert set(answers[20:]) == {"small", "large"}
    assert Store(tmp_path / "north.store").check() == []
