"""Stores that are removed or damaged: nothing more is acknowledged, and nothing is hidden."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.flips import build, flip_bits
from covey import cli
from covey.errors import StoreError
from covey.node.requests import Arm, Commit, Loaded, Regrouped, SetAside, StoreChange
from covey.node.store import Store
from covey.node.tables import NAMES, SEALS
from support.requests_of_nodes import commit_of, request
from support.served import INFER, Client, infer, run

pytestmark = pytest.mark.beside_the_kernel

FROZEN = Path(__file__).parents[1] / "frozen"
VERSION_2 = sorted((FROZEN / "stores_2").glob("*.store"))
Remove = Callable[[Path], object]


def load(store: Store) -> Loaded:
    return store.load("north", "fingerprint")


def replace(path: Path) -> None:
    shutil.copy(path, path.with_name("other"))
    path.with_name("other").replace(path)


def remove_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


@pytest.mark.parametrize("remove", [Path.unlink, replace, remove_log])
def test_no_commit_succeeds_after_the_files_were_removed_and_all_of_it_is_saved(
    tmp_path: Path, remove: Remove
) -> None:
    path = tmp_path / "north.store"
    store = Store(path)
    load(store)
    store.commit(commit_of([request(1)], {1: [1]}))
    remove(path)

    with pytest.raises(StoreError, match=r"north\.store.* was re\w+ while the site ran; .* saved"):
        store.commit(commit_of([request(2)]))
    store.close()
    saved = Store(tmp_path / "north.store.saved")

    assert saved.check() == []
    assert next(one.truths for one in load(saved).requests) == [1]


def test_a_removed_store_whose_folder_is_gone_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "data" / "north.store"
    path.parent.mkdir()
    store = Store(path)
    load(store)
    shutil.rmtree(path.parent)

    with pytest.raises(StoreError, match="was removed while the site ran, and cannot be saved"):
        store.commit(commit_of([request(1)]))


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_log_without_its_store_begins_no_new_store(tmp_path: Path, is_empty: bool) -> None:
    path = tmp_path / "north.store"
    store = Store(path)
    load(store)
    shutil.copy(f"{path}-wal", tmp_path / "a-wal")
    store.close()
    if is_empty:
        (tmp_path / "a").touch()

    with pytest.raises(StoreError, match=r"is there, so the store was removed; restore both"):
        Store(tmp_path / "a")

    assert (tmp_path / "a-wal").stat().st_size > 0


def test_a_saved_copy_without_its_store_begins_no_new_store(tmp_path: Path) -> None:
    Store(tmp_path / "a.saved").close()

    with pytest.raises(StoreError, match=r"a\.saved, is there; rename it to a, or remove it"):
        Store(tmp_path / "a")


def test_a_store_knows_whether_it_is_new(tmp_path: Path) -> None:
    made = [Store(tmp_path / "a"), Store.memory()]
    made[0].close()

    again = Store(tmp_path / "a")

    assert [one.is_new for one in (*made, again)] == [True, True, False]


def test_a_served_site_says_that_its_store_is_new_and_later_what_it_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("a"))

    caplog.set_level("INFO", "covey")
    said = []
    for _ in range(2):
        run(tmp_path, story)
        lines = [one.message for one in caplog.records]
        said.append([line.partition("north.store")[2] for line in lines if "north.store" in line])
        caplog.clear()

    assert said[0][0] == " is new: the site begins with no labels"
    assert [line.partition(" MB")[2] for line in said[1][:1]] == ["; its pages are checked"]
    assert said[1][1:3] == [
        " has 1 requests; their labels are counted",
        " is read: 1 requests wait for labels",
    ]


def test_every_flipped_bit_that_changes_the_content_is_found_in_words(tmp_path: Path) -> None:
    build(tmp_path / "a", rounds=40)

    flips = flip_bits(tmp_path / "a", 250)

    assert flips.different > 100
    assert (flips.found, flips.raised, flips.missed) == (flips.different, 0, [])


def test_every_table_but_the_sums_has_checksums() -> None:
    assert set(NAMES) - SEALS.keys() == {"counters", "folded"}


CHANGES = {
    "requests": "UPDATE requests SET digest = 'other'",
    "requests opened again": "UPDATE requests SET is_open = 1",
    "labels": "UPDATE labels SET truths = '[0]'",
    "cells": "UPDATE cells SET counters = '[9]'",
    "sources": "UPDATE sources SET slot = slot + 1",
    "outbox": "UPDATE outbox SET label = '0'",
    "row_ids": "UPDATE row_ids SET row = row + 1",
    "payments": "UPDATE payments SET amount = amount + 1",
    "payments stated": "UPDATE payments SET is_unstated = 1 - is_unstated",
    "folded_asked": "UPDATE folded_asked SET answers = answers + 1",
    "site": "UPDATE site SET starts = starts + 1",
}


@pytest.mark.parametrize("what", CHANGES)
def test_check_names_the_table_of_a_changed_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    build(tmp_path / "a", rounds=60)
    change(tmp_path / "a", CHANGES[what])

    code = cli.main(["check", str(tmp_path / "a")])

    assert code == 2
    assert f"the row of table {what.partition(' ')[0]} that begins with" in capsys.readouterr().err


@pytest.mark.parametrize(
    "statement", ["UPDATE cells SET seen = '[]'", "UPDATE sources SET changes = '{}'"]
)
def test_a_start_refuses_a_damaged_state(tmp_path: Path, statement: str) -> None:
    build(tmp_path / "a", rounds=2)
    change(tmp_path / "a", statement)

    with pytest.raises(
        StoreError, match="is damaged .* does not fit its checksum.; restore it from a copy"
    ):
        Store(tmp_path / "a").load("north", "arm: f")


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("arms", "UPDATE arms SET version = '2'"),
        ("set_aside", "UPDATE set_aside SET counters = '[9]'"),
        ("requests", "UPDATE requests SET groups = replace(groups, '0', '1')"),
    ],
)
def test_a_changed_configuration_is_written_with_checksums(
    tmp_path: Path, table: str, statement: str
) -> None:
    store = Store(tmp_path / "a")
    load(store)
    store.commit(commit_of([request(1), request(2)]))
    first, second = store._requests("1")
    store.commit(Commit(closed=[2]))
    groups = [msgspec.structs.replace(one, code=4) for one in first.groups]
    now = [Regrouped(one, groups, one.group_of) for one in (first, second)]
    aside = [SetAside("f", "", "g1:0", [1, 1])]
    store.change(StoreChange("arm: f", [Arm("f", "f")], requests=now, set_aside=aside))

    assert store.check() == []
    assert (store.arms(), store.set_aside("f")) == ([Arm("f", "f")], aside)
    assert [one.groups for one in store._requests("1")] == [groups, groups]
    store._base.execute(statement)
    assert f"the row of table {table} that begins with" in store.check()[0]


def test_a_damaged_request_is_not_found_but_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    load(store)
    store.commit(commit_of([request(1)], {1: [1]}))
    store._base.execute("UPDATE labels SET truths = '[0]'")

    with pytest.raises(StoreError, match="table labels that begins with 1 does not fit"):
        store.find("", "t1")


def test_a_changed_constraint_of_the_schema_is_found(tmp_path: Path) -> None:
    build(tmp_path / "a", rounds=2)
    with sqlite3.connect(tmp_path / "a") as base:
        base.execute("PRAGMA writable_schema = ON")
        base.execute("UPDATE sqlite_schema SET sql = replace(sql, 'slot >= 0', 'slot >= 1')")
    base.close()

    assert Store(tmp_path / "a").check() == ["the schema is damaged"]


@pytest.mark.parametrize("frozen", VERSION_2, ids=lambda path: path.stem)
def test_a_store_of_version_2_gets_checksums_and_holds_what_it_held(
    frozen: Path, tmp_path: Path
) -> None:
    told = json.loads(frozen.with_suffix(".json").read_text())
    path = Path(shutil.copy(frozen, tmp_path))
    before = rows_of(path)

    store = Store(path)
    after = {
        name: [row[:-1] if name in SEALS else row for row in rows]
        for name, rows in rows_of_store(store).items()
    }
    loaded = store.load(told["site"], told["shape"])

    assert store.copy == path.with_name(f"{path.name}.v2.bak")
    assert rows_of(store.copy) == before
    assert {name: after[name] for name in before} == before
    assert store.check() == []
    assert [[*key, *counts] for key, counts in sorted(loaded.counters.items())] == told["counters"]


def rows_of(path: Path) -> dict[str, list[Any]]:
    with sqlite3.connect(path) as base:
        found = _rows(base)
    base.close()
    return found


def rows_of_store(store: Store) -> dict[str, list[Any]]:
    return _rows(store._base)


def _rows(base: sqlite3.Connection) -> dict[str, list[Any]]:
    known = base.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {name: base.execute(f"SELECT * FROM {name}").fetchall() for (name,) in known}  # noqa: S608


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        assert base.execute(statement).rowcount >= 1
