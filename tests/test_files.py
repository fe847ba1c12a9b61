"""A file is written whole or not at all."""

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
