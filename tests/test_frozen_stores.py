"""A store that 0.1.0 wrote can be opened, holds what it held, and the site goes on from it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from covey.store import Store
from frozen.reopened import decisions_from

STORES = sorted((Path(__file__).parent / "frozen" / "stores").glob("*.store"))
EVERY_STORE = pytest.mark.parametrize("frozen", STORES, ids=lambda path: path.stem)
pytestmark = pytest.mark.beside_the_kernel


def copied(frozen: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return a copy of a store that may be changed, and what is known of it."""
    return Path(shutil.copy(frozen, folder)), json.loads(frozen.with_suffix(".json").read_text())


def test_there_are_stores_and_they_are_small() -> None:
    assert len(STORES) == 12
    assert max(path.stat().st_size for path in STORES) < 200_000


@EVERY_STORE
def test_a_store_of_0_1_0_is_consistent(frozen: Path, tmp_path: Path) -> None:
    path, _ = copied(frozen, tmp_path)
    store = Store(path, is_new_allowed=False)

    assert store.check() == []
    store.close()


@EVERY_STORE
def test_a_store_of_0_1_0_is_loaded_for_its_site_and_holds_what_it_held(
    frozen: Path, tmp_path: Path
) -> None:
    path, told = copied(frozen, tmp_path)
    store = Store(path, is_new_allowed=False)
    loaded = store.load(told["site"], told["shape"])
    counters = [[*key, *counts] for key, counts in sorted(loaded.counters.items())]
    owed = [[one.peer, one.id, json.dumps(one.label)] for one in loaded.owed]

    assert counters == told["counters"]
    assert owed == told["outbox"]
    assert store.size() == told["size"]
    assert loaded.starts == told["starts"] + 1
    store.close()


@pytest.mark.parametrize(
    "frozen",
    [path for path in STORES if path.stem not in ("taught", "previous-label")],
    ids=lambda path: path.stem,
)
def test_a_site_decides_on_from_its_store_as_0_1_0_did(frozen: Path, tmp_path: Path) -> None:
    path, told = copied(frozen, tmp_path)

    assert decisions_from(path, told) == told["next"]
