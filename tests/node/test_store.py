"""A store keeps what it acknowledged, refuses what it cannot vouch for, and says why."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from covey import cli
from covey.errors import StoreError
from covey.site.requests import Loaded
from covey.store.database import APPLICATION
from covey.store.store import Store
from support.requests_of_nodes import commit_of, request


def load(store: Store) -> Loaded:
    return store.load("north", "fingerprint")


def test_a_commit_that_failed_is_gone_after_a_crash(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    load(store)
    store.commit(commit_of([request(1)]))
    with pytest.raises(StoreError):
        store.commit(commit_of([request(2), request(2)]))

    again = load(crashed(tmp_path / "a", tmp_path / "b"))

    assert [one.number for one in again.requests] == [1]


def test_a_file_is_synced_at_every_commit(tmp_path: Path) -> None:
    """Without FULL, a commit in WAL mode may be lost with the power."""
    store = Store(tmp_path / "a")

    settings = ("journal_mode", "synchronous")
    told = [store._base.execute(f"PRAGMA {name}").fetchone()[0] for name in settings]

    assert told == ["wal", 2]


def test_a_new_store_is_for_its_owner_alone_and_the_mode_of_an_old_one_stays(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    first = Store(path)
    load(first)
    modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
    first.close()
    path.chmod(0o640)
    Store(path).close()

    assert modes == dict.fromkeys(["a", "a-wal", "a-shm", "a.lock"], 0o600)
    assert path.stat().st_mode & 0o777 == 0o640


HEAD = 100  # bytes of a file of SQLite that say how it is written


def theirs(path: Path) -> None:
    change(path, "CREATE TABLE theirs (x)")


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("nodir/a", lambda path: None, r"nodir/a cannot be opened; is there such a folder"),
        ("a", theirs, "is not a store of covey"),
        ("a", lambda path: path.write_bytes(b"none" * 1000), "is damaged, or not a store of covey"),
    ],
)
def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(
    tmp_path: Path, name: str, make: Callable[[Path], object], said: str
) -> None:
    path = tmp_path / name
    make(path)
    before = path.read_bytes()[HEAD:] if path.exists() else None

    with pytest.raises(StoreError, match=said):
        Store(path)

    assert (path.read_bytes()[HEAD:] if path.exists() else None) == before


def test_a_truncated_store_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    load(store)
    store.commit(commit_of([request(k, id="x" * 500 + str(k)) for k in range(1, 200)]))
    store.close()
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(StoreError, match="damaged"):
        load(Store(tmp_path / "a"))


def test_check_says_that_a_store_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "a")

    code = cli.main(["check", str(tmp_path / "a")])

    assert code == 0
    assert capsys.readouterr().out == (
        "1 rows, 1 with label, 0 undelivered to peers\n"
        "every row fits its checksum, every counter is the sum of its labels\n"
    )


def test_check_of_a_file_that_is_not_there_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["check", str(tmp_path / "a")])

    assert (code, (tmp_path / "a").exists()) == (2, False)
    assert "there is no store" in capsys.readouterr().err


def written(path: Path) -> None:
    store = Store(path)
    load(store)
    store.commit(commit_of([request()], {1: [1]}))
    store.close()


def change(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as base, base:
        rows = base.execute(statement).fetchall()
        assert base.execute("PRAGMA application_id").fetchone()[0] in (0, APPLICATION)
    return rows


def crashed(path: Path, copy: Path) -> Store:
    """Return the store that another process would find, had this one been killed now."""
    for file in path.parent.glob(path.name + "*"):
        shutil.copy(file, copy.with_name(copy.name + file.name.removeprefix(path.name)))
    return Store(copy)
