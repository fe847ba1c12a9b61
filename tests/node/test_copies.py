"""Copies of stores that are in use are the store at one instant."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from covey.errors import StoreError
from covey.node import copies
from covey.node.copies import opened_copy, snapshot

pytestmark = pytest.mark.beside_the_kernel

# Adds a line to each of two tables per transaction, with many checkpoints, until it is killed.
WRITER = """
import sqlite3, sys

base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("PRAGMA locking_mode = EXCLUSIVE")
base.execute("PRAGMA journal_mode = WAL")
base.execute("PRAGMA synchronous = OFF")
base.execute("PRAGMA wal_autocheckpoint = 7")
base.execute("CREATE TABLE one (number INTEGER PRIMARY KEY, text TEXT)")
base.execute("CREATE TABLE two (number INTEGER PRIMARY KEY, text TEXT)")
print("ready", flush=True)
number = 0
while True:
    number += 1
    base.execute("BEGIN")
    base.execute("INSERT INTO one VALUES (?, ?)", (number, "x" * 300))
    base.execute("DELETE FROM two")
    base.execute("INSERT INTO two VALUES (?, 'y')", (number,))
    base.execute("COMMIT")
    if number % 50 == 0 and sys.stdin.readline() == "":
        break
"""


def read(copy: Path) -> tuple[Any, ...]:
    base = sqlite3.connect(copy)
    try:
        (sound,) = base.execute("PRAGMA integrity_check").fetchone()
        count, last = base.execute("SELECT COUNT(*), MAX(number) FROM one").fetchone()
        ((other,),) = base.execute("SELECT number FROM two").fetchall()
    finally:
        base.close()
    return sound, count, last, other


def test_copies_of_a_store_that_is_written_are_whole_and_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "ATTEMPTS", 10_000)
    path = tmp_path / "some.store"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdout.readline()
        found = []
        for k in range(12):
            writer.stdin.write("on\n" * 2)
            writer.stdin.flush()
            folder = tmp_path / str(k)
            folder.mkdir()
            found.append(read(snapshot(path, folder)))
            shutil.rmtree(folder)
        writer.stdin.close()

    assert {sound for sound, *_ in found} == {"ok"}
    assert all(count == last == other for _, count, last, other in found)
    assert [count for _, count, *_ in found] == sorted(count for _, count, *_ in found)
    assert found[-1][1] > found[0][1]


@pytest.fixture
def used(tmp_path: Path) -> tuple[Path, sqlite3.Connection]:
    path = tmp_path / "used.store"
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("PRAGMA wal_autocheckpoint = 0")
    base.execute("CREATE TABLE one (number INTEGER PRIMARY KEY, text TEXT)")
    base.execute("CREATE TABLE two (number INTEGER)")
    return path, base


def write(base: sqlite3.Connection, number: int) -> None:
    base.execute("BEGIN")
    base.execute("INSERT INTO one VALUES (?, ?)", (number, "x" * 3_000))
    base.execute("DELETE FROM two")
    base.execute("INSERT INTO two VALUES (?)", (number,))
    base.execute("COMMIT")


def checkpoint(base: sqlite3.Connection) -> None:
    base.execute("PRAGMA wal_checkpoint(FULL)").fetchall()


def begin_log_again(base: sqlite3.Connection) -> None:
    checkpoint(base)
    write(base, 99)


@pytest.mark.parametrize("disturb", [checkpoint, begin_log_again])
@pytest.mark.parametrize("after", [1, 2], ids=["store copied", "log copied"])
def test_a_checkpoint_between_the_copies_is_noticed(
    disturb: Callable[[sqlite3.Connection], None],
    after: int,
    used: tuple[Path, sqlite3.Connection],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, base = used
    write(base, 1)
    write(base, 2)
    copied = []

    def copyfile(source: Any, target: Any) -> None:
        shutil.copyfile(source, target)
        copied.append(source)
        if len(copied) == after:
            disturb(base)

    monkeypatch.setattr(copies, "shutil", SimpleNamespace(copyfile=copyfile))
    folder = tmp_path / "copy"
    folder.mkdir()
    sound, count, last, other = read(snapshot(path, folder))
    expected = 3 if disturb is begin_log_again else 2
    base.close()

    assert len(copied) > 2
    assert (sound, count) == ("ok", expected)
    assert last == other


def test_a_store_that_never_rests_is_refused(
    used: tuple[Path, sqlite3.Connection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, base = used
    numbers = iter(range(1, 10_000))

    def copyfile(source: Any, target: Any) -> None:
        shutil.copyfile(source, target)
        write(base, next(numbers))
        checkpoint(base)

    monkeypatch.setattr(copies, "shutil", SimpleNamespace(copyfile=copyfile))
    folder = tmp_path / "copy"
    folder.mkdir()
    with pytest.raises(StoreError, match="is being written too fast to be copied"):
        snapshot(path, folder)
    base.close()


def test_a_sentence_names_the_store_and_not_its_copy(tmp_path: Path) -> None:
    path = tmp_path / "text.store"
    path.write_text("no database " * 100)
    with pytest.raises(StoreError) as raised, opened_copy(path):
        pass

    assert str(raised.value).startswith(str(path))
    with pytest.raises(StoreError, match="there is no store"), opened_copy(tmp_path / "none"):
        pass
