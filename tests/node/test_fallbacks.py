"""When a function fails another one answers, and the label counts as wrong for the first."""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.learner import NO_ANSWER
from covey.errors import FunctionError
from covey.node.node import Node
from covey.site.requests import AskRow, Assistance
from support import virtual
from support.snapshots import snapshot_of
from support.virtual import Link, World

NAMES = ("a", "b", "c")


def broken(instance: Any) -> int:
    raise ValueError(f"cannot read {instance!r}")


def config(functions: Any = NAMES, *, peers: Any = None, **policy: Any) -> dict[str, Any]:
    return {
        "policy": {"preset": "cos", "slices": 1, **policy},
        "learner": [
            {"name": "north", "functions": list(functions), "peers": peers or {}},
            {"name": "south", "functions": ["other"], "peers": {}},
        ],
    }


def lived(
    story: Callable[[Node, World], Any],
    *,
    kind: type[Link] | None = None,
    setup: Any = None,
    **functions: Any,
) -> None:
    async def main() -> None:
        given = {"other": int, **functions}
        world = World(setup or config(functions), given, dimension=1, link=kind)
        await story(world.nodes["north"], world)

    virtual.run(main())


def counted(node: Node) -> list[tuple[int, int]]:
    """Return labels and right ones of each arm, over all cells."""
    learner = node.learner
    table, arms = learner.tables[""], len(learner.arms)
    rows = np.array([table.saved.stored(row) for row in range(len(table))])[:, 3 : 3 + 2 * arms]
    sums = rows.sum(axis=0).tolist()
    return list(zip(sums[:arms], sums[arms:], strict=True))


@pytest.mark.parametrize("failing", [broken, sys.exit])
def test_another_function_answers_and_the_label_counts_as_wrong_for_the_one_that_failed(
    failing: Callable[[Any], int],
) -> None:
    async def story(node: Node, world: World) -> None:
        request = await node.answer(["x"], [(0.5,)])
        assert (request.group(0).arm, request.function(0), request.answers[0]) == ("a", "b", 1)
        assert request.predictions[0] is NO_ANSWER
        assert not (await node.learn(request.id, 1)).is_right
        assert counted(node)[0] == (1, 0)
        assert world.stores["north"].check() == []
        assert node.failures == {"a": 1, "b": 0}

    lived(story, a=failing, b=lambda _: 1)


@pytest.mark.parametrize("second", ["b", "c"])
def test_the_function_with_the_best_labels_replaces_one_that_fails(second: str) -> None:
    calls = 0
    is_broken = False

    def best(instance: Any) -> int:
        return broken(instance) if is_broken else 1

    def half(instance: Any) -> int:
        nonlocal calls
        calls += 1
        return calls % 2

    async def story(node: Node, world: World) -> None:
        nonlocal is_broken
        for _ in range(200):
            answer = await node.predict("x", (0.5,))
            await node.learn(answer.ticket, 1)
        assert answer.arm == "a"
        is_broken = True
        answer = await node.predict("x", (0.5,))
        assert (answer.arm, answer.function) == ("a", second)

    functions = {"a": best, "b": int, "c": int, second: half}
    lived(story, **{k: (lambda _: 0) if one is int else one for k, one in functions.items()})


def test_if_all_functions_fail_there_is_no_answer_and_nothing_is_counted() -> None:
    async def story(node: Node, world: World) -> None:
        with pytest.raises(FunctionError, match="function 'a' .* cannot read 'x'"):
            await node.predict("x", (0.5,))
        with pytest.raises(FunctionError, match="function 'a' .* cannot read 'x'"):
            await node.answer(["x"] * 9, [(0.5,)] * 9)

        assert node.state().open_tickets == 0
        assert counted(node) == [(0, 0)] * 3
        assert set(node.failures.values()) == {2}

    lived(story, a=broken, b=broken, c=broken)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), dead=st.sets(st.sampled_from(NAMES), max_size=2))
def test_functions_are_replaced_in_a_batch_as_in_single_rows(seed: int, dead: set[str]) -> None:
    """Functions fail from the second batch on."""
    points = np.random.default_rng(seed).random((3, 12, 1))
    truths = np.random.default_rng([seed, 1]).integers(0, 3, (3, 12)).tolist()

    def outcome(*, is_batched: bool) -> Any:
        now: set[str] = set()
        results: list[Any] = []

        def made(name: str) -> Callable[[Any], int]:
            return lambda row: broken(row) if name in now else NAMES.index(name)

        async def story(node: Node, world: World) -> None:
            for points_now, labels in zip(points.tolist(), truths, strict=True):
                if is_batched:
                    batch = await node.answer(list(range(12)), points_now)
                    results.append((batch.predictions, batch.answers))
                    world.crash("north")
                    world.boot("north")
                    node = world.nodes["north"]
                    await node.learn_rows(batch.id, range(12), labels)
                else:
                    single = [await node.answer([k], [tuple(points_now[k])]) for k in range(12)]
                    results.append(
                        ([x.predictions[0] for x in single], [x.answers[0] for x in single])
                    )
                    for request, label in zip(single, labels, strict=True):
                        await node.learn(request.id, label)
                now.update(dead)
            results.append(snapshot_of(node.learner))
            assert world.stores["north"].check() == []

        functions = {name: made(name) for name in NAMES}
        lived(story, **functions, setup=config(NAMES, slices=2, pending=True))
        return results

    assert outcome(is_batched=True) == outcome(is_batched=False)


class Silent(Link):
    async def ask(self, rows: Any) -> list[Assistance]:
        return [Assistance(NO_ANSWER, "memory") for _ in rows]


@pytest.mark.parametrize("rows", [1, 4])
def test_if_a_peer_has_no_answer_and_the_best_function_fails_another_one_answers(rows: int) -> None:
    async def story(node: Node, world: World) -> None:
        functions = set()
        for _ in range(20):
            request = await node.answer(["x"] * rows, [(0.5,)] * rows)
            asked = [row for row in range(rows) if request.group(row).peer]
            functions |= {request.function(row) for row in asked}
            assert request.answers == [1] * rows
            await node.learn_rows(request.id, range(rows), [1] * rows)
        assert functions == {"b"}

    setup = config(("a", "b"), peers={"south": 0.0})
    lived(story, a=broken, b=lambda _: 1, setup=setup, kind=Silent)


@pytest.mark.parametrize("rows", [1, 5])
def test_a_request_of_a_peer_fails_with_a_function_and_nothing_is_counted(rows: int) -> None:
    async def story(node: Node, world: World) -> None:
        cell = (await node.answer(["y"], [(0.5,)])).group(0).cell
        before = await node.for_peers.report(cell, 1, source="south")
        asked = [AskRow(str(k), cell, 1, "x" if k == rows - 1 else "y") for k in range(rows)]
        with pytest.raises(FunctionError, match="SystemExit: x"):
            await node.for_peers.assist(asked, source="south")

        assert sum(node.failures.values()) == 1
        assert await node.for_peers.report(cell, 1, source="south") == before
        assert world.stores["north"].size()["rows"] == 1

    def picky(row: Any) -> int:
        return 1 if row == "y" else sys.exit(row)

    lived(story, a=picky, b=picky)


def test_a_replacement_sees_its_own_columns() -> None:
    setup = config(("a", "b"))
    setup["learner"][0]["view"] = [
        {"arms": ["a"], "columns": ["x"]},
        {"arms": ["b"], "columns": ["y"]},
    ]

    async def story(node: Node, world: World) -> None:
        record = {"x": 1, "y": 2}
        assert (await node.predict(record, (0.5,))).label == 2
        batch = await node.answer([record] * 8, [(0.5,)] * 8)
        assert batch.answers == [2] * 8

    lived(story, a=broken, b=lambda row: row["y"] if list(row) == ["y"] else -1, setup=setup)


def test_a_replacement_is_trained_with_the_label() -> None:
    seen = []

    class Trainee:
        def predict(self, instance: Any) -> int:
            return 1

        def learn(self, instance: Any, label: Any) -> None:
            seen.append((instance, label))

    async def story(node: Node, world: World) -> None:
        answer = await node.predict("x", (0.5,))
        await node.learn(answer.ticket, 0)
        batch = await node.answer(["y", "z"], [(0.5,)] * 2)
        await node.learn_rows(batch.id, [0, 1], [1, 2])

    lived(story, a=broken, b=Trainee())
    assert seen == [("x", 0), ("y", 1), ("z", 2)]


def test_failures_are_logged_once_a_minute_without_the_instance(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(node: Node, world: World) -> None:
        for _ in range(4):
            await node.predict("secret", (0.5,))
            await node.answer(["secret"] * 9, [(0.5,)] * 9)
            await asyncio.sleep(20)

    with caplog.at_level(logging.WARNING, "covey"):
        lived(story, a=broken, b=lambda _: 1)

    lines = [
        record.getMessage() for record in caplog.records if record.name == "covey.node.functions"
    ]
    assert len(lines) == 2
    assert "function 'a' of learner 'north' raised ValueError at " in lines[0]
    assert lines[0].endswith("; 1 failures since the start")
    assert "test_fallbacks.py" in lines[0]
    assert "secret" not in caplog.text
