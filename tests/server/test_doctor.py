"""A site is looked at before it serves: its file, its functions, its address and its store."""

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from covey import cli
from covey.node.store import Store
from covey.server import config, doctor
from support.examined import examine, states
from support.served import SITE
from support.site_processes import SRC, table

pytestmark = pytest.mark.beside_the_kernel


def test_a_site_that_can_serve_has_nothing_to_mend(tmp_path: Path) -> None:
    found = examine(tmp_path, SITE)

    assert states(found) == {}
    assert {"file", "store", "disk", "address", "function zero", "function one"} <= set(found)


def test_a_file_that_cannot_be_loaded_is_one_failure_with_the_sentence_of_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.toml").write_text(SITE.replace("store =", "stroe ="))

    code = cli.main(["doctor", str(tmp_path / "site.toml")])

    assert code == 1
    assert capsys.readouterr().out == (
        "failure  file  unknown key 'stroe' in [node]; did you mean 'store'?\n"
    )


def test_all_invalid_tables_of_a_file_are_named_in_one_run(tmp_path: Path) -> None:
    text = SITE.replace("store =", "stroe =").replace("dimension", "dimention")
    text = text.replace("slices", "slizes").replace("json-kib", "jason-kib")
    text = text.replace('kind = "constant"', 'kind = "konstant"')
    peer = '[[peer]]\nname = "south"\nkey = "sha256:12"\n[[peer]]\nkey = "sha256:34"\n'
    (tmp_path / "site.toml").write_text(f"{text}{peer}[polizy]\n")

    found = doctor.examine(tmp_path / "site.toml")

    assert [(one.what, one.state, one.message) for one in found] == [
        ("file", "failure", "unknown table [polizy]; did you mean 'policy'?"),
        (
            "file",
            "failure",
            "unknown key 'stroe' in [node]; did you mean 'store'?; "
            "unknown key 'dimention' in [node]; did you mean 'dimension'?",
        ),
        ("file", "failure", "unknown key 'jason-kib' in [limits]; did you mean 'json-kib'?"),
        ("file", "failure", "unknown key 'slizes' in [policy]; did you mean 'slices'?"),
        *(
            (
                f"function {name}",
                "failure",
                f"[[function]] {number}: unknown kind 'konstant'; did you mean 'constant'?",
            )
            for number, name in enumerate(("zero", "one"), 1)
        ),
        (
            "peer south",
            "failure",
            "[[peer]] key of south: not a key hash; use the output of `covey keys show`: "
            '"sha256:" and 64 hexadecimal digits',
        ),
        ("peer 2", "failure", "[[peer]] 2: missing required field name"),
    ]


def test_what_invalid_functions_leave_is_looked_at_in_the_same_run(tmp_path: Path) -> None:
    functions = [
        table("[[function]]", {"name": "zero", "kind": "python", "entry": "no_such_module:f"}),
        table("[[function]]", {"name": "one", "kind": "python", "entry": "operator:truediv"}),
        table("[[function]]", {"name": "two", "kind": "onnx", "file": "none.onnx"}),
    ]
    text = SITE.partition("[[function]]")[0].replace('"one"]', '"one", "two"]')
    text = text.replace("north.store", "elsewhere/north.store") + "\n".join(functions)

    found = examine(tmp_path, text)

    assert states(found) == {
        "function zero": "failure",
        "function one": "failure",
        "function two": "failure",
        "store": "failure",
    }
    assert found["function zero"].message == (
        "function 'zero': No module named 'no_such_module'; put the module beside the "
        "configuration, or install it where covey is installed"
    )
    assert "no answer to a made-up instance" in found["function one"].message


def test_a_python_function_beside_the_file_of_the_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "rules_of_this_site.py").write_text("def cloudy(instance):\n    return 7\n")
    entry = 'kind = "python"\nentry = "rules_of_this_site:cloudy"'
    text = SITE.replace('kind = "constant"\nlabel = 1', entry)

    found = examine(tmp_path, text)

    assert states(found) == {}
    assert found["function one"].message == "answers made-up instances with 7 and 7"


def test_room_for_fewer_tickets_than_are_waited_for_is_a_failure(tmp_path: Path) -> None:
    found = examine(tmp_path, SITE.replace("rows = 100", "rows = 100\ntickets = 200"))

    assert states(found) == {"file": "failure"}
    assert "label-wait is 20" in found["file"].message
    assert "[limits] tickets = 200 is no room; make that 220 or more" in found["file"].message


def test_a_file_that_is_not_there_is_a_failure_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["doctor", str(tmp_path / "none.toml"), "--json"])

    said = json.loads(capsys.readouterr().out)
    assert (code, said["fine"], said["findings"][0]["what"]) == (1, False, "file")


def test_json_has_the_message_also_under_its_old_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["doctor", str(tmp_path / "none.toml"), "--json"])

    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert "none.toml" in finding["message"]
    assert finding["said"] == finding["message"]


def test_a_function_that_fails_is_named(tmp_path: Path) -> None:
    text = SITE.replace('kind = "BYTES"', 'kind = "INT64"').replace(
        'name = "one"\nkind = "constant"\nlabel = 1',
        'name = "one"\nkind = "python"\nentry = "operator:truediv"',
    )

    found = examine(tmp_path, text)

    assert states(found) == {"function one": "failure"}
    assert "truediv expected 2 arguments" in found["function one"].message


def test_a_function_that_fails_with_made_up_text_gets_a_hint(
    tmp_path: Path,
) -> None:
    text = SITE.replace(
        'name = "one"\nkind = "constant"\nlabel = 1',
        'name = "one"\nkind = "python"\nentry = "operator:truediv"',
    )

    found = examine(tmp_path, text)

    assert states(found) == {"function one": "failure"}
    assert found["function one"].message.endswith("made-up text may be unknown to it")


def test_a_port_of_another_process_is_a_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # nothing will answer there
        port = taken.getsockname()[1]
        found = examine(tmp_path, SITE.replace("127.0.0.1:0", f"127.0.0.1:{port}"))

    assert "is in use by another process" in found["address"].message
    assert states(found) == {"address": "failure"}


def content(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def store_of(folder: Path, text: str = SITE, *, name: str = "north") -> Store:
    (folder / "site.toml").write_text(text)
    store = Store(folder / "north.store")
    store.load(name, config.load(folder / "site.toml").fingerprint)
    return store


def test_a_store_that_a_process_has_open_is_left_alone(tmp_path: Path) -> None:
    with contextlib.closing(store_of(tmp_path)):
        before = content(tmp_path)
        found = examine(tmp_path, SITE)

        assert "a node is running" in found["store"].message
        (tmp_path / "examined.toml").unlink()
        assert content(tmp_path) == before


def test_a_store_that_was_left_by_a_crash_is_read_as_a_node_would_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    code = (
        "import os, sys\n"
        "from covey.server import config as sites\n"
        "from covey.node.store import Store\n"
        "site = sites.load(__import__('pathlib').Path('site.toml'))\n"
        "store = Store('north.store')\n"
        "store.load('north', site.fingerprint)\n"
        "os._exit(1)\n"
    )
    (tmp_path / "site.toml").write_text(SITE)
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        check=False,
    )
    before = content(tmp_path)
    assert str(tmp_path / "north.store-wal") in before

    found = examine(tmp_path, SITE)

    assert "1 starts so far" in found["store"].message
    (tmp_path / "examined.toml").unlink()
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (SITE, "south", "is the store of site 'south', not of 'north'"),
        (SITE.replace("dimension = 1", "dimension = 2"), "north", "would mean something else"),
    ],
)
def test_a_store_of_another_site_or_of_other_contexts_is_a_failure(
    tmp_path: Path, text: str, name: str, said: str
) -> None:
    store_of(tmp_path, text, name=name).close()

    found = examine(tmp_path, SITE)

    assert states(found) == {"store": "failure"}
    assert said in found["store"].message
    assert str(tmp_path / "north.store") in found["store"].message


def test_counters_that_do_not_agree_and_files_that_are_no_store_are_failures(
    tmp_path: Path,
) -> None:
    store_of(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "north.store")) as base, base:
        base.execute("INSERT INTO counters VALUES ('g4:1', '', 'zero', 3, 1)")
    assert "is damaged: cell g4:1" in examine(tmp_path, SITE)["store"].message

    (tmp_path / "north.store").write_bytes(b"no store" * 1000)
    assert states(examine(tmp_path, SITE)) == {"store": "failure"}


def test_a_folder_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    text = SITE.replace("north.store", "elsewhere/north.store")

    assert states(examine(tmp_path, text)) == {"store": "failure"}
