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
from frozen.reopened import continued, decisions_from

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
    own = next(one for one in told["config"]["learner"] if one["name"] == told["site"])
    whole = continued(path, told, known)
    for keys in ({"functions": own["functions"][1:]}, {"peers": {}, "context-peers": {}}):
        path, told = copied(frozen, tmp_path)
        less = copy.deepcopy(told)
        next(one for one in less["config"]["learner"] if one["name"] == told["site"]).update(keys)
        left = continued(path, less, known)
        store = Store(path)

        arms = {arm for _, arm in left}
        assert left == {key: value for key, value in whole.items() if key[1] in arms}
        assert 0 < len(left) < len(whole)
        assert counters_of(store) == told["counters"]
        assert store.check() == []
        store.close()


async def known(node: Node) -> dict[tuple[str, str], list[int]]:
    table = node.learner.tables[node.learner.space]
    return {
        (node.learner.name_at(node.learner.space, row), arm): table.arm_counters(row, place)
        for row in range(len(table))
        for place, arm in enumerate(node.learner.arms)
    }
