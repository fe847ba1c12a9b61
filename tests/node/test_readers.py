"""Other processes read a store as it is at one instant, beside its node and without changing it."""

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from covey import cli
from covey.errors import StoreAway, StoreError
from covey.store import store_file
from covey.store.store import Store
from covey.store.store_file import is_in_use
from support.requests_of_nodes import commit_of, request


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "north.store"


@pytest.fixture
def node(path: Path) -> Iterator[Store]:
    """The store as a node has it, with one request."""
    with closing(begun(path)) as store:
        yield store


def begun(path: Path) -> Store:
    """Return a store with one request."""
    store = Store(path)
    store.load("north", "fingerprint")
    store.commit(commit_of([request(1)]))
    return store


def left_by_a_crash(node: Store, folder: Path) -> Path:
    """Return a copy of the files of a node that was killed now."""
    folder.mkdir()
    for file in Path(node.path).parent.glob("north.store*"):
        shutil.copy(file, folder)
    return folder / "north.store"


def numbers(path: Path) -> list[int]:
    with Store.reading(path) as store:
        return [one.number for one in store.requests()]


def files(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def test_a_reader_sees_one_instant_while_the_node_commits_and_prunes(path: Path) -> None:
    with closing(Store(path, rows_kept=2)) as node:
        node.load("north", "fingerprint")
        node.commit(commit_of([request(k) for k in range(1, 4)]))
        with Store.reading(path) as store:
            first = store.size()["rows"]
            later = commit_of([request(k) for k in range(4, 400)])
            later.closed = list(range(1, 400))
            node.commit(later)

            assert store.size()["rows"] == first == len(list(store.requests()))
            assert store.check() == []
        assert len(numbers(path)) < 400 - first


@pytest.mark.parametrize("how", ["running", "crashed", "stopped"])
def test_a_reader_leaves_the_files_as_they_are(node: Store, tmp_path: Path, how: str) -> None:
    found = Path(node.path)
    if how == "crashed":
        found = left_by_a_crash(node, tmp_path / "left")
    if how == "stopped":
        node.close()
    before = files(found), found.read_bytes()

    assert numbers(found) == [1]
    assert (files(found), found.read_bytes()) == before


def test_a_site_that_stopped_leaves_its_store_alone(node: Store, path: Path) -> None:
    names = [f"north.store{ending}" for ending in ("", "-shm", "-wal", ".lock")]
    assert (files(path), is_in_use(path)) == (names, True)
    node.close()

    assert (files(path), is_in_use(path)) == (["north.store"], False)


def test_a_store_has_one_node_whatever_it_is_called(node: Store, path: Path) -> None:
    other = path.with_name("link.store")
    other.symlink_to(path)

    for name in (path, other):
        with pytest.raises(StoreAway, match="is in use by another process"):
            Store(name)


def test_a_node_stops_if_another_has_its_store_since_its_lock_was_removed(
    node: Store, path: Path
) -> None:
    path.with_name("north.store.lock").unlink()
    with closing(Store(path)) as second:
        second.load("north", "fingerprint")
        with pytest.raises(StoreError, match=r"taken over by another node \(start 1 is not"):
            node.commit(commit_of([request(2)]))

        second.commit(commit_of([request(2)]))
    assert numbers(path) == [1, 2]


def test_a_node_that_starts_ends_the_reading_of_a_store_that_was_stopped(
    node: Store, path: Path
) -> None:
    node.close()

    def read() -> None:
        with Store.reading(path) as store:
            with closing(Store(path)) as second:
                second.load("north", "fingerprint")
            store.size()

    with pytest.raises(StoreError, match="was started while it was read; try again"):
        read()


def test_a_log_that_is_being_read_is_not_begun_again(
    node: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(store_file.HOW, "timeout", 0.0)
    left = left_by_a_crash(node, tmp_path / "left")
    with Store.reading(left), pytest.raises(StoreAway, match="is being read by another process"):
        Store(left)

    Store(left).close()


# -- other users --------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all may enter."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        Path(name).chmod(0o700)


def show(folder: Path) -> None:
    """Let all users read the files of a folder, and none write them."""
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)


def as_another(call: Callable[[Path], object], path: Path) -> str:
    """Return what a call returns for a user that owns nothing, or the sentence that it raises."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()

    def main() -> None:
        if not os.getuid():
            os.setuid(65_534)
        try:
            theirs.send(str(call(path)))
        except StoreError as error:
            theirs.send(str(error))

    process = fork.Process(target=main)
    process.start()
    text: str = ours.recv()
    process.join()
    return text


def test_a_user_who_may_only_read_reads_beside_a_node_and_cannot_start_one(folder: Path) -> None:
    path = folder / "north.store"
    with closing(begun(path)):
        show(folder)

        assert as_another(numbers, path) == "[1]"
        assert "may not be written; start the node as the owner" in as_another(Store, path)


def test_a_backup_is_the_store_at_one_instant_while_the_node_commits(
    node: Store, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = str(path.with_name("copy"))

    codes = [cli.main(["backup", str(path), copy, "--quiet"])]
    node.commit(commit_of([request(2)]))
    codes += [cli.main(["check", copy]), cli.main(["backup", str(path), copy])]
    told = capsys.readouterr()

    assert codes == [0, 0, 2]
    assert told.out.count("1 rows, 0 with label, 0 undelivered to peers") == 2
    assert "there is a store in" in told.err
    assert (numbers(Path(copy)), numbers(path)) == ([1], [1, 2])
