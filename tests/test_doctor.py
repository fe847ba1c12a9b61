"""A site is looked at before it serves: what is said of what is wrong, and that nothing changes."""

import asyncio
import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from covey import cli, doctor, keys, sites, tokens
from covey.books import shape_of
from covey.doctor import Finding
from covey.store import Store
from neighbourhood import SRC, Offices, served, table
from served import FEEDBACK, INFER, SITE, infer, serving

pytestmark = pytest.mark.beside_the_kernel

FEATURES = {"size": "FP64"}
FUNCTION = table("[[function]]", {"name": "zero", "kind": "constant", "label": 0})


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south"])


def site(offices: Offices, name: str, *, peer: str, asks: str = "", **rights: Any) -> str:
    """Return the file of a site that knows one peer, and may ask it by data or by context."""
    peers = {"peers": {peer: 0.0} if asks == "data" else {}}
    if asks == "context":
        peers["context-peers"] = {peer: 0.0}
    return "\n".join(
        [
            offices.node(name, features=FEATURES, dimension=1),
            table("[policy]", {"preset": "cos", "slices": 2}),
            table("[[learner]]", {"name": name, "functions": ["zero"], **peers}),
            FUNCTION,
            offices.peer(peer, share="data", **rights),
        ]
    )


def examine(folder: Path, text: str) -> dict[str, Finding]:
    """Return what is said of a site's file, by what it is about; the worst where there are two."""
    path = folder / "examined.toml"
    path.write_text(text)
    order = ["ok", "warning", "failure"]
    found = sorted(doctor.examine(path), key=lambda one: order.index(one.state))
    return {one.what: one for one in found}


def states(found: dict[str, Finding]) -> dict[str, str]:
    return {what: one.state for what, one in found.items() if one.state != "ok"}


def content(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


# -- one site -----------------------------------------------------------------------------------


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


def test_room_for_fewer_tickets_than_are_waited_for_is_a_failure(tmp_path: Path) -> None:
    found = examine(tmp_path, SITE.replace("rows = 100", "rows = 100\ntickets = 200"))

    assert states(found) == {"file": "failure"}
    assert "label-wait is 20" in found["file"].said
    assert "[limits] tickets = 200 is no room; make that 220 or more" in found["file"].said


def test_a_file_that_is_not_there_is_a_failure_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["doctor", str(tmp_path / "none.toml"), "--json"])

    said = json.loads(capsys.readouterr().out)
    assert (code, said["fine"], said["findings"][0]["what"]) == (1, False, "file")


def test_a_function_that_fails_is_named(tmp_path: Path) -> None:
    text = SITE.replace('kind = "BYTES"', 'kind = "INT64"').replace(
        'name = "one"\nkind = "constant"\nlabel = 1',
        'name = "one"\nkind = "python"\nentry = "operator:truediv"',
    )

    found = examine(tmp_path, text)

    assert states(found) == {"function one": "failure"}
    assert "truediv expected 2 arguments" in found["function one"].said


def test_a_function_that_fails_with_made_up_text_may_work_with_other_text(tmp_path: Path) -> None:
    text = SITE.replace(
        'name = "one"\nkind = "constant"\nlabel = 1',
        'name = "one"\nkind = "python"\nentry = "operator:truediv"',
    )

    assert states(examine(tmp_path, text)) == {"function one": "warning"}


def test_a_port_of_somebody_else_is_a_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        taken.close()
    with socket.create_server(("127.0.0.1", port)) as taken:
        taken.settimeout(0)  # nobody will answer there
        found = examine(tmp_path, SITE.replace("127.0.0.1:0", f"127.0.0.1:{port}"))

    assert "Address already in use" in found["address"].said
    assert states(found) == {"address": "failure"}


# -- the store ----------------------------------------------------------------------------------


def store_of(folder: Path, text: str = SITE, *, name: str = "north") -> Store:
    (folder / "site.toml").write_text(text)
    store = Store(folder / "north.store")
    store.load(name, shape_of(sites.load(folder / "site.toml").learner))
    return store


def test_a_store_that_a_process_has_open_is_left_alone(tmp_path: Path) -> None:
    with contextlib.closing(store_of(tmp_path)):
        before = content(tmp_path)
        found = examine(tmp_path, SITE)

        assert "a node is running" in found["store"].said
        (tmp_path / "examined.toml").unlink()
        assert content(tmp_path) == before


def test_a_store_that_was_left_by_a_crash_is_read_as_a_node_would_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    code = (
        "import os, sys\n"
        "from covey.books import shape_of\n"
        "from covey import sites\n"
        "from covey.store import Store\n"
        "site = sites.load(__import__('pathlib').Path('site.toml'))\n"
        "Store('north.store').load('north', shape_of(site.learner))\n"
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

    assert "1 starts so far" in found["store"].said
    (tmp_path / "examined.toml").unlink()
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (SITE, "south", "is the store of site 'south', not of 'north'"),
        (SITE.replace("slices = 4", "slices = 2"), "north", "would mean something else"),
    ],
)
def test_a_store_of_another_site_or_shape_is_a_failure(
    tmp_path: Path, text: str, name: str, said: str
) -> None:
    store_of(tmp_path, text, name=name).close()

    found = examine(tmp_path, SITE)

    assert states(found) == {"store": "failure"}
    assert said in found["store"].said
    assert str(tmp_path / "north.store") in found["store"].said


def test_counters_that_do_not_agree_and_files_that_are_no_store_are_failures(
    tmp_path: Path,
) -> None:
    store_of(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "north.store")) as base, base:
        base.execute("INSERT INTO counters VALUES ('g4:1', '', 'zero', 3, 1)")
    assert "is damaged: cell g4:1" in examine(tmp_path, SITE)["store"].said

    (tmp_path / "north.store").write_bytes(b"no store" * 1000)
    assert states(examine(tmp_path, SITE)) == {"store": "failure"}


def test_a_folder_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    text = SITE.replace("north.store", "elsewhere/north.store")

    assert states(examine(tmp_path, text)) == {"store": "failure"}


# -- keys and tokens ----------------------------------------------------------------------------


def lasting(folder: Path, days: int) -> None:
    """Give north a certificate that ends in so many days."""
    for end in ("crt", "key"):
        (folder / f"north.{end}").unlink()
    keys.new_site(
        "north", hosts=["127.0.0.1"], authority=folder / "office", folder=folder, days=days
    )


def alone(offices: Offices, **more: Any) -> str:
    return "\n".join(
        [
            offices.node("north", features=FEATURES, dimension=1, **more),
            table("[[learner]]", {"name": "north", "functions": ["zero"]}),
            FUNCTION,
        ]
    )


def test_a_certificate_that_ends_soon_is_a_warning(offices: Offices) -> None:
    lasting(offices.folder, 15)
    assert states(examine(offices.folder, alone(offices))) == {}

    lasting(offices.folder, 14)
    found = examine(offices.folder, alone(offices))
    assert states(found) == {"certificate": "warning"}
    assert "covey keys renew" in found["certificate"].said


def test_keys_that_do_not_belong_together_are_a_failure(offices: Offices) -> None:
    found = examine(offices.folder, alone(offices, key="south.key"))
    assert "is not the key of" in found["certificate"].said

    keys.new_authority(offices.folder / "other")
    found = examine(offices.folder, alone(offices, authority="other/ca.crt"))
    assert "was not signed by" in found["certificate"].said


def test_a_certificate_of_another_site_is_a_failure(offices: Offices) -> None:
    text = alone(offices, key="south.key", certificate="south.crt")

    found = examine(offices.folder, text)

    assert states(found) == {"certificate": "failure"}
    assert "is of site 'south'" in found["certificate"].said


def test_a_clock_before_the_start_of_the_certificate_is_a_failure(offices: Offices) -> None:
    for end in ("crt", "key"):
        (offices.folder / f"north.{end}").unlink()
    later = datetime.now(UTC) + timedelta(days=2)
    keys.new_site("north", authority=offices.folder / "office", folder=offices.folder, now=later)

    assert "is the clock right?" in examine(offices.folder, alone(offices))["certificate"].said


def test_files_that_others_can_read_are_told(offices: Offices) -> None:
    tokens.new(offices.folder / "tokens.json", "camera", scopes=["infer"])
    text = alone(offices, tokens="tokens.json")
    assert states(examine(offices.folder, text)) == {}

    (offices.folder / "tokens.json").chmod(0o644)
    (offices.folder / "north.key").chmod(0o640)
    assert states(examine(offices.folder, text)) == {"tokens": "warning", "key": "warning"}

    (offices.folder / "north.key").chmod(0o644)
    assert states(examine(offices.folder, text))["certificate"] == "failure"


def test_tokens_that_let_nobody_in_are_told(offices: Offices) -> None:
    text = alone(offices, tokens="tokens.json")
    assert states(examine(offices.folder, text)) == {"tokens": "failure"}

    before = datetime.now(UTC) - timedelta(days=9)
    tokens.new(offices.folder / "tokens.json", "camera", scopes=["infer"], days=3, now=before)
    assert states(examine(offices.folder, text)) == {"tokens": "warning"}


# -- peers --------------------------------------------------------------------------------------

BOTH = {"may-ask": True, "asks-by-context": True}


@pytest.mark.parametrize("asks", ["data", "context"])
def test_peers_that_work_have_nothing_to_mend_and_nothing_changes_there(
    offices: Offices, asks: str
) -> None:
    north = site(offices, "north", peer="south", asks=asks, **BOTH)
    south = site(offices, "south", peer="north", **BOTH)
    with served(offices.folder, {"north": north, "south": south}) as clients:
        before = [client.state() for client in clients.values()]
        found = examine(offices.folder, north)
        after = [client.state() for client in clients.values()]

    assert states(found) == {}
    assert "is served by this site already" in found["peer-address"].said
    assert "is running" in found["store"].said
    assert {"peer south", "peer south, asking", "peer south, clock"} <= set(found)
    for state in (*before, *after):
        state.pop("uptime_s", None)
    assert before == after
    with contextlib.closing(Store(offices.folder / "south.store")) as store:
        loaded = store.load("south", store_shape(offices, "south"))
    assert list(loaded.desks) == [""]  # no desk was opened for north


def store_shape(offices: Offices, name: str) -> str:
    return shape_of(sites.load(offices.folder / f"{name}.toml").learner)


def test_a_peer_that_does_not_let_itself_be_asked_is_a_failure(offices: Offices) -> None:
    north = site(offices, "north", peer="south", asks="data")
    with served(offices.folder, {"south": site(offices, "south", peer="north")}):
        found = examine(offices.folder, north)

    assert states(found) == {"peer south, asking": "failure"}
    assert "may-ask = true" in found["peer south, asking"].said


def test_a_peer_that_is_not_to_be_asked_by_context_is_a_failure(offices: Offices) -> None:
    north = site(offices, "north", peer="south", asks="context")
    south = site(offices, "south", peer="north", **{"may-ask": True})
    with served(offices.folder, {"south": south}):
        found = examine(offices.folder, north)

    assert states(found) == {"peer south, asking": "failure"}
    assert "asks-by-context = true" in found["peer south, asking"].said


def test_a_peer_that_does_not_know_the_site_is_a_failure_with_what_it_must_write(
    offices: Offices,
) -> None:
    north = site(offices, "north", peer="south", asks="data")
    south = site(offices, "south", peer="north").replace(offices.key("north"), offices.key("south"))

    async def main() -> dict[str, Finding]:
        async with serving(offices.folder, south):
            return await asyncio.to_thread(examine, offices.folder, north)

    found = asyncio.run(main())

    assert states(found) == {"peer south": "failure"}
    assert "does not know this site" in found["peer south"].said
    assert offices.key("north") in found["peer south"].said


def test_a_peer_with_another_key_is_a_failure(offices: Offices) -> None:
    north = site(offices, "north", peer="south", asks="data")
    with served(offices.folder, {"south": site(offices, "south", peer="north")}):
        found = examine(offices.folder, north.replace(offices.key("south"), offices.key("north")))

    assert states(found) == {"peer south": "failure"}
    assert "shows another key" in found["peer south"].said


def test_a_peer_of_another_authority_is_a_failure(offices: Offices, tmp_path: Path) -> None:
    others = Offices(tmp_path / "others", ["north", "south"])
    others.ports = offices.ports
    north = site(offices, "north", peer="south", asks="data")
    with served(others.folder, {"south": site(others, "south", peer="north")}):
        found = examine(offices.folder, north)

    assert states(found) == {"peer south": "failure"}


def test_a_peer_that_is_down_is_a_warning_as_the_site_goes_on_without_it(offices: Offices) -> None:
    found = examine(offices.folder, site(offices, "north", peer="south", asks="data"))

    assert states(found) == {"peer south": "warning"}
    assert "go on without it" in found["peer south"].said


def test_a_peer_that_speaks_no_tls_is_a_failure_without_a_traceback(offices: Offices) -> None:
    async def main() -> dict[str, Finding]:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail\r\n")
            writer.close()

        listening = await asyncio.start_server(greet, "127.0.0.1", offices.ports["south"])
        async with listening:
            text = site(offices, "north", peer="south", asks="data")
            return await asyncio.to_thread(examine, offices.folder, text)

    assert states(asyncio.run(main())) == {"peer south": "failure"}


@pytest.mark.parametrize("more", ["", 'tokens = "tokens.json"'])
def test_beside_a_node_its_address_is_its_own(tmp_path: Path, more: str) -> None:
    tokens.new(tmp_path / "tokens.json", "camera", scopes=["infer"])
    text = SITE.replace("dimension", f"{more}\ndimension")

    async def main() -> dict[str, Finding]:
        async with serving(tmp_path, text) as client:
            port = client.root.rpartition(":")[2]
            return await asyncio.to_thread(examine, tmp_path, text.replace(".1:0", f".1:{port}"))

    found = asyncio.run(main())
    assert states(found) == {}
    assert "is served by this site already" in found["address"].said


def test_an_address_of_another_model_is_a_failure(tmp_path: Path) -> None:
    async def main() -> dict[str, Finding]:
        async with serving(tmp_path, SITE) as client:
            text = SITE.replace('"north"', '"south"').replace("north.store", "south.store")
            port = client.root.rpartition(":")[2]
            return await asyncio.to_thread(examine, tmp_path, text.replace(".1:0", f".1:{port}"))

    assert states(asyncio.run(main())) == {"address": "failure"}


LESSONS = SITE.replace(
    'kind = "constant"\nlabel = 1',
    'kind = "python"\nentry = "models:Majority"\nlessons = "kept/one.jsonl"\nlessons-kept = 2',
)


def seen(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return what changes when something in a folder is written, made or removed."""
    return {
        str(one): (one.stat().st_ino, one.stat().st_size, one.stat().st_mtime_ns)
        for one in (folder, *folder.iterdir())
    }


def test_beside_a_node_what_functions_were_taught_stays_as_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()

    async def main() -> dict[str, Finding]:
        async with serving(tmp_path, LESSONS) as client:
            for k in range(12):
                await client.post(INFER, infer(str(k)))
                await client.post(FEEDBACK, {"id": str(k), "truth": "spam"})
            with (kept / "one.jsonl").open("ab") as file:
                file.write(b"[[1.5")  # a line that the node is about to end
            before = seen(kept)
            found = await asyncio.to_thread(examine, tmp_path, LESSONS)

            assert (kept / "one.jsonl").read_bytes().count(b"\n") > 2
            assert seen(kept) == before
            return found

    found = asyncio.run(main())
    assert "'spam'" in found["function one"].said


def test_files_of_lessons_are_not_made_and_must_be_possible(tmp_path: Path) -> None:
    missing = examine(tmp_path, LESSONS)
    (tmp_path / "kept").mkdir()
    before = seen(tmp_path / "kept")
    empty = examine(tmp_path, LESSONS)

    assert states(missing) == {"file": "failure"}
    assert "cannot keep lessons in" in missing["file"].said
    assert states(empty) == {}
    assert seen(tmp_path / "kept") == before


def test_clocks_may_differ_by_five_minutes() -> None:
    assert [one.state for one in doctor._clock("peer", 300.0)] == ["ok"]
    assert [one.state for one in doctor._clock("peer", -301.0)] == ["warning"]
    assert list(doctor._clock("peer", None)) == []


def test_the_command_prints_a_line_for_each_look(
    offices: Offices, capsys: pytest.CaptureFixture[str]
) -> None:
    (offices.folder / "site.toml").write_text(site(offices, "north", peer="south"))

    code = cli.main(["doctor", str(offices.folder / "site.toml")])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0  # warnings do not keep a site from working
    assert [line.split()[0] for line in lines].count("warning") == 1
    assert all(line.split()[0] in ("ok", "warning") for line in lines)
