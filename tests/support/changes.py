"""A world whose sites get other configurations, restarted or while they run; what they know."""

import copy
import random
from collections.abc import Mapping
from typing import Any

from covey.config import learner_of, load
from covey.functions.function import Function, as_function
from covey.kernel import Table
from covey.node.node import Node, NodeDependencies
from covey.store.store import Store
from support.lives import FUNCTIONS, config
from support.virtual import World, at

Known = dict[tuple[str, str], list[int]]  # cell, arm -> what is counted


def site(policy: dict[str, Any], **north: Any) -> dict[str, Any]:
    """Return the world of `lives.config` with other keys for north."""
    changed = copy.deepcopy(config(policy))
    changed["learner"][0].update(north)
    return changed


class ChangingWorld(World):
    """Sites whose functions have versions, and whose configuration may change."""

    versions: Mapping[str, tuple[str, float]] = {}  # of functions: version and carry

    def node_of(self, name: str, before: Node | None = None) -> Node:
        """Return a node of the present configuration, from the store or from a paused node."""
        place = self.names.index(name)
        one = self.setup.sites[place]
        learner = learner_of(self.setup, place, self.dimension)
        links = {peer: self.link(self, name, peer) for peer in self.names if peer != name}
        doors = NodeDependencies(
            self.stores[name], links, self.chance, self.disk(name), before=before
        )
        own = [self.function(function, name) for function in one.functions]
        return Node(one, learner, own, doors, trust=self.trust[name])

    def function(self, name: str, owner: str) -> Function:
        version, carry = self.versions.get(name, ("", 0.0))
        made = as_function(FUNCTIONS.get(name, FUNCTIONS["a"]), name=name, owner=owner)
        return made._replace(version=version, carry=carry)

    def boot(self, name: str) -> None:
        self.stores[name] = self.store(name)
        self.nodes[name] = self.node_of(name)
        at(name).run(self.nodes[name].start)

    async def become(self, table: dict[str, Any], *, is_restarted: bool, **versions: Any) -> Node:
        """Give north another configuration; return its node."""
        self.setup, self.versions = load(table), {**self.versions, **versions}
        before = self.nodes["north"]
        if is_restarted:
            before.stop()
            self.boot("north")
        else:
            await before.pause()
            self.nodes["north"] = self.node_of("north", before)
            at("north").run(self.nodes["north"].start)
        return self.nodes["north"]


def known_of(node: Node) -> Known:
    """Return what the site's own table counts of each arm in each cell."""
    table: Table = node.learner.tables[""]
    ids = {arm.name: arm.id for arm in node.arms if arm.place >= 0}
    return {
        (node.learner.name_at("", row), ids[name]): table.saved.arm_counters(row, place)
        for row in range(len(table))
        for place, name in enumerate(node.learner.arms)
    }


def recorded(store: Store) -> dict[str, tuple[int, int]]:
    """Return labels and right ones by arm, of all cells and sources, retired arms included."""
    totals: dict[str, tuple[int, int]] = {}
    for (_, _, arm), (labels, right) in store.counters().items():
        old = totals.get(arm, (0, 0))
        totals[arm] = old[0] + labels, old[1] + right
    return totals


async def live(node: Node, rows: int, *, seed: int, unlabelled: float = 0.2) -> list[str]:
    """Answer rows and label most of them; return the ids of those without a label."""
    chance, waiting = random.Random(seed), list[str]()  # noqa: S311
    for _ in range(rows):
        instance = chance.randrange(10**6)
        request = await node.answer([instance], [(chance.random(),)])
        if chance.random() < unlabelled:
            waiting.append(request.id)
        else:
            await node.learn(request.id, instance % 2)
    return waiting
