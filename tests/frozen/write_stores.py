"""Write the stores in `stores/`: sites of 0.1.0 that were stopped in the middle of their work.

To be run with version 0.1.0 only, in the folder `tests` of its source, as
`python -m frozen.write_stores`; later versions write another form. The files are what a migration
must read, so they are never written by the code that is to be tested with them.
"""

import asyncio
import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import virtual
from lives import FUNCTIONS, GRID, ZOOM, config
from served import FEEDBACK, INFER, SITE, serving
from virtual import World

from covey.books import CLIENT, Question
from covey.errors import LateLabel
from covey.node import Node
from covey.peers import NO_INSTANCE, Request
from covey.policies import INDEXED
from covey.store import Store
from covey.types import Cell

FOLDER = Path(__file__).with_name("stores")
CONTEXTS = [k / 16 for k in range(16)]
AUTO = {"preset": "auto", "pending": True}
TRUSTS = {"north": {"south": "isolated", "east": "robust", "west": "full"}}
Story = Callable[[Node, World], Awaitable[None]]


class Pupil:
    """Answers with the label that it was taught last."""

    def __init__(self) -> None:
        self.latest = 0

    def predict(self, instance: Any) -> int:
        return self.latest

    def learn(self, instance: Any, label: int) -> None:
        self.latest = label


async def clients(node: Node, world: World) -> None:
    """Ask single rows and batches; leave labels out, open, and owed to a peer that is down."""
    for k in range(24):
        source = f"{CLIENT}ada" if k % 3 == 0 else ""
        ticket = await node.predict(k, (k % 10 / 10,), question=Question(source, f"one-{k}", "d"))
        if k % 4:
            await node.learn(ticket.id, k % 2, source=source)
    for k in range(5):
        rows = list(range(100 * k, 100 * k + 8))
        points = [(row % 8 / 8,) for row in rows]
        lot = await node.predict_batch(rows, points, question=Question("", f"many-{k}", "d"))
        known = [row for row in range(8) if row % 5 != k]
        await node.learn_many(lot.id, known, [row % 2 for row in known])
    await node.drained()
    await owe(node, world)
    await node.predict(7, (0.3,), question=Question("", "open", "d"))
    await node.predict_batch([1, 2, 3], [(0.1,), (0.5,), (0.9,)], question=Question("", "lot", "d"))


async def owe(node: Node, world: World) -> None:
    """Tell labels of answers of a peer while it is down, of a single row and of a batch."""
    asked = []
    for k in range(400):
        one = await node.predict(k, (0.9,), question=Question("", f"owed-{k}"))
        if one.peer:
            asked.append(one.id)
            if len(asked) == 2:
                break
        else:
            await node.learn(one.id, k % 2)
    lot = await node.predict_batch(list(range(9)), [(0.9,)] * 9, question=Question("", "owed"))
    world.down.add("south")
    for id_ in asked:
        await node.learn(id_, 1)
    await node.learn_many(lot.id, [0, 1, 2, 5, 8], [1, 0, 1, 1, 1])


async def helps(node: Node, world: World, *peers: str) -> None:
    """Serve peers, with and without data; some tell their labels, some do not."""
    partition = node.learner.policies[""].partition
    level = min(1, len(partition.levels(1)) - 1)
    for k in range(30):
        source = peers[k % len(peers)]
        cell = partition.name(Cell(level, (k % 2,)))
        instance = NO_INSTANCE if source == "east" and k % 2 else k
        await node.assist(Request(f"{source}-{k}", cell, k + 1, instance), source=source)
        if k % 5:
            await node.learn(f"{source}-{k}", k % 2, source=source)
    await clients(node, world)


async def prunes(node: Node, world: World) -> None:
    """Work for so long that old rows have left, labelled or not."""
    for k in range(40):
        one = await node.predict(k, (k % 8 / 8,), question=Question("", f"old-{k}"))
        if k % 3:
            await node.learn(one.id, k % 2)
        lot = await node.predict_batch([k, k], [(0.2,), (0.7,)], question=Question("", f"lot-{k}"))
        await node.learn_many(lot.id, [0], [k % 2])
        cell = "g2:1"
        await node.assist(Request(f"p-{k}", cell, one.slot, k), source="south")
        try:
            await node.learn(f"p-{k}", 1, source="south")
        except LateLabel:
            continue
    await node.drained()


async def asks_only(node: Node, world: World) -> None:
    """Ask for labels that never come."""
    other = world.nodes["south"]
    for k in range(20):
        one = await other.predict(k, (k % 4 / 4,))
        await other.learn(one.id, k % 2)
    for k in range(12):
        await node.predict(k, (k % 4 / 4,), question=Question("", f"blind-{k}"))
    await node.predict_batch([1, 2, 3], [(0.1,), (0.5,), (0.9,)], question=Question("", "many"))


def unsupervised() -> dict[str, Any]:
    made = config(GRID)
    made["learner"] = [{**made["learner"][0], "supervised": False}, made["learner"][1]]
    return made


def among_four(policy: dict[str, Any]) -> dict[str, Any]:
    made = config(policy)
    asks = {"peers": {"north": 0.0}} if policy["preset"] in INDEXED else {"peers": {}}
    have = {one["name"] for one in made["learner"]}
    new = [name for name in ("east", "west") if name not in have]
    made["learner"] += [{"name": name, "functions": ["e"], **asks} for name in new]
    return made


async def helps_three(node: Node, world: World) -> None:
    await helps(node, world, "south", "east", "west")


async def helps_one(node: Node, world: World) -> None:
    await helps(node, world, "south")


def trust_of(made: dict[str, Any], trust: str) -> dict[str, dict[str, str]]:
    names = [one["name"] for one in made["learner"]]
    return {site: dict.fromkeys(names, trust) for site in names}


def stories() -> dict[str, tuple[dict[str, Any], Any, Story, int]]:
    """Return per store: configuration, trust, story, and how many tickets are kept."""
    many = 1_000_000
    kept_apart = dict.fromkeys(("north", "south", "east", "west"), TRUSTS["north"])
    waits = {**GRID, "label-wait": 12}
    return {
        "clients-cos": (config(GRID), "full", clients, many),
        "clients-dcza": (config({**ZOOM, "inherit": True}), "full", clients, many),
        "clients-auto": (config(AUTO), "full", clients, many),
        "clients-window": (config({**GRID, "forget": {"window": 3}}), "full", clients, many),
        "peers-isolated": (config(GRID), "isolated", helps_one, many),
        "peers-robust": (config(AUTO), "robust", helps_one, many),
        "peers-full": (config(GRID), "full", helps_one, many),
        "peers-of-each-trust": (among_four(GRID), kept_apart, helps_three, many),
        "unsupervised": (unsupervised(), "isolated", asks_only, many),
        "taught": (config({**GRID, "slices": 1}), "isolated", clients, many),
        "pruned": (config(waits), "isolated", prunes, 10),
    }


def write(name: str, made: dict[str, Any], trust: Any, story: Story, kept: int) -> None:
    """Write the store of north at the end of a story."""
    trusts = trust_of(made, trust) if isinstance(trust, str) else trust
    path = FOLDER / f"{name}.store"
    functions = {**FUNCTIONS, "a": Pupil()} if name == "taught" else FUNCTIONS

    class Kept(World):
        def store(self, site: str) -> Store:
            known = self.stores.get(site)
            new = (lambda: Store(path, tickets_kept=kept)) if site == "north" else Store.memory
            return known or new()

    async def main() -> None:
        world = Kept(made, functions, dimension=1, trust=trusts)
        await story(world.nodes["north"], world)
        world.crash("north")
        for store in world.stores.values():
            store.close()

    virtual.run(main())
    pack(path)
    about = {"config": made, "trust": trusts, "is_supervised": name != "unsupervised"}
    describe(path, about, goes_on=name != "taught")


async def serve(folder: Path) -> None:
    """Write the store of a site over HTTP that makes contexts of the previous label."""
    data = '\n[data]\ncontext = [{ scale = "previous-label", classes = [0, 1] }]\n'
    text = SITE.replace("dimension = 1\n", "") + data
    inputs = [
        {"name": "size", "shape": [1], "datatype": "FP64", "data": [1.5]},
        {"name": "kind", "shape": [1], "datatype": "BYTES", "data": ["a"]},
    ]
    async with serving(folder, text) as client:
        for k in range(16):
            status, told = await client.post(INFER, {"id": f"one-{k}", "inputs": inputs})
            assert status < 300, told
            if k % 4:
                status, told = await client.post(FEEDBACK, {"id": f"one-{k}", "truth": k % 2})
                assert status < 300, told
    shutil.copy(folder / "north.store", FOLDER / "previous-label.store")
    for end in ("-wal", "-shm"):
        if (folder / f"north.store{end}").exists():
            shutil.copy(folder / f"north.store{end}", FOLDER / f"previous-label.store{end}")
    pack(FOLDER / "previous-label.store")
    describe(FOLDER / "previous-label.store", {"site.toml": text}, goes_on=False)


def pack(path: Path) -> None:
    """Leave all in one file, without a log beside it."""
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    base.execute("PRAGMA journal_mode = DELETE").fetchall()
    base.execute("VACUUM")
    base.close()


def describe(path: Path, about: dict[str, Any], *, goes_on: bool) -> None:
    """Write beside a store what is in it, as 0.1.0 reads it."""
    base = sqlite3.connect(path)
    site, shape, starts = base.execute("SELECT name, shape, starts FROM site").fetchone()
    told = {
        "site": site,
        "shape": shape,
        "starts": starts,
        **about,
        "counters": base.execute("SELECT * FROM counters ORDER BY 1, 2, 3").fetchall(),
        "outbox": base.execute("SELECT * FROM outbox ORDER BY 1, 2").fetchall(),
        "desks": base.execute("SELECT desk, slot, latest FROM desks ORDER BY 1").fetchall(),
        "tables": {
            table: base.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]  # noqa: S608
            for (table,) in base.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        },
        "open": base.execute(
            "SELECT source, id FROM tickets WHERE truth IS NULL ORDER BY 1, 2"
        ).fetchall(),
        "single rows": base.execute(
            "SELECT source, id, cell, phase, arm, function, answer, truth, is_right FROM tickets "
            "ORDER BY source, id"
        ).fetchall(),
        "batches": [],
    }
    keys = base.execute("SELECT source, id FROM lots ORDER BY 1, 2").fetchall()
    base.close()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(path, folder))
        store = Store(copy)
        assert store.check() == []
        told["size"] = store.size()
        for source, id_ in keys:
            lot = store.find(source, id_)
            told["batches"].append([source, id_, [_row(lot, k) for k in range(len(lot))]])
        store.close()
        if goes_on:
            for key, use in (("next", decides), ("next served", serves)):
                told[key] = continued(Path(shutil.copy(path, copy)), told, use)
    text = json.dumps(told, indent=1, default=str)
    path.with_suffix(".json").write_text(_compact(text) + "\n", encoding="utf-8")


def continued(path: Path, about: dict[str, Any], use: Any) -> list[list[Any]]:
    """Return what a site does next from a store, among peers that begin anew."""

    class Reopened(World):
        def store(self, name: str) -> Store:
            known = self.stores.get(name)
            return known or (Store(path) if name == about["site"] else Store.memory())

    async def main() -> Any:
        world = Reopened(about["config"], FUNCTIONS, dimension=1, trust=about["trust"])
        found = await use(world.nodes[about["site"]], about)
        world.stores[about["site"]].close()
        return found

    return virtual.run(main())


async def decides(node: Node, about: dict[str, Any]) -> list[list[Any]]:
    """Return own decisions, with each label after its row."""
    found = []
    for k, x in enumerate(CONTEXTS):
        one = await node.predict(k, (x,))
        found.append([one.slot, one.cell, one.phase, one.arm, one.function, one.answer])
        if about["is_supervised"]:
            await node.learn(one.id, k % 2)
    return found


async def serves(node: Node, about: dict[str, Any]) -> list[list[Any]]:
    """Return answers to all peers in turn, with each label after its row."""
    peers = [one["name"] for one in about["config"]["learner"] if one["name"] != about["site"]]
    partition = node.learner.policies[""].partition
    level = min(1, len(partition.levels(1)) - 1)
    found = []
    for k in range(16):
        for peer in peers:
            cell = partition.name(Cell(level, (k % 2,)))
            one = await node.assist(Request(f"next-{k}", cell, 1000 + k, k), source=peer)
            found.append([peer, cell, one.function, one.label])
            await node.learn(f"next-{k}", k // 2 % 2, source=peer)
    return found


def _row(lot: Any, row: int) -> list[Any]:
    kind, truth = lot.kind(row), lot.truths[row]
    is_known = row not in lot.waiting
    return [
        kind.cell,
        kind.phase,
        kind.arm,
        lot.function(row),
        lot.answers[row],
        truth if is_known else None,
    ]


def _compact(text: str) -> str:
    """Return JSON whose innermost lists have a line each."""
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)


def main() -> None:
    """Write all of them anew."""
    FOLDER.mkdir(exist_ok=True)
    for old in [*FOLDER.glob("*.store"), *FOLDER.glob("*.json")]:
        old.unlink()
    for name, story in stories().items():
        write(name, *story)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve(Path(folder)))


if __name__ == "__main__":
    main()
