"""A site is looked at before it serves, and while it does: what will not work, and what to do."""

import asyncio
import contextlib
import os
import socket
import tempfile
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from test_reload import Logged

from covey import cli
from covey.errors import ConfigError
from covey.server import app, config, doctor, keys, tokens
from covey.server.doctor import Finding
from covey.store.store import Store
from support.coroutines import looped
from support.examined import FEATURES, examine, states
from support.ports import free_port
from support.served import SITE, serving, serving_all
from support.site_processes import Offices, table

Found = dict[str, Finding]
ZERO, ONE = 'kind = "constant"\nlabel = 0', 'kind = "constant"\nlabel = 1'
BROKEN = 'kind = "python"\nentry = "operator:truediv"'


async def beside(folder: Path, served: str, examined: str, **more: Any) -> Found:
    """Return what is said of a site while another one, or the same one, is served."""
    async with serving(folder, served, **more):
        return await asyncio.to_thread(examine, folder, examined)


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return what changes when a file in a folder is written, made or removed.

    The memory that processes share changes with every reader.
    """
    files = [one for one in sorted(folder.rglob("*")) if one.is_file()]
    files = [file for file in files if not file.name.endswith(("examined.toml", "-shm"))]
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


# -- the file, functions, the address -------------------------------------------------------------


def test_a_site_that_can_serve_has_nothing_to_mend(tmp_path: Path) -> None:
    (tmp_path / "rules_of_this_site.py").write_text("def cloudy(instance):\n    return 7\n")
    entry = 'kind = "python"\nentry = "rules_of_this_site:cloudy"'
    found = examine(tmp_path, SITE.replace(ONE, entry))

    assert states(found) == {}
    assert {"file", "store", "disk", "address", "function zero", "function one"} <= set(found)
    assert found["function one"].message == "answers made-up instances with 7 and 7"


RAISING = """
import threading

def interrupts(instance):
    raise KeyboardInterrupt

def exits(instance):
    raise SystemExit(3)

def hangs(instance):
    threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("interrupts", "raised KeyboardInterrupt"),
        ("exits", "raised SystemExit: 3"),
        ("hangs", "did not return within 0.01 s"),
    ],
)
def test_no_function_ends_or_holds_up_the_doctor(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "functions_that_raise.py").write_text(RAISING)
    entry = f'kind = "python"\nentry = "functions_that_raise:{name}"\ntimeout-s = 0.01'
    found = examine(tmp_path, SITE.replace(ONE, entry))

    assert states(found) == {"function one": "failure"}
    assert said in found["function one"].message


def test_all_invalid_tables_of_a_file_are_named_in_one_run(tmp_path: Path) -> None:
    text = SITE.replace("store =", "stroe =").replace("slices", "slizes")
    text = text.replace("json-kib", "jason-kib").replace('"constant"', '"konstant"')
    peer = '[[peer]]\nname = "south"\nkey = "p256:12"\n[[peer]]\nkey = "p256:34"\n'
    (tmp_path / "site.toml").write_text(f"{text}{peer}[polizy]\n")
    findings = doctor.examine(tmp_path / "site.toml")
    words = ["polizy", "stroe", "jason-kib", "slizes", "konstant", "konstant", "public key", "name"]
    places = [*["file"] * 4, "function zero", "function one", "peer south", "peer 2"]

    assert [(finding.what, finding.state) for finding in findings] == [
        (what, "failure") for what in places
    ]
    assert all(word in one.message for one, word in zip(findings, words, strict=True))


@pytest.mark.parametrize(
    ("old", "new", "what", "word"),
    [
        ("rows = 100", "rows = 100\ntickets = 200", "file", "label-wait"),
        ("north.store", "elsewhere/north.store", "store", "folder"),
        (ONE, BROKEN, "function one", "made-up text may be unknown"),
    ],
)
def test_what_will_not_work_is_a_failure(
    tmp_path: Path, old: str, new: str, what: str, word: str
) -> None:
    found = examine(tmp_path, SITE.replace(old, new))

    assert states(found) == {what: "failure"}
    assert word in found[what].message


@pytest.mark.parametrize("site", ["this one", "another one", "another program"])
def test_beside_a_node_its_address_is_its_own_and_that_of_another_a_failure(
    tmp_path: Path, site: str
) -> None:
    text = SITE.replace("127.0.0.1:0", f"127.0.0.1:{free_port()}")
    other = text.replace('"north"', '"south"').replace("north.store", "south.store")
    if site == "another program":
        with socket.create_server(("127.0.0.1", 0)) as taken:  # nothing will answer there
            port = taken.getsockname()[1]
            found = examine(tmp_path, SITE.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
    else:
        found = asyncio.run(beside(tmp_path, text, other if site == "another one" else text))

    assert states(found) == ({} if site == "this one" else {"address": "failure"})
    assert ("the site serves" in found["address"].message) == (site == "this one")


def test_a_folder_in_which_nothing_can_be_written_is_a_failure() -> None:
    user, nobody = os.geteuid(), 65_534
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "site.toml"
        path.write_text(SITE)
        Path(folder).chmod(0o555)
        os.seteuid(nobody if user == 0 else user)  # permissions do not bind root
        try:
            found = {one.what: one for one in doctor.examine(path)}
        finally:
            os.seteuid(user)

    assert states(found) == {"store": "failure"}
    assert "files cannot be made" in found["store"].message


# -- the store ------------------------------------------------------------------------------------


def store_of(folder: Path, text: str = SITE, *, name: str = "north") -> Store:
    (folder / "site.toml").write_text(text)
    store = Store(folder / "north.store")
    store.load(name, config.load(folder / "site.toml").fingerprint)
    return store


def test_a_store_that_a_process_has_open_is_left_alone(tmp_path: Path) -> None:
    with contextlib.closing(store_of(tmp_path)):
        before = content(tmp_path)

        assert "a node is running" in examine(tmp_path, SITE)["store"].message
        assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [
        (SITE, "south", "'south', not of 'north'"),
        (SITE.replace("dimension = 1", "dimension = 2"), "north", "would mean something else"),
    ],
)
def test_a_store_of_another_site_or_of_other_contexts_is_a_failure(
    tmp_path: Path, text: str, name: str, word: str
) -> None:
    store_of(tmp_path, text, name=name).close()
    found = examine(tmp_path, SITE)

    assert states(found) == {"store": "failure"}
    assert word in found["store"].message
    assert str(tmp_path / "north.store") in found["store"].message


# -- certificates, keys and tokens ----------------------------------------------------------------


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south"])


def certify(folder: Path, **more: Any) -> None:
    """Give north another certificate."""
    for end in ("crt", "key"):
        (folder / f"north.{end}").unlink()
    keys.new("north", hosts=["127.0.0.1"], folder=folder, **more)


def alone(offices: Offices, *more: str, **node: Any) -> str:
    return offices.file("north", *more, features=FEATURES, dimension=1, **node)


def test_a_certificate_that_ends_soon_is_a_warning(offices: Offices) -> None:
    certify(offices.folder, days=15)
    assert states(examine(offices.folder, alone(offices))) == {}

    certify(offices.folder, days=14)
    found = examine(offices.folder, alone(offices))
    assert states(found) == {"certificate": "warning"}
    assert "covey keys renew" in found["certificate"].message


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"key": "south.key"}, "is not the key of"),
        ({"key": "south.key", "certificate": "south.crt"}, "is of site 'south'"),
        ({}, "check the clock"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_a_failure(
    offices: Offices, files: dict[str, str], word: str
) -> None:
    if not files:
        certify(offices.folder, now=datetime.now(UTC) + timedelta(days=2))
    text = alone(offices, **files)

    assert word in examine(offices.folder, text)["certificate"].message
    (offices.folder / "site.toml").write_text(text)
    site = config.load(offices.folder / "site.toml")
    with pytest.raises(ConfigError, match=word):
        asyncio.run(app.serve(site, is_up=lambda *_: None))
    assert not (offices.folder / "north.store").exists()


def test_files_that_others_can_read_and_tokens_that_admit_nobody_are_reported(
    offices: Offices,
) -> None:
    folder, text = offices.folder, alone(offices, tokens="tokens.json")
    assert states(examine(folder, text)) == {"tokens": "failure"}

    before = datetime.now(UTC) - timedelta(days=9)
    tokens.new(folder / "tokens.json", "old", scopes=["infer"], days=3, now=before)
    assert states(examine(folder, text)) == {"tokens": "warning"}

    tokens.new(folder / "tokens.json", "camera", scopes=["infer"])
    assert states(examine(folder, text)) == {}

    (folder / "tokens.json").chmod(0o644)
    (folder / "north.key").chmod(0o640)
    assert states(examine(folder, text)) == {"tokens": "warning", "key": "warning"}

    (folder / "north.key").chmod(0o644)
    assert states(examine(folder, text))["certificate"] == "failure"


# -- peers ----------------------------------------------------------------------------------------

BOTH = {"may-ask": True, "asks-by-context": True}
MAY_ASK = {"may-ask": True}


def site(offices: Offices, name: str, *, peer: str, asks: str = "", **rights: Any) -> str:
    """Return the file of a site that knows one peer, and may ask it by data or by context."""
    peers = {"peers": {peer: 0.0} if asks == "data" else {}}
    if asks == "context":
        peers["context-peers"] = {peer: 0.0}
    policy = table("[policy]", {"preset": "cos", "slices": 2})
    known = offices.peer(peer, share="data", **rights)
    return offices.file(name, policy, known, learner=peers, features=FEATURES, dimension=1)


@pytest.mark.parametrize("asks", ["data", "context"])
def test_peers_that_work_have_nothing_to_mend_and_nothing_changes_there(
    offices: Offices, asks: str
) -> None:
    north = site(offices, "north", peer="south", asks=asks, **BOTH)
    south = site(offices, "south", peer="north", **BOTH)
    found = asyncio.run(beside(offices.folder, south, north))
    said = found["peer south, protocol"].message

    assert states(found) == {}
    assert {"peer south", "peer south, asking", "peer south, clock"} <= set(found)
    assert said == f"speaks peer protocol 1 (covey {version('covey')})"
    with contextlib.closing(Store(offices.folder / "south.store")) as store:
        loaded = store.load("south", config.load(offices.folder / "site.toml").fingerprint)
    assert list(loaded.sources) == [""]  # there are no statistics of north


@pytest.mark.parametrize(
    ("asks", "rights", "word"),
    [("data", {}, "may-ask = true"), ("context", MAY_ASK, "asks-by-context = true")],
)
def test_a_peer_that_does_not_let_itself_be_asked_is_a_failure(
    offices: Offices, asks: str, rights: dict[str, bool], word: str
) -> None:
    north = site(offices, "north", peer="south", asks=asks)
    south = site(offices, "south", peer="north", **rights)
    found = asyncio.run(beside(offices.folder, south, north))

    assert states(found) == {"peer south, asking": "failure"}
    assert word in found["peer south, asking"].message


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("slices = 2", "slices = 3", "3 slices per dim"),
        ("dimension = 1", "dimension = 2", "1 dimensions here and 2 there"),
        ('preset = "cos"\nslices = 2', 'preset = "auto"', "'cos' here and 'auto' there"),
        ('size = "FP64"', 'size = "INT64"', "'FP64' here and 'INT64' there"),
        ('size = "FP64"', 'age = "FP64"', "'size' is 'FP64' here and 'missing' there"),
        ('size = "FP64"', 'size = "FP64", age = "FP64"', "'age' is 'missing' here"),
        ("dimension = 1", 'dimension = 1\ninstance = "row"', "a 'record' here and a 'row' there"),
    ],
)
def test_a_peer_whose_settings_do_not_fit_is_a_failure_with_what_differs(
    offices: Offices, old: str, new: str, word: str
) -> None:
    north = site(offices, "north", peer="south", asks="data", **BOTH)
    south = site(offices, "south", peer="north", **BOTH)
    assert old in south
    found = asyncio.run(beside(offices.folder, south.replace(old, new), north))

    assert states(found) == {"peer south, settings": "failure"}
    assert word in found["peer south, settings"].message


@looped
async def test_a_site_says_at_its_start_that_a_peer_does_not_fit(offices: Offices) -> None:
    north = site(offices, "north", peer="south", asks="data", **BOTH)
    south = site(offices, "south", peer="north", **BOTH).replace('preset = "cos"\nslices = 2', "")
    said = Logged("peer south does not fit this site:").line_after(lambda: None)
    line = asyncio.create_task(said)
    async with serving_all(offices.folder, {"south": south, "north": north}):
        assert "'cos' here and 'auto' there" in await line


def test_a_peer_that_cannot_be_reached_as_the_file_says_is_named(offices: Offices) -> None:
    north = site(offices, "north", peer="south", asks="data")
    south = site(offices, "south", peer="north")
    own, other = offices.key("north"), offices.key("south")
    strange = asyncio.run(beside(offices.folder, south.replace(own, other), north))
    wrong = asyncio.run(beside(offices.folder, south, north.replace(other, own)))
    down = examine(offices.folder, north)

    assert [states(found) for found in (strange, wrong, down)] == [
        {"peer south": "failure"},
        {"peer south": "failure"},
        {"peer south": "warning"},
    ]
    assert own in strange["peer south"].message  # what its operator must write
    assert "key is not the one that is listed here" in wrong["peer south"].message
    assert "works without it" in down["peer south"].message


def test_a_peer_of_another_key_or_without_tls_is_a_failure(
    offices: Offices, tmp_path: Path
) -> None:
    others = Offices(tmp_path / "others", ["north", "south"])
    others.ports = offices.ports
    north = site(offices, "north", peer="south", asks="data")

    async def main() -> list[Found]:
        async with serving(others.folder, site(others, "south", peer="north")):
            found = [await asyncio.to_thread(examine, offices.folder, north)]

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail\r\n")
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1", offices.ports["south"]):
            return [*found, await asyncio.to_thread(examine, offices.folder, north)]

    assert [states(found) for found in asyncio.run(main())] == [{"peer south": "failure"}] * 2


def test_the_command_prints_a_line_for_each_look(
    offices: Offices, capsys: pytest.CaptureFixture[str]
) -> None:
    (offices.folder / "site.toml").write_text(site(offices, "north", peer="south"))

    assert cli.main(["doctor", str(offices.folder / "site.toml")]) == 0  # warnings are no failure
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert words.count("warning") == 1
    assert set(words) == {"ok", "warning"}
