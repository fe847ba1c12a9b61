"""Faults that storms have found, each as a story of a few lines."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from chaos.states import picture
from covey.errors import ConflictingLabel, FunctionError, LateLabel, PeerError
from covey.node.node import Question
from covey.site.requests import AskRow
from covey.store.store import Store
from support import virtual
from support.virtual import Disk, World


class Trained:
    """Answers 1, and can be trained."""

    def predict(self, instance: Any) -> int:
        return 1

    def learn(self, instance: Any, label: Any) -> None:
        pass


class Broken:
    """Answers nothing."""

    def predict(self, instance: Any) -> int:
        raise ValueError("out of order")


class SlowDisk(Disk):
    """A second for a commit, two for a call of a function."""

    async def run(self, function: Any, call: Callable[..., Any], **how: Any) -> Any:
        await asyncio.sleep(2.0)
        return call()

    async def commit(self, commit: Any) -> None:
        await asyncio.sleep(1.0)
        self._world.stores[self._name].commit(commit)


class SlowWorld(World):
    def disk(self, name: str) -> SlowDisk:
        return SlowDisk(self, name)


class Silent(virtual.Link):
    """A link to a peer that can stop answering."""

    is_silent = False

    async def ask(self, rows: Any) -> Any:
        if self.is_silent:
            raise PeerError("nothing")
        return await super().ask(rows)


def tell(
    story: Callable[[World], Coroutine[Any, Any, None]],
    function: Any = int,
    kind: type[World] = World,
    **more: Any,
) -> None:
    """Run a story of three sites; `function` is that of the first."""
    config = {
        "policy": {"preset": "cos", "slices": 1, "label-wait": 2, **more.pop("policy", {})},
        "learner": [
            {"name": "north", "functions": ["north-0"], "peers": more.pop("peers", {})},
            {"name": "south", "functions": ["south-0"], "peers": {}},
            {"name": "east", "functions": ["east-0"], "peers": {}},
        ],
    }
    south, east = more.pop("others", (int, int))
    functions = {"north-0": function, "south-0": south, "east-0": east}

    async def main() -> None:
        await story(kind(config, functions, dimension=1, **more))

    virtual.run(main())


def test_a_conflicting_label_is_refused_only_when_the_first_one_is_durable() -> None:
    async def story(world: World) -> None:
        await world.predict("north", "a", 1, (0.5,))
        first = asyncio.ensure_future(world.learn("north", "a", 1))
        await asyncio.sleep(0.0)
        with pytest.raises(ConflictingLabel):
            await world.learn("north", "a", 0)
        assert world.stores["north"].size()["labels"] == 1
        await first

    tell(story, kind=SlowWorld)


def test_labels_that_overtake_their_request_count_once() -> None:
    async def story(world: World) -> None:
        await world.predict("north", "first", 1, (0.5,))
        node = world.nodes["north"]
        row = AskRow("r", "g1:0", 1, 1)
        asked = asyncio.ensure_future(node.for_peers.assist([row], source="south"))
        await asyncio.sleep(1.5)  # its function is running
        sent = [node.for_peers.take_labels([("r", label)], source="south") for label in (0, 1)]
        outcomes = await asyncio.gather(*sent)
        await asked
        again = await node.for_peers.take_labels([("r", 0)], source="south")

        assert not node.is_broken
        assert [word for words in (*outcomes, again) for word in words].count("taken") == 1

    tell(story, kind=Overtaking)


class OvertakingDisk(SlowDisk):
    """Looks requests up so slowly that they are answered meanwhile."""

    async def find(self, source: str, ids: Sequence[str]) -> Any:
        await asyncio.sleep(5.0)
        return self._world.stores[self._name].find_many(source, ids)


class Overtaking(World):
    def disk(self, name: str) -> OvertakingDisk:
        return OvertakingDisk(self, name)


def test_a_label_that_expires_while_its_function_is_trained_is_late() -> None:
    async def story(world: World) -> None:
        await world.predict("north", "a", 1, (0.5,))
        node = world.nodes["north"]
        label = asyncio.ensure_future(node.learn("a", 1))
        await asyncio.sleep(0.5)
        node._state.learner.slot += 10
        node._state.open.expire_of("")
        with pytest.raises(LateLabel):
            await label
        assert node._state.open.pending_rows == 0

    tell(story, Trained(), kind=SlowWorld)


def test_a_failed_ask_of_a_fully_trusted_peer_is_taken_back_in_the_store() -> None:
    async def story(world: World) -> None:
        node = world.nodes["north"]
        asked = asyncio.ensure_future(
            node.for_peers.assist([AskRow("r", "g1:0", 1, 1)], source="south")
        )
        await asyncio.sleep(0.5)
        await node._journal.flush()
        with pytest.raises(FunctionError):
            await asked
        await node._journal.flush()
        store: Store = world.stores["north"]
        (counters,) = store._base.execute("SELECT counters FROM cells").fetchone()
        ((_, kept, _),) = picture(node._state)["cells"]["", ""]

        assert kept[1] == 0
        assert str(kept).replace(" ", "").startswith(counters[:5])

    tell(story, Broken(), kind=SlowWorld, trust="full")


@pytest.mark.parametrize("ids", [["c", "b"], ["b"], ["b", "c"], ["c", "a"]])
def test_an_ask_with_an_id_that_was_used_before_is_refused(ids: list[str]) -> None:
    def rows(*ids: str) -> list[AskRow]:
        return [AskRow(id_, "g1:0", 1, 1) for id_ in ids]

    async def story(world: World) -> None:
        node = world.nodes["north"]
        first = asyncio.ensure_future(node.for_peers.assist(rows("a", "b"), source="south"))
        await asyncio.sleep(0.5)
        with pytest.raises(ConflictingLabel):
            await node.for_peers.assist(rows(*ids), source="south")
        await first
        with pytest.raises(ConflictingLabel):
            await node.for_peers.assist(rows(*ids), source="south")
        assert await node.for_peers.assist(rows("a", "b"), source="south") == await first
        assert not node.is_broken

    tell(story, kind=SlowWorld)


def test_when_several_peers_fail_every_row_of_a_batch_gets_its_own_answer() -> None:
    """East is best in the first cell and south in the second, so south has the later rows."""
    contexts = [[0.1], [0.2], [0.8], [0.9]]

    def right_above(low: float) -> Callable[[list[float]], float]:
        return lambda instance: instance[0] if low <= instance[1] < low + 0.5 else 0

    async def ask(world: World, id_: str) -> list[Any]:
        instances = [[number, *context] for number, context in enumerate(contexts, 7)]
        node = world.nodes["north"]
        request = await node.answer(instances, contexts, question=Question("", id_))
        return [(request.group(row).arm, request.answers[row]) for row in range(4)]

    async def story(world: World) -> None:
        for k in range(50):
            answers = await ask(world, f"{k}")
            await world.nodes["north"].learn_rows(f"{k}", [0, 1, 2, 3], [7, 8, 9, 10])
            if answers == [("east", 7), ("east", 8), ("south", 9), ("south", 10)]:
                break
        else:
            pytest.fail("both peers never had rows")
        Silent.is_silent = True
        assert await ask(world, "last") == [("north-0", -number) for number in (7, 8, 9, 10)]

    thresholds = {"scale": 0.1, "power": 0.0}
    Silent.is_silent = False
    tell(
        story,
        lambda instance: -instance[0],
        link=Silent,
        peers={"south": 0.0, "east": 0.0},
        policy={
            "preset": "cos",
            "explore": thresholds,
            "train": thresholds,
            "label-wait": 100,
            "slices": 2,
        },
        others=(right_above(0.5), right_above(0.0)),
    )
