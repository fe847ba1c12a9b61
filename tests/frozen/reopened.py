"""A site that continues from a frozen store, among peers that begin anew.

What has changed since on purpose is switched off: pending labels count as labels here, while sites
now weigh them by the share that arrives.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from covey.bandit.learner import Learner
from covey.kernel.rules import Cell
from covey.node.node import Node
from covey.node.requests import AskRow
from covey.node.store import Store
from support import virtual
from support.lives import FUNCTIONS
from support.virtual import World

CONTEXTS = [k / 16 for k in range(16)]
FORMER = {"auto": "two-sizes"}


def as_before(about: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a store, with the name that its preset has now."""
    policy = about["config"]["policy"]
    preset = FORMER.get(policy["preset"], policy["preset"])
    config = {**about["config"], "policy": {**policy, "preset": preset}}
    return {**about, "config": config}


def continued(path: Path, about: dict[str, Any], use: Callable[[Node], Awaitable[Any]]) -> Any:
    """Return the result of `use` with the node of a store."""

    class Reopened(World):
        def store(self, name: str) -> Store:
            known = self.stores.get(name)
            return known or (Store(path) if name == about["site"] else Store.memory())

        def learner(self, place: int) -> Learner:
            learner = super().learner(place)
            learner.rule = msgspec.structs.replace(learner.rule, weighs_pending=False)
            learner.tables = {space: learner.empty_table(space) for space in learner.spaces}
            learner.table = learner.tables[learner.space]
            return learner

    async def main() -> Any:
        world = Reopened(about["config"], FUNCTIONS, dimension=1, trust=about["trust"])
        result = await use(world.nodes[about["site"]])
        world.stores[about["site"]].close()
        return result

    return virtual.run(main())


def decisions_from(path: Path, about: dict[str, Any]) -> list[list[Any]]:
    """Return what the site decides next, with each label after its row."""

    async def use(node: Node) -> list[list[Any]]:
        found = []
        for k, x in enumerate(CONTEXTS):
            request = await node.answer([k], [(x,)])
            _, cell, phase, arm, *_ = msgspec.structs.astuple(request.group(0))
            answer = request.answers[0]
            found.append([request.slot, cell, phase, arm, request.function(0), answer])
            if about["is_supervised"]:
                await node.learn(request.id, k % 2)
        return found

    decisions: list[list[Any]] = continued(path, as_before(about), use)
    return decisions


def answers_from(path: Path, about: dict[str, Any]) -> list[list[Any]]:
    """Return what the site answers to all its peers in turn, with each label after its row."""
    peers = [one["name"] for one in about["config"]["learner"] if one["name"] != about["site"]]

    async def use(node: Node) -> list[list[Any]]:
        partition = node.learner.policies[""].partition
        level = min(1, len(partition.levels(1)) - 1)
        found = []
        for k in range(16):
            for peer in peers:
                id_, cell = f"next-{k}", partition.name(Cell(level, (k % 2,)))
                (one,) = await node.assist([AskRow(id_, cell, 1000 + k, k)], source=peer)
                found.append([peer, cell, one.function, one.label])
                assert await node.take_labels([(id_, k // 2 % 2)], source=peer) == ["taken"]
        return found

    answers: list[list[Any]] = continued(path, as_before(about), use)
    return answers
