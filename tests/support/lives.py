"""A site that runs by a script, in requests of one or many rows; and worlds for one test each."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from covey.bandit.learner import Learner
from covey.kernel.rules import Cell, Report
from covey.node.node import Node, Question
from covey.node.peers import PeerTimeouts
from covey.site.requests import AskRow, Request
from covey.site.trust import Trust
from support import virtual
from support.presets import INDEXED
from support.snapshots import snapshot_of
from support.tables import rows_of
from support.virtual import Link, World

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
    "auto": {"preset": "auto", "pending": True},
    "shared": {"preset": "share-ucb", "slices": 2, "pending": True},
    "discounted": {**GRID, "forget": {"discount": 0.9}},
    "limited": {"preset": "auto", "pending": True, "harm": {"points": 25.0, "confidence": 0.6}},
    "limited grid": {**GRID, "harm": {"points": 25.0, "confidence": 0.6}},
}


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


class SteadyLink(Link):
    """Reports bounds as they were when first asked for, until the slot has doubled."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.told: dict[str, tuple[int, float, float]] = {}

    async def report(self, cell: str, slot: int, what: Any = "arrivals") -> Report:
        arrivals, *bounds = await super().report(cell, slot, what)
        at, *known = self.told.get(cell, (0, 0.0, 0.0, ()))
        if slot > 2 * at:
            self.told[cell] = slot, *bounds
            known = bounds
        return arrivals, *known


def world_of(policy: dict[str, Any], trust: Trust = "full", **more: Any) -> World:
    return World(config(policy), FUNCTIONS, dimension=1, trust=trust, **more)


class Life:
    """A site that gets rows, labels and asks of a peer, by a script."""

    def __init__(self, world: World, *, is_batched: bool) -> None:
        """Rows of a step are one request if `is_batched`; else each is a request of its own."""
        self.world, self.is_batched = world, is_batched
        self.noted: list[Any] = []

    @property
    def node(self) -> Node:
        return self.world.nodes["north"]

    async def run(self, script: list[Any]) -> list[Any]:
        for step, (verb, *given) in enumerate(script):
            await getattr(self, verb)(str(step), *given)
            self.noted.append(self._state())
        return self.noted

    async def predict(self, id_: str, contexts: list[float]) -> None:
        points = [(x,) for x in contexts]
        rows = [int(id_) * 100 + k for k in range(len(points))]
        self._forget_reports()
        if self.is_batched:
            request = await self.node.answer(rows, points, question=Question("", id_))
            self.noted += [row_of(request, row) for row in range(len(request))]
            return
        for k, (row, point) in enumerate(zip(rows, points, strict=True)):
            request = await self.node.answer([row], [point], question=Question("", f"{id_}:{k}"))
            self.noted.append(row_of(request, 0))

    def _forget_reports(self) -> None:
        """Let peers report what holds now: a request of many rows decides all of them by that."""
        for breaker in self.node._breakers.values():
            if isinstance(breaker._peer, SteadyLink):
                breaker._peer.told.clear()

    async def learn(self, step: str, id_: str, rows: list[int], labels: list[int]) -> None:
        if self.is_batched:
            done = await self.node.learn_rows(id_, rows, labels)
            self.noted += zip(done.is_new, done.is_right, strict=True)
        else:
            for row, label in zip(rows, labels, strict=True):
                one = await self.node.learn(f"{id_}:{row}", label)
                self.noted.append((one.is_new, one.is_right))
        await self.node.drained()

    async def serve(self, step: str, places: list[int]) -> None:
        partition = self.node.learner.policies[""].partition
        level = min(1, len(partition.levels(1)) - 1)
        slot = self.node.learner.slot + 1
        rows = [
            AskRow(f"{step}:{k}", partition.name(Cell(level, (place,))), slot, 3 + k)
            for k, place in enumerate(places)
        ]
        asks = [rows] if self.is_batched else [[row] for row in rows]
        for ask in asks:
            self.noted += await self.node.for_peers.assist(ask, source="south")
        labels = [(row.id, 1) for row in rows]
        for part in [labels] if self.is_batched else [[label] for label in labels]:
            self.noted += await self.node.for_peers.take_labels(part, source="south")

    async def restart(self, step: str, name: str) -> None:
        if self.is_batched:
            self.world.crash(name)
            self.world.boot(name)

    def _state(self) -> Any:
        return [known(node) for _, node in sorted(self.world.nodes.items())] + [
            store.counters() for _, store in sorted(self.world.stores.items())
        ]


def row_of(request: Request, row: int) -> tuple[Any, ...]:
    group, slot = request.group(row), request.slot_of(row)
    function, answer = request.function(row), request.answers[row]
    return (group.phase, group.arm, group.cell, slot, group.price, function, answer)


def known(node: Node) -> Any:
    """Return all that a node counts, for itself and for each isolated source."""
    overlays = node._state.sources._overlays
    return counters(node.learner), {
        source: [rows_of(table) for table in overlays[source].tables.values()]
        for source in sorted(overlays)
    }


def counters(learner: Learner) -> Any:
    """Return all that is counted. A peer need not know of the latest slots."""
    snapshot = snapshot_of(learner)
    return snapshot.cells, snapshot.seen, [rows_of(table) for table in learner.tables.values()]


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
            script.append(("serve", [chance.randrange(2) for _ in range(chance.randint(1, 4))]))
        else:
            name = chance.choice(["north", "south"]) if restarts else "north"
            script.append(("restart", name) if restarts else ("serve", [0]))
    return script


def live(
    story: Callable[[Node, World], Any],
    policy: dict[str, Any] = GRID,
    kind: type[World] = World,
    **more: Any,
) -> None:
    """Run `story` with a node that has a peer, under a virtual clock."""

    async def main() -> None:
        timeouts = PeerTimeouts(timeout_s=1.0, failures=3, open_s=1.0, most_open_s=60.0)
        given = {"trust": "full", "timeouts": timeouts, **more}
        world = kind(config(policy), FUNCTIONS, dimension=1, **given)
        await story(world.nodes["north"], world)

    virtual.run(main())


ROWS = list(range(8))
POINTS = np.linspace(0.0, 1.0, 8).reshape(8, 1)
