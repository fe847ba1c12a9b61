"""A store that 0.2.0 wrote is migrated, holds what it held, and the site continues from it."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from covey.node.node import Node
from covey.node.store import Store
from covey.node.tables import VERSION
from frozen.reopened import as_before, continued, decisions_from

STORES = sorted((Path(__file__).parents[1] / "frozen" / "stores_2").glob("*.store"))
EVERY_STORE = pytest.mark.parametrize("frozen", STORES, ids=lambda path: path.stem)
pytestmark = pytest.mark.beside_the_kernel


def copied(frozen: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return a copy of a store that may be changed, and what is known of it."""
    return Path(shutil.copy(frozen, folder)), json.loads(frozen.with_suffix(".json").read_text())


def counters_of(store: Store) -> list[list[Any]]:
    return [[*key, *counts] for key, counts in sorted(store.counters().items())]


def test_there_are_stores_and_they_are_small() -> None:
    assert len(STORES) == 7
    assert max(path.stat().st_size for path in STORES) < 200_000


@EVERY_STORE
def test_a_store_of_0_2_0_holds_what_it_held_and_a_copy_of_it_is_kept(
    frozen: Path, tmp_path: Path
) -> None:
    path, told = copied(frozen, tmp_path)
    store = Store(path, is_new_allowed=False)

    assert store.copy == path.with_name(f"{path.name}.v2.bak")
    assert store.copy.exists()
    assert store._number("PRAGMA user_version") == VERSION
    assert store.check() == []
    assert counters_of(store) == told["counters"]
    assert store.size() == told["size"]
    names = [line.removeprefix("arm: ") for line in told["shape"].splitlines() if "arm: " in line]
    assert [arm.id for arm in sorted(store.arms(), key=lambda arm: arm.place)] == names
    store.close()


@EVERY_STORE
def test_a_site_continues_to_decide_from_its_store_as_0_2_0_did(
    frozen: Path, tmp_path: Path
) -> None:
    path, told = copied(frozen, tmp_path)

    assert decisions_from(path, told) == told["next"]


@EVERY_STORE
def test_a_site_that_also_loses_a_function_or_its_peers_keeps_the_rest(
    frozen: Path, tmp_path: Path
) -> None:
    """A store of 0.2.0 does not say which arms are functions; its counters do."""
    path, told = copied(frozen, tmp_path)
    told = as_before(told)
    own = next(one for one in told["config"]["learner"] if one["name"] == told["site"])
    whole = continued(path, told, known)
    for keys in ({"functions": own["functions"][1:]}, {"peers": {}, "context-peers": {}}):
        path, told = copied(frozen, tmp_path)
        less = copy.deepcopy(as_before(told))
        next(one for one in less["config"]["learner"] if one["name"] == told["site"]).update(keys)
        left = continued(path, less, known)
        store = Store(path)

        arms = {arm for _, arm in left}
        assert left == {key: value for key, value in whole.items() if key[1] in arms}
        assert 0 < len(left) < len(whole)
        assert counters_of(store) == told["counters"]
        assert store.check() == []
        store.close()


OF_THE_FORMER_DEFAULT = [
    path
    for path in (*STORES, *STORES[0].parents[1].glob("stores/*.store"))
    if path.stem in ("clients-auto", "peers-robust")
]


@pytest.mark.parametrize("frozen", OF_THE_FORMER_DEFAULT, ids=str)
def test_a_store_of_the_former_default_is_counted_again_for_the_default(
    frozen: Path, tmp_path: Path
) -> None:
    path, told = copied(frozen, tmp_path)

    async def used(node: Node) -> tuple[list[str], int, int]:
        table = node.learner.tables[""]
        counted = sum(table.record(0, arm)[0] for arm in range(len(node.learner.arms)))
        return node.plan.lines(), node.plan.counted, counted

    async def decides(node: Node) -> str:
        request = await node.answer([1], [(0.5,)])
        await node.learn(request.id, 1)
        return request.group(0).cell

    lines, labels, in_the_coarsest_cell = continued(path, told, used)

    assert told["config"]["policy"]["preset"] == "auto"
    assert lines[:2] == [
        "changes cells: 2 and 8 slices per dimension at once before, halved at 2^(1 * level) "
        "arrivals, down to level 20, all at once now",
        "changes preset: auto before, auto (tree of cells) now",
    ]
    assert lines[2].startswith(f"counts again: {labels} of {labels} labels")
    assert in_the_coarsest_cell > labels / 2  # those of isolated peers are kept apart
    assert continued(path, told, used)[0] == []
    assert continued(path, told, decides).startswith("z")


def test_there_are_three_stores_of_the_former_default() -> None:
    assert len(OF_THE_FORMER_DEFAULT) == 3


async def known(node: Node) -> dict[tuple[str, str], list[int]]:
    table = node.learner.tables[node.learner.space]
    return {
        (node.learner.name_at(node.learner.space, row), arm): table.arm_counters(row, place)
        for row in range(len(table))
        for place, arm in enumerate(node.learner.arms)
    }
