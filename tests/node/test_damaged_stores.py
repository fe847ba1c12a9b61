"""Stores that are removed or damaged: nothing more is acknowledged, and nothing is hidden."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from chaos.flips import build, flip_bits
from covey import cli
from covey.errors import StoreError
from covey.site.requests import Loaded
from covey.store import tables
from covey.store.database import VERSION
from covey.store.store import Store
from support.requests_of_nodes import commit_of, request
from support.served import SITE

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


def emptied(path: Path, how: str) -> Path:
    if how == "no byte":
        path.touch()
    else:
        with closing(sqlite3.connect(path)) as base:
            base.execute(f"PRAGMA user_version = {VERSION}")
    return path


@pytest.mark.parametrize("how", ["no byte", "no table"])
def test_an_empty_file_begins_no_new_store_and_is_not_whole(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    path = emptied(tmp_path / "north.store", how)

    for command in (["check", str(path)], ["serve", str(tmp_path / "site.toml")]):
        assert cli.main(command) == 2
        assert "north.store is empty; restore a copy or remove it" in capsys.readouterr().err


@pytest.mark.parametrize("is_open", [False, True])
def test_check_changes_no_byte_and_leaves_no_file(tmp_path: Path, is_open: bool) -> None:
    store = Store(tmp_path / "a")
    load(store)
    store.commit(commit_of([request(1)]))
    if not is_open:
        store.close()

    def seen() -> dict[str, tuple[bytes, int]]:
        files = [one for one in sorted(tmp_path.iterdir()) if not one.name.endswith("-shm")]
        return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}

    before = seen()

    assert cli.main(["check", str(tmp_path / "a")]) == 0
    assert seen() == before


def test_a_saved_copy_without_its_store_begins_no_new_store(tmp_path: Path) -> None:
    Store(tmp_path / "a.saved").close()

    with pytest.raises(StoreError, match=r"a\.saved, is there; rename it to a, or remove it"):
        Store(tmp_path / "a")


def test_every_flipped_bit_that_changes_the_content_is_found_in_words(tmp_path: Path) -> None:
    build(tmp_path / "a", rounds=40)

    flips = flip_bits(tmp_path / "a", 250)

    assert flips.different > 80
    assert (flips.found, flips.raised, flips.missed) == (flips.different, 0, [])


def test_every_table_but_the_sums_has_checksums() -> None:
    unsealed = {table.name for table in tables.ALL_TABLES if "sum" not in table.columns}

    assert unsealed == {"counters", "folded"}


CHANGES = {
    "requests": "UPDATE requests SET digest = 'other'",
    "requests opened again": "UPDATE requests SET is_open = 1",
    "labels": "UPDATE labels SET truths = '[0]'",
    "cells": "UPDATE cells SET counters = '[9]'",
    "sources": "UPDATE sources SET slot = slot + 1",
    "outbox": "UPDATE outbox SET label = '0'",
    "row_ids": "UPDATE row_ids SET row = row + 1",
    "payments": "UPDATE payments SET amount = amount + 1",
    "answered": "UPDATE answered SET answers = answers + 1",
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


def test_a_changed_constraint_of_the_schema_is_found(tmp_path: Path) -> None:
    build(tmp_path / "a", rounds=2)
    with sqlite3.connect(tmp_path / "a") as base:
        base.execute("PRAGMA writable_schema = ON")
        base.execute(
            """UPDATE sqlite_schema SET sql = replace(sql, '"slot" >= 0', '"slot" >= 1')"""
        )
    base.close()

    assert Store(tmp_path / "a").check() == ["the schema is damaged"]


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        assert base.execute(statement).rowcount >= 1
