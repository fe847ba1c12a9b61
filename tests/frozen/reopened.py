"""A site that goes on from a frozen store, among peers that begin anew."""

from pathlib import Path
from typing import Any

import virtual
from covey.store import Store
from lives import FUNCTIONS
from virtual import World

CONTEXTS = [k / 16 for k in range(16)]


def decisions_from(path: Path, about: dict[str, Any]) -> list[list[Any]]:
    """Return what the site decides next, with all labels coming at once: single rows."""

    class Reopened(World):
        def store(self, name: str) -> Store:
            known = self.stores.get(name)
            return known or (Store(path) if name == about["site"] else Store.memory())

    async def main() -> list[list[Any]]:
        world = Reopened(about["config"], FUNCTIONS, dimension=1, trust=about["trust"])
        node = world.nodes[about["site"]]
        found = []
        for k, x in enumerate(CONTEXTS):
            one = await node.predict(k, (x,))
            found.append([one.slot, one.cell, one.phase, one.arm, one.function, one.answer])
            if about["is_supervised"]:
                await node.learn(one.id, k % 2)
        world.stores[about["site"]].close()
        return found

    return virtual.run(main())
