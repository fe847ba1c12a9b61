"""A file is written whole or not at all."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from covey import files


def test_a_file_gets_its_content_and_nothing_else_is_left(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(b"old")

    files.replace(tmp_path / "run.json", b"new")

    assert (tmp_path / "run.json").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_what_cannot_be_put_in_place_leaves_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()

    with pytest.raises(OSError, match="run.json"):
        files.replace(tmp_path / "run.json", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_reader_that_has_the_old_file_open_keeps_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"old")

    with path.open("rb") as reader:
        files.replace(path, b"newer")

        assert reader.read() == b"old"


def test_a_created_file_has_its_permissions_and_is_never_put_over_another(tmp_path: Path) -> None:
    path = tmp_path / "north.key"

    files.create(path, b"first", mode=0o600)
    with pytest.raises(FileExistsError):
        files.create(path, b"second", mode=0o600)

    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["north.key"]


def test_a_link_that_leads_nowhere_is_not_followed_to_create_a_file(tmp_path: Path) -> None:
    (tmp_path / "north.key").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(FileExistsError):
        files.create(tmp_path / "north.key", b"secret", mode=0o600)

    assert not (tmp_path / "elsewhere").exists()


def test_a_replaced_file_takes_the_permissions_that_are_given(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(b"old")
    path.chmod(0o644)

    files.replace(path, b"new", mode=0o600)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_locked_folder_is_locked_for_others_until_it_is_let_go(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    with files.locked(tmp_path), pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
